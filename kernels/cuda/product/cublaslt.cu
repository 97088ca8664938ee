/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt.  The library sees matrices by columns, so row-major c = op(a) op(b) is asked for as its
 * transpose, c^T [N,M] = op(b)^T op(a)^T: each stored matrix is read as its own transpose, and the operands change
 * places.  It adds at most one tensor of c's format (residual or c) and, when c is f32, an f32 bias.  What else a call
 * asks for is done by our own epilogue after an f32 product into the workspace, with our rounding rules.
 *
 * Codes in FP8 with a scale a tensor it multiplies as they are, E4M3 or E5M2 by E4M3, with the scales' inverses from device
 * memory; fast accumulation where our sums are straight (matmul_fp8.cuh).  For comparison: that not all of a tensor was
 * finite it does not see, so that no training takes it (hs_precision_resolve).
 *
 * Workspace: | WORKSPACE_BYTES for the library | f32 product [M,N], only for the second way |
 *
 * The few declarations of its C interface that are used are written out here, from its documentation: the toolkit's
 * header need not be installed, and versions 12 and 13 agree on them.
 */
#include "kernels/cuda/product/cublaslt.cuh"

#ifdef HS_EMU

namespace HS_CUDA_NAMESPACE
{

HsStatus cublaslt_open()
{
    return hs_fail(HS_EUNSUPPORTED, "kernels.matmul: cublaslt needs a GPU; the emulator has native products only");
}

size_t cublaslt_workspace(const HsMatmulArgs *)
{
    return 0;
}

HsStatus cublaslt_matmul(HsContext *, const HsMatmulArgs *)
{
    return cublaslt_open();
}

} // namespace HS_CUDA_NAMESPACE

#else

#include <dlfcn.h>
#include <string.h>

#include "kernels/cuda/product/matmul.cuh"
#include "kernels/cuda/toolbox/launch.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

typedef struct LtHandleRecord *LtHandle;
typedef struct LtOperationRecord *LtOperation;
typedef struct LtLayoutRecord *LtLayout;
typedef struct LtPreferenceRecord *LtPreference;

struct LtAlgorithm {
    uint64_t data[8];
};

struct LtHeuristic {
    LtAlgorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

enum { LT_SUCCESS = 0, LT_REAL_F32 = 0, LT_REAL_F16 = 2, LT_REAL_BF16 = 14, LT_COMPUTE_F32 = 68, LT_COMPUTE_TF32 = 77 };
enum { LT_E4M3 = 28, LT_E5M2 = 29 };
enum { LT_OPERATION_TRANSPOSE_A = 3, LT_OPERATION_TRANSPOSE_B = 4, LT_OPERATION_EPILOGUE = 7, LT_OPERATION_BIAS = 8 };
enum { LT_OPERATION_SCALE_A = 17, LT_OPERATION_SCALE_B = 18, LT_OPERATION_FAST_SUMS = 25 };
enum { LT_PREFERENCE_WORKSPACE = 1, LT_PREFERENCE_ALIGNMENT_A = 5, LT_EPILOGUE_BIAS = 4 };

/* name in the library, result, parameters */
#define LT_FUNCTIONS(X)                                                                                            \
    X(cublasLtCreate, (LtHandle *))                                                                                \
    X(cublasLtMatmulDescCreate, (LtOperation *, int compute, int scale))                                           \
    X(cublasLtMatmulDescDestroy, (LtOperation))                                                                    \
    X(cublasLtMatmulDescSetAttribute, (LtOperation, int attribute, const void *, size_t))                          \
    X(cublasLtMatrixLayoutCreate, (LtLayout *, int type, uint64_t rows, uint64_t columns, int64_t stride))         \
    X(cublasLtMatrixLayoutDestroy, (LtLayout))                                                                     \
    X(cublasLtMatmulPreferenceCreate, (LtPreference *))                                                            \
    X(cublasLtMatmulPreferenceDestroy, (LtPreference))                                                             \
    X(cublasLtMatmulPreferenceSetAttribute, (LtPreference, int attribute, const void *, size_t))                   \
    X(cublasLtMatmulAlgoGetHeuristic, (LtHandle, LtOperation, LtLayout a, LtLayout b, LtLayout c, LtLayout d,      \
                                       LtPreference, int wanted, LtHeuristic *, int *found))                       \
    X(cublasLtMatmul, (LtHandle, LtOperation, const void *alpha, const void *a, LtLayout, const void *b, LtLayout, \
                       const void *beta, const void *c, LtLayout, void *d, LtLayout, const LtAlgorithm *,          \
                       void *workspace, size_t workspace_bytes, cudaStream_t))

struct Library {
#define LT_MEMBER(name, parameters) int(*name) parameters;
    LT_FUNCTIONS(LT_MEMBER)
    LtHandle handle;
} library;

const size_t WORKSPACE_BYTES = (size_t)32 << 20; /* what the documentation advises for Hopper */

/* What the choice of an algorithm depends on. */
struct Key {
    int64_t m, n, k;
    int type_a, type_b, output_type, compute; /* of our a and b */
    int transposed_a, transposed_b, with_bias, with_scales, fast_sums;
    uint32_t alignment[4]; /* of the library's A, B and C, and of the bias */
};

/* A described product with the library's choice: made on the first call of its kind, kept. */
struct Plan {
    Key key;
    LtOperation operation;
    LtLayout a, b, c;
    LtHeuristic heuristic;
};

enum { PLANS = 128 };
Plan plans[PLANS];
int plan_count, next_plan;

HsStatus check(int status, const char *what)
{
    if (status == LT_SUCCESS)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "cuBLASLt: %s: status %d; kernels.matmul: native does without it", what, status);
}

int type_of(HsDtype dtype)
{
    return dtype == HS_F32 ? LT_REAL_F32 : dtype == HS_F16 ? LT_REAL_F16 : LT_REAL_BF16;
}

uint32_t alignment_of(const void *pointer)
{
    uint32_t alignment = 256;
    while (!aligned_to(pointer, alignment))
        alignment /= 2;
    return alignment;
}

/* On the device, of a call; NULL: there is none. */
struct Pointers {
    const float *bias, *scale_a, *scale_b; /* of our a and b */
};

HsStatus set_pointer(const Plan &plan, int attribute, const float *pointer)
{
    if (pointer == nullptr)
        return HS_OK;
    return check(library.cublasLtMatmulDescSetAttribute(plan.operation, attribute, &pointer, sizeof pointer),
                 "adding a bias or a scale");
}

/* Of each call: pointers are not part of the key. */
HsStatus set_pointers(const Plan &plan, const Pointers &pointers)
{
    HS_TRY(set_pointer(plan, LT_OPERATION_BIAS, pointers.bias));
    HS_TRY(set_pointer(plan, LT_OPERATION_SCALE_A, pointers.scale_b));
    return set_pointer(plan, LT_OPERATION_SCALE_B, pointers.scale_a);
}

HsStatus describe(Plan &plan)
{
    const Key &key = plan.key;
    HS_TRY(check(library.cublasLtMatmulDescCreate(&plan.operation, key.compute, LT_REAL_F32), "describing a product"));
    HS_TRY(check(library.cublasLtMatmulDescSetAttribute(plan.operation, LT_OPERATION_TRANSPOSE_A, &key.transposed_b,
                                                        sizeof key.transposed_b),
                 "transposing"));
    /* The library's B is our a: stored [M,K], it is already op(a)^T by columns. */
    HS_TRY(check(library.cublasLtMatmulDescSetAttribute(plan.operation, LT_OPERATION_TRANSPOSE_B, &key.transposed_a,
                                                        sizeof key.transposed_a),
                 "transposing"));
    const uint32_t epilogue = LT_EPILOGUE_BIAS;
    if (key.with_bias)
        HS_TRY(check(
            library.cublasLtMatmulDescSetAttribute(plan.operation, LT_OPERATION_EPILOGUE, &epilogue, sizeof epilogue),
            "adding a bias"));
    const int8_t fast = (int8_t)key.fast_sums;
    if (key.fast_sums)
        HS_TRY(check(library.cublasLtMatmulDescSetAttribute(plan.operation, LT_OPERATION_FAST_SUMS, &fast, sizeof fast),
                     "asking for fast sums"));
    const uint64_t m = (uint64_t)key.m, n = (uint64_t)key.n, k = (uint64_t)key.k;
    const bool ta = key.transposed_a != 0, tb = key.transposed_b != 0;
    HS_TRY(check(library.cublasLtMatrixLayoutCreate(&plan.a, key.type_b, tb ? k : n, tb ? n : k, tb ? key.k : key.n),
                 "describing b"));
    HS_TRY(check(library.cublasLtMatrixLayoutCreate(&plan.b, key.type_a, ta ? m : k, ta ? k : m, ta ? key.m : key.k),
                 "describing a"));
    return check(library.cublasLtMatrixLayoutCreate(&plan.c, key.output_type, n, m, key.n), "describing c");
}

HsStatus choose(Plan &plan, LtPreference preference)
{
    int found = 0;
    HS_TRY(check(library.cublasLtMatmulPreferenceSetAttribute(preference, LT_PREFERENCE_WORKSPACE, &WORKSPACE_BYTES,
                                                              sizeof WORKSPACE_BYTES),
                 "offering workspace"));
    for (int i = 0; i < 4; i++) { /* A, B, C and D, which is C */
        const uint32_t alignment = plan.key.alignment[i < 2 ? i : 2];
        HS_TRY(check(library.cublasLtMatmulPreferenceSetAttribute(preference, LT_PREFERENCE_ALIGNMENT_A + i, &alignment,
                                                                  sizeof alignment),
                     "stating alignment"));
    }
    HS_TRY(check(library.cublasLtMatmulAlgoGetHeuristic(library.handle, plan.operation, plan.a, plan.b, plan.c, plan.c,
                                                        preference, 1, &plan.heuristic, &found),
                 "choosing an algorithm"));
    return found > 0 ? HS_OK : check(plan.heuristic.status ? plan.heuristic.status : -1, "no algorithm for a product");
}

void forget(Plan &plan)
{
    if (plan.operation)
        library.cublasLtMatmulDescDestroy(plan.operation);
    for (LtLayout layout : { plan.a, plan.b, plan.c })
        if (layout)
            library.cublasLtMatrixLayoutDestroy(layout);
    plan = Plan{};
}

/* pointers: of the call at hand, which the library sees before it chooses. */
HsStatus find_plan(const Key &key, const Pointers &pointers, Plan **found)
{
    for (int i = 0; i < plan_count; i++) {
        if (memcmp(&plans[i].key, &key, sizeof key) == 0) {
            *found = &plans[i];
            return set_pointers(plans[i], pointers);
        }
    }
    Plan &plan = plans[next_plan];
    forget(plan);
    plan.key = key;
    LtPreference preference = nullptr;
    HsStatus status = check(library.cublasLtMatmulPreferenceCreate(&preference), "stating preferences");
    if (status == HS_OK)
        status = describe(plan);
    if (status == HS_OK)
        status = set_pointers(plan, pointers);
    if (status == HS_OK)
        status = choose(plan, preference);
    if (preference)
        library.cublasLtMatmulPreferenceDestroy(preference);
    if (status != HS_OK) {
        forget(plan);
        return status;
    }
    next_plan = (next_plan + 1) % PLANS;
    plan_count = plan_count < PLANS ? plan_count + 1 : (int)PLANS;
    *found = &plan;
    return HS_OK;
}

int type_of(const HsTensor &tensor, const HsCodes *codes)
{
    return codes == nullptr ? type_of(tensor.dtype) : codes->format == HS_E4M3 ? LT_E4M3 : LT_E5M2;
}

/* c = alpha op(a) op(b) + bias + added, c and what is added of one format. */
HsStatus multiply(HsContext *context, const HsMatmulArgs *args, float alpha, void *c, HsDtype dtype,
                  const Pointers &pointers, const void *added)
{
    Key key;
    const void *const a = args->a.layout == HS_LAYOUT_CODES ? args->a.codes.data : args->a.values.data;
    const void *const b = args->b.layout == HS_LAYOUT_CODES ? args->b.codes.data : args->b.values.data;
    memset(&key, 0, sizeof key); /* compared as bytes */
    key.m = args->c.shape[0];
    key.n = args->c.shape[1];
    key.k = args->a.values.shape[args->transpose_a ? 0 : 1];
    key.type_a = type_of(args->a.values, hs_codes_of(&args->a));
    key.type_b = type_of(args->b.values, hs_codes_of(&args->b));
    key.fast_sums = hs_product_key(args).format == HS_PRODUCT_FP8;
    key.output_type = type_of(dtype);
    key.compute = args->a.values.dtype == HS_F32 && hs_policy_is_tf32(args->policy) ? LT_COMPUTE_TF32 : LT_COMPUTE_F32;
    key.transposed_a = args->transpose_a;
    key.transposed_b = args->transpose_b;
    key.with_bias = pointers.bias != nullptr;
    key.with_scales = pointers.scale_a != nullptr;
    key.alignment[0] = alignment_of(b);
    key.alignment[1] = alignment_of(a);
    const uint32_t of_c = alignment_of(c), of_added = alignment_of(added ? added : c);
    key.alignment[2] = of_c < of_added ? of_c : of_added;
    key.alignment[3] = pointers.bias != nullptr ? alignment_of(pointers.bias) : 0;
    Plan *plan = nullptr;
    HS_TRY(find_plan(key, pointers, &plan));
    const float beta = added != nullptr ? 1.0f : 0.0f;
    return check(library.cublasLtMatmul(library.handle, plan->operation, &alpha, b, plan->a, a, plan->b, &beta,
                                        added ? added : c, plan->c, c, plan->c, &plan->heuristic.algorithm,
                                        context->workspace, WORKSPACE_BYTES, stream_of(context)),
                 "product");
}

/* Whether the library can do all of a call: it adds one tensor, of c's format.  Without an epilogue between them, addend
 * and residual are the same to it. */
bool is_whole(const HsMatmulArgs *args)
{
    const bool addend = hs_tensor_present(&args->addend), residual = hs_tensor_present(&args->residual);
    return args->epilogue == HS_EPILOGUE_NONE && (int)addend + (int)residual + (int)args->accumulate <= 1 &&
           (!addend || args->addend.dtype == args->c.dtype) && (!residual || args->residual.dtype == args->c.dtype) &&
           (!hs_tensor_present(&args->bias) || (args->c.dtype == HS_F32 && args->a.layout != HS_LAYOUT_CODES));
}

} // namespace

HsStatus cublaslt_open()
{
    if (library.handle != nullptr)
        return HS_OK;
    void *file = nullptr;
    for (const char *name : { "libcublasLt.so.13", "libcublasLt.so.12" }) {
        file = file ? file : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (file == nullptr)
        return hs_fail(HS_EUNSUPPORTED, "kernels.matmul: cublaslt: neither libcublasLt.so.13 nor .12 is found; install "
                                        "cuBLAS, or set LD_LIBRARY_PATH, or take native");
#define LT_RESOLVE(name, parameters)                                             \
    library.name = reinterpret_cast<decltype(library.name)>(dlsym(file, #name)); \
    if (library.name == nullptr)                                                 \
        return hs_fail(HS_EUNSUPPORTED,                                          \
                       "kernels.matmul: cublaslt: update cuBLAS, or take native; the library has no " #name);
    LT_FUNCTIONS(LT_RESOLVE)
    return check(library.cublasLtCreate(&library.handle), "starting the library");
}

size_t cublaslt_workspace(const HsMatmulArgs *args)
{
    return WORKSPACE_BYTES + (is_whole(args) ? 0 : (size_t)hs_tensor_count(&args->c) * sizeof(float));
}

HsStatus cublaslt_matmul(HsContext *context, const HsMatmulArgs *args)
{
    HS_TRY(cublaslt_open());
    if (is_whole(args)) {
        const void *const added = args->accumulate                     ? args->c.data
                                  : hs_tensor_present(&args->addend)   ? args->addend.data
                                  : hs_tensor_present(&args->residual) ? args->residual.data
                                                                       : nullptr;
        const Pointers pointers = { hs_tensor_present(&args->bias) ? data_of<const float>(args->bias) : nullptr,
                                    args->a.layout == HS_LAYOUT_CODES ? &args->a.codes.scaling->inverse : nullptr,
                                    args->b.layout == HS_LAYOUT_CODES ? &args->b.codes.scaling->inverse : nullptr };
        return multiply(context, args, args->alpha, args->c.data, args->c.dtype, pointers, added);
    }
    float *const product =
        reinterpret_cast<float *>(static_cast<unsigned char *>(context->workspace) + WORKSPACE_BYTES);
    HS_TRY(multiply(context, args, 1.0f, product, HS_F32, Pointers{}, nullptr));
    return launch_matmul_finish(context, product, 1, matmul_prologue_of(args), matmul_output_of(args));
}

} // namespace HS_CUDA_NAMESPACE

#endif
