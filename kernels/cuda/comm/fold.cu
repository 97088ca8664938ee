/* SPDX-License-Identifier: MIT
 *
 * The tree is added up as a binary counter counts: after rank r the sums of 2^k ranks that are not yet part of a larger
 * one lie at the bits k of r + 1.  At the end these are added from the smallest up, each to the right of the next.
 * The kernel reads every part once and is limited by memory.
 */
#include "kernels/cuda/comm/fold.cuh"

#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

constexpr int BLOCK = 256, LEVELS = 11;
constexpr unsigned BLOCKS_MOST = 4096;
static_assert(FOLD_RANKS_MOST == 1 << (LEVELS - 1), "a level for each bit of the number of ranks");

/* One addition, rounded to the type.  For 16 bits: the sum in f32, rounded again, is the exact one rounded once (24 bits
 * are at least twice the format's and two more; Figueroa 1995). */
HS_DEVICE float add_two(float a, float b)
{
    return a + b;
}
HS_DEVICE double add_two(double a, double b)
{
    return a + b;
}
template <typename T> HS_DEVICE T add_two(T a, T b)
{
    T sum;
    round_to(sum, to_float(a) + to_float(b));
    return sum;
}

HS_DEVICE bool is_above(double a, double b)
{
    return a > b;
}
template <typename T> HS_DEVICE bool is_above(T a, T b)
{
    return to_float(a) > to_float(b);
}

/* As the host's communicators have it: a comparison that a NaN on the right loses. */
template <typename T> HS_DEVICE T combine(T a, T b, bool maximum)
{
    return !maximum ? add_two(a, b) : is_above(b, a) ? b : a;
}

template <typename T> struct Fold {
    T *own;
    const T *others;
    size_t stride, count;
    int rank, size;
    bool maximum;
};

template <typename T> __global__ void __launch_bounds__(BLOCK) comm_fold_kernel(Fold<T> fold)
{
    const size_t threads = (size_t)gridDim.x * BLOCK;
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < fold.count; i += threads) {
        T sums[LEVELS]; /* of 2^level ranks; by constants alone, so that it stays in registers */
        for (int r = 0; r < fold.size; r++) {
            const size_t place = (size_t)(r < fold.rank ? r : r - 1) * fold.stride + i;
            T value = r == fold.rank ? fold.own[i] : fold.others[place];
            bool carry = true;
#pragma unroll
            for (int level = 0; level < LEVELS; level++) {
                if (carry && (r >> level & 1) == 0) {
                    sums[level] = value;
                    carry = false;
                } else if (carry) {
                    value = combine(sums[level], value, fold.maximum);
                }
            }
        }
        T total = sums[0];
        bool any = false;
#pragma unroll
        for (int level = 0; level < LEVELS; level++) {
            if ((fold.size >> level & 1) != 0) {
                total = any ? combine(sums[level], total, fold.maximum) : sums[level];
                any = true;
            }
        }
        fold.own[i] = total;
    }
}

template <typename T> HsStatus launch(const HsContext *context, const Fold<T> &fold)
{
    const unsigned blocks = blocks_for((int64_t)fold.count, BLOCK);
    return hs_launch(context, HS_KERNEL((comm_fold_kernel<T>)), blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST, BLOCK, 0,
                     fold);
}

} // namespace

HsStatus launch_fold(const HsContext *context, void *own, const void *others, size_t stride, size_t count, int rank,
                     int size, HsDtype dtype, HsCommOp op)
{
    if (count == 0)
        return HS_OK;
    const auto with = [&](auto zero) {
        using T = decltype(zero);
        return launch(context, Fold<T>{ static_cast<T *>(own), static_cast<const T *>(others), stride, count, rank,
                                        size, op == HS_COMM_MAX });
    };
    return dtype == HS_F64 ? with(double{}) : dispatch_act(dtype, with);
}

#ifdef HS_EMU
/* For tools that list launches (tests/kernels/launches.c). */
extern "C" HsStatus hs_emu_launch_fold(const HsContext *context, void *own, const void *others, HsDtype dtype)
{
    return launch_fold(context, own, others, 1 << 20, 1 << 20, 0, 4, dtype, HS_COMM_SUM);
}
#endif

} // namespace HS_CUDA_NAMESPACE
