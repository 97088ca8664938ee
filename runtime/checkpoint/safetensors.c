/* SPDX-License-Identifier: MIT
 *
 * Reading safetensors.  Nothing in the file is believed: every number is bounded before it is added, multiplied or used
 * as an offset, and the tensors must tile the data exactly.  Data of files written elsewhere may lie unaligned in the
 * mapping: take elements out with hs_safetensors_load, do not cast.
 */
#include "runtime/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/io/files.h"
#include "runtime/io/json.h"

#define MAX_HEADER_BYTES 100000000u
#define MAX_COUNT        9007199254740992.0 /* 2^53: JSON numbers are exact up to here */
enum { LENGTH_BYTES = 8 };

/* Formats that the specification knows and Halfstep has no arithmetic for. */
static const char *const unsupported_dtypes[] = { "BOOL",    "F4",  "F6_E2M3", "F6_E3M2", "I8",
                                                  "F8_E8M0", "I16", "U32",     "U64" };

/* A tensor with its place, while the header is being checked. */
typedef struct Entry {
    HsNamedTensor named;
    uint64_t begin, end; /* bytes from the start of the data */
} Entry;

static bool read_count(const HsJson *node, uint64_t *value)
{
    double number = hs_json_number(node);
    if (!(number >= 0 && number <= MAX_COUNT) || floor(number) != number)
        return false;
    *value = (uint64_t)number;
    return true;
}

static HsStatus read_dtype(const char *name, const HsJson *entry, HsNamedTensor *named)
{
    const char *text = hs_json_string(hs_json_get(entry, "dtype"));
    if (!text)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: dtype must be a string", name, named->name);
    for (HsDtype dtype = 0; dtype < HS_DTYPE_COUNT; dtype++) {
        if (strcmp(hs_dtype_info(dtype)->safetensors_name, text) == 0) {
            named->tensor.dtype = dtype;
            return HS_OK;
        }
    }
    for (size_t i = 0; i < sizeof unsupported_dtypes / sizeof *unsupported_dtypes; i++) {
        if (strcmp(unsupported_dtypes[i], text) == 0)
            return hs_fail(HS_EUNSUPPORTED, "%s: tensor `%s`: dtype %s is not supported", name, named->name, text);
    }
    return hs_fail(HS_EFORMAT, "%s: tensor `%s`: unknown dtype `%.32s`", name, named->name, text);
}

/* Shape, and the bytes it stands for. */
static HsStatus read_shape(const char *name, const HsJson *entry, HsNamedTensor *named, uint64_t *bytes)
{
    const HsJson *shape = hs_json_get(entry, "shape");
    if (!hs_json_is_array(shape))
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: shape must be a list", name, named->name);
    HsTensor *tensor = &named->tensor;
    uint64_t total = hs_dtype_bytes(tensor->dtype);
    for (int axis = 0; axis < HS_MAX_RANK; axis++)
        tensor->shape[axis] = 1;
    tensor->rank = 0;
    for (const HsJson *size = hs_json_first(shape); size; size = hs_json_next(size)) {
        uint64_t extent = 0;
        if (!read_count(size, &extent))
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: dimension %d is not a count", name, named->name, tensor->rank);
        if (tensor->rank == HS_MAX_RANK)
            return hs_fail(HS_EUNSUPPORTED, "%s: tensor `%s`: more than %d dimensions", name, named->name, HS_MAX_RANK);
        if (__builtin_mul_overflow(total, extent, &total) || total > INT64_MAX)
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: its shape overflows", name, named->name);
        tensor->shape[tensor->rank++] = (int64_t)extent;
    }
    *bytes = total;
    return HS_OK;
}

static HsStatus read_offsets(const char *name, const HsJson *json, Entry *entry)
{
    const HsJson *offsets = hs_json_get(json, "data_offsets");
    const HsJson *first = hs_json_first(offsets);
    if (!hs_json_is_array(offsets) || hs_json_count(offsets) != 2 || !read_count(first, &entry->begin) ||
        !read_count(hs_json_next(first), &entry->end))
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: data_offsets must be two counts", name, entry->named.name);
    return HS_OK;
}

static HsStatus read_entry(const char *name, const HsJson *json, uint64_t data_size, Entry *entry)
{
    const char *key = hs_json_key(json);
    size_t room = sizeof entry->named.name;
    if (key[0] == '\0')
        return hs_fail(HS_EFORMAT, "%s: a tensor without a name", name);
    if (strlen(key) >= room)
        return hs_fail(HS_EUNSUPPORTED, "%s: tensor `%.40s...`: a name of more than %zu bytes", name, key, room - 1);
    strcpy(entry->named.name, key); /* fits: checked above */
    if (!hs_json_is_object(json))
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: must be an object", name, key);
    uint64_t bytes = 0;
    HS_TRY(read_dtype(name, json, &entry->named));
    HS_TRY(read_shape(name, json, &entry->named, &bytes));
    HS_TRY(read_offsets(name, json, entry));
    if (hs_json_count(json) != 3)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: must have dtype, shape and data_offsets, each once, and no more",
                       name, key);
    if (entry->begin > entry->end || entry->end > data_size)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: bytes %llu to %llu lie outside the %llu bytes of data", name, key,
                       (unsigned long long)entry->begin, (unsigned long long)entry->end, (unsigned long long)data_size);
    if (entry->end - entry->begin != bytes)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s`: its shape needs %llu bytes, data_offsets give %llu", name, key,
                       (unsigned long long)bytes, (unsigned long long)(entry->end - entry->begin));
    return HS_OK;
}

static HsStatus check_metadata(const char *name, const HsJson *metadata)
{
    if (!hs_json_is_object(metadata))
        return hs_fail(HS_EFORMAT, "%s: __metadata__ must be an object", name);
    for (const HsJson *pair = hs_json_first(metadata); pair; pair = hs_json_next(pair)) {
        if (!hs_json_is_string(pair))
            return hs_fail(HS_EFORMAT, "%s: __metadata__: `%.64s` must be a string", name, hs_json_key(pair));
    }
    return HS_OK;
}

static int compare_places(const void *a, const void *b)
{
    const Entry *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end) /* an empty tensor comes before the one that starts where it lies */
        return left->end < right->end ? -1 : 1;
    return strcmp(left->named.name, right->named.name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const Entry *)a)->named.name, ((const Entry *)b)->named.name);
}

/* No hole, no overlap, nothing left over; names differ. */
static HsStatus check_tiling(const char *name, Entry *entries, int count, uint64_t data_size)
{
    qsort(entries, (size_t)count, sizeof *entries, compare_names);
    for (int i = 1; i < count; i++) {
        if (strcmp(entries[i - 1].named.name, entries[i].named.name) == 0)
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: named twice", name, entries[i].named.name);
    }
    qsort(entries, (size_t)count, sizeof *entries, compare_places);
    uint64_t expected = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i].begin != expected)
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: starts at byte %llu of the data, %s byte %llu", name,
                           entries[i].named.name, (unsigned long long)entries[i].begin,
                           entries[i].begin > expected ? "leaving a hole from" : "overlapping the tensor up to",
                           (unsigned long long)expected);
        expected = entries[i].end;
    }
    if (expected != data_size)
        return hs_fail(HS_EFORMAT, "%s: %llu bytes after the last tensor belong to no tensor", name,
                       (unsigned long long)(data_size - expected));
    return HS_OK;
}

static HsStatus read_entries(const char *name, const HsJson *root, const unsigned char *data, uint64_t data_size,
                             HsSafetensors *file)
{
    HsStatus status = HS_OK;
    int count = 0, room = hs_json_count(root);
    bool metadata_seen = false;
    Entry *entries = calloc((size_t)room + 1, sizeof *entries);
    file->tensors = calloc((size_t)room + 1, sizeof *file->tensors);
    if (!entries || !file->tensors) {
        status = hs_fail(HS_ENOMEM, "%s: no memory for %d tensors", name, room);
        goto done;
    }
    for (const HsJson *member = hs_json_first(root); member; member = hs_json_next(member)) {
        if (strcmp(hs_json_key(member), "__metadata__") != 0) {
            HS_TRY_GOTO(status, read_entry(name, member, data_size, &entries[count]), done);
            count++;
            continue;
        }
        if (metadata_seen) {
            status = hs_fail(HS_EFORMAT, "%s: __metadata__ is there twice", name);
            goto done;
        }
        metadata_seen = true;
        HS_TRY_GOTO(status, check_metadata(name, member), done);
    }
    HS_TRY_GOTO(status, check_tiling(name, entries, count, data_size), done);
    for (int i = 0; i < count; i++) {
        file->tensors[i] = entries[i].named;
        /* Tensors are views of any memory; the mapping is read-only and readers must not write. */
        file->tensors[i].tensor.data = (unsigned char *)(uintptr_t)data + entries[i].begin;
    }
    file->count = count;
done:
    free(entries);
    return status;
}

HsStatus hs_safetensors_parse(const char *name, const void *bytes, size_t size, HsSafetensors *file)
{
    *file = (HsSafetensors){ 0 };
    if (size < LENGTH_BYTES)
        return hs_fail(HS_EFORMAT, "%s: %zu bytes, too short for a safetensors file: copy or download it again", name,
                       size);
    HS_TRY(hs_check_fetched(name, bytes, size));
    uint64_t header = 0;
    memcpy(&header, bytes, LENGTH_BYTES);
    if (header > MAX_HEADER_BYTES)
        return hs_fail(HS_EFORMAT, "%s: a header of %llu bytes, more than the %u allowed", name,
                       (unsigned long long)header, MAX_HEADER_BYTES);
    if (header > size - LENGTH_BYTES)
        return hs_fail(HS_EFORMAT,
                       "%s: cut off (copy or download it again): a header of %llu bytes, but only %zu follow", name,
                       (unsigned long long)header, size - LENGTH_BYTES);
    const char *text = (const char *)bytes + LENGTH_BYTES;
    if (header < 2 || text[0] != '{')
        return hs_fail(HS_EFORMAT, "%s: byte 8: the header must start with {", name);

    HsJson *root = NULL;
    char header_name[512]; /* offsets in messages count from the header's start */
    snprintf(header_name, sizeof header_name, "%s: header", name);
    HS_TRY(hs_json_parse(header_name, text, (size_t)header, &root));
    HsStatus status =
        read_entries(name, root, (const unsigned char *)text + header, size - LENGTH_BYTES - header, file);
    hs_json_destroy(root);
    if (status != HS_OK)
        hs_safetensors_close(file);
    return status;
}

HsStatus hs_safetensors_open(const char *path, HsSafetensors *file)
{
    *file = (HsSafetensors){ 0 };
    HsStatus status = HS_OK;
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return hs_fail(HS_EIO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(descriptor, &info) != 0) {
        status = hs_fail(HS_EIO, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = hs_fail(HS_EIO, "cannot read %s: not a regular file", path);
    } else if (info.st_size < LENGTH_BYTES) { /* nothing to map in an empty file */
        status = hs_fail(HS_EFORMAT, "%s: %lld bytes, too short for a safetensors file: copy or download it again",
                         path, (long long)info.st_size);
    } else {
        size_t size = (size_t)info.st_size;
        void *mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (mapping == MAP_FAILED) {
            status = hs_fail(HS_EIO, "cannot map %s: %s", path, strerror(errno));
        } else {
            status = hs_safetensors_parse(path, mapping, size, file);
            if (status == HS_OK) {
                file->mapping = mapping;
                file->size = size;
            } else {
                munmap(mapping, size);
            }
        }
    }
    close(descriptor);
    return status;
}

/* By format, since a large model has a billion elements. */
void hs_safetensors_load(const HsTensor *tensor, int64_t first, int64_t stride, int64_t count, double *values)
{
    const size_t bytes = hs_dtype_bytes(tensor->dtype), step = (size_t)stride * bytes;
    const unsigned char *place = (const unsigned char *)tensor->data + (size_t)first * bytes;
    for (int64_t i = 0; i < count && tensor->dtype == HS_F32; i++, place += step) {
        float value;
        memcpy(&value, place, sizeof value);
        values[i] = (double)value;
    }
    for (int64_t i = 0; i < count && tensor->dtype == HS_BF16; i++, place += step) {
        uint16_t bits;
        memcpy(&bits, place, sizeof bits);
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        values[i] = (double)value;
    }
    if (tensor->dtype == HS_F32 || tensor->dtype == HS_BF16)
        return;
    for (int64_t i = 0; i < count; i++, place += step) {
        _Alignas(8) unsigned char element[8]; /* the widest format's size */
        memcpy(element, place, bytes);
        values[i] = hs_dtype_load(tensor->dtype, element, 0);
    }
}

/* values += s B A, along a row from `first` on, or down a column. */
static void add_change(const HsNamedTensor *named, int64_t first, bool down, int64_t count, double *values)
{
    enum { CHUNK = 512 };
    const HsLowRank *change = &named->change;
    const int64_t columns = named->tensor.shape[1], rank = change->b.shape[1];
    const int64_t row = first / columns, column = first % columns;
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t here = count - at < CHUNK ? count - at : CHUNK;
        double sums[CHUNK] = { 0 }, factors[CHUNK], factor;
        for (int64_t j = 0; j < rank; j++) {
            if (down) {
                hs_safetensors_load(&change->a, j * columns + column, 1, 1, &factor);
                hs_safetensors_load(&change->b, (row + at) * rank + j, rank, here, factors);
            } else {
                hs_safetensors_load(&change->b, row * rank + j, 1, 1, &factor);
                hs_safetensors_load(&change->a, j * columns + column + at, 1, here, factors);
            }
            for (int64_t i = 0; i < here; i++)
                sums[i] += factor * factors[i];
        }
        for (int64_t i = 0; i < here; i++)
            values[at + i] += change->scale * sums[i];
    }
}

/* What products see: decoded, and rounded to the tensor's format. */
static void load_quantized(const HsNamedTensor *named, int64_t first, int64_t stride, int64_t count, double *values)
{
    _Alignas(8) unsigned char rounded[8];
    for (int64_t i = 0; i < count; i++) {
        const float value = hs_nf4_value(named->quantized, named->first + first + i * stride);
        hs_dtype_store(named->tensor.dtype, rounded, 0, (double)value);
        values[i] = hs_dtype_load(named->tensor.dtype, rounded, 0);
    }
}

void hs_named_load(const HsNamedTensor *named, int64_t first, int64_t stride, int64_t count, double *values)
{
    if (named->quantized)
        load_quantized(named, first, stride, count, values);
    else
        hs_safetensors_load(&named->tensor, first, stride, count, values);
    for (int64_t i = 0; named->shift != 0 && i < count; i++)
        values[i] += named->shift;
    if (!hs_tensor_present(&named->change.a))
        return;
    const int64_t columns = named->tensor.shape[1];
    if (stride == columns) {
        add_change(named, first, true, count, values);
        return;
    }
    for (int64_t done = 0; done < count;) { /* one row after another */
        const int64_t left = columns - (first + done) % columns, here = left < count - done ? left : count - done;
        add_change(named, first + done, false, here, values + done);
        done += here;
    }
}

const HsNamedTensor *hs_safetensors_find(const HsSafetensors *file, const char *name)
{
    for (int i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    }
    return NULL;
}

void hs_safetensors_close(HsSafetensors *file)
{
    if (file->mapping)
        munmap(file->mapping, file->size);
    free(file->tensors);
    *file = (HsSafetensors){ 0 };
}
