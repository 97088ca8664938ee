/* SPDX-License-Identifier: MIT
 *
 * The one table of operations.  From it come the vtable (HsBackend), the checked entry points (hs_op_<name>), the
 * per-backend prototypes, the dispatcher's shape checks, the test cases' names and the documentation.
 *
 * Conventions
 *   N      rows (tokens, B*T)            H   query heads             V    vocabulary
 *   C, F   features                      G   key/value heads         16   bf16 or f16
 *   T      tokens of a sequence          D   head dimension          act  f32, bf16 or f16
 *
 * Every kernel computes in f32 (ref: in double) and rounds once, to nearest even, at each output's dtype.  Optional
 * tensors are absent when their rank is 0.  Outputs may alias inputs only where stated.  An `accumulate` output is
 * read, added to in f32, rounded once.  Weight and bias gradients always accumulate.
 * An output's `amax`, where it has one, becomes the largest magnitude of what is stored, if that is larger than what
 * stands there; a NaN is larger than infinity.  The operations that find it are marked in their rows in operands.c; the
 * others refuse it.  A cast that takes its scale from it (quantize) need not read its operand for it then.
 * Errors: HS_ESHAPE from the checks, HS_EUNSUPPORTED from a backend.
 */
#ifndef HS_KERNELS_OPS_OPS_H
#define HS_KERNELS_OPS_OPS_H

#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/base/tensor.h"
#include "kernels/ops/codes.h"
#include "kernels/ops/dynamic_map.h"
#include "kernels/ops/nf4.h"
#include "kernels/ops/operand.h"
#include "kernels/ops/product_policy.h"
#include "kernels/ops/rope_rule.h"
#include "kernels/ops/step.h"

/* name, argument struct, formula */
#define HS_OPS(X)                                                                                                     \
    X(matmul, HsMatmulArgs,                                                                                           \
      "c = epilogue(alpha op(a) op(b) + addend + bias) + residual [+ c]; row_sums += sum over k of op(a)")            \
    X(pack_weight, HsPackWeightArgs, "packed = the backend's own layout of op(w) as a product's right operand")       \
    X(quantize, HsQuantizeArgs, "codes = round(x scale), scales from the largest magnitudes: kernels/ops/codes.h")    \
    X(roll_scales, HsRollScalesArgs, "history = amax of this step, kept = largest / the history's maximum; amax = 0") \
    X(bias_backward, HsBiasBackwardArgs, "dbias += sum over rows of dy")                                              \
    X(document_starts, HsDocumentStartsArgs, "starts[n] = t of the document's first token; tokens[n] = max(~x, x)")   \
    X(embedding_forward, HsEmbeddingArgs, "y[n] = factor token_table[tokens[n]] + position_table[position of n]")     \
    X(embedding_backward, HsEmbeddingBackwardArgs,                                                                    \
      "dtoken_table[tokens[n]] += factor dy[n]; dposition_table[position of n] += dy[n]")                             \
    X(gather_rows, HsMoveRowsArgs, "y[n] = x[rows[n]]; where rows[n] is -1: 0, of integers -1")                       \
    X(scatter_rows, HsMoveRowsArgs, "y[rows[n]] = x[n]; where rows[n] is -1: nothing")                                \
    X(norm_forward, HsNormArgs,                                                                                       \
      "[x = residual + mask(branch) / (1 - p);] y = weight * (x - mean) * rstd + bias [+ addend]; rms: mean = 0")     \
    X(norm_backward, HsNormBackwardArgs,                                                                              \
      "dx [+]= rstd * (g - mean(g) - xhat * mean(g*xhat)), g = weight * dy; dx_sums += sum over rows of dx; "         \
      "dx_masked = mask(dx) / (1 - p)")                                                                               \
    X(head_norm_forward, HsHeadNormArgs, "per q and k head, or of all at once: y = weight * x * rstd; v is copied")   \
    X(head_norm_backward, HsHeadNormBackwardArgs, "as norm_backward, rms, per head; dv is copied")                    \
    X(rope, HsRopeArgs, "q, k heads rotated by +-position * w_i, halves paired; w_i: kernels/ops/rope_rule.h")        \
    X(attention_forward, HsAttentionArgs, "out = dropout(softmax(scale q k^T + mask)) v; lse = log sum exp")          \
    X(attention_backward, HsAttentionBackwardArgs, "dqkv from dout, recomputing p = exp(scale q k^T - lse) by tiles") \
    X(attention_cached, HsAttentionCachedArgs, "append k, v to the cache; out = softmax(scale q K^T + causal) V")     \
    X(sink_backward, HsSinkBackwardArgs, "dsinks[h] -= sum over rows of exp(sinks[h] - lse) dout.out")                \
    X(blend_forward, HsBlendArgs, "y = a x + sign b z, a and b learned numbers; y = x + sign b z without a")          \
    X(blend_backward, HsBlendBackwardArgs,                                                                            \
      "dx [+]= a dy; dz [+]= sign b dy; da += sum of dy x; db += sign sum of dy z")                                   \
    X(gate_forward, HsGateArgs, "gate[n,g] = factor / (1 + exp(-w[g].x[n,:K]))")                                      \
    X(gate_backward, HsGateBackwardArgs,                                                                              \
      "da = dgate gate (1 - gate / factor); dw += da^T x[:,:K]; dx[:,:K] [+]= da w")                                  \
    X(smear_forward, HsSmearArgs, "y[n] = x[n] + strength gate[n] x[n - 1] within a document")                        \
    X(smear_backward, HsSmearBackwardArgs,                                                                            \
      "dx[n] = dy[n] + strength gate[n + 1] dy[n + 1]; dgate[n] = strength dy[n].x[n - 1]; dstrength += ...")         \
    X(add_values_forward, HsAddValuesArgs, "values of kv head g: v[n,g] += gate[n,g] table[tokens[n],g]")             \
    X(add_values_backward, HsAddValuesBackwardArgs,                                                                   \
      "drows[n,g] = gate[n,g] dv[n,g]; dgate[n,g] = dv[n,g].table[tokens[n],g]")                                      \
    X(swiglu_forward, HsUnaryArgs, "y = f(gate) * up, x = [gate | up], f = silu (SwiGLU) or gelu (GEGLU)")            \
    X(swiglu_backward, HsUnaryBackwardArgs, "dgate = dy*up*f'(gate); dup = dy*f(gate)")                               \
    X(dropout_forward, HsDropoutArgs, "y = residual + mask(x) / (1 - p)")                                             \
    X(dropout_backward, HsDropoutArgs, "y = mask(x) / (1 - p), x = dy")                                               \
    X(cross_entropy, HsCrossEntropyArgs,                                                                              \
      "loss = lse - logit[target] + z lse^2; dlogits = gs ((1 + 2 z lse) p - onehot), through the cap")               \
    X(top_logits, HsTopLogitsArgs, "value[n], index[n]: the K largest logits of row n, in falling order")             \
    X(match_logits, HsMatchLogitsArgs,                                                                                \
      "loss = a/K sum_k (logit[index_k] - value_k)^2; dlogits = b dlogits + gs dloss/dlogits, in replayed rows")      \
    X(distill, HsDistillArgs,                                                                                         \
      "loss = a KL(softmax(teacher/t), softmax(logits/t)); dlogits = b dlogits + gs dloss/dlogits")                   \
    X(grad_stats, HsGradStatsArgs, "sum of squares and count of non-finite elements, per tensor")                     \
    X(adamw, HsAdamWArgs, "Loshchilov & Hutter 2019, algorithm 2; one pass with unscale, clip, master, copy")         \
    X(adamw8bit, HsAdamW8bitArgs, "adamw with moments in 8 bits: decode, adamw, encode; kernels/ops/moment_map.h")    \
    X(sgd, HsSgdArgs, "buf = momentum buf + g + wd p; p -= lr buf (nesterov: g + momentum buf)")                      \
    X(update_list, HsUpdateListArgs, "adamw, adamw8bit and sgd of many tensors, with the bits of one after another")  \
    X(momentum, HsMomentumArgs, "m = b m + (1 - b) g; direction = m (nesterov: (1 - b) g + b m)")                     \
    X(random_matrix, HsRandomMatrixArgs, "y[e] = bits that are set in random word e, minus 16")                       \
    X(channel_factors, HsChannelFactorsArgs,                                                                          \
      "factors[j] = scale |adam(r)[:,j]| / |r[:,j]|, smaller where |factors g| would grow too much")                  \
    X(normalize, HsNormalizeArgs, "y = round(x / (sqrt(sum of squares) + eps))")                                      \
    X(scale_neurons, HsScaleNeuronsArgs, "V = b2 V + (1 - b2) mean(x^2); x = size x / (sqrt(V) + eps) / its rms")     \
    X(descend, HsDescendArgs, "p -= lr (wd p + direction), each row or column of direction times a factor")           \
    X(convert, HsConvertArgs, "y = round(x)")                                                                         \
    X(combine, HsCombineArgs, "y = alpha x + beta y")                                                                 \
    X(copy_columns, HsCopyColumnsArgs, "y[n, to + c] = scale[n] (x[n, from + c] - minus[n, from + c])")               \
    X(dot, HsDotArgs, "sum of x y, per pair of tensors")                                                              \
    X(sample_labels, HsSampleLabelsArgs, "target[n] drawn from softmax(logits[n]) where it is not -1")                \
    X(argmax, HsArgmaxArgs, "index[n] = the lowest v < count with the largest logits[n,v]")                           \
    X(square_accumulate, HsSquareAccumulateArgs, "accumulator += weight (multiplier grad)^2; grad = 0")               \
    X(consolidate, HsConsolidateArgs, "importance = decay importance + scale fresh; anchor = p; fresh = 0")           \
    X(consolidate_path, HsConsolidatePathArgs,                                                                        \
      "importance = max(0, importance + path / ((p - anchor)^2 + damping)); anchor = p; path = 0")                    \
    X(importance_stats, HsImportanceStatsArgs, "maximum, sum and sum of squares, per tensor")                         \
    X(penalty, HsPenaltyArgs, "sum of importance (p - anchor)^2, per tensor")                                         \
    X(average, HsAverageArgs, "average += rate (x - average)")                                                        \
    X(interpolate, HsInterpolateArgs, "p = anchor + rate (p - anchor); weight = round(p)")                            \
    X(begin_step, HsBeginStepArgs, "gradient_scales = loss scale / counted targets")                                  \
    X(prepare_step, HsPrepareStepArgs,                                                                                \
      "norm, apply or skip, loss scale, clip, bias corrections: kernels/ops/step_rule.h")

typedef enum HsEpilogue {
    HS_EPILOGUE_NONE = 0,
    HS_EPILOGUE_GELU,          /* pre = the value before it (if present), c = gelu(pre rounded to pre's dtype) */
    HS_EPILOGUE_GELU_BACKWARD, /* c = value * gelu'(pre) */
    /* N = 2F, value = [gate|up]: pre [M,2F] = value, c [M,F] = silu(gate) up of pre as it is stored (Shazeer 2020) */
    HS_EPILOGUE_SWIGLU,
    /* N = F, pre [M,2F] = [gate|up]: c [M,2F] = [value up silu'(gate) | value silu(gate)];
     * a backend may round value to c's dtype first */
    HS_EPILOGUE_SWIGLU_BACKWARD,
    HS_EPILOGUE_GEGLU,          /* as SwiGLU with gelu in place of silu (Shazeer 2020) */
    HS_EPILOGUE_GEGLU_BACKWARD, /* with gelu' */
    HS_EPILOGUE_RELU2,          /* as GELU with max(x, 0)^2 (So et al. 2021, section 3.1) */
    HS_EPILOGUE_RELU2_BACKWARD  /* c = value * 2 max(pre, 0) */
} HsEpilogue;

/* Functions of one number.
 *   gelu   x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016, section 2)
 *   silu   x / (1 + exp(-x))                              relu2   max(x, 0)^2 */
typedef enum HsActivation {
    HS_ACTIVATION_NONE = 0,
    HS_ACTIVATION_GELU,
    HS_ACTIVATION_SILU,
    HS_ACTIVATION_RELU2
} HsActivation;

/* What follows is asked on devices, too.  A function of a gate times a linear half: two columns of the product become
 * one. */
HS_CODE_FUNCTION bool hs_epilogue_gates(HsEpilogue epilogue)
{
    return epilogue == HS_EPILOGUE_SWIGLU || epilogue == HS_EPILOGUE_GEGLU;
}

/* The gradient of that: one column becomes two. */
HS_CODE_FUNCTION bool hs_epilogue_ungates(HsEpilogue epilogue)
{
    return epilogue == HS_EPILOGUE_SWIGLU_BACKWARD || epilogue == HS_EPILOGUE_GEGLU_BACKWARD;
}

/* One of the two: c is not of the product's shape. */
HS_CODE_FUNCTION bool hs_epilogue_reshapes(HsEpilogue epilogue)
{
    return hs_epilogue_gates(epilogue) || hs_epilogue_ungates(epilogue);
}

/* A function of each number by itself. */
HS_CODE_FUNCTION bool hs_epilogue_activates(HsEpilogue epilogue)
{
    return epilogue == HS_EPILOGUE_GELU || epilogue == HS_EPILOGUE_RELU2;
}

/* The gradient of that. */
HS_CODE_FUNCTION bool hs_epilogue_differentiates(HsEpilogue epilogue)
{
    return epilogue == HS_EPILOGUE_GELU_BACKWARD || epilogue == HS_EPILOGUE_RELU2_BACKWARD;
}

/* Of the number or of the gate, forward and backward. */
HS_CODE_FUNCTION HsActivation hs_epilogue_activation(HsEpilogue epilogue)
{
    switch (epilogue) {
    case HS_EPILOGUE_NONE:
        break;
    case HS_EPILOGUE_GELU:
    case HS_EPILOGUE_GELU_BACKWARD:
    case HS_EPILOGUE_GEGLU:
    case HS_EPILOGUE_GEGLU_BACKWARD:
        return HS_ACTIVATION_GELU;
    case HS_EPILOGUE_SWIGLU:
    case HS_EPILOGUE_SWIGLU_BACKWARD:
        return HS_ACTIVATION_SILU;
    case HS_EPILOGUE_RELU2:
    case HS_EPILOGUE_RELU2_BACKWARD:
        return HS_ACTIVATION_RELU2;
    }
    return HS_ACTIVATION_NONE;
}

/* The one that goes back through a forward epilogue. */
HS_CODE_FUNCTION HsEpilogue hs_epilogue_gradient(HsEpilogue forward)
{
    switch (forward) {
    case HS_EPILOGUE_GELU:
        return HS_EPILOGUE_GELU_BACKWARD;
    case HS_EPILOGUE_SWIGLU:
        return HS_EPILOGUE_SWIGLU_BACKWARD;
    case HS_EPILOGUE_GEGLU:
        return HS_EPILOGUE_GEGLU_BACKWARD;
    case HS_EPILOGUE_RELU2:
        return HS_EPILOGUE_RELU2_BACKWARD;
    default:
        return HS_EPILOGUE_NONE;
    }
}

/* op(a) [M,K], op(b) [K,N], c [M,N] but for SwiGLU and GEGLU.  a and b: both act, same dtype unless the policy rounds
 * both.  c: f32 or a's 16-bit dtype; it overlaps no operand but as said here.
 * transpose_a: a is stored [K,M];  transpose_b: b is stored [N,K].
 *   forward  y[N,out] = x[N,in] w[out,in]^T : transpose_b         dgrad dx = dy w : neither
 *   wgrad    dw[out,in] += dy^T x           : transpose_a, accumulate
 * alpha: a factor of the sum, not 0.  addend [M,N] act, optional, added before the epilogue.  bias [N] f32.
 * residual [M,N] act, may be c itself.  pre [M,N] act.  SwiGLU and GEGLU take neither residual nor accumulate.
 * c does not accumulate where its amax is asked for.
 * cast: optional, c in codes (hs_cast_apart).  Such a c does not accumulate.
 * row_sums [M] f32, optional, accumulated: row_sums[m] += sum over k of op(a)[m,k], of a as it is stored, whatever alpha
 * and policy say.  With transpose_a only, and not with SwiGLU or GEGLU: the bias's gradient, made with the weight's.
 * b may be packed, or in four bits: its columns as stored are a multiple of HS_NF4_RUN then, and a is not transposed.
 * Both in codes, or neither: of a, which is not transposed, and of b, which is; alpha is also multiplied by both scalings'
 * factors, alpha * (a's * b's) in f32.
 * symmetric: the caller knows that c is, and so may a backend compute one half and copy it, with the bits of both.  Plain
 * products of rows and an addend only.
 * policy: the formats of codes, or tf32, to which operands may be rounded: ref and cpu compute in full
 * precision then.  Sums stay f32.  errors: HS_EUNSUPPORTED for a policy that the backend does not have.
 */
typedef struct HsMatmulArgs {
    HsOperand a, b;
    bool transpose_a, transpose_b;
    HsProductPolicy policy;
    float alpha;
    HsTensor addend, bias, residual, pre;
    HsEpilogue epilogue;
    bool accumulate, symmetric;
    HsTensor c, row_sums;
    HsCodes cast;
} HsMatmulArgs;

/* w act [rows, columns]; transposed: op(b) = w^T, so k = columns, n = rows; else k = rows, n = columns. */
typedef struct HsPackWeightArgs {
    HsTensor w;
    bool transposed;
    HsPacked *packed;
} HsPackWeightArgs;

/* From which magnitudes a tensor's scale follows. */
typedef enum HsScaleSource {
    HS_SCALE_OWN,   /* x's own: current scaling.  From x.amax, where that is; what is rotated is read for its own */
    HS_SCALE_KEPT,  /* scaling->kept: delayed scaling; of granularity tensor alone */
    HS_SCALE_LATEST /* the scale of the cast before, of the same numbers */
} HsScaleSource;

/* x [N,C] in codes: of itself, and of its transpose.  Each number times its scale is rounded to f32, then to the format:
 * to nearest even, or by random bits, word e % 4 of draw e / 4 for element e = (row_offset + n) C + c; what is beyond the
 * largest number becomes that.  Every backend gives the same codes, scales and counts. */
typedef struct HsQuantizeArgs {
    HsTensor x; /* [N,C] act */
    HsCodes along,
        across;   /* [N,C], [C,N]; each optional; of one format and granularity, and one scaling unless rotated */
    bool squares; /* a block scale serves a square: as many rows as it has elements */
    HsScaleSource source;
    bool power_of_two; /* granularity tensor: the scale's mantissa is cleared */
    bool records;      /* adds to the scaling's amax and counts: along's, or across's where it is alone */
    bool rotates; /* across, of granularity nv: runs of HS_CODES_RUN along N are rotated first (code_rule.h), but not
                        * what is left of N behind them; then it has its own scaling */
    bool stochastic;
    HsRng rng;
} HsQuantizeArgs;

/* The `cast` of an operation's result: what quantize makes of it in FP8, by the one scale that the codes' scaling kept,
 * recorded.  Such a result [N,C] is bf16, has its amax there alone, and may be left as it was: the codes are all that is read
 * of it.  This is the same cast of a result that was stored. */
static inline HsQuantizeArgs hs_cast_apart(const HsTensor *result, const HsCodes *codes)
{
    HsQuantizeArgs cast;
    memset(&cast, 0, sizeof cast);
    cast.x = *result;
    cast.along = *codes;
    cast.source = HS_SCALE_KEPT;
    cast.records = true;
    return cast;
}

/* The end of a step, for `count` scalings: each one's amax becomes the newest entry of its history, a ring of L, unless it
 * is 0 (nothing was quantized) or not finite; kept = largest 2^-margin / amax, the history's maximum or its newest entry;
 * what was recorded goes to report, and is 0 for the next step (Micikevicius et al. 2022, section 3.3).
 * Several processes that share histories agree on maxima in between: one call with `gathers`, which only writes
 * maxima = amax, infinity for what is not finite; and one that reads the largest of all processes instead. */
typedef struct HsRollScalesArgs {
    HsScaling *scalings, *report; /* [count], memory of the device; report may be NULL */
    int64_t count;
    HsTensor history; /* [count,L] f32; optional: no delayed scaling, kept stays */
    HsTensor maxima;  /* [count] f32; optional */
    bool gathers;
    bool most_recent; /* kept follows from the newest amax alone */
    float margin;     /* at least 0 */
} HsRollScalesArgs;

typedef struct HsBiasBackwardArgs {
    HsTensor dy;    /* [N,C] act */
    HsTensor dbias; /* [C] f32, accumulated */
} HsBiasBackwardArgs;

/* Several documents in one sequence.  A token that begins a document, other than the sequence's first, is marked: it is
 * stored as its bitwise complement, which is negative.  The marks are taken off, and
 *     starts[n] = the largest t' <= n mod T with a marked token, else 0
 * Operations that take `starts` [N] i32 then work within documents: positions count from the document's first token, and
 * no token attends to another document's.  Absent: a sequence is one document. */
typedef struct HsDocumentStartsArgs {
    HsTensor tokens;         /* [N] i32, updated */
    int64_t sequence_length; /* T; N is a multiple */
    HsTensor starts;         /* [N] i32 */
} HsDocumentStartsArgs;

/* The position of n is position_start + n mod T, less starts[n] where there are starts. */
typedef struct HsEmbeddingArgs {
    HsTensor tokens;         /* [N] i32, each in [0, V): checked when the batch is made */
    HsTensor token_table;    /* [V,C] act */
    HsTensor position_table; /* [maxT,C] act, optional */
    HsTensor starts;         /* [N] i32, optional */
    int64_t sequence_length; /* T; N is a multiple */
    int64_t position_start;  /* 0 in training */
    float factor;            /* of the token's row, not 0 */
    HsTensor y;              /* [N,C] act */
} HsEmbeddingArgs;

/* Deterministic: each table row is summed in an order that depends on the tokens alone (increasing n, or fixed tiles of
 * it). */
typedef struct HsEmbeddingBackwardArgs {
    HsTensor tokens, dy;
    HsTensor starts; /* [N] i32, optional */
    int64_t sequence_length;
    float factor;             /* as in forward */
    HsTensor dtoken_table;    /* [V,C] f32 or 16, optional, accumulated */
    HsTensor dposition_table; /* [maxT,C], optional, accumulated */
} HsEmbeddingBackwardArgs;

/* gather_rows: rows of x [M,C] one behind the other into y [N,C]; scatter_rows: those of x [N,C] back into y [M,C], of
 * which the rows that are not named stay as they are.  Nothing is rounded.  y overlaps nothing. */
typedef struct HsMoveRowsArgs {
    HsTensor x;    /* act or i32 */
    HsTensor rows; /* [N] i32 in [-1, M); scatter_rows: a row is named once at most */
    HsTensor y;    /* of x's dtype */
} HsMoveRowsArgs;

typedef enum HsNormKind { HS_NORM_LAYER, HS_NORM_RMS } HsNormKind;

/* Layer norm (Ba, Kiros & Hinton 2016, eq. 4) or root-mean-square norm (Zhang & Sennrich 2019, eq. 4). */
typedef struct HsNormArgs {
    HsNormKind kind;
    float epsilon;
    HsTensor x;            /* [N,C] act */
    HsTensor weight, bias; /* [C] f32; each optional, and no bias without a weight */
    HsTensor addend;       /* [N,C] act, optional, and not with a branch: the stream that a normed branch is added to */
    HsTensor y;            /* [N,C] act; may be x when the dtypes agree and there is no branch or addend, or addend */
    HsTensor mean, rstd;   /* [N] f32, saved for backward; mean absent for rms */
    /* Where there is a branch, x is an output, too: first it gets what dropout_forward makes of branch and residual, to
     * the bit, and the norm reads what is stored there.  x may be residual. */
    HsTensor branch, residual; /* [N,C] act, both or none */
    float probability;
    HsRng rng;
    HsCodes cast; /* optional, and not with an addend: y in codes (hs_cast_apart) */
} HsNormArgs;

typedef struct HsNormBackwardArgs {
    HsNormKind kind;
    HsTensor dy, x, weight, mean, rstd; /* weight as in forward; an addend's gradient is dy itself */
    bool accumulate;                    /* dx += (the residual stream's second consumer) */
    HsTensor dx;                        /* [N,C] act */
    HsTensor dweight, dbias;            /* [C] f32, accumulated; each optional */
    /* What a product wants of an f32 dx, each optional: the numbers that convert and bias_backward make of it as it is
     * stored.  ref and cpu give their very bits, the others those of dx_rounded; their sums have another order. */
    HsTensor dx_rounded; /* [N,C] 16 */
    HsTensor dx_sums;    /* [C] f32, accumulated: += sum over rows of dx */
    HsCodes cast;        /* optional: dx_rounded in codes (hs_cast_apart) */
    /* What dropout_backward makes of dx as it is stored, to the bit: the gradient of the branch below that, added to a
     * residual, gives x.  Optional, and not together with the two above. */
    HsTensor dx_masked; /* [N,C] act */
    float probability;
    HsRng rng;
} HsNormBackwardArgs;

/* What goes to a linear layer below: the one of the three that may ask for its amax. */
static inline const HsTensor *hs_norm_handed_on(const HsNormBackwardArgs *args)
{
    return hs_tensor_present(&args->dx_masked)    ? &args->dx_masked
           : hs_tensor_present(&args->dx_rounded) ? &args->dx_rounded
                                                  : &args->dx;
}

/* The packed projection: row n = [q heads (H*D) | k heads (G*D) | v heads (G*D)]. */
typedef struct HsHeads {
    int64_t batch, sequence_length, heads, kv_heads, head_dim;
} HsHeads;

/* QK-norm: RMS norm of each q and k head (Qwen3), or of all q features at once and all k features at once (OLMo 2). */
typedef struct HsHeadNormArgs {
    HsHeads heads;
    bool whole; /* of all at once */
    float epsilon;
    HsTensor x;                  /* [N,(H+2G)D] act */
    HsTensor q_weight, k_weight; /* [D] f32; whole: [HD], [GD]; optional, both or none */
    HsTensor y;                  /* as x */
    HsTensor rstd;               /* [N,H+G] f32; whole: [N,2] */
} HsHeadNormArgs;

typedef struct HsHeadNormBackwardArgs {
    HsHeads heads;
    bool whole;
    HsTensor dy, x, q_weight, k_weight, rstd;
    HsTensor dx;
    HsTensor dq_weight, dk_weight; /* as the weights, accumulated; each optional */
} HsHeadNormBackwardArgs;

/* Rotary embedding (Su et al. 2021, eq. 34) in the halves layout of Llama: pairs (i, i + R/2) of the first R features of
 * a head; the others are copied.  y may be x.  What is rotated is also multiplied by the rule's amplitude, which is not 1
 * under yarn and longrope. */
typedef struct HsRopeArgs {
    HsHeads heads;
    HsRopeRule rule;
    int64_t position_start;
    bool inverse;    /* backward: rotate by the negative angle */
    HsTensor starts; /* [N] i32, optional: positions as the embedding's */
    HsTensor x, y;   /* [N,(H+2G)D] act, same dtype; v heads are copied */
} HsRopeArgs;

/* Which keys a query sees, and what becomes of a score on its way into the softmax.  Query i of a sequence sees the keys j
 * with  max(starts[i], i - window + 1) <= j <= i:  `window` keys with its own.  With s = scale q.k the score is s, or
 * cap tanh(s / cap) (Bello et al. 2016, section 5.2.1; Gemma Team 2024, section 2), which is taken before keys are hidden. */
typedef struct HsScoreRule {
    float scale;     /* above 0 */
    float cap;       /* 0: none */
    int64_t window;  /* 0: all keys before */
    HsTensor starts; /* [N] i32, optional; of training and evaluation alone */
} HsScoreRule;

/* Causal attention with grouped queries (query head h reads kv head h / (H/G)), by tiles with the online softmax
 * (Dao 2023, algorithm 1): no T x T matrix is ever held; tiles of keys that none of a tile's queries sees are left out.
 * Dropout acts on the probabilities; the mask's element index is ((row_offset + n) * H + h) * T + key position. */
typedef struct HsAttentionArgs {
    HsHeads heads;
    HsScoreRule rule;
    float dropout;
    HsRng rng;
    HsTensor qkv;   /* [N,(H+2G)D] act */
    HsTensor sinks; /* [H] f32, optional: a logit a head that adds to the softmax's denominator alone */
    HsTensor out;   /* [N,H*D] act */
    HsTensor lse;   /* [N,H] f32, with the sink: log(sum_j exp(s_ij) + exp(sink)) */
} HsAttentionArgs;

typedef struct HsAttentionBackwardArgs {
    HsHeads heads;
    HsScoreRule rule; /* as in forward */
    float dropout;
    HsRng rng;
    HsTensor dout, qkv, out, lse;
    HsTensor dqkv;
} HsAttentionBackwardArgs;

/* Generation: sequence_length new rows per sequence at positions position_start..., attending to all before them. */
typedef struct HsAttentionCachedArgs {
    HsHeads heads;
    HsScoreRule rule;
    int64_t position_start;
    HsTensor qkv;              /* [B*Tnew,(H+2G)D] */
    HsTensor k_cache, v_cache; /* [B, Tmax, G*D] act, same dtype as qkv */
    HsTensor sinks;            /* [H] f32, optional */
    HsTensor out;              /* [B*Tnew,H*D] */
} HsAttentionCachedArgs;

/* The sinks' part of attention's gradient (OpenAI 2025, gpt-oss, section 2.2).  attention_backward needs to know nothing
 * of them, as lse holds them: with p_sink = exp(sink - lse), d(sink) = -p_sink dout.out summed over the rows. */
typedef struct HsSinkBackwardArgs {
    HsHeads heads;
    HsTensor dout, out; /* [N,H*D] act */
    HsTensor lse;       /* [N,H] f32 */
    HsTensor sinks;     /* [H] f32 */
    HsTensor dsinks;    /* [H] f32, accumulated */
} HsSinkBackwardArgs;

/* A stream as the sum of two, by learned numbers (nanochat: an earlier state of the residual stream is mixed in again, or
 * taken out).  a and b are elements `at` of vectors, one for each layer. */
typedef struct HsBlendArgs {
    int64_t at;
    float sign;    /* 1 or -1 */
    HsTensor a, b; /* [L] f32; a optional: 1 */
    HsTensor x, z; /* [N,C] act, of one dtype */
    HsTensor y;    /* [N,C] as x; may be x */
} HsBlendArgs;

/* Of dx, dz, da and db at least one. */
typedef struct HsBlendBackwardArgs {
    int64_t at;
    float sign;
    HsTensor a, b;
    HsTensor dy, x, z;               /* [N,C] act; x with da alone, z with db alone, as nothing else reads them */
    bool accumulate_x, accumulate_z; /* dx +=, dz += */
    HsTensor dx, dz;                 /* [N,C] act, each optional; dx may be dy where it does not accumulate */
    HsTensor da, db;                 /* [L] f32, each optional, da with a alone: element `at` is added to; in an order
                                        * that depends on shapes alone */
} HsBlendBackwardArgs;

/* A number for each row and head from the first K features of the row. */
typedef struct HsGateArgs {
    float factor;  /* above 0: the largest that a gate becomes */
    HsTensor x;    /* [N,C] act, C >= K */
    HsTensor w;    /* [G,K] act, whatever x is */
    HsTensor gate; /* [N,G] f32 */
} HsGateArgs;

/* Of dx and dw at least one. */
typedef struct HsGateBackwardArgs {
    float factor;
    HsTensor dgate, gate; /* [N,G] f32 */
    HsTensor x, w;        /* x with dw alone, as nothing else reads it */
    bool accumulate;      /* dx +=, where columns from K on stay as they are; else these become 0 */
    HsTensor dx;          /* [N,C] act, optional */
    HsTensor dw;          /* [G,K] f32 or 16, optional, accumulated in an order that depends on shapes alone */
} HsGateBackwardArgs;

/* The token before, mixed in (nanochat's smear).  The first token of a document, and of a sequence, has none: y = x.
 * y overlaps nothing. */
typedef struct HsSmearArgs {
    int64_t sequence_length; /* T; N is a multiple */
    HsTensor starts;         /* [N] i32, optional */
    HsTensor before;         /* [N / T,C] as x, optional, without starts: x of the token before each sequence's first */
    HsTensor x;              /* [N,C] act */
    HsTensor gate;           /* [N,1] f32 */
    HsTensor strength;       /* [1] f32 */
    HsTensor y;              /* [N,C] as x */
} HsSmearArgs;

typedef struct HsSmearBackwardArgs {
    int64_t sequence_length;
    HsTensor starts;
    HsTensor dy, x;     /* [N,C] act */
    HsTensor gate;      /* [N,1] f32 */
    HsTensor strength;  /* [1] f32 */
    HsTensor dx;        /* [N,C] act; overlaps nothing */
    HsTensor dgate;     /* [N,1] f32; 0 where there is no token before */
    HsTensor dstrength; /* [1] f32, optional, accumulated in an order that depends on shapes alone: += sum over rows of
                           * gate[n] dy[n].x[n - 1] */
} HsSmearBackwardArgs;

/* Values of tokens by themselves, added to those of attention in packed rows (Zhou et al. 2024; nanochat). */
typedef struct HsAddValuesArgs {
    HsHeads heads;
    HsTensor tokens; /* [N] i32, each in [0, V) */
    HsTensor table;  /* [V,G*D] act */
    HsTensor gate;   /* [N,G] f32 */
    HsTensor x, y;   /* [N,(H+2G)D] act; q and k heads are copied; y may be x */
} HsAddValuesArgs;

typedef struct HsAddValuesBackwardArgs {
    HsHeads heads;
    HsTensor tokens, table, gate;
    HsTensor dy;    /* [N,(H+2G)D] act: the gradient of y, and of x */
    HsTensor drows; /* [N,G*D] act: of the table's rows, for embedding_backward; optional */
    HsTensor dgate; /* [N,G] f32 */
} HsAddValuesBackwardArgs;

/* x [N,2F] = [gate|up], y [N,F], both act */
typedef struct HsUnaryArgs {
    HsActivation gate; /* f: silu or gelu */
    HsTensor x, y;
} HsUnaryArgs;

typedef struct HsUnaryBackwardArgs {
    HsActivation gate;
    HsTensor dy, x; /* [N,F], [N,2F] act */
    HsTensor dx;    /* [N,2F] act */
} HsUnaryBackwardArgs;

typedef struct HsDropoutArgs {
    float probability;
    HsRng rng;         /* the mask's element index is (row_offset + n) * C + c */
    HsTensor x;        /* [N,C] act */
    HsTensor residual; /* [N,C] act, optional; forward only */
    HsTensor y;        /* [N,C] act; may be x or residual when dtypes agree */
} HsDropoutArgs;

/* Softmax cross-entropy over rows, loss in nats, with the gradient in the same pass.  A target of -1 is ignored: loss
 * 0, gradient row 0.  z-loss: PaLM (Chowdhery et al. 2022, section 5).
 * Here and below, where there is a `cap` c, a logit is  c tanh(x / c)  of the number x that is stored (Gemma Team 2024,
 * section 2), in f32, and dlogits are gradients with respect to x:  those of the logit times 1 - (logit / c)^2. */
typedef struct HsCrossEntropyArgs {
    HsTensor logits;             /* [N,V] act */
    float cap;                   /* 0: none */
    HsTensor targets;            /* [N] i32, -1 or in [0, V) */
    float z_loss;                /* coefficient z, 0 for none */
    const float *gradient_scale; /* device scalar gs: loss scale / number of counted targets */
    HsTensor losses;             /* [N] f32: the cross-entropy, without the z term */
    HsTensor dlogits;            /* [N,V] act, of 16-bit logits their own; optional; may be logits itself */
} HsCrossEntropyArgs;

/* What dark experience replay keeps of a row (Buzzega et al. 2020, section 3).  The order is that of the numbers that are
 * stored, with a cap and without.  Of equal ones the first comes first; NaN is never taken.  Where a row has fewer than K
 * numbers, the last entries have index -1 and value 0. */
enum { HS_MOST_KEPT_LOGITS = 256 };
typedef struct HsTopLogitsArgs {
    HsTensor logits; /* [N,V] f32 */
    float cap;
    HsTensor value; /* [N,K] f32, K at most V and HS_MOST_KEPT_LOGITS */
    HsTensor index; /* [N,K] i32 */
} HsTopLogitsArgs;

/* DER++ (Buzzega et al. 2020, eq. 6) in replayed rows with a target other than -1: the squared distance to the logits
 * that were kept, their mean over the K kept ones, added to b times the cross-entropy, with its gradient in dlogits
 * already.  Entries with index -1 are passed over; the others of a row differ.  Other rows stay as they are. */
typedef struct HsMatchLogitsArgs {
    HsTensor logits;             /* [N,V] f32 */
    float cap;                   /* of logits; values are kept with it */
    HsTensor targets, replayed;  /* [N] i32; replayed: 0 or 1 */
    HsTensor value, index;       /* [N,K] f32, i32 in [-1, V) */
    float weight, target_weight; /* a, b */
    const float *gradient_scale; /* device scalar gs */
    HsTensor losses;             /* [N] f32: the distance with its weight; 0 in other rows */
    HsTensor dlogits;            /* [N,V] act, not logits itself */
} HsMatchLogitsArgs;

/* How a teacher teaches in rows of a kind: a 0: not at all, and the other two mean nothing. */
typedef struct HsTeaching {
    float weight;        /* a */
    float temperature;   /* t, above 0 */
    float target_weight; /* b: of what dlogits hold already, the gradient of the loss on the rows' targets */
} HsTeaching;

/* Knowledge distillation (Hinton et al. 2015; LwF: Li & Hoiem 2016, eq. 2 and 3) in rows with a target other than -1,
 * new and replayed ones each by their own rule.  With p and q the softmax of logits / t and teacher / t,
 *     dlogits = b dlogits + gs a / t (p - q)
 * The loss is LwF's cross-entropy of q and p without q's own entropy, a constant: 0 where student and teacher agree. */
typedef struct HsDistillArgs {
    HsTensor logits, teacher; /* [N,V] f32 */
    float cap, teacher_cap;
    HsTensor targets;        /* [N] i32 */
    HsTensor replayed;       /* [N] i32, optional: none is */
    HsTeaching fresh, again; /* of rows that are not, and that are replayed */
    const float *gradient_scale;
    HsTensor losses; /* [N] f32; 0 where there is no target or teacher, but replayed rows without one are not written */
    HsTensor dlogits; /* [N,V] act, not logits itself */
} HsDistillArgs;

typedef struct HsGradStatsArgs {
    const HsTensor *tensors; /* host array of f32 or 16 tensors */
    int count;
    double *sum_squares; /* device [count]; finite elements only */
    int64_t *nonfinite;  /* device [count] */
} HsGradStatsArgs;

/* What a step's update needs in addition to the tensors; in device memory so that nothing waits for the host. */
typedef struct HsStepScalars {
    float learning_rate;
    float momentum;            /* of the operation of this name */
    float average_rate;        /* how far an average of the parameters moves; 0 in a skipped step */
    float gradient_multiplier; /* clip coefficient / loss scale */
    float bias_correction1;    /* 1 - beta1^t, from double */
    float bias_correction2;
    float unscale;     /* 1 / loss scale: gradients as they were before clipping */
    float free_rate;   /* of schedule-free AdamW: learning_rate sqrt(1 - beta2^t) */
    float free_weight; /* its c: the square of the largest such rate so far, over the sum of all steps' */
    int32_t skip;      /* found a non-finite gradient: change nothing but clear the gradients */
} HsStepScalars;

/* What continual learning adds to an update, in the same pass over memory; all absent: nothing.
 *   penalty (strength/2) sum importance (p - anchor)^2   (EWC: Kirkpatrick et al. 2017, eq. 3; importance absent: 1)
 *   gradient step:  g += strength importance (p - anchor), after unscaling and clipping, p as it was before this step
 *   proximal step:  after the update  p -= k / (1 + k) (p - anchor),  k = lr strength importance: stable for any k
 *   pull: a penalty's gradient, computed beforehand:  g += strength pull, whichever the step
 *   path (SI: Zenke et al. 2017, eq. 3):  path -= unscale grad (p_new - p_old), without penalty in grad; p_new is
 *   what is stored
 * Both steps change nothing where p equals anchor. */
typedef struct HsProtection {
    HsTensor importance, anchor, path, pull; /* f32, each optional; importance only with anchor */
    float strength;
    bool proximal;
} HsProtection;

/* p = anchor + rate (p - anchor), as the operation interpolate, to the bit; anchor f32 */
typedef struct HsStepBack {
    HsTensor anchor;
    float rate;
    HsRng rng;
} HsStepBack;

/* What follows an update rule, piece by piece of the parameter while a cache still holds it: nothing is read from
 * memory twice.  In this order: steps back (Reptile, MER), also where the step is skipped; the average moves by the
 * step's average_rate, as the operation of this name, to the bit; snapshots become p; the weight's packed layouts are
 * written again.  All zero: nothing follows. */
enum { HS_MOST_STEPS_BACK = 2 };
typedef struct HsUpdateEpilogue {
    HsStepBack back[HS_MOST_STEPS_BACK];
    int back_count;
    HsTensor average;                       /* f32 */
    HsTensor snapshots[HS_MOST_STEPS_BACK]; /* f32 */
    int snapshot_count;
    /* of a matrix: as pack_weight makes them with transposed and without; NULL, or data NULL: none */
    HsPacked *packed_transposed, *packed;
} HsUpdateEpilogue;

/* What surrounds every update rule.  g = grad * gradient_multiplier, and the penalty's gradient; lr = learning_rate
 * learning_rate_scale.  p is `master` when present, else `weight`; weight = round(p).  grad is set to zero.  A 16-bit
 * weight without a master is rounded stochastically, element rng.row_offset + i by its own bits: tensors may be a part
 * of a whole one that begins at element rng.row_offset, a multiple of HS_SPAN_GRAIN. */
enum { HS_SPAN_GRAIN = HS_DYNAMIC_BLOCK };
typedef struct HsUpdateArgs {
    const HsStepScalars *scalars; /* device */
    float weight_decay, learning_rate_scale;
    HsRng rng;
    HsTensor grad;   /* f32 or 16 */
    HsTensor master; /* f32, optional */
    HsTensor weight; /* act */
    HsProtection protection;
    HsUpdateEpilogue epilogue;
} HsUpdateArgs;

/* p -= lr*wd*p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;  p -= lr * (m/bc1) / (sqrt(v/bc2) + eps)
 * p moves by m and v before they are rounded.  bf16 ones are rounded stochastically, element rng.row_offset + i by its
 * word of update.rng: m by the upper half, which a weight without a master has, too, v by the lower.  To the nearest v
 * would stand still where it changes by less than half a unit, 1/512 to 1/256 of itself: with beta2 = 0.999 for ever as
 * it should fall, or rise to up to three times itself. */
typedef struct HsAdamWArgs {
    HsUpdateArgs update;
    float beta1, beta2, epsilon;
    /* Schedule-free AdamW (Defazio et al. 2024): p is its y, where gradients are taken, and m is z - y.  With
     *   lr = free_rate learning_rate_scale,  c = free_weight,  D = g / (sqrt(v) + eps) + wd p  (v is the new one):
     *   p += c m + lr (b1 (1-c) - 1) D;   m = (1-c) m - lr b1 (1-c) D
     * beta1 above 0.  Its mean x = y + (1 - 1/b1) (z - y) is what is evaluated. */
    bool schedule_free;
    HsTensor m, v; /* both f32 or both bf16 */
} HsAdamWArgs;

/* What codes of moments stand for (kernels/ops/moment_map.h).
 *   dynamic   the signed and the unsigned map of kernels/ops/dynamic_map.h
 *   fp8       E4M3 and, without a sign, E5M2, as in Fishman et al. 2024, "Scaling FP8 training to trillion-token LLMs" */
typedef enum HsMomentMap { HS_MOMENTS_DYNAMIC = 0, HS_MOMENTS_FP8, HS_MOMENT_MAPS } HsMomentMap;

/* The same with moments that are kept in 8 bits, by blocks of HS_DYNAMIC_BLOCK elements.
 *   decode m, v (f32) -> adamw's m, v, p; p moves by the moments before they are encoded -> absmax of each block, codes
 * Encoding scales by the absmax as it is stored.  The dynamic map takes the nearest code, fp8 rounds stochastically by
 * the bits that adamw's bf16 moments have; where absmax is below FLT_MIN (fp8: times the format's largest number) the
 * codes are those of 0, or of the smallest negative value.  With fp8, a v above 0 has at least the code of the smallest
 * number.
 * A skipped step leaves codes and absmax as they were.  Zeros in all four tensors are moments of 0. */
typedef struct HsAdamW8bitArgs {
    HsUpdateArgs update; /* row_offset: a multiple of HS_DYNAMIC_BLOCK */
    float beta1, beta2, epsilon;
    HsMomentMap map;
    HsTensor m, v;               /* u8: codes, signed and unsigned */
    HsTensor m_absmax, v_absmax; /* [ceil(count / HS_DYNAMIC_BLOCK)] f32 */
} HsAdamW8bitArgs;

typedef struct HsSgdArgs {
    HsUpdateArgs update; /* the protection's gradient step comes before decay and momentum */
    float momentum;
    bool nesterov;
    HsTensor buffer; /* f32, absent when momentum is 0 */
} HsSgdArgs;

/* A step's updates, as the operations of these names do them one after another.  No two write the same memory. */
typedef struct HsUpdateListArgs {
    HsAdamWArgs *adamw; /* host arrays */
    HsAdamW8bitArgs *adamw8bit;
    HsSgdArgs *sgd;
    int adamw_count, adamw8bit_count, sgd_count;
} HsUpdateListArgs;

/* The first operation of rules that make their direction from the momentum of a whole matrix; `descend` is the last.
 * Of `update` it reads scalars, grad and the protection's gradient step; it changes nothing but m and direction.  A
 * skipped step leaves m as it was and makes a direction of zeros. */
typedef struct HsMomentumArgs {
    HsUpdateArgs update; /* b is its scalars' momentum */
    bool nesterov;
    HsTensor m;         /* f32; absent: the direction is g, and b is not read */
    HsTensor direction; /* f32 */
} HsMomentumArgs;

/* Numbers that are all but normal, of mean 0 and variance 8: how many of 32 fair coins fell on one side, minus 16.  They
 * are integers, so that every backend has the same ones, in every format.  Element e takes word e % 4 of draw e / 4 at
 * step (rng's / interval): the matrix stays for as many steps, and nothing has to keep it. */
typedef struct HsRandomMatrixArgs {
    HsRng rng; /* row_offset is not read */
    uint32_t interval;
    HsTensor y; /* f32 */
} HsRandomMatrixArgs;

/* APOLLO (Zhu et al. 2024, arXiv 2412.05270, algorithm 1): how large Adam would make each channel of a gradient, from what
 * a projection r = P g of it says.
 *     m = b1 m + (1-b1) r;  v = b2 v + (1-b2) r^2;  t = (m/bc1) / (sqrt(v/bc2) + eps)
 *     f[j] = |t[:,j]| / |r[:,j]|, or of `whole` matrices |t| / |r|; 0 where the divisor is
 *     n = |f g|_F;  where norm and n are above 0:  c = min(1, growth norm / n), else 1;  norm = c n
 *     factors[j] = scale c f[j]
 * m and v move before they are rounded; bf16 ones are rounded stochastically as adamw's, by words of rng.  Without g and
 * norm c is 1.  A skipped step makes factors of zeros and changes nothing else. */
typedef struct HsChannelFactorsArgs {
    const HsStepScalars *scalars; /* device */
    float beta1, beta2, epsilon, scale, growth;
    bool whole;
    bool of_columns;  /* a channel is a column of g, else a row: N = C, or N = R */
    HsRng rng;        /* row_offset is not read */
    HsTensor r;       /* [K,N] f32 */
    HsTensor m, v;    /* [K,N] both f32 or both bf16 */
    HsTensor g;       /* [R,C] f32, optional */
    HsTensor norm;    /* [1] f32, with g: of the latest step that was not skipped, 0: there is none */
    HsTensor factors; /* [N] f32 */
} HsChannelFactorsArgs;

typedef struct HsNormalizeArgs {
    HsTensor x;                /* f32 */
    const double *sum_squares; /* device scalar */
    float epsilon;
    HsTensor y; /* act, same count */
} HsNormalizeArgs;

/* NorMuon (Li et al. 2025, arXiv 2510.05491, algorithm 1, lines 8 to 12): each row, a neuron, is divided by the root of
 * the running mean of its mean square, and the whole matrix scaled so that its root mean square is `size`.
 *     V[i] = b2 V[i] + (1 - b2) mean_j x[i,j]^2;   f[i] = 1 / (sqrt(V[i]) + eps)
 *     x[i,j] = round(size sqrt(rows columns) / |f x|_F f[i] x[i,j])
 * A matrix of zeros stays one.  A skipped step changes nothing. */
typedef struct HsScaleNeuronsArgs {
    const HsStepScalars *scalars; /* device; of them `skip` */
    float beta2, epsilon, size;
    HsTensor x;             /* [rows, columns] act, in place */
    HsTensor second_moment; /* [rows] f32: V */
} HsScaleNeuronsArgs;

/* The penalty's gradient step is momentum's: here only the proximal one acts.  cautious (Chen et al. 2025, arXiv
 * 2510.12402, algorithm 1): an element decays only where direction p >= 0, so that decay never opposes the step. */
typedef struct HsDescendArgs {
    HsUpdateArgs update;
    bool cautious;
    bool of_columns;    /* what the factors are of */
    HsTensor direction; /* act, same count */
    HsTensor factors;   /* f32, at least 0: one for each row, or column, of a direction [R,C] f32; absent: 1 */
} HsDescendArgs;

typedef struct HsConvertArgs {
    HsTensor x, y;   /* any two of f32, bf16, f16, same count */
    bool stochastic; /* f32 -> bf16 only */
    HsRng rng;
} HsConvertArgs;

typedef struct HsCombineArgs {
    HsTensor x, y; /* act, same count */
    float alpha, beta;
    /* beta 0: y is written only, and may hold anything before */
} HsCombineArgs;

/* A range of columns out of one matrix into another: a difference on the way, and a factor for each row.  The other
 * columns of y stay as they are.  y overlaps nothing. */
typedef struct HsCopyColumnsArgs {
    HsTensor x;                /* [N,M] act */
    HsTensor minus;            /* [N,M] f32; absent: 0 */
    HsTensor scale;            /* [N] f32; absent: 1 */
    int64_t from, to, columns; /* from + columns <= M, to + columns <= K */
    HsTensor y;                /* [N,K] act */
} HsCopyColumnsArgs;

/* Products and sums in double, in a fixed order.  One value a pair: the caller adds them up on the host. */
typedef struct HsDotArgs {
    const HsTensor *x, *y; /* host arrays [count] of act tensors, pairwise of the same count */
    int count;
    double *values; /* device [count] */
} HsDotArgs;

/* Labels from the model's own distribution: the smallest v with  sum_{u <= v} p(u) > uniform.  The uniform number of
 * row n is word 0 of draw row_offset + n, so it does not depend on how a batch is split; of gathered rows it is that of
 * draw row_offset + rows[n]. */
typedef struct HsSampleLabelsArgs {
    HsRng rng;
    HsTensor logits; /* [N,V] act */
    float cap;
    HsTensor targets; /* [N] i32; -1 stays, anything else is replaced */
    HsTensor rows;    /* [N] i32, optional; read where there is a target */
} HsSampleLabelsArgs;

/* The token of greedy decoding, row by row.  Of equal logits the lowest index; NaN counts as -infinity.
 * errors: HS_EINVAL for a count that is not from 1 to V */
typedef struct HsArgmaxArgs {
    HsTensor logits; /* [N,V] f32 */
    int64_t count;   /* candidates: the first columns; those behind are padding */
    HsTensor index;  /* [N] i32 */
} HsArgmaxArgs;

/* Fisher information, one group of tokens at a time: squares are taken of unscaled gradients, in f32. */
typedef struct HsSquareAccumulateArgs {
    HsTensor grad;        /* f32 or 16; set to zero */
    HsTensor accumulator; /* f32 */
    float multiplier, weight;
} HsSquareAccumulateArgs;

/* The end of a task.  p is `parameter`.
 *   online:  importance = decay importance + scale fresh;  anchor = p
 *   merge:   one quadratic in place of two: with N = scale fresh, F = importance (decay is not read),
 *            anchor += N / (F + N) (p - anchor)  (= p where F is 0);  importance = F + N;
 *            *offset += sum F N / (F + N) (anchor_old - p)^2, the constant that the sum of both has over the one
 * fresh is set to zero, unless it is the same memory as anchor (online only).  0 / 0 is 0. */
typedef struct HsConsolidateArgs {
    HsTensor fresh, importance, anchor; /* f32 */
    HsTensor parameter;                 /* act */
    float decay, scale;
    bool merge;
    double *offset; /* device scalar, read and written; merge only, else NULL */
} HsConsolidateArgs;

/* Synaptic intelligence (Zenke et al. 2017, eq. 5), clipped at 0 as in the authors' own experiments. */
typedef struct HsConsolidatePathArgs {
    HsTensor path, importance, anchor; /* f32 */
    HsTensor parameter;                /* act */
    float damping;
} HsConsolidatePathArgs;

typedef struct HsImportanceStatsArgs {
    const HsTensor *tensors; /* host array of f32 tensors, no element negative */
    int count;
    double *maximum, *sum, *sum_squares; /* device [count] each */
} HsImportanceStatsArgs;

typedef struct HsPenaltyArgs {
    const HsTensor *importance; /* host arrays [count]; f32, absent: 1 */
    const HsTensor *anchor;     /* f32; absent: the value is 0 */
    const HsTensor *parameter;  /* act */
    int count;
    double *values; /* device [count] */
} HsPenaltyArgs;

/* Reptile's and MER's step back towards where a group of updates began.  A bf16 weight without a master is rounded
 * stochastically, as by the update rules. */
typedef struct HsInterpolateArgs {
    HsTensor anchor;         /* f32 */
    HsTensor master, weight; /* master f32, optional; weight act */
    float rate;
    HsRng rng;
} HsInterpolateArgs;

/* An exponential moving average of parameters (Polyak & Juditsky 1992 take the mean); at rate 1 it is x to the bit. */
typedef struct HsAverageArgs {
    const float *rate; /* device */
    HsTensor x;        /* act */
    HsTensor average;  /* f32, same count */
} HsAverageArgs;

typedef struct HsBeginStepArgs {
    const HsStepInput *input; /* device */
    const HsStepState *state; /* device */
    float *gradient_scales;   /* device [HS_STEP_ROWS] */
} HsBeginStepArgs;

/* From what grad_stats found of `count` tensors: the step's scalars, the next state, and the host's report.  The sums
 * are added in the tensors' order, in double. */
typedef struct HsPrepareStepArgs {
    const double *sum_squares; /* device [count] */
    const int64_t *nonfinite;  /* device [count] */
    int count;
    const HsStepInput *input; /* device */
    double beta1, beta2;      /* bias corrections */
    double clip_norm;         /* 0: none */
    double average_decay;     /* 0: there is no average */
    HsLossScaling scaling;
    HsStepState *state;     /* device, read and written */
    HsStepScalars *scalars; /* device */
    HsStepOutcome *outcome; /* device */
} HsPrepareStepArgs;

#endif
