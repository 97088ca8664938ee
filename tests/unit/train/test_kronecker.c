/* SPDX-License-Identifier: MIT
 *
 * ewc.curvature kronecker against its definition, transcribed in double.  A twin of the model runs the same passes and
 * shows what each layer reads and what gradient reaches it; from that come the factors, from the factors the pull and
 * the penalty; and the penalty's central differences are the pull once more.
 */
#include <math.h>

#include "kernels/base/tolerance.h"
#include "runtime/engine/program_internal.h"
#include "tests/support/fisher_bench.h"
#include "tests/support/strategy_settings.h"

enum { MOST = 48, TASKS = 2 };

/* Dense factors of one span, sums over rows; [rows, rows] and [columns, columns] with MOST as their stride. */
typedef struct Dense {
    double side[HS_FACTOR_USES][2][MOST * MOST];
} Dense;

typedef struct Truth {
    FisherBench *twin;
    HsFisher fisher; /* of the model under test */
    Dense sums[SPANS], merged[SPANS];
    double rows, count;
    int passes, restarts;
} Truth;

static int span_of(const FisherBench *bench, int param)
{
    for (int s = 0; s < bench->span_count; s++)
        if (bench->spans[s].parameter == param)
            return s;
    return -1;
}

static double at(const HsTensor *tensor, int64_t i)
{
    return hs_dtype_load(tensor->dtype, tensor->data, i);
}

/* Of scale x. */
static void add_outer(double *sum, float scale, const HsTensor *x)
{
    const int64_t width = x->shape[1];
    const double square = (double)scale * (double)scale;
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t i = 0; i < width; i++)
            for (int64_t j = 0; j < width; j++)
                sum[i * MOST + j] += square * at(x, n * width + i) * at(x, n * width + j);
}

/* dz = S (softmax - onehot), from hidden states, weights and the labels that were drawn; of logits with a factor and a
 * cap the gradient of hidden w^T. */
static void add_logits(Truth *truth, Dense *sums, const HsAttributes *head, const HsTensor *hidden,
                       const HsTensor *targets, const HsTensor *w)
{
    const double scale = (double)truth->fisher.loss_scale, factor = (double)head->logit_factor;
    const double cap = (double)head->logit_cap;
    for (int64_t n = 0; n < hidden->shape[0]; n++) {
        double z[V], slope[V], sum = 0;
        for (int v = 0; v < V; v++) {
            z[v] = 0;
            for (int64_t c = 0; c < hidden->shape[1]; c++)
                z[v] += factor * at(hidden, n * hidden->shape[1] + c) * at(w, v * w->shape[1] + c);
            slope[v] = cap > 0 ? pow(cosh(z[v] / cap), -2) : 1;
            z[v] = cap > 0 ? cap * tanh(z[v] / cap) : z[v];
            sum += exp(z[v]);
        }
        const int32_t target = ((const int32_t *)targets->data)[n];
        for (int v = 0; v < V && target >= 0; v++) {
            const double dz = factor * slope[v] * scale * (exp(z[v]) / sum - (v == target ? 1 : 0));
            sums->side[HS_FACTOR_PRODUCT][0][v * MOST + v] += dz * dz;
        }
    }
}

static HsStatus look(void *user, int index, bool *enough)
{
    Truth *truth = user;
    const HsProgram *program = &truth->twin->tiny.train;
    const HsAction *action = &program->actions[index];
    const HsNode *node = &program->model->nodes[action->node];
    const int64_t rows = program->batch * program->sequence_length;
    (void)enough;
    if (action->kind != HS_ACTION_BACKWARD && !node->layer->turns)
        return HS_OK;
    const HsTensor x = hs_program_tensor(program, action->inputs[0], rows);
    if (node->layer == &hs_layer_embedding) {
        const HsTensor dy = hs_program_tensor(program, action->d_outputs[0], rows);
        for (int p = 0; p < 2 && node->params[p] != HS_NONE; p++) {
            Dense *sums = &truth->sums[span_of(truth->twin, node->params[p])];
            for (int64_t n = 0; n < rows; n++) {
                const int64_t row = p == 0 ? ((const int32_t *)x.data)[n] : n % program->sequence_length;
                sums->side[HS_FACTOR_LOOKUP][0][row * MOST + row] += 1;
            }
            add_outer(sums->side[HS_FACTOR_LOOKUP][1], p == 0 ? node->attributes.embedding_factor : 1.0f, &dy);
        }
    } else if (node->layer == &hs_layer_linear) {
        Dense *sums = &truth->sums[span_of(truth->twin, node->params[0])];
        HsTensor dy = hs_program_tensor(program, action->scratch[0], rows);
        if (!hs_tensor_present(&dy))
            dy = hs_program_tensor(program, action->d_outputs[node->attributes.epilogue != HS_EPILOGUE_NONE], rows);
        add_outer(sums->side[HS_FACTOR_PRODUCT][0], 1.0f, &dy);
        add_outer(sums->side[HS_FACTOR_PRODUCT][1], 1.0f, &x);
    } else if (node->layer == &hs_layer_head_loss) {
        Dense *sums = &truth->sums[span_of(truth->twin, node->params[0])];
        const HsTensor targets = hs_program_tensor(program, action->inputs[1], rows);
        add_outer(sums->side[HS_FACTOR_PRODUCT][1], 1.0f, &x);
        add_logits(truth, sums, &node->attributes, &x, &targets,
                   &program->model->params[node->params[0]].stored.values);
    }
    return HS_OK;
}

/* The twin does what the source just did. */
static void follow_pass(Truth *truth)
{
    const HsFisher *fisher = &truth->fisher;
    TinyModel *twin = &truth->twin->tiny;
    const int64_t rows = twin->train.batch * T;
    for (int64_t offset = 0; offset < fisher->group * T; offset += rows) {
        const HsExecution execution = { .sample_labels = true,
                                        .batch = twin->train.batch,
                                        .sequence_length = T,
                                        .seed = fisher->label_seed,
                                        .step = (uint32_t)fisher->next - 1,
                                        .row_offset = offset };
        const HsTensor scale = hs_program_tensor(&twin->train, twin->train.scale_buffer, 1);
        TINY_OK(hs_program_load_inputs(&twin->train, &twin->context, fisher->tokens + offset, fisher->targets + offset,
                                       rows));
        *(float *)scale.data = fisher->loss_scale;
        TINY_OK(hs_program_run(&twin->train, &twin->context, &execution, look, truth));
        truth->passes++;
    }
}

static HsStatus next(void *user, HsFisherSample *sample)
{
    Truth *truth = user;
    HS_TRY(hs_fisher_next(&truth->fisher, sample));
    if (sample->restart) {
        memset(truth->sums, 0, sizeof truth->sums);
        truth->rows = truth->count = truth->passes = 0;
        truth->restarts++;
    } else if (!sample->end) {
        if (truth->twin)
            follow_pass(truth);
        truth->rows += sample->rows;
        truth->count += sample->count;
    }
    return HS_OK;
}

static HsContinualConfig kronecker_config(double lambda, double gamma, int64_t block)
{
    HsContinualConfig config = strategies_of("ewc", NULL);
    set_word(&config, "ewc", "curvature", "kronecker");
    set_word(&config, "ewc", "step", "auto");
    set_number(&config, "ewc", "lambda", lambda);
    set_number(&config, "ewc", "gamma", gamma);
    set_number(&config, "ewc", "block_size", (double)block);
    return config;
}

static HsContinual *protect(FisherBench *bench, const HsContinualConfig *config)
{
    HsContinual *continual = NULL;
    TINY_OK(hs_continual_create(config, &bench->tiny.context, bench->spans, bench->span_count, &continual));
    return continual;
}

/* Scratch of what runs outside the programs. */
static void give_workspace(FisherBench *bench, HsContinual *continual)
{
    HsContext dry = bench->tiny.context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    TINY_OK(hs_continual_dry_run(continual, &dry));
    bench->tiny.context.workspace_bytes = dry.workspace_needed;
    bench->tiny.context.workspace =
        dry.workspace_needed ? aligned_alloc(64, (dry.workspace_needed + 63) / 64 * 64) : NULL;
}

static void end_task(FisherBench *bench, HsContinual *continual, Truth *truth, int task, float loss_scale,
                     int64_t group)
{
    truth->fisher = fisher_make(bench, HS_FISHER_SAMPLED, 9, loss_scale);
    truth->fisher.task = (uint32_t)task;
    truth->fisher.group = group;
    truth->fisher.factors = hs_continual_factors(continual);
    truth->rows = truth->count = truth->passes = truth->restarts = 0;
    memset(truth->sums, 0, sizeof truth->sums);
    TINY_OK(hs_fisher_init(&truth->fisher));
    HsFisherSource source = { .user = truth, .next = next };
    TINY_OK(hs_continual_after_task(continual, &bench->tiny.context, task, &source));
    hs_fisher_deinit(&truth->fisher);
}

static bool is_blocked(int64_t block, int64_t i, int64_t j)
{
    return i / block == j / block;
}

/* Merging by its definition, and blocks cut out of whole matrices. */
static void merge(Truth *truth, int task, double gamma, int64_t block)
{
    const double scale = 1 / (double)truth->fisher.loss_scale;
    for (int s = 0; s < truth->twin->span_count; s++) {
        const HsSpan *span = &truth->twin->spans[s];
        for (int use = 0; use < HS_FACTOR_USES; use++)
            for (int side = 0; side < 2; side++) {
                const bool vocabulary = side == 0 && (use == HS_FACTOR_LOOKUP || span->uses & HS_SPAN_MAKES_LOGITS);
                const bool mean = (use == HS_FACTOR_PRODUCT) == (side == 1);
                for (int64_t i = 0; i < MOST; i++)
                    for (int64_t j = 0; j < MOST; j++) {
                        const double sum = truth->sums[s].side[use][side][i * MOST + j];
                        double *merged = &truth->merged[s].side[use][side][i * MOST + j];
                        if (!is_blocked(vocabulary ? 1 : block, i, j))
                            continue;
                        *merged = mean ? (task * *merged + sum / truth->rows) / (task + 1)
                                       : gamma * *merged + sum * scale * scale / truth->count;
                    }
            }
    }
}

static double distance(const FisherBench *bench, const double *anchor, int s, int64_t i)
{
    const HsTensor *weight = &bench->spans[s].weight;
    return at(weight, i) - anchor[i];
}

/* sum over uses  (left D right)[r, c] */
static double exact_pull(const Truth *truth, const FisherBench *bench, const double *anchor, int s, int64_t r,
                         int64_t c, double *size)
{
    const int64_t rows = bench->spans[s].weight.shape[0], columns = bench->spans[s].weight.shape[1];
    double pull = 0;
    *size = 0;
    for (int use = 0; use < HS_FACTOR_USES; use++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                const double term = truth->merged[s].side[use][0][r * MOST + i] *
                                    distance(bench, anchor, s, i * columns + j) *
                                    truth->merged[s].side[use][1][j * MOST + c];
                pull += term;
                *size += fabs(term);
            }
    return pull;
}

/* Roundings of a factor: each pass adds once, and merging rounds a few times; of a pull two products of up to MOST terms
 * on top of two factors, and a difference. */
static double pull_bound(const Truth *truth, double size)
{
    return hs_tolerance(2 * (truth->passes * TASKS + 8) + 2 * MOST + 4, 0, HS_F32, HS_F32, size, size);
}

/* The same small steps in both models. */
static void move(FisherBench *bench, int step)
{
    const HsRng rng = { .seed = 123, .step = (uint32_t)step };
    uint64_t draw = 0;
    for (int s = 0; s < bench->span_count; s++) {
        const HsTensor *weight = &bench->spans[s].weight;
        for (int64_t i = 0; i < hs_tensor_count(weight); i++)
            hs_dtype_store(weight->dtype, weight->data, i,
                           at(weight, i) + 0.1 * (double)hs_rng_uniform(hs_rng_draw(&rng, draw++).word[0]) - 0.05);
    }
}

static double *copy_parameters(const FisherBench *bench)
{
    double *copy = doubles(bench->elements), *next_value = copy;
    for (int s = 0; s < bench->span_count; s++)
        for (int64_t i = 0; i < hs_tensor_count(&bench->spans[s].weight); i++)
            *next_value++ = at(&bench->spans[s].weight, i);
    return copy;
}

static double penalty_of(FisherBench *bench, HsContinual *continual)
{
    double value;
    TINY_OK(hs_continual_penalty(continual, &bench->tiny.context, &value));
    return value;
}

/* The gradient that the update rule is given, without its scale. */
static double given_pull(const HsSpan *span, int64_t i)
{
    const HsProtection *protection = &span->protection;
    double pull = 0;
    if (hs_tensor_present(&protection->pull))
        pull += at(&protection->pull, i);
    if (hs_tensor_present(&protection->anchor))
        pull += at(&protection->importance, i) * (at(&span->weight, i) - at(&protection->anchor, i));
    return (double)protection->strength * pull;
}

/* Central differences of the penalty: a quadratic, so that differences have no error but rounding, which is that of all
 * its terms: the value's own bound over the step. */
static void expect_slopes(FisherBench *bench, HsContinual *continual)
{
    const double h = 0x1p-6;
    TINY_OK(hs_continual_before_update(continual, &bench->tiny.context));
    double *given = doubles(bench->elements);
    for (int64_t s = 0, n = 0; s < bench->span_count; s++)
        for (int64_t i = 0; i < hs_tensor_count(&bench->spans[s].weight); i++)
            given[n++] = given_pull(&bench->spans[s], i);
    const double level = penalty_of(bench, continual);
    for (int64_t s = 0, n = 0; s < bench->span_count; s++)
        for (int64_t i = 0; i < hs_tensor_count(&bench->spans[s].weight); i++, n++) {
            if (n % 7 != 0) /* some of them */
                continue;
            const HsTensor *weight = &bench->spans[s].weight;
            const double p = at(weight, i);
            hs_dtype_store(weight->dtype, weight->data, i, p + h);
            const double up = at(weight, i), above = penalty_of(bench, continual);
            hs_dtype_store(weight->dtype, weight->data, i, p - h);
            const double down = at(weight, i), below = penalty_of(bench, continual);
            hs_dtype_store(weight->dtype, weight->data, i, p);
            /* up and down are rounded, so not exactly around p: by at most a rounding of p, times the curvature */
            const double curvature = fabs(above + below - 2 * level) / (h * h);
            const double bound = hs_tolerance(4 * MOST, 0, HS_F32, HS_F32, 4 * fmax(above, below), 0) / h +
                                 hs_tolerance(4 * MOST, 0, HS_F32, HS_F32, fabs(given[n]) + curvature * fabs(p), 0);
            cr_assert(fabs((above - below) / (up - down) - given[n]) <= bound,
                      "%s %lld: %.9g, by differences %.9g, bound %g", bench->spans[s].name, (long long)i, given[n],
                      (above - below) / (up - down), bound);
        }
    free(given);
}

static void scale_ends(HsModel *model)
{
    for (int n = 0; n < model->node_count; n++)
        model->nodes[n].attributes.embedding_factor = 2.5f;
    model->nodes[model->loss_node].attributes.logit_factor = 1.5f;
    model->nodes[model->loss_node].attributes.logit_cap = 1.25f;
}

/* scaled: embeddings and logits have factors, and logits a cap. */
static void expect_definition_of(TinySpec spec, int64_t block, double gamma, int excluded, bool scaled)
{
    static Truth truth;
    static FisherBench bench, twin;
    fisher_bench_create(&bench, spec, 6);
    fisher_bench_create(&twin, spec, 6);
    if (scaled) {
        scale_ends(&bench.tiny.model);
        scale_ends(&twin.tiny.model);
    }
    memset(&truth, 0, sizeof truth);
    truth.twin = &twin;
    if (excluded >= 0)
        bench.spans[excluded].excluded = twin.spans[excluded].excluded = true;
    const HsContinualConfig config = kronecker_config(3, gamma, block);
    HsContinual *continual = protect(&bench, &config);
    give_workspace(&bench, continual);
    cr_expect_eq(penalty_of(&bench, continual), 0.0);
    for (int task = 0; task < TASKS; task++) {
        end_task(&bench, continual, &truth, task, 1, spec.batch);
        cr_assert_gt(truth.passes, 1);
        merge(&truth, task, gamma, block);
        double *anchor = copy_parameters(&bench), *own = anchor;
        cr_expect_eq(penalty_of(&bench, continual), 0.0, "at the anchor");
        move(&bench, task);
        move(&twin, task);
        TINY_OK(hs_continual_before_update(continual, &bench.tiny.context));
        double value = 0, value_size = 0;
        int factored = 0;
        for (int s = 0; s < bench.span_count; own += hs_tensor_count(&bench.spans[s++].weight)) {
            const HsSpan *span = &bench.spans[s];
            const HsTensor *pull = &span->protection.pull;
            cr_assert_eq(hs_tensor_present(pull), span->uses != 0 && s != excluded, "%s", span->name);
            cr_assert(!(hs_tensor_present(pull) && hs_tensor_present(&span->protection.anchor)), "%s", span->name);
            for (int64_t i = 0; hs_tensor_present(pull) && i < hs_tensor_count(&span->weight); i++) {
                double size;
                const double exact =
                    exact_pull(&truth, &bench, own, s, i / span->weight.shape[1], i % span->weight.shape[1], &size);
                const double bound = pull_bound(&truth, size);
                cr_assert(fabs(at(pull, i) - exact) <= bound, "task %d, %s %lld: %.9g, exactly %.9g, bound %g", task,
                          span->name, (long long)i, at(pull, i), exact, bound);
                value += exact * distance(&bench, own, s, i);
                value_size += size * fabs(distance(&bench, own, s, i));
                factored++;
            }
            for (int64_t i = 0; hs_tensor_present(&span->protection.anchor) && i < hs_tensor_count(&span->weight); i++)
                value += at(&span->protection.importance, i) * pow(distance(&bench, own, s, i), 2);
        }
        cr_assert_gt(factored, 0);
        const double got = penalty_of(&bench, continual), bound = 1.5 * pull_bound(&truth, value_size + fabs(value));
        cr_assert(fabs(got - 1.5 * value) <= bound, "value %.9g, exactly %.9g, bound %g", got, 1.5 * value, bound);
        free(anchor);
    }
    if (spec.width <= 8)
        expect_slopes(&bench, continual);
    hs_continual_destroy(continual);
    free(bench.tiny.context.workspace);
    tiny_destroy(&bench.tiny);
    tiny_destroy(&twin.tiny);
}

static void expect_definition(TinySpec spec, int64_t block, double gamma, int excluded)
{
    expect_definition_of(spec, block, gamma, excluded, false);
}

static TinySpec spec_of(const char *family, const char *mode, bool tied)
{
    TinySpec spec = fisher_base;
    spec.family = family;
    spec.mode = mode;
    spec.tie_head = tied;
    if (strcmp(family, "llama") == 0) {
        spec.bias = false;
        spec.kv_heads = 1;
        spec.mlp_width = 12;
    }
    return spec;
}

Test(kronecker, gpt2_tied)
{
    expect_definition(spec_of("gpt2", "fp32", true), 256, 1, -1);
}

Test(kronecker, gpt2_untied_in_blocks)
{
    expect_definition(spec_of("gpt2", "fp32", false), 3, 0.5, -1);
}

Test(kronecker, llama_tied_in_blocks)
{
    expect_definition(spec_of("llama", "fp32", true), 5, 0.25, -1);
}

Test(kronecker, with_factors_and_a_cap)
{
    expect_definition_of(spec_of("gpt2", "fp32", true), 256, 1, -1, true);
    expect_definition_of(spec_of("llama", "fp32", false), 5, 0.5, -1, true);
}

Test(kronecker, llama_untied_with_biases)
{
    TinySpec spec = spec_of("llama", "fp32", false);
    spec.qkv_bias = true;
    expect_definition(spec, 8, 1, -1);
}

Test(kronecker, an_excluded_matrix)
{
    expect_definition(spec_of("llama", "fp32", true), 16, 1, 2);
}

/* --- the same factors, whatever the passes look like --- */

typedef struct Tensors {
    float values[1 << 14];
    int count;
    int starts[8 * SPANS]; /* of each factor */
    int factors;
} Tensors;

static HsStatus keep_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    (void)user, (void)name, (void)value, (void)most;
    return HS_OK;
}

static HsStatus keep_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    Tensors *kept = user;
    (void)span;
    if (strcmp(family, "ewc.anchor") == 0 || strcmp(family, "ewc.importance") == 0)
        return HS_OK;
    kept->starts[kept->factors++] = kept->count;
    cr_assert(kept->count + hs_tensor_count(tensor) <= (int64_t)(sizeof kept->values / sizeof *kept->values));
    for (int64_t i = 0; i < hs_tensor_count(tensor); i++)
        kept->values[kept->count++] = (float)at(tensor, i);
    return HS_OK;
}

/* *scale: the loss scale that the last pass had. */
static void factors_of_spec(TinySpec spec, int64_t group, float *scale, Tensors *kept, int *restarts)
{
    static Truth truth;
    static FisherBench bench;
    fisher_bench_create(&bench, spec, 4);
    memset(&truth, 0, sizeof truth);
    const HsContinualConfig config = kronecker_config(3, 1, 6);
    HsContinual *continual = protect(&bench, &config);
    give_workspace(&bench, continual);
    end_task(&bench, continual, &truth, 0, *scale, group);
    kept->count = kept->factors = 0;
    const HsStateVisitor visitor = { kept, keep_integer, skip_real, keep_tensor, keep_integer };
    TINY_OK(hs_continual_visit(continual, &visitor));
    *scale = truth.fisher.loss_scale;
    *restarts = truth.restarts;
    hs_continual_destroy(continual);
    free(bench.tiny.context.workspace);
    tiny_destroy(&bench.tiny);
}

Test(kronecker, recomputation_changes_no_bit)
{
    static Tensors plain, again;
    const HsRecompute policies[] = { HS_RECOMPUTE_ATTENTION, HS_RECOMPUTE_MLP, HS_RECOMPUTE_BLOCK };
    TinySpec spec = spec_of("llama", "fp32", true);
    float scale = 1;
    int restarts;
    factors_of_spec(spec, B, &scale, &plain, &restarts);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        spec.policy = policies[i];
        factors_of_spec(spec, B, &scale, &again, &restarts);
        cr_assert_eq(again.count, plain.count);
        cr_assert_eq(memcmp(again.values, plain.values, (size_t)plain.count * sizeof *plain.values), 0, "policy %zu",
                     i);
    }
}

/* One sequence at a time or two: products are summed in other pieces.  The sizes of the terms of an element sum to at
 * most sqrt(d_i d_j), d the diagonal (Cauchy & Schwarz), and so to at most the factor's largest element. */
Test(kronecker, micro_batches)
{
    static Tensors whole, halves;
    TinySpec spec = spec_of("gpt2", "fp32", false);
    float scale = 1;
    int restarts;
    factors_of_spec(spec, B, &scale, &whole, &restarts);
    spec.batch = 1;
    factors_of_spec(spec, B, &scale, &halves, &restarts);
    cr_assert_eq(whole.count, halves.count);
    cr_assert_gt(whole.factors, 8);
    for (int f = 0; f < whole.factors; f++) {
        const int end = f + 1 < whole.factors ? whole.starts[f + 1] : whole.count;
        double largest = 0;
        for (int i = whole.starts[f]; i < end; i++)
            largest = fmax(largest, fabs((double)whole.values[i]));
        cr_assert_gt(largest, 0.0);
        for (int i = whole.starts[f]; i < end; i++)
            cr_assert(fabs((double)whole.values[i] - (double)halves.values[i]) <=
                          hs_tolerance(2 * 4 + 8, 0, HS_F32, HS_F32, largest, 0),
                      "factor %d, %d: %.9g and %.9g", f, i, (double)whole.values[i], (double)halves.values[i]);
    }
}

/* An overflow of fp16 leaves what it spoilt behind: all begins anew, and the bits are those of the scale that held. */
Test(kronecker, a_loss_scale_that_overflows)
{
    static Tensors fallen, held;
    float scale = 0x1p24f;
    int restarts;
    const TinySpec spec = spec_of("gpt2", "fp16", true);
    factors_of_spec(spec, B, &scale, &fallen, &restarts);
    cr_assert_gt(restarts, 0);
    cr_assert_lt(scale, 0x1p24f);
    factors_of_spec(spec, B, &scale, &held, &restarts);
    cr_assert_eq(restarts, 0);
    cr_assert_eq(memcmp(fallen.values, held.values, (size_t)held.count * sizeof *held.values), 0);
    float other = scale / 4; /* a power of two: other exponents, but where fp16 runs out of them */
    static Tensors small;
    factors_of_spec(spec, B, &other, &small, &restarts);
    for (int i = 0; i < held.count; i++)
        cr_assert(isfinite(held.values[i]) && isfinite(small.values[i]));
}
