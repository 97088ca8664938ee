/* SPDX-License-Identifier: MIT
 *
 * The frequencies of the rotary embedding, and how models that were made longer than they began change them.  One body
 * for every backend; all of it is computed on the host, in double, once a call.
 *
 *   none     w_i = theta^(-2i/D)                                            (Su et al. 2021, section 3.2.2)
 *   linear   w_i / F                                                        (Chen et al. 2023, eq. 4)
 *   llama3   turns r = L w_i / 2 pi within the original length L:  r > high: w_i;  r < low: w_i / F;  between them
 *            (1 - s) w_i / F + s w_i  with  s = (r - low) / (high - low)    (Llama 3.1)
 *   yarn     g_i w_i + (1 - g_i) w_i / F,  g_i falling from 1 to 0 between the pairs that turn beta_fast and beta_slow
 *            times within L;  cosines and sines times 0.1 ln F + 1          (Peng et al. 2023, eqs. 18 to 23)
 *   longrope w_i / d_i;  cosines and sines times sqrt(1 + ln F / ln L)      (Ding et al. 2024, eq. 3; Phi-3)
 *
 * Of a head of D features the first R may be rotated alone, in pairs (i, i + R/2), with R in place of D above.
 */
#ifndef HS_KERNELS_OPS_ROPE_RULE_H
#define HS_KERNELS_OPS_ROPE_RULE_H

#include <math.h>
#include <stdint.h>

#define HS_ROPE_SCALINGS(X) \
    X(NONE, "none") X(LINEAR, "linear") X(LLAMA3, "llama3") X(YARN, "yarn") X(LONGROPE, "longrope")
#define HS_ROPE_SCALING(identifier, word) HS_ROPE_##identifier,
typedef enum HsRopeScaling { HS_ROPE_SCALINGS(HS_ROPE_SCALING) } HsRopeScaling;

typedef struct HsRopeRule {
    double theta;
    int64_t rotated; /* R, even; 0: D */
    HsRopeScaling scaling;
    /* read where there is scaling */
    double factor;           /* F, at least 1 */
    double original_length;  /* L, in tokens: all but linear */
    double low, high;        /* llama3's bounds in turns, low < high; yarn's beta_slow and beta_fast */
    double attention_factor; /* yarn's and longrope's factor of cosines and sines; 0: its own */
    const double *divisors;  /* longrope: d, [R/2] above 0 */
} HsRopeRule;

static inline int64_t hs_rope_rotated(const HsRopeRule *rule, int64_t head_dim)
{
    return rule->rotated > 0 ? rule->rotated : head_dim;
}

/* The pair, not rounded, that makes `turns` turns within the original length. */
static inline double hs_rope_pair_of_turns(const HsRopeRule *rule, int64_t rotated, double turns)
{
    return (double)rotated * log(rule->original_length / (turns * 6.283185307179586)) / (2.0 * log(rule->theta));
}

/* yarn's g of a pair: the share of its frequency that it keeps. */
static inline double hs_rope_kept(const HsRopeRule *rule, int64_t rotated, int64_t pair)
{
    const double last = (double)(rotated - 1);
    const double first = fmax(floor(hs_rope_pair_of_turns(rule, rotated, rule->high)), 0.0);
    double end = fmin(ceil(hs_rope_pair_of_turns(rule, rotated, rule->low)), last);
    if (end == first)
        end += 0.001; /* as in the published code: a step instead of a ramp without length */
    return 1.0 - fmin(fmax(((double)pair - first) / (end - first), 0.0), 1.0);
}

/* Radians a position of pair (pair, pair + R / 2). */
static inline double hs_rope_frequency(const HsRopeRule *rule, int64_t head_dim, int64_t pair)
{
    const int64_t rotated = hs_rope_rotated(rule, head_dim);
    const double own = pow(rule->theta, -2.0 * (double)pair / (double)rotated);
    switch (rule->scaling) {
    case HS_ROPE_NONE:
        return own;
    case HS_ROPE_LINEAR:
        return own / rule->factor;
    case HS_ROPE_LLAMA3: {
        const double turns = rule->original_length * own / 6.283185307179586;
        const double kept = fmin(fmax((turns - rule->low) / (rule->high - rule->low), 0.0), 1.0);
        return (1.0 - kept) * own / rule->factor + kept * own;
    }
    case HS_ROPE_YARN: {
        const double kept = hs_rope_kept(rule, rotated, pair);
        return (1.0 - kept) * own / rule->factor + kept * own;
    }
    case HS_ROPE_LONGROPE:
        return own / rule->divisors[pair];
    }
    return own;
}

/* What multiplies cosines and sines, of queries and of keys. */
static inline double hs_rope_amplitude(const HsRopeRule *rule)
{
    if (rule->scaling != HS_ROPE_YARN && rule->scaling != HS_ROPE_LONGROPE)
        return 1.0;
    if (rule->attention_factor > 0)
        return rule->attention_factor;
    return rule->scaling == HS_ROPE_YARN ? 0.1 * log(rule->factor) + 1.0
                                         : sqrt(1.0 + log(rule->factor) / log(rule->original_length));
}

#endif
