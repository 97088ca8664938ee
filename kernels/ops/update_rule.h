/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of the update rules at one element, with its roundings: one order of operations, and the multiply-adds
 * that are fused spelled out, so that a GPU's kernels and the CPU's vectors give the same bits, whatever else a compiler
 * would fuse.  A step of either may then be done by the other (optim/offload.h).
 *
 * Macros, as elements are floats on one side and vectors on the other.  fma(a, b, c): a b + c, rounded once; b is a
 * float, or a vector.  The CPU's copy for machines without such an instruction rounds twice, and its bits are others.
 *
 * errors: none; all values f32.
 */
#ifndef HS_KERNELS_OPS_UPDATE_RULE_H
#define HS_KERNELS_OPS_UPDATE_RULE_H

/* 1 - lr wd, of scalars */
#define HS_RULE_KEEP(fma, rate, decay) fma(-(rate), decay, 1.0f)

/* AdamW: m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p = keep p - (lr/bc1) m / (sqrt(v/bc2) + eps)
 * rest: 1 - beta; step: lr / bc1; correction: 1 / bc2 */
#define HS_RULE_ADAMW_M(fma, m, g, beta, rest) fma(m, beta, (g) * (rest))
#define HS_RULE_ADAMW_V(fma, v, g, beta, rest) fma(v, beta, (g) * (g) * (rest))
#define HS_RULE_ADAMW_P(fma, root, p, keep, m, v, step, correction, epsilon) \
    fma(p, keep, -((m) * (step) / (root((v) * (correction)) + (epsilon))))

/* Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled", algorithm 1 in the form that keeps y and z alone);
 * d: z - y is kept, so a weight that something else moves takes z along.  v is AdamW's.
 *   D = g / (sqrt(v) + eps) + wd y;   y = y + c d + step D,  step: lr (b1 (1 - c) - 1);   d = (1 - c) d + back D,
 *   back: -lr b1 (1 - c).  The product with c is fused: 1 - c, rounded, would be off by as much in every step. */
#define HS_RULE_FREE_STEP(fma, rate, beta, c)                      ((rate)*fma(beta, 1.0f - (c), -1.0f))
#define HS_RULE_FREE_BACK(rate, beta, c)                           (-(rate) * (beta) * (1.0f - (c)))
#define HS_RULE_FREE_DIRECTION(fma, root, g, v, p, decay, epsilon) fma(p, decay, (g) / (root(v) + (epsilon)))
#define HS_RULE_FREE_P(fma, p, d, c, direction, step)              fma(direction, step, fma(d, c, p))
#define HS_RULE_FREE_D(fma, d, c, direction, back)                 fma(direction, back, fma(d, -(c), d))

/* What continual learning adds (HsProtection), pull and weight: strength, and strength importance.
 *   gradient step:  g + pull' gradient strength;  g + weight (p - anchor)
 *   proximal step:  p - k / (1 + k) (p - anchor), k = lr weight, kept below infinity
 *   path:           path - unscaled gradient * (stored - before)
 *   step back:      anchor + rate (p - anchor), and an average of p moves by rate (p - average) */
#define HS_RULE_PULL(fma, g, strength, pull)              fma(pull, strength, g)
#define HS_RULE_PENALTY(fma, g, weight, p, anchor)        fma((p) - (anchor), weight, g)
#define HS_RULE_PROXIMAL(fma, p, k, anchor)               fma(-((k) / ((k) + 1.0f)), (p) - (anchor), p)
#define HS_RULE_PATH(fma, path, gradient, stored, before) fma(-(gradient), (stored) - (before), path)
#define HS_RULE_BACK(fma, p, rate, anchor)                fma((p) - (anchor), rate, anchor)

/* SGD: d = g + wd p;  buffer = momentum buffer + d, and with Nesterov d + momentum buffer;  p - lr d */
#define HS_RULE_SGD_DESCENT(fma, raw, multiplier, p, decay) fma(raw, multiplier, (p) * (decay))
#define HS_RULE_SGD_MOVE(fma, buffer, momentum, descent)    fma(buffer, momentum, descent)
#define HS_RULE_SGD_P(fma, p, rate, direction)              fma(-(direction), rate, p)

#endif
