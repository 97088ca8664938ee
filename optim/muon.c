/* SPDX-License-Identifier: MIT
 *
 * Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): a matrix moves by its momentum, made orthogonal.
 *
 *     m = b m + (1 - b) g;   u = (1 - b) g + b m  (nesterov), or m
 *     X = u / (|u|_F + 1e-7);   `steps` times:  A = X X^T,  B = c1 A + c2 A^2,  X = c0 X + B X
 *     p -= lr (wd p + 0.2 sqrt(max(rows, columns)) X)
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
 * Scratch:  | u f32, later X of every other step | X | A | B | sums of squares | counts of non-finite elements |
 */
#include <math.h>

#include "kernels/base/size.h"
#include "optim/rules.h"

/* Those of polar-express were made for singular values from 0.001 to 1, and hold up to 1.01.  Roundings to 16 bits may
 * leave more than that: the first one divides by 1.02, as nanochat does.  The last one is repeated. */
#define MARGIN 1.02
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
enum { MOST_PARTS = 8 };

bool hs_muon_serves(const HsSpan *span)
{
    return span->part_count > 0 && span->part_count <= MOST_PARTS;
}

HsStatus hs_muon_check(const HsOptimizerConfig *config)
{
    const HsMuonConfig *muon = &config->muon;
    HS_TRY(hs_rule_check_setting("muon.momentum", muon->momentum, 1));
    if (muon->steps < 1)
        return hs_fail(HS_ECONFIG, "optimizer: muon.steps must be at least 1 (got %lld)", (long long)muon->steps);
    return HS_OK;
}

/* Tensors of the scratch; data NULL as long as base is. */
typedef struct Scratch {
    HsTensor u, x[2], gram, polynomial;
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
static int64_t largest_side(const HsSpan *span)
{
    int64_t largest = 0;
    for (int i = 0; i < span->part_count; i++) {
        const int64_t rows = span->part_rows[i], columns = span->weight.shape[1];
        const int64_t side = rows < columns ? rows : columns;
        largest = side > largest ? side : largest;
    }
    return largest;
}

static Scratch lay_out(const HsMuonConfig *muon, const HsSpan *span, unsigned char *base)
{
    const int64_t rows = span->weight.shape[0], columns = span->weight.shape[1], side = largest_side(span);
    Scratch scratch = { .u = hs_tensor_2d(NULL, HS_F32, rows, columns),
                        .x = { hs_tensor_2d(NULL, muon->product, rows, columns),
                               hs_tensor_2d(NULL, muon->product, rows, columns) },
                        .gram = hs_tensor_2d(NULL, muon->product, side, side),
                        .polynomial = hs_tensor_2d(NULL, muon->product, side, side) };
    size_t used = 0;
    const size_t u = append(&used, hs_tensor_bytes(&scratch.u)), x = append(&used, hs_tensor_bytes(&scratch.x[0]));
    const size_t gram = append(&used, hs_tensor_bytes(&scratch.gram));
    const size_t polynomial = append(&used, hs_tensor_bytes(&scratch.polynomial));
    const size_t sums = append(&used, MOST_PARTS * sizeof *scratch.sum_squares);
    const size_t counts = append(&used, MOST_PARTS * sizeof *scratch.nonfinite);
    scratch.bytes = used;
    if (base == NULL)
        return scratch;
    scratch.u.data = scratch.x[1].data = base + u;
    scratch.x[0].data = base + x;
    scratch.gram.data = base + gram;
    scratch.polynomial.data = base + polynomial;
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

/* Every matrix of the stack on its own; the result is in x[steps % 2]. */
static HsStatus orthogonalize(HsContext *context, const HsMuonConfig *muon, const HsSpan *span, const Scratch *scratch)
{
    HsTensor parts[MOST_PARTS];
    int64_t row = 0;
    for (int i = 0; i < span->part_count; row += span->part_rows[i++])
        parts[i] = part_of(&scratch->u, row, span->part_rows[i]);
    HS_TRY(hs_op_grad_stats(context, &(HsGradStatsArgs){ .tensors = parts,
                                                         .count = span->part_count,
                                                         .sum_squares = scratch->sum_squares,
                                                         .nonfinite = scratch->nonfinite }));
    /* all of u is read before its memory becomes an X */
    row = 0;
    for (int i = 0; i < span->part_count; row += span->part_rows[i++])
        HS_TRY(hs_op_normalize(context, &(HsNormalizeArgs){ .x = parts[i],
                                                            .sum_squares = scratch->sum_squares + i,
                                                            .epsilon = norm_epsilon,
                                                            .y = part_of(&scratch->x[0], row, parts[i].shape[0]) }));
    row = 0;
    for (int i = 0; i < span->part_count; row += span->part_rows[i++]) {
        const int64_t rows = span->part_rows[i], columns = span->weight.shape[1];
        const double size = 0.2 * sqrt((double)(rows > columns ? rows : columns));
        for (int64_t step = 0; step < muon->steps; step++) {
            const HsTensor x = part_of(&scratch->x[step % 2], row, rows);
            const HsTensor next = part_of(&scratch->x[(step + 1) % 2], row, rows);
            const int last = polynomials[muon->polynomial].count - 1;
            const double *c = polynomials[muon->polynomial].coefficients[step < last ? step : last];
            HS_TRY(iterate(context, muon, scratch, c, &x, &next, step + 1 < muon->steps ? 1.0 : size));
        }
    }
    return HS_OK;
}

HsStatus hs_muon_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsUpdateArgs *update)
{
    const HsMuonConfig *muon = &optimizer->config.muon;
    const Scratch scratch = lay_out(muon, span, optimizer->scratch.base);
    HS_TRY(hs_op_momentum(context, &(HsMomentumArgs){ .update = *update,
                                                      .momentum = (float)muon->momentum,
                                                      .nesterov = muon->nesterov,
                                                      .m = span->state[0],
                                                      .direction = scratch.u }));
    HS_TRY(orthogonalize(context, muon, span, &scratch));
    return hs_op_descend(context, &(HsDescendArgs){ .update = *update, .direction = scratch.x[muon->steps % 2] });
}
