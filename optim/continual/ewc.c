/* SPDX-License-Identifier: MIT
 *
 * Elastic weight consolidation (Kirkpatrick et al. 2017, eq. 3): importance is the diagonal Fisher information,
 *     F_task = 1/count sum over groups of tokens  weight (multiplier grad)^2,
 * made comparable between tasks and models by one factor a task (a tensor, for l2):
 *     none 1;  max 1 / max F;  mean 1 / mean F;  l2 1 / |F of the tensor|
 *
 *   online    F = gamma F + F_task, one anchor at the latest task's end (Schwarz et al. 2018)
 *   separate  a quadratic for each task, held as their sum, which is a quadratic again (Huszar 2018): F = sum F_t, the
 *             anchor their weighted mean, and a constant (`offset`), so that value and gradient are those of the sum
 *
 * curvature kronecker: a matrix has Kronecker factors in place of a diagonal (kronecker.c); vectors keep theirs.
 *
 * Memory: online squares gather where the anchor is: the old one is not needed any more once a task is over, and the
 * new one is written over them element by element.  Separate merges old and new, and needs a place for each.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "optim/continual/internal.h"

typedef enum Normalize { NORMALIZE_NONE, NORMALIZE_MAX, NORMALIZE_MEAN, NORMALIZE_L2 } Normalize;

static const struct {
    const char *word;
    Normalize normalize;
} normalizations[] = {
    { "true", NORMALIZE_MAX }, { "max", NORMALIZE_MAX },    { "mean", NORMALIZE_MEAN },
    { "l2", NORMALIZE_L2 },    { "false", NORMALIZE_NONE }, { "none", NORMALIZE_NONE },
};

/* Of an automatic strength.  1 would weigh the earlier tasks' quadratics as their losses, each task like the new one
 * (Laplace's approximation; Huszar 2018).  A diagonal leaves out how parameters act together, along which a task moves
 * far more than one parameter at a time, so it holds too little.  */
static const double NATURAL_STRENGTH = 7.2;
/* Factors know how the parameters of a matrix act together. */
static const double NATURAL_KRONECKER_STRENGTH = 4.7;

/* What tasks that have more or less in common than most ask for differs by less. */
static const double FAR_OFF = 30.0;

typedef struct EwcState {
    HsPenalty penalty;   /* first: the penalties' functions take it for the whole */
    HsTensorSet fresh;   /* separate only */
    HsTensorSet squares; /* kronecker only: a list of the anchor's tensors, without those of matrices */
    HsTensorSet all;     /* squares of all spans, while they are measured and others keep some of them; else absent */
    bool separate;
    Normalize normalize;
    float gamma;
} EwcState;

static bool is_separate(const HsContinualConfig *config)
{
    return hs_continual_word_is(config, "ewc", "mode", "separate");
}

static bool is_automatic(const HsContinualConfig *config)
{
    return isnan(hs_continual_number(config, "ewc", "lambda"));
}

/* What keeps curvature auto from factors; NULL: nothing does. */
static const char *against_factors(const HsContinualConfig *config)
{
    if (!is_automatic(config))
        return "ewc.lambda is a number, which means a diagonal's";
    if (hs_continual_replays(config))
        return "replay protects as well";
    if (is_separate(config))
        return "ewc.mode is separate";
    if (hs_continual_word_is(config, "ewc", "step", "proximal") || config->optimizer == HS_OPTIMIZER_SGD)
        return "the step is proximal";
    if (!hs_continual_word_is(config, "ewc", "estimator", "sampled") &&
        !hs_continual_word_is(config, "ewc", "estimator", "empirical"))
        return "the estimator has no gradients of single tokens";
    return NULL;
}

static bool is_kronecker(const HsContinualConfig *config)
{
    if (hs_continual_word_is(config, "ewc", "curvature", "auto"))
        return against_factors(config) == NULL;
    return hs_continual_word_is(config, "ewc", "curvature", "kronecker");
}

static int64_t block_size(const HsContinualConfig *config)
{
    return (int64_t)hs_continual_number(config, "ewc", "block_size");
}

/* The factors' memory, in place of the matrices' importance. */
static size_t ewc_further_bytes(const HsContinualConfig *config, const HsSpan *spans, int count)
{
    if (!is_kronecker(config))
        return 0;
    size_t bytes = hs_kronecker_bytes(spans, count, block_size(config));
    for (int i = 0; i < count; i++)
        if (spans[i].uses == 0 && !spans[i].excluded)
            bytes += hs_tensor_set_span_bytes(&spans[i]);
    return bytes;
}

static int ewc_tensors(const HsContinualConfig *config)
{
    return is_separate(config) ? 3 : is_kronecker(config) ? 1 : 2;
}

static Normalize normalization_of(const HsContinualConfig *config)
{
    for (size_t i = 0; i < sizeof normalizations / sizeof *normalizations; i++)
        if (hs_continual_word_is(config, "ewc", "normalize", normalizations[i].word))
            return normalizations[i].normalize;
    return is_automatic(config) || is_kronecker(config) ? NORMALIZE_NONE : NORMALIZE_MAX;
}

static bool ewc_needs_fisher(const HsContinualConfig *config)
{
    (void)config;
    return true;
}

/* What a number means with normalize is known only when a task has ended: on small models the maximum swings by a factor of 16. */
static void ewc_describe(const HsContinualConfig *config)
{
    if (hs_continual_word_is(config, "ewc", "curvature", "auto") && is_automatic(config)) {
        const char *reason = against_factors(config);
        if (reason)
            hs_info("ewc.curvature auto: diagonal, because %s", reason);
        else
            hs_info("ewc.curvature auto: kronecker, in blocks of at most %lld rows", (long long)block_size(config));
    }
    if (!is_automatic(config) && normalization_of(config) == NORMALIZE_MAX)
        hs_info(
            "ewc.lambda %g with normalize: true is a strength relative to the largest element of each task's Fisher "
            "information, which says little about the others; `ewc: {lambda: auto}`, without normalize, chooses one",
            hs_continual_number(config, "ewc", "lambda"));
}

static double natural_strength(const EwcState *ewc)
{
    return ewc->penalty.kronecker ? NATURAL_KRONECKER_STRENGTH : NATURAL_STRENGTH;
}

static bool has_squares(const HsSpan *span)
{
    return !hs_kronecker_serves(span);
}

/* Squares gather where the anchor is, of spans with diagonal curvature only. */
static HsStatus list_squares(const HsContinual *continual, EwcState *ewc)
{
    ewc->squares.tensors = calloc((size_t)continual->span_count + 1, sizeof *ewc->squares.tensors);
    if (!ewc->squares.tensors)
        return hs_fail(HS_ENOMEM, "ewc: no memory to list %d tensors", continual->span_count);
    ewc->squares.category = HS_MEMORY_PENALTY;
    ewc->squares.has = has_squares;
    for (int i = 0; i < continual->span_count; i++)
        if (!hs_kronecker_serves(&continual->spans[i]))
            ewc->squares.tensors[i] = ewc->penalty.anchor.tensors[i];
    return HS_OK;
}

static HsStatus ewc_create(HsContinual *continual, void *state)
{
    static const HsPenaltyNames names = { .strategy = "ewc", .anchor = "ewc.anchor", .importance = "ewc.importance" };
    const HsContinualConfig *config = &continual->config;
    EwcState *ewc = state;
    ewc->separate = is_separate(config);
    ewc->gamma = (float)hs_continual_number(config, "ewc", "gamma");
    ewc->normalize = normalization_of(config);
    const HsProtection settings = { .strength = (float)hs_continual_number(config, "ewc", "lambda"),
                                    .proximal = hs_continual_word_is(config, "ewc", "step", "proximal") };
    assert((!isnan(settings.strength) || ewc->normalize == NORMALIZE_NONE) && "auto is in the Fisher's own units");
    ewc->penalty.proximal_descent = hs_continual_word_is(config, "ewc", "step", "auto");
    if (is_kronecker(config)) {
        assert(!ewc->separate && !settings.proximal && "refused with the configuration");
        ewc->penalty.proximal_descent = false;
        HS_TRY(hs_kronecker_create(continual, block_size(config), (double)ewc->gamma, &ewc->penalty.kronecker));
    }
    HS_TRY(hs_penalty_create(continual, &ewc->penalty, &names, settings));
    if (ewc->penalty.kronecker)
        HS_TRY(list_squares(continual, ewc));
    return ewc->separate ? hs_tensor_set_create(continual, HS_MEMORY_PENALTY, "ewc.fresh", &ewc->fresh) : HS_OK;
}

static void ewc_destroy(HsContinual *continual, void *state)
{
    EwcState *ewc = state;
    hs_tensor_set_destroy(continual, &ewc->fresh);
    free(ewc->squares.tensors);
    hs_penalty_destroy(continual, &ewc->penalty);
}

static HsStatus ewc_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsSpan *span = &continual->spans[i];
        const HsTensor wide = hs_span_wide(span);
        HsTensor fresh = wide; /* merging wants separate memory for it; a dry run touches none */
        fresh.data = span->gradient.data;
        const HsSquareAccumulateArgs square = { .grad = span->gradient, .accumulator = wide };
        const HsConsolidateArgs consolidate = { .fresh = fresh,
                                                .importance = wide,
                                                .anchor = wide,
                                                .parameter = hs_span_parameter(span),
                                                .merge = true,
                                                .offset = continual->device_values };
        HS_TRY(hs_op_square_accumulate(dry, &square));
        HS_TRY(hs_op_consolidate(dry, &consolidate));
    }
    HS_TRY(hs_continual_dry_statistics(continual, dry));
    return hs_penalty_dry_run(continual, state, dry);
}

/* Squares of one group's gradients, which are of all spans; excluded ones only have theirs cleared, as the next group
 * adds to them. */
static HsStatus add_sample(HsContinual *continual, HsContext *context, const HsTensorSet *fresh,
                           const HsFisherSample *sample)
{
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->share.all_count; i++) {
        const HsTensor *gradient = &continual->share.all[i].gradient;
        if (!hs_tensor_present(&fresh->tensors[i])) {
            HS_TRY(device->fill_zero(device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
            continue;
        }
        const HsSquareAccumulateArgs args = { .grad = *gradient,
                                              .accumulator = fresh->tensors[i],
                                              .multiplier = sample->multiplier,
                                              .weight = sample->weight };
        HsStatus status = hs_op_square_accumulate(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "Fisher, tensor %s", continual->share.all[i].name);
    }
    return HS_OK;
}

/* What a source's groups amount to. */
typedef struct Gathered {
    double count;      /* the denominator */
    double rows;       /* of the factors */
    double multiplier; /* of every sample's gradients, where there are factors */
} Gathered;

static HsStatus clear(HsContinual *continual, const EwcState *ewc, HsContext *context, const HsTensorSet *fresh)
{
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->share.all_count; i++) {
        const HsTensor *tensor = &fresh->tensors[i];
        if (hs_tensor_present(tensor))
            HS_TRY(device->fill_zero(device, context->stream, tensor->data, hs_tensor_bytes(tensor)));
    }
    return ewc->penalty.kronecker ? hs_kronecker_clear(continual, ewc->penalty.kronecker, context) : HS_OK;
}

static HsStatus sum_part(HsFisherSource *source, Gathered *gathered)
{
    double numbers[] = { gathered->count, gathered->rows };
    HS_TRY(source->sum_part(source->user, numbers, 2));
    gathered->count = numbers[0];
    gathered->rows = numbers[1];
    return HS_OK;
}

/* All of the source's groups: the sums of squares in `fresh`. */
static HsStatus gather(HsContinual *continual, const EwcState *ewc, HsContext *context, const HsTensorSet *fresh,
                       HsFisherSource *source, Gathered *gathered)
{
    *gathered = (Gathered){ .multiplier = 1 };
    HS_TRY(clear(continual, ewc, context, fresh));
    for (;;) {
        HsFisherSample sample = { 0 };
        HS_TRY(source->next(source->user, &sample));
        if (sample.end)
            return HS_OK;
        if (sample.part) {
            HS_TRY(sum_part(source, gathered));
            continue;
        }
        if (sample.restart) {
            *gathered = (Gathered){ .multiplier = 1 };
            HS_TRY(clear(continual, ewc, context, fresh));
            continue;
        }
        HS_TRY(add_sample(continual, context, fresh, &sample));
        gathered->count += sample.count;
        gathered->rows += sample.rows;
        gathered->multiplier = (double)sample.multiplier;
    }
}

/* What the sums are multiplied by.  Where they are divided by their own size the denominator cancels. */
static double scale_of(Normalize normalize, double count, const HsTensorSetStats *stats, double sum_squares)
{
    switch (normalize) {
    case NORMALIZE_NONE:
        return 1.0 / count;
    case NORMALIZE_MAX:
        return 1.0 / stats->maximum;
    case NORMALIZE_MEAN:
        return (double)stats->elements / stats->sum;
    case NORMALIZE_L2: /* a tensor that had next to no gradient stays without importance */
        return sqrt(sum_squares) < (double)FLT_MIN ? 0.0 : 1.0 / sqrt(sum_squares);
    }
    assert(false && "an unknown normalization");
    return 0.0;
}

/* A penalty that is zero everywhere, or a factor that f32 cannot hold, is found here and not in a forgotten task. */
static HsStatus check_fisher(int task, double count, const HsTensorSetStats *stats, bool factored)
{
    if (!(count > 0) || !isfinite(count))
        return hs_fail(HS_ENUMERIC,
                       "ewc: after task %d (the first is 0) no token was counted for the Fisher information: raise "
                       "ewc.fisher_samples, or look for a task with all targets ignored",
                       task);
    /* The mean's factor is the largest of a whole Fisher's: where f32 holds it, it holds the others.  With factors the
     * matrices count too, once they are merged. */
    if (!factored && !isfinite((float)((double)stats->elements / stats->sum)))
        return hs_fail(HS_ENUMERIC,
                       "ewc: after task %d (the first is 0) the Fisher information is 0 in every parameter, so that "
                       "nothing would be protected: the gradients of its samples are 0 (likely underflow: set "
                       "precision.loss_scale dynamic, or precision.mode bf16), or its targets are all ignored",
                       task);
    return HS_OK;
}

/* Of the whole parameter that own span i is of, as hs_tensor_set_measure left them. */
static double sum_squares_of(const HsContinual *continual, int span)
{
    const HsSpanShare *share = &continual->share;
    const double *sum_squares = continual->host_values + 2 * share->all_count;
    double sum = 0;
    for (int i = 0; i < share->all_count; i++)
        sum += share->all[i].parameter == continual->spans[span].parameter ? sum_squares[i] : 0.0;
    return sum;
}

static HsStatus consolidate(HsContinual *continual, const EwcState *ewc, HsContext *context, const HsTensorSet *fresh,
                            double count, const HsTensorSetStats *stats)
{
    double *offset = continual->device_values; /* what each tensor adds, one after another */
    if (ewc->separate)
        HS_TRY(continual->device->fill_zero(continual->device, context->stream, offset,
                                            (size_t)continual->span_count * sizeof *offset));
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&fresh->tensors[i]))
            continue;
        const double scale = scale_of(ewc->normalize, count, stats, sum_squares_of(continual, i));
        const HsConsolidateArgs args = { .fresh = fresh->tensors[i],
                                         .importance = ewc->penalty.importance.tensors[i],
                                         .anchor = ewc->penalty.anchor.tensors[i],
                                         .parameter = hs_span_parameter(&continual->spans[i]),
                                         .decay = ewc->gamma,
                                         .scale = (float)scale,
                                         .merge = ewc->separate,
                                         .offset = ewc->separate ? offset++ : NULL };
        HsStatus status = hs_op_consolidate(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "ewc, tensor %s", continual->spans[i].name);
    }
    return HS_OK;
}

/* A number that is far from the one auto would choose is said to be, in the unit that both can be compared in. */
static void warn_strength(const HsContinual *continual, const EwcState *ewc, double count,
                          const HsTensorSetStats *stats)
{
    /* Once is enough; of tensors that each have their own unit there is nothing to say. */
    if (ewc->penalty.automatic || ewc->penalty.anchored || ewc->normalize == NORMALIZE_L2)
        return;
    const double chosen = hs_penalty_natural(continual, &ewc->penalty, natural_strength(ewc));
    const double natural = (double)ewc->penalty.settings.strength * count * scale_of(ewc->normalize, count, stats, 0);
    const double ratio = natural / chosen;
    if (ratio > FAR_OFF || ratio < 1 / FAR_OFF)
        hs_warn("ewc.lambda is %.3g times the strength that is best for most streams: `ewc: {lambda: auto}`, without "
                "normalize, chooses that",
                ratio);
}

/* Matrices: factors and anchor. */
static HsStatus merge_factors(HsContinual *continual, const EwcState *ewc, HsContext *context, const Gathered *gathered)
{
    HS_TRY(hs_kronecker_merge(continual, ewc->penalty.kronecker, context, gathered->rows, gathered->count,
                              gathered->multiplier));
    for (int i = 0; i < continual->span_count; i++)
        if (hs_kronecker_serves(&continual->spans[i])) {
            const HsConvertArgs copy = { .x = hs_span_parameter(&continual->spans[i]),
                                         .y = ewc->penalty.anchor.tensors[i] };
            HS_TRY(hs_op_convert(context, &copy));
        }
    return HS_OK;
}

static HsStatus ewc_before_update(HsContinual *continual, void *state, HsContext *context)
{
    EwcState *ewc = state;
    if (!ewc->penalty.kronecker || !ewc->penalty.anchored)
        return HS_OK;
    return hs_kronecker_pull(continual, ewc->penalty.kronecker, context, &ewc->penalty.anchor);
}

static const HsSpanFactors *ewc_factors(const void *state)
{
    const EwcState *ewc = state;
    return ewc->penalty.kronecker ? hs_kronecker_fresh(ewc->penalty.kronecker) : NULL;
}

/* Where the sums of this process's spans are to be. */
static const HsTensorSet *fresh_of(const EwcState *ewc)
{
    return ewc->separate ? &ewc->fresh : ewc->penalty.kronecker ? &ewc->squares : &ewc->penalty.anchor;
}

/* Where they are while they are measured, of all spans. */
static const HsTensorSet *gathering_of(const EwcState *ewc)
{
    return ewc->all.tensors ? &ewc->all : fresh_of(ewc);
}

static bool is_protected(const HsSpan *span)
{
    return !span->excluded;
}

static HsStatus ewc_begin_fisher(HsContinual *continual, void *state)
{
    EwcState *ewc = state;
    const HsSpanShare *share = &continual->share;
    if (!share->comm)
        return HS_OK;
    return hs_tensor_set_create_over(continual, share->all, share->all_count, HS_MEMORY_STATISTICS, "ewc.squares",
                                     is_protected, &ewc->all);
}

static void ewc_end_fisher(HsContinual *continual, void *state)
{
    EwcState *ewc = state;
    hs_tensor_set_destroy(continual, &ewc->all);
}

/* What is this process's, to its place. */
static HsStatus take_own(HsContinual *continual, const EwcState *ewc, HsContext *context)
{
    const HsTensorSet *fresh = fresh_of(ewc);
    for (int i = 0; ewc->all.tensors && i < continual->span_count; i++)
        if (hs_tensor_present(&fresh->tensors[i])) {
            const HsConvertArgs copy = { .x = ewc->all.tensors[continual->share.first + i], .y = fresh->tensors[i] };
            HS_TRY(hs_op_convert(context, &copy));
        }
    return HS_OK;
}

static int ewc_fisher_sums(const HsContinual *continual, const void *state, HsTensor *tensors)
{
    const EwcState *ewc = state;
    const HsSpanFactors *factors = ewc_factors(state);
    int count = 0;
    for (int i = 0; i < continual->share.all_count; i++) {
        const HsTensor *squares = &gathering_of(ewc)->tensors[i];
        if (hs_tensor_present(squares))
            tensors[count++] = *squares;
        for (int use = 0; factors && use < HS_FACTOR_USES; use++) {
            const HsFactorPair *pair = &factors[i].use[use];
            if (hs_factor_present(&pair->left))
                tensors[count++] = pair->left.values;
            if (hs_factor_present(&pair->right))
                tensors[count++] = pair->right.values;
        }
    }
    return count;
}

static HsStatus ewc_after_task(HsContinual *continual, void *state, HsContext *context, int task,
                               HsFisherSource *source)
{
    assert(source && "ewc needs a source of gradients");
    EwcState *ewc = state;
    HsKronecker *kronecker = ewc->penalty.kronecker;
    const HsTensorSet *fresh = fresh_of(ewc);

    Gathered gathered;
    HsTensorSetStats stats;
    HS_TRY(gather(continual, ewc, context, gathering_of(ewc), source, &gathered));
    HS_TRY(take_own(continual, ewc, context));
    const double count = gathered.count;
    HsStatus status = hs_tensor_set_measure(continual, context, fresh, &stats);
    if (status != HS_OK)
        return hs_error_prefix(status, "ewc, Fisher information of task %d (the first is 0)", task);
    HS_TRY(check_fisher(task, count, &stats, kronecker != NULL));
    if (kronecker)
        HS_TRY(merge_factors(continual, ewc, context, &gathered));

    HS_TRY(consolidate(continual, ewc, context, fresh, count, &stats));
    if (ewc->separate) {
        HS_TRY(hs_continual_fetch_values(continual, context, fresh->tensors, 1));
        for (int i = 0; i < continual->share.all_count; i++)
            ewc->penalty.offset += continual->host_values[i];
    }
    hs_penalty_choose(continual, &ewc->penalty, natural_strength(ewc), 1.0);
    warn_strength(continual, ewc, count, &stats);
    return hs_penalty_anchored(continual, &ewc->penalty, context, task);
}

const HsStrategy hs_strategy_ewc = {
    .name = "ewc",
    .doc = "elastic weight consolidation: a quadratic penalty weighted by the Fisher information (Kirkpatrick et al. "
           "2017; online: Schwarz et al. 2018)",
    .role = HS_ROLE_PENALIZES,
    .section = "ewc",
    .needs_fisher = ewc_needs_fisher,
    .strength_key = "ewc.lambda",
    .proximal_key = "ewc.step",
    .describe = ewc_describe,
    .tensors_per_parameter = ewc_tensors,
    .further_bytes = ewc_further_bytes,
    .state_bytes = sizeof(EwcState),
    .create = ewc_create,
    .destroy = ewc_destroy,
    .dry_run = ewc_dry_run,
    .before_update = ewc_before_update,
    .after_task = ewc_after_task,
    .whole_matrices = is_kronecker,
    .by_element = "ewc.curvature: diagonal",
    .fisher_sums = ewc_fisher_sums,
    .begin_fisher = ewc_begin_fisher,
    .end_fisher = ewc_end_fisher,
    .visit = hs_penalty_visit,
    .anchored = hs_penalty_acts,
    .is_automatic = hs_penalty_is_automatic,
    .meet_task = hs_penalty_meet_task,
    .penalty = hs_penalty_value,
    .importance = hs_penalty_importance,
    .factors = ewc_factors,
};
