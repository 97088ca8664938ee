/* SPDX-License-Identifier: MIT
 *
 * Choosing a token: softmax(logits / temperature), cut to the top_k likeliest, then to the smallest set of those with
 * a share that reaches top_p (the nucleus; Holtzman et al. 2020), then one uniform draw.
 * A draw is a pure function of (seed, index).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/engine/decode.h"

/* Sites of sampling, apart from dropout's (from 1) and those of initial weights (from 2^31). */
#define SAMPLING_SITE 0x40000000u

static int64_t likeliest(const float *logits, int64_t vocabulary)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocabulary; v++) {
        if (logits[v] > logits[best])
            best = v;
    }
    return best;
}

static int descending(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The k-th largest of them (from 1), which are moved about (Hoare 1961, algorithm 65). */
static float kth_largest(float *values, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                const float swapped = values[i];
                values[i++] = values[j];
                values[j--] = swapped;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return values[k - 1];
}

/* How many of the sorted weights stay. */
static int64_t nucleus_size(const float *sorted, int64_t count, double top_p)
{
    double total = 0, reached = 0;
    for (int64_t i = 0; i < count; i++)
        total += (double)sorted[i];
    for (int64_t i = 0; i < count; i++) {
        reached += (double)sorted[i];
        if (reached >= top_p * total)
            return i + 1;
    }
    return count;
}

/* Zero the weights that top_k and top_p cut off. */
static void cut(const HsSampling *sampling, float *weights, float *sorted, int64_t vocabulary)
{
    int64_t count = sampling->top_k > 0 && sampling->top_k < vocabulary ? sampling->top_k : vocabulary;
    if (count == vocabulary && !(sampling->top_p < 1.0))
        return;
    memcpy(sorted, weights, (size_t)vocabulary * sizeof *sorted);
    if (sampling->top_p < 1.0) {
        qsort(sorted, (size_t)vocabulary, sizeof *sorted, descending);
        count = nucleus_size(sorted, count, sampling->top_p);
    }
    /* Of the tokens that weigh exactly as much as the last one kept, the first few stay. */
    const float least = sampling->top_p < 1.0 ? sorted[count - 1] : kth_largest(sorted, vocabulary, count);
    int64_t ties = count;
    for (int64_t v = 0; v < vocabulary; v++)
        ties -= weights[v] > least;
    for (int64_t v = 0; v < vocabulary; v++) {
        bool keep = weights[v] > least || (weights[v] == least && ties-- > 0);
        if (!keep)
            weights[v] = 0.0f;
    }
}

int32_t hs_sample(const HsSampling *sampling, const float *logits, int64_t vocabulary, uint64_t index, float *scratch)
{
    int64_t best = likeliest(logits, vocabulary);
    if (!(sampling->temperature > 0.0))
        return (int32_t)best;
    float *weights = scratch;
    for (int64_t v = 0; v < vocabulary; v++)
        weights[v] = (float)exp(((double)logits[v] - (double)logits[best]) / sampling->temperature);
    cut(sampling, weights, scratch + vocabulary, vocabulary);

    double total = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        total += (double)weights[v];
    HsRng rng = { .seed = sampling->seed, .site = SAMPLING_SITE };
    HsPhilox bits = hs_rng_draw(&rng, index);
    /* 53 uniform bits: with a large vocabulary 24 would leave rare tokens undrawn */
    double uniform = ((double)(bits.word[0] >> 5) * 0x1p26 + (double)(bits.word[1] >> 6)) * 0x1p-53;
    double left = uniform * total;
    int64_t token = best;
    for (int64_t v = 0; v < vocabulary; v++) {
        if (weights[v] > 0.0f) {
            token = v;
            left -= (double)weights[v];
            if (left < 0)
                break;
        }
    }
    return (int32_t)token;
}
