/* SPDX-License-Identifier: MIT
 *
 * Thrift's compact protocol, in which Parquet's footer and page headers are written.  Private to the parquet*.c files.
 *
 *     struct  = field* 0          field = (id - last id) << 4 | type, or type and the id as a number; then the value
 *     number  = varint, zigzag    binary = length, bytes       list = count << 4 | type, or 0xF0 | type and the count
 *     varint  = seven bits a byte from the lowest on, the top bit where another byte follows
 *
 * The first thing that is wrong stays in `wrong`, and from there on every read gives zero and every struct ends:
 * callers look once, at the end.  Nothing here allocates, and no count is believed that has more elements than bytes
 * follow.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_THRIFT_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct HsThrift {
    const char *bytes;
    size_t size, at;
    const char *wrong; /* NULL: nothing so far */
    bool cut_off;      /* what is wrong is that the bytes end */
} HsThrift;

/* All zero before a struct's first field. */
typedef struct HsThriftField {
    int id, type;
} HsThriftField;

/* The struct's next field, whose value must then be read or skipped; false: the struct has ended. */
bool hs_thrift_next(HsThrift *thrift, HsThriftField *field);
void hs_thrift_skip(HsThrift *thrift, int type);
int64_t hs_thrift_integer(HsThrift *thrift, int type); /* of any width */
bool hs_thrift_bool(HsThrift *thrift, int type);       /* of a field */
const char *hs_thrift_binary(HsThrift *thrift, int type, size_t *length);
/* Elements of a list of structs; each is then read by hs_thrift_next. */
int64_t hs_thrift_structs(HsThrift *thrift, int type);
/* That a field holds a struct, the fields of which follow. */
bool hs_thrift_struct(HsThrift *thrift, int type);

/* A number of seven bits a byte; also elsewhere in Parquet.  false: it does not end within 64 bits and the bytes. */
bool hs_thrift_varint(const char *bytes, size_t size, size_t *at, uint64_t *value);
static inline int64_t hs_thrift_zigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

#endif
