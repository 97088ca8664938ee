/* SPDX-License-Identifier: MIT
 *
 * The survey of a backward pass against gradients that ordinary training hands over.  The witness: every layer's
 * backward is wrapped, and counts the gradients that it is given, which are complete by then, or nothing could use
 * them.
 */
#include "tests/support/tiny_model.h"

#include "runtime/engine/engine.h"
#include "runtime/engine/gradient_histograms.h"
#include "runtime/model/layer.h"

static const TinySpec specs[] = {
    { .family = "gpt2",
      .mode = "fp32",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 7,
      .batch = 2,
      .length = 5,
      .bias = true,
      .tie_head = true,
      .dropout = 0.2 },
    { .family = "gpt2",
      .mode = "fp16",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 7,
      .batch = 2,
      .length = 5,
      .bias = true,
      .policy = HS_RECOMPUTE_BLOCK },
    { .family = "llama",
      .mode = "bf16",
      .layers = 2,
      .heads = 2,
      .kv_heads = 1,
      .head_dim = 4,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 7,
      .batch = 2,
      .length = 5,
      .qk_norm = true,
      .policy = HS_RECOMPUTE_MLP },
    { .family = "llama",
      .mode = "fp16",
      .layers = 2,
      .heads = 2,
      .kv_heads = 1,
      .head_dim = 4,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 7,
      .batch = 2,
      .length = 5,
      .tie_head = true,
      .dropout = 0.1,
      .gradients_in_16_bits = true },
};
enum { SPECS = sizeof specs / sizeof specs[0] };
#define SCALE 64.0f

static HsSurvey survey_of(TinyModel *tiny, float scale)
{
    HsSurvey survey;
    TINY_OK(hs_program_gradient_histograms(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 0, scale,
                                           &survey));
    return survey;
}

static bool same_histogram(const HsHistogram *a, const HsHistogram *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- the witness ---- */

enum { STEPS_MOST = 64 };
static struct {
    const HsModel *model;
    const HsLayer *layers[STEPS_MOST];
    HsLayer wrapped[STEPS_MOST];
    HsHistogram seen;
} witness;

static HsStatus watched_backward(const HsLayerCall *call, const HsNode *node)
{
    const HsLayer *layer = witness.layers[node - witness.model->nodes];
    HsStatus status = HS_OK;
    for (int i = HS_NODE_OUTPUTS - 1; i >= 0; i--) { /* a sum that the layer carries is whole behind its backward */
        const HsTensor *gradient = &call->d_outputs[i];
        if (i == 0 && layer->carries_sum)
            status = layer->backward(call, node);
        if (hs_tensor_present(gradient))
            hs_histogram_add(&witness.seen, gradient->dtype, gradient->data, hs_tensor_count(gradient));
    }
    return layer->carries_sum ? status : layer->backward(call, node);
}

static void watch(TinyModel *tiny)
{
    HsModel *model = &tiny->model;
    cr_assert_leq(model->node_count, STEPS_MOST);
    memset(&witness, 0, sizeof witness);
    witness.model = model;
    for (int s = 0; s < model->node_count; s++) {
        witness.layers[s] = model->nodes[s].layer;
        witness.wrapped[s] = *model->nodes[s].layer;
        witness.wrapped[s].backward = watched_backward;
        model->nodes[s].layer = &witness.wrapped[s];
    }
}

static void look_away(TinyModel *tiny)
{
    for (int s = 0; s < tiny->model.node_count; s++)
        tiny->model.nodes[s].layer = witness.layers[s];
}

Test(survey, histograms_are_those_of_training)
{
    for (int s = 0; s < SPECS; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        watch(&tiny);
        tiny_train(&tiny, SCALE);
        look_away(&tiny);
        HsHistogram weights = { 0 };
        for (int p = 0; p < tiny.model.param_count; p++) {
            const HsTensor *gradient = &tiny.model.params[p].gradient;
            hs_histogram_add(&weights, gradient->dtype, gradient->data, hs_tensor_count(gradient));
        }
        HsSurvey survey = survey_of(&tiny, SCALE);
        cr_expect(same_histogram(&survey.weights, &weights), "weights, model %d", s);
        cr_expect(same_histogram(&survey.activations, &witness.seen), "activations, model %d: %ld elements, not %ld", s,
                  (long)survey.activations.elements, (long)witness.seen.elements);
        cr_expect_lt(survey.activations.zeros + survey.activations.nonfinite, survey.activations.elements / 2);
        cr_expect_eq(survey.activation_format, tiny.model.precision.activation);
        hs_survey_deinit(&survey);
        tiny_destroy(&tiny);
    }
}

/* ---- what is counted where ---- */

Test(survey, every_gradient_counts_once)
{
    for (int s = 0; s < SPECS; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        int64_t activations = 0, weights = 0;
        for (int i = 0; i < tiny.model.slot_count; i++)
            activations += tiny.model.slots[i].needs_gradient ? tiny.rows * tiny.model.slots[i].columns : 0;
        for (int p = 0; p < tiny.model.param_count; p++)
            weights += hs_tensor_count(&tiny.model.params[p].gradient);
        HsSurvey survey = survey_of(&tiny, SCALE);
        HsHistogram sum_activations = { 0 }, sum_weights = { 0 };
        for (int row = 0; row < survey.row_count; row++) {
            hs_histogram_merge(&sum_activations, &survey.rows[row].activations);
            hs_histogram_merge(&sum_weights, &survey.rows[row].weights);
        }
        cr_expect_eq(survey.activations.elements, activations, "model %d", s);
        cr_expect_eq(survey.weights.elements, weights, "model %d", s);
        cr_expect(same_histogram(&survey.activations, &sum_activations));
        cr_expect(same_histogram(&survey.weights, &sum_weights));
        hs_survey_deinit(&survey);
        tiny_destroy(&tiny);
    }
}

/* Without dropout, C wide, an attention branch reads x [C], its norm [C], qkv [3 C] and the heads [C]; an MLP branch x,
 * its norm, and the value before the GELU [4 C]; the final norm x, the head the normed x. */
Test(survey, rows_follow_the_model)
{
    enum { C = 8, V = 7, T = 5, ROWS = 10 };
    static const struct {
        const char *name;
        int64_t activations, weights;
    } expected[] = {
        { "embedding", 0, V * C + T * C },
        { "block 0, attention", 6 * C, 2 * C + 3 * C * C + 3 * C + C * C + C },
        { "block 0, mlp", 6 * C, 2 * C + 8 * C * C + 4 * C + C },
        { "block 1, attention", 6 * C, 2 * C + 3 * C * C + 3 * C + C * C + C },
        { "block 1, mlp", 6 * C, 2 * C + 8 * C * C + 4 * C + C },
        { "final norm", C, 2 * C },
        { "head", C, V * C },
    };
    for (int tied = 0; tied < 2; tied++) {
        TinyModel tiny;
        TinySpec spec = specs[1];
        spec.tie_head = tied;
        tiny_create(&tiny, spec);
        HsSurvey survey = survey_of(&tiny, SCALE);
        cr_assert_eq(survey.row_count, 7);
        for (int i = 0; i < 7; i++) {
            const HsSurveyRow *row = &survey.rows[i];
            cr_expect_str_eq(row->name, expected[i].name);
            cr_expect_eq(row->activations.elements, ROWS * expected[i].activations, "%s", row->name);
            cr_expect_eq(row->weights.elements, i == 6 && tied ? 0 : expected[i].weights, "%s", row->name);
        }
        hs_survey_deinit(&survey);
        tiny_destroy(&tiny);
    }
}

/* A loss scale of a power of two moves fp32's gradients by whole binades. */
Test(survey, counts_gradients_as_stored)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[0]);
    HsSurvey plain = survey_of(&tiny, 1.0f), scaled = survey_of(&tiny, 0x1p10f);
    cr_expect_eq(scaled.activations.zeros, plain.activations.zeros);
    for (int group = 0; group + 10 < HS_HISTOGRAM_GROUPS; group++) {
        cr_expect_eq(scaled.activations.groups[group + 10], plain.activations.groups[group]);
        cr_expect_eq(scaled.weights.groups[group + 10], plain.weights.groups[group]);
    }
    hs_survey_deinit(&plain);
    hs_survey_deinit(&scaled);
    tiny_destroy(&tiny);
}

Test(survey, changes_no_parameter_and_leaves_gradients_clear)
{
    for (int s = 0; s < SPECS; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        const HsArena *weights = &tiny.model.weights;
        unsigned char *before = malloc(weights->capacity);
        cr_assert_not_null(before);
        memcpy(before, weights->base, weights->capacity);
        for (int p = 0; p < tiny.model.param_count; p++) { /* what was there does not count */
            const HsTensor *gradient = &tiny.model.params[p].gradient;
            memset(gradient->data, 1, hs_tensor_bytes(gradient));
        }
        HsSurvey dirty = survey_of(&tiny, SCALE), again = survey_of(&tiny, SCALE);
        cr_expect(same_histogram(&dirty.weights, &again.weights));
        cr_expect_eq(memcmp(before, weights->base, weights->capacity), 0);
        for (size_t i = 0; i < tiny.model.gradients.capacity; i++)
            cr_assert_eq(tiny.model.gradients.base[i], 0);
        hs_survey_deinit(&dirty);
        hs_survey_deinit(&again);
        free(before);
        tiny_destroy(&tiny);
    }
}

/* Beyond fp16's range the gradients are not finite, and are counted so. */
Test(survey, overflow_is_seen)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[1]);
    HsSurvey survey = survey_of(&tiny, 1e9f);
    cr_expect_gt(survey.activations.nonfinite, 0);
    cr_expect_gt(hs_histogram_loss(&survey.activations, HS_F16, 0).overflow, 0.1);
    hs_survey_deinit(&survey);
    tiny_destroy(&tiny);
}

/* ---- devices ---- */

/* The survey of specs[index] on a device, with the tokens that `tiny` has. */
static HsSurvey survey_on(const char *device, const TinyModel *tiny, int index)
{
    const TinySpec *spec = &specs[index];
    const HsEngineOptions options = { .device = device, .threads = 1 };
    HsEngine engine;
    HsConfig config;
    HsModel model;
    HsProgram program;
    HsSurvey survey;
    tiny_config(spec, &config);
    TINY_OK(hs_engine_init(&engine, &options));
    TINY_OK(hs_model_create(&config, hs_precision_find(spec->mode), spec->vocabulary, &model));
    TINY_OK(hs_program_create(&model, &engine.context, spec->batch, spec->length, true, spec->policy, 1, &program));
    TINY_OK(hs_model_commit(&model, &engine.context, true));
    TINY_OK(hs_program_commit(&program, &engine.context));
    TINY_OK(hs_model_initialize(&model, &engine.context, 4242, 0.3, NULL, 0));
    TINY_OK(hs_program_gradient_histograms(&program, &engine.context, tiny->tokens, tiny->targets, 11, 3, 0, SCALE,
                                           &survey));
    hs_program_destroy(&program);
    hs_model_destroy(&model);
    hs_engine_deinit(&engine);
    return survey;
}

/* Numbers of one histogram that have no counterpart in the same binade of the other; all that lies more than `binades`
 * below the largest counts as one. */
static int64_t moved(const HsHistogram *a, const HsHistogram *b, int binades)
{
    int top = HS_HISTOGRAM_GROUPS - 1;
    while (top > binades && a->groups[top] == 0)
        top--;
    int64_t sum = 0, low_a = a->zeros, low_b = b->zeros;
    for (int group = 0; group < HS_HISTOGRAM_GROUPS; group++) {
        bool low = group < top - binades;
        low_a += low ? a->groups[group] : 0;
        low_b += low ? b->groups[group] : 0;
        sum += low ? 0 : llabs(a->groups[group] - b->groups[group]);
    }
    cr_expect_lt(low_a, a->elements / 2, "too little is left to compare");
    return (sum + llabs(low_a - low_b)) / 2;
}

/* Other orders of sums move a number to another binade only if a power of two lies between.  A hundred roundings of
 * random signs are 10 u of the largest terms (u = 2^-24), so that gradients which should vanish (of a key's bias, of
 * the scores where only one position is seen) are noise of that size: compared is what lies above, 16 binades.  A
 * number d binades below the largest is off by 10 u 2^d, relative, and crosses a limit on either side with a chance of
 * 2 / ln 2 times that; where numbers are spread evenly about zero, a share of 2^-d is there: 29 u in each binade.  In
 * fp16 as little lies above the noise as below: there only elements are compared. */
Test(survey, devices_agree)
{
    enum { BINADES = 16 };
    const double share = 29 * BINADES * 0x1p-24;
    for (int s = 0; s < 2; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        HsSurvey cpu = survey_on("cpu", &tiny, s), emu = survey_on("emu", &tiny, s);
        cr_assert_eq(cpu.row_count, emu.row_count);
        for (int i = 0; i < cpu.row_count; i++) {
            const HsSurveyRow *a = &cpu.rows[i], *b = &emu.rows[i];
            cr_expect_str_eq(a->name, b->name);
            cr_expect_eq(a->activations.elements, b->activations.elements, "%s", a->name);
            cr_expect_eq(a->weights.elements, b->weights.elements, "%s", a->name);
        }
        cr_expect_eq(emu.activations.nonfinite + emu.weights.nonfinite, 0);
        cr_expect_eq(cpu.activation_format, emu.activation_format);
        if (s == 0) {
            const int64_t activations = moved(&cpu.activations, &emu.activations, BINADES);
            const int64_t weights = moved(&cpu.weights, &emu.weights, BINADES);
            cr_expect_leq((double)activations, 1 + share * (double)cpu.activations.elements,
                          "activations: %ld moved of %ld", (long)activations, (long)cpu.activations.elements);
            cr_expect_leq((double)weights, 1 + share * (double)cpu.weights.elements, "weights: %ld moved of %ld",
                          (long)weights, (long)cpu.weights.elements);
        }
        hs_survey_deinit(&cpu);
        hs_survey_deinit(&emu);
        tiny_destroy(&tiny);
    }
}

/* ---- giving up ---- */

static int questions_left;

static bool enough_asked(void)
{
    return questions_left-- == 0;
}

/* A request to stop a pass is seen between any two actions, whatever the pass is for. */
Test(survey, every_walk_over_the_actions_can_be_given_up)
{
    TinyModel tiny;
    char where[192];
    tiny_create(&tiny, specs[0]);
    const HsProgram *program = &tiny.train;
    tiny.context.stop_asked = enough_asked;
    for (int after = 0; after <= program->action_count; after++) {
        const HsStatus expected = after < program->action_count ? HS_EINTERRUPTED : HS_OK;
        HsSurvey survey = { 0 };
        questions_left = after;
        cr_expect_eq(hs_program_gradient_histograms(&tiny.train, &tiny.context, tiny.tokens, tiny.targets, 11, 3, 0,
                                                    SCALE, &survey),
                     expected, "survey, after %d", after);
        if (expected == HS_OK)
            hs_survey_deinit(&survey);
        questions_left = after;
        cr_expect_eq(hs_program_find_nonfinite(&tiny.train, &tiny.context, tiny.tokens, tiny.targets, 11, 3, 0, SCALE,
                                               where, sizeof where),
                     expected, "search, after %d", after);
    }
    tiny_destroy(&tiny);
}
