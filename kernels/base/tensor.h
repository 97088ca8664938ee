/* SPDX-License-Identifier: MIT
 *
 * A tensor is a view: pointer, dtype, shape; always contiguous, row-major, never an owner.
 * A NULL pointer with a valid shape is a tensor in a dry run (planning), where only shapes are looked at.
 */
#ifndef HS_KERNELS_BASE_TENSOR_H
#define HS_KERNELS_BASE_TENSOR_H

#include "kernels/base/dtype.h"
#include "kernels/base/size.h"

enum { HS_MAX_RANK = 4 };

typedef struct HsTensor {
    void *data;
    HsDtype dtype;
    int rank;
    int64_t shape[HS_MAX_RANK];
    float *amax; /* where the largest magnitude of its numbers is found (kernels/ops/ops.h); NULL: nowhere */
} HsTensor;

static inline HsTensor hs_tensor_1d(void *data, HsDtype dtype, int64_t n)
{
    return (HsTensor){ data, dtype, 1, { n, 1, 1, 1 }, NULL };
}

static inline HsTensor hs_tensor_2d(void *data, HsDtype dtype, int64_t rows, int64_t columns)
{
    return (HsTensor){ data, dtype, 2, { rows, columns, 1, 1 }, NULL };
}

static inline HsTensor hs_tensor_3d(void *data, HsDtype dtype, int64_t a, int64_t b, int64_t c)
{
    return (HsTensor){ data, dtype, 3, { a, b, c, 1 }, NULL };
}

/* Elements; INT64_MAX where they are more. */
static inline int64_t hs_tensor_count(const HsTensor *tensor)
{
    int64_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++) {
        const int64_t extent = tensor->shape[axis];
        count = extent > 0 && count > INT64_MAX / extent ? INT64_MAX : count * extent;
    }
    return count;
}

/* As hs_size_multiply: huge, and never a small number by wrapping round. */
static inline size_t hs_tensor_bytes(const HsTensor *tensor)
{
    return hs_size_multiply((size_t)hs_tensor_count(tensor), hs_dtype_bytes(tensor->dtype));
}

/* True when the optional tensor is given: absent tensors have rank 0. */
static inline bool hs_tensor_present(const HsTensor *tensor)
{
    return tensor->rank > 0;
}

#endif
