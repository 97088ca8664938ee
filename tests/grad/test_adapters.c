/* SPDX-License-Identifier: MIT
 *
 * Adapters: every gradient against central differences in double; the model with them against the plain model with s B
 * A added to its matrices; and nothing of what is frozen has memory that only training needs.
 */
#include "tests/support/tiny_model.h"

#include <float.h>
#include <math.h>

#include "runtime/model/layer.h"

#define LIST(...)                                                                        \
    {                                                                                    \
        .count = sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *), .items = (char *[]) \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }

/* family, features of the table, adapter */
#define GPT2                                                                                                          \
    .family = "gpt2", .mode = "fp64", .layers = 2, .heads = 2, .width = 8, .vocabulary = 11, .batch = 2, .length = 5, \
    .bias = true
#define LLAMA                                                                                               \
    .family = "llama", .mode = "fp64", .layers = 2, .heads = 4, .kv_heads = 2, .width = 8, .mlp_width = 12, \
    .vocabulary = 11, .batch = 2, .length = 5

static const TinySpec specs[] = {
    { GPT2, .tie_head = true, .adapter = { .rank = 3, .alpha = 5, .targets = LIST("all-linear") } },
    { GPT2, .adapter = { .rank = 2, .alpha = 4, .dropout = 0.3, .targets = LIST("c_attn", "mlp") } },
    { LLAMA, .adapter = { .rank = 2, .alpha = 3, .targets = LIST("all-linear") } },
    { LLAMA, .qkv_bias = true, .adapter = { .rank = 3, .alpha = 3, .targets = LIST("q_proj", "v_proj", "up_proj") } },
    { LLAMA, .dropout = 0.2, .policy = HS_RECOMPUTE_BLOCK,
      .adapter = { .rank = 2,
                   .alpha = 3,
                   .dropout = 0.4,
                   .stabilized = true,
                   .targets = LIST("k_proj", "o_proj", "mlp"),
                   .also_train = LIST("norm", "embedding") } },
};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* B starts at zero, and A's gradient with it. */
static void fill_adapters(TinyModel *tiny)
{
    HsRng rng = { .seed = 31, .site = 2 };
    for (int p = 0; p < tiny->model.param_count; p++) {
        const HsParam *param = &tiny->model.params[p];
        rng.step = (uint32_t)p;
        for (int64_t i = 0; param->role == HS_PARAM_ADAPTER && i < hs_tensor_count(&param->stored.values); i++)
            hs_dtype_store(param->stored.values.dtype, param->stored.values.data, i,
                           (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 0.5);
    }
}

static double whole_loss(void *user)
{
    TinyModel *tiny = user;
    double loss = 0;
    TINY_OK(hs_program_train(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 11, 3, 0, 1.0f, &loss));
    return loss;
}

Test(adapters, gradients)
{
    for (int s = 0; s < SPECS; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        fill_adapters(&tiny);
        const double rounding = 300 * DBL_EPSILON * whole_loss(&tiny);
        int trained = 0;
        for (int p = 0; p < tiny.model.param_count; p++) {
            const HsParam *param = &tiny.model.params[p];
            cr_assert_eq(hs_tensor_present(&param->gradient), param->trainable, "%s", param->name);
            if (!param->trainable)
                continue;
            tiny_train(&tiny, 1.0f);
            double *analytic = malloc(hs_tensor_bytes(&param->gradient));
            cr_assert(analytic);
            memcpy(analytic, param->gradient.data, hs_tensor_bytes(&param->gradient));
            tiny_check_gradient(whole_loss, &tiny, param, analytic, rounding);
            free(analytic);
            trained++;
        }
        cr_assert(trained > 0);
        tiny_destroy(&tiny);
    }
}

/* W += s B A, by the definition, part by part. */
static void merge(const TinyModel *from, TinyModel *to)
{
    for (int p = 0; p < to->model.param_count; p++)
        memcpy(to->model.params[p].stored.values.data, from->model.params[p].stored.values.data,
               hs_tensor_bytes(&to->model.params[p].stored.values));
    for (int n = 0; n < from->model.node_count; n++) {
        const HsNode *node = &from->model.nodes[n];
        const HsAdapterShape *shape = &node->attributes.adapter;
        if (shape->rank == 0)
            continue;
        double *w = to->model.params[node->params[0]].stored.values.data;
        const double *a = from->model.params[node->params[2]].stored.values.data;
        const double *b = from->model.params[node->params[3]].stored.values.data;
        int64_t stored = 0;
        for (int block = 0; block < shape->blocks; block++)
            for (int64_t row = 0; row < shape->rows[block]; row++, stored++)
                for (int64_t c = 0; c < shape->inputs; c++)
                    for (int64_t j = 0; j < shape->rank; j++)
                        w[(shape->first_row[block] + row) * shape->inputs + c] +=
                            (double)shape->scale * b[stored * shape->rank + j] *
                            a[(block * shape->rank + j) * shape->inputs + c];
    }
}

static double evaluation(TinyModel *tiny)
{
    double loss = 0;
    TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, tiny->targets, &loss, NULL));
    return loss;
}

Test(adapters, model_is_the_merged_one)
{
    for (int s = 0; s < SPECS; s++) {
        TinyModel adapted, plain;
        TinySpec spec = specs[s];
        tiny_create(&adapted, spec);
        spec.adapter.rank = 0;
        tiny_create(&plain, spec);
        const double before = evaluation(&plain);
        cr_expect_eq(before, evaluation(&adapted), "with B = 0 an adapter changes nothing");
        fill_adapters(&adapted);
        merge(&adapted, &plain);
        const double loss = evaluation(&adapted);
        cr_expect_float_eq(loss, evaluation(&plain), 300 * DBL_EPSILON * loss, "spec %d", s);
        cr_expect(fabs(loss - before) > 1e-3 * loss, "spec %d: the adapters matter", s);
        tiny_destroy(&adapted);
        tiny_destroy(&plain);
    }
}

Test(adapters, only_what_trains_has_gradients)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[3]);
    for (int p = 0; p < tiny.model.param_count; p++) {
        const HsParam *param = &tiny.model.params[p];
        cr_expect_eq(param->trainable, param->role == HS_PARAM_ADAPTER, "%s", param->name);
        cr_expect_eq(param->gradient.data != NULL, param->trainable, "%s", param->name);
    }
    /* q, v: (2 3) x 8 and (8 + 4) x 3;  up: 3 x 8 and 12 x 3 */
    cr_expect_eq(hs_model_trainable_count(&tiny.model), 2 * (6 * 8 + 12 * 3 + 3 * 8 + 12 * 3));
    tiny_destroy(&tiny);
}

Test(adapters, names_and_refusals)
{
    HsConfig config;
    HsModel model;
    TinySpec spec = specs[3];
    tiny_config(&spec, &config);
    TINY_OK(hs_model_create(&config, hs_precision_find("fp32"), 11, &model));
    const HsParam *last = &model.params[model.param_count - 1];
    cr_expect_str_eq(last->name, "model.layers.1.mlp.gate_up_proj.lora_B.weight");
    cr_expect_str_eq(last->part_names[0], "model.layers.1.mlp.up_proj.lora_B.weight");
    hs_model_destroy(&model);
    spec.adapter.targets = (HsStringList)LIST("q_proj", "c_attn");
    tiny_config(&spec, &config);
    cr_expect_eq(hs_model_create(&config, hs_precision_find("fp32"), 11, &model), HS_ECONFIG);
    cr_expect(strstr(hs_error_message(), "`c_attn`") && strstr(hs_error_message(), "q_proj, k_proj, v_proj, o_proj"),
              "%s", hs_error_message());
}
