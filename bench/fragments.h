/* SPDX-License-Identifier: MIT
 *
 * What the emulator assumes of the hardware, as small experiments: fixed words in, words out, run by the same kernel
 * on a GPU and on the emulator.  fragments.c makes the inputs and compares, fragments.cu holds the kernels.
 */
#ifndef HS_BENCH_FRAGMENTS_H
#define HS_BENCH_FRAGMENTS_H

#include <stdint.h>

#include "kernels/backend.h"

/* Words of an experiment, in and out.  One warp runs each.
 *   mma          in: per lane a[4], b[2], c[4]; out: per lane d[4]
 *   load_matrix  in: 32 rows of 8 16-bit numbers; out: per lane up to 4 registers
 *   copy_async   in: 20 words to copy from; out: what lies in shared memory after copies of 0, 1, ... bytes
 *   the others   in: one word each; out: one word each */
#define FRAGMENT_KERNELS(X)                \
    X(MMA_BF16, 320, 128)                  \
    X(MMA_F16, 320, 128)                   \
    X(MMA_TF32, 320, 128)                  \
    X(LOAD_MATRIX_X4, 128, 128)            \
    X(LOAD_MATRIX_X4_TRANSPOSED, 128, 128) \
    X(LOAD_MATRIX_X2, 128, 64)             \
    X(LOAD_MATRIX_X2_TRANSPOSED, 128, 64)  \
    X(COPY_ASYNC_16, 20, 68)               \
    X(COPY_ASYNC_4, 20, 5)                 \
    X(PACK_BF16, 256, 256)                 \
    X(PACK_F16, 256, 256)                  \
    X(ENCODE_TF32, 256, 256)               \
    X(DECODE_F16, 256, 256)                \
    X(EXP2_APPROXIMATE, 256, 256)          \
    X(RSQRT, 256, 256)                     \
    X(SHUFFLE_XOR, 32, 160)                \
    X(BALLOT, 32, 32)

#define FRAGMENT_ENUM(name, inputs, outputs) FRAGMENT_##name,
typedef enum FragmentKernel { FRAGMENT_KERNELS(FRAGMENT_ENUM) FRAGMENT_KERNEL_COUNT } FragmentKernel;
#undef FRAGMENT_ENUM

enum { FRAGMENT_MOST_WORDS = 320 };

/* Runs one experiment on context's stream; inputs and outputs are the device's. */
#ifdef __cplusplus
extern "C" {
#endif
HsStatus fragments_run_emu(HsContext *context, FragmentKernel kernel, const uint32_t *inputs, uint32_t *outputs);
HsStatus fragments_run_cuda(HsContext *context, FragmentKernel kernel, const uint32_t *inputs, uint32_t *outputs);
#ifdef __cplusplus
}
#endif

#endif
