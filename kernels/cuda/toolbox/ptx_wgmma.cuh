/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers of sm_90a: products of a whole warpgroup (128 threads), D[64, N] = A[64, 16] B[16, N] or +=, 16-bit
 * operands, f32 sums; and of FP8 codes, A[64, 32] B[32, N], with sums of 14 significant bits (mma_fp8).  B, and A
 * unless it is given in registers, are read from shared memory by way of matrix descriptors.
 *
 * Sums: thread t of the warpgroup, with warp w = t / 32, g = t % 32 / 4 and p = t % 4, holds
 *
 *     d[4 j + 0], d[4 j + 1]: D[16 w + g    ][8 j + 2 p, 8 j + 2 p + 1]
 *     d[4 j + 2], d[4 j + 3]: D[16 w + g + 8][8 j + 2 p, 8 j + 2 p + 1]
 *
 * and an A in registers has, within each warp's 16 rows, mma.sync's fragment (ptx_mma.cuh).
 *
 * Products run on by themselves: between wgmma_fence and the wait for their group, neither the sums nor the operands
 * may be touched.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_WGMMA_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_WGMMA_CUH

#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

/* A tile of 16-bit elements in shared memory as a tensor copy with the 128-byte swizzle leaves it: lines of 64
 * elements, or of 128 codes (K-major alone), eight lines a block of 1024 bytes. K-major (lines run along k): `groups` = bytes between blocks of eight
 * rows, 1024 where they follow each other. outer-major (lines run along rows of A or columns of B, one line for each
 * k): `groups` = bytes from one block of eight k to the next, `lines` = bytes from 64 rows or columns to the next 64.
 */
HS_DEVICE uint64_t wgmma_descriptor(uint32_t address, uint32_t groups, uint32_t lines)
{
    const uint64_t bits = (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(lines >> 4) << 16 |
                          (uint64_t)(groups >> 4) << 32 | (uint64_t)1 << 62;
#ifdef HS_EMU
    return bits | (uint64_t)(address >> 18) << 52;
#else
    return bits;
#endif
}

/* The descriptor of what begins `bytes` later.  The address never carries out of the lower word: one addition. */
HS_DEVICE uint64_t advance_descriptor(uint64_t descriptor, uint32_t bytes)
{
    return (descriptor & 0xffffffff00000000u) | ((uint32_t)descriptor + (bytes >> 4));
}

/* Before the first product, and whenever the program has touched the sums since. */
HS_DEVICE void wgmma_fence()
{
#ifdef HS_EMU
    emulated_wgmma_fence();
#else
    HS_SM90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
#endif
}

/* Close the group of products since the last one. */
HS_DEVICE void wgmma_commit()
{
#ifdef HS_EMU
    emulated_wgmma_commit();
#else
    HS_SM90A(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
#endif
}

/* Until all but `pending` groups are done. */
template <int pending> HS_DEVICE void wgmma_wait()
{
#ifdef HS_EMU
    emulated_wgmma_wait(pending);
#else
    HS_SM90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"));
#endif
}

/* After a wait that was for these sums (a wait names no registers, so the compiler might use them before it), and
 * before a fence: what changes them stays where it is written. */
template <int count> HS_DEVICE void wgmma_settle(float (&d)[count])
{
#ifdef HS_EMU
    (void)d;
#else
#pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("" : "+f"(d[i])::"memory");
#endif
}

template <typename Element> static constexpr bool is_f16 = false;
template <> inline constexpr bool is_f16<F16> = true;

#ifndef HS_EMU
/* Operand lists for 32, 64 and 128 registers of sums. */
#define HS_SUMS_8(i)                                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define HS_SUMS_32(i)  HS_SUMS_8(i), HS_SUMS_8(i + 8), HS_SUMS_8(i + 16), HS_SUMS_8(i + 24)
#define HS_SUMS_64(i)  HS_SUMS_32(i), HS_SUMS_32(i + 32)
#define HS_SUMS_128(i) HS_SUMS_64(i), HS_SUMS_64(i + 64)
#define HS_PLACES_32                                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define HS_PLACES_64                                                                                                 \
    HS_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
                 "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HS_PLACES_128                                                                                                \
    HS_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
                 "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
                 "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "  \
                 "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* One instruction; a0 ... are the numbers of the places after the sums. */
#define HS_WGMMA(columns, type, sums, a0, a1, a2, a3, a4)                                                    \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" a2 ", 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" HS_PLACES_##sums \
                 "}, "                                                                                       \
                 "%" a0 ", %" a1 ", add, 1, 1, %" a3 ", %" a4 ";\n}"                                         \
                 : HS_SUMS_##sums(0)                                                                         \
                 : "l"(a), "l"(b), "r"((int)add), "n"(a_transposed), "n"(b_transposed))
#define HS_WGMMA_REGISTERS(columns, type, sums, a0, a1, a2, a3, b0, s0, t0)                                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" s0 ", 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" HS_PLACES_##sums \
                 "}, "                                                                                       \
                 "{%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b0 ", add, 1, 1, %" t0 ";\n}"                     \
                 : HS_SUMS_##sums(0)                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(b_transposed))

/* The instructions for one type of element, by number of sums. */
#define HS_WGMMA_OVERLOADS(Element, type)                                                           \
    template <int a_transposed, int b_transposed>                                                   \
    HS_DEVICE void wgmma_issue(Element, float(&d)[32], uint64_t a, uint64_t b, bool add)            \
    {                                                                                               \
        HS_SM90A(HS_WGMMA(64, type, 32, "32", "33", "34", "35", "36"));                             \
    }                                                                                               \
    template <int a_transposed, int b_transposed>                                                   \
    HS_DEVICE void wgmma_issue(Element, float(&d)[64], uint64_t a, uint64_t b, bool add)            \
    {                                                                                               \
        HS_SM90A(HS_WGMMA(128, type, 64, "64", "65", "66", "67", "68"));                            \
    }                                                                                               \
    template <int a_transposed, int b_transposed>                                                   \
    HS_DEVICE void wgmma_issue(Element, float(&d)[128], uint64_t a, uint64_t b, bool add)           \
    {                                                                                               \
        HS_SM90A(HS_WGMMA(256, type, 128, "128", "129", "130", "131", "132"));                      \
    }                                                                                               \
    template <int b_transposed>                                                                     \
    HS_DEVICE void wgmma_issue(Element, float(&d)[32], const uint32_t(&a)[4], uint64_t b, bool add) \
    {                                                                                               \
        HS_SM90A(HS_WGMMA_REGISTERS(64, type, 32, "32", "33", "34", "35", "36", "37", "38"));       \
    }                                                                                               \
    template <int b_transposed>                                                                     \
    HS_DEVICE void wgmma_issue(Element, float(&d)[64], const uint32_t(&a)[4], uint64_t b, bool add) \
    {                                                                                               \
        HS_SM90A(HS_WGMMA_REGISTERS(128, type, 64, "64", "65", "66", "67", "68", "69", "70"));      \
    }
HS_WGMMA_OVERLOADS(Bf16, "bf16")
HS_WGMMA_OVERLOADS(F16, "f16")

/* Codes: both operands K-major, from shared memory. */
#define HS_WGMMA_FP8(columns, types, sums, a0, a1, a2)                                                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" a2 ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32." types " {" HS_PLACES_##sums "}, "             \
                                                                                                     "%" a0 ", %" a1   \
                                                                                                     ", add, 1, 1;\n}" \
                 : HS_SUMS_##sums(0)                                                                                   \
                 : "l"(a), "l"(b), "r"((int)add))
#define HS_WGMMA_FP8_OVERLOADS(A, B, types)                                            \
    HS_DEVICE void wgmma_issue(A, B, float(&d)[64], uint64_t a, uint64_t b, bool add)  \
    {                                                                                  \
        HS_SM90A(HS_WGMMA_FP8(128, types, 64, "64", "65", "66"));                      \
    }                                                                                  \
    HS_DEVICE void wgmma_issue(A, B, float(&d)[128], uint64_t a, uint64_t b, bool add) \
    {                                                                                  \
        HS_SM90A(HS_WGMMA_FP8(256, types, 128, "128", "129", "130"));                  \
    }
HS_WGMMA_FP8_OVERLOADS(E4m3, E4m3, "e4m3.e4m3")
HS_WGMMA_FP8_OVERLOADS(E5m2, E4m3, "e5m2.e4m3")
#endif

/* d = a b, or += where `add`; N = 2 count: 64, 128, 256.  transposed: outer-major, else K-major. */
template <typename Element, bool a_transposed, bool b_transposed, int count>
HS_DEVICE void wgmma(float (&d)[count], uint64_t a, uint64_t b, bool add)
{
#ifdef HS_EMU
    emulated_wgmma(WarpgroupProduct{ d, nullptr, a, b, 2 * count, tensor_format<Element>, tensor_format<Element>, add,
                                     a_transposed, b_transposed });
#else
    wgmma_issue<a_transposed, b_transposed>(Element{}, d, a, b, add);
#endif
}

/* The same with A in registers; N = 64 or 128. */
template <typename Element, bool b_transposed, int count>
HS_DEVICE void wgmma(float (&d)[count], const uint32_t (&a)[4], uint64_t b, bool add)
{
#ifdef HS_EMU
    emulated_wgmma(WarpgroupProduct{ d, a, 0, b, 2 * count, tensor_format<Element>, tensor_format<Element>, add, false,
                                     b_transposed });
#else
    wgmma_issue<b_transposed>(Element{}, d, a, b, add);
#endif
}

/* The same of codes, 32 deep, both K-major.  A: E4m3 or E5m2, B: E4m3; N = 128 or 256. */
template <typename A, typename B, int count>
HS_DEVICE void wgmma_fp8(float (&d)[count], uint64_t a, uint64_t b, bool add)
{
#ifdef HS_EMU
    emulated_wgmma(
        WarpgroupProduct{ d, nullptr, a, b, 2 * count, tensor_format<A>, tensor_format<B>, add, false, false });
#else
    wgmma_issue(A{}, B{}, d, a, b, add);
#endif
}

} // namespace ptx

/* Two sums, rounded: as a register of A, and as elements of a line. */
template <typename T> HS_DEVICE uint32_t pack_pair(float low, float high)
{
    return ptx::is_f16<T> ? ptx::pack_f16(low, high) : ptx::pack_bf16(low, high);
}

} // namespace HS_CUDA_NAMESPACE

#endif
