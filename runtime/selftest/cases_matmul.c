/* SPDX-License-Identifier: MIT
 *
 * Cases of the matrix products: every layout, dtype and epilogue at sizes below, at and above the edges of tiles.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/selftest/bounds.h"
#include "runtime/selftest/coded.h"

enum { A, B, ADDEND, BIAS, RESIDUAL, PRE, C, ROW_SUMS, CODES };

/* rows M, columns N, depth K */
#define LAYOUTS(dtype, out, m, n, k)                                                                          \
    { dtype, out, out, m, n, k, .options = HS_CASE_TRANSPOSE_B }, { dtype, out, out, m, n, k, .options = 0 }, \
        { dtype, out, out, m, n, k, .options = HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE },                    \
    {                                                                                                         \
        dtype, out, out, m, n, k, .options = HS_CASE_TRANSPOSE_A | HS_CASE_TRANSPOSE_B                        \
    }

#define DTYPES(m, n, k)                                                                                      \
    LAYOUTS(HS_F32, HS_F32, m, n, k), LAYOUTS(HS_BF16, HS_BF16, m, n, k), LAYOUTS(HS_BF16, HS_F32, m, n, k), \
        LAYOUTS(HS_F16, HS_F16, m, n, k), LAYOUTS(HS_F16, HS_F32, m, n, k)

#define EPILOGUE_CASE(dtype, out, other, m, n, k, function, ...)                 \
    {                                                                            \
        dtype, out, other, m, n, k, .epilogue = function, .options = __VA_ARGS__ \
    }

/* Function f of each number, and its gradient. */
#define ACTIVATED(dtype, out, other, m, n, k, layout, f)                                                       \
    EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_BIAS),                       \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE | HS_CASE_BIAS),     \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE | HS_CASE_RESIDUAL), \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f##_BACKWARD, (layout) | HS_CASE_PRE),         \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f##_BACKWARD,                                  \
                      (layout) | HS_CASE_PRE | HS_CASE_ACCUMULATE)

#define EPILOGUES(dtype, out, other, m, n, k, layout)                                                               \
    { dtype, out, other, m, n, k, .options = (layout) | HS_CASE_BIAS },                                             \
        { dtype, out, other, m, n, k, .options = (layout) | HS_CASE_RESIDUAL },                                     \
        { dtype, out, out, m, n, k, .options = (layout) | HS_CASE_RESIDUAL | HS_CASE_IN_PLACE | HS_CASE_BIAS },     \
        { dtype, out, other, m, n, k, .options = (layout) | HS_CASE_BIAS | HS_CASE_RESIDUAL | HS_CASE_ACCUMULATE }, \
        ACTIVATED(dtype, out, other, m, n, k, layout, GELU)
#define RELU2(dtype, out, other, m, n, k, layout) ACTIVATED(dtype, out, other, m, n, k, layout, RELU2)

#define EPILOGUE_DTYPES(ROWS, m, n, k, layout)                                                            \
    ROWS(HS_F32, HS_F32, HS_F32, m, n, k, layout), ROWS(HS_BF16, HS_BF16, HS_BF16, m, n, k, layout),      \
        ROWS(HS_BF16, HS_F32, HS_BF16, m, n, k, layout), ROWS(HS_BF16, HS_BF16, HS_F32, m, n, k, layout), \
        ROWS(HS_F16, HS_F16, HS_F16, m, n, k, layout)

#define GATED(dtype, out, other, m, n, k, layout, f)                                                       \
    EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE),                    \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE | HS_CASE_BIAS), \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f##_BACKWARD, (layout) | HS_CASE_PRE)

#define GATED_DTYPES(m, n, k, layout, f)                                                                     \
    GATED(HS_F32, HS_F32, HS_F32, m, n, k, layout, f), GATED(HS_BF16, HS_BF16, HS_BF16, m, n, k, layout, f), \
        GATED(HS_BF16, HS_F32, HS_BF16, m, n, k, layout, f), GATED(HS_F16, HS_F16, HS_F16, m, n, k, layout, f)
/* Halves of part of a panel, of whole panels, of many; more rows and a longer sum than a block; halves of a tile and part
 * of another. */
#define GATED_SIZES(f)                                                                                           \
    GATED_DTYPES(1, 2, 3, HS_CASE_TRANSPOSE_B, f), GATED_DTYPES(7, 34, 65, HS_CASE_TRANSPOSE_B, f),              \
        GATED_DTYPES(65, 128, 64, HS_CASE_TRANSPOSE_B, f), GATED_DTYPES(130, 384, 70, 0, f),                     \
        GATED_DTYPES(13, 256, 1300, HS_CASE_TRANSPOSE_B, f), GATED_DTYPES(300, 400, 72, HS_CASE_TRANSPOSE_B, f), \
        GATED_DTYPES(300, 400, 72, 0, f)

/* f32 operands that may be multiplied in tf32, in every layout and with some epilogues. */
#define TF32_CASE(m, n, k, ...)                                                           \
    {                                                                                     \
        HS_F32, HS_F32, HS_F32, m, n, k, .policy = HS_POLICY_TF32, .options = __VA_ARGS__ \
    }
#define TF32(m, n, k)                                                                                       \
    TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_B), TF32_CASE(m, n, k, 0),                                         \
        TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE),                                       \
        TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_TRANSPOSE_B),                                      \
        TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_B | HS_CASE_PRE | HS_CASE_BIAS, .epilogue = HS_EPILOGUE_GELU), \
        TF32_CASE(m, n, k, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GELU_BACKWARD),                             \
        TF32_CASE(m, n, k, HS_CASE_ADDEND, .alpha = -0.75f)
#define TF32_FUNCTIONS(m, n, k)                                                                          \
    TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_B | HS_CASE_PRE | HS_CASE_BIAS, .epilogue = HS_EPILOGUE_RELU2), \
        TF32_CASE(m, n, k, HS_CASE_PRE, .epilogue = HS_EPILOGUE_RELU2_BACKWARD),                         \
        TF32_CASE(m, n, k, HS_CASE_TRANSPOSE_B | HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU),            \
        TF32_CASE(m, n, k, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU_BACKWARD)

/* A factor, an addend, and both, before every epilogue. */
#define SCALED_CASE(dtype, out, other, m, n, k, ...)       \
    {                                                      \
        dtype, out, other, m, n, k, .options = __VA_ARGS__ \
    }
#define SCALED_ACTIVATED(dtype, out, other, m, n, k, layout, f)                                                        \
    EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE | HS_CASE_BIAS, .alpha = 0.3f),  \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE | HS_CASE_ADDEND),           \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_ADDEND, .alpha = -1.7f),         \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f##_BACKWARD, (layout) | HS_CASE_PRE | HS_CASE_ADDEND, \
                      .alpha = 0.3f)
#define SCALED(dtype, out, other, m, n, k, layout)                                                             \
    SCALED_CASE(dtype, out, other, m, n, k, (layout), .alpha = -1.7f),                                         \
        SCALED_CASE(dtype, out, other, m, n, k, (layout) | HS_CASE_ADDEND),                                    \
        SCALED_CASE(dtype, out, other, m, n, k, (layout) | HS_CASE_ADDEND, .alpha = 0.3f),                     \
        SCALED_CASE(dtype, out, other, m, n, k, (layout) | HS_CASE_ADDEND | HS_CASE_BIAS | HS_CASE_ACCUMULATE, \
                    .alpha = -1.7f),                                                                           \
        SCALED_CASE(dtype, out, other, m, n, k, (layout) | HS_CASE_ADDEND | HS_CASE_RESIDUAL, .alpha = 0.3f),  \
        SCALED_ACTIVATED(dtype, out, other, m, n, k, layout, GELU)
#define SCALED_RELU2(dtype, out, other, m, n, k, layout) SCALED_ACTIVATED(dtype, out, other, m, n, k, layout, RELU2)
#define SCALED_GATED(dtype, out, other, m, n, k, layout, f)                                                            \
    EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f, (layout) | HS_CASE_PRE, .alpha = -1.7f),                \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f,                                                     \
                      (layout) | HS_CASE_PRE | HS_CASE_ADDEND | HS_CASE_BIAS, .alpha = 0.3f),                          \
        EPILOGUE_CASE(dtype, out, other, m, n, k, HS_EPILOGUE_##f##_BACKWARD, (layout) | HS_CASE_PRE | HS_CASE_ADDEND, \
                      .alpha = -1.7f)
#define SCALED_SWIGLU(dtype, out, other, m, n, k, layout) SCALED_GATED(dtype, out, other, m, n, k, layout, SWIGLU)
#define SCALED_GEGLU(dtype, out, other, m, n, k, layout)  SCALED_GATED(dtype, out, other, m, n, k, layout, GEGLU)
#define SCALED_LAYOUTS(dtype, out, other, m, n, k, layout)                                                          \
    SCALED(dtype, out, other, m, n, k, (layout) | HS_CASE_TRANSPOSE_B), SCALED(dtype, out, other, m, n, k, layout), \
        SCALED(dtype, out, other, m, n, k, (layout) | HS_CASE_TRANSPOSE_A),                                         \
        SCALED(dtype, out, other, m, n, k, (layout) | HS_CASE_TRANSPOSE_A | HS_CASE_TRANSPOSE_B)
#define SCALED_DTYPES(ROWS, m, n, k, layout)                                                         \
    ROWS(HS_F32, HS_F32, HS_F32, m, n, k, layout), ROWS(HS_BF16, HS_BF16, HS_BF16, m, n, k, layout), \
        ROWS(HS_BF16, HS_F32, HS_BF16, m, n, k, layout), ROWS(HS_F16, HS_F16, HS_F32, m, n, k, layout)

#define UNALIGNED(dtype, m, n, k)                                                                              \
    { dtype, dtype, dtype, m, n, k, .options = HS_CASE_UNALIGNED | HS_CASE_TRANSPOSE_B | HS_CASE_BIAS },       \
        { dtype,                                                                                               \
          HS_F32,                                                                                              \
          dtype,                                                                                               \
          m,                                                                                                   \
          n,                                                                                                   \
          k,                                                                                                   \
          .epilogue = HS_EPILOGUE_GELU_BACKWARD,                                                               \
          .options = HS_CASE_UNALIGNED | HS_CASE_PRE },                                                        \
    {                                                                                                          \
        dtype, HS_F32, dtype, m, n, k, .options = HS_CASE_UNALIGNED | HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE \
    }
#define UNALIGNED_FUNCTIONS(dtype, m, n, k)                                                                      \
    EPILOGUE_CASE(dtype, HS_F32, dtype, m, n, k, HS_EPILOGUE_RELU2_BACKWARD, HS_CASE_UNALIGNED | HS_CASE_PRE),   \
        EPILOGUE_CASE(dtype, dtype, dtype, m, n, k, HS_EPILOGUE_RELU2, HS_CASE_UNALIGNED | HS_CASE_TRANSPOSE_B), \
        EPILOGUE_CASE(dtype, dtype, dtype, m, n, k, HS_EPILOGUE_GEGLU, HS_CASE_UNALIGNED | HS_CASE_PRE),         \
        EPILOGUE_CASE(dtype, dtype, dtype, m, n, k, HS_EPILOGUE_GEGLU_BACKWARD, HS_CASE_UNALIGNED | HS_CASE_PRE)

/* A weight's gradient together with the bias's: in either layout of b, behind a factor, and misaligned. */
#define SUMS_CASE(dtype, out, m, n, k, ...)                            \
    {                                                                  \
        dtype, out, out, m, n, k, .sums = true, .options = __VA_ARGS__ \
    }
#define SUMS(dtype, out, m, n, k)                                                                 \
    SUMS_CASE(dtype, out, m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE),                     \
        SUMS_CASE(dtype, out, m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_TRANSPOSE_B),                \
        SUMS_CASE(dtype, out, m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE, .alpha = -1.7f), \
        SUMS_CASE(dtype, out, m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE | HS_CASE_UNALIGNED)
#define SUMS_DTYPES(m, n, k)                                                                        \
    SUMS(HS_F32, HS_F32, m, n, k), SUMS(HS_BF16, HS_BF16, m, n, k), SUMS(HS_BF16, HS_F32, m, n, k), \
        SUMS(HS_F16, HS_F32, m, n, k),                                                              \
        SUMS_CASE(HS_F32, HS_F32, m, n, k, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE, .policy = HS_POLICY_TF32)

/* b in four bits, as one tensor or several, alone and behind the epilogues that layers have. */
#define NF4_CASE(dtype, out, m, n, k, parts, ...)                            \
    {                                                                        \
        dtype, out, out, m, n, k, .quantized = parts, .options = __VA_ARGS__ \
    }
#define NF4(dtype, out, m, n, k, parts)                                                                 \
    NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_TRANSPOSE_B), NF4_CASE(dtype, out, m, n, k, parts, 0), \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_TRANSPOSE_B | HS_CASE_ADDEND | HS_CASE_PRE,        \
                 .epilogue = HS_EPILOGUE_GELU),                                                         \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_ADDEND | HS_CASE_ACCUMULATE),                      \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_TRANSPOSE_B | HS_CASE_ADDEND | HS_CASE_PRE,        \
                 .epilogue = HS_EPILOGUE_SWIGLU)
#define NF4_FUNCTIONS(dtype, out, m, n, k, parts)                                                                   \
    NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_TRANSPOSE_B | HS_CASE_ADDEND | HS_CASE_PRE,                        \
             .epilogue = HS_EPILOGUE_RELU2),                                                                        \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_ADDEND | HS_CASE_PRE, .epilogue = HS_EPILOGUE_RELU2_BACKWARD), \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_TRANSPOSE_B | HS_CASE_ADDEND | HS_CASE_PRE,                    \
                 .epilogue = HS_EPILOGUE_GEGLU),                                                                    \
        NF4_CASE(dtype, out, m, n, k, parts, HS_CASE_ADDEND | HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU_BACKWARD)
#define NF4_FUNCTION_DTYPES(m, n, k, parts)                                                         \
    NF4_FUNCTIONS(HS_F32, HS_F32, m, n, k, parts), NF4_FUNCTIONS(HS_BF16, HS_BF16, m, n, k, parts), \
        NF4_FUNCTIONS(HS_BF16, HS_F32, m, n, k, parts), NF4_FUNCTIONS(HS_F16, HS_F16, m, n, k, parts)
#define NF4_DTYPES(m, n, k, parts)                                                                                    \
    NF4(HS_F32, HS_F32, m, n, k, parts), NF4(HS_BF16, HS_BF16, m, n, k, parts), NF4(HS_BF16, HS_F32, m, n, k, parts), \
        NF4(HS_F16, HS_F16, m, n, k, parts),                                                                          \
        { HS_F32, HS_F32, HS_F32, m, n, k, .quantized = parts, .policy = HS_POLICY_TF32 },                            \
    {                                                                                                                 \
        HS_F32, HS_F32, HS_F32, m, n, k, .quantized = parts, .policy = HS_POLICY_TF32, .options = HS_CASE_TRANSPOSE_B \
    }

/* Operands in codes: with everything that may follow a product. */
#define CODED_CASE(out, other, m, n, k, a, b, scale, ...)                                                     \
    {                                                                                                         \
        HS_BF16, out, other, m, n, k, .policy = { a, b, scale }, .options = HS_CASE_TRANSPOSE_B | __VA_ARGS__ \
    }
#define CODED(m, n, k, a, b, scale)                                                                                   \
    CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, 0),                                                            \
        CODED_CASE(HS_F32, HS_BF16, m, n, k, a, b, scale, HS_CASE_ACCUMULATE),                                        \
        CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_BIAS | HS_CASE_PRE, .epilogue = HS_EPILOGUE_GELU), \
        CODED_CASE(HS_F32, HS_F32, m, n, k, a, b, scale, HS_CASE_BIAS | HS_CASE_RESIDUAL),                            \
        CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GELU_BACKWARD),       \
        CODED_CASE(HS_BF16, HS_BF16, m, 2 * (n), k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU),        \
        CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU_BACKWARD)
#define CODED_FUNCTIONS(m, n, k, a, b, scale)                                                                      \
    CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_BIAS | HS_CASE_PRE, .epilogue = HS_EPILOGUE_RELU2), \
        CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_RELU2_BACKWARD),   \
        CODED_CASE(HS_BF16, HS_BF16, m, 2 * (n), k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU),      \
        CODED_CASE(HS_BF16, HS_BF16, m, n, k, a, b, scale, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU_BACKWARD)
/* The transposes of codes, as the gradients of a layer read them: dw = dy^T x, and dx = dy w with what may follow it. */
#define ACROSS_CASE(out, m, n, k, a, ...)                                                                 \
    {                                                                                                     \
        HS_BF16, out, HS_BF16, m, n, k, .policy = { a, HS_E4M3, HS_SCALE_TENSOR }, .options = __VA_ARGS__ \
    }
#define ACROSS(m, n, k, a)                                                                          \
    ACROSS_CASE(HS_F32, m, n, k, a, HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE),                      \
        ACROSS_CASE(HS_BF16, m, n, k, a, HS_CASE_TRANSPOSE_A), ACROSS_CASE(HS_BF16, m, n, k, a, 0), \
        ACROSS_CASE(HS_F32, m, n, k, a, HS_CASE_BIAS | HS_CASE_RESIDUAL),                           \
        ACROSS_CASE(HS_BF16, m, n, k, a, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GELU_BACKWARD),       \
        ACROSS_CASE(HS_BF16, m, 2 * (n), k, a, HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU),        \
        ACROSS_CASE(HS_BF16, m, n, k, a, HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU_BACKWARD),     \
        ACROSS_CASE(HS_BF16, m, n, k, a, HS_CASE_TRANSPOSE_A | HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU_BACKWARD)
#define ACROSS_FORMATS(m, n, k) ACROSS(m, n, k, HS_E4M3), ACROSS(m, n, k, HS_E5M2)
#define CODED_FORMATS(ROWS, m, n, k)                                                                    \
    ROWS(m, n, k, HS_E4M3, HS_E4M3, HS_SCALE_TENSOR), ROWS(m, n, k, HS_E5M2, HS_E4M3, HS_SCALE_TENSOR), \
        ROWS(m, n, k, HS_E4M3, HS_E4M3, HS_SCALE_BLOCK), ROWS(m, n, k, HS_E4M3, HS_E4M3, HS_SCALE_MX),  \
        ROWS(m, n, k, HS_E2M1, HS_E2M1, HS_SCALE_NV)

/* Codes in place of c: as the linear layers around an activation leave them, where the product has operands in codes; and
 * where those are a pass apart. */
#define CAST_CASE(m, n, k, a, format, ...)                                                             \
    {                                                                                                  \
        HS_BF16, HS_BF16, HS_BF16, m, n, k, .policy = { a, HS_E4M3, HS_SCALE_TENSOR }, .cast = format, \
                                            .options = __VA_ARGS__                                     \
    }
#define CASTS(m, n, k)                                                                                                 \
    CAST_CASE(m, n, k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B),                                                         \
        CAST_CASE(m, n, k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B | HS_CASE_PRE | HS_CASE_BIAS,                         \
                  .epilogue = HS_EPILOGUE_GELU),                                                                       \
        CAST_CASE(m, n, k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B | HS_CASE_PRE | HS_CASE_RESIDUAL,                     \
                  .epilogue = HS_EPILOGUE_RELU2),                                                                      \
        CAST_CASE(m, 2 * (n), k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B | HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU), \
        CAST_CASE(m, 2 * (n), k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B | HS_CASE_PRE | HS_CASE_BIAS,                   \
                  .epilogue = HS_EPILOGUE_GEGLU),                                                                      \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, 0),                                                                       \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GELU_BACKWARD),                      \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, HS_CASE_PRE, .epilogue = HS_EPILOGUE_RELU2_BACKWARD),                     \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, HS_CASE_PRE, .epilogue = HS_EPILOGUE_SWIGLU_BACKWARD),                    \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, HS_CASE_PRE, .epilogue = HS_EPILOGUE_GEGLU_BACKWARD)
#define CASTS_APART(m, n, k)                                                                            \
    CAST_CASE(m, n, k, HS_E4M3, HS_E5M2, HS_CASE_TRANSPOSE_B), CAST_CASE(m, n, k, HS_E5M2, HS_E4M3, 0), \
        CAST_CASE(m, n, k, HS_E4M3, HS_E4M3, HS_CASE_TRANSPOSE_B | HS_CASE_ADDEND),                     \
        CAST_CASE(m, n, k, HS_E5M2, HS_E5M2, HS_CASE_TRANSPOSE_A),                                      \
    {                                                                                                   \
        HS_BF16, HS_BF16, HS_BF16, m, 2 * (n), k, .cast = HS_E4M3, .epilogue = HS_EPILOGUE_SWIGLU,      \
                                                  .options = HS_CASE_TRANSPOSE_B | HS_CASE_PRE          \
    }

static const HsCase matmul_cases[] = {
    DTYPES(1, 1, 1),
    DTYPES(2, 3, 7),
    DTYPES(1, 17, 129),
    DTYPES(7, 65, 3),
    DTYPES(17, 63, 64),
    DTYPES(63, 2, 65),
    DTYPES(64, 64, 64),
    DTYPES(65, 127, 63),
    DTYPES(128, 17, 128),
    DTYPES(129, 129, 1),
    DTYPES(3, 128, 127),
    DTYPES(37, 70, 1300), /* longer than a block of k */
    DTYPES(300, 130, 20), /* more rows than a block */
    DTYPES(9, 1100, 33),  /* more columns than a block */
    EPILOGUE_DTYPES(EPILOGUES, 1, 7, 17, HS_CASE_TRANSPOSE_B),
    EPILOGUE_DTYPES(EPILOGUES, 65, 129, 63, HS_CASE_TRANSPOSE_B),
    EPILOGUE_DTYPES(EPILOGUES, 33, 64, 128, 0),
    EPILOGUE_DTYPES(EPILOGUES, 7, 34, 1100, HS_CASE_TRANSPOSE_B),
    /* Rows of whole 16 bytes, at the edges of tiles of 64, 128 and 256 and of steps of 16 and 32. */
    DTYPES(136, 264, 40),
    DTYPES(72, 136, 200),
    DTYPES(136, 72, 648), /* more steps of 64 than a ring has stages */
    EPILOGUE_DTYPES(EPILOGUES, 136, 72, 48, 0),
    EPILOGUE_DTYPES(EPILOGUES, 70, 131, 72, HS_CASE_TRANSPOSE_B), /* columns of c that can't be moved in fours */
    GATED_SIZES(SWIGLU),
    TF32(1, 1, 1),
    TF32(17, 65, 63),
    TF32(136, 132, 52),
    TF32(64, 200, 300),
    /* Columns in fours and not; sums of several blocks, or slices, of depth. */
    SCALED_DTYPES(SCALED_LAYOUTS, 17, 63, 65, 0),
    SCALED_DTYPES(SCALED, 136, 72, 648, HS_CASE_TRANSPOSE_B),
    SCALED_DTYPES(SCALED_SWIGLU, 7, 34, 65, HS_CASE_TRANSPOSE_B),
    SCALED_DTYPES(SCALED_SWIGLU, 65, 128, 64, 0),
    UNALIGNED(HS_F32, 40, 72, 64),
    UNALIGNED(HS_BF16, 40, 72, 64),
    UNALIGNED(HS_F16, 40, 72, 64),
    SUMS_DTYPES(1, 1, 1),
    SUMS_DTYPES(17, 63, 65),
    SUMS_DTYPES(72, 136, 200),
    SUMS_DTYPES(136, 264, 40), /* rows and columns of several tiles: one column of tiles sums */
    SUMS_DTYPES(200, 72, 648), /* several slices of k */
    NF4_DTYPES(1, 8, 8, 1),
    NF4_DTYPES(17, 40, 72, 1), /* blocks end within rows */
    NF4_DTYPES(65, 192, 64, 3),
    NF4_DTYPES(136, 264, 200, 1),
    NF4_DTYPES(37, 384, 1344, 2), /* several blocks of depth, several nested ones */
    { HS_BF16, HS_BF16, HS_BF16, 40, 72, 64, .quantized = 1, .options = HS_CASE_UNALIGNED | HS_CASE_TRANSPOSE_B },
    { HS_BF16, HS_F32, HS_BF16, 40, 72, 64, .quantized = 1, .options = HS_CASE_UNALIGNED },
    CODED_FORMATS(CODED, 1, 1, 1),
    CODED_FORMATS(CODED, 17, 63, 65),
    CODED_FORMATS(CODED, 72, 136, 200),
    CODED_FORMATS(CODED, 136, 264, 40),
    CODED_FORMATS(CODED, 130, 72, 656), /* several slices of k, several blocks of scales */
    ACROSS_FORMATS(1, 1, 1),
    ACROSS_FORMATS(17, 63, 65),
    ACROSS_FORMATS(16, 16, 16),
    ACROSS_FORMATS(144, 272, 48), /* several tiles */
    ACROSS_FORMATS(208, 80, 656), /* several slices of k */
    /* Other functions, wherever GELU and SwiGLU are. */
    EPILOGUE_DTYPES(RELU2, 1, 7, 17, HS_CASE_TRANSPOSE_B),
    EPILOGUE_DTYPES(RELU2, 65, 129, 63, HS_CASE_TRANSPOSE_B),
    EPILOGUE_DTYPES(RELU2, 33, 64, 128, 0),
    EPILOGUE_DTYPES(RELU2, 136, 72, 48, 0),
    EPILOGUE_DTYPES(RELU2, 70, 131, 72, HS_CASE_TRANSPOSE_B),
    GATED_SIZES(GEGLU),
    TF32_FUNCTIONS(17, 66, 63),
    TF32_FUNCTIONS(136, 132, 52),
    SCALED_DTYPES(SCALED_RELU2, 17, 63, 65, HS_CASE_TRANSPOSE_B),
    SCALED_DTYPES(SCALED_RELU2, 136, 72, 648, 0),
    SCALED_DTYPES(SCALED_GEGLU, 7, 34, 65, HS_CASE_TRANSPOSE_B),
    SCALED_DTYPES(SCALED_GEGLU, 65, 128, 64, 0),
    UNALIGNED_FUNCTIONS(HS_F32, 40, 72, 64),
    UNALIGNED_FUNCTIONS(HS_BF16, 40, 72, 64),
    UNALIGNED_FUNCTIONS(HS_F16, 40, 72, 64),
    NF4_FUNCTION_DTYPES(17, 40, 72, 1),
    NF4_FUNCTION_DTYPES(136, 264, 200, 1),
    CODED_FORMATS(CODED_FUNCTIONS, 17, 63, 65),
    CODED_FORMATS(CODED_FUNCTIONS, 136, 264, 40),
    CODED_FORMATS(CODED_FUNCTIONS, 130, 72, 656),
    CASTS(17, 63, 65), /* by no kernel of codes */
    CASTS(16, 16, 16),
    CASTS(144, 272, 48), /* several tiles */
    CASTS(70, 132, 208), /* rows and columns that no tile has */
    CASTS(40, 48, 2320), /* sums that are promoted */
    CASTS_APART(40, 48, 64),
};

#define PACKED(m, n, k)                                                                                            \
    { HS_F32, HS_F32, HS_F32, m, n, k, .options = HS_CASE_PACKED | HS_CASE_TRANSPOSE_B },                          \
        { HS_F32, HS_F32, HS_F32, m, n, k, .options = HS_CASE_PACKED },                                            \
        { HS_BF16, HS_BF16, HS_BF16, m, n, k, .options = HS_CASE_PACKED | HS_CASE_TRANSPOSE_B },                   \
        { HS_BF16, HS_F32, HS_BF16, m, n, k, .options = HS_CASE_PACKED },                                          \
        EPILOGUE_CASE(HS_BF16, HS_BF16, HS_BF16, m, n, k, HS_EPILOGUE_GELU,                                        \
                      HS_CASE_PACKED | HS_CASE_TRANSPOSE_B | HS_CASE_BIAS | HS_CASE_PRE),                          \
        { HS_F16, HS_F16, HS_F16, m, n, k, .options = HS_CASE_PACKED | HS_CASE_TRANSPOSE_B | HS_CASE_RESIDUAL },   \
        EPILOGUE_CASE(HS_BF16, HS_BF16, HS_BF16, m, 2 * n, k, HS_EPILOGUE_SWIGLU, HS_CASE_PACKED | HS_CASE_PRE),   \
        EPILOGUE_CASE(HS_F32, HS_F32, HS_F32, m, n, k, HS_EPILOGUE_SWIGLU_BACKWARD, HS_CASE_PACKED | HS_CASE_PRE), \
    {                                                                                                              \
        HS_F16, HS_F32, HS_F16, m, n, k, .options = HS_CASE_PACKED                                                 \
    }
#define PACKED_FUNCTIONS(m, n, k)                                                                                 \
    EPILOGUE_CASE(HS_BF16, HS_BF16, HS_BF16, m, n, k, HS_EPILOGUE_RELU2,                                          \
                  HS_CASE_PACKED | HS_CASE_TRANSPOSE_B | HS_CASE_BIAS | HS_CASE_PRE),                             \
        EPILOGUE_CASE(HS_F32, HS_F32, HS_F32, m, n, k, HS_EPILOGUE_RELU2_BACKWARD, HS_CASE_PACKED | HS_CASE_PRE), \
        EPILOGUE_CASE(HS_BF16, HS_BF16, HS_BF16, m, 2 * n, k, HS_EPILOGUE_GEGLU, HS_CASE_PACKED | HS_CASE_PRE),   \
        EPILOGUE_CASE(HS_BF16, HS_BF16, HS_BF16, m, n, k, HS_EPILOGUE_GEGLU_BACKWARD, HS_CASE_PACKED | HS_CASE_PRE)

static const HsCase pack_cases[] = {
    PACKED(1, 1, 1),
    PACKED(2, 7, 3),
    PACKED(3, 17, 65),
    PACKED(64, 64, 64),
    PACKED(65, 63, 127),
    PACKED(17, 129, 128),
    PACKED(5, 1100, 700),
    PACKED(130, 30, 1300),
    PACKED_FUNCTIONS(2, 7, 3),
    PACKED_FUNCTIONS(65, 64, 127),
    PACKED_FUNCTIONS(130, 30, 1300),
};

enum { MOST_PARTS = 3 };

/* Elements of the tensors that a quantized b stacks; how many these are. */
static int counts_of_parts(const HsTrial *trial, int64_t counts[MOST_PARTS])
{
    const int parts = trial->config->quantized;
    const HsTensor *b = &trial->operands[B].tensor;
    const int64_t rows = b->shape[0], share = parts > 0 ? rows / parts : 0;
    for (int part = 0; part < parts; part++)
        counts[part] = (part + 1 < parts ? share : rows - part * share) * b->shape[1];
    return parts;
}

static void declare(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t m = config->rows, n = config->columns, k = config->depth;
    const bool ta = hs_case_has(trial, HS_CASE_TRANSPOSE_A), tb = hs_case_has(trial, HS_CASE_TRANSPOSE_B);
    HsTrialOperand *operands = trial->operands;
    operands[A] = hs_input("a", 1.0, hs_tensor_2d(NULL, config->dtype, ta ? k : m, ta ? m : k));
    operands[B] = hs_input("b", 1.0, hs_tensor_2d(NULL, config->dtype, tb ? n : k, tb ? k : n));
    if (hs_case_has(trial, HS_CASE_ADDEND))
        operands[ADDEND] = hs_input("addend", 1.0, hs_tensor_2d(NULL, config->other, m, n));
    if (hs_case_has(trial, HS_CASE_BIAS))
        operands[BIAS] = hs_input("bias", 1.0, hs_tensor_1d(NULL, HS_F32, n));
    if (hs_case_has(trial, HS_CASE_RESIDUAL) && !hs_case_has(trial, HS_CASE_IN_PLACE))
        operands[RESIDUAL] = hs_input("residual", 1.0, hs_tensor_2d(NULL, config->other, m, n));
    const bool gates = hs_epilogue_gates(config->epilogue), ungates = hs_epilogue_ungates(config->epilogue);
    const bool writes_pre = gates || hs_epilogue_activates(config->epilogue);
    const HsTensor pre = hs_tensor_2d(NULL, config->other, m, ungates ? 2 * n : n);
    if (hs_case_has(trial, HS_CASE_PRE))
        operands[PRE] = writes_pre ? hs_output("pre", pre) : hs_input("pre", 2.0, pre);
    const bool reads_c = hs_case_has(trial, HS_CASE_ACCUMULATE | HS_CASE_IN_PLACE);
    const HsTensor c = hs_tensor_2d(NULL, config->out, m, gates ? n / 2 : ungates ? 2 * n : n);
    operands[C] = reads_c ? hs_updated("c", 1.0, c) : hs_output("c", c);
    if (config->sums)
        operands[ROW_SUMS] = hs_updated("row_sums", 1.0, hs_tensor_1d(NULL, HS_F32, m));
    if (hs_case_casts(config))
        hs_trial_declare_cast(trial, CODES, &c);
    else if (!hs_case_has(trial, HS_CASE_ACCUMULATE))
        hs_trial_ask_amax(trial, C);
    int64_t counts[MOST_PARTS];
    trial->quantized = hs_nf4_shape(counts, counts_of_parts(trial, counts));
}

/* b's numbers become what four bits can hold, so that the exact result is that of the decoded matrix; or both operands'
 * what codes can. */
static HsStatus prepare(HsTrial *trial, HsContext *reference)
{
    hs_trial_prepare_cast(trial, CODES);
    if (hs_case_coded(trial->config))
        return hs_trial_encode(trial, reference, &trial->operands[A], &trial->operands[B]);
    const HsTrialOperand *b = &trial->operands[B];
    HsQuantized *quantized = &trial->quantized;
    int64_t counts[MOST_PARTS], first = 0;
    const int parts = counts_of_parts(trial, counts);
    if (parts == 0)
        return HS_OK;
    trial->quantized_image = malloc(hs_nf4_bytes(quantized));
    float *const values = malloc((size_t)quantized->count * sizeof *values);
    HsStatus status =
        values && trial->quantized_image ? HS_OK : hs_fail(HS_ENOMEM, "selftest: no memory for a quantized matrix");
    for (int64_t i = 0; i < quantized->count && status == HS_OK; i++)
        values[i] = (float)hs_dtype_load(b->tensor.dtype, b->image, i);
    hs_nf4_place(quantized, trial->quantized_image);
    for (int part = 0; part < parts && status == HS_OK; first += counts[part++])
        status = hs_nf4_quantize(quantized, first, counts[part], values + first);
    for (int64_t i = 0; i < quantized->count && status == HS_OK; i++)
        hs_dtype_store(b->tensor.dtype, b->image, i, (double)hs_nf4_value(quantized, i));
    free(values);
    return status;
}

/* The matrix to the device, once a trial; b's own bytes are withheld. */
static HsStatus upload(HsTrial *trial, HsContext *context, HsTensor *b)
{
    HsDevice *const device = context->device;
    const size_t bytes = hs_nf4_bytes(&trial->quantized);
    b->data = NULL;
    if (context->dry_run || trial->quantized_image == NULL || trial->quantized_memory != NULL)
        return HS_OK;
    HS_TRY(device->alloc(device, bytes, &trial->quantized_memory));
    HS_TRY(device->copy(device, context->stream, trial->quantized_memory, trial->quantized_image, bytes));
    HS_TRY(device->stream_sync(device, context->stream));
    hs_nf4_place(&trial->quantized, trial->quantized_memory);
    return HS_OK;
}

/* Bytes of b in the backend's own layout; 0: it has none. */
static size_t packed_bytes(const HsTrial *trial, const HsContext *context)
{
    const HsCase *config = trial->config;
    const HsBackend *backend = context->backend;
    return backend->packed_bytes ? backend->packed_bytes(context, config->dtype, config->depth, config->columns) : 0;
}

static HsStatus call_pack(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const size_t bytes = packed_bytes(trial, context);
    if (!context->dry_run && trial->packed.data == NULL && bytes > 0)
        HS_TRY(context->device->alloc(context->device, bytes, &trial->packed.data));
    return hs_op_pack_weight(context,
                             &(HsPackWeightArgs){ t[B], hs_case_has(trial, HS_CASE_TRANSPOSE_B), &trial->packed });
}

static double bytes_pack(const HsTrial *trial, const HsContext *context)
{
    const double packed = (double)packed_bytes(trial, context);
    return packed > 0.0 ? hs_operand_bytes(&trial->operands[B]) + packed : 0.0;
}

/* Pack b once per trial, outside what is timed; then withhold b's own bytes, to show that they are not read. */
static HsStatus pack(HsTrial *trial, HsContext *context, const HsTensor *t, HsTensor *b)
{
    const bool done = trial->packed.data != NULL;
    if (context->dry_run || !done)
        HS_TRY(call_pack(trial, context, t));
    if (trial->packed.data != NULL)
        b->data = NULL;
    return HS_OK;
}

static double bytes_of(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    double bytes = hs_trial_bytes(trial);
    if (hs_case_casts(trial->config)) /* codes are all that is left of c */
        bytes -= hs_operand_bytes(&trial->operands[C]);
    if (hs_case_coded(trial->config))
        return bytes - hs_operand_bytes(&trial->operands[A]) - hs_operand_bytes(&trial->operands[B]) +
               hs_trial_coded_bytes(trial);
    if (trial->quantized.count == 0)
        return bytes;
    return bytes - hs_operand_bytes(&trial->operands[B]) + (double)hs_nf4_bytes(&trial->quantized);
}

static float alpha_of(const HsTrial *trial)
{
    return trial->config->alpha != 0.0f ? trial->config->alpha : 1.0f;
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsProductPolicy as_is = HS_POLICY_AS_IS;
    HsTensor b = t[B];
    const bool packed = hs_case_has(trial, HS_CASE_PACKED) && b.dtype != HS_F64;
    if (packed)
        HS_TRY(pack(trial, context, t, &b));
    const bool quantized = trial->config->quantized > 0 && b.dtype != HS_F64;
    if (quantized)
        HS_TRY(upload(trial, context, &b));
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    HsCodes codes[2];
    HsTensor a = t[A];
    const bool coded = hs_case_coded(trial->config), decoded = coded && a.dtype == HS_F64;
    if (coded && !decoded)
        HS_TRY(hs_trial_upload_codes(trial, context, &a, &b, codes));
    HsOperand right = packed ? hs_operand_packed(b, &trial->packed) : hs_operand(b);
    if (quantized)
        right = hs_operand_nf4(b, trial->quantized);
    HsMatmulArgs args = { .a = coded && !decoded ? hs_operand_codes(codes[0]) : hs_operand(a),
                          .b = coded && !decoded ? hs_operand_codes(codes[1]) : right,
                          .transpose_a = hs_case_has(trial, HS_CASE_TRANSPOSE_A),
                          .transpose_b = hs_case_has(trial, HS_CASE_TRANSPOSE_B),
                          .policy = decoded ? as_is : trial->config->policy,
                          .alpha = alpha_of(trial) * (decoded ? hs_trial_coded_factor(trial) : 1.0f),
                          .addend = t[ADDEND],
                          .bias = t[BIAS],
                          .residual = in_place ? t[C] : t[RESIDUAL],
                          .pre = t[PRE],
                          .epilogue = trial->config->epilogue,
                          .accumulate = hs_case_has(trial, HS_CASE_ACCUMULATE),
                          .c = t[C],
                          .row_sums = t[ROW_SUMS] };
    const bool casts = hs_case_casts(trial->config) && a.dtype != HS_F64;
    if (casts)
        args.cast = hs_trial_cast(trial, t, C, CODES);
    HS_TRY(hs_op_matmul(context, &args));
    args.cast = (HsCodes){ 0 };
    return casts ? hs_op_matmul(context, &args) : HS_OK; /* once more, as a c that is cast may not be stored */
}

static HsStatus follow(HsTrial *trial, HsContext *reference, void *const *stored)
{
    return hs_trial_follow_cast(trial, reference, stored, C, CODES);
}

/* sum_k |a| |b| of one element: what the rounding errors of its sum scale with. */
static double absolute_product(const HsTrial *trial, int64_t row, int64_t column)
{
    const int64_t m = trial->config->rows, n = trial->config->columns, depth = trial->config->depth;
    const bool ta = hs_case_has(trial, HS_CASE_TRANSPOSE_A), tb = hs_case_has(trial, HS_CASE_TRANSPOSE_B);
    const double *a = hs_initial(trial, A), *b = hs_initial(trial, B);
    double sum = 0.0;
    for (int64_t k = 0; k < depth; k++)
        sum += fabs(a[ta ? k * m + row : row * depth + k] * b[tb ? column * depth + k : k * n + column]);
    return sum;
}

/* tf32 keeps 10 bits after the leading one: each operand is off by 2^-11 of itself at most. */
static const double tf32_product_error = 2 * 0x1p-11 + 0x1p-22;

/* What tensor cores of 8.9 and 9.0 may lose of FP8 sums, as a share of the terms' sizes S (kernels/emu/truncated.h).  An
 * instruction adds 32 products to a sum: each of these 33 is cut by less than 2^-13 of the largest, the result by 2^-13 of
 * itself: 34 * 2^-13 S.  After four instructions a sum is added to others in f32, or only the last one is (E4M3, up to 2048
 * of k). */
static double fp8_sum_error(const HsTrial *trial)
{
    const HsProductPolicy policy = trial->config->policy;
    const bool tensor = policy.granularity == HS_SCALE_TENSOR, straight = tensor && policy.a == HS_E4M3;
    if (!trial->on_gpu || (!tensor && policy.granularity != HS_SCALE_BLOCK))
        return 0.0;
    const int64_t instructions = (trial->config->depth + 31) / 32;
    return (double)(straight || instructions < 4 ? instructions : 4) * 34.0 * 0x1p-13;
}

/* Where value's errors go through a gate (bounds.h):
 * forward   both halves of pre are off by `error` and their rounding when it is taken of them;
 * backward  value may have been rounded to c's format, and each output is a product of it. */
static void bound_gate(HsTrial *trial, int64_t row, int64_t column)
{
    const int64_t width = trial->config->columns / 2, gate_at = row * 2 * width + column, up_at = gate_at + width;
    const HsTrialOperand *pre = &trial->operands[PRE];
    const double gate = fabs(hs_exact(trial, PRE)[gate_at]), up = fabs(hs_exact(trial, PRE)[up_at]);
    const double gate_error =
        pre->error[gate_at] + hs_tolerance(0, 0, HS_F32, pre->tensor.dtype, 0.0, gate + pre->error[gate_at]);
    const double up_error =
        pre->error[up_at] + hs_tolerance(0, 0, HS_F32, pre->tensor.dtype, 0.0, up + pre->error[up_at]);
    const double c = fabs(hs_exact(trial, C)[row * width + column]);
    trial->operands[C].error[row * width + column] =
        hs_bound_gated(hs_epilogue_activation(trial->config->epilogue), gate, gate_error, up, up_error, c);
}

static void bound_gate_backward(HsTrial *trial, int64_t row, int64_t column, double magnitude, double error)
{
    const int64_t width = trial->config->columns, gate_at = row * 2 * width + column, up_at = gate_at + width;
    const double gate = hs_initial(trial, PRE)[gate_at], up = fabs(hs_initial(trial, PRE)[up_at]);
    const HsGateBound bound = hs_bound_gate(hs_epilogue_activation(trial->config->epilogue), gate);
    HsTrialOperand *c = &trial->operands[C];
    error += hs_tolerance(0, 0, HS_F32, c->tensor.dtype, 0.0, magnitude + error);
    magnitude += error;
    c->error[gate_at] = bound.slope * error * up + magnitude * up * bound.slope_error;
    c->error[up_at] = error * bound.value + magnitude * bound.value_error;
}

/* What becomes of value's error in element i where a function follows; *added: the size of the result. */
static double bound_activation(HsTrial *trial, int64_t i, double magnitude, double error, double *added)
{
    const bool squares = hs_epilogue_activation(trial->config->epilogue) == HS_ACTIVATION_RELU2;
    HsTrialOperand *pre = &trial->operands[PRE];
    double x = magnitude;
    if (hs_operand_present(trial, PRE)) {
        pre->error[i] = error;
        x = fabs(hs_exact(trial, PRE)[i]);
        /* the function sees pre as stored, so pre's own rounding is passed on as well */
        error += hs_tolerance(0, 0, HS_F32, pre->tensor.dtype, 0.0, x + error);
    }
    *added = squares ? x * x : x;
    return squares ? hs_bound_relu2(x, error) : hs_bound_gelu(x, error);
}

/* ... and of its gradient: |gelu'| <= 1.13, relu2' is exact; the product is one more rounding. */
static double bound_derivative(const HsTrial *trial, int64_t i, double magnitude, double error, double *added)
{
    const double x = hs_initial(trial, PRE)[i];
    const bool squares = hs_epilogue_activation(trial->config->epilogue) == HS_ACTIVATION_RELU2;
    const double slope = squares ? 2.0 * fmax(x, 0.0) : 1.13, off = squares ? 0.0 : hs_bound_gelu_derivative(x);
    *added = slope * magnitude;
    return slope * error + magnitude * (off + slope * hs_gamma(1)) + (squares ? 0x1p-126 : 0.0);
}

/* K terms, as the sums of c; a is stored [K,M]. */
static void bound_row_sums(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, depth = trial->config->depth;
    for (int64_t m = 0; hs_operand_present(trial, ROW_SUMS) && m < rows; m++) {
        double magnitude = fabs(hs_initial(trial, ROW_SUMS)[m]);
        for (int64_t k = 0; k < depth; k++)
            magnitude += fabs(hs_initial(trial, A)[k * rows + m]);
        trial->operands[ROW_SUMS].error[m] = hs_gamma(depth + 4) * magnitude;
    }
}

/* value = alpha sum + addend + bias: K terms of one product each, a factor and two additions; then what the epilogue passes on and adds; then
 * the additions of residual and c. */
static void bound(HsTrial *trial)
{
    const int64_t columns = trial->config->columns, count = trial->config->rows * columns;
    const HsEpilogue epilogue = trial->config->epilogue;
    bound_row_sums(trial);
    for (int64_t i = 0; i < count; i++) {
        const double factor = fabs((double)(alpha_of(trial) * hs_trial_coded_factor(trial)));
        double magnitude = factor * absolute_product(trial, i / columns, i % columns);
        const double rounded =
            (hs_policy_is_tf32(trial->config->policy) ? tf32_product_error : fp8_sum_error(trial)) * magnitude;
        if (hs_operand_present(trial, ADDEND))
            magnitude += fabs(hs_initial(trial, ADDEND)[i]);
        if (hs_operand_present(trial, BIAS))
            magnitude += fabs(hs_initial(trial, BIAS)[i % columns]);
        double error = hs_gamma(trial->config->depth + 4) * (magnitude + rounded) + rounded;
        if (hs_epilogue_gates(epilogue)) {
            trial->operands[PRE].error[i] = error;
            if (i % columns >= columns / 2) /* the gate's error is known by now */
                bound_gate(trial, i / columns, i % columns - columns / 2);
            continue;
        }
        if (hs_epilogue_ungates(epilogue)) {
            bound_gate_backward(trial, i / columns, i % columns, magnitude, error);
            continue;
        }
        double added = magnitude; /* what the last additions see */
        if (hs_epilogue_activates(epilogue))
            error = bound_activation(trial, i, magnitude, error, &added);
        else if (hs_epilogue_differentiates(epilogue))
            error = bound_derivative(trial, i, magnitude, error, &added);
        const double residual = hs_operand_present(trial, RESIDUAL) ? fabs(hs_initial(trial, RESIDUAL)[i]) : 0.0;
        const bool reads_c = trial->operands[C].role == HS_ROLE_BOTH;
        const double previous = reads_c ? fabs(hs_initial(trial, C)[i]) : 0.0;
        if (residual > 0.0 || reads_c)
            error += hs_gamma(2) * (added + error + residual + previous);
        trial->operands[C].error[i] = error;
    }
}

static const HsCase matmul_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, 4096, 3072, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
    { HS_F32, HS_F32, HS_F32, 4096, 3072, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
    { HS_F16, HS_F16, HS_F16, 4096, 3072, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 768, 3072, .options = HS_CASE_PACKED },
    { HS_BF16, HS_F32, HS_BF16, 3072, 768, 4096, .sums = true, .options = HS_CASE_TRANSPOSE_A | HS_CASE_ACCUMULATE },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 3072, 768, .quantized = 1, .options = HS_CASE_TRANSPOSE_B },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 768, 3072, .quantized = 1 },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 3072, 768, .policy = { HS_E4M3, HS_E4M3, HS_SCALE_TENSOR },
      .options = HS_CASE_TRANSPOSE_B },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 768, 3072, .policy = { HS_E5M2, HS_E4M3, HS_SCALE_TENSOR },
      .options = HS_CASE_TRANSPOSE_B },
    { HS_BF16, HS_F32, HS_BF16, 3072, 768, 4096, .policy = { HS_E5M2, HS_E4M3, HS_SCALE_TENSOR },
      .options = HS_CASE_TRANSPOSE_B | HS_CASE_ACCUMULATE },
    { HS_BF16, HS_BF16, HS_BF16, 4096, 3072, 768, .policy = { HS_E4M3, HS_E4M3, HS_SCALE_BLOCK },
      .options = HS_CASE_TRANSPOSE_B },
};

const HsOpTest hs_op_test_matmul = {
    .cases = matmul_cases,
    .case_count = HS_COUNT_OF(matmul_cases),
    .timed = matmul_timed,
    .timed_count = HS_COUNT_OF(matmul_timed),
    .declare = declare,
    .prepare = prepare,
    .bytes = bytes_of,
    .bound = bound,
    .call = call,
    .follow = follow,
};

static const HsCase pack_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, 1, 50304, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
    { HS_F32, HS_F32, HS_F32, 1, 50304, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
    { HS_F16, HS_F16, HS_F16, 1, 50304, 768, .options = HS_CASE_TRANSPOSE_B | HS_CASE_PACKED },
};

/* Whether packing is right shows in the product that follows it; it is timed alone, on the head of GPT-2. */
const HsOpTest hs_op_test_pack_weight = {
    .cases = pack_cases,
    .case_count = HS_COUNT_OF(pack_cases),
    .timed = pack_timed,
    .timed_count = HS_COUNT_OF(pack_timed),
    .timed_call = call_pack,
    .bytes = bytes_pack,
    .declare = declare,
    .bound = bound,
    .call = call,
};
