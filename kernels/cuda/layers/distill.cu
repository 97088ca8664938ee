/* SPDX-License-Identifier: MIT
 *
 * Distillation, a block a row.
 *     top_logits     each thread holds the best of its elements; the block's best is taken, and its thread alone
 *                    looks for its next one: the row is read once, and a 1/threads part of it for each taken logit
 *     match_logits   the K entries' gradients are made from what is there, then the row is scaled, then they are stored
 *     distill        maxima, sums, gradients: a row is read three times, the second and the third from L2 or L1
 * Threads walk a row side by side, so that a warp's access is one piece of memory whatever its alignment.
 * Under a cap the largest logits are those of the largest numbers; distill has a kernel for rows where a side has one.
 */
#include <math.h>

#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/logit_cap.cuh"
#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256 };
static_assert((int)THREADS >= (int)HS_MOST_KEPT_LOGITS, "match_logits: a thread for each entry");

/* --- top_logits --- */

/* A number in which larger logits, then smaller places, are larger; 0: nothing (NaN). */
HS_DEVICE unsigned long long key_of(float logit, int place)
{
    if (isnan(logit))
        return 0ull;
    const uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 is 0 */
    const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)ordered << 32 | (uint32_t)~place;
}

/* The largest key of this thread's elements below `limit`. */
HS_DEVICE unsigned long long best_below(const float *row, int vocabulary, unsigned long long limit)
{
    unsigned long long best = 0ull;
    for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS) {
        const unsigned long long key = key_of(row[v], v);
        best = key < limit && key > best ? key : best;
    }
    return best;
}

__global__ void __launch_bounds__(THREADS)
    top_logits_kernel(const float *logits, const LogitCap cap, float *value, int32_t *index, int vocabulary, int kept)
{
    HS_SHARED(unsigned long long, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const int64_t n = blockIdx.x;
    const float *row = logits + n * vocabulary;
    unsigned long long mine = best_below(row, vocabulary, ~0ull);
    for (int k = 0; k < kept; k++) {
        const unsigned long long best = block_reduce<Maximum>(mine, 0ull, scratch);
        const int place = (int)~(uint32_t)best;
        if (threadIdx.x == 0) {
            index[n * kept + k] = best != 0ull ? place : -1;
            value[n * kept + k] = best != 0ull ? logit_of(cap, row[place]).value : 0.0f;
        }
        if (best != 0ull && mine == best)
            mine = best_below(row, vocabulary, best);
    }
}

/* --- match_logits --- */

template <typename Out>
__global__ void __launch_bounds__(THREADS)
    match_logits_kernel(const float *logits, const LogitCap cap, const int32_t *targets, const int32_t *replayed,
                        const float *value, const int32_t *index, float weight, float target_weight,
                        const float *gradient_scale, float *losses, Out *dlogits, int vocabulary, int kept)
{
    HS_SHARED(float, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const int64_t n = blockIdx.x;
    if (replayed[n] == 0 || targets[n] < 0) {
        if (threadIdx.x == 0)
            losses[n] = 0.0f;
        return;
    }
    const float share = weight / (float)kept;
    Out *row = dlogits + n * vocabulary;
    int place = -1;
    float loss = 0.0f, matched = 0.0f;
    if ((int)threadIdx.x < kept)
        place = index[n * kept + threadIdx.x];
    if (place >= 0) {
        const CappedLogit logit = logit_of(cap, logits[n * vocabulary + place]);
        const float distance = logit.value - value[n * kept + threadIdx.x];
        loss = share * distance * distance;
        matched = target_weight * to_float(row[place]) + *gradient_scale * (2.0f * share * distance * logit.slope);
    }
    loss = block_reduce<Sum>(loss, 0.0f, scratch); /* and every entry has been read */
    if (target_weight != 1.0f) {
        for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS)
            round_to(row[v], target_weight * to_float(row[v]));
        __syncthreads();
    }
    if (place >= 0)
        round_to(row[place], matched);
    if (threadIdx.x == 0)
        losses[n] = loss;
}

/* --- distill --- */

/* capped: either side may have a cap. */
template <bool capped> HS_DEVICE CappedLogit read_logit(const LogitCap &cap, float x)
{
    if constexpr (capped)
        return logit_of(cap, x);
    else
        return CappedLogit{ x, 1.0f };
}

/* log sum exp(l / t) of a row, on every thread. */
template <bool capped>
HS_DEVICE float log_sum_exp(const float *row, const LogitCap &cap, int vocabulary, float inverse, float *scratch)
{
    float maximum = -INFINITY, sum = 0.0f;
    for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS)
        maximum = fmaxf(maximum, row[v]);
    maximum = read_logit<capped>(cap, block_reduce<Maximum>(maximum, -INFINITY, scratch)).value;
    for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS)
        sum += expf((read_logit<capped>(cap, row[v]).value - maximum) * inverse);
    return maximum * inverse + logf(block_reduce<Sum>(sum, 0.0f, scratch));
}

template <typename Out, bool capped>
__global__ void __launch_bounds__(THREADS)
    distill_kernel(const float *logits, const float *teacher, const LogitCap cap, const LogitCap teacher_cap,
                   const int32_t *targets, const int32_t *replayed, HsTeaching fresh, HsTeaching replay,
                   const float *gradient_scale, float *losses, Out *dlogits, int vocabulary)
{
    HS_SHARED(float, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const int64_t n = blockIdx.x;
    const bool again = replayed != nullptr && replayed[n] != 0;
    const HsTeaching teaching = again ? replay : fresh;
    if (again && teaching.weight == 0.0f)
        return;
    if (targets[n] < 0 || teaching.weight == 0.0f) {
        if (threadIdx.x == 0)
            losses[n] = 0.0f;
        return;
    }
    const float inverse = 1.0f / teaching.temperature;
    const float pull = *gradient_scale * teaching.weight / teaching.temperature;
    const float *student_row = logits + n * vocabulary, *teacher_row = teacher + n * vocabulary;
    Out *row = dlogits + n * vocabulary;
    const float student_lse = log_sum_exp<capped>(student_row, cap, vocabulary, inverse, scratch);
    const float teacher_lse = log_sum_exp<capped>(teacher_row, teacher_cap, vocabulary, inverse, scratch);
    float divergence = 0.0f;
    for (int v = (int)threadIdx.x; v < vocabulary; v += THREADS) {
        const CappedLogit student = read_logit<capped>(cap, student_row[v]);
        const float taught = read_logit<capped>(teacher_cap, teacher_row[v]).value;
        const float l = student.value * inverse - student_lse, z = taught * inverse - teacher_lse;
        const float p = expf(l), q = expf(z);
        divergence += q * (z - l);
        float change = p - q;
        if constexpr (capped)
            change *= student.slope;
        round_to(row[v], teaching.target_weight * to_float(row[v]) + pull * change);
    }
    divergence = block_reduce<Sum>(divergence, 0.0f, scratch);
    if (threadIdx.x == 0)
        losses[n] = teaching.weight * divergence;
}

HsStatus check_vocabulary(const char *op, int64_t vocabulary)
{
    if (vocabulary <= INT32_MAX / 2)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s: a vocabulary of %lld is more than the kernel's %d", op, (long long)vocabulary,
                   INT32_MAX / 2);
}

} // namespace

HsStatus op::top_logits(HsContext *context, const HsTopLogitsArgs *args)
{
    const int64_t vocabulary = args->logits.shape[1];
    HS_TRY(check_vocabulary("top_logits", vocabulary));
    return hs_launch_after(context, HS_KERNEL(top_logits_kernel), (unsigned)args->logits.shape[0], (unsigned)THREADS, 0,
                           (const float *)data_of<float>(args->logits), logit_cap_of(args->cap),
                           data_of<float>(args->value), data_of<int32_t>(args->index), (int)vocabulary,
                           (int)args->index.shape[1]);
}

HsStatus op::match_logits(HsContext *context, const HsMatchLogitsArgs *args)
{
    const int64_t vocabulary = args->logits.shape[1];
    HS_TRY(check_vocabulary("match_logits", vocabulary));
    return dispatch_act(args->dlogits.dtype, [&](auto out) {
        using Out = decltype(out);
        return hs_launch_after(
            context, HS_KERNEL(match_logits_kernel<Out>), (unsigned)args->logits.shape[0], (unsigned)THREADS, 0,
            (const float *)data_of<float>(args->logits), logit_cap_of(args->cap),
            (const int32_t *)data_of<int32_t>(args->targets), (const int32_t *)data_of<int32_t>(args->replayed),
            (const float *)data_of<float>(args->value), (const int32_t *)data_of<int32_t>(args->index), args->weight,
            args->target_weight, args->gradient_scale, data_of<float>(args->losses), data_of<Out>(args->dlogits),
            (int)vocabulary, (int)args->index.shape[1]);
    });
}

HsStatus op::distill(HsContext *context, const HsDistillArgs *args)
{
    const int64_t vocabulary = args->logits.shape[1];
    HS_TRY(check_vocabulary("distill", vocabulary));
    return dispatch_act(args->dlogits.dtype, [&](auto out) {
        using Out = decltype(out);
        return dispatch_cap(args->cap > 0.0f || args->teacher_cap > 0.0f, [&](auto kind) {
            return hs_launch_after(
                context, HS_KERNEL((distill_kernel<Out, decltype(kind)::capped>)), (unsigned)args->logits.shape[0],
                (unsigned)THREADS, 0, (const float *)data_of<float>(args->logits),
                (const float *)data_of<float>(args->teacher), logit_cap_of(args->cap), logit_cap_of(args->teacher_cap),
                (const int32_t *)data_of<int32_t>(args->targets),
                (const int32_t *)optional_data<int32_t>(args->replayed), args->fresh, args->again, args->gradient_scale,
                data_of<float>(args->losses), data_of<Out>(args->dlogits), (int)vocabulary);
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
