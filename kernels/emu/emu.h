/* SPDX-License-Identifier: MIT
 *
 * The CUDA emulator: kernels and host code of kernels/cuda, compiled by the host's C++ compiler and run without a GPU.
 * platform.cuh includes this file in place of cuda_runtime.h when HS_EMU is defined.  It needs nothing of CUDA.
 *
 * How it runs a kernel
 *   Each thread of a block is a fiber (fiber.h): its own stack, switched to by hand, so that a block runs on one thread
 *   of the host and never truly in parallel.  A thread runs until it waits for others (a barrier, a shuffle, mma, ...);
 *   then the scheduler (block.cpp) picks the next.  Blocks are independent and are spread over worker threads; those of
 *   a cluster run together on one.
 *
 * What it finds (each with a test in tests/emu that plants it; a report names kernel, block, thread and place)
 *   - races, as wrong results: a missing barrier, __syncwarp or cp.async wait, a missing event between streams, pinned
 *     memory used before the stream was waited for; a stage of a ring that is read before its tensor copies have come,
 *     or released before the products that read it are done.  Hence the schedules and modes of settings.h.
 *   - accesses outside an allocation or a shared array, to freed memory, or by the host to device memory
 *   - memory that is read before it is written: it is NaN
 *   - deadlocks, divergent barriers and collectives, lanes that are missing, misaligned cp.async and ldmatrix
 *   - mbarriers that are used before their initialisation or get more arrivals than they were made for; products
 *     without wgmma.fence; blocks that return while others, tensor copies or products still use their shared memory
 *   - launches beyond a GPU's limits: the error code that CUDA gives
 *   The first kind spoils results; the others end the process by abort() after the report.
 *
 * Stricter than CUDA
 *   - Every thread of a block must come to each barrier: one that has returned is an error, not excused.
 *   - The null stream waits for no other.
 * What it does not see
 *   Bank conflicts, coalescing, registers; the order in which memory accesses become visible (fences); the tensor
 *   cores' own rounding; missing proxy fences; races that give the same result in every order; ordinary loads from
 *   memory of the host; wild accesses that land inside another allocation.  A kernel must not spin until another thread
 *   writes to memory.
 *
 * What is where
 *   types.h         keywords, dim3, float4, ...        device.h        what kernels call: shuffles, barriers, atomics
 *   runtime.h       what the host calls: cudaMalloc    arithmetic.h    bit casts, integer tricks, functions
 *   settings.*      schedules, modes, environment      worker.h        the state of a running block
 *   fiber.*         stacks and the switch              block.cpp       scheduler
 *   launch.cpp      limits, blocks on host threads     barrier.cpp     barriers of blocks and clusters
 *   mbarrier.cpp    mbarriers                          collective.cpp  what a warp does together
 *   warpgroup.cpp   what four warps do together        wgmma.*         their products
 *   tensor_copy.cpp copies of tiles                    tensor_map.h    how tiles lie in memory
 *   shared.cpp      shared memory                      tensor.cpp      mma and ldmatrix
 *   memory.*        device memory                      copy.cpp        cp.async
 *   stream.*        streams, events                    transfer.cpp    copies and fills by the host
 *   graph.cpp       capture and graphs                 fault.*         reports
 *   attach.*        for libraries that add work to streams
 *   ptx/            kernels by the PTX that nvcc makes, in place of the host compiler's code
 *                                                      redzone.h       bytes around arrays that must not change
 */
#ifndef HS_KERNELS_EMU_EMU_H
#define HS_KERNELS_EMU_EMU_H

#ifndef HS_EMU
#error "kernels/emu/emu.h: only for sources compiled with -DHS_EMU"
#endif

#include "kernels/emu/ptx/launch.h" /* what it includes comes before the keywords of types.h */

#include "kernels/emu/device.h"
#include "kernels/emu/runtime.h"
#include "kernels/emu/types.h"

#endif
