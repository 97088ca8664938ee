/* SPDX-License-Identifier: MIT
 *
 * Several documents in a row (data.packing: documents) against the same documents in separate rows, padded: the
 * losses of every token and all gradients, of learned positions and of RoPE, on every device.
 *
 *     packed   | A A A B B ... B C ... C . . |   three rows of 150 tokens, documents of 1 to 150
 *     plain    | A A A . . . . |, | B B ... B . |, ...
 *
 * On ref sums are in double and each value is rounded once, so that losses are equal bit for bit.  Elsewhere documents
 * lie differently in tiles of keys.  n roundings of relative size u on the longest path forward, as many back, of random
 * signs, make a relative difference between two correct computations of
 *     rho = 4 sqrt(2) sqrt(2 n) u      with a probability of 1 - 2 exp(-8)   (Higham & Mary 2019, theorem 2.4)
 * n as the sums on that path are long; it is required of each token's loss, and of each row of a gradient as a whole.
 */
#include <criterion/parameterized.h>
#include <math.h>

#include "tests/support/device_rig.h"

enum { LENGTH = 150, PACKED = 3, PLAIN = 7, WIDTH = 16, HEADS = 2, LAYERS = 2, MLP = 24, VOCABULARY = 13 };

/* Which packed row a document is in, and how long it is. */
static const struct {
    int row, count;
} documents[PLAIN] = { { 0, 3 }, { 0, 70 }, { 0, 40 }, { 1, 1 }, { 1, 100 }, { 1, 49 }, { 2, 150 } };

typedef struct Batch {
    int64_t rows;
    int32_t tokens[PLAIN * LENGTH], targets[PLAIN * LENGTH];
    int64_t place[PLAIN]; /* of each document's first token */
} Batch;

static int32_t token_of(int document, int t)
{
    const HsRng rng = { .seed = 21, .site = (uint32_t)document };
    return (int32_t)(hs_rng_draw(&rng, (uint64_t)t).word[0] % VOCABULARY);
}

/* The documents packed, with marks, or one a row; padding is ignored, and in packed rows each of its tokens is marked. */
static void fill(Batch *batch, bool packed)
{
    int used[PLAIN] = { 0 };
    batch->rows = packed ? PACKED : PLAIN;
    for (int64_t i = 0; i < batch->rows * LENGTH; i++) {
        batch->tokens[i] = packed ? ~5 : 5;
        batch->targets[i] = -1;
    }
    for (int d = 0; d < PLAIN; d++) {
        const int row = packed ? documents[d].row : d;
        const int64_t place = batch->place[d] = row * LENGTH + used[row];
        for (int t = 0; t < documents[d].count; t++) {
            batch->tokens[place + t] = token_of(d, t);
            batch->targets[place + t] = t + 1 < documents[d].count ? token_of(d, t + 1) : -1;
        }
        if (used[row] > 0)
            batch->tokens[place] = ~batch->tokens[place];
        used[row] += documents[d].count;
    }
}

static void open_rig(Rig *rig, const char *device, const char *family, const char *mode, const char *packing,
                     int64_t rows)
{
    const TinySpec spec = { .family = family,
                            .mode = mode,
                            .layers = LAYERS,
                            .heads = HEADS,
                            .width = WIDTH,
                            .mlp_width = MLP,
                            .vocabulary = VOCABULARY,
                            .length = LENGTH,
                            .tie_head = true,
                            .head_chunk = 64 };
    tiny_config(&spec, &rig->config);
    rig->config.data.packing = (char *)(uintptr_t)packing;
    rig_open(rig, device, mode, VOCABULARY);
    rig_start(rig, rows, LENGTH);
}

/* By document and token; gradients of all parameters one after another. */
typedef struct Outcome {
    float losses[PLAIN][LENGTH];
    double *gradients;
} Outcome;

static void by_document(const Batch *batch, const float *rows, Outcome *outcome)
{
    for (int d = 0; d < PLAIN; d++)
        for (int t = 0; t < documents[d].count; t++)
            outcome->losses[d][t] = rows[batch->place[d] + t];
}

static double *fetch_gradients(Rig *rig)
{
    HsDevice *device = &rig->engine.device;
    double *values = malloc((size_t)hs_model_parameter_count(&rig->model) * sizeof *values);
    void *image = malloc((size_t)hs_model_parameter_count(&rig->model) * sizeof *values);
    cr_assert(values && image);
    int64_t at = 0;
    for (int p = 0; p < rig->model.param_count; p++) {
        const HsTensor *gradient = &rig->model.params[p].gradient;
        TINY_OK(device->copy(device, rig->engine.context.stream, image, gradient->data, hs_tensor_bytes(gradient)));
        TINY_OK(device->stream_sync(device, rig->engine.context.stream));
        for (int64_t i = 0; i < hs_tensor_count(gradient); i++)
            values[at++] = hs_dtype_load(gradient->dtype, image, i);
    }
    free(image);
    return values;
}

static void run(const char *device, const char *family, const char *mode, bool packed, Outcome *outcome)
{
    static Batch batch;
    static float rows[PLAIN * LENGTH], probed[PLAIN * LENGTH];
    Rig rig;
    double sum = 0, probe_sum = 0, trained = 0;
    fill(&batch, packed);
    open_rig(&rig, device, family, mode, packed ? "documents" : "none", batch.rows);
    HsContext *context = &rig.engine.context;
    TINY_OK(hs_program_evaluate(&rig.evaluate, context, batch.tokens, batch.targets, &sum, rows));
    by_document(&batch, rows, outcome);
    TINY_OK(
        hs_program_probe(&rig.train, context, batch.tokens, batch.targets, false, 1, 1, 0, 1.0f, &probe_sum, probed));
    for (int64_t i = 0; i < batch.rows * LENGTH; i++)
        cr_assert_eq(rows[i], probed[i], "a probe sees other documents than evaluation");
    for (int p = 0; p < rig.model.param_count; p++) {
        const HsTensor *gradient = &rig.model.params[p].gradient;
        TINY_OK(rig.engine.device.fill_zero(&rig.engine.device, context->stream, gradient->data,
                                            hs_tensor_bytes(gradient)));
    }
    TINY_OK(hs_program_train(&rig.train, context, batch.tokens, batch.targets, 11, 3, 0, 1.0f, &trained));
    cr_assert_eq(sum, trained);
    outcome->gradients = fetch_gradients(&rig);
    rig_close(&rig);
}

static double rho_of(const char *mode)
{
    const double u = strcmp(mode, "fp64") == 0 ? 0x1p-53 : 0x1p-24;
    const int64_t summed =
        LAYERS * (5 * WIDTH + MLP + 3 * WIDTH / HEADS + LENGTH) + 2 * WIDTH + VOCABULARY + PLAIN * LENGTH;
    return 4 * sqrt(2) * sqrt(2 * (double)summed) * u;
}

static double length_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

static void compare_gradients(const char *family, const Outcome *a, const Outcome *b, double rho)
{
    Rig shapes;
    open_rig(&shapes, "ref", family, "fp32", "none", 1);
    int64_t at = 0;
    for (int p = 0; p < shapes.model.param_count; p++) {
        const HsTensor *gradient = &shapes.model.params[p].gradient;
        const int64_t rows = gradient->rank == 2 ? gradient->shape[0] : 1, columns = hs_tensor_count(gradient) / rows;
        const double typical = length_of(b->gradients + at, rows * columns) / sqrt((double)rows);
        cr_expect_gt(typical, 0.0, "%s has no gradient", shapes.model.params[p].name);
        for (int64_t row = 0; row < rows; row++, at += columns) {
            double far = 0;
            for (int64_t i = at; i < at + columns; i++)
                far += pow(a->gradients[i] - b->gradients[i], 2);
            const double length = length_of(b->gradients + at, columns);
            const double scale = length > 0 ? fmax(length, typical) : 0; /* what no token touched is 0 in both */
            cr_expect_leq(sqrt(far), rho * scale, "%s, row %lld: off by %.3g of %.3g", shapes.model.params[p].name,
                          (long long)row, sqrt(far), scale);
        }
    }
    rig_close(&shapes);
}

typedef struct Case {
    char device[8], family[8], mode[8];
} Case;

ParameterizedTestParameters(documents, packed_equals_plain)
{
    static Case cases[] = { { "ref", "gpt2", "fp64" },  { "ref", "llama", "fp64" }, { "ref", "gpt2", "fp32" },
                            { "ref", "llama", "fp32" }, { "cpu", "gpt2", "fp32" },  { "cpu", "llama", "fp32" },
                            { "emu", "gpt2", "fp32" },  { "emu", "llama", "fp32" } };
    return cr_make_param_array(Case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(const Case *test, documents, packed_equals_plain)
{
    static Outcome packed, plain;
    const double rho = rho_of(test->mode);
    const bool exact = strcmp(test->device, "ref") == 0;
    run(test->device, test->family, test->mode, true, &packed);
    run(test->device, test->family, test->mode, false, &plain);
    for (int d = 0; d < PLAIN; d++)
        for (int t = 0; t < documents[d].count; t++) {
            const float a = packed.losses[d][t], b = plain.losses[d][t];
            cr_expect_eq(b > 0, t + 1 < documents[d].count);
            cr_expect(exact ? a == b : fabs((double)a - (double)b) <= rho * fmax(1, (double)b),
                      "document %d, token %d: %.9g packed, %.9g alone", d, t, (double)a, (double)b);
        }
    compare_gradients(test->family, &packed, &plain, rho);
    free(packed.gradients);
    free(plain.gradients);
}

/* Losses of a document, bit for bit, whatever the other ones hold, with learned positions and without. */
ParameterizedTestParameters(documents, others_change_nothing)
{
    static Case cases[] = { { "ref", "gpt2", "fp32" },
                            { "cpu", "gpt2", "bf16" },
                            { "cpu", "llama", "fp32" },
                            { "emu", "gpt2", "fp32" },
                            { "emu", "llama", "bf16" } };
    return cr_make_param_array(Case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(const Case *test, documents, others_change_nothing)
{
    static Batch batch;
    static float before[PLAIN * LENGTH], after[PLAIN * LENGTH];
    enum { CHANGED = 1, KEPT = 2 };
    Rig rig;
    double sum = 0;
    fill(&batch, true);
    open_rig(&rig, test->device, test->family, test->mode, "documents", batch.rows);
    TINY_OK(hs_program_evaluate(&rig.evaluate, &rig.engine.context, batch.tokens, batch.targets, &sum, before));
    for (int t = 1; t < documents[CHANGED].count; t++) {
        int32_t *token = &batch.tokens[batch.place[CHANGED] + t];
        *token = (*token + 1) % VOCABULARY;
    }
    TINY_OK(hs_program_evaluate(&rig.evaluate, &rig.engine.context, batch.tokens, batch.targets, &sum, after));
    int moved = 0;
    for (int t = 0; t < documents[CHANGED].count; t++)
        moved += before[batch.place[CHANGED] + t] != after[batch.place[CHANGED] + t];
    cr_expect_gt(moved, documents[CHANGED].count / 2, "the document itself must notice");
    for (int t = 0; t < documents[KEPT].count; t++)
        cr_expect_eq(before[batch.place[KEPT] + t], after[batch.place[KEPT] + t], "token %d", t);
    rig_close(&rig);
}
