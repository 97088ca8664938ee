/* SPDX-License-Identifier: MIT
 *
 * Small models for tests: a description of a few numbers becomes a committed model with its plans and a fixed batch.
 * Functions are in the header so that tests of lower layers do not link the runtime.
 */
#ifndef HS_TESTS_SUPPORT_TINY_MODEL_H
#define HS_TESTS_SUPPORT_TINY_MODEL_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program.h"
#include "runtime/model/fuse.h"
#include "tests/support/differences.h"
#include "tests/support/tiny_shapes.h"

typedef struct TinySpec {
    const char *family, *mode;
    const char *shape; /* tiny_shapes.h; NULL: the family's own */
    int64_t layers, heads, kv_heads, head_dim, width, mlp_width, vocabulary, batch, length, head_chunk;
    bool bias, qkv_bias, qk_norm, tie_head;
    double dropout, z_loss, init_std;
    HsRecompute policy;
    int64_t recompute_every;
    const HsBackend *backend; /* NULL: ref */
    int threads;
    bool gradients_in_16_bits;
    HsStringList freeze;
    bool head_work; /* the head expects it, a teacher's included */
    int64_t kept;   /* how many logits of each row are kept then */
    bool unfused;
    bool pads;        /* rows end in padding */
    bool turns_codes; /* as a backend that reads codes across; with delayed scaling a history of a few steps */
    struct {
        int64_t rank; /* 0: no adapters */
        double alpha, dropout;
        bool stabilized;
        HsStringList targets, also_train;
    } adapter;
} TinySpec;

typedef struct TinyModel {
    TinySpec spec;
    HsConfig config;
    HsDevice device;
    HsContext context;
    HsModel model;
    HsProgram train, evaluate;
    int64_t rows;
    int32_t *tokens, *targets; /* [rows]; every fifth target is ignored */
    int64_t counted;
} TinyModel;

#define TINY_OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

static inline void tiny_config(const TinySpec *spec, HsConfig *config)
{
    memset(config, 0, sizeof *config);
    config->training.max_length = spec->length;
    config->model.family = (char *)(uintptr_t)spec->family;
    config->model.layers = spec->layers;
    config->model.heads = spec->heads;
    config->model.kv_heads = spec->kv_heads;
    config->model.head_dim = spec->head_dim;
    config->model.width = spec->width;
    config->model.mlp_width = spec->mlp_width;
    config->model.bias = spec->bias;
    config->model.qkv_bias = spec->qkv_bias;
    config->model.qk_norm = spec->qk_norm;
    config->model.tie_head = spec->tie_head;
    config->model.dropout = spec->dropout;
    config->model.norm_epsilon = 1e-5;
    config->model.rope_theta = 10000;
    config->model.rope_share = 1;
    config->model.rope_scaling = "none";
    config->model.qk_norm_span = "head";
    config->model.norms = "before";
    config->model.norm_weights = true;
    config->model.activation = "auto";
    config->model.init = "normal";
    config->model.value_gate = 3;
    config->model.embedding_factor = config->model.branch_factor = config->model.logit_factor = 1;
    if (spec->shape)
        tiny_shape(spec->shape, config);
    config->model.z_loss = spec->z_loss;
    config->train.freeze = spec->freeze;
    config->adapter.kind = spec->adapter.rank > 0 ? "lora" : "none";
    config->adapter.base = "unchanged";
    config->adapter.rank = spec->adapter.rank;
    config->adapter.alpha = spec->adapter.alpha;
    config->adapter.dropout = spec->adapter.dropout;
    config->adapter.rank_stabilized = spec->adapter.stabilized;
    config->adapter.targets = spec->adapter.targets;
    config->adapter.also_train = spec->adapter.also_train;
    config->data.packing = spec->pads ? "none" : "stream";
    config->memory.head_chunk = spec->head_chunk ? spec->head_chunk : 5;
}

/* Move gains and biases off their symmetric initial values, so that a test sees what they do. */
static inline void tiny_perturb_vectors(TinyModel *tiny)
{
    HsRng rng = { .seed = 77, .site = 9 };
    for (int p = 0; p < tiny->model.param_count; p++) {
        HsParam *param = &tiny->model.params[p];
        if (param->rank == 2)
            continue;
        rng.step = (uint32_t)p;
        for (int64_t i = 0; i < hs_tensor_count(&param->stored.values); i++) {
            double old = hs_dtype_load(param->stored.values.dtype, param->stored.values.data, i);
            double shift = 0.4 * (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 0.2;
            hs_dtype_store(param->stored.values.dtype, param->stored.values.data, i, old + shift);
        }
    }
}

static inline void tiny_create(TinyModel *tiny, TinySpec spec)
{
    memset(tiny, 0, sizeof *tiny);
    tiny->spec = spec;
    tiny_config(&spec, &tiny->config);
    TINY_OK(hs_device_host_init(&tiny->device));
    tiny->context = (HsContext){ .backend = spec.backend ? spec.backend : hs_backend_ref(),
                                 .device = &tiny->device,
                                 .threads = spec.threads ? spec.threads : 1 };
    HsPrecision precision = *hs_precision_find(spec.mode);
    if (spec.gradients_in_16_bits)
        precision.gradient = precision.weight;
    precision.scaling.turns_codes = spec.turns_codes;
    precision.scaling.history = precision.scaling.delayed ? 3 : 0;
    TINY_OK((spec.unfused ? hs_model_create_unfused : hs_model_create)(&tiny->config, &precision, spec.vocabulary,
                                                                       &tiny->model));
    if (spec.head_work)
        hs_model_expect_head_work(&tiny->model, spec.kept, true);
    int64_t every = spec.recompute_every ? spec.recompute_every : 1;
    TINY_OK(hs_program_create(&tiny->model, &tiny->context, spec.batch, spec.length, true, spec.policy, every,
                              &tiny->train));
    TINY_OK(hs_program_create(&tiny->model, &tiny->context, spec.batch, spec.length, false, HS_RECOMPUTE_NONE, 1,
                              &tiny->evaluate));
    TINY_OK(hs_model_commit(&tiny->model, &tiny->context, true));
    TINY_OK(hs_program_commit(&tiny->train, &tiny->context));
    TINY_OK(hs_program_commit(&tiny->evaluate, &tiny->context));
    TINY_OK(hs_model_initialize(&tiny->model, &tiny->context, 4242, spec.init_std > 0 ? spec.init_std : 0.3, NULL, 0));
    tiny_perturb_vectors(tiny);

    tiny->rows = spec.batch * spec.length;
    tiny->tokens = malloc((size_t)tiny->rows * sizeof *tiny->tokens);
    tiny->targets = malloc((size_t)tiny->rows * sizeof *tiny->targets);
    cr_assert(tiny->tokens && tiny->targets);
    HsRng rng = { .seed = 5 };
    for (int64_t row = 0; row < tiny->rows; row++) {
        HsPhilox bits = hs_rng_draw(&rng, (uint64_t)row);
        tiny->tokens[row] = (int32_t)(bits.word[0] % (uint32_t)spec.vocabulary);
        tiny->targets[row] = row % 5 == 3 ? -1 : (int32_t)(bits.word[1] % (uint32_t)spec.vocabulary);
        tiny->counted += tiny->targets[row] >= 0;
    }
}

static inline void tiny_destroy(TinyModel *tiny)
{
    hs_program_destroy(&tiny->train);
    hs_program_destroy(&tiny->evaluate);
    hs_model_destroy(&tiny->model);
    free(tiny->tokens);
    free(tiny->targets);
}

static inline void tiny_clear_gradients(TinyModel *tiny)
{
    for (int p = 0; p < tiny->model.param_count; p++) {
        HsTensor *gradient = &tiny->model.params[p].gradient;
        if (hs_tensor_present(gradient)) /* not frozen */
            memset(gradient->data, 0, hs_tensor_bytes(gradient));
    }
}

/* Some sixteen elements of a parameter's gradient, in double, against central differences of `loss`; rounding: of one loss.
 * The check must be able to fail: gradients are there, and far above their tolerance. */
static inline void tiny_check_gradient(double (*loss)(void *), void *user, const HsParam *param, const double *analytic,
                                       double rounding)
{
    enum { SAMPLES = 16 };
    double *weight = param->stored.values.data, largest = 0, largest_tolerance = 0;
    const int64_t count = hs_tensor_count(&param->stored.values), stride = count > SAMPLES ? count / SAMPLES : 1;
    for (int64_t i = 0; i < count; i += stride) {
        const Difference numeric = central_difference(loss, user, &weight[i], rounding);
        cr_assert(fabs(analytic[i] - numeric.derivative) <= numeric.tolerance,
                  "%s[%lld]: gradient %.12g, difference quotient %.12g, tolerance %.3g", param->name, (long long)i,
                  analytic[i], numeric.derivative, numeric.tolerance);
        largest = fmax(largest, fabs(analytic[i]));
        largest_tolerance = fmax(largest_tolerance, numeric.tolerance);
    }
    cr_assert(largest > 50 * largest_tolerance, "%s: gradients up to %g, tolerances up to %g", param->name, largest,
              largest_tolerance);
}

/* Loss sum of one training micro-batch over the whole batch; gradients hold its derivative times `scale`. */
static inline double tiny_train(TinyModel *tiny, float scale)
{
    double loss = 0;
    tiny_clear_gradients(tiny);
    TINY_OK(hs_program_train(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 0, scale, &loss));
    return loss;
}

/* Loss sum of the whole batch, evaluated. */
static inline double tiny_evaluate(TinyModel *tiny)
{
    double loss = 0;
    TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, tiny->targets, &loss, NULL));
    return loss;
}

/* A second micro-batch's gradients, added.  Returns its loss. */
static inline double tiny_train_more(TinyModel *tiny)
{
    double loss;
    TINY_OK(hs_program_train(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 21, 1.25f, &loss));
    return loss;
}

/* To the bit. */
static inline void tiny_expect_equal_gradients(const TinyModel *a, const TinyModel *b, const char *what)
{
    for (int p = 0; p < a->model.param_count; p++) {
        const HsParam *one = &a->model.params[p], *other = &b->model.params[p];
        if (hs_tensor_present(&one->gradient))
            cr_expect(memcmp(one->gradient.data, other->gradient.data, hs_tensor_bytes(&one->gradient)) == 0,
                      "%s: the gradient of %s differs", what, one->name);
    }
}

/* A comparison on the spec's backend, ref, and on cpu with two threads. */
static inline void tiny_on_ref_and_cpu(void (*compare)(TinySpec spec, const char *what), TinySpec spec,
                                       const char *what)
{
    compare(spec, what);
    TINY_OK(hs_backend_cpu(&spec.backend));
    spec.threads = 2;
    compare(spec, what);
}

#endif
