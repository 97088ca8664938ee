/* SPDX-License-Identifier: MIT
 *
 * An independent reader of TensorBoard event files: checks lengths and CRCs of every record, takes the fields that ours
 * hold.
 */
#ifndef HS_TESTS_SUPPORT_EVENT_FILE_H
#define HS_TESTS_SUPPORT_EVENT_FILE_H

#include "tests/support/scratch.h"

#define EVENTS "events.out.tfevents.0.halfstep"

/* CRC-32C bit by bit, straight from the polynomial. */
static inline uint32_t slow_crc32c(const unsigned char *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return crc ^ 0xffffffffu;
}

static inline uint32_t slow_masked(const unsigned char *bytes, size_t size)
{
    uint32_t crc = slow_crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

typedef struct Event {
    double wall_time_s;
    int64_t step;
    char version[32], tag[64];
    float value;
} Event;

static inline uint64_t take_varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

/* Message fields of any nesting into one Event: the numbers of the fields differ by depth. */
static inline void take_message(const unsigned char *at, const unsigned char *end, int depth, Event *event)
{
    while (at < end) {
        uint64_t key = take_varint(&at), field = key >> 3, wire = key & 7, length = 0;
        if (depth == 0 && field == 1 && wire == 1) {
            memcpy(&event->wall_time_s, at, 8);
            at += 8;
        } else if (depth == 0 && field == 2 && wire == 0) {
            event->step = (int64_t)take_varint(&at);
        } else if (depth == 2 && field == 2 && wire == 5) {
            memcpy(&event->value, at, 4);
            at += 4;
        } else {
            cr_assert_eq(wire, 2u, "field %d at depth %d", (int)field, depth);
            length = take_varint(&at);
            cr_assert_leq(length, (uint64_t)(end - at));
            if (depth == 0 && field == 3)
                memcpy(event->version, at, length);
            else if (depth == 2 && field == 1)
                memcpy(event->tag, at, length);
            else
                take_message(at, at + length, depth + 1, event);
            at += length;
        }
    }
    cr_assert(at == end);
}

static inline int read_events(const char *path, Event *events, int room)
{
    size_t size = 0, at = 0;
    unsigned char *bytes = (unsigned char *)scratch_read(path, &size);
    int count = 0;
    while (at < size) {
        uint64_t length = 0;
        uint32_t length_crc = 0, crc = 0;
        cr_assert_leq(at + 16, size);
        cr_assert_lt(count, room);
        memcpy(&length, bytes + at, 8);
        memcpy(&length_crc, bytes + at + 8, 4);
        cr_assert_eq(length_crc, slow_masked(bytes + at, 8));
        cr_assert_leq(at + 16 + length, size);
        memcpy(&crc, bytes + at + 12 + length, 4);
        cr_assert_eq(crc, slow_masked(bytes + at + 12, length));
        events[count] = (Event){ 0 };
        take_message(bytes + at + 12, bytes + at + 12 + length, 0, &events[count++]);
        at += 16 + length;
    }
    free(bytes);
    return count;
}

#endif
