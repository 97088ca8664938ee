/* SPDX-License-Identifier: MIT
 *
 * Attention's kernels and their callers:
 *
 *     op::attention_forward  -> attention_forward_hopper  sm_90a, by wgmma: 16-bit heads of 8 n columns, up to 128;
 *                                                         all keys before a query, scores as they are
 *                            -> attention_forward_mma     such heads of up to 256 columns, on the tensor cores
 *                            -> attention_forward_exact   anything else, f32 multiply-adds
 *     op::attention_backward -> attention_statistics, then attention_backward_hopper (as forward),
 *                               or attention_backward_{query,key_value}_{mma,exact}
 *     op::attention_cached   -> its own two kernels
 *
 * The mathematics is in kernels/ref/attention.c.  Exponentials are powers of two here: with c = scale log2(e),
 *     p = exp(scale s - lse) = 2^(c s - lse log2(e))
 * so that a score takes one fused multiply-add and one ex2.
 *
 * Rules (HsScoreRule): several documents in a sequence and windows hide keys, walks begin and end at the tiles that a
 * block's rows see, and in tiles that hold a border keys are hidden one by one.  A running maximum is finite from the start,
 * so that a row with all keys hidden so far has probabilities of 0.  A capped score is made as soon as the product is
 * there, still without the scale:  s' = (cap / scale) tanh(scale s / cap).  A head's sink joins the softmax when its
 * row is through.  Kernels are compiled twice, so that the one for all keys and plain scores pays nothing for the other.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/attention/attention_dropout.cuh"
#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/ptx_convert.cuh"

namespace HS_CUDA_NAMESPACE
{

static constexpr float LOG2_E = 1.44269504088896341f;

/* Sizes and scalars of a call, passed to kernels by value. */
struct Attention {
    int batch, length, heads, kv_heads, head_dim;
    float scale, scale_log2; /* scale log2(e): scores in powers of two */
    Dropout dropout;
    bool hides;              /* some keys before their queries, by one of these: */
    int window;              /* keys that a query sees; length: all */
    const int32_t *starts;   /* [batch length], where documents begin; NULL: one a sequence */
    float cap, cap_exponent; /* cap / scale; 2 log2(e) scale / cap: of a score to what its tanh is made of; 0: none */
    const float *sinks;      /* [heads], of forward alone; NULL: none */
    AmaxOut amax;            /* of out, or of dqkv; of 16 bits alone, the others' is found by a pass (attention.cu) */

    bool ruled() const
    {
        return hides || cap != 0.0f || sinks != nullptr;
    }
};

static constexpr float NO_MAXIMUM = -3.402823466e+38f; /* yet; the smallest finite number */

template <bool ruled_> struct RuleKind {
    static constexpr bool ruled = ruled_;
};

/* Calls body(kind); `ruled` of kind's type is known when compiling. */
template <typename Body> HsStatus dispatch_rule(bool ruled, Body &&body)
{
    return ruled ? body(RuleKind<true>{}) : body(RuleKind<false>{});
}

/* At the start of a kernel: what is known when compiling. */
template <bool ruled> HS_DEVICE void fix_rule(Attention &attention)
{
    if (!ruled) {
        attention.hides = false;
        attention.cap_exponent = 0.0f;
        attention.sinks = nullptr;
    }
}

/* The head's sink in the denominator of a row, in powers of two; returns what the row's sum of values shrinks by. */
HS_DEVICE float add_sink(const float *sinks, int head, float &maximum, float &total)
{
    if (sinks == nullptr)
        return 1.0f;
    const float sink = sinks[head] * LOG2_E, larger = fmaxf(maximum, sink);
    const float shrink = ptx::exp2_approximate(maximum - larger);
    total = fmaf(total, shrink, ptx::exp2_approximate(sink - larger));
    maximum = larger;
    return shrink;
}

/* The first key that a sequence's query sees; behind the last query, that one's.  first_row: the sequence's. */
HS_DEVICE int first_seen(const Attention &attention, int64_t first_row, int query)
{
    const int inside = min(query, attention.length - 1);
    const int start = attention.starts == nullptr ? 0 : attention.starts[first_row + inside];
    return max(start, inside - attention.window + 1);
}

/* The first of tiles of `step` keys that a query sees. */
HS_DEVICE int first_key_tile(const Attention &attention, int64_t first_row, int query, int step)
{
    return attention.hides ? first_seen(attention, first_row, query) / step * step : 0;
}

/* A product as its capped score, both without the scale:  tanh u = (1 - e) / (1 + e),  e = exp(-2 |u|). */
HS_DEVICE float capped(const Attention &attention, float product)
{
    const float e = ptx::exp2_approximate(-fabsf(product) * attention.cap_exponent);
    return copysignf((1.0f - e) * ptx::reciprocal_approximate(1.0f + e) * attention.cap, product);
}

/* The derivative of a capped score by its product, 1 - tanh^2. */
HS_DEVICE float cap_slope(const Attention &attention, float score)
{
    const float share = score / attention.cap;
    return 1.0f - share * share;
}

/* ... from its probability, where that is all that is left of it. */
HS_DEVICE float cap_slope_of_probability(const Attention &attention, float probability, float lse_log2)
{
    return probability > 0.0f ? cap_slope(attention, (__log2f(probability) + lse_log2) / attention.scale_log2) : 1.0f;
}

/* Behind the last query that sees some key of [.., last_key]. */
HS_DEVICE int last_query_end(const Attention &attention, int64_t first_row, int last_key)
{
    int end = attention.length;
    if (!attention.hides)
        return end;
    for (int seeing = min(last_key, end - 1); end - seeing > 1;) {
        const int middle = (seeing + end) / 2;
        if (first_seen(attention, first_row, middle) <= last_key)
            seeing = middle;
        else
            end = middle;
    }
    return end;
}

/* The first element of a head in a row of the packed projection [q heads | k heads | v heads], and a row's length.
 * Elements of one sequence are counted in 32 bits: registers are dear in these kernels. */
static inline __host__ __device__ uint32_t query_column(const Attention &attention, int head)
{
    return (uint32_t)(head * attention.head_dim);
}
static inline __host__ __device__ uint32_t key_column(const Attention &attention, int kv_head)
{
    return (uint32_t)((attention.heads + kv_head) * attention.head_dim);
}
static inline __host__ __device__ uint32_t value_column(const Attention &attention, int kv_head)
{
    return (uint32_t)((attention.heads + attention.kv_heads + kv_head) * attention.head_dim);
}
static inline __host__ __device__ uint32_t projection_columns(const Attention &attention)
{
    return (uint32_t)((attention.heads + 2 * attention.kv_heads) * attention.head_dim);
}
static inline __host__ __device__ uint32_t result_columns(const Attention &attention)
{
    return (uint32_t)(attention.heads * attention.head_dim);
}

/* errors: HS_EUNSUPPORTED for sizes beyond 32 bits and scales that are not positive (the running maximum is taken of
 * unscaled scores). */
HsStatus describe_attention(const char *op, const HsHeads &heads, const HsScoreRule &rule, float dropout,
                            const HsRng &rng, Attention *attention);

/* What backward needs of a query: lse log2(e), and delta = dout . out. */
struct QueryStatistics {
    float lse_log2, delta;
};

/* Backward's workspace: statistics [batch * heads][statistics_length], zeros behind the last token, so that tiles may
 * read past it. */
enum { STATISTICS_ROUND = 128 };
static inline __host__ __device__ int64_t statistics_length(int length)
{
    return ((int64_t)length + STATISTICS_ROUND - 1) / STATISTICS_ROUND * STATISTICS_ROUND;
}

/* Tensors of one call of backward; out and lse are used up by then. */
struct BackwardTensors {
    HsTensor dout, qkv, dqkv;
    const QueryStatistics *statistics;
};

HsStatus attention_forward_mma(HsContext *context, const Attention &attention, const HsAttentionArgs *args);
HsStatus attention_forward_exact(HsContext *context, const Attention &attention, const HsAttentionArgs *args);
HsStatus attention_backward_query_mma(HsContext *context, const Attention &attention, const BackwardTensors &tensors);
HsStatus attention_backward_query_exact(HsContext *context, const Attention &attention, const BackwardTensors &tensors);
HsStatus attention_backward_key_value_mma(HsContext *context, const Attention &attention,
                                          const BackwardTensors &tensors);
HsStatus attention_backward_key_value_exact(HsContext *context, const Attention &attention,
                                            const BackwardTensors &tensors);

/* The tensor cores want one 16-bit dtype and rows of whole 16-byte chunks. */
static inline bool fits_mma(const Attention &attention, const HsTensor *const tensors[], int count)
{
    const HsDtype dtype = tensors[0]->dtype;
    bool fits = (dtype == HS_BF16 || dtype == HS_F16) && attention.head_dim % 8 == 0;
    for (int i = 0; i < count; i++)
        fits = fits && tensors[i]->dtype == dtype && reinterpret_cast<uintptr_t>(tensors[i]->data) % 16 == 0;
    return fits;
}

} // namespace HS_CUDA_NAMESPACE

#endif
