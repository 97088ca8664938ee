/* SPDX-License-Identifier: MIT
 *
 * A probe: forward and backward of the model that evaluation sees, with the true labels or with its own.
 */
#include "tests/support/tiny_model.h"

#include <math.h>

static const TinySpec base = {
    .family = "gpt2",
    .mode = "fp32",
    .layers = 2,
    .heads = 2,
    .width = 8,
    .vocabulary = 7,
    .batch = 2,
    .length = 5,
    .bias = true,
    .dropout = 0.3,
    .z_loss = 0.05,
};
enum { ROWS = 10 };
static const char *const modes[] = { "fp32", "bf16", "fp16" };
enum { MODES = sizeof modes / sizeof modes[0] };

static double probe(TinyModel *tiny, bool sample_labels, uint32_t step, float row_losses[ROWS])
{
    double loss = 0;
    tiny_clear_gradients(tiny);
    TINY_OK(hs_program_probe(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, sample_labels, 17, step, 0,
                             2.0f, &loss, row_losses));
    return loss;
}

static bool same_gradient(const HsParam *a, const HsParam *b)
{
    return memcmp(a->gradient.data, b->gradient.data, hs_tensor_bytes(&a->gradient)) == 0;
}

/* Dropout and z-loss are training's: bit for bit, the probe is the same table of steps trained with neither. */
Test(probe, is_the_model_that_evaluation_sees)
{
    for (int m = 0; m < MODES; m++) {
        TinyModel tiny, plain;
        TinySpec spec = base;
        spec.mode = modes[m];
        tiny_create(&tiny, spec);
        tiny_create(&plain, spec);
        for (int i = 0; i < plain.model.node_count; i++)
            plain.model.nodes[i].attributes.dropout = plain.model.nodes[i].attributes.z_loss = 0;
        float rows[ROWS], evaluated_rows[ROWS];
        double loss = probe(&tiny, false, 0, rows), evaluated;
        TINY_OK(
            hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &evaluated, evaluated_rows));
        cr_expect(loss == evaluated && memcmp(rows, evaluated_rows, sizeof rows) == 0);
        cr_expect(loss == tiny_train(&plain, 2.0f));
        for (int p = 0; p < tiny.model.param_count; p++)
            cr_expect(same_gradient(&tiny.model.params[p], &plain.model.params[p]), "%s, %s", modes[m],
                      tiny.model.params[p].name);
        cr_expect(tiny_train(&tiny, 2.0f) != loss, "training has dropout");
        tiny_destroy(&tiny);
        tiny_destroy(&plain);
    }
}

/* -log p of a row for every label, from evaluation. */
static void label_losses(TinyModel *tiny, float losses[7][ROWS])
{
    for (int32_t v = 0; v < 7; v++) {
        int32_t targets[ROWS];
        double sum;
        for (int row = 0; row < ROWS; row++)
            targets[row] = v;
        TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, targets, &sum, losses[v]));
    }
}

/* Every row's frequencies of labels against p: chi-squared with 6 degrees of freedom exceeds 36 with probability
 * 2.7e-6, for any of ten rows 3e-5, and the draws are fixed. */
Test(probe, labels_follow_the_model)
{
    enum { DRAWS = 4000 };
    TinyModel tiny;
    tiny_create(&tiny, base);
    float losses[7][ROWS], rows[ROWS];
    static int counts[ROWS][7];
    label_losses(&tiny, losses);
    for (uint32_t step = 0; step < DRAWS; step++) {
        probe(&tiny, true, step, rows);
        for (int row = 0; row < ROWS; row++) {
            int label = 0;
            while (label < 7 && losses[label][row] != rows[row])
                label++;
            cr_assert(tiny.targets[row] >= 0 ? label < 7 : rows[row] == 0.0f, "row %d", row);
            if (tiny.targets[row] >= 0)
                counts[row][label]++;
        }
    }
    for (int row = 0; row < ROWS; row++) {
        double chi_squared = 0;
        for (int v = 0; v < 7 && tiny.targets[row] >= 0; v++) {
            double expected = DRAWS * exp(-(double)losses[v][row]);
            chi_squared += (counts[row][v] - expected) * (counts[row][v] - expected) / expected;
        }
        cr_expect(chi_squared < 36, "row %d: %g", row, chi_squared);
    }
    tiny_destroy(&tiny);
}

/* Labels are keyed by row: the chunk's size changes nothing but the order in which the head's own weight gradient is
 * summed up, and recomputation nothing at all. */
Test(probe, draws_depend_on_neither_chunks_nor_recomputation)
{
    const int64_t chunks[] = { 1, 3, 5, 4096 };
    for (int m = 0; m < MODES; m++) {
        TinyModel first;
        TinySpec spec = base;
        spec.mode = modes[m];
        spec.head_chunk = 5;
        tiny_create(&first, spec);
        const int head = first.model.nodes[first.model.loss_node].params[0];
        float rows[ROWS], other_rows[ROWS];
        double loss = probe(&first, true, 9, rows);
        for (int c = 0; c < 4; c++) {
            for (int policy = HS_RECOMPUTE_NONE; policy <= HS_RECOMPUTE_BLOCK; policy++) {
                TinyModel other;
                spec.head_chunk = chunks[c];
                spec.policy = (HsRecompute)policy;
                tiny_create(&other, spec);
                cr_expect(probe(&other, true, 9, other_rows) == loss && memcmp(rows, other_rows, sizeof rows) == 0);
                for (int p = 0; p < first.model.param_count; p++)
                    cr_expect(
                        (p == head && chunks[c] != 5) || same_gradient(&first.model.params[p], &other.model.params[p]),
                        "%s, chunk %d, policy %d: %s", modes[m], (int)chunks[c], policy, first.model.params[p].name);
                tiny_destroy(&other);
            }
        }
        cr_expect(probe(&first, true, 10, other_rows) != loss, "another step draws other labels");
        tiny_destroy(&first);
    }
}

Test(probe, row_losses_are_those_of_the_latest_micro_batch)
{
    TinyModel tiny;
    tiny_create(&tiny, base);
    float evaluated[ROWS];
    double loss = tiny_train(&tiny, 1.0f), sum = 0;
    for (int64_t row = 0; row < tiny.rows; row++) {
        double row_loss = hs_program_row_loss(&tiny.train, row);
        cr_expect(tiny.targets[row] >= 0 ? row_loss > 0 : row_loss == 0);
        sum += row_loss;
    }
    cr_expect(sum == loss);
    TINY_OK(hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &loss, evaluated));
    for (int64_t row = 0; row < tiny.rows; row++)
        cr_expect((float)hs_program_row_loss(&tiny.evaluate, row) == evaluated[row]);
    tiny_destroy(&tiny);
}
