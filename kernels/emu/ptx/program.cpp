/* SPDX-License-Identifier: MIT
 *
 * From a kernel's parsed text to a program, and its run by one thread.
 */
#include "kernels/emu/ptx/program.h"

#include <memory>
#include <mutex>

#include "kernels/emu/fault.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

namespace
{

class Translator
{
  public:
    Translator(const Library &library, Program &program) : library_(library), program_(program), kernel_(program.kernel)
    {
    }
    void translate();

  private:
    void place_shared();
    Op translate(const Instruction &instruction);
    void take_operand(const Instruction &instruction, size_t index, Op &op, Extra &extra);
    uint32_t slot_of(const Instruction &instruction, const Operand &operand);
    std::vector<uint32_t> slots_of(const Instruction &instruction, const Operand &list);
    uint32_t symbol_slot(const Instruction &instruction, const std::string &name);
    uint32_t preset(Preset::Kind kind, uint64_t value, uint64_t (*read)());
    uint32_t special_slot(const Instruction &instruction, const std::string &name);
    Run control_run(const Instruction &instruction, Op &op, Extra &extra);

    const Library &library_;
    Program &program_;
    const Kernel &kernel_;
};

[[noreturn]] void fail(const Kernel &kernel, const Instruction &instruction, const std::string &what)
{
    fault("%s:%d: %s: %s", kernel.file.c_str(), instruction.line, what.c_str(), instruction.text.c_str());
}

/* Statics as they come, then the launch's own. */
void Translator::place_shared()
{
    program_.shared = kernel_.shared;
    for (const auto &entry : library_.modules.at(kernel_.file).variables)
        if (entry.second.dynamic)
            program_.shared.push_back(entry.second);
    uint32_t next = SHARED_START;
    for (const Variable &variable : program_.shared) {
        const uint32_t alignment = (uint32_t)(variable.alignment < 16 ? 16 : variable.alignment);
        next = (next + alignment - 1) / alignment * alignment;
        program_.shared_start.push_back(next);
        next += (uint32_t)variable.bytes;
    }
}

uint32_t Translator::preset(Preset::Kind kind, uint64_t value, uint64_t (*read)())
{
    for (const Preset &known : program_.presets)
        if (known.kind == kind && known.value == value && known.read == read)
            return known.slot;
    program_.presets.push_back(Preset{ kind, program_.slot_count++, value, read });
    return program_.presets.back().slot;
}

/* "_" takes a result that is not wanted. */
uint32_t Translator::special_slot(const Instruction &instruction, const std::string &name)
{
    static const struct {
        const char *name;
        uint64_t (*read)();
    } known[] = {
        { "%tid.x", [] { return (uint64_t)threadIdx.x; } },
        { "%tid.y", [] { return (uint64_t)threadIdx.y; } },
        { "%tid.z", [] { return (uint64_t)threadIdx.z; } },
        { "%ctaid.x", [] { return (uint64_t)blockIdx.x; } },
        { "%ctaid.y", [] { return (uint64_t)blockIdx.y; } },
        { "%ctaid.z", [] { return (uint64_t)blockIdx.z; } },
        { "%ntid.x", [] { return (uint64_t)blockDim.x; } },
        { "%ntid.y", [] { return (uint64_t)blockDim.y; } },
        { "%ntid.z", [] { return (uint64_t)blockDim.z; } },
        { "%nctaid.x", [] { return (uint64_t)gridDim.x; } },
        { "%nctaid.y", [] { return (uint64_t)gridDim.y; } },
        { "%nctaid.z", [] { return (uint64_t)gridDim.z; } },
        { "%laneid", [] { return (uint64_t)lane_index(); } },
        { "%cluster_ctarank", [] { return (uint64_t)emulated_cluster_rank(); } },
        { "_", [] { return (uint64_t)0; } },
    };
    for (const auto &row : known)
        if (name == row.name)
            return preset(Preset::SPECIAL, 0, row.read);
    fail(kernel_, instruction, "a special register that is not known, " + name);
}

uint32_t Translator::symbol_slot(const Instruction &instruction, const std::string &name)
{
    for (size_t i = 0; i < kernel_.parameters.size(); i++)
        if (kernel_.parameters[i].name == name)
            return preset(Preset::PARAMETER, i, nullptr);
    for (size_t i = 0; i < program_.shared.size(); i++)
        if (program_.shared[i].name == name)
            return preset(Preset::CONSTANT, program_.shared_start[i], nullptr);
    const auto &variables = library_.modules.at(kernel_.file).variables;
    const auto found = variables.find(name);
    if (found == variables.end())
        fail(kernel_, instruction, "no variable " + name);
    return preset(Preset::CONSTANT, (uint64_t)(uintptr_t)found->second.value.data(), nullptr);
}

uint32_t Translator::slot_of(const Instruction &instruction, const Operand &operand)
{
    switch (operand.kind) {
    case Operand::REGISTER:
        if (operand.negated)
            fail(kernel_, instruction, "a negated operand");
        return (uint32_t)operand.slot;
    case Operand::SPECIAL:
        return special_slot(instruction, operand.name);
    case Operand::IMMEDIATE:
        return preset(Preset::CONSTANT, operand.bits, nullptr);
    case Operand::SYMBOL:
        return operand.name == "_" ? special_slot(instruction, "_") : symbol_slot(instruction, operand.name);
    default:
        fail(kernel_, instruction, "an operand that is not understood");
    }
}

std::vector<uint32_t> Translator::slots_of(const Instruction &instruction, const Operand &list)
{
    std::vector<uint32_t> slots;
    for (const Operand &item : list.items)
        slots.push_back(slot_of(instruction, item));
    return slots;
}

void Translator::take_operand(const Instruction &instruction, size_t index, Op &op, Extra &extra)
{
    const Operand &operand = instruction.operands[index];
    uint32_t slot = 0;
    if (operand.kind == Operand::LIST) {
        extra.lists.push_back(slots_of(instruction, operand));
    } else if (operand.kind == Operand::MEMORY) {
        slot = slot_of(instruction, operand.items[0]);
        if (operand.items.size() > 1)
            extra.lists.push_back(slots_of(instruction, operand.items[1]));
        if (op.offset != 0 && operand.offset != 0)
            fail(kernel_, instruction, "two offsets");
        op.offset += operand.offset;
    } else {
        slot = slot_of(instruction, operand);
        if (operand.second >= 0)
            op.second = (uint32_t)operand.second;
    }
    if (index < OPERANDS)
        op.slots[index] = slot;
}

void jump(Frame &frame, const Op &op)
{
    frame.next = (size_t)op.offset;
}

void leave(Frame &frame, const Op &)
{
    frame.done = true;
}

/* bra, ret, call.uni (result), name, (arguments) */
Run Translator::control_run(const Instruction &instruction, Op &op, Extra &extra)
{
    const std::string &text = instruction.text;
    if (text == "bra" || text == "bra.uni") {
        const auto label = kernel_.labels.find(instruction.operands[0].name);
        if (label == kernel_.labels.end())
            fail(kernel_, instruction, "no label " + instruction.operands[0].name);
        op.offset = (int64_t)label->second;
        return jump;
    }
    if (text == "ret" || text == "exit")
        return leave;
    if (text != "call.uni" || instruction.operands.size() != 3)
        return nullptr;
    const std::string &name = instruction.operands[1].name;
    const auto &functions = library_.modules.at(kernel_.file).functions;
    const auto found = functions.find(name);
    if (found == functions.end())
        fail(kernel_, instruction, "no function " + name);
    extra.callee = &program_of(library_, name, found->second, true);
    extra.lists = { slots_of(instruction, instruction.operands[2]), slots_of(instruction, instruction.operands[0]) };
    return run_call;
}

Op Translator::translate(const Instruction &instruction)
{
    Op op;
    Extra extra;
    op.line = instruction.line;
    op.guard = instruction.guard;
    op.guard_negated = instruction.guard_negated;
    op.run = control_run(instruction, op, extra);
    if (op.run == nullptr) {
        for (size_t i = 0; i < instruction.operands.size(); i++)
            take_operand(instruction, i, op, extra);
        op.run = arithmetic_run(instruction.text);
        if (op.run == nullptr)
            op.run = conversion_run(instruction.text);
        if (op.run == nullptr)
            op.run = memory_run(instruction, extra);
        if (op.run == nullptr)
            op.run = together_run(instruction, extra);
    }
    if (op.run == nullptr)
        fail(kernel_, instruction, "an instruction that is not known");
    program_.extras.push_back(extra);
    op.extra = &program_.extras.back();
    return op;
}

void Translator::translate()
{
    program_.slot_count = (uint32_t)kernel_.slots;
    place_shared();
    for (const Instruction &instruction : kernel_.instructions)
        program_.ops.push_back(translate(instruction));
}

void set_presets(Frame &frame)
{
    for (const Preset &preset : frame.program->presets)
        frame.slots[preset.slot] = preset.kind == Preset::CONSTANT ? preset.value
                                   : preset.kind == Preset::PARAMETER
                                       ? (uint64_t)(uintptr_t)frame.parameters[preset.value]
                                       : preset.read();
}

/* Parameters that are not the caller's: results, and those of calls. */
std::vector<std::vector<char>> own_parameters(const Program &program)
{
    std::vector<std::vector<char>> storage;
    const Kernel &kernel = program.kernel;
    for (size_t i = kernel.taken; i < kernel.parameters.size(); i++)
        storage.emplace_back(kernel.parameters[i].bytes);
    return storage;
}

void run(Frame &frame)
{
    const Op *const ops = frame.program->ops.data();
    const size_t count = frame.program->ops.size();
    while (!frame.done && frame.next < count) {
        const Op &op = ops[frame.next++];
        if (op.guard >= 0 && (frame.slots[op.guard] != 0) == op.guard_negated)
            continue;
        op.run(frame, op);
    }
}

} // namespace

char *Frame::shared_pointer(uint64_t address) const
{
    if (address >> RANK_SHIFT != 0)
        fault("%s: an address of another block's shared memory, %llx", program->kernel.name.c_str(),
              (unsigned long long)address);
    size_t i = shared->size();
    if (i == 0)
        fault("%s: shared memory, of which it has none", program->kernel.name.c_str());
    do
        i--;
    while (i > 0 && address < (*shared)[i].start);
    return (*shared)[i].data + (int64_t)(address - (*shared)[i].start);
}

uint32_t Frame::window_address(uint64_t address) const
{
    const uint32_t own = emulated_shared_address(shared_pointer(address & ((1u << RANK_SHIFT) - 1)));
    const int rank = (int)(address >> RANK_SHIFT);
    return rank == 0 ? own : emulated_map_shared(own, rank - 1);
}

void run_call(Frame &frame, const Op &op)
{
    const Program &callee = *op.extra->callee;
    std::vector<std::vector<char>> storage = own_parameters(callee);
    std::vector<char *> parameters;
    for (const std::vector<uint32_t> &list : op.extra->lists)
        for (uint32_t slot : list)
            parameters.push_back(reinterpret_cast<char *>(frame.slots[slot]));
    if (parameters.size() != callee.kernel.taken + callee.kernel.returned)
        fault("%s:%d: as many arguments as %s does not take", frame.program->kernel.file.c_str(), op.line,
              callee.kernel.name.c_str());
    for (size_t i = callee.kernel.returned; i < storage.size(); i++)
        parameters.push_back(storage[i].data());
    std::vector<uint64_t> slots(callee.slot_count);
    Frame inner = { &callee, slots.data(), parameters.data(), 0, false, frame.shared, frame.sums };
    set_presets(inner);
    run(inner);
}

const Program &program_of(const Library &library, const std::string &name, const Entry &entry, bool function)
{
    static std::recursive_mutex lock;
    static std::map<std::pair<std::string, std::string>, std::unique_ptr<Program>> programs;
    std::lock_guard<std::recursive_mutex> hold(lock);
    std::unique_ptr<Program> &program = programs[{ entry.file, name }];
    if (program == nullptr) {
        program.reset(new Program());
        program->kernel = parse_kernel(library, name, entry, function);
        Translator(library, *program).translate();
    }
    return *program;
}

void run_program(const Program &program, char *const *given)
{
    std::vector<std::vector<char>> storage = own_parameters(program);
    std::vector<char *> parameters(given, given + program.kernel.taken);
    for (std::vector<char> &own : storage)
        parameters.push_back(own.data());
    std::vector<SharedPlace> shared;
    for (size_t i = 0; i < program.shared.size(); i++) {
        const Variable &variable = program.shared[i];
        const Site site = { program.kernel.file.c_str(), program.kernel.name.c_str(), 0 };
        void *data = variable.dynamic ? shared_dynamic(variable.name.c_str(), site)
                                      : shared_array(&variable, variable.name.c_str(), variable.bytes, site);
        shared.push_back(SharedPlace{ program.shared_start[i], static_cast<char *>(data) });
    }
    std::deque<Sums> sums;
    std::vector<uint64_t> slots(program.slot_count);
    Frame frame = { &program, slots.data(), parameters.data(), 0, false, &shared, &sums };
    set_presets(frame);
    run(frame);
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
