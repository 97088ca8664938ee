/* SPDX-License-Identifier: MIT
 *
 * What a library other than the CUDA runtime that adds its own work to streams gets from the emulator: the stand-in for
 * NCCL (tests/nccl) lies in a shared object, and an emulator in a part shows no symbols.  Such a library exports
 * hs_emu_attach, which is called once, before anything else.
 */
#ifndef HS_KERNELS_EMU_ATTACH_H
#define HS_KERNELS_EMU_ATTACH_H

#include "kernels/emu/runtime.h"

namespace hs_emu
{

struct StreamAccess {
    /* In stream order: `advance` is called until it returns true; if `wait`, it may sleep for a moment. */
    void (*enqueue)(cudaStream_t stream, std::function<bool(bool wait)> advance);
    /* Does what can be done of the stream's work without waiting. */
    void (*progress)(cudaStream_t stream);
    /* What `later` gets from now on comes after what `earlier` has by now. */
    void (*follow)(cudaStream_t later, cudaStream_t earlier);
    bool (*is_capturing)(cudaStream_t stream);
    /* Whether `bytes` at `pointer` are device memory of one allocation. */
    bool (*holds)(const void *pointer, size_t bytes);
};

const StreamAccess *stream_access();

} // namespace hs_emu

#define HS_EMU_ATTACH "hs_emu_attach"
extern "C" typedef void HsEmuAttach(const hs_emu::StreamAccess *access);

#endif
