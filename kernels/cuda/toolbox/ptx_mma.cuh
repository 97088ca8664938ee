/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers: ldmatrix and mma.sync.  With g = lane / 4 and t = lane % 4, a fragment of a 16 x 8 x 16 product is
 *
 *     a[0]: A[g    ][2t, 2t+1]   a[1]: A[g + 8][2t, 2t+1]   a[2]: A[g][2t+8, 2t+9]   a[3]: A[g + 8][2t+8, 2t+9]
 *     b[0]: B[2t, 2t+1][g]       b[1]: B[2t+8, 2t+9][g]
 *     d[0], d[1]: D[g][2t, 2t+1]                            d[2], d[3]: D[g + 8][2t, 2t+1]
 *
 * and of a 16 x 8 x 8 product in tf32 (one 32-bit value a register)
 *
 *     a[0]: A[g][t]   a[1]: A[g + 8][t]   a[2]: A[g][t + 4]   a[3]: A[g + 8][t + 4]
 *     b[0]: B[t][g]   b[1]: B[t + 4][g]                       d as above
 *
 * and of a 16 x 8 x 32 product in FP8 (sm_89) four codes a register: the first, with each element of 16 bits two
 * neighbours along k.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_MMA_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_MMA_CUH

#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

#ifdef HS_EMU
#define HS_MMA(shape_and_types, emulation) emulation(d, a, b)
#else
#define HS_MMA(shape_and_types, emulation)                                                                 \
    asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

/* d += a b, products exact, sums in f32. */
HS_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    HS_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", emulated_mma_bf16);
}

HS_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    HS_MMA("m16n8k16.row.col.f32.f16.f16.f32", emulated_mma_f16);
}

HS_DEVICE void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    HS_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", emulated_mma_tf32);
}
#undef HS_MMA

/* Likewise of codes, which tensor cores of 8.9 add with 14 significant bits: kernels that add many products of k add
 * them to other sums in between.  8.9 and 12.0 have the instruction; 9.0 and 10.0 would multiply in 16 bits for it,
 * which is no faster than 16-bit products: there, and before 8.9, it traps. */
#ifndef HS_EMU
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
#define HS_MMA_FP8(a_type, b_type)                                          \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." a_type "." b_type \
                 ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define HS_MMA_FP8(a_type, b_type) asm volatile("trap;")
#endif
HS_DEVICE void mma_issue(E4m3, E4m3, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    HS_MMA_FP8("e4m3", "e4m3");
}
HS_DEVICE void mma_issue(E5m2, E4m3, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    HS_MMA_FP8("e5m2", "e4m3");
}
#undef HS_MMA_FP8
#endif

/* A: E4m3 or E5m2; B: E4m3. */
template <typename A, typename B> HS_DEVICE void mma_fp8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#ifdef HS_EMU
    emulated_mma_fp8(tensor_format<A>, tensor_format<B>, d, a, b);
#else
    mma_issue(A{}, B{}, d, a, b);
#endif
}

/* Matrices of 8 x 8 16-bit elements from shared memory: lane 8 i + r gives the address (16-byte aligned) of row r of
 * matrix i; lane 4 r + t receives elements 2t, 2t+1 of row r (trans: of column r). */
HS_DEVICE void load_matrix_x4(uint32_t (&result)[4], uint32_t address)
{
#ifdef HS_EMU
    emulated_load_matrix(result, 4, false, address);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(address)
                 : "memory");
#endif
}

HS_DEVICE void load_matrix_x4_transposed(uint32_t (&result)[4], uint32_t address)
{
#ifdef HS_EMU
    emulated_load_matrix(result, 4, true, address);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(address)
                 : "memory");
#endif
}

} // namespace ptx
} // namespace HS_CUDA_NAMESPACE

#endif
