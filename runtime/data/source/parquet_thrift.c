/* SPDX-License-Identifier: MIT
 *
 * See parquet_thrift.h.
 */
#include "runtime/data/source/parquet_thrift.h"

enum { THRIFT_TRUE = 1, THRIFT_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID };
enum { DEEPEST = 32, DOUBLE_BYTES = 8, UUID_BYTES = 16 };

static void fail(HsThrift *thrift, const char *wrong, bool cut_off)
{
    if (!thrift->wrong) {
        thrift->wrong = wrong;
        thrift->cut_off = cut_off;
    }
    thrift->at = thrift->size;
}

static void end_early(HsThrift *thrift)
{
    fail(thrift, "its bytes end too early", true);
}

static void take_bytes(HsThrift *thrift, uint64_t count)
{
    if (count > thrift->size - thrift->at)
        end_early(thrift);
    else
        thrift->at += (size_t)count;
}

static int take_byte(HsThrift *thrift)
{
    const size_t at = thrift->at;
    take_bytes(thrift, 1);
    return thrift->wrong ? 0 : (unsigned char)thrift->bytes[at];
}

bool hs_thrift_varint(const char *bytes, size_t size, size_t *at, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && *at < size; shift += 7) {
        const unsigned char byte = (unsigned char)bytes[(*at)++];
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static uint64_t take_varint(HsThrift *thrift)
{
    uint64_t value = 0;
    const size_t start = thrift->at;
    if (thrift->wrong || hs_thrift_varint(thrift->bytes, thrift->size, &thrift->at, &value))
        return value;
    if (thrift->size - start < 10) /* a whole number has ten bytes at most */
        end_early(thrift);
    else
        fail(thrift, "a number in it has more than 64 bits", false);
    return 0;
}

bool hs_thrift_next(HsThrift *thrift, HsThriftField *field)
{
    const int byte = take_byte(thrift), delta = byte >> 4;
    if (thrift->wrong || byte == 0)
        return false;
    const int64_t id = delta ? field->id + delta : hs_thrift_zigzag(take_varint(thrift));
    if (id < INT16_MIN || id > INT16_MAX)
        fail(thrift, "it has a field that no such struct has", false);
    field->id = thrift->wrong ? 0 : (int)id;
    field->type = byte & 0xF;
    return !thrift->wrong;
}

/* Of a list or set; each element has a byte at least. */
static int64_t take_count(HsThrift *thrift, int *element_type)
{
    const int byte = take_byte(thrift);
    const uint64_t count = byte >> 4 == 0xF ? take_varint(thrift) : (uint64_t)(byte >> 4);
    *element_type = byte & 0xF;
    if (count > thrift->size - thrift->at)
        end_early(thrift);
    return thrift->wrong ? 0 : (int64_t)count;
}

static void skip(HsThrift *thrift, int type, bool in_list, int depth);

static void skip_map(HsThrift *thrift, int depth)
{
    const uint64_t count = take_varint(thrift);
    if (count > thrift->size - thrift->at)
        end_early(thrift);
    const int types = count > 0 ? take_byte(thrift) : 0;
    for (uint64_t i = 0; i < count && !thrift->wrong; i++) {
        skip(thrift, types >> 4, true, depth + 1);
        skip(thrift, types & 0xF, true, depth + 1);
    }
}

static void skip(HsThrift *thrift, int type, bool in_list, int depth)
{
    HsThriftField field = { 0 };
    int element;
    if (depth > DEEPEST) {
        fail(thrift, "it is nested too deeply", false);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: /* of a field the type is the value */
        take_bytes(thrift, in_list ? 1 : 0);
        return;
    case BYTE:
        take_bytes(thrift, 1);
        return;
    case I16:
    case I32:
    case I64:
        (void)take_varint(thrift);
        return;
    case DOUBLE:
        take_bytes(thrift, DOUBLE_BYTES);
        return;
    case BINARY:
        take_bytes(thrift, take_varint(thrift));
        return;
    case LIST:
    case SET:
        for (int64_t count = take_count(thrift, &element); count > 0 && !thrift->wrong; count--)
            skip(thrift, element, true, depth + 1);
        return;
    case MAP:
        skip_map(thrift, depth);
        return;
    case STRUCT:
        while (hs_thrift_next(thrift, &field))
            skip(thrift, field.type, false, depth + 1);
        return;
    case UUID:
        take_bytes(thrift, UUID_BYTES);
        return;
    default:
        fail(thrift, "it has a value of a type that there is not", false);
    }
}

void hs_thrift_skip(HsThrift *thrift, int type)
{
    skip(thrift, type, false, 0);
}

static bool expect(HsThrift *thrift, bool right)
{
    if (!right)
        fail(thrift, "a field of it has another type than it must have", false);
    return right;
}

int64_t hs_thrift_integer(HsThrift *thrift, int type)
{
    if (type == BYTE)
        return (int8_t)take_byte(thrift);
    return expect(thrift, type == I16 || type == I32 || type == I64) ? hs_thrift_zigzag(take_varint(thrift)) : 0;
}

bool hs_thrift_bool(HsThrift *thrift, int type)
{
    return expect(thrift, type == THRIFT_TRUE || type == THRIFT_FALSE) && type == THRIFT_TRUE;
}

const char *hs_thrift_binary(HsThrift *thrift, int type, size_t *length)
{
    *length = 0;
    if (!expect(thrift, type == BINARY))
        return "";
    const uint64_t stated = take_varint(thrift);
    const char *const bytes = thrift->bytes + thrift->at;
    take_bytes(thrift, stated);
    if (thrift->wrong)
        return "";
    *length = (size_t)stated;
    return bytes;
}

int64_t hs_thrift_structs(HsThrift *thrift, int type)
{
    int element = STRUCT;
    const int64_t count = expect(thrift, type == LIST) ? take_count(thrift, &element) : 0;
    return count == 0 || expect(thrift, element == STRUCT) ? count : 0;
}

bool hs_thrift_struct(HsThrift *thrift, int type)
{
    return expect(thrift, type == STRUCT);
}
