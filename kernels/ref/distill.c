/* SPDX-License-Identifier: MIT
 *
 * Distillation besides the cross-entropy: what is kept of a row, and both losses against a model's earlier outputs.
 *     top_logits     the K largest logits l and where they are (Buzzega et al. 2020 keep all of them)
 *     match_logits   a/K sum_k (l_k - z_k)^2,     d/dl_k = 2 a/K (l_k - z_k)                  (their eq. 6)
 *     distill        a sum_v q_v (log q_v - log p_v),   d/dl_v = a/t (p_v - q_v),   p = softmax(l/t), q = softmax(z/t)
 *                    (Li & Hoiem 2016, eq. 2 and 3)
 * Under a cap these are gradients with respect to l, and what is added to dlogits is that times dl/dx of the x that is
 * stored.
 */
#include "kernels/ref/ref.h"

/* Whether logit a at place i comes before logit b at place j. */
static bool comes_before(double a, int64_t i, double b, int64_t j)
{
    return a > b || (a == b && i < j);
}

HsStatus hs_ref_top_logits(HsContext *context, const HsTopLogitsArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1], kept = args->index.shape[1];
    int32_t *index = args->index.data;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        double last = INFINITY;
        int64_t last_at = -1;
        for (int64_t k = 0; k < kept; k++) {
            double best = 0.0;
            int64_t best_at = -1;
            for (int64_t v = 0; v < vocabulary; v++) {
                const double logit = hs_ref_load(&args->logits, n * vocabulary + v);
                if (!isnan(logit) && comes_before(last, last_at, logit, v) &&
                    (best_at < 0 || comes_before(logit, v, best, best_at))) {
                    best = logit;
                    best_at = v;
                }
            }
            hs_ref_store(&args->value, n * kept + k, hs_ref_cap_logit(best, args->cap)); /* the order is x's */
            index[n * kept + k] = (int32_t)best_at;
            if (best_at < 0) /* no number is left: nothing comes behind this place either */
                best = -INFINITY;
            last = best;
            last_at = best_at < 0 ? vocabulary : best_at;
        }
    }
    return HS_OK;
}

HsStatus hs_ref_match_logits(HsContext *context, const HsMatchLogitsArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1], kept = args->index.shape[1];
    const int32_t *targets = args->targets.data, *replayed = args->replayed.data, *index = args->index.data;
    const double share = (double)args->weight / (double)kept, scale = (double)*args->gradient_scale;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        double loss = 0.0;
        const int64_t row = n * vocabulary;
        const bool acts = replayed[n] != 0 && targets[n] >= 0;
        for (int64_t v = 0; acts && v < vocabulary; v++) {
            double gradient = (double)args->target_weight * hs_ref_load(&args->dlogits, row + v);
            for (int64_t k = n * kept; k < (n + 1) * kept; k++) {
                if (index[k] != v)
                    continue;
                const double x = hs_ref_load(&args->logits, row + v);
                const double distance = hs_ref_cap_logit(x, args->cap) - hs_ref_load(&args->value, k);
                loss += share * distance * distance;
                gradient += scale * 2.0 * share * distance * hs_ref_cap_slope(x, args->cap);
            }
            hs_ref_store(&args->dlogits, row + v, gradient);
        }
        hs_ref_store(&args->losses, n, loss);
    }
    return HS_OK;
}

/* A row of student or teacher, and how it is read. */
typedef struct Side {
    const HsTensor *logits;
    float cap;
    int64_t row, count;
    double temperature;
} Side;

static double logit_at(const Side *side, int64_t v)
{
    return hs_ref_cap_logit(hs_ref_load(side->logits, side->row + v), side->cap);
}

/* log sum_v exp(l_v / t) */
static double log_sum_exp(const Side *side)
{
    const double temperature = side->temperature;
    double maximum = -INFINITY, total = 0.0;
    for (int64_t v = 0; v < side->count; v++)
        maximum = fmax(maximum, logit_at(side, v));
    for (int64_t v = 0; v < side->count; v++)
        total += exp((logit_at(side, v) - maximum) / temperature);
    return maximum / temperature + log(total);
}

HsStatus hs_ref_distill(HsContext *context, const HsDistillArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1];
    const int32_t *targets = args->targets.data, *replayed = args->replayed.data;
    const double scale = (double)*args->gradient_scale;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        const int64_t row = n * vocabulary;
        const bool again = replayed && replayed[n] != 0;
        const HsTeaching *teaching = again ? &args->again : &args->fresh;
        const double t = (double)teaching->temperature, a = (double)teaching->weight;
        if (a == 0.0 && again)
            continue;
        if (a == 0.0) {
            hs_ref_store(&args->losses, n, 0.0);
            continue;
        }
        double loss = 0.0;
        const Side student = { &args->logits, args->cap, row, vocabulary, t };
        const Side teacher = { &args->teacher, args->teacher_cap, row, vocabulary, t };
        const double student_lse = log_sum_exp(&student), teacher_lse = log_sum_exp(&teacher);
        for (int64_t v = 0; targets[n] >= 0 && v < vocabulary; v++) {
            const double log_p = logit_at(&student, v) / t - student_lse;
            const double log_q = logit_at(&teacher, v) / t - teacher_lse;
            const double slope = hs_ref_cap_slope(hs_ref_load(&args->logits, row + v), args->cap);
            loss += a * exp(log_q) * (log_q - log_p);
            hs_ref_store(&args->dlogits, row + v,
                         (double)teaching->target_weight * hs_ref_load(&args->dlogits, row + v) +
                             scale * a / t * (exp(log_p) - exp(log_q)) * slope);
        }
        hs_ref_store(&args->losses, n, loss);
    }
    return HS_OK;
}
