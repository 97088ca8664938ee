/* SPDX-License-Identifier: MIT
 *
 * Tensors of a file into a run's memory: checked, converted, transposed where the file holds them so, and brought to the
 * device that they belong on, one at a time.  The file is mapped, so no second copy of a model is ever in memory.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/model/quantized.h"

enum { CHUNK = 1024 };

/* "[2, 3]" */
static void describe_shape(const int64_t *shape, int rank, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int axis = 0; axis < rank; axis++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, axis ? ", " : "", shape[axis]);
    snprintf(text + used, size - used, "]");
}

/* Whether `source` may become `destination`. */
static HsStatus check_match(const char *file_name, const HsNamedTensor *source, const HsNamedTensor *destination)
{
    const HsTensor *from = &source->tensor, *to = &destination->tensor;
    int64_t needed[HS_MAX_RANK];
    for (int axis = 0; axis < to->rank; axis++)
        needed[axis] = to->shape[destination->transposed ? to->rank - 1 - axis : axis];
    bool same = from->rank == to->rank;
    for (int axis = 0; axis < to->rank && same; axis++)
        same = from->shape[axis] == needed[axis];
    if (!same) {
        char has[128], needs[128];
        describe_shape(from->shape, from->rank, has, sizeof has);
        describe_shape(needed, to->rank, needs, sizeof needs);
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` has shape %s, the model needs %s", file_name, source->name, has,
                       needs);
    }
    bool floats = hs_dtype_info(from->dtype)->is_float && hs_dtype_info(to->dtype)->is_float;
    if (!floats && from->dtype != to->dtype)
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` is %s and cannot become %s", file_name, source->name,
                       hs_dtype_name(from->dtype), hs_dtype_name(to->dtype));
    return HS_OK;
}

static void store_run(const HsTensor *to, int64_t first, int64_t count, const double *values)
{
    if (to->dtype == HS_F32) {
        float *const floats = (float *)to->data + first;
        for (int64_t i = 0; i < count; i++)
            floats[i] = (float)values[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        hs_dtype_store(to->dtype, to->data, first + i, values[i]);
}

/* Of elements first .. first + count - 1 of `to`, which came from those of `values`. */
static HsStatus check_finite(const char *file_name, const char *name, const HsTensor *to, int64_t first, int64_t count,
                             const double *values)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: element %" PRId64 " is %s", file_name, name, first + i,
                           isnan(values[i]) ? "NaN" : "infinite");
        if (fabs(values[i]) > hs_dtype_info(to->dtype)->max && !isfinite(hs_dtype_load(to->dtype, to->data, first + i)))
            return hs_fail(HS_EFORMAT, "%s: tensor `%s`: element %" PRId64 ", %g, is too large for %s", file_name, name,
                           first + i, values[i], hs_dtype_name(to->dtype));
    }
    return HS_OK;
}

/* A matrix that is transposed in the file is copied by rows, each a column there. */
static HsStatus copy_elements(const char *file_name, const HsNamedTensor *source, HsTensor *to,
                              const HsNamedTensor *destination)
{
    double values[CHUNK];
    const HsTensor *from = &source->tensor;
    const bool turned = destination->transposed && to->rank == 2;
    const int64_t run = turned ? to->shape[1] : hs_tensor_count(to), stride = turned ? to->shape[0] : 1;
    const int64_t rows = turned ? to->shape[0] : 1;
    /* Integers have no bad values, and the same format needs no conversion: the bytes as they are. */
    const bool plain = from->dtype == to->dtype && !turned && destination->shift == 0;
    if (plain && hs_tensor_bytes(to) > 0)
        memcpy(to->data, from->data, hs_tensor_bytes(to));
    if (!hs_dtype_info(from->dtype)->is_float)
        return HS_OK;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < run; column += CHUNK) {
            const int64_t here = run - column < CHUNK ? run - column : CHUNK, first = row * run + column;
            hs_safetensors_load(from, turned ? row + column * stride : first, stride, here, values);
            for (int64_t i = 0; i < here; i++)
                values[i] -= destination->shift;
            if (!plain)
                store_run(to, first, here, values);
            HS_TRY(check_finite(file_name, source->name, to, first, here, values));
        }
    }
    return HS_OK;
}

/* Floats of a file into four bits: one tensor's f32 values are in memory at a time. */
static HsStatus quantize_tensor(const char *file_name, const HsNamedTensor *source, const HsNamedTensor *destination)
{
    HsTensor values = destination->tensor;
    values.dtype = HS_F32;
    values.data = malloc(hs_tensor_bytes(&values));
    if (!values.data)
        return hs_fail(HS_ENOMEM, "%s: no memory for tensor `%s`, %zu bytes", file_name, source->name,
                       hs_tensor_bytes(&values));
    HsStatus status = copy_elements(file_name, source, &values, destination);
    if (status == HS_OK)
        status = hs_quantized_set(destination->quantized, destination->first, hs_tensor_count(&values), values.data,
                                  destination->context);
    free(values.data);
    return status;
}

static HsStatus decode(const char *file_name, const char *name, const HsQuantized *view, HsTensor *to)
{
    double values[CHUNK];
    for (int64_t first = 0; first < view->count; first += CHUNK) {
        const int64_t here = view->count - first < CHUNK ? view->count - first : CHUNK;
        for (int64_t i = 0; i < here; i++)
            values[i] = (double)hs_nf4_value(view, first + i);
        store_run(to, first, here, values);
        HS_TRY(check_finite(file_name, name, to, first, here, values));
    }
    return HS_OK;
}

/* Host memory `to` from the file: decoded where `view` is what it holds, else converted. */
static HsStatus fill(const char *file_name, const HsNamedTensor *source, const HsQuantized *view,
                     const HsNamedTensor *destination, HsTensor *to)
{
    return view ? decode(file_name, source->name, view, to) : copy_elements(file_name, source, to, destination);
}

/* Of a tensor that several processes have the range of this one. */
static HsStatus deliver_share(const char *file_name, const HsNamedTensor *source, const HsQuantized *view,
                              const HsNamedTensor *destination)
{
    HsTensor to = destination->tensor;
    const HsContext *context = destination->context;
    const size_t element = hs_dtype_bytes(to.dtype);
    int64_t first;
    const int64_t own =
        hs_tensor_share_of(&destination->share, hs_tensor_count(&to), destination->share.comm->rank, &first);
    if (own == 0)
        return HS_OK;
    to.data = malloc(hs_tensor_bytes(&to));
    if (!to.data)
        return hs_fail(HS_ENOMEM, "%s: no memory for tensor `%s`, %zu bytes", file_name, source->name,
                       hs_tensor_bytes(&to));
    HsStatus status = fill(file_name, source, view, destination, &to);
    if (status == HS_OK)
        status = context->device->copy(context->device, context->stream, destination->tensor.data,
                                       (unsigned char *)to.data + (size_t)first * element, (size_t)own * element);
    if (status == HS_OK)
        status = context->device->stream_sync(context->device, context->stream);
    free(to.data);
    return status;
}

static HsStatus deliver(const char *file_name, const HsNamedTensor *source, const HsQuantized *view,
                        const HsNamedTensor *destination)
{
    HsTensor to = destination->tensor;
    const HsContext *context = destination->context;
    const size_t bytes = hs_tensor_bytes(&to);
    if (destination->share.comm)
        return deliver_share(file_name, source, view, destination);
    if (!context || context->device->host_accessible || bytes == 0)
        return fill(file_name, source, view, destination, &to);
    to.data = malloc(bytes);
    if (!to.data)
        return hs_fail(HS_ENOMEM, "%s: no memory for tensor `%s`, %zu bytes", file_name, source->name, bytes);
    HsStatus status = fill(file_name, source, view, destination, &to);
    if (status == HS_OK)
        status = context->device->copy(context->device, context->stream, destination->tensor.data, to.data, bytes);
    free(to.data);
    return status;
}

static HsStatus take_quantized(const HsTensorSource *files, const char *file_name, const HsNamedTensor *source,
                               const HsNamedTensor *destination)
{
    const HsTensor to = destination->tensor;
    HsQuantized view;
    HsDtype dtype;
    if (to.rank != 2 || !hs_dtype_info(to.dtype)->is_float)
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` is a quantized matrix, and the model has no matrix of that name",
                       file_name, source->name);
    HS_TRY(hs_nf4_open(files, source->name, to.shape[0], to.shape[1], &view, &dtype));
    HsStatus status = destination->quantized
                          ? hs_quantized_place(destination->quantized, destination->first, &view, destination->context)
                          : deliver(file_name, source, &view, destination);
    free(view.scales);
    return status;
}

HsStatus hs_checkpoint_restore_tensor(const HsTensorSource *files, const char *file_name, const HsNamedTensor *source,
                                      const HsNamedTensor *destination)
{
    if (source->tensor.dtype == HS_U8 && hs_nf4_is_stored(files, source->name))
        return take_quantized(files, file_name, source, destination);
    HS_TRY(check_match(file_name, source, destination));
    if (destination->quantized)
        return quantize_tensor(file_name, source, destination);
    return deliver(file_name, source, NULL, destination);
}

static const HsNamedTensor *find_in_file(const void *file, const char *name, const char **path)
{
    (void)path;
    return hs_safetensors_find(file, name);
}

HsStatus hs_checkpoint_restore(const char *file_name, const HsSafetensors *file, const HsNamedTensor *destinations,
                               int count)
{
    const HsTensorSource files = { find_in_file, file };
    /* All of them first: a model that does not fit is left as it was. */
    for (int i = 0; i < count; i++) {
        const HsNamedTensor *source = hs_safetensors_find(file, destinations[i].name);
        if (!source)
            return hs_fail(HS_EFORMAT, "%s: tensor `%s` is missing", file_name, destinations[i].name);
        if (source->tensor.dtype != HS_U8 || !hs_nf4_is_stored(&files, source->name))
            HS_TRY(check_match(file_name, source, &destinations[i]));
    }
    for (int i = 0; i < count; i++)
        HS_TRY(hs_checkpoint_restore_tensor(&files, file_name, hs_safetensors_find(file, destinations[i].name),
                                            &destinations[i]));
    return HS_OK;
}
