/* SPDX-License-Identifier: MIT
 *
 * Kernels by what nvcc made of them.
 *
 * HALFSTEP_EMU_PTX=FOLDER         a launch runs the instructions of the folder's PTX (make ptx) in place of the host
 *                                 compiler's code; launches, memory, barriers and copies stay the emulator's
 * HALFSTEP_EMU_PTX_COMPARE=FILE   each launch runs both ways, one after the other on the same memory; at the end of
 *                                 the process FILE gets a line for each kernel: how many launches, in how many of
 *                                 them memory was not the same afterwards, its name, and the first difference
 */
#ifndef HS_KERNELS_EMU_PTX_LAUNCH_H
#define HS_KERNELS_EMU_PTX_LAUNCH_H

#include <functional>
#include <memory>
#include <stddef.h>
#include <vector>

namespace hs_emu
{
namespace emulator
{

/* One of a kernel's parameters. */
struct KernelParameter {
    std::shared_ptr<char> bytes;
    size_t size;
};

KernelParameter copy_parameter(const void *value, size_t size);
template <typename T> static inline KernelParameter kernel_parameter(const T &value)
{
    return copy_parameter(&value, sizeof value);
}

bool ptx_wanted();
struct PtxBody {
    const char *symbol;         /* the kernel's, as the emulator's compiler has it; NULL: none is wanted */
    std::function<void()> body; /* for the thread that threadIdx names */
};
PtxBody ptx_body(const void *kernel, const char *name, std::vector<KernelParameter> parameters);

/* Both ways of a launch on the same memory: the host compiler's code, then the text. */
bool ptx_compared();
void ptx_compare(const std::function<void()> &run_own, const PtxBody &text, const std::function<void()> &run_text);

} // namespace emulator
} // namespace hs_emu

#endif
