/* SPDX-License-Identifier: MIT
 *
 * The interfaces of cuBLASLt and NCCL that the kernels write out by hand, and the libraries' headers: numbers of
 * enumerations, sizes and places of structures, and each function's parameters, one by one.  It compiles, or names
 * what is wrong.  With TWINS_CUBLASLT and TWINS_NCCL, where those headers can be had.
 */
#include <stddef.h>
#include <type_traits>

namespace
{

/* Two types that are passed alike: as large, both pointers or neither, both floating or neither. */
template <typename Own, typename Theirs>
constexpr bool alike = sizeof(Own) == sizeof(Theirs) &&
                       std::is_pointer_v<Own> == std::is_pointer_v<Theirs> &&std::is_floating_point_v<Own> ==
                           std::is_floating_point_v<Theirs> &&std::is_class_v<Own> == std::is_class_v<Theirs>;

template <typename Own, typename Theirs> struct Same : std::false_type {
};
template <typename OwnResult, typename... Own, typename Result, typename... Theirs>
struct Same<OwnResult (*)(Own...), Result (*)(Theirs...)> {
    static constexpr bool check()
    {
        if constexpr (sizeof...(Own) != sizeof...(Theirs))
            return false;
        else
            return alike<OwnResult, Result> && (alike<Own, Theirs> && ...);
    }
    static constexpr bool value = check();
};

} // namespace

#ifdef TWINS_CUBLASLT
#include <cublasLt.h>

#include "kernels/cuda/product/cublaslt.cu"

namespace hs_cuda
{

#define FUNCTION(name, parameters) static_assert(Same<decltype(library.name), decltype(&::name)>::value, #name);
LT_FUNCTIONS(FUNCTION)

static_assert(LT_SUCCESS == CUBLAS_STATUS_SUCCESS);
static_assert(LT_REAL_F32 == CUDA_R_32F && LT_REAL_F16 == CUDA_R_16F && LT_REAL_BF16 == CUDA_R_16BF);
static_assert(LT_E4M3 == CUDA_R_8F_E4M3 && LT_E5M2 == CUDA_R_8F_E5M2);
static_assert(LT_COMPUTE_F32 == CUBLAS_COMPUTE_32F && LT_COMPUTE_TF32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(LT_OPERATION_TRANSPOSE_A == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(LT_OPERATION_TRANSPOSE_B == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(LT_OPERATION_EPILOGUE == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(LT_OPERATION_BIAS == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(LT_OPERATION_SCALE_A == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
static_assert(LT_OPERATION_SCALE_B == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
static_assert(LT_OPERATION_FAST_SUMS == CUBLASLT_MATMUL_DESC_FAST_ACCUM);
static_assert(LT_PREFERENCE_WORKSPACE == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(LT_PREFERENCE_ALIGNMENT_A == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(LT_EPILOGUE_BIAS == CUBLASLT_EPILOGUE_BIAS);
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristic, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristic, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(LtHeuristic, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

} // namespace hs_cuda
#endif

#ifdef TWINS_NCCL
#include <nccl.h>

#include "kernels/cuda/comm/library.cu"

namespace hs_cuda
{

#define MEMBER(member, function) static_assert(Same<decltype(Nccl::member), decltype(&::function)>::value, #function);
NCCL_FUNCTIONS(MEMBER)

static_assert(NCCL_SUCCESS == ncclSuccess && NCCL_IN_PROGRESS == ncclInProgress);
static_assert(NCCL_U8 == ncclUint8 && NCCL_I64 == ncclInt64 && NCCL_F16 == ncclFloat16 && NCCL_F32 == ncclFloat32);
static_assert(NCCL_F64 == ncclFloat64 && NCCL_BF16 == ncclBfloat16);
static_assert(NCCL_SUM == ncclSum && NCCL_MAX == ncclMax);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclConfig) == 24 && sizeof(NcclConfig) <= sizeof(ncclConfig_t));
constexpr ncclConfig_t INITIAL = NCCL_CONFIG_INITIALIZER;
static_assert(INITIAL.magic == NCCL_MAGIC);

} // namespace hs_cuda
#endif
