/* SPDX-License-Identifier: MIT */
#include "runtime/checkpoint/nf4_tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/json.h"
#include "runtime/model/quantized.h"

enum { MAP_CODES = 256, STATE_BYTES = 1024 };

static const char state_suffix[] = ".quant_state.bitsandbytes__nf4";
static const char *const suffixes[] = { ".absmax", ".nested_absmax", ".quant_map", ".nested_quant_map", state_suffix };

static const HsNamedTensor *find(const HsTensorSource *source, const char *name, const char *suffix, const char **path)
{
    char whole[sizeof((HsNamedTensor *)NULL)->name];
    const int length = snprintf(whole, sizeof whole, "%s%s", name, suffix);
    return length < (int)sizeof whole ? source->find(source->files, whole, path) : NULL;
}

bool hs_nf4_is_stored(const HsTensorSource *source, const char *name)
{
    const char *path;
    return find(source, name, state_suffix, &path) != NULL;
}

bool hs_nf4_is_companion(const char *name, const char *matrix)
{
    const size_t length = strlen(matrix);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strncmp(name, matrix, length) == 0 && strcmp(name + length, suffixes[i]) == 0)
            return true;
    return false;
}

/* The bytes of a tensor that has to be there with `count` elements. */
static HsStatus need(const HsTensorSource *source, const char *name, const char *suffix, HsDtype dtype, int64_t count,
                     const void **data)
{
    const char *path = "";
    const HsNamedTensor *found = find(source, name, suffix, &path);
    if (!found)
        return hs_fail(HS_EFORMAT,
                       "tensor `%s%s` is missing: quantized matrices are read with block size 64 and double "
                       "quantization (bnb_4bit_use_double_quant)",
                       name, suffix);
    if (found->tensor.dtype != dtype || hs_tensor_count(&found->tensor) != count)
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` has %" PRId64 " elements of %s, expected %" PRId64 " of %s", path,
                       found->name, hs_tensor_count(&found->tensor), hs_dtype_name(found->tensor.dtype), count,
                       hs_dtype_name(dtype));
    *data = found->tensor.data;
    return HS_OK;
}

/* The values of codes have to be those that products decode. */
static HsStatus check_map(const HsTensorSource *source, const char *name, const char *suffix, int64_t count)
{
    const void *data;
    float stored[MAP_CODES];
    HS_TRY(need(source, name, suffix, HS_F32, count, &data));
    memcpy(stored, data, (size_t)count * sizeof *stored);
    for (int i = 0; i < count; i++)
        if (stored[i] != (count == HS_NF4_LEVELS ? hs_nf4_levels[i] : hs_dynamic_value(true, i)))
            return hs_fail(
                HS_EFORMAT,
                "tensor `%s%s`: value %d is %.9g, which is not nf4's: save the model again with bitsandbytes' nf4",
                name, suffix, i, (double)stored[i]);
    return HS_OK;
}

static bool is_number(const HsJson *state, const char *key, double value)
{
    return hs_json_number(hs_json_get(state, key)) == value;
}

static const struct {
    HsDtype dtype;
    const char *name;
} torch_names[] = { { HS_BF16, "bfloat16" }, { HS_F16, "float16" }, { HS_F32, "float32" } };
enum { TORCH_NAMES = sizeof torch_names / sizeof *torch_names };

static HsStatus read_state(const char *path, const HsNamedTensor *named, int64_t rows, int64_t columns, double *offset,
                           HsDtype *dtype)
{
    const size_t size = hs_tensor_bytes(&named->tensor);
    HsJson *state = NULL;
    HsStatus status = HS_OK;
    HS_TRY(hs_json_parse(named->name, named->tensor.data, size, &state));
    const char *const type = hs_json_string(hs_json_get(state, "quant_type"));
    const HsJson *shape = hs_json_get(state, "shape"), *first = hs_json_first(shape);
    const HsJson *second = first ? hs_json_next(first) : NULL;
    const char *const torch_name = hs_json_string(hs_json_get(state, "dtype"));
    int format = 0;
    while (format < TORCH_NAMES && !(torch_name && strcmp(torch_names[format].name, torch_name) == 0))
        format++;
    *offset = hs_json_number(hs_json_get(state, "nested_offset"));
    if (format < TORCH_NAMES)
        *dtype = torch_names[format].dtype;
    else
        status = hs_fail(HS_EFORMAT, "%s: `%s`: dtype must be bfloat16, float16 or float32", path, named->name);
    if (!type || strcmp(type, "nf4") != 0 || !is_number(state, "blocksize", HS_NF4_BLOCK) ||
        !is_number(state, "nested_blocksize", HS_NF4_NESTED) || !isfinite(*offset))
        status = hs_fail(
            HS_EFORMAT, "%s: `%s`: supported is quant_type nf4, blocksize %d, nested_blocksize %d with a nested_offset",
            path, named->name, HS_NF4_BLOCK, HS_NF4_NESTED);
    else if (!first || !second || hs_json_number(first) != (double)rows || hs_json_number(second) != (double)columns)
        status = hs_fail(HS_ESHAPE, "%s: `%s`: shape is not [%" PRId64 ", %" PRId64 "], which the model needs", path,
                         named->name, rows, columns);
    hs_json_destroy(state);
    return status;
}

HsStatus hs_nf4_open(const HsTensorSource *source, const char *name, int64_t rows, int64_t columns, HsQuantized *view,
                     HsDtype *dtype)
{
    const int64_t count = rows * columns;
    const char *path = "";
    const void *codes, *absmax, *nested;
    double offset;
    *view = hs_nf4_shape(&count, 1);
    const int64_t groups = hs_nf4_groups(view);
    if (view->count == 0)
        return hs_fail(HS_ESHAPE, "tensor `%s`: %" PRId64 " elements, which must be a multiple of the block size, %d",
                       name, count, HS_NF4_BLOCK);
    HS_TRY(need(source, name, "", HS_U8, count / 2, &codes));
    HS_TRY(need(source, name, ".absmax", HS_U8, hs_nf4_blocks(count), &absmax));
    HS_TRY(need(source, name, ".nested_absmax", HS_F32, groups, &nested));
    HS_TRY(check_map(source, name, ".quant_map", HS_NF4_LEVELS));
    HS_TRY(check_map(source, name, ".nested_quant_map", MAP_CODES));
    const HsNamedTensor *state = find(source, name, state_suffix, &path);
    HS_TRY(read_state(path, state, rows, columns, &offset, dtype));
    view->codes = (unsigned char *)(uintptr_t)codes;
    view->absmax = (unsigned char *)(uintptr_t)absmax;
    view->scales = malloc((size_t)groups * 2 * sizeof *view->scales);
    if (!view->scales)
        return hs_fail(HS_ENOMEM, "no memory for the scales of `%s`", name);
    for (int64_t g = 0; g < groups; g++) {
        memcpy(view->scales + 2 * g, (const unsigned char *)nested + (size_t)g * sizeof(float), sizeof(float));
        view->scales[2 * g + 1] = (float)offset;
        if (!isfinite(view->scales[2 * g])) {
            free(view->scales);
            view->scales = NULL;
            return hs_fail(HS_EFORMAT, "tensor `%s.nested_absmax`: element %" PRId64 " is not finite", name, g);
        }
    }
    return HS_OK;
}

/* --- to be written --- */

typedef struct Small {
    float levels[HS_NF4_LEVELS], map[MAP_CODES];
    char state[STATE_BYTES];
    float nested[]; /* one for HS_NF4_NESTED blocks */
} Small;

static const char *torch_name(HsDtype dtype)
{
    int format = 0;
    while (format + 1 < TORCH_NAMES && torch_names[format].dtype != dtype)
        format++;
    return torch_names[format].name;
}

static HsStatus write_state(const HsTensor *matrix, float offset, char text[STATE_BYTES])
{
    HsJson *state = hs_json_object(), *shape = hs_json_array();
    hs_json_set_string(state, "quant_type", "nf4");
    hs_json_set(state, "blocksize", hs_json_new_integer(HS_NF4_BLOCK));
    hs_json_set_string(state, "dtype", torch_name(matrix->dtype));
    for (int axis = 0; axis < 2; axis++)
        hs_json_append(shape, hs_json_new_integer(matrix->shape[axis]));
    hs_json_set(state, "shape", shape);
    hs_json_set(state, "nested_blocksize", hs_json_new_integer(HS_NF4_NESTED));
    hs_json_set_string(state, "nested_dtype", "float32");
    hs_json_set(state, "nested_offset", hs_json_new_real((double)offset));
    char *written = hs_json_write(state, false);
    hs_json_destroy(state);
    if (!written || strlen(written) >= STATE_BYTES) {
        free(written);
        return hs_fail(HS_ENOMEM, "no memory to describe a quantized matrix");
    }
    snprintf(text, STATE_BYTES, "%s", written);
    free(written);
    return HS_OK;
}

static HsNamedTensor named(const char *name, const char *suffix, HsTensor tensor, HsContext *context)
{
    HsNamedTensor item = { .tensor = tensor, .context = context };
    snprintf(item.name, sizeof item.name, "%s%s", name, suffix);
    return item;
}

HsStatus hs_nf4_tensors(const char *name, const HsQuantized *quantized, int64_t first, const HsTensor *matrix,
                        HsContext *context, HsNamedTensor tensors[HS_NF4_TENSORS], void **owned)
{
    const int64_t count = hs_tensor_count(matrix), blocks = hs_nf4_blocks(count), first_block = hs_nf4_blocks(first);
    const int64_t nested = (blocks + HS_NF4_NESTED - 1) / HS_NF4_NESTED;
    float *scales;
    *owned = NULL;
    HS_TRY(hs_quantized_scales(quantized, context, &scales));
    Small *const small = calloc(1, sizeof *small + (size_t)nested * sizeof *small->nested);
    HsStatus status = small ? HS_OK : hs_fail(HS_ENOMEM, "no memory to write `%s`", name);
    if (status == HS_OK)
        status = write_state(matrix, scales[2 * (first_block >> quantized->group_shift) + 1], small->state);
    for (int64_t i = 0; i < nested && status == HS_OK; i++)
        small->nested[i] = scales[2 * ((first_block + i * HS_NF4_NESTED) >> quantized->group_shift)];
    free(scales);
    *owned = small;
    HS_TRY(status);
    memcpy(small->levels, hs_nf4_levels, sizeof small->levels);
    for (int code = 0; code < MAP_CODES; code++)
        small->map[code] = hs_dynamic_value(true, code);
    tensors[0] = named(name, "", hs_tensor_2d(quantized->codes + first / 2, HS_U8, count / 2, 1), context);
    tensors[1] = named(name, ".absmax", hs_tensor_1d(quantized->absmax + first_block, HS_U8, blocks), context);
    tensors[2] = named(name, ".nested_absmax", hs_tensor_1d(small->nested, HS_F32, nested), NULL);
    tensors[3] = named(name, ".quant_map", hs_tensor_1d(small->levels, HS_F32, HS_NF4_LEVELS), NULL);
    tensors[4] = named(name, ".nested_quant_map", hs_tensor_1d(small->map, HS_F32, MAP_CODES), NULL);
    tensors[5] = named(name, state_suffix, hs_tensor_1d(small->state, HS_U8, (int64_t)strlen(small->state)), NULL);
    return HS_OK;
}
