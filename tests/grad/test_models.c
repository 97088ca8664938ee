/* SPDX-License-Identifier: MIT
 *
 * Both whole models, with all values in double here: every parameter's gradient against central differences of the
 * loss, for each feature that changes the step table.
 */
#include "tests/support/tiny_model.h"

#include <criterion/parameterized.h>
#include <float.h>

#include "runtime/engine/program_internal.h"

#define SHAPED(name, ...)                                                                                          \
    {                                                                                                              \
        .family = "llama", .shape = (name), .mode = "fp64", .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 4, \
        .width = 8, .mlp_width = 12, .vocabulary = 11, .batch = 2, .length = 5, .init_std = 0.8, __VA_ARGS__       \
    }

static const TinySpec specs[] = {
    { .family = "gpt2",
      .mode = "fp64",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .tie_head = true },
    { .family = "gpt2",
      .mode = "fp64",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .bias = true,
      .tie_head = false },
    { .family = "gpt2",
      .mode = "fp64",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .bias = true,
      .tie_head = true,
      .dropout = 0.3,
      .head_chunk = 1000 },
    { .family = "gpt2",
      .mode = "fp64",
      .layers = 1,
      .heads = 1,
      .width = 6,
      .vocabulary = 9,
      .batch = 2,
      .length = 4,
      .tie_head = true,
      .z_loss = 0.05,
      .policy = HS_RECOMPUTE_BLOCK },
    { .family = "llama",
      .mode = "fp64",
      .layers = 2,
      .heads = 4,
      .kv_heads = 2,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .tie_head = true },
    { .family = "llama",
      .mode = "fp64",
      .layers = 2,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 4,
      .width = 8,
      .mlp_width = 12,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .qk_norm = true,
      .qkv_bias = true },
    { .family = "llama",
      .mode = "fp64",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .mlp_width = 10,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .dropout = 0.2,
      .qkv_bias = true,
      .policy = HS_RECOMPUTE_MLP },
    { .family = "llama",
      .mode = "fp64",
      .layers = 1,
      .heads = 2,
      .width = 8,
      .mlp_width = 10,
      .vocabulary = 11,
      .batch = 2,
      .length = 5,
      .z_loss = 0.03,
      .tie_head = true,
      .qk_norm = true },
    SHAPED("gemma2", .tie_head = true),
    SHAPED("gemma3", .tie_head = true, .policy = HS_RECOMPUTE_BLOCK),
    SHAPED("gemma3", .dropout = 0.2, .policy = HS_RECOMPUTE_MLP),
    SHAPED("olmo2", .tie_head = false),
    SHAPED("olmo2", .dropout = 0.2, .policy = HS_RECOMPUTE_BLOCK),
    SHAPED("granite", .tie_head = true),
    SHAPED("granite", .dropout = 0.2),
    SHAPED("nanochat", .policy = HS_RECOMPUTE_ATTENTION),
    SHAPED("nanochat-whole", .policy = HS_RECOMPUTE_BLOCK),
    SHAPED("nanochat-whole", .dropout = 0.2),
    SHAPED("sinks", .tie_head = true),
    SHAPED("sinks", .dropout = 0.2, .policy = HS_RECOMPUTE_ATTENTION),
    SHAPED("smollm3", .tie_head = true),
    SHAPED("phi", .tie_head = false),
};

/* z times the sum of squared log-sum-exps, from the evaluation's last hidden values: an independent few lines. */
static double z_term(const TinyModel *tiny)
{
    const HsModel *model = &tiny->model;
    const HsAction *head = &tiny->evaluate.actions[tiny->evaluate.action_count - 1];
    const double *hidden = hs_program_tensor(&tiny->evaluate, head->inputs[0], tiny->rows).data;
    const double *weight = model->params[model->nodes[model->loss_node].params[0]].stored.values.data;
    const HsAttributes *attributes = &model->nodes[model->loss_node].attributes;
    const double cap = (double)attributes->logit_cap;
    double sum = 0;
    for (int64_t row = 0; row < tiny->rows; row++) {
        double total = 0;
        for (int64_t v = 0; v < model->vocabulary; v++) {
            double logit = 0;
            for (int64_t c = 0; c < model->width; c++)
                logit += hidden[row * model->width + c] * weight[v * model->width + c];
            logit *= (double)attributes->logit_factor;
            total += exp(cap > 0 ? cap * tanh(logit / cap) : logit);
        }
        if (tiny->targets[row] >= 0)
            sum += log(total) * log(total);
    }
    /* the coefficient as the kernel has it, in float */
    return (double)(float)tiny->spec.z_loss * sum;
}

static double whole_loss(void *user)
{
    TinyModel *tiny = user;
    double loss = 0;
    if (tiny->spec.dropout > 0) {
        TINY_OK(hs_program_train(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 0, 1.0f, &loss));
        return loss;
    }
    TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, tiny->targets, &loss, NULL));
    return loss + (tiny->spec.z_loss > 0 ? z_term(tiny) : 0);
}

/* Parameters travel between processes: numbers only, no pointers. */
ParameterizedTestParameters(models, gradients)
{
    static int indices[sizeof specs / sizeof specs[0]];
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, sizeof specs / sizeof specs[0]);
}

static void check_gradients(TinyModel *tiny)
{
    tiny_train(tiny, 1.0f);
    /* Each loss is a chain of sums of at most a few hundred terms: n u times the sum's size. */
    double rounding = 300 * DBL_EPSILON * whole_loss(tiny);
    for (int p = 0; p < tiny->model.param_count; p++) {
        tiny_train(tiny, 1.0f); /* the differences of the parameter before added to the gradients */
        const HsParam *param = &tiny->model.params[p];
        double *analytic = malloc(hs_tensor_bytes(&param->gradient));
        cr_assert(analytic);
        memcpy(analytic, param->gradient.data, hs_tensor_bytes(&param->gradient));
        tiny_check_gradient(whole_loss, tiny, param, analytic, rounding);
        free(analytic);
    }
}

ParameterizedTest(const int *index, models, gradients)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[*index]);
    check_gradients(&tiny);
    tiny_destroy(&tiny);
}

/* Embeddings and logits with a factor, and a cap: of a table that is both, with positions and z-loss, and of two. */
Test(models, gradients_with_factors_and_a_cap)
{
    for (int tied = 0; tied < 2; tied++) {
        TinySpec spec = specs[tied ? 3 : 5];
        TinyModel tiny;
        tiny_create(&tiny, spec);
        for (int n = 0; n < tiny.model.node_count; n++)
            tiny.model.nodes[n].attributes.embedding_factor = 2.5f;
        HsAttributes *head = &tiny.model.nodes[tiny.model.loss_node].attributes;
        head->logit_factor = 1.75f;
        head->logit_cap = 1.5f;
        check_gradients(&tiny);
        tiny_destroy(&tiny);
    }
}

Test(models, gradient_scale_is_a_factor)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[0]);
    tiny_train(&tiny, 1.0f);
    double before = ((double *)tiny.model.params[0].gradient.data)[1];
    tiny_train(&tiny, 8.0f);
    cr_assert_float_eq(((double *)tiny.model.params[0].gradient.data)[1], 8 * before, 1e-12 * fabs(8 * before));
    tiny_destroy(&tiny);
}

/* nanoGPT's published counts (position table included). */
Test(models, parameter_counts)
{
    const struct {
        TinySpec spec;
        int64_t count;
    } cases[] = {
        { { .family = "gpt2", .layers = 4, .heads = 4, .width = 128, .length = 64, .tie_head = true }, 804096 },
        { { .family = "gpt2", .layers = 6, .heads = 6, .width = 384, .length = 256, .tie_head = true }, 10745088 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        HsConfig config;
        HsModel model;
        tiny_config(&cases[i].spec, &config);
        TINY_OK(hs_model_create(&config, hs_precision_find("fp32"), 65, &model));
        cr_assert_eq(hs_model_parameter_count(&model), cases[i].count);
        hs_model_destroy(&model);
    }
}

/* GPT-2 small as released, 124,439,808 parameters. */
Test(models, gpt2_small_count)
{
    TinySpec spec = {
        .family = "gpt2", .layers = 12, .heads = 12, .width = 768, .length = 1024, .tie_head = true, .bias = true
    };
    HsConfig config;
    HsModel model;
    tiny_config(&spec, &config);
    TINY_OK(hs_model_create(&config, hs_precision_find("fp32"), 50257, &model));
    cr_assert_eq(hs_model_parameter_count(&model), 124439808);
    hs_model_destroy(&model);
}

Test(models, sizes_that_do_not_fit_are_refused)
{
    const struct {
        TinySpec spec;
        const char *message;
    } cases[] = {
        { { .family = "gpt2", .layers = 1, .heads = 3, .width = 8, .length = 4 }, "model.heads" },
        { { .family = "llama", .layers = 1, .heads = 4, .kv_heads = 3, .width = 8, .length = 4 }, "model.kv_heads" },
        { { .family = "llama", .layers = 1, .heads = 2, .width = 6, .length = 4 }, "even" },
        { { .family = "gpt2", .layers = 1, .heads = 1, .width = 512, .length = 4 }, "512 features" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        HsConfig config;
        HsModel model;
        tiny_config(&cases[i].spec, &config);
        cr_assert_eq(hs_model_create(&config, hs_precision_find("fp32"), 65, &model), HS_ECONFIG, "case %zu", i);
        cr_assert(strstr(hs_error_message(), cases[i].message), "%s", hs_error_message());
    }
}
