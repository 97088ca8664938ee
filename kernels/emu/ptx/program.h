/* SPDX-License-Identifier: MIT
 *
 * A kernel's text made ready to run: each instruction is a function and the slots of its operands.  Every operand
 * lies in a slot of 64 bits: registers first, then constants, addresses of parameters and variables, and special
 * registers, all of which are set when a thread begins and stay.
 *
 * An address of shared memory is as hardware has it, not as the emulator: the block's variables from SHARED_START on,
 * so that 18 bits hold it, as matrix descriptors need; what mapa returns has the block's rank + 1 above them.
 */
#ifndef HS_KERNELS_EMU_PTX_PROGRAM_H
#define HS_KERNELS_EMU_PTX_PROGRAM_H

#include <deque>
#include <string.h>
#include <type_traits>
#include <unordered_map>

#include "kernels/emu/ptx/module.h"

#include "kernels/emu/device.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

struct Frame;
struct Op;
struct Program;
typedef void (*Run)(Frame &frame, const Op &op);

enum { OPERANDS = 5, SHARED_START = 1024, RANK_SHIFT = 24 };

/* What few instructions have. */
struct Extra {
    std::vector<std::vector<uint32_t>> lists; /* slots of LIST operands, and of a MEMORY operand's coordinates */
    int number = 0;
    bool flags[2] = { false, false };
    TensorFormat formats[2] = { TensorFormat::BF16, TensorFormat::BF16 };
    const Program *callee = nullptr;
};

struct Op {
    Run run = nullptr;
    uint32_t slots[OPERANDS] = { 0 };
    uint32_t second = 0; /* the predicate of %r1|%p1 */
    int32_t guard = -1;
    bool guard_negated = false;
    int line = 0;
    int64_t offset = 0; /* of a memory operand; a jump's target */
    const Extra *extra = nullptr;
};

/* A slot that is set when a thread begins. */
struct Preset {
    enum Kind { CONSTANT, PARAMETER, SPECIAL } kind;
    uint32_t slot;
    uint64_t value;     /* a constant's bits; a parameter's number */
    uint64_t (*read)(); /* a special register, of the current thread */
};

struct Program {
    Kernel kernel;
    std::vector<Op> ops;
    std::vector<Preset> presets;
    std::deque<Extra> extras;
    std::vector<Variable> shared;       /* the launch's own included */
    std::vector<uint32_t> shared_start; /* of each */
    uint32_t slot_count = 0;
};

/* An array of shared memory of this block. */
struct SharedPlace {
    uint32_t start;
    char *data;
};

/* Sums of products under way: wgmma of the emulator wants a thread's in a row. */
struct Sums {
    const Op *op; /* the slots are its first list */
    std::vector<float> values;
};

/* A thread's, or a called function's. */
struct Frame {
    const Program *program;
    uint64_t *slots;
    char *const *parameters;
    size_t next; /* op */
    bool done;
    const std::vector<SharedPlace> *shared;
    std::deque<Sums> *sums;

    Site site(const Op &op) const
    {
        return Site{ program->kernel.file.c_str(), program->kernel.name.c_str(), op.line };
    }
    /* Of shared memory: where it is, and its address in the emulator's window. */
    char *shared_pointer(uint64_t address) const;
    uint32_t window_address(uint64_t address) const;
};

template <typename T> static inline T get(const Frame &frame, uint32_t slot)
{
    T value;
    memcpy(&value, &frame.slots[slot], sizeof value);
    return value;
}

/* Signed integers with their sign in all of the slot, since a register may be wider than the type. */
template <typename T> static inline void set(Frame &frame, uint32_t slot, T value)
{
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
        frame.slots[slot] = (uint64_t)(int64_t)value;
    } else {
        uint64_t bits = 0;
        memcpy(&bits, &value, sizeof value);
        frame.slots[slot] = bits;
    }
}

/* Tables: by the instruction's text; NULL: not there. */
Run arithmetic_run(const std::string &text);
Run conversion_run(const std::string &text);
/* ld, st, atom, mov, cvta: by their words. */
Run memory_run(const Instruction &instruction, Extra &extra);
/* What threads do together; fills the extra, too. */
Run together_run(const Instruction &instruction, Extra &extra);
/* Made once; never given back. */
const Program &program_of(const Library &library, const std::string &name, const Entry &entry, bool function);
/* A thread's life. */
void run_program(const Program &program, char *const *parameters);
void run_call(Frame &frame, const Op &op);

} // namespace ptx
} // namespace emulator
} // namespace hs_emu

#endif
