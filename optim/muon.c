/* SPDX-License-Identifier: MIT
 *
 * Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): a matrix moves by its momentum, made orthogonal.
 *
 *     m = b m + (1 - b) g;   u = (1 - b) g + b m  (nesterov), or m
 *     X = u / (|u|_F + 1e-7);   `steps` times:  A = X X^T,  B = c1 A + c2 A^2,  X = c0 X + B X
 *     p -= lr (wd p + 0.2 sqrt(max(rows, columns)) X)
 *
 * What later work changes of it, each by itself or with the others, in this order:
 *     b rises at first, and falls as the learning rate does (HsMuonConfig's momenta)
 *     heads of queries and of keys are matrices by themselves, in groups (head_group)
 *     u's rows get one length (equilibrate: MuonEq, arXiv 2603.28254)
 *     X's rows are divided by the root of their running mean square, and X brought back to the size that the factor below
 *     would give it, a root mean square of 0.2 (beta2: NorMuon, Li et al. 2025, arXiv 2510.05491, algorithm 1)
 *     p decays only where the step brings it nearer to 0 (cautious_decay: Chen et al. 2025, arXiv 2510.12402)
 *
 * The polynomial c0 x + c1 x^3 + c2 x^5 is the same in every step (newton-schulz): five take singular values from 0.01
 * to 1 to 0.68 .. 1.13.  Or it is the best for what the steps before leave (polar-express; Amsel et al. 2025, arXiv
 * 2505.16932, algorithm 1): five take those from 0.001 on to 0.84 .. 1.15, and more repeat the last.  A tall matrix is
 * iterated from its other side, X = c0 X + X (c1 A + c2 A^2) with A = X^T X, which is the same in smaller products.
 * Operands are rounded to the mode's product format, sums are f32.
 *
 * The factor 0.2 sqrt(max(rows, columns)) gives the step the root mean square that AdamW's has (Liu et al. 2025, "Muon
 * is scalable for LLM training", eq. 4), so that a learning rate and a weight decay tuned for AdamW serve the matrices
 * too, and one rate serves the whole model.
 *
 * Scratch:  | u f32, later X of every other step | X | A | B | lengths of rows | sum of squares | count of non-finite
 * elements |
 */
#include <math.h>

#include "kernels/base/size.h"
#include "optim/rules.h"

/* Those of polar-express were made for singular values from 0.001 to 1, and hold up to 1.01.  Roundings to 16 bits may
 * leave more than that: the first one divides by 1.02, as nanochat does.  The last one is repeated. */
#define MARGIN 1.02
#define SIZE   0.2f /* root mean square of a step, over the learning rate */
static const struct {
    int count;
    double coefficients[5][3];
} polynomials[HS_MUON_POLYNOMIAL_COUNT] = {
    [HS_MUON_NEWTON_SCHULZ] = { 1, { { 3.4445, -4.7750, 2.0315 } } },
    [HS_MUON_POLAR_EXPRESS] = { 5,
                                { { 8.156554524902461 / MARGIN, -22.48329292557795 / (MARGIN * MARGIN * MARGIN),
                                    15.878769915207462 / (MARGIN * MARGIN * MARGIN * MARGIN * MARGIN) },
                                  { 4.042929935166739, -2.808917465908714, 0.5000178451051316 },
                                  { 3.8916678022926607, -2.772484153217685, 0.5060648178503393 },
                                  { 3.285753657755655, -2.3681294933425376, 0.46449024233003106 },
                                  { 2.3465413258596377, -1.7097828382687081, 0.42323551169305323 } } },
};
#undef MARGIN
static const float norm_epsilon = 1e-7f;
/* Of mean squares: rows of gradients far below float's roots are divided by this in place of themselves. */
static const float row_epsilon = 1e-30f, neuron_epsilon = 1e-10f;

bool hs_muon_serves(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    return span->part_count > 0;
}

HsStatus hs_muon_check(const HsOptimizerConfig *config)
{
    const HsMuonConfig *muon = &config->muon;
    HS_TRY(hs_rule_check_setting("muon.momentum", muon->momentum, 1));
    HS_TRY(hs_rule_check_setting("muon.momentum_start", muon->momentum_start, 1));
    HS_TRY(hs_rule_check_setting("muon.momentum_end", muon->momentum_end, 1));
    HS_TRY(hs_rule_check_setting("muon.beta2", muon->beta2, 1));
    if (muon->steps < 1)
        return hs_fail(HS_ECONFIG, "optimizer: muon.steps must be at least 1 (got %lld)", (long long)muon->steps);
    return HS_OK;
}

double hs_muon_momentum(const HsMuonConfig *muon, const HsSchedule *schedule, int64_t applied_steps)
{
    if (applied_steps < muon->momentum_warmup_steps)
        return muon->momentum_start +
               (muon->momentum - muon->momentum_start) * (double)applied_steps / (double)muon->momentum_warmup_steps;
    return muon->momentum_end + hs_schedule_share(schedule, applied_steps) * (muon->momentum - muon->momentum_end);
}

/* --- what is made orthogonal by itself --- */

/* Rows of a stack: a part of it, or some heads of its queries or keys, which are its first two parts. */
typedef struct Matrix {
    int64_t row, rows;
} Matrix;

/* The one that begins at `row`; rows 0: the stack ends there. */
static Matrix matrix_at(const HsMuonConfig *muon, const HsSpan *span, int64_t row)
{
    const int64_t heads = muon->head_group * span->head_rows;
    int64_t end = 0;
    for (int i = 0; i < span->part_count; i++) {
        end += span->part_rows[i];
        if (row < end)
            return (Matrix){ row, heads > 0 && i < 2 && heads < end - row ? heads : end - row };
    }
    return (Matrix){ row, 0 };
}

#define FOR_MATRICES(matrix, muon, span)                            \
    for (Matrix matrix = matrix_at(muon, span, 0); matrix.rows > 0; \
         matrix = matrix_at(muon, span, matrix.row + matrix.rows))

/* Tensors of the scratch; data NULL as long as base is. */
typedef struct Scratch {
    HsTensor u, x[2], gram, polynomial, rstd;
    double *sum_squares;
    int64_t *nonfinite;
    size_t bytes;
} Scratch;

static size_t append(size_t *used, size_t bytes)
{
    const size_t at = *used;
    *used = hs_size_add(at, hs_size_align(bytes, HS_ARENA_ALIGNMENT));
    return at;
}

/* The shorter side of the largest square product. */
static int64_t largest_side(const HsMuonConfig *muon, const HsSpan *span)
{
    const int64_t columns = span->weight.shape[1];
    int64_t largest = 0;
    FOR_MATRICES(matrix, muon, span)
    {
        const int64_t side = matrix.rows < columns ? matrix.rows : columns;
        largest = side > largest ? side : largest;
    }
    return largest;
}

static Scratch lay_out(const HsMuonConfig *muon, const HsSpan *span, unsigned char *base)
{
    const int64_t rows = span->weight.shape[0], columns = span->weight.shape[1], side = largest_side(muon, span);
    Scratch scratch = { .u = hs_tensor_2d(NULL, HS_F32, rows, columns),
                        .x = { hs_tensor_2d(NULL, muon->product, rows, columns),
                               hs_tensor_2d(NULL, muon->product, rows, columns) },
                        .gram = hs_tensor_2d(NULL, muon->product, side, side),
                        .polynomial = hs_tensor_2d(NULL, muon->product, side, side),
                        .rstd = hs_tensor_1d(NULL, HS_F32, rows) };
    size_t used = 0;
    const size_t u = append(&used, hs_tensor_bytes(&scratch.u)), x = append(&used, hs_tensor_bytes(&scratch.x[0]));
    const size_t gram = append(&used, hs_tensor_bytes(&scratch.gram));
    const size_t polynomial = append(&used, hs_tensor_bytes(&scratch.polynomial));
    const size_t rstd = append(&used, muon->equilibrate ? hs_tensor_bytes(&scratch.rstd) : 0);
    const size_t sums = append(&used, sizeof *scratch.sum_squares);
    const size_t counts = append(&used, sizeof *scratch.nonfinite);
    scratch.bytes = used;
    if (base == NULL)
        return scratch;
    scratch.u.data = scratch.x[1].data = base + u;
    scratch.x[0].data = base + x;
    scratch.gram.data = base + gram;
    scratch.polynomial.data = base + polynomial;
    scratch.rstd.data = base + rstd;
    scratch.sum_squares = (double *)(void *)(base + sums);
    scratch.nonfinite = (int64_t *)(void *)(base + counts);
    return scratch;
}

size_t hs_muon_scratch_bytes(const HsOptimizerConfig *config, const HsSpan *span)
{
    return lay_out(&config->muon, span, NULL).bytes;
}

static HsTensor part_of(const HsTensor *whole, int64_t first_row, int64_t rows)
{
    HsTensor part = *whole;
    if (part.data)
        part.data = (unsigned char *)part.data + (size_t)(first_row * part.shape[1]) * hs_dtype_bytes(part.dtype);
    part.shape[0] = rows;
    return part;
}

/* next = scale (c[0] x + B x), or with x B for a tall one. */
static HsStatus iterate(HsContext *context, const HsMuonConfig *muon, const Scratch *scratch, const double *c,
                        const HsTensor *x, const HsTensor *next, double scale)
{
    const bool tall = x->shape[0] > x->shape[1];
    const int64_t side = tall ? x->shape[1] : x->shape[0];
    HsTensor gram = scratch->gram, polynomial = scratch->polynomial;
    gram.shape[0] = gram.shape[1] = polynomial.shape[0] = polynomial.shape[1] = side;
    /* G = c1 A, so that c1 A + c2 A A = G + (c2 / c1^2) G G. */
    const HsMatmulArgs gram_of = { .a.values = *x,
                                   .b.values = *x,
                                   .transpose_a = tall,
                                   .transpose_b = !tall,
                                   .symmetric = true,
                                   .alpha = (float)c[1],
                                   .policy = muon->policy,
                                   .c = gram };
    HS_TRY(hs_op_matmul(context, &gram_of));
    const HsMatmulArgs square = { .a.values = gram,
                                  .b.values = gram,
                                  .symmetric = true,
                                  .alpha = (float)(c[2] / (c[1] * c[1])),
                                  .policy = muon->policy,
                                  .addend = gram,
                                  .c = polynomial };
    HS_TRY(hs_op_matmul(context, &square));
    const HsMatmulArgs apply = { .a.values = tall ? *x : polynomial,
                                 .b.values = tall ? polynomial : *x,
                                 .alpha = 1.0f,
                                 .policy = muon->policy,
                                 .c = *next };
    HS_TRY(hs_op_matmul(context, &apply));
    return hs_op_combine(context,
                         &(HsCombineArgs){ .x = *x, .y = *next, .alpha = (float)(scale * c[0]), .beta = (float)scale });
}

/* u / |u|_F into x[0], its rows of one length before where that is asked for.  The memory of u up to its end is an X's
 * afterwards. */
static HsStatus normalize(HsContext *context, const HsMuonConfig *muon, const Scratch *scratch, Matrix matrix)
{
    const HsTensor u = part_of(&scratch->u, matrix.row, matrix.rows);
    if (muon->equilibrate) {
        HsTensor rstd = scratch->rstd;
        rstd.shape[0] = matrix.rows;
        HS_TRY(hs_op_norm_forward(
            context, &(HsNormArgs){ .kind = HS_NORM_RMS, .epsilon = row_epsilon, .x = u, .y = u, .rstd = rstd }));
    }
    HS_TRY(hs_op_grad_stats(context, &(HsGradStatsArgs){ .tensors = &u,
                                                         .count = 1,
                                                         .sum_squares = scratch->sum_squares,
                                                         .nonfinite = scratch->nonfinite }));
    return hs_op_normalize(context, &(HsNormalizeArgs){ .x = u,
                                                        .sum_squares = scratch->sum_squares,
                                                        .epsilon = norm_epsilon,
                                                        .y = part_of(&scratch->x[0], matrix.row, matrix.rows) });
}

/* The result is in x[steps % 2]. */
static HsStatus orthogonalize(HsContext *context, const HsMuonConfig *muon, const Scratch *scratch, Matrix matrix)
{
    const int64_t columns = scratch->u.shape[1];
    const double size = SIZE * sqrt((double)(matrix.rows > columns ? matrix.rows : columns));
    HS_TRY(normalize(context, muon, scratch, matrix));
    for (int64_t step = 0; step < muon->steps; step++) {
        const HsTensor x = part_of(&scratch->x[step % 2], matrix.row, matrix.rows);
        const HsTensor next = part_of(&scratch->x[(step + 1) % 2], matrix.row, matrix.rows);
        const int last = polynomials[muon->polynomial].count - 1;
        const double *c = polynomials[muon->polynomial].coefficients[step < last ? step : last];
        HS_TRY(iterate(context, muon, scratch, c, &x, &next, step + 1 < muon->steps ? 1.0 : size));
    }
    return HS_OK;
}

static HsStatus scale_neurons(HsContext *context, const HsMuonConfig *muon, const HsSpan *span,
                              const HsStepScalars *scalars, const HsTensor *x, Matrix matrix)
{
    float *second_moment = span->state[1].data;
    return hs_op_scale_neurons(
        context, &(HsScaleNeuronsArgs){ .scalars = scalars,
                                        .beta2 = (float)muon->beta2,
                                        .epsilon = neuron_epsilon,
                                        .size = SIZE,
                                        .x = part_of(x, matrix.row, matrix.rows),
                                        .second_moment = hs_tensor_1d(second_moment ? second_moment + matrix.row : NULL,
                                                                      HS_F32, matrix.rows) });
}

HsStatus hs_muon_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsUpdateArgs *update,
                       void *memory)
{
    const HsMuonConfig *muon = &optimizer->config.muon;
    const Scratch scratch = lay_out(muon, span, memory);
    const HsTensor *direction = &scratch.x[muon->steps % 2];
    HS_TRY(hs_op_momentum(
        context, &(HsMomentumArgs){
                     .update = *update, .nesterov = muon->nesterov, .m = span->state[0], .direction = scratch.u }));
    FOR_MATRICES(matrix, muon, span)
    {
        HS_TRY(orthogonalize(context, muon, &scratch, matrix));
        if (muon->beta2 > 0)
            HS_TRY(scale_neurons(context, muon, span, update->scalars, direction, matrix));
    }
    return hs_op_descend(
        context, &(HsDescendArgs){ .update = *update, .cautious = muon->cautious_decay, .direction = *direction });
}
