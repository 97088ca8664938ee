/* SPDX-License-Identifier: MIT */
#include "kernels/emu/ptx/launch.h"

#include <mutex>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/emu/fault.h"
#include "kernels/emu/memory.h"
#include "kernels/emu/ptx/program.h"

namespace hs_emu
{
namespace emulator
{

namespace
{

/* Of all launches of a kernel that were compared. */
struct Tally {
    long launches = 0, different = 0;
    std::string first;
};

std::map<std::string, Tally> &tallies()
{
    static std::map<std::string, Tally> all;
    return all;
}

const char *report_file()
{
    static const char *const file = getenv("HALFSTEP_EMU_PTX_COMPARE");
    return file != nullptr && *file != '\0' ? file : nullptr;
}

/* In one write, as several processes may append. */
void report()
{
    std::string lines;
    for (const auto &entry : tallies())
        lines += std::to_string(entry.second.launches) + "\t" + std::to_string(entry.second.different) + "\t" +
                 entry.first + "\t" + entry.second.first + "\n";
    FILE *file = fopen(report_file(), "a");
    if (file == nullptr || fwrite(lines.data(), 1, lines.size(), file) != lines.size() || fclose(file) != 0)
        perror(report_file());
}

const ptx::Library &library()
{
    static const ptx::Library read = ptx::read_library(getenv("HALFSTEP_EMU_PTX"));
    return read;
}

} // namespace

KernelParameter copy_parameter(const void *value, size_t size)
{
    constexpr size_t alignment = 128; /* a tensor map's */
    void *place = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (place == nullptr)
        out_of_memory();
    memcpy(place, value, size);
    return KernelParameter{ std::shared_ptr<char>(static_cast<char *>(place), free), size };
}

static bool folder_is_given()
{
    const char *folder = getenv("HALFSTEP_EMU_PTX");
    const bool given = folder != nullptr && *folder != '\0';
    if (!given && report_file() != nullptr)
        fault("HALFSTEP_EMU_PTX_COMPARE compares nothing without HALFSTEP_EMU_PTX: make ptx, and set it to "
              "build/ptx/exact");
    return given;
}

bool ptx_wanted()
{
    static const bool given = folder_is_given();
    return given;
}

bool ptx_compared()
{
    return report_file() != nullptr;
}

PtxBody ptx_body(const void *kernel, const char *name, std::vector<KernelParameter> parameters)
{
    static std::mutex lock;
    std::lock_guard<std::mutex> hold(lock);
    const std::string symbol = ptx::symbol_name(kernel);
    const auto entry = library().entries.find(symbol);
    if (entry == library().entries.end())
        fault("kernel %s is not in the PTX of HALFSTEP_EMU_PTX: %s", name,
              symbol.empty() ? "it has no name here" : symbol.c_str());
    const ptx::Program &program = ptx::program_of(library(), symbol, entry->second, false);
    if (parameters.size() != program.kernel.taken)
        fault("kernel %s: %zu parameters, %zu in PTX", name, parameters.size(), program.kernel.taken);
    for (size_t i = 0; i < parameters.size(); i++)
        if (parameters[i].size != program.kernel.parameters[i].bytes)
            fault("kernel %s: parameter %zu has %zu bytes, %zu in PTX", name, i, parameters[i].size,
                  program.kernel.parameters[i].bytes);
    const auto body = [&program, parameters] {
        std::vector<char *> pointers;
        for (const KernelParameter &parameter : parameters)
            pointers.push_back(parameter.bytes.get());
        ptx::run_program(program, pointers.data());
    };
    return PtxBody{ program.kernel.name.c_str(), body };
}

void ptx_compare(const std::function<void()> &run_own, const PtxBody &text, const std::function<void()> &run_text)
{
    if (tallies().empty())
        atexit(report);
    Tally &tally = tallies()[text.symbol];
    const MemoryCopy before = memory_copy();
    run_own();
    const MemoryCopy after = memory_copy();
    memory_restore(before);
    run_text();
    tally.launches++;
    std::string difference;
    if (memory_differs(after, &difference) && tally.different++ == 0)
        tally.first = difference;
}

} // namespace emulator
} // namespace hs_emu
