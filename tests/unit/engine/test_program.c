/* SPDX-License-Identifier: MIT
 *
 * The memory plan: buffers that live together lie apart, nothing reads what is dead, recomputation changes no bit, and
 * what is planned is what is allocated.
 */
#include "tests/support/tiny_model.h"

#include <math.h>

#include "kernels/base/tolerance.h"
#include "runtime/engine/program_internal.h"

#define SHAPED(name, precision, ...)                                                                                 \
    {                                                                                                                \
        .family = "llama", .shape = (name), .mode = (precision), .layers = 3, .heads = 4, .kv_heads = 2, .width = 8, \
        .mlp_width = 12, .vocabulary = 13, .batch = 2, .length = 6, __VA_ARGS__                                      \
    }

static const TinySpec specs[] = {
    { .family = "gpt2",
      .mode = "fp32",
      .layers = 3,
      .heads = 2,
      .width = 8,
      .vocabulary = 13,
      .batch = 2,
      .length = 6,
      .bias = true,
      .tie_head = true,
      .dropout = 0.2 },
    { .family = "gpt2",
      .mode = "bf16",
      .layers = 3,
      .heads = 2,
      .width = 8,
      .vocabulary = 13,
      .batch = 2,
      .length = 6,
      .tie_head = true },
    { .family = "llama",
      .mode = "bf16",
      .layers = 3,
      .heads = 4,
      .kv_heads = 2,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 13,
      .batch = 2,
      .length = 6,
      .qk_norm = true,
      .qkv_bias = true,
      .dropout = 0.1 },
    { .family = "llama",
      .mode = "fp16",
      .layers = 3,
      .heads = 2,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 13,
      .batch = 2,
      .length = 6,
      .tie_head = true },
    SHAPED("gemma2", "bf16", .tie_head = true),
    SHAPED("gemma3", "bf16", .dropout = 0.1),
    SHAPED("olmo2", "bf16", .tie_head = false),
    SHAPED("olmo2", "fp32", .dropout = 0.1),
    SHAPED("granite", "fp16", .tie_head = true),
    SHAPED("nanochat", "bf16", .tie_head = false),
};
enum { SPEC_COUNT = sizeof specs / sizeof specs[0] };

/* All weight gradients, one after the other. */
static unsigned char *copy_gradients(const TinyModel *tiny, size_t *bytes)
{
    *bytes = tiny->model.gradients.capacity;
    unsigned char *copy = malloc(*bytes);
    cr_assert(copy);
    memcpy(copy, tiny->model.gradients.base, *bytes);
    return copy;
}

static void assert_lifetimes_cover(const HsProgram *program, int action, const int *bindings, int count)
{
    for (int i = 0; i < count; i++) {
        if (bindings[i] == HS_NONE)
            continue;
        const HsBuffer *buffer = &program->buffers[bindings[i]];
        cr_assert(buffer->first_action <= action && action <= buffer->last_action,
                  "action %d touches buffer %d, which lives %d..%d", action, bindings[i], buffer->first_action,
                  buffer->last_action);
    }
}

static void assert_sound(const HsProgram *program)
{
    for (int a = 0; a < program->action_count; a++) {
        const HsAction *action = &program->actions[a];
        assert_lifetimes_cover(program, a, action->inputs, HS_NODE_INPUTS);
        assert_lifetimes_cover(program, a, action->outputs, HS_NODE_OUTPUTS);
        assert_lifetimes_cover(program, a, action->saved, HS_NODE_SAVED);
        assert_lifetimes_cover(program, a, action->scratch, HS_NODE_SCRATCH);
        assert_lifetimes_cover(program, a, action->d_inputs, HS_NODE_INPUTS);
        assert_lifetimes_cover(program, a, action->d_outputs, HS_NODE_OUTPUTS);
        assert_lifetimes_cover(program, a, action->made, HS_NODE_MADE);
        assert_lifetimes_cover(program, a, action->taken, HS_NODE_MADE);
    }
    for (int i = 0; i < program->buffer_count; i++) {
        const HsBuffer *a = &program->buffers[i];
        cr_assert(a->offset % HS_ARENA_ALIGNMENT == 0 && a->offset + a->bytes <= program->activation_bytes);
        for (int j = 0; j < i; j++) {
            const HsBuffer *b = &program->buffers[j];
            bool together = a->first_action <= b->last_action && b->first_action <= a->last_action;
            bool overlap = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            cr_assert(!(together && overlap), "buffers %d and %d live together and overlap", i, j);
        }
    }
}

Test(plan, live_buffers_never_overlap)
{
    for (int s = 0; s < SPEC_COUNT; s++) {
        for (int policy = HS_RECOMPUTE_NONE; policy <= HS_RECOMPUTE_BLOCK; policy++) {
            TinyModel tiny;
            TinySpec spec = specs[s];
            spec.policy = (HsRecompute)policy;
            tiny_create(&tiny, spec);
            assert_sound(&tiny.train);
            assert_sound(&tiny.evaluate);
            tiny_destroy(&tiny);
        }
    }
}

/* The rule of program_offsets.c by its words alone: the largest first, each into the smallest gap between all that live
 * together with it; quadratic.  `offsets` of those not placed yet are SIZE_MAX. */
static size_t offset_by_rule(const HsProgram *program, int buffer, const size_t *offsets)
{
    const HsBuffer *own = &program->buffers[buffer];
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (;;) { /* the next gap begins where nothing live now reaches further */
        size_t next = SIZE_MAX;
        for (int i = 0; i < program->buffer_count; i++) {
            const HsBuffer *other = &program->buffers[i];
            const size_t other_end = offsets[i] + (other->bytes + 63) / 64 * 64;
            if (offsets[i] == SIZE_MAX || own->first_action > other->last_action ||
                other->first_action > own->last_action || other_end <= end)
                continue;
            if (offsets[i] <= end) {
                end = other_end;
                next = SIZE_MAX;
                i = -1; /* it may have uncovered, or covered, others */
                continue;
            }
            next = offsets[i] < next ? offsets[i] : next;
        }
        if (next == SIZE_MAX)
            return best != SIZE_MAX ? best : end;
        if (next - end >= (own->bytes + 63) / 64 * 64 && next - end < best_gap) {
            best_gap = next - end;
            best = end;
        }
        end = next;
    }
}

static void assert_placed_by_rule(const HsProgram *program)
{
    size_t *offsets = malloc((size_t)program->buffer_count * sizeof *offsets);
    cr_assert(offsets);
    memset(offsets, 0xff, (size_t)program->buffer_count * sizeof *offsets);
    for (int placed = 0; placed < program->buffer_count; placed++) {
        int next = HS_NONE;
        for (int i = 0; i < program->buffer_count; i++)
            if (offsets[i] == SIZE_MAX && (next == HS_NONE || program->buffers[i].bytes > program->buffers[next].bytes))
                next = i;
        offsets[next] = offset_by_rule(program, next, offsets);
        cr_assert_eq(offsets[next], program->buffers[next].offset, "buffer %d", next);
    }
    free(offsets);
}

Test(plan, offsets_follow_the_rule)
{
    for (int s = 0; s < SPEC_COUNT; s++) {
        for (int policy = HS_RECOMPUTE_NONE; policy <= HS_RECOMPUTE_BLOCK; policy++) {
            TinyModel tiny;
            TinySpec spec = specs[s];
            spec.policy = (HsRecompute)policy;
            spec.layers = 5;
            tiny_create(&tiny, spec);
            assert_placed_by_rule(&tiny.train);
            assert_placed_by_rule(&tiny.evaluate);
            tiny_destroy(&tiny);
        }
    }
}

/* Everything that is not alive after an action becomes NaN: a layer that reads beyond a lifetime cannot go unnoticed.
 */
static void run_poisoned(TinyModel *tiny, float scale)
{
    const HsProgram *program = &tiny->train;
    unsigned char *alive = malloc(program->activation_bytes);
    cr_assert(alive);
    HsExecution execution = {
        .training = true, .batch = program->batch, .sequence_length = program->sequence_length, .seed = 11, .step = 3
    };
    memset(program->activations.base, 0xff, program->activation_bytes);
    TINY_OK(
        hs_program_load_training(program, &tiny->context, tiny->tokens, tiny->targets, scale, &execution.target_rows));
    for (int a = 0; a < program->action_count; a++) {
        TINY_OK(hs_execute_action(program, &tiny->context, &program->actions[a], &execution));
        memset(alive, 0, program->activation_bytes);
        for (int i = 0; i < program->buffer_count; i++) {
            const HsBuffer *buffer = &program->buffers[i];
            if (buffer->first_action <= a && a < buffer->last_action)
                memset(alive + buffer->offset, 1, buffer->bytes);
        }
        for (size_t i = 0; i < program->activation_bytes; i++) {
            if (!alive[i])
                program->activations.base[i] = 0xff;
        }
    }
    free(alive);
}

Test(plan, nothing_reads_the_dead)
{
    for (int s = 0; s < SPEC_COUNT; s++) {
        for (int policy = HS_RECOMPUTE_NONE; policy <= HS_RECOMPUTE_BLOCK; policy++) {
            TinyModel tiny;
            TinySpec spec = specs[s];
            spec.policy = (HsRecompute)policy;
            tiny_create(&tiny, spec);
            size_t bytes;
            tiny_train(&tiny, 2.0f);
            unsigned char *plain = copy_gradients(&tiny, &bytes);
            tiny_clear_gradients(&tiny);
            run_poisoned(&tiny, 2.0f);
            cr_assert(memcmp(plain, tiny.model.gradients.base, bytes) == 0, "spec %d policy %d", s, policy);
            free(plain);
            tiny_destroy(&tiny);
        }
    }
}

Test(plan, recomputation_changes_no_bit)
{
    for (int s = 0; s < SPEC_COUNT; s++) {
        TinyModel kept;
        tiny_create(&kept, specs[s]);
        double loss = tiny_train(&kept, 3.0f);
        for (int policy = HS_RECOMPUTE_ATTENTION; policy <= HS_RECOMPUTE_BLOCK; policy++) {
            for (int every = 1; every <= 4; every++) {
                TinyModel again;
                TinySpec spec = specs[s];
                spec.policy = (HsRecompute)policy;
                spec.recompute_every = every;
                tiny_create(&again, spec);
                cr_assert(tiny_train(&again, 3.0f) == loss);
                cr_assert(
                    memcmp(kept.model.gradients.base, again.model.gradients.base, kept.model.gradients.capacity) == 0,
                    "spec %d policy %d every %d", s, policy, every);
                cr_assert(again.train.recompute_flops > 0);
                cr_assert(again.train.kept_bytes < kept.train.kept_bytes);
                cr_assert(again.train.forward_flops == kept.train.forward_flops);
                tiny_destroy(&again);
            }
        }
        tiny_destroy(&kept);
    }
}

Test(plan, block_policy_keeps_block_inputs_only)
{
    TinyModel tiny;
    TinySpec spec = specs[0];
    spec.policy = HS_RECOMPUTE_BLOCK;
    tiny_create(&tiny, spec);
    /* Each block's input and the last one's output in the residual's f32, the final norm's two statistics. */
    size_t stream = (size_t)(tiny.rows * spec.width) * sizeof(float);
    size_t expected = (size_t)(spec.layers + 1) * stream + 2 * (size_t)tiny.rows * sizeof(float);
    expected += (size_t)tiny.rows * sizeof(int32_t); /* tokens, for the embedding's backward */
    expected += sizeof(float);                       /* the gradient scale */
    cr_assert_eq(tiny.train.kept_bytes, expected, "%zu, expected %zu", tiny.train.kept_bytes, expected);
    tiny_destroy(&tiny);
}

Test(plan, planned_bytes_are_allocated_bytes)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[1]);
    const HsModel *model = &tiny.model;
    cr_assert_eq(tiny.train.activations.capacity, tiny.train.activation_bytes);
    size_t parameters = model->weights.capacity + model->gradients.capacity + model->packed.capacity;
    size_t plans = tiny.train.activations.capacity + tiny.train.workspace.capacity +
                   tiny.evaluate.activations.capacity + tiny.evaluate.workspace.capacity;
    cr_assert_eq(tiny.device.current_bytes, parameters + plans);
    size_t before = tiny.device.peak_bytes;
    tiny_train(&tiny, 1.0f);
    cr_assert_eq(tiny.device.peak_bytes, before, "a step allocated");
    tiny_destroy(&tiny);
    cr_assert_eq(tiny.device.current_bytes, 0);
}

Test(plan, evaluation_without_dropout_equals_training)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[1]);
    double loss = tiny_train(&tiny, 1.0f), evaluated = 0, sum = 0;
    float *rows = malloc((size_t)tiny.rows * sizeof *rows);
    cr_assert(rows);
    TINY_OK(hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &evaluated, rows));
    for (int64_t row = 0; row < tiny.rows; row++) {
        cr_assert(tiny.targets[row] >= 0 || rows[row] == 0.0f);
        sum += (double)rows[row];
    }
    cr_assert(evaluated == loss && sum == loss);
    free(rows);
    tiny_destroy(&tiny);
}

/* 4 micro-batches of 8 against one batch of 32.  Rows do not mix, and ref rounds each parameter's gradient once per
 * micro-batch, so the two differ by the roundings of at most 4 + 1 partial sums, each at most sum |g_m| in size. */
static void check_accumulation(const char *mode, bool gradients_in_16_bits)
{
    TinySpec spec = { .family = "gpt2",
                      .mode = mode,
                      .layers = 2,
                      .heads = 2,
                      .width = 8,
                      .vocabulary = 13,
                      .length = 4,
                      .bias = true,
                      .dropout = 0.25,
                      .head_chunk = 4096,
                      .gradients_in_16_bits = gradients_in_16_bits };
    TinyModel whole, parts;
    spec.batch = 32;
    tiny_create(&whole, spec);
    spec.batch = 8;
    tiny_create(&parts, spec);
    tiny_train(&whole, 1.0f);
    size_t count = parts.model.gradients.capacity; /* at least one byte an element */
    double *magnitude = calloc(count, sizeof *magnitude);
    cr_assert(magnitude);
    double loss = 0;
    for (int pass = 0; pass < 2; pass++) { /* 0: each micro-batch alone, for the magnitudes; 1: accumulated */
        tiny_clear_gradients(&parts);
        for (int64_t micro = 0; micro < 4; micro++) {
            int64_t offset = micro * parts.rows;
            if (pass == 0)
                tiny_clear_gradients(&parts);
            TINY_OK(hs_program_train(&parts.train, &parts.context, whole.tokens + offset, whole.targets + offset, 11, 3,
                                     offset, 1.0f, &loss));
            size_t at = 0;
            for (int p = 0; p < parts.model.param_count && pass == 0; p++) {
                const HsTensor *gradient = &parts.model.params[p].gradient;
                for (int64_t i = 0; i < hs_tensor_count(gradient); i++)
                    magnitude[at++] += fabs(hs_dtype_load(gradient->dtype, gradient->data, i));
            }
        }
    }
    size_t at = 0, differing = 0;
    for (int p = 0; p < parts.model.param_count; p++) {
        const HsTensor *sum = &parts.model.params[p].gradient, *one = &whole.model.params[p].gradient;
        for (int64_t i = 0; i < hs_tensor_count(sum); i++, at++) {
            double a = hs_dtype_load(sum->dtype, sum->data, i), b = hs_dtype_load(one->dtype, one->data, i);
            /* the magnitudes were rounded themselves: one more rounding on each side */
            double bound = hs_tolerance(5, 2, sum->dtype, sum->dtype, magnitude[at], b);
            cr_assert(fabs(a - b) <= bound, "%s: %g against %g, bound %g", parts.model.params[p].name, a, b, bound);
            differing += a != b;
        }
    }
    cr_assert(differing > 0, "the two would have to differ somewhere");
    free(magnitude);
    tiny_destroy(&whole);
    tiny_destroy(&parts);
}

Test(plan, accumulation_in_f32)
{
    check_accumulation("fp32", false);
}

Test(plan, accumulation_in_bf16)
{
    check_accumulation("bf16", true);
}

static const char *hunt(TinyModel *tiny, float scale, char where[128])
{
    TINY_OK(hs_program_find_nonfinite(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 0, scale, where,
                                      128));
    return where;
}

Test(plan, first_nonfinite_value_is_named)
{
    char where[128];
    TinyModel tiny;
    tiny_create(&tiny, specs[3]);
    cr_assert_str_eq(hunt(&tiny, 1.0f, where), "");

    /* A loss scale beyond fp16: the first gradient of all, the head's. */
    cr_assert_str_eq(hunt(&tiny, 1e9f, where), "gradient of final_norm.out (backward, head_loss)");

    /* An overflow in the middle of the forward pass: 60000 x 8 inputs of size one. */
    HsParam *gate_up = NULL;
    for (int p = 0; p < tiny.model.param_count; p++) {
        if (strstr(tiny.model.params[p].name, "layers.1.mlp.gate_up"))
            gate_up = &tiny.model.params[p];
    }
    cr_assert(gate_up);
    for (int64_t i = 0; i < hs_tensor_count(&gate_up->stored.values); i++)
        hs_dtype_store(HS_F16, gate_up->stored.values.data, i, i % 2 ? 60000 : -60000);
    cr_assert_str_eq(hunt(&tiny, 1.0f, where), "block.1.mlp.gate_up.pre (forward, linear)");

    hs_dtype_store(HS_F16, gate_up->stored.values.data, 3, NAN);
    cr_assert_str_eq(hunt(&tiny, 1.0f, where), "model.layers.1.mlp.gate_up_proj.weight (weight)");
    for (size_t i = 0; i < tiny.model.gradients.capacity; i++)
        cr_assert_eq(tiny.model.gradients.base[i], 0);
    tiny_destroy(&tiny);
}
