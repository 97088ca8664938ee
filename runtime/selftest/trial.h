/* SPDX-License-Identifier: MIT
 *
 * One case of one operation: random operands, the exact result, the bound, the backend's result, the comparison.
 *
 * The exact result comes from the reference run in f64 on exact copies of the operands: nothing is rounded on the way.
 * What a correct backend may differ by is then, for each element,
 *     error + hs_tolerance(rounding of |exact| + error to the output's dtype)
 * where `error` bounds the arithmetic in f32 before that last rounding.  Each operation's `bound` computes it from the
 * operands, by standard error analysis (Higham 2002, chapter 3): gamma_n for n roundings, sums of absolute values for
 * what cancellation can amplify, derivatives for what a function passes on.
 */
#ifndef HS_RUNTIME_SELFTEST_TRIAL_H
#define HS_RUNTIME_SELFTEST_TRIAL_H

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"

/* What a case switches on; names in trial.c are for messages. */
enum {
    HS_CASE_TRANSPOSE_A = 1 << 0,
    HS_CASE_TRANSPOSE_B = 1 << 1,
    HS_CASE_BIAS = 1 << 2,
    HS_CASE_RESIDUAL = 1 << 3,
    HS_CASE_IN_PLACE = 1 << 4, /* the output is the operand that it may alias */
    HS_CASE_ADDEND = 1 << 5,
    HS_CASE_UNALIGNED = 1 << 6, /* every floating-point operand begins one element past a wide boundary */
    HS_CASE_PRE = 1 << 7,
    HS_CASE_ACCUMULATE = 1 << 8,
    HS_CASE_PACKED = 1 << 9,
    HS_CASE_POSITIONS = 1 << 10,
    HS_CASE_LAYER = 1 << 11, /* layer norm rather than rms */
    HS_CASE_INVERSE = 1 << 12,
    HS_CASE_GRADIENT = 1 << 13,
    HS_CASE_Z_LOSS = 1 << 14,
    HS_CASE_MASTER = 1 << 15,
    HS_CASE_MOMENTUM = 1 << 16,
    HS_CASE_NESTEROV = 1 << 17,
    HS_CASE_SKIP = 1 << 18,
    HS_CASE_STOCHASTIC = 1 << 19,
    HS_CASE_NONFINITE = 1 << 20,
    HS_CASE_HUGE = 1 << 21, /* scores that overflow a naive exp */
    HS_CASE_ANCHOR = 1 << 22,
    HS_CASE_IMPORTANCE = 1 << 23,
    HS_CASE_PROXIMAL = 1 << 24,
    HS_CASE_PATH = 1 << 25,
    HS_CASE_MERGE = 1 << 26,
    /* of the update rules and of copy_columns, which have none of what these bits mean elsewhere */
    HS_CASE_SINKS = HS_CASE_BIAS,
    HS_CASE_PULL = HS_CASE_RESIDUAL,
    HS_CASE_CAUTIOUS = HS_CASE_BIAS,
    HS_CASE_SCHEDULE_FREE = HS_CASE_LAYER,
    HS_CASE_SCALE = HS_CASE_BIAS,
    HS_CASE_OF_COLUMNS = HS_CASE_TRANSPOSE_A, /* factors are of columns, not of rows */
    HS_CASE_NO_MOMENT = HS_CASE_TRANSPOSE_B,
    HS_CASE_LIMITED = HS_CASE_ADDEND,
    HS_CASE_WHOLE = HS_CASE_ACCUMULATE
};

/* Sizes and choices of a case; each operation reads its own. */
typedef struct HsCase {
    HsDtype dtype; /* of the inputs */
    HsDtype out;   /* of the main output */
    HsDtype other; /* residual, gradient: as the operation says */
    int64_t rows, columns, depth;
    HsHeads heads;
    int64_t start; /* first position; row offset of dropout masks */
    HsRopeScaling scaling;
    int64_t rotated; /* features of a head; 0: all */
    float dropout;
    bool documents;  /* several in a sequence */
    int64_t window;  /* of attention; 0: none */
    float cap;       /* of its scores, or of logits; 0: none */
    bool sums;       /* of a product: row_sums; of norm_backward: dx_rounded and dx_sums */
    bool unweighted; /* of norms: no weight, and no gradient of it */
    bool whole;      /* of head norms */
    unsigned options;
    HsEpilogue epilogue;    /* of a product; of swiglu_forward and _backward, SWIGLU or GEGLU: the gate's function */
    HsProductPolicy policy; /* of a product */
    float alpha;            /* of a product, or of an embedding: its factor; 0: 1 */
    HsMomentMap map;        /* of moments in 8 bits */
    HsDtype cast;           /* of a product: codes in place of c; 0: none */
    int quantized; /* a product's b comes in four bits, as that many tensors stacked along its rows; 0: as it is */
} HsCase;

typedef enum HsRole { HS_ROLE_INPUT, HS_ROLE_OUTPUT, HS_ROLE_BOTH } HsRole;

typedef enum HsFill {
    HS_FILL_ZERO,
    HS_FILL_NORMAL,   /* scale * N(0,1) */
    HS_FILL_POSITIVE, /* scale * uniform in [1/2, 2) */
    HS_FILL_INDEX,    /* integers in [0, scale) */
    HS_FILL_TARGET,   /* the same, a fifth of them -1 */
    HS_FILL_BROKEN    /* N(0,1) with infinities and NaNs here and there */
} HsFill;

typedef struct HsTrialOperand {
    const char *name;
    HsRole role;
    HsFill fill;
    double scale;
    HsTensor tensor;  /* dtype and shape as the backend sees them; data: the device's bytes */
    bool exact_bits;  /* the output is one rounding of exact inputs: it must equal the reference bit for bit */
    bool one_sided;   /* rounded stochastically: off by up to a whole unit in the last place, not half */
    bool as_is;       /* never widened to f64: scalars that a kernel reads as float, statistics */
    bool overwritten; /* of role both, but what was there is not read: it counts once among the bytes that move */
    bool parameter;   /* of the operation, in the device's memory: not counted among them */
    int amax_of; /* this is the largest magnitude of operand amax_of - 1 (ops.h), as the backend stored it; 0: not */
    /* made by the trial */
    void *image;     /* host copy of the initial bytes */
    HsTensor exact;  /* what the reference reads and writes: f64 where `tensor` is floating-point */
    double *initial; /* the operand before the operation, exactly; NULL unless floating-point */
    double *error;   /* outputs: bound on |unrounded - exact|, from `bound` */
} HsTrialOperand;

/* HS_TRIAL_AMAX: where amax is, of operations that have it. */
enum { HS_TRIAL_OPERANDS = 12, HS_TRIAL_AMAX = HS_TRIAL_OPERANDS - 1 };

typedef struct HsTrial HsTrial;

/* A row per operation.  `declare` fills trial->operands at the operation's own indices (unused ones stay absent);
 * `prepare` (may be NULL) replaces random images by consistent ones, and where `reference` is NULL, for timing, by
 * plausible ones; `bound` fills error (NULL: zero); `call` runs the operation on tensors, one per operand; `accepts`
 * (may be NULL) judges an element of an output of integers that differs from the reference's: rounding can move a
 * choice where a distance to the result means nothing.  `follow` (may be NULL) makes the exact result of outputs that follow
 * from another one as the backend stored it: `stored` has every operand's bytes.
 *
 * `timed` are cases as training GPT-2 124M (or, for what GPT-2 lacks, a Llama of its size) on 4096 tokens has them.
 * speed.c enlarges those that are bound by memory until no cache holds them.  `timed_call` (NULL: call) is what is
 * timed; `bytes` (NULL: operands once, updated ones twice) is what the operation must move: 0 where this backend has
 * nothing to do. */
typedef struct HsOpTest {
    const HsCase *cases;
    int case_count;
    const HsCase *timed;
    int timed_count;
    bool few_bytes; /* in every model: the time is the way to the device and back, no rate means anything */
    void (*declare)(HsTrial *trial);
    HsStatus (*prepare)(HsTrial *trial, HsContext *reference);
    void (*bound)(HsTrial *trial);
    HsStatus (*call)(HsTrial *trial, HsContext *context, const HsTensor *tensors);
    bool (*accepts)(const HsTrial *trial, int operand, int64_t element, double value);
    HsStatus (*follow)(HsTrial *trial, HsContext *reference, void *const *stored);
    HsStatus (*timed_call)(HsTrial *trial, HsContext *context, const HsTensor *tensors);
    double (*bytes)(const HsTrial *trial, const HsContext *context);
} HsOpTest;

#define HS_OP_TEST_EXTERN(name, Args, formula) extern const HsOpTest hs_op_test_##name;
HS_OPS(HS_OP_TEST_EXTERN)

struct HsTrial {
    const char *op;
    const HsOpTest *test;
    const HsCase *config; /* the case */
    uint64_t seed;
    bool on_gpu; /* a bound may know what tensor cores do */
    HsTrialOperand operands[HS_TRIAL_OPERANDS];
    HsPacked packed;       /* of a product's right operand, by the backend under test */
    HsQuantized quantized; /* the same in four bits, on the device; its bytes there and here */
    void *quantized_memory, *quantized_image;
    void *coded_memory, *coded_image; /* both operands of a product in codes (coded.h), likewise */
    double worst;                     /* largest |difference| / tolerance */
    uint64_t hash;                    /* of what the backend wrote, and of all trials before (kernels/base/hash.h) */
    char complaint[256];              /* empty: passed */
};

/* Make operands and the exact result.  for_timing: operands only, of one random block repeated. */
HsStatus hs_trial_create(HsTrial *trial, const char *op, const HsOpTest *test, const HsCase *config, uint64_t seed,
                         HsDevice *device, bool for_timing);
void hs_trial_destroy(HsTrial *trial, HsContext *context);
/* Bring the initial bytes of every operand to the device. */
HsStatus hs_trial_upload(HsTrial *trial, HsContext *context);
/* Before each backend that the trial is run on: nothing is left of the one before. */
void hs_trial_begin(HsTrial *trial, HsContext *context);
/* Run on context's backend; its workspace must be large enough.  Fills worst and complaint. */
HsStatus hs_trial_compare(HsTrial *trial, HsContext *context);
/* One run, not compared. */
HsStatus hs_trial_call(HsTrial *trial, HsContext *context);
/* Bytes of an operand that an operation must move: once, or twice if it is updated. */
double hs_operand_bytes(const HsTrialOperand *operand);
/* Of all operands. */
double hs_trial_bytes(const HsTrial *trial);
/* In `declare`: most cases, none that is timed, ask for amax, of operand `of`. */
void hs_trial_ask_amax(HsTrial *trial, int of);
/* Where it does, the tensor of that operand leads to it. */
void hs_trial_place_amax(const HsTrial *trial, HsTensor tensors[HS_TRIAL_OPERANDS]);
/* The largest magnitude, by its bits, of which a NaN's are the largest, and of `least`; bytes: the tensor's, on the host. */
float hs_largest_magnitude(const HsTensor *tensor, const void *bytes, float least);
/* Of a case with documents: random numbers become where they start, a few long ones before many short ones. */
HsTrialOperand hs_starts_operand(const HsTrial *trial, int64_t rows);
void hs_trial_draw_starts(HsTrial *trial, int operand);
/* "bf16 -> f32, 17 x 64 x 129, transpose_b" */
const char *hs_case_describe(const HsCase *config, char *text, size_t bytes);

static inline bool hs_case_has(const HsTrial *trial, unsigned option)
{
    return (trial->config->options & option) != 0;
}

/* Operands in the making: normal numbers, unless `fill` is changed afterwards. */
static inline HsTrialOperand hs_input(const char *name, double scale, HsTensor tensor)
{
    return (HsTrialOperand){
        .name = name, .role = HS_ROLE_INPUT, .fill = HS_FILL_NORMAL, .scale = scale, .tensor = tensor
    };
}

/* Outputs start as noise: one that is not written is found out. */
static inline HsTrialOperand hs_output(const char *name, HsTensor tensor)
{
    return (
        HsTrialOperand){ .name = name, .role = HS_ROLE_OUTPUT, .fill = HS_FILL_NORMAL, .scale = 1.0, .tensor = tensor };
}

static inline HsTrialOperand hs_updated(const char *name, double scale, HsTensor tensor)
{
    return (
        HsTrialOperand){ .name = name, .role = HS_ROLE_BOTH, .fill = HS_FILL_NORMAL, .scale = scale, .tensor = tensor };
}

static inline HsTrialOperand hs_filled(HsTrialOperand operand, HsFill fill)
{
    operand.fill = fill;
    return operand;
}

/* gamma_n of f32: the relative error of a value that went through n roundings. */
static inline double hs_gamma(int64_t roundings)
{
    return hs_tolerance(roundings, 0, HS_F32, HS_F64, 1.0, 0.0);
}

/* What backends promise of exp, log, tanh, sin, cos, sqrt: as good as this many roundings. */
enum { HS_FUNCTION_ROUNDINGS = 4 };

/* Operand values: before the operation, and exactly after. */
static inline const double *hs_initial(const HsTrial *trial, int operand)
{
    return trial->operands[operand].initial;
}

static inline const double *hs_exact(const HsTrial *trial, int operand)
{
    return trial->operands[operand].exact.data;
}

static inline bool hs_operand_present(const HsTrial *trial, int operand)
{
    return hs_tensor_present(&trial->operands[operand].tensor);
}

#define HS_COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
