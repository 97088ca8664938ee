/* SPDX-License-Identifier: MIT
 *
 * What the emulator assumes of the hardware, as small experiments: fixed words in, words out, run by the same kernel
 * on a GPU and on the emulator.  fragment_inputs.h makes the inputs, fragments.cu and, for sm_90a, fragments_hopper.cu
 * hold the kernels, fragments.c compares.
 */
#ifndef HS_BENCH_FRAGMENTS_H
#define HS_BENCH_FRAGMENTS_H

#include <stdint.h>

#include "kernels/ops/backend.h"

/* name, blocks of a cluster (0: any GPU runs it; else sm_90a only), threads, dynamic shared bytes, words in, words out.
 *   MMA_*          in: per lane a[4], b[2], c[4]; out: per lane d[4]
 *   LOAD_MATRIX_*  in: 32 rows of 8 16-bit numbers; out: per lane up to 4 registers
 *   COPY_ASYNC_*   in: 20 words to copy from; out: what lies in shared memory after copies of 0, 1, ... bytes
 *   TMA_LOAD_*     in: a tensor; out: for each of five places, the tile and what follows it in shared memory
 *   TMA_STORE_*, TMA_ADD_*  in: four tiles; out: the tensor
 *   TMA_MULTICAST  in: a matrix; out: each block's shared memory
 *   RING           in: a matrix; out: per block, step and lane a number made of the step's words
 *   WGMMA_*        in: shared memory, the left operand first, then its registers; out: per thread the sums
 *   TURN           in: a tile for each block; out: a matrix, and a word by which the blocks take turns
 *   STORE_CLUSTER  in, out: a word for each lane of each block
 *   the others     in: one word each; out: one word each */
#define FRAGMENT_KERNELS(X)                                               \
    X(MMA_BF16, 0, 32, 0, 320, 128)                                       \
    X(MMA_F16, 0, 32, 0, 320, 128)                                        \
    X(MMA_TF32, 0, 32, 0, 320, 128)                                       \
    X(MMA_E4M3, 0, 32, 0, 320, 128)                                       \
    X(MMA_E5M2, 0, 32, 0, 320, 128)                                       \
    X(LOAD_MATRIX_X4, 0, 32, 0, 128, 128)                                 \
    X(LOAD_MATRIX_X4_TRANSPOSED, 0, 32, 0, 128, 128)                      \
    X(COPY_ASYNC_16, 0, 32, 0, 20, 68)                                    \
    X(COPY_ASYNC_4, 0, 32, 0, 20, 5)                                      \
    X(PACK_BF16, 0, 32, 0, 256, 256)                                      \
    X(PACK_F16, 0, 32, 0, 256, 256)                                       \
    X(PACK_E4M3, 0, 32, 0, 256, 256)                                      \
    X(PACK_E5M2, 0, 32, 0, 256, 256)                                      \
    X(ENCODE_TF32, 0, 32, 0, 256, 256)                                    \
    X(DECODE_F16, 0, 32, 0, 256, 256)                                     \
    X(EXP2_APPROXIMATE, 0, 32, 0, 256, 256)                               \
    X(RSQRT, 0, 32, 0, 256, 256)                                          \
    X(RECIPROCAL_APPROXIMATE, 0, 32, 0, 256, 256)                         \
    X(CLAMP, 0, 32, 0, 256, 256)                                          \
    X(SHUFFLE_XOR, 0, 32, 0, 32, 160)                                     \
    X(BALLOT, 0, 32, 0, 32, 32)                                           \
    X(NAMED_BARRIERS, 0, 128, 0, 128, 512)                                \
    X(TMA_LOAD_PLAIN, 1, 64, 1152, 756, 5 * 288)                          \
    X(TMA_LOAD_32, 1, 64, 640, 756, 5 * 160)                              \
    X(TMA_LOAD_64, 1, 64, 1152, 756, 5 * 288)                             \
    X(TMA_LOAD_128, 1, 64, 2176, 756, 5 * 544)                            \
    X(TMA_LOAD_3D, 1, 64, 3200, 2400, 5 * 800)                            \
    X(TMA_LOAD_4D, 1, 64, 2176, 2880, 5 * 544)                            \
    X(TMA_LOAD_BEFORE, 1, 64, 2176, 756, 5 * 544)                         \
    X(TMA_LOAD_UNALIGNED, 1, 64, 2176, 756, 5 * 544)                      \
    X(TMA_STORE_PLAIN, 1, 64, 512, 4 * 128, 396)                          \
    X(TMA_STORE_128, 1, 64, 2048, 4 * 512, 756)                           \
    X(TMA_STORE_4D, 1, 64, 2048, 4 * 512, 2880)                           \
    X(TMA_STORE_3D, 1, 64, 2048, 4 * 512, 2400)                           \
    X(TMA_ADD_PLAIN, 1, 64, 512, 4 * 128, 396)                            \
    X(TMA_ADD_3D, 1, 64, 512, 4 * 128, 880)                               \
    X(TURN, 2, 64, 512, 2 * 128, 396 + 1)                                 \
    X(TMA_MULTICAST, 2, 64, 3072, 756, 2 * 768)                           \
    X(RING, 2, 64, 6144, 7168, 2 * 14 * 32)                               \
    X(MBARRIER_PARITY, 1, 128, 0, 128, 1024)                              \
    X(MAP_SHARED_OFFSETS, 2, 32, 1024, 32, 128)                           \
    X(MAP_SHARED_BLOCKS, 2, 32, 1024, 32, 2)                              \
    X(STORE_CLUSTER, 2, 32, 1024, 64, 64)                                 \
    X(REGISTERS, 1, 384, 0, 384, 384)                                     \
    X(DEPENDENT, 1, 64, 0, 64, 64)                                        \
    X(WGMMA_64, 1, 128, 16384, 4096, 4096)                                \
    X(WGMMA_64_F16, 1, 128, 16384, 4096, 4096)                            \
    X(WGMMA_128, 1, 128, 32768, 8192, 8192)                               \
    X(WGMMA_256, 1, 128, 49152, 12288, 16384)                             \
    X(WGMMA_256_B_ACROSS, 1, 128, 49152, 12288, 16384)                    \
    X(WGMMA_256_BOTH_ACROSS, 1, 128, 49152, 12288, 16384)                 \
    X(WGMMA_128_A_ACROSS_F16, 1, 128, 32768, 8192, 8192)                  \
    X(WGMMA_128_DEEP_F16, 1, 128, 49152, 12288, 8192)                     \
    X(WGMMA_64_REGISTERS_B_ACROSS, 1, 128, 16384, 4096 + 4096, 4096)      \
    X(WGMMA_128_REGISTERS_B_ACROSS_F16, 1, 128, 32768, 8192 + 4096, 8192) \
    X(WGMMA_128_REGISTERS, 1, 128, 16384, 4096 + 2048, 8192)              \
    X(WGMMA_64_BOTH_ACROSS, 1, 128, 16384, 4096, 4096)                    \
    X(WGMMA_E4M3_128, 1, 128, 24576, 6144, 8192)                          \
    X(WGMMA_E5M2_256, 1, 128, 40960, 10240, 16384)

#define FRAGMENT_ENUM(name, cluster, threads, shared_bytes, inputs, outputs) FRAGMENT_##name,
typedef enum FragmentKernel {
    FRAGMENT_KERNELS(FRAGMENT_ENUM) FRAGMENT_KERNEL_COUNT,
    FRAGMENT_FIRST_HOPPER = FRAGMENT_TMA_LOAD_PLAIN
} FragmentKernel;
#undef FRAGMENT_ENUM

enum {
    FRAGMENT_MOST_WORDS = 16384,
    FRAGMENT_UNWRITTEN = 0x3f000000 /* what outputs, and shared memory that is copied to, hold before: 0.5f */
};

typedef struct FragmentShape {
    int cluster, threads, shared_bytes, inputs, outputs;
} FragmentShape;

static inline const FragmentShape *fragment_shape(FragmentKernel kernel)
{
#define FRAGMENT_SHAPE(name, cluster, threads, shared_bytes, inputs, outputs) \
    { cluster, threads, shared_bytes, inputs, outputs },
    static const FragmentShape shapes[] = { FRAGMENT_KERNELS(FRAGMENT_SHAPE) };
#undef FRAGMENT_SHAPE
    return &shapes[kernel];
}

/* Run one experiment on context's stream; inputs and outputs are the device's.  HS_EUNSUPPORTED: not on this GPU.
 * The second has the experiments from FRAGMENT_FIRST_HOPPER on.  Both are functions of a backend's part as the
 * benchmarks have it (Makefile: bench/parts), which exports them. */
#ifdef __cplusplus
extern "C" {
#endif
typedef HsStatus FragmentRun(HsContext *context, FragmentKernel kernel, uint32_t *inputs, uint32_t *outputs);
__attribute__((visibility("default"))) FragmentRun fragments_run, fragments_hopper_run;
#ifdef __cplusplus
}
#endif

#endif
