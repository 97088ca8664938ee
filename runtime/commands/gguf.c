/* SPDX-License-Identifier: MIT
 *
 * Writing GGUF.  Numbers are little-endian, as the hosts are that this is compiled for.
 */
#include "runtime/commands/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/io/storage.h"

enum { ALIGNMENT = 32, VERSION = 3 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

static void put(HsGguf *file, const void *bytes, size_t size)
{
    if (file->status == HS_OK)
        file->status = hs_bytes_append(&file->pairs, (const char *)bytes, size);
}

static void put_text(HsGguf *file, const char *text)
{
    const uint64_t length = strlen(text);
    put(file, &length, sizeof length);
    put(file, text, length);
}

static void put_key(HsGguf *file, const char *key, uint32_t type)
{
    put_text(file, key);
    put(file, &type, sizeof type);
    file->pair_count++;
}

void hs_gguf_add_text(HsGguf *file, const char *key, const char *text)
{
    put_key(file, key, TYPE_STRING);
    put_text(file, text);
}

void hs_gguf_add_u32(HsGguf *file, const char *key, uint32_t value)
{
    put_key(file, key, TYPE_U32);
    put(file, &value, sizeof value);
}

void hs_gguf_add_i32(HsGguf *file, const char *key, int32_t value)
{
    put_key(file, key, TYPE_I32);
    put(file, &value, sizeof value);
}

void hs_gguf_add_f32(HsGguf *file, const char *key, double value)
{
    const float rounded = (float)value;
    put_key(file, key, TYPE_F32);
    put(file, &rounded, sizeof rounded);
}

void hs_gguf_add_bool(HsGguf *file, const char *key, bool value)
{
    const uint8_t byte = value;
    put_key(file, key, TYPE_BOOL);
    put(file, &byte, sizeof byte);
}

static void put_array(HsGguf *file, const char *key, uint32_t type, uint64_t count)
{
    put_key(file, key, TYPE_ARRAY);
    put(file, &type, sizeof type);
    put(file, &count, sizeof count);
}

void hs_gguf_add_texts(HsGguf *file, const char *key, const char *const *texts, uint64_t count)
{
    put_array(file, key, TYPE_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        put_text(file, texts[i]);
}

void hs_gguf_add_i32s(HsGguf *file, const char *key, const int32_t *values, uint64_t count)
{
    put_array(file, key, TYPE_I32, count);
    put(file, values, count * sizeof *values);
}

void hs_gguf_add_f32s(HsGguf *file, const char *key, const float *values, uint64_t count)
{
    put_array(file, key, TYPE_F32, count);
    put(file, values, count * sizeof *values);
}

void hs_gguf_deinit(HsGguf *file)
{
    hs_bytes_deinit(&file->pairs);
    *file = (HsGguf){ 0 };
}

static int64_t columns_of(const HsGgufTensor *tensor)
{
    return tensor->source.tensor.shape[tensor->source.tensor.rank - 1];
}

static int64_t row_bytes(const HsGgufTensor *tensor)
{
    const int64_t columns = columns_of(tensor);
    switch (tensor->type) {
    case HS_GGUF_F32:
        return 4 * columns;
    case HS_GGUF_F16:
    case HS_GGUF_BF16:
        return 2 * columns;
    case HS_GGUF_Q8_0:
        return columns / HS_GGUF_Q8_BLOCK * (2 + HS_GGUF_Q8_BLOCK);
    }
    return 0;
}

static uint64_t padded(uint64_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t data_bytes(const HsGgufTensor *tensor)
{
    const int64_t rows = tensor->source.tensor.rank == 2 ? tensor->source.tensor.shape[0] : 1;
    return (uint64_t)(rows * row_bytes(tensor));
}

/* Everything before the data. */
static HsStatus make_head(const HsGguf *file, const HsGgufTensor *tensors, int count, HsBytes *head)
{
    HsGguf infos = { 0 }; /* its `pairs` are the infos */
    const uint32_t version = VERSION;
    const uint64_t tensor_count = (uint64_t)count;
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        const HsTensor *source = &tensors[i].source.tensor;
        const uint32_t rank = (uint32_t)source->rank, type = (uint32_t)tensors[i].type;
        put_text(&infos, tensors[i].name);
        put(&infos, &rank, sizeof rank);
        for (int axis = source->rank - 1; axis >= 0; axis--)
            put(&infos, &(uint64_t){ (uint64_t)source->shape[axis] }, sizeof(uint64_t));
        put(&infos, &type, sizeof type);
        put(&infos, &offset, sizeof offset);
        offset += padded(data_bytes(&tensors[i]));
    }
    HsStatus status = infos.status;
    if (status == HS_OK)
        status = hs_bytes_append(head, "GGUF", 4);
    if (status == HS_OK)
        status = hs_bytes_append(head, (const char *)&version, sizeof version);
    if (status == HS_OK)
        status = hs_bytes_append(head, (const char *)&tensor_count, sizeof tensor_count);
    if (status == HS_OK)
        status = hs_bytes_append(head, (const char *)&file->pair_count, sizeof file->pair_count);
    if (status == HS_OK)
        status = hs_bytes_append(head, file->pairs.items, file->pairs.count);
    if (status == HS_OK)
        status = hs_bytes_append(head, infos.pairs.items, infos.pairs.count);
    hs_bytes_deinit(&infos.pairs);
    return status;
}

/* As ggml's reference rounds: scale |x|max / 127 as f16, quotients by the f32 scale, halves away from zero. */
static void quantize_row(const double *values, int64_t columns, unsigned char *bytes)
{
    for (int64_t first = 0; first < columns; first += HS_GGUF_Q8_BLOCK, bytes += 2 + HS_GGUF_Q8_BLOCK) {
        float most = 0;
        for (int i = 0; i < HS_GGUF_Q8_BLOCK; i++)
            most = fmaxf(most, fabsf((float)values[first + i]));
        const float scale = most / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
        const uint16_t half = hs_f16_encode(scale);
        memcpy(bytes, &half, sizeof half);
        for (int i = 0; i < HS_GGUF_Q8_BLOCK; i++)
            bytes[2 + i] = (unsigned char)(signed char)roundf((float)values[first + i] * inverse);
    }
}

static HsStatus encode_row(const HsGgufTensor *tensor, const char *path, const double *values, unsigned char *bytes)
{
    static const HsDtype dtypes[] = { [HS_GGUF_F32] = HS_F32, [HS_GGUF_F16] = HS_F16, [HS_GGUF_BF16] = HS_BF16 };
    const int64_t columns = columns_of(tensor);
    for (int64_t i = 0; i < columns; i++)
        if (!isfinite(values[i]))
            return hs_fail(HS_EFORMAT, "%s: tensor `%s` holds a value that is not finite", path, tensor->name);
    if (tensor->type == HS_GGUF_Q8_0) {
        quantize_row(values, columns, bytes);
        return HS_OK;
    }
    const HsDtype dtype = dtypes[tensor->type];
    for (int64_t i = 0; i < columns; i++) {
        hs_dtype_store(dtype, bytes, i, values[i]);
        if (!isfinite(hs_dtype_load(dtype, bytes, i)))
            return hs_fail(HS_EINVAL,
                           "%s: tensor `%s` has the value %g, which is too large for %s: choose another format", path,
                           tensor->name, values[i], hs_dtype_name(dtype));
    }
    return HS_OK;
}

/* Which row of the source is written as row `row`. */
static int64_t source_row(const HsGgufTensor *tensor, int64_t row)
{
    const int64_t size = tensor->pair_rows;
    if (size == 0)
        return row;
    const int64_t head = row / size, within = row % size;
    return head * size + within % 2 * (size / 2) + within / 2;
}

static HsStatus put_tensor(int descriptor, const char *path, const HsGgufTensor *tensor)
{
    static const unsigned char zeros[ALIGNMENT] = { 0 };
    const int64_t columns = columns_of(tensor),
                  rows = tensor->source.tensor.rank == 2 ? tensor->source.tensor.shape[0] : 1;
    const size_t bytes = (size_t)row_bytes(tensor);
    double *values = malloc((size_t)columns * sizeof *values);
    unsigned char *row_data = malloc(bytes);
    HsStatus status = values && row_data ? HS_OK : hs_fail(HS_ENOMEM, "%s: no memory for a row", path);
    for (int64_t row = 0; row < rows && status == HS_OK; row++) {
        hs_named_load(&tensor->source, source_row(tensor, row) * columns, 1, columns, values);
        status = encode_row(tensor, path, values, row_data);
        if (status == HS_OK)
            status = hs_storage_write_all(descriptor, path, row_data, bytes);
    }
    const uint64_t size = data_bytes(tensor);
    if (status == HS_OK)
        status = hs_storage_write_all(descriptor, path, zeros, (size_t)(padded(size) - size));
    free(values);
    free(row_data);
    return status;
}

static HsStatus write_content(int descriptor, const char *path, const HsBytes *head, const HsGgufTensor *tensors,
                              int count)
{
    static const unsigned char zeros[ALIGNMENT] = { 0 };
    HS_TRY(hs_storage_write_all(descriptor, path, head->items, head->count));
    HS_TRY(hs_storage_write_all(descriptor, path, zeros, (size_t)(padded(head->count) - head->count)));
    for (int i = 0; i < count; i++)
        HS_TRY(put_tensor(descriptor, path, &tensors[i]));
    if (fsync(descriptor) != 0)
        return hs_fail(HS_EIO, "cannot flush %s: %s", path, strerror(errno));
    return HS_OK;
}

HsStatus hs_gguf_write(const HsGguf *file, const HsGgufTensor *tensors, int count, const char *path)
{
    HsBytes head = { 0 };
    const size_t room = strlen(path) + sizeof ".part";
    char *temporary = malloc(room);
    HsStatus status = temporary ? file->status : hs_fail(HS_ENOMEM, "no memory for the path %s", path);
    if (status == HS_OK)
        status = make_head(file, tensors, count, &head);
    int descriptor = -1;
    if (status == HS_OK) {
        snprintf(temporary, room, "%s.part", path);
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (descriptor < 0)
            status = hs_fail(HS_EIO, "cannot create %s: %s", temporary, strerror(errno));
    }
    if (status == HS_OK)
        status = write_content(descriptor, temporary, &head, tensors, count);
    if (descriptor >= 0 && close(descriptor) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "cannot close %s: %s", temporary, strerror(errno));
    if (status == HS_OK && rename(temporary, path) != 0)
        status = hs_fail(HS_EIO, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    if (status != HS_OK && descriptor >= 0)
        (void)unlink(temporary);
    hs_bytes_deinit(&head);
    free(temporary);
    return status;
}
