/* SPDX-License-Identifier: MIT
 *
 * Backward of the elementwise operations, the embeddings and the loss against central differences, in f64.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"
#include "tests/support/differences.h"

enum { ROWS = 6, WIDTH = 5 };
#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor matrix(double *data, int64_t columns)
{
    return hs_tensor_2d(data, HS_F64, ROWS, columns);
}

static void fill(double *values, int64_t count, uint32_t site)
{
    const HsRng rng = { .seed = 5, .site = site };
    for (int64_t i = 0; i < count; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        values[i] = 2.0 * normal[0];
    }
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* No loss here takes more than 1000 roundings in double, of numbers that sum to less than 1000. */
static void check(double (*loss)(void *), void *user, double *x, const double *gradient, int64_t count)
{
    const double rounding = hs_tolerance(1000, 0, HS_F64, HS_F64, 1000.0, 0.0);
    for (int64_t i = 0; i < count; i++) {
        const Difference expected = central_difference(loss, user, &x[i], rounding);
        cr_expect(fabs(gradient[i] - expected.derivative) <= expected.tolerance,
                  "[%d]: gradient %.12g, difference %.12g +- %.2g", (int)i, gradient[i], expected.derivative,
                  expected.tolerance);
    }
}

typedef struct Gated {
    HsActivation gate;
    double x[ROWS * 2 * WIDTH], r[ROWS * WIDTH], y[ROWS * WIDTH];
} Gated;

static double gated_loss(void *user)
{
    Gated *g = user;
    HsContext context = reference();
    RUN(hs_op_swiglu_forward(&context, &(HsUnaryArgs){ g->gate, matrix(g->x, 2 * WIDTH), matrix(g->y, WIDTH) }));
    return dot(g->y, g->r, ROWS * WIDTH);
}

static void check_gate(HsActivation gate)
{
    static Gated g;
    static double dx[ROWS * 2 * WIDTH];
    g.gate = gate;
    fill(g.x, ROWS * 2 * WIDTH, 0), fill(g.r, ROWS * WIDTH, 1);
    HsContext context = reference();
    RUN(hs_op_swiglu_backward(
        &context, &(HsUnaryBackwardArgs){ gate, matrix(g.r, WIDTH), matrix(g.x, 2 * WIDTH), matrix(dx, 2 * WIDTH) }));
    check(gated_loss, &g, g.x, dx, ROWS * 2 * WIDTH);
}

Test(gradients, swiglu_and_geglu)
{
    check_gate(HS_ACTIVATION_SILU);
    check_gate(HS_ACTIVATION_GELU);
}

static const HsRng mask_rng = { .seed = 4, .step = 9, .site = 2, .row_offset = 3 };

typedef struct Dropout {
    double x[ROWS * WIDTH], residual[ROWS * WIDTH], r[ROWS * WIDTH], y[ROWS * WIDTH];
} Dropout;

static double dropout_loss(void *user)
{
    Dropout *d = user;
    HsContext context = reference();
    RUN(hs_op_dropout_forward(&context, &(HsDropoutArgs){ .probability = 0.4f,
                                                          .rng = mask_rng,
                                                          .x = matrix(d->x, WIDTH),
                                                          .residual = matrix(d->residual, WIDTH),
                                                          .y = matrix(d->y, WIDTH) }));
    return dot(d->y, d->r, ROWS * WIDTH);
}

Test(gradients, dropout)
{
    static Dropout d;
    static double dx[ROWS * WIDTH];
    fill(d.x, ROWS * WIDTH, 0), fill(d.residual, ROWS * WIDTH, 1), fill(d.r, ROWS * WIDTH, 2);
    HsContext context = reference();
    RUN(hs_op_dropout_backward(
        &context,
        &(HsDropoutArgs){ .probability = 0.4f, .rng = mask_rng, .x = matrix(d.r, WIDTH), .y = matrix(dx, WIDTH) }));
    check(dropout_loss, &d, d.x, dx, ROWS * WIDTH);
    check(dropout_loss, &d, d.residual, d.r, ROWS * WIDTH);
}

typedef struct Loss {
    float z, cap;
    double logits[ROWS * WIDTH], losses[ROWS], dlogits[ROWS * WIDTH];
    int32_t targets[ROWS];
} Loss;

static const float gradient_scale = 0.25f;

static double capped(double x, float cap)
{
    return cap > 0.0f ? (double)cap * tanh(x / (double)cap) : x;
}

/* gs sum_n (loss_n + z lse_n^2), lse from the loss itself; ignored rows count nothing. */
static double total_loss(void *user)
{
    Loss *l = user;
    HsContext context = reference();
    RUN(hs_op_cross_entropy(&context, &(HsCrossEntropyArgs){ .logits = matrix(l->logits, WIDTH),
                                                             .cap = l->cap,
                                                             .targets = hs_tensor_1d(l->targets, HS_I32, ROWS),
                                                             .z_loss = l->z,
                                                             .losses = hs_tensor_1d(l->losses, HS_F64, ROWS) }));
    double sum = 0.0;
    for (int n = 0; n < ROWS; n++) {
        if (l->targets[n] < 0)
            continue;
        const double lse = l->losses[n] + capped(l->logits[n * WIDTH + l->targets[n]], l->cap);
        sum += l->losses[n] + (double)l->z * lse * lse;
    }
    return (double)gradient_scale * sum;
}

static void check_cross_entropy(float z, float cap)
{
    static Loss l = { .targets = { 0, 4, -1, 2, 2, -1 } };
    l.z = z;
    l.cap = cap;
    fill(l.logits, ROWS * WIDTH, 0);
    HsContext context = reference();
    RUN(hs_op_cross_entropy(&context, &(HsCrossEntropyArgs){ .logits = matrix(l.logits, WIDTH),
                                                             .cap = cap,
                                                             .targets = hs_tensor_1d(l.targets, HS_I32, ROWS),
                                                             .z_loss = z,
                                                             .gradient_scale = &gradient_scale,
                                                             .losses = hs_tensor_1d(l.losses, HS_F64, ROWS),
                                                             .dlogits = matrix(l.dlogits, WIDTH) }));
    cr_assert_eq(l.losses[2], 0.0);
    for (int v = 0; v < WIDTH; v++)
        cr_assert_eq(l.dlogits[2 * WIDTH + v], 0.0, "an ignored row has a gradient");
    check(total_loss, &l, l.logits, l.dlogits, ROWS * WIDTH);
}

Test(gradients, cross_entropy)
{
    check_cross_entropy(0.0f, 0.0f);
}

Test(gradients, cross_entropy_with_z_loss)
{
    check_cross_entropy(0.125f, 0.0f);
}

Test(gradients, cross_entropy_of_capped_logits)
{
    check_cross_entropy(0.0f, 1.5f);
    check_cross_entropy(0.125f, 3.0f);
}

/* Rows 0 and 3 are replayed, 2 and 5 ignored; entries differ within a row, and one is missing. */
enum { KEPT = 3 };
typedef struct Distillation {
    float cap, teacher_cap;
    double logits[ROWS * WIDTH], dlogits[ROWS * WIDTH], teacher[ROWS * WIDTH], value[ROWS * KEPT], losses[ROWS];
    int32_t targets[ROWS], replayed[ROWS], index[ROWS * KEPT];
} Distillation;

static Distillation distillation(void)
{
    Distillation d = { .targets = { 0, 4, -1, 2, 2, -1 }, .replayed = { 1, 0, 1, 1, 0, 0 } };
    fill(d.logits, ROWS * WIDTH, 0), fill(d.teacher, ROWS * WIDTH, 1), fill(d.value, ROWS * KEPT, 2);
    for (int i = 0; i < ROWS * KEPT; i++)
        d.index[i] = i == 10 ? -1 : (i / KEPT + 2 * i) % WIDTH;
    return d;
}

static HsMatchLogitsArgs match_of(Distillation *d, float target_weight)
{
    return (HsMatchLogitsArgs){ .logits = matrix(d->logits, WIDTH),
                                .cap = d->cap,
                                .targets = hs_tensor_1d(d->targets, HS_I32, ROWS),
                                .replayed = hs_tensor_1d(d->replayed, HS_I32, ROWS),
                                .value = matrix(d->value, KEPT),
                                .index = hs_tensor_2d(d->index, HS_I32, ROWS, KEPT),
                                .weight = 0.75f,
                                .target_weight = target_weight,
                                .gradient_scale = &gradient_scale,
                                .losses = hs_tensor_1d(d->losses, HS_F64, ROWS),
                                .dlogits = matrix(d->dlogits, WIDTH) };
}

static HsDistillArgs distill_of(Distillation *d)
{
    return (HsDistillArgs){ .logits = matrix(d->logits, WIDTH),
                            .teacher = matrix(d->teacher, WIDTH),
                            .cap = d->cap,
                            .teacher_cap = d->teacher_cap,
                            .targets = hs_tensor_1d(d->targets, HS_I32, ROWS),
                            .replayed = hs_tensor_1d(d->replayed, HS_I32, ROWS),
                            .fresh = { .weight = 0.75f, .temperature = 2.0f, .target_weight = 1.0f },
                            .gradient_scale = &gradient_scale,
                            .losses = hs_tensor_1d(d->losses, HS_F64, ROWS),
                            .dlogits = matrix(d->dlogits, WIDTH) };
}

static double sum_of(const double *losses)
{
    double sum = 0.0;
    for (int n = 0; n < ROWS; n++)
        sum += losses[n];
    return (double)gradient_scale * sum;
}

static double match_loss(void *user)
{
    HsContext context = reference();
    const HsMatchLogitsArgs args = match_of(user, 1.0f);
    RUN(hs_op_match_logits(&context, &args));
    return sum_of(((Distillation *)user)->losses);
}

static double distill_loss(void *user)
{
    HsContext context = reference();
    const HsDistillArgs args = distill_of(user);
    RUN(hs_op_distill(&context, &args));
    return sum_of(((Distillation *)user)->losses);
}

static void check_match_logits(float cap)
{
    static Distillation d;
    static double gradient[ROWS * WIDTH];
    d = distillation();
    d.cap = cap;
    HsContext context = reference();
    const HsMatchLogitsArgs args = match_of(&d, 1.0f);
    RUN(hs_op_match_logits(&context, &args));
    memcpy(gradient, d.dlogits, sizeof gradient);
    cr_expect(d.losses[0] > 0 && d.losses[3] > 0 && d.losses[1] == 0 && d.losses[2] == 0);
    check(match_loss, &d, d.logits, gradient, ROWS * WIDTH);
}

Test(gradients, match_logits)
{
    check_match_logits(0.0f);
    check_match_logits(2.0f);
}

/* What is there already, the cross-entropy's gradient, weighs b in the rows that are matched, and 1 in the others. */
Test(gradients, match_logits_weighs_the_targets)
{
    static Distillation without, with;
    without = distillation();
    without.cap = 2.0f; /* what is there already is a gradient through the cap */
    with = without;
    fill(with.dlogits, ROWS * WIDTH, 7);
    double before[ROWS * WIDTH];
    memcpy(before, with.dlogits, sizeof before);
    HsContext context = reference();
    const HsMatchLogitsArgs alone = match_of(&without, 0.5f), both = match_of(&with, 0.5f);
    RUN(hs_op_match_logits(&context, &alone));
    RUN(hs_op_match_logits(&context, &both));
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const bool matched = i / WIDTH == 0 || i / WIDTH == 3;
        const double expected = (matched ? 0.5 : 1.0) * before[i] + without.dlogits[i];
        cr_expect_float_eq(with.dlogits[i], expected, 4 * DBL_EPSILON * (fabs(before[i]) + fabs(without.dlogits[i])));
    }
}

static void check_distill(float cap, float teacher_cap)
{
    static Distillation d;
    static double gradient[ROWS * WIDTH];
    d = distillation();
    d.cap = cap;
    d.teacher_cap = teacher_cap;
    HsContext context = reference();
    const HsDistillArgs args = distill_of(&d);
    RUN(hs_op_distill(&context, &args));
    memcpy(gradient, d.dlogits, sizeof gradient);
    cr_expect(d.losses[1] > 0 && d.losses[4] > 0 && d.losses[0] == 0 && d.losses[5] == 0);
    check(distill_loss, &d, d.logits, gradient, ROWS * WIDTH);
    memcpy(d.teacher, d.logits, sizeof d.teacher);
    cr_expect_eq(fabs(distill_loss(&d)) < 1e-15, cap == teacher_cap,
                 "a student that agrees with its teacher has nothing to learn");
}

Test(gradients, distill)
{
    check_distill(0.0f, 0.0f);
}

Test(gradients, distill_capped_logits)
{
    check_distill(1.5f, 1.5f);
    check_distill(3.0f, 0.0f);
    check_distill(0.0f, 1.5f);
}

static const HsTeaching taught_again = { .weight = 1.5f, .temperature = 0.5f, .target_weight = 0.25f };

static double distill_again_loss(void *user)
{
    HsContext context = reference();
    HsDistillArgs args = distill_of(user);
    args.fresh.weight = 0.0f;
    args.again = taught_again;
    RUN(hs_op_distill(&context, &args));
    return sum_of(((Distillation *)user)->losses);
}

/* Rows 0 and 3 are replayed and have targets; what is there already weighs b in them, and 1 in the others. */
Test(gradients, distill_replayed_rows)
{
    static Distillation d, with;
    static double gradient[ROWS * WIDTH];
    d = distillation();
    d.cap = 2.0f;
    with = d;
    fill(with.dlogits, ROWS * WIDTH, 7);
    double before[ROWS * WIDTH];
    memcpy(before, with.dlogits, sizeof before);
    d.losses[1] = 7.0;
    (void)distill_again_loss(&d);
    memcpy(gradient, d.dlogits, sizeof gradient);
    cr_expect(d.losses[0] > 0 && d.losses[3] > 0 && d.losses[1] == 0 && d.losses[2] == 0);
    check(distill_again_loss, &d, d.logits, gradient, ROWS * WIDTH);
    (void)distill_again_loss(&with);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const bool taught = i / WIDTH == 0 || i / WIDTH == 3;
        const double expected = (taught ? 0.25 : 1.0) * before[i] + gradient[i];
        cr_expect_float_eq(with.dlogits[i], expected, 4 * DBL_EPSILON * (fabs(before[i]) + fabs(gradient[i])));
    }
}

enum { VOCABULARY = 4, LENGTH = 3, POSITIONS = 5 };

typedef struct Embedding {
    float factor;
    double table[VOCABULARY * WIDTH], positions[POSITIONS * WIDTH], r[ROWS * WIDTH], y[ROWS * WIDTH];
    int32_t tokens[ROWS];
} Embedding;

static double embedding_loss(void *user)
{
    Embedding *e = user;
    HsContext context = reference();
    RUN(hs_op_embedding_forward(
        &context, &(HsEmbeddingArgs){ .tokens = hs_tensor_1d(e->tokens, HS_I32, ROWS),
                                      .token_table = hs_tensor_2d(e->table, HS_F64, VOCABULARY, WIDTH),
                                      .position_table = hs_tensor_2d(e->positions, HS_F64, POSITIONS, WIDTH),
                                      .sequence_length = LENGTH,
                                      .factor = e->factor,
                                      .y = matrix(e->y, WIDTH) }));
    return dot(e->y, e->r, ROWS * WIDTH);
}

static void check_embedding(float factor)
{
    static Embedding e = { .tokens = { 1, 3, 1, 0, 1, 3 } };
    double dtable[VOCABULARY * WIDTH] = { 0 }, dpositions[POSITIONS * WIDTH] = { 0 };
    e.factor = factor;
    fill(e.table, VOCABULARY * WIDTH, 0), fill(e.positions, POSITIONS * WIDTH, 1), fill(e.r, ROWS * WIDTH, 2);
    HsContext context = reference();
    RUN(hs_op_embedding_backward(
        &context, &(HsEmbeddingBackwardArgs){ .tokens = hs_tensor_1d(e.tokens, HS_I32, ROWS),
                                              .dy = matrix(e.r, WIDTH),
                                              .sequence_length = LENGTH,
                                              .factor = factor,
                                              .dtoken_table = hs_tensor_2d(dtable, HS_F64, VOCABULARY, WIDTH),
                                              .dposition_table = hs_tensor_2d(dpositions, HS_F64, POSITIONS, WIDTH) }));
    check(embedding_loss, &e, e.table, dtable, VOCABULARY * WIDTH);
    check(embedding_loss, &e, e.positions, dpositions, POSITIONS * WIDTH);
}

Test(gradients, embedding)
{
    check_embedding(1.0f);
    check_embedding(-2.5f);
}
