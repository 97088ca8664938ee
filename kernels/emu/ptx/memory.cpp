/* SPDX-License-Identifier: MIT
 *
 * Loads, stores, atomics and moves.  An address is the host's, but for shared memory's (program.h).  Each must be a
 * multiple of what is moved, as a GPU demands; what lies outside of an allocation strikes a guard page (memory.cpp,
 * shared.cpp of the emulator).
 */
#include <algorithm>

#include "kernels/emu/fault.h"
#include "kernels/emu/ptx/program.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

namespace
{

template <bool shared> char *pointer_at(const Frame &frame, const Op &op, int operand, size_t bytes)
{
    const uint64_t address =
        (shared ? get<uint32_t>(frame, op.slots[operand]) : frame.slots[op.slots[operand]]) + (uint64_t)op.offset;
    if (address % bytes != 0)
        fault("%s:%d: %zu bytes at an address that is no multiple of that", frame.program->kernel.file.c_str(), op.line,
              bytes);
    return shared ? frame.shared_pointer(address) : reinterpret_cast<char *>(address);
}

template <typename T, int count, bool shared> void load(Frame &frame, const Op &op)
{
    const char *pointer = pointer_at<shared>(frame, op, 1, count * sizeof(T));
    T values[count];
    memcpy(values, pointer, sizeof values);
    for (int i = 0; i < count; i++)
        set<T>(frame, count == 1 ? op.slots[0] : op.extra->lists[0][(size_t)i], values[i]);
}

template <typename T, int count, bool shared> void store(Frame &frame, const Op &op)
{
    char *pointer = pointer_at<shared>(frame, op, 0, count * sizeof(T));
    T values[count];
    for (int i = 0; i < count; i++)
        values[i] = get<T>(frame, count == 1 ? op.slots[1] : op.extra->lists[0][(size_t)i]);
    memcpy(pointer, values, sizeof values);
}

template <bool shared> struct Access {
    template <typename T> static Run choose(bool stores, int count)
    {
        switch (count) {
        case 1:
            return stores ? store<T, 1, shared> : load<T, 1, shared>;
        case 2:
            return stores ? store<T, 2, shared> : load<T, 2, shared>;
        default:
            return stores ? store<T, 4, shared> : load<T, 4, shared>;
        }
    }
    static Run choose(bool stores, int count, const std::string &type)
    {
        const bool is_signed = type[0] == 's';
        const std::string bits = type.substr(1);
        if (bits == "8")
            return is_signed ? choose<int8_t>(stores, count) : choose<uint8_t>(stores, count);
        if (bits == "16")
            return is_signed ? choose<int16_t>(stores, count) : choose<uint16_t>(stores, count);
        if (bits == "32")
            return is_signed ? choose<int32_t>(stores, count) : choose<uint32_t>(stores, count);
        return bits == "64" ? choose<uint64_t>(stores, count) : nullptr;
    }
};

void load_acquire(Frame &frame, const Op &op)
{
    const char *pointer = pointer_at<false>(frame, op, 1, 4);
    set<uint32_t>(frame, op.slots[0], emulated_load_acquire(reinterpret_cast<const unsigned *>(pointer)));
}

void store_release(Frame &frame, const Op &op)
{
    char *pointer = pointer_at<false>(frame, op, 0, 4);
    emulated_store_release(reinterpret_cast<unsigned *>(pointer), get<uint32_t>(frame, op.slots[1]));
}

void store_cluster(Frame &frame, const Op &op)
{
    const uint64_t address = get<uint32_t>(frame, op.slots[0]) + (uint64_t)op.offset;
    emulated_store_shared_cluster(frame.window_address(address), get<uint32_t>(frame, op.slots[1]));
}

/* ld.volatile.shared.v2.f32: what stands between is the state space, the vector and what orders it. */
Run access_run(const Instruction &instruction)
{
    const std::string &text = instruction.text;
    if (text == "ld.acquire.gpu.global.u32")
        return load_acquire;
    if (text == "st.release.gpu.global.u32")
        return store_release;
    if (text == "st.shared::cluster.u32")
        return store_cluster;
    int count = 1;
    bool shared = false;
    for (size_t i = 1; i + 1 < instruction.words.size(); i++) {
        const std::string &word = instruction.words[i];
        if (word == "v2" || word == "v4")
            count = word[1] - '0';
        else if (word == "shared")
            shared = true;
        else if (word != "global" && word != "param" && word != "const" && word != "volatile" && word != "nc")
            return nullptr;
    }
    const bool stores = instruction.words[0] == "st";
    return shared ? Access<true>::choose(stores, count, instruction.words.back())
                  : Access<false>::choose(stores, count, instruction.words.back());
}

template <typename T, bool shared, typename Change> void change(Frame &frame, const Op &op, Change changed)
{
    T *pointer = reinterpret_cast<T *>(pointer_at<shared>(frame, op, 1, sizeof(T)));
    const T value = get<T>(frame, op.slots[2]);
    T old = __atomic_load_n(pointer, __ATOMIC_SEQ_CST);
    while (
        !__atomic_compare_exchange_n(pointer, &old, changed(old, value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    atomic_performed();
    set<T>(frame, op.slots[0], old);
}

#define ATOMIC(name, T, result)                                                                      \
    { "atom.global." name, [](Frame &frame, const Op &op) {                                          \
         change<T, false>(frame, op, []([[maybe_unused]] T old, T value) { return (T)(result); });   \
     } },                                                                                            \
    {                                                                                                \
        "atom.shared." name, [](Frame &frame, const Op &op) {                                        \
            change<T, true>(frame, op, []([[maybe_unused]] T old, T value) { return (T)(result); }); \
        }                                                                                            \
    }

Run atomic_run(const std::string &text)
{
    static const std::unordered_map<std::string, Run> rows = {
        ATOMIC("add.u32", uint32_t, old + value),
        ATOMIC("add.u64", uint64_t, old + value),
        ATOMIC("max.u32", uint32_t, old > value ? old : value),
        ATOMIC("max.s32", int32_t, old > value ? old : value),
        ATOMIC("min.u32", uint32_t, old < value ? old : value),
        ATOMIC("inc.u32", uint32_t, old >= value ? 0 : old + 1),
        ATOMIC("exch.b32", uint32_t, value),
    };
    const auto found = rows.find(text);
    return found == rows.end() ? nullptr : found->second;
}

void copy(Frame &frame, const Op &op)
{
    frame.slots[op.slots[0]] = frame.slots[op.slots[1]];
}

uint64_t low_bits(uint64_t value, unsigned bits)
{
    return bits >= 64 ? value : value & (((uint64_t)1 << bits) - 1);
}

/* mov.b32 d, {a, b}: the first in the lowest bits.  number: bits of each. */
void pack(Frame &frame, const Op &op)
{
    const unsigned bits = (unsigned)op.extra->number;
    uint64_t value = 0;
    for (size_t i = 0; i < op.extra->lists[0].size(); i++)
        value |= low_bits(frame.slots[op.extra->lists[0][i]], bits) << bits * i;
    frame.slots[op.slots[0]] = value;
}

void unpack(Frame &frame, const Op &op)
{
    const unsigned bits = (unsigned)op.extra->number;
    const uint64_t value = frame.slots[op.slots[1]];
    for (size_t i = 0; i < op.extra->lists[0].size(); i++)
        frame.slots[op.extra->lists[0][i]] = low_bits(value >> bits * i, bits);
}

Run move_run(const Instruction &instruction, Extra &extra)
{
    const std::vector<Operand> &operands = instruction.operands;
    for (size_t i = 0; i < 2; i++)
        if (operands[i].kind == Operand::LIST) {
            extra.number = atoi(instruction.words[1].c_str() + 1) / (int)operands[i].items.size();
            return i == 0 ? unpack : pack;
        }
    return copy;
}

void nothing(Frame &, const Op &)
{
}

} // namespace

Run memory_run(const Instruction &instruction, Extra &extra)
{
    const std::string &name = instruction.words[0], &text = instruction.text;
    if (name == "ld" || name == "st")
        return access_run(instruction);
    if (name == "atom")
        return atomic_run(text);
    if (name == "mov")
        return move_run(instruction, extra);
    if (text == "cvta.param.u64" || text == "cvta.to.global.u64" || text == "cvta.global.u64" ||
        text == "cvta.to.const.u64")
        return copy;
    if (text == "prefetch.global.L2")
        return nothing;
    return nullptr;
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
