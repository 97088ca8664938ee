/* SPDX-License-Identifier: MIT
 *
 * See mixture.h.  Each source has a credit, which grows by its share with each sample; the sample goes to the source with
 * the most credit, and costs it one (smooth weighted round robin).  States are kept at every 65,536th sample, and where
 * it was asked for last; those between are made from them.
 */
#include "runtime/data/mixture.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"

enum { STRIDE = 65536, RECENT = 8 };

/* In front of a sample. */
typedef struct State {
    int64_t credit[HS_MIXTURE_MOST]; /* samples, in 2^-32 */
    int64_t taken[HS_MIXTURE_MOST];
    int64_t passes; /* how often all sources have been read through (drop) */
} State;

struct HsMixture {
    int count, phases;
    int64_t windows[HS_MIXTURE_MOST];
    int64_t *steps;
    double rows;
    uint32_t *shares; /* [phases, count] of 2^24 - 1 at most: relative */
    HsExhausted exhausted;
    pthread_mutex_t lock;
    State *kept; /* of samples 0, STRIDE, 2 STRIDE ... */
    size_t kept_count, kept_capacity;
    struct Recent {     /* what several threads ask for is not far apart */
        int64_t sample; /* 0: none */
        State state;
    } recent[RECENT];
    int next_recent;
};

HsStatus hs_mixture_create(const HsMixtureOptions *options, HsMixture **result)
{
    HsMixture *mixture = *result = calloc(1, sizeof *mixture);
    const size_t phases = (size_t)options->phases, count = (size_t)options->count;
    if (mixture) {
        pthread_mutex_init(&mixture->lock, NULL);
        mixture->steps = malloc(phases * sizeof *mixture->steps);
        mixture->shares = malloc(phases * count * sizeof *mixture->shares);
    }
    HsStatus status = mixture && mixture->steps && mixture->shares
                          ? hs_array_grow(&mixture->kept, sizeof *mixture->kept, 1, &mixture->kept_capacity)
                          : HS_ENOMEM;
    if (status != HS_OK) {
        hs_mixture_destroy(mixture);
        *result = NULL;
        return hs_fail(HS_ENOMEM, "no memory to mix %d sources", options->count);
    }
    mixture->count = options->count;
    mixture->phases = options->phases;
    mixture->exhausted = options->exhausted;
    memcpy(mixture->windows, options->windows, count * sizeof *options->windows);
    memcpy(mixture->steps, options->steps, phases * sizeof *options->steps);
    mixture->rows = 1;
    for (size_t phase = 0; phase < phases; phase++) {
        double most = 0;
        for (size_t i = 0; i < count; i++)
            most = options->weights[phase * count + i] > most ? options->weights[phase * count + i] : most;
        for (size_t i = 0; i < count; i++)
            mixture->shares[phase * count + i] = (uint32_t)(options->weights[phase * count + i] / most * 16777215.0);
    }
    mixture->kept[0] = (State){ 0 };
    mixture->kept_count = 1;
    return HS_OK;
}

void hs_mixture_destroy(HsMixture *mixture)
{
    if (!mixture)
        return;
    pthread_mutex_destroy(&mixture->lock);
    free(mixture->steps);
    free(mixture->shares);
    free(mixture->kept);
    free(mixture);
}

void hs_mixture_set_rows(HsMixture *mixture, double rows)
{
    mixture->rows = rows;
    mixture->kept_count = 1; /* the first state depends on nothing */
    memset(mixture->recent, 0, sizeof mixture->recent);
}

static const uint32_t *shares_of(const HsMixture *mixture, int64_t sample)
{
    int phase = 0;
    while (phase + 1 < mixture->phases && (double)mixture->steps[phase + 1] * mixture->rows <= (double)sample)
        phase++;
    return mixture->shares + (size_t)phase * (size_t)mixture->count;
}

static bool has_room(const HsMixture *mixture, const State *state, int source)
{
    return mixture->exhausted != HS_EXHAUSTED_DROP ||
           state->taken[source] < mixture->windows[source] * (state->passes + 1);
}

/* Where all that has a share is through, everything is read again. */
static void begin_pass(const HsMixture *mixture, const uint32_t *shares, State *state)
{
    bool left = false;
    for (int i = 0; i < mixture->count; i++)
        left = left || (shares[i] > 0 && has_room(mixture, state, i));
    state->passes += !left;
}

/* Over the sample; returns its source. */
static int advance(const HsMixture *mixture, int64_t sample, State *state)
{
    const uint32_t *shares = shares_of(mixture, sample);
    uint64_t all = 0;
    int best = -1;
    begin_pass(mixture, shares, state);
    for (int i = 0; i < mixture->count; i++)
        all += has_room(mixture, state, i) ? shares[i] : 0;
    for (int i = 0; i < mixture->count; i++) {
        if (shares[i] == 0 || !has_room(mixture, state, i)) {
            state->credit[i] = 0;
            continue;
        }
        state->credit[i] += (int64_t)(((uint64_t)shares[i] << 32) / all);
        best = best < 0 || state->credit[i] > state->credit[best] ? i : best;
    }
    state->credit[best] -= (int64_t)1 << 32;
    state->taken[best]++;
    return best;
}

/* The state in front of the sample; the lock is held. */
static HsStatus reach(HsMixture *mixture, int64_t sample, State *state)
{
    const int64_t kept = sample / STRIDE;
    while ((int64_t)mixture->kept_count <= kept) {
        State next = mixture->kept[mixture->kept_count - 1];
        const int64_t first = ((int64_t)mixture->kept_count - 1) * STRIDE;
        HS_TRY(hs_array_grow(&mixture->kept, sizeof *mixture->kept, mixture->kept_count + 1, &mixture->kept_capacity));
        for (int64_t i = first; i < first + STRIDE; i++)
            (void)advance(mixture, i, &next);
        mixture->kept[mixture->kept_count++] = next;
    }
    int64_t at = kept * STRIDE;
    int from = -1; /* a state of this function's, which moves on */
    *state = mixture->kept[kept];
    for (int i = 0; i < RECENT; i++)
        if (mixture->recent[i].sample > at && mixture->recent[i].sample <= sample) {
            at = mixture->recent[i].sample;
            *state = mixture->recent[i].state;
            from = i;
        }
    for (; at < sample; at++)
        (void)advance(mixture, at, state);
    if (from < 0) {
        from = mixture->next_recent;
        mixture->next_recent = (mixture->next_recent + 1) % RECENT;
    }
    mixture->recent[from] = (struct Recent){ sample, *state };
    return HS_OK;
}

static HsStatus reach_locked(HsMixture *mixture, int64_t sample, State *state)
{
    pthread_mutex_lock(&mixture->lock);
    const HsStatus status = reach(mixture, sample, state);
    pthread_mutex_unlock(&mixture->lock);
    return status;
}

HsStatus hs_mixture_find(HsMixture *mixture, int64_t index, int *source, int64_t *within)
{
    State state;
    HS_TRY(reach_locked(mixture, index, &state));
    *source = advance(mixture, index, &state);
    *within = state.taken[*source] - 1;
    return HS_OK;
}

HsStatus hs_mixture_taken(HsMixture *mixture, int64_t index, int64_t *taken)
{
    State state;
    HS_TRY(reach_locked(mixture, index, &state));
    memcpy(taken, state.taken, (size_t)mixture->count * sizeof *taken);
    return HS_OK;
}

HsStatus hs_mixture_epoch(HsMixture *mixture, int64_t *samples)
{
    State state = { 0 };
    *samples = 0;
    if (mixture->exhausted != HS_EXHAUSTED_STOP) {
        for (int i = 0; i < mixture->count; i++)
            *samples += mixture->windows[i];
        return HS_OK;
    }
    for (;; ++*samples) {
        const int source = advance(mixture, *samples, &state);
        if (state.taken[source] > mixture->windows[source])
            return HS_OK;
    }
}
