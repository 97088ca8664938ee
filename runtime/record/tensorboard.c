/* SPDX-License-Identifier: MIT
 *
 * The bytes of TensorBoard records, by hand: four protobuf fields do not need a library.
 *
 * Protobuf wire format: a field is a varint key (number * 8 + wire type), then its value; wire types used here are
 * 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
 */
#include "runtime/record/tensorboard.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

/* CRC of the 16 possible low nibbles: a table short enough to read, fast enough for a hundred bytes a step.
 * Entry i is the remainder of i * x^4 in reflected form, by the polynomial 0x82F63B78. */
static const uint32_t nibble_table[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t hs_crc32c(const void *bytes, size_t size)
{
    const unsigned char *rest = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= rest[i];
        crc = (crc >> 4) ^ nibble_table[crc & 15];
        crc = (crc >> 4) ^ nibble_table[crc & 15];
    }
    return ~crc;
}

/* A CRC stored next to its data would make the CRC of both trivial; hence TFRecord's rotation and constant. */
uint32_t hs_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

typedef struct Message {
    unsigned char bytes[HS_TENSORBOARD_RECORD_BYTES];
    size_t used;
} Message;

static void put(Message *message, const void *bytes, size_t size)
{
    assert(message->used + size <= sizeof message->bytes);
    memcpy(message->bytes + message->used, bytes, size);
    message->used += size;
}

/* Seven bits a byte, lowest first, the top bit set on all but the last.  Negative numbers take ten bytes. */
static void put_varint(Message *message, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_key(Message *message, unsigned field, unsigned wire)
{
    put_varint(message, field << 3 | wire);
}

static void put_bytes(Message *message, unsigned field, const void *bytes, size_t size)
{
    put_key(message, field, WIRE_BYTES);
    put_varint(message, size);
    put(message, bytes, size);
}

static void put_wall_time(Message *message, double wall_time_s)
{
    put_key(message, EVENT_WALL_TIME, WIRE_64);
    put(message, &wall_time_s, sizeof wall_time_s);
}

static size_t frame(unsigned char *record, const Message *event)
{
    Message framed = { .used = 0 };
    uint64_t length = event->used;
    uint32_t length_crc = hs_crc32c_mask(hs_crc32c(&length, sizeof length));
    uint32_t crc = hs_crc32c_mask(hs_crc32c(event->bytes, event->used));
    put(&framed, &length, sizeof length);
    put(&framed, &length_crc, sizeof length_crc);
    put(&framed, event->bytes, event->used);
    put(&framed, &crc, sizeof crc);
    memcpy(record, framed.bytes, framed.used);
    return framed.used;
}

size_t hs_tensorboard_version(unsigned char *record, double wall_time_s)
{
    static const char version[] = "brain.Event:2";
    Message event = { .used = 0 };
    put_wall_time(&event, wall_time_s);
    put_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    return frame(record, &event);
}

size_t hs_tensorboard_scalar(unsigned char *record, double wall_time_s, int64_t step, const char *tag, float value)
{
    assert(strlen(tag) <= HS_TENSORBOARD_MAX_TAG);
    Message scalar = { .used = 0 }, summary = { .used = 0 }, event = { .used = 0 };
    put_bytes(&scalar, VALUE_TAG, tag, strlen(tag));
    put_key(&scalar, VALUE_SIMPLE, WIRE_32);
    put(&scalar, &value, sizeof value);
    put_bytes(&summary, SUMMARY_VALUE, scalar.bytes, scalar.used);
    put_wall_time(&event, wall_time_s);
    put_key(&event, EVENT_STEP, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, EVENT_SUMMARY, summary.bytes, summary.used);
    return frame(record, &event);
}
