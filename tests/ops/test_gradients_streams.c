/* SPDX-License-Identifier: MIT
 *
 * Backward of blends, gates, smear and added values against central differences of forward, in f64.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"
#include "tests/support/differences.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))
#define RUN(call)    cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { ROWS = 6, WIDTH = 5, NUMBERS = 3, AT = 1 };

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor vector(double *data, int64_t count)
{
    return hs_tensor_1d(data, HS_F64, count);
}

static HsTensor matrix(double *data, int64_t rows, int64_t columns)
{
    return hs_tensor_2d(data, HS_F64, rows, columns);
}

static void fill(double *values, int64_t count, uint32_t site)
{
    const HsRng rng = { .seed = 17, .site = site };
    for (int64_t i = 0; i < count; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        values[i] = normal[0];
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
static void check(const char *name, double (*loss)(void *), void *user, double *x, const double *gradient,
                  int64_t count)
{
    const double rounding = hs_tolerance(1000, 0, HS_F64, HS_F64, 1000.0, 0.0);
    for (int64_t i = 0; i < count; i++) {
        const Difference expected = central_difference(loss, user, &x[i], rounding);
        cr_expect(fabs(gradient[i] - expected.derivative) <= expected.tolerance,
                  "%s[%d]: gradient %.12g, difference %.12g +- %.2g", name, (int)i, gradient[i], expected.derivative,
                  expected.tolerance);
    }
}

/* Gradients that accumulate begin at 1, which is taken off. */
static void fill_ones(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 1.0;
}

static void take_ones(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] -= 1.0;
}

typedef struct Blend {
    float sign;
    bool weighted;
    double a[NUMBERS], b[NUMBERS], x[ROWS * WIDTH], z[ROWS * WIDTH], r[ROWS * WIDTH], y[ROWS * WIDTH];
} Blend;

static double blend_loss(void *user)
{
    Blend *m = user;
    HsContext context = reference();
    RUN(hs_op_blend_forward(&context, &(HsBlendArgs){ .at = AT,
                                                      .sign = m->sign,
                                                      .a = m->weighted ? vector(m->a, NUMBERS) : (HsTensor){ 0 },
                                                      .b = vector(m->b, NUMBERS),
                                                      .x = matrix(m->x, ROWS, WIDTH),
                                                      .z = matrix(m->z, ROWS, WIDTH),
                                                      .y = matrix(m->y, ROWS, WIDTH) }));
    return dot(m->y, m->r, COUNT(m->y));
}

static void check_blend(float sign, bool weighted)
{
    Blend m = { .sign = sign, .weighted = weighted };
    double dx[ROWS * WIDTH], dz[ROWS * WIDTH], da[NUMBERS], db[NUMBERS];
    const HsTensor absent = { 0 };
    fill(m.a, NUMBERS, 0), fill(m.b, NUMBERS, 1), fill(m.x, COUNT(m.x), 2), fill(m.z, COUNT(m.z), 3);
    fill(m.r, COUNT(m.r), 4);
    fill_ones(dz, COUNT(dz)), fill_ones(da, NUMBERS), fill_ones(db, NUMBERS);
    memcpy(dx, m.r, sizeof dx);
    HsContext context = reference();
    RUN(hs_op_blend_backward(&context, &(HsBlendBackwardArgs){ .at = AT,
                                                               .sign = sign,
                                                               .a = weighted ? vector(m.a, NUMBERS) : absent,
                                                               .b = vector(m.b, NUMBERS),
                                                               .dy = matrix(dx, ROWS, WIDTH),
                                                               .x = weighted ? matrix(m.x, ROWS, WIDTH) : absent,
                                                               .z = matrix(m.z, ROWS, WIDTH),
                                                               .accumulate_z = true,
                                                               .dx = matrix(dx, ROWS, WIDTH),
                                                               .dz = matrix(dz, ROWS, WIDTH),
                                                               .da = weighted ? vector(da, NUMBERS) : absent,
                                                               .db = vector(db, NUMBERS) }));
    take_ones(dz, COUNT(dz)), take_ones(da, NUMBERS), take_ones(db, NUMBERS);
    check("x", blend_loss, &m, m.x, dx, COUNT(dx));
    check("z", blend_loss, &m, m.z, dz, COUNT(dz));
    check("a", blend_loss, &m, m.a, da, NUMBERS);
    check("b", blend_loss, &m, m.b, db, NUMBERS);
}

Test(gradients_of_streams, blend)
{
    check_blend(1.0f, true);
    check_blend(-1.0f, true);
    check_blend(-1.0f, false);
}

enum { GATES = 3, FEATURES = 4 };

typedef struct Gate {
    double x[ROWS * WIDTH], w[GATES * FEATURES], r[ROWS * GATES], gate[ROWS * GATES];
} Gate;

static const float most = 1.5f;

static double gate_loss(void *user)
{
    Gate *g = user;
    HsContext context = reference();
    RUN(hs_op_gate_forward(&context, &(HsGateArgs){ .factor = most,
                                                    .x = matrix(g->x, ROWS, WIDTH),
                                                    .w = matrix(g->w, GATES, FEATURES),
                                                    .gate = matrix(g->gate, ROWS, GATES) }));
    return dot(g->gate, g->r, COUNT(g->gate));
}

static void check_gate(bool accumulate)
{
    Gate g;
    double dx[ROWS * WIDTH], dw[GATES * FEATURES];
    fill(g.x, COUNT(g.x), 0), fill(g.w, COUNT(g.w), 1), fill(g.r, COUNT(g.r), 2);
    fill_ones(dx, COUNT(dx)), fill_ones(dw, COUNT(dw));
    gate_loss(&g);
    HsContext context = reference();
    RUN(hs_op_gate_backward(&context, &(HsGateBackwardArgs){ .factor = most,
                                                             .dgate = matrix(g.r, ROWS, GATES),
                                                             .gate = matrix(g.gate, ROWS, GATES),
                                                             .x = matrix(g.x, ROWS, WIDTH),
                                                             .w = matrix(g.w, GATES, FEATURES),
                                                             .accumulate = accumulate,
                                                             .dx = matrix(dx, ROWS, WIDTH),
                                                             .dw = matrix(dw, GATES, FEATURES) }));
    take_ones(dw, COUNT(dw));
    if (accumulate)
        take_ones(dx, COUNT(dx));
    check("x", gate_loss, &g, g.x, dx, COUNT(dx));
    check("w", gate_loss, &g, g.w, dw, COUNT(dw));
}

Test(gradients_of_streams, gate)
{
    check_gate(false);
    check_gate(true);
}

typedef struct Smear {
    int32_t *starts;
    double x[ROWS * WIDTH], gate[ROWS], strength[1], r[ROWS * WIDTH], y[ROWS * WIDTH];
} Smear;

enum { LENGTH = 3 };

static HsTensor starts_of(const Smear *s)
{
    return s->starts ? hs_tensor_1d(s->starts, HS_I32, ROWS) : (HsTensor){ 0 };
}

static double smear_loss(void *user)
{
    Smear *s = user;
    HsContext context = reference();
    RUN(hs_op_smear_forward(&context, &(HsSmearArgs){ .sequence_length = LENGTH,
                                                      .starts = starts_of(s),
                                                      .x = matrix(s->x, ROWS, WIDTH),
                                                      .gate = matrix(s->gate, ROWS, 1),
                                                      .strength = vector(s->strength, 1),
                                                      .y = matrix(s->y, ROWS, WIDTH) }));
    return dot(s->y, s->r, COUNT(s->y));
}

static void check_smear(int32_t *starts)
{
    Smear s = { .starts = starts };
    double dx[ROWS * WIDTH], dgate[ROWS], dstrength[1] = { 1.0 };
    fill(s.x, COUNT(s.x), 0), fill(s.gate, ROWS, 1), fill(s.strength, 1, 2), fill(s.r, COUNT(s.r), 3);
    HsContext context = reference();
    RUN(hs_op_smear_backward(&context, &(HsSmearBackwardArgs){ .sequence_length = LENGTH,
                                                               .starts = starts_of(&s),
                                                               .dy = matrix(s.r, ROWS, WIDTH),
                                                               .x = matrix(s.x, ROWS, WIDTH),
                                                               .gate = matrix(s.gate, ROWS, 1),
                                                               .strength = vector(s.strength, 1),
                                                               .dx = matrix(dx, ROWS, WIDTH),
                                                               .dgate = matrix(dgate, ROWS, 1),
                                                               .dstrength = vector(dstrength, 1) }));
    take_ones(dstrength, 1);
    check("x", smear_loss, &s, s.x, dx, COUNT(dx));
    check("gate", smear_loss, &s, s.gate, dgate, ROWS);
    check("strength", smear_loss, &s, s.strength, dstrength, 1);
}

Test(gradients_of_streams, smear)
{
    int32_t starts[ROWS] = { 0, 1, 1, 0, 0, 2 };
    check_smear(NULL);
    check_smear(starts);
}

/* Two sequences of three, two query heads on two heads of two features. */
static const HsHeads heads = { .batch = 2, .sequence_length = 3, .heads = 2, .kv_heads = 2, .head_dim = 2 };
enum { VOCABULARY = 4, VALUES = 4, PROJECTION = 12, KV_HEADS = 2 };

typedef struct Added {
    int32_t tokens[ROWS];
    double table[VOCABULARY * VALUES], gate[ROWS * KV_HEADS];
    double x[ROWS * PROJECTION], r[ROWS * PROJECTION], y[ROWS * PROJECTION];
} Added;

static double added_loss(void *user)
{
    Added *v = user;
    HsContext context = reference();
    RUN(hs_op_add_values_forward(&context, &(HsAddValuesArgs){ .heads = heads,
                                                               .tokens = hs_tensor_1d(v->tokens, HS_I32, ROWS),
                                                               .table = matrix(v->table, VOCABULARY, VALUES),
                                                               .gate = matrix(v->gate, ROWS, KV_HEADS),
                                                               .x = matrix(v->x, ROWS, PROJECTION),
                                                               .y = matrix(v->y, ROWS, PROJECTION) }));
    return dot(v->y, v->r, COUNT(v->y));
}

/* The rows' gradients go on to the table as an embedding's do. */
Test(gradients_of_streams, added_values)
{
    Added v = { .tokens = { 1, 3, 1, 0, 1, 3 } };
    double drows[ROWS * VALUES], dtable[VOCABULARY * VALUES] = { 0 }, dgate[ROWS * KV_HEADS];
    fill(v.table, COUNT(v.table), 0), fill(v.gate, COUNT(v.gate), 1), fill(v.x, COUNT(v.x), 2);
    fill(v.r, COUNT(v.r), 3);
    HsContext context = reference();
    const HsTensor tokens = hs_tensor_1d(v.tokens, HS_I32, ROWS);
    RUN(hs_op_add_values_backward(&context, &(HsAddValuesBackwardArgs){ .heads = heads,
                                                                        .tokens = tokens,
                                                                        .table = matrix(v.table, VOCABULARY, VALUES),
                                                                        .gate = matrix(v.gate, ROWS, KV_HEADS),
                                                                        .dy = matrix(v.r, ROWS, PROJECTION),
                                                                        .drows = matrix(drows, ROWS, VALUES),
                                                                        .dgate = matrix(dgate, ROWS, KV_HEADS) }));
    RUN(hs_op_embedding_backward(&context,
                                 &(HsEmbeddingBackwardArgs){ .tokens = tokens,
                                                             .dy = matrix(drows, ROWS, VALUES),
                                                             .sequence_length = heads.sequence_length,
                                                             .factor = 1.0f,
                                                             .dtoken_table = matrix(dtable, VOCABULARY, VALUES) }));
    check("x", added_loss, &v, v.x, v.r, COUNT(v.x));
    check("table", added_loss, &v, v.table, dtable, COUNT(dtable));
    check("gate", added_loss, &v, v.gate, dgate, COUNT(dgate));
}
