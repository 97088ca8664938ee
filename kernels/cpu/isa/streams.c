/* SPDX-License-Identifier: MIT
 *
 * Streams blended by learned numbers, and the token before mixed in (formulas: kernels/ref/streams.c).  Bound by
 * memory: each number is read once, but for the row before or behind, which a cache still holds.
 * The gradients of the numbers are sums over all rows: lanes of a row in f32, the rows of a block and then the blocks
 * in double, in their order; blocks are cut by shape (kernels/cpu/cpu.h).
 */
#include "kernels/checks/checks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { CHUNK = 4096, SMALL = 8192, ROW_CHUNK = 8 };

/* Small tensors stay on the calling thread: starting a team costs more than the work. */
static int threads_for(const HsContext *context, int64_t elements, int64_t tasks)
{
    return elements <= SMALL ? 1 : hs_cpu_threads(context, tasks);
}

/* CALL(dtype) with a constant. */
#define FOR_DTYPE(dtype, CALL)       \
    do {                             \
        if ((dtype) == HS_F32)       \
            CALL(HS_F32);            \
        else if ((dtype) == HS_BF16) \
            CALL(HS_BF16);           \
        else                         \
            CALL(HS_F16);            \
    } while (0)

/* Element `at` of a vector; absent: 1. */
static float number_at(const HsTensor *vector, int64_t at)
{
    return hs_tensor_present(vector) ? ((const float *)vector->data)[at] : 1.0f;
}

/* An absent tensor is no obstacle. */
static bool is_like(const HsTensor *tensor, HsDtype dtype)
{
    return !hs_tensor_present(tensor) || tensor->dtype == dtype;
}

/* --- blend --- */

HS_SIMD void blend_vector(HsDtype dtype, const void *x, const void *z, void *y, float a, float b, int64_t i,
                          int64_t left)
{
    const HsF32x16 other = hs_simd_load_part(dtype, z, i, left) * b;
    hs_simd_store_part(dtype, y, i, hs_simd_fma(hs_simd_load_part(dtype, x, i, left), a, other), left);
}

static void blend_chunk(const HsBlendArgs *args, HsRowBlock range)
{
    const float a = number_at(&args->a, args->at), b = args->sign * number_at(&args->b, args->at);
    const void *x = args->x.data, *z = args->z.data;
    void *y = args->y.data;
#define BLEND(dtype) HS_FOR_VECTORS(i, left, range.begin, range.end, blend_vector(dtype, x, z, y, a, b, i, left))
    FOR_DTYPE(args->x.dtype, BLEND);
#undef BLEND
}

/* y = a x + sign b z */
HsStatus HS_ISA_NAME(hs_cpu_blend_forward)(HsContext *context, const HsBlendArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x), chunks = hs_cpu_block_count(count, CHUNK);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, chunks))
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        blend_chunk(args, hs_cpu_block(count, CHUNK, chunk));
    return HS_OK;
}

/* Dtypes of the operands, constants where rows are begun. */
typedef struct BlendDtypes {
    HsDtype dy, x, z, dx, dz;
} BlendDtypes;

/* All is read before anything is written: dx may be dy. */
HS_SIMD void blend_backward_vector(const HsBlendBackwardArgs *args, BlendDtypes dtypes, float a, float b, int64_t i,
                                   int64_t left, HsF32Parts *da, HsF32Parts *db)
{
    const HsF32x16 dy = hs_simd_load_part(dtypes.dy, args->dy.data, i, left);
    if (hs_tensor_present(&args->da))
        hs_simd_accumulate(da, dy * hs_simd_load_part(dtypes.x, args->x.data, i, left));
    if (hs_tensor_present(&args->db))
        hs_simd_accumulate(db, dy * hs_simd_load_part(dtypes.z, args->z.data, i, left));
    if (hs_tensor_present(&args->dx) && args->accumulate_x)
        hs_simd_store_part(dtypes.dx, args->dx.data, i,
                           hs_simd_fma(dy, a, hs_simd_load_part(dtypes.dx, args->dx.data, i, left)), left);
    else if (hs_tensor_present(&args->dx))
        hs_simd_store_part(dtypes.dx, args->dx.data, i, dy * a, left);
    if (hs_tensor_present(&args->dz) && args->accumulate_z)
        hs_simd_store_part(dtypes.dz, args->dz.data, i,
                           hs_simd_fma(dy, b, hs_simd_load_part(dtypes.dz, args->dz.data, i, left)), left);
    else if (hs_tensor_present(&args->dz))
        hs_simd_store_part(dtypes.dz, args->dz.data, i, dy * b, left);
}

/* Sums of products with x and with z, of a block of rows. */
typedef struct BlendSums {
    double da, db;
} BlendSums;

HS_SIMD void blend_backward_rows(const HsBlendBackwardArgs *in_memory, BlendDtypes dtypes, HsRowBlock range,
                                 BlendSums *sums)
{
    const HsBlendBackwardArgs args = *in_memory; /* so that its pointers may stay in registers */
    const float a = number_at(&args.a, args.at), b = args.sign * number_at(&args.b, args.at);
    const int64_t width = args.dy.shape[1];
    for (int64_t row = range.begin; row < range.end; row++) {
        HsF32Parts da = { 0 }, db = { 0 };
        HS_FOR_VECTORS(i, left, row * width, (row + 1) * width,
                       blend_backward_vector(&args, dtypes, a, b, i, left, &da, &db));
        sums->da += (double)hs_simd_sum(da.whole);
        sums->db += (double)hs_simd_sum(db.whole);
    }
}

static void blend_backward_block(const HsBlendBackwardArgs *args, HsRowBlock range, BlendSums *sums)
{
    const HsDtype one = args->dy.dtype;
    const BlendDtypes dtypes = { one, args->x.dtype, args->z.dtype, args->dx.dtype, args->dz.dtype };
#define BACKWARD(dtype) blend_backward_rows(args, (BlendDtypes){ dtype, dtype, dtype, dtype, dtype }, range, sums)
    if (is_like(&args->x, one) && is_like(&args->z, one) && is_like(&args->dx, one) && is_like(&args->dz, one))
        FOR_DTYPE(one, BACKWARD);
    else
        blend_backward_rows(args, dtypes, range, sums);
#undef BACKWARD
}

static void add_to(const HsTensor *total, int64_t at, double sum)
{
    if (hs_tensor_present(total))
        ((float *)total->data)[at] = (float)((double)((const float *)total->data)[at] + sum);
}

HsStatus HS_ISA_NAME(hs_cpu_blend_backward)(HsContext *context, const HsBlendBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0], count = hs_tensor_count(&args->dy);
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    BlendSums sums[HS_CPU_PARTIALS] = { { 0.0, 0.0 } }, all = { 0.0, 0.0 };
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, blocks))
    for (int64_t block = 0; block < blocks; block++)
        blend_backward_block(args, hs_cpu_block(rows, block_rows, block), &sums[block]);
    for (int64_t block = 0; block < blocks; block++) {
        all.da += sums[block].da;
        all.db += sums[block].db;
    }
    add_to(&args->da, args->at, all.da);
    add_to(&args->db, args->at, (double)args->sign * all.db);
    return HS_OK;
}

/* --- smear --- */

/* Whether a row begins its document, or its sequence. */
static bool begins(const HsTensor *starts, int64_t sequence_length, int64_t row)
{
    return row % sequence_length == hs_start_of(starts, row);
}

/* x from `at` on, from[before ...] the row before it. */
HS_SIMD void smear_vector(HsDtype dtype, const void *x, const void *from, void *y, float factor, int64_t at,
                          int64_t before, int64_t left)
{
    const HsF32x16 previous = hs_simd_load_part(dtype, from, before, left);
    hs_simd_store_part(dtype, y, at, hs_simd_fma(previous, factor, hs_simd_load_part(dtype, x, at, left)), left);
}

static void smear_row(const HsSmearArgs *args, int64_t row)
{
    const int64_t width = args->x.shape[1], at = row * width;
    const bool first = begins(&args->starts, args->sequence_length, row);
    const void *x = args->x.data, *from = first ? args->before.data : x;
    void *y = args->y.data;
    if (first && !hs_tensor_present(&args->before)) {
        const size_t bytes = (size_t)width * hs_dtype_bytes(args->x.dtype);
        memcpy((unsigned char *)y + (size_t)row * bytes, (const unsigned char *)x + (size_t)row * bytes, bytes);
        return;
    }
    const int64_t before = (first ? row / args->sequence_length : row - 1) * width;
    const float factor = *(const float *)args->strength.data * ((const float *)args->gate.data)[row];
#define SMEAR(dtype) \
    HS_FOR_VECTORS(i, left, 0, width, smear_vector(dtype, x, from, y, factor, at + i, before + i, left))
    FOR_DTYPE(args->x.dtype, SMEAR);
#undef SMEAR
}

/* y[n] = x[n] + strength gate[n] x[n - 1] */
HsStatus HS_ISA_NAME(hs_cpu_smear_forward)(HsContext *context, const HsSmearArgs *args)
{
    const int64_t rows = args->x.shape[0], count = hs_tensor_count(&args->x);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, rows / ROW_CHUNK))
    for (int64_t row = 0; row < rows; row++)
        smear_row(args, row);
    return HS_OK;
}

/* Row `row`: what of its gradient comes back, and from the next row's; its share of dstrength is added to *sum. */
HS_SIMD void smear_backward_row(const HsSmearBackwardArgs *args, HsDtype gradient, HsDtype in, HsDtype out, int64_t row,
                                double *sum)
{
    const int64_t rows = args->x.shape[0], width = args->x.shape[1], at = row * width;
    const bool first = begins(&args->starts, args->sequence_length, row);
    const bool followed = row + 1 < rows && !begins(&args->starts, args->sequence_length, row + 1);
    const float strength = *(const float *)args->strength.data, *gate = args->gate.data;
    const float next = followed ? strength * gate[row + 1] : 0.0f;
    const void *dy_data = args->dy.data, *x = args->x.data;
    void *dx = args->dx.data;
    HsF32Parts products = { 0 };
    HS_FOR_VECTORS(i, left, at, at + width, {
        const HsF32x16 dy = hs_simd_load_part(gradient, dy_data, i, left);
        if (!first)
            hs_simd_accumulate(&products, dy * hs_simd_load_part(in, x, i - width, left));
        const HsF32x16 back =
            followed ? hs_simd_fma(hs_simd_load_part(gradient, dy_data, i + width, left), next, dy) : dy;
        hs_simd_store_part(out, dx, i, back, left);
    });
    const float dot = hs_simd_sum(products.whole);
    ((float *)args->dgate.data)[row] = strength * dot;
    *sum += (double)gate[row] * (double)dot;
}

static double smear_backward_block(const HsSmearBackwardArgs *in_memory, HsRowBlock range)
{
    const HsSmearBackwardArgs args = *in_memory;
    const HsDtype gradient = args.dy.dtype, in = args.x.dtype, out = args.dx.dtype;
    double sum = 0.0;
#define BACKWARD(dtype)                                     \
    for (int64_t row = range.begin; row < range.end; row++) \
    smear_backward_row(&args, dtype, dtype, dtype, row, &sum)
    if (gradient == in && in == out)
        FOR_DTYPE(in, BACKWARD);
    else
        for (int64_t row = range.begin; row < range.end; row++)
            smear_backward_row(&args, gradient, in, out, row, &sum);
#undef BACKWARD
    return sum;
}

HsStatus HS_ISA_NAME(hs_cpu_smear_backward)(HsContext *context, const HsSmearBackwardArgs *args)
{
    const int64_t rows = args->x.shape[0], count = hs_tensor_count(&args->x);
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    double sums[HS_CPU_PARTIALS], all = 0.0;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, blocks))
    for (int64_t block = 0; block < blocks; block++)
        sums[block] = smear_backward_block(args, hs_cpu_block(rows, block_rows, block));
    for (int64_t block = 0; block < blocks; block++)
        all += sums[block];
    add_to(&args->dstrength, 0, all);
    return HS_OK;
}
