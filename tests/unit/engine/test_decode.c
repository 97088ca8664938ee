/* SPDX-License-Identifier: MIT
 *
 * Decoding with a cache against the whole sequence at once, and sampling against exact frequencies.
 */
#include "tests/support/tiny_model.h"

#include <math.h>

#include "runtime/engine/decode.h"
#include "runtime/engine/program_internal.h"

#define SHAPED(name)                                                                                             \
    {                                                                                                            \
        .family = "llama", .shape = (name), .mode = "fp64", .layers = 2, .heads = 4, .kv_heads = 2, .width = 16, \
        .mlp_width = 12, .vocabulary = 13, .batch = 1, .length = 23                                              \
    }

/* Double throughout, so that only the order of sums differs: a few hundred roundings of 2^-53 on logits of size one,
 * and the last conversion to float. */
static const TinySpec specs[] = {
    { .family = "gpt2",
      .mode = "fp64",
      .layers = 2,
      .heads = 2,
      .width = 8,
      .vocabulary = 13,
      .batch = 1,
      .length = 23,
      .bias = true,
      .tie_head = true,
      .dropout = 0.5 },
    { .family = "llama",
      .mode = "fp64",
      .layers = 2,
      .heads = 4,
      .kv_heads = 2,
      .width = 16,
      .mlp_width = 12,
      .vocabulary = 13,
      .batch = 1,
      .length = 23,
      .qk_norm = true,
      .qkv_bias = true },
    SHAPED("gemma2"),
    SHAPED("gemma3"),
    SHAPED("olmo2"),
    SHAPED("granite"),
    SHAPED("nanochat"),
    SHAPED("nanochat-whole"),
    SHAPED("sinks"),
    SHAPED("smollm3"),
};

/* The full forward's logits of one row, from the evaluation plan's hidden values. */
static double full_logit(const TinyModel *tiny, int64_t row, int64_t v)
{
    const HsModel *model = &tiny->model;
    const HsAction *head = &tiny->evaluate.actions[tiny->evaluate.action_count - 1];
    const double *hidden = hs_program_tensor(&tiny->evaluate, head->inputs[0], tiny->rows).data;
    const double *weight = model->params[model->nodes[model->loss_node].params[0]].stored.values.data;
    const HsAttributes *attributes = &model->nodes[model->loss_node].attributes;
    const double cap = (double)attributes->logit_cap;
    double logit = 0;
    for (int64_t c = 0; c < model->width; c++)
        logit += hidden[row * model->width + c] * weight[v * model->width + c];
    logit *= (double)attributes->logit_factor;
    return cap > 0 ? cap * tanh(logit / cap) : logit;
}

/* A cap is taken in float: of the quotient, of tanh (4 at most) and of the product there are 6 more roundings. */
static void assert_row(const TinyModel *tiny, int64_t row, const float *logits)
{
    const int roundings = tiny->model.nodes[tiny->model.loss_node].attributes.logit_cap > 0 ? 7 : 1;
    for (int64_t v = 0; v < tiny->model.vocabulary; v++) {
        double expected = full_logit(tiny, row, v);
        double bound = roundings * fabs(expected) * 0x1p-24 + 1000 * 0x1p-53 * (fabs(expected) + 1);
        cr_assert(fabs((double)logits[v] - expected) <= bound, "row %lld logit %lld: %.9g, expected %.9g",
                  (long long)row, (long long)v, (double)logits[v], expected);
    }
}

static void check_against_full_forward(TinyModel *tiny)
{
    HsDecoder *decoder;
    const float *logits;
    double loss;
    TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, tiny->targets, &loss, NULL));
    TINY_OK(hs_decoder_create(&tiny->model, &tiny->context, 1, tiny->rows, &decoder));
    /* a prompt in several pieces (13 = 8 + 4 + 1), then token by token; then all again after a reset */
    for (int round = 0; round < 2; round++) {
        int64_t prompt = round == 0 ? 13 : 2;
        TINY_OK(hs_decoder_feed(decoder, &tiny->context, tiny->tokens, prompt, &logits));
        assert_row(tiny, prompt - 1, logits);
        for (int64_t row = prompt; row < tiny->rows; row++) {
            TINY_OK(hs_decoder_feed(decoder, &tiny->context, tiny->tokens + row, 1, &logits));
            assert_row(tiny, row, logits);
        }
        cr_assert_eq(hs_decoder_feed(decoder, &tiny->context, tiny->tokens, 1, &logits), HS_EINVAL);
        hs_decoder_reset(decoder);
    }
    int32_t outside = (int32_t)tiny->model.vocabulary;
    cr_assert_eq(hs_decoder_feed(decoder, &tiny->context, &outside, 1, &logits), HS_EINVAL);
    hs_decoder_destroy(decoder);
}

Test(decode, equals_the_full_forward)
{
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        TinyModel tiny;
        tiny_create(&tiny, specs[s]);
        check_against_full_forward(&tiny);
        tiny_destroy(&tiny);
    }
}

/* Taken back, it continues as if it had been fed that far; with windows perhaps from the start. */
Test(decode, goes_on_from_where_it_was_taken_back_to)
{
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        TinyModel tiny;
        HsDecoder *decoder;
        const float *logits;
        double loss;
        bool windows = false;
        tiny_create(&tiny, specs[s]);
        for (int n = 0; n < tiny.model.node_count; n++)
            windows |= tiny.model.nodes[n].attributes.score.window > 0;
        TINY_OK(hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &loss, NULL));
        TINY_OK(hs_decoder_create(&tiny.model, &tiny.context, 1, tiny.rows, &decoder));
        for (int64_t to = tiny.rows; to >= 0; to--) {
            TINY_OK(hs_decoder_feed(decoder, &tiny.context, tiny.tokens, tiny.rows, &logits));
            assert_row(&tiny, tiny.rows - 1, logits);
            const int64_t held = hs_decoder_rewind(decoder, to);
            cr_assert(held == to || (windows && held == 0), "back to %lld: %lld are held", (long long)to,
                      (long long)held);
            for (int64_t row = held; row < tiny.rows; row++) {
                TINY_OK(hs_decoder_feed(decoder, &tiny.context, tiny.tokens + row, 1, &logits));
                assert_row(&tiny, row, logits);
            }
            hs_decoder_reset(decoder);
        }
        hs_decoder_destroy(decoder);
        tiny_destroy(&tiny);
    }
}

Test(decode, has_factors_and_a_cap)
{
    TinyModel tiny;
    tiny_create(&tiny, specs[0]);
    for (int n = 0; n < tiny.model.node_count; n++)
        tiny.model.nodes[n].attributes.embedding_factor = 2.0f;
    HsAttributes *head = &tiny.model.nodes[tiny.model.loss_node].attributes;
    head->logit_factor = -1.5f;
    head->logit_cap = 0.75f;
    check_against_full_forward(&tiny);
    tiny_destroy(&tiny);
}

/* At every position the likeliest token, of all and of the first few; the batch's shape is no matter. */
Test(decode, predictions_are_the_likeliest_tokens)
{
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        TinyModel tiny;
        double loss;
        TinySpec spec = specs[s];
        spec.length = 12;
        spec.batch = 4;
        tiny_create(&tiny, spec);
        const int64_t shapes[][2] = { { 4, 12 }, { 1, 12 }, { 8, 6 }, { 48, 1 } };
        int32_t expected[2][48], predicted[48];
        TINY_OK(hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &loss, NULL));
        for (int64_t row = 0; row < tiny.rows; row++)
            for (int few = 0; few < 2; few++) {
                expected[few][row] = 0;
                for (int64_t v = 1; v < (few ? 5 : tiny.model.vocabulary); v++)
                    if (full_logit(&tiny, row, v) > full_logit(&tiny, row, expected[few][row]))
                        expected[few][row] = (int32_t)v;
            }
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int64_t batch = shapes[i][0], length = shapes[i][1];
            cr_expect(hs_program_fits(&tiny.evaluate, &tiny.context, batch, length));
            for (int few = 0; few < 2; few++) {
                TINY_OK(hs_program_predict(&tiny.evaluate, &tiny.context, batch, length,
                                           few ? 5 : tiny.model.vocabulary, tiny.tokens, predicted));
                /* Rows that begin where the whole batch's do see the same tokens. */
                for (int64_t row = 0; row < batch * length; row++)
                    if (row / length * length % spec.length == 0)
                        cr_expect_eq(predicted[row], expected[few][row], "%lld of %lld, row %lld", (long long)batch,
                                     (long long)length, (long long)row);
            }
        }
        cr_expect(!hs_program_fits(&tiny.evaluate, &tiny.context, 1, 13));
        cr_expect(!hs_program_fits(&tiny.evaluate, &tiny.context, 5, 12));
        double again;
        TINY_OK(hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &again, NULL));
        cr_expect_eq(again, loss);
        tiny_destroy(&tiny);
    }
}

/* Sequences side by side, each as if it were alone. */
Test(decode, a_batch_is_its_sequences)
{
    enum { BATCH = 3, LENGTH = 7 };
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        TinyModel tiny;
        HsDecoder *alone, *together;
        const float *logits;
        tiny_create(&tiny, specs[s]);
        const int64_t vocabulary = tiny.model.vocabulary;
        float *expected = malloc((size_t)(BATCH * LENGTH * vocabulary) * sizeof *expected);
        cr_assert(expected);
        TINY_OK(hs_decoder_create(&tiny.model, &tiny.context, 1, LENGTH, &alone));
        TINY_OK(hs_decoder_create(&tiny.model, &tiny.context, BATCH, LENGTH, &together));
        for (int b = 0; b < BATCH; b++, hs_decoder_reset(alone))
            for (int t = 0; t < LENGTH; t++) {
                TINY_OK(hs_decoder_feed(alone, &tiny.context, &tiny.tokens[2 * b + t], 1, &logits));
                memcpy(expected + (b * LENGTH + t) * vocabulary, logits, (size_t)vocabulary * sizeof *logits);
            }
        for (int t = 0; t < LENGTH; t++) {
            const int32_t tokens[BATCH] = { tiny.tokens[t], tiny.tokens[2 + t], tiny.tokens[4 + t] };
            TINY_OK(hs_decoder_feed(together, &tiny.context, tokens, BATCH, &logits));
            for (int b = 0; b < BATCH; b++)
                cr_assert_arr_eq(logits + b * vocabulary, expected + (b * LENGTH + t) * vocabulary,
                                 (size_t)vocabulary * sizeof *logits);
        }
        const int32_t more[BATCH] = { 0 };
        cr_assert_eq(hs_decoder_feed(together, &tiny.context, more, BATCH, &logits), HS_EINVAL);
        hs_decoder_destroy(alone);
        hs_decoder_destroy(together);
        free(expected);
        tiny_destroy(&tiny);
    }
}

Test(decode, learned_positions_end)
{
    TinyModel tiny;
    HsDecoder *decoder;
    tiny_create(&tiny, specs[0]);
    cr_assert_eq(hs_decoder_create(&tiny.model, &tiny.context, 1, 24, &decoder), HS_EINVAL);
    cr_assert_null(decoder);
    tiny_destroy(&tiny);
}

enum { TOKENS = 6, DRAWS = 20000 };
static const float logits[TOKENS] = { 0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -INFINITY };

/* Counts of DRAWS draws against the exact distribution: |count - n p| within 5 standard deviations. */
static void assert_distribution(const HsSampling *sampling, const double probabilities[TOKENS])
{
    float scratch[2 * TOKENS];
    double counts[TOKENS] = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++)
        counts[hs_sample(sampling, logits, TOKENS, i, scratch)] += 1;
    for (int v = 0; v < TOKENS; v++) {
        double p = probabilities[v];
        cr_assert(fabs(counts[v] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)), "token %d: %g, expected %g", v,
                  counts[v], DRAWS * p);
    }
}

static void softmax(double temperature, const bool keep[TOKENS], double probabilities[TOKENS])
{
    double total = 0;
    for (int v = 0; v < TOKENS; v++) {
        probabilities[v] = keep[v] ? exp((double)logits[v] / temperature) : 0;
        total += probabilities[v];
    }
    for (int v = 0; v < TOKENS; v++)
        probabilities[v] /= total;
}

Test(sampling, frequencies)
{
    const struct {
        HsSampling sampling;
        bool keep[TOKENS];
    } cases[] = {
        { { .temperature = 1, .top_p = 1, .seed = 1 }, { true, true, true, true, true, true } },
        { { .temperature = 0.5, .top_p = 1, .seed = 2 }, { true, true, true, true, true, true } },
        { { .temperature = 1, .top_k = 3, .top_p = 1, .seed = 3 }, { false, true, false, true, true, false } },
        /* two tokens tie for the first place: the earlier one stays */
        { { .temperature = 1, .top_k = 1, .top_p = 1, .seed = 4 }, { false, true, false, false, false, false } },
        /* shares .37 .37 .14 .08 .02: three of them reach 0.8 */
        { { .temperature = 1, .top_p = 0.8, .seed = 5 }, { false, true, false, true, true, false } },
        { { .temperature = 1, .top_p = 1e-9, .seed = 6 }, { false, true, false, false, false, false } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double probabilities[TOKENS];
        softmax(cases[i].sampling.temperature, cases[i].keep, probabilities);
        assert_distribution(&cases[i].sampling, probabilities);
    }
}

Test(sampling, zero_temperature_takes_the_likeliest)
{
    HsSampling sampling = { .temperature = 0 };
    float scratch[2 * TOKENS];
    for (uint64_t i = 0; i < 5; i++)
        cr_assert_eq(hs_sample(&sampling, logits, TOKENS, i, scratch), 1);
}
