/* SPDX-License-Identifier: MIT
 *
 * The block of nanochat's repository (value embeddings, smear, blends with the first stream, backout, windows) against its
 * own code in float64 (nanochat/make.py): loss, logits and every gradient, by ref in double.
 *
 * The two differ by the roundings of a few hundred operations in double, which sums that cancel and the softmax's
 * exponentials make larger by perhaps a thousand: 2^-53 * 2^18, about 3e-11.  Gradients are compared with numbers that were
 * rounded to float.
 */
#include "tests/support/tiny_model.h"

#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine/program_internal.h"
#include "runtime/io/files.h"

#define FOLDER "tests/golden/nanochat/"

enum { ROWS = 18, VOCABULARY = 64 };
static const double bound = 0x1p-35;

static const TinySpec spec = { .family = "llama",
                               .shape = "nanochat-repository",
                               .mode = "fp64",
                               .layers = 3,
                               .heads = 2,
                               .kv_heads = 1,
                               .width = 32,
                               .mlp_width = 128,
                               .vocabulary = VOCABULARY,
                               .batch = 2,
                               .length = 9 };

static void read_into(const char *name, void *target, size_t size)
{
    char path[128], *bytes;
    size_t length;
    snprintf(path, sizeof path, FOLDER "%s", name);
    TINY_OK(hs_read_file(path, 1 << 20, &bytes, &length));
    cr_assert_eq(length, size, "%s: %zu bytes", path, length);
    memcpy(target, bytes, size);
    free(bytes);
}

/* Of a parameter, the parts of which files hold by themselves. */
static double *read_values(const HsSafetensors *file, const HsParam *param)
{
    double *values = malloc((size_t)hs_tensor_count(&param->stored.values) * sizeof *values), *at = values;
    cr_assert_not_null(values);
    for (int part = 0; part < hs_param_stored_parts(param); part++) {
        const char *const name = hs_param_stored_name(param, part);
        const HsNamedTensor *found = hs_safetensors_find(file, name);
        cr_assert_not_null(found, "no tensor %s", name);
        const int64_t count = hs_tensor_count(&found->tensor);
        cr_assert_eq(count, hs_param_stored_rows(param, part) * (param->rank == 2 ? param->shape[1] : 1), "%s", name);
        hs_safetensors_load(&found->tensor, 0, 1, count, at);
        at += count;
    }
    return values;
}

static void load_weights(TinyModel *tiny)
{
    HsSafetensors file;
    int tensors = 0;
    TINY_OK(hs_safetensors_open(FOLDER "model.safetensors", &file));
    for (int p = 0; p < tiny->model.param_count; p++) {
        const HsParam *param = &tiny->model.params[p];
        double *values = read_values(&file, param);
        memcpy(param->stored.values.data, values, hs_tensor_bytes(&param->stored.values));
        tensors += hs_param_stored_parts(param);
        free(values);
    }
    cr_assert_eq(tensors, file.count, "of %d tensors %d are used", file.count, tensors);
    hs_safetensors_close(&file);
    TINY_OK(hs_model_pack(&tiny->model, &tiny->context));
}

static void check_gradients(const TinyModel *tiny)
{
    HsSafetensors file;
    TINY_OK(hs_safetensors_open(FOLDER "gradients.safetensors", &file));
    for (int p = 0; p < tiny->model.param_count; p++) {
        const HsParam *param = &tiny->model.params[p];
        const double *computed = param->gradient.data;
        double *expected = read_values(&file, param);
        const int64_t count = hs_tensor_count(&param->gradient);
        double largest = 0;
        for (int64_t i = 0; i < count; i++)
            largest = fmax(largest, fabs(expected[i]));
        cr_expect(largest > 1e-5, "%s: gradients up to %g", param->name, largest);
        for (int64_t i = 0; i < count; i++)
            cr_assert(fabs(computed[i] - expected[i]) <= fabs(expected[i]) * 0x1p-24 + bound * largest,
                      "%s[%lld]: gradient %.12g, expected %.9g", param->name, (long long)i, computed[i], expected[i]);
        free(expected);
    }
    hs_safetensors_close(&file);
}

static void check_logits(const TinyModel *tiny, const double *expected)
{
    const HsModel *model = &tiny->model;
    const HsAction *head = &tiny->evaluate.actions[tiny->evaluate.action_count - 1];
    const double *hidden = hs_program_tensor(&tiny->evaluate, head->inputs[0], ROWS).data;
    const double *weight = model->params[model->nodes[model->loss_node].params[0]].stored.values.data;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t v = 0; v < VOCABULARY; v++) {
            double logit = 0;
            for (int64_t c = 0; c < model->width; c++)
                logit += hidden[row * model->width + c] * weight[v * model->width + c];
            logit = 15 * tanh(logit / 15);
            cr_assert(fabs(logit - expected[row * VOCABULARY + v]) <= 16 * bound, "row %lld, logit %lld: %.15g, %.15g",
                      (long long)row, (long long)v, logit, expected[row * VOCABULARY + v]);
        }
}

Test(nanochat, computes_what_the_repository_does)
{
    TinyModel tiny;
    int32_t tokens[2 * ROWS];
    double expected[1 + ROWS * VOCABULARY];
    read_into("tokens.bin", tokens, sizeof tokens);
    read_into("expected.bin", expected, sizeof expected);
    tiny_create(&tiny, spec);
    load_weights(&tiny);
    memcpy(tiny.tokens, tokens, sizeof tokens / 2);
    memcpy(tiny.targets, tokens + ROWS, sizeof tokens / 2);
    cr_assert_float_eq(tiny_evaluate(&tiny) / ROWS, expected[0], bound);
    check_logits(&tiny, expected + 1);
    cr_assert_float_eq(tiny_train(&tiny, 1.0f) / ROWS, expected[0], bound); /* 1 / 18 is no float */
    for (int p = 0; p < tiny.model.param_count; p++) {
        double *gradient = tiny.model.params[p].gradient.data;
        for (int64_t i = 0; i < hs_tensor_count(&tiny.model.params[p].gradient); i++)
            gradient[i] /= ROWS;
    }
    check_gradients(&tiny);
    tiny_destroy(&tiny);
}
