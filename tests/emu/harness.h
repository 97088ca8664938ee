/* SPDX-License-Identifier: MIT
 *
 * Tests of the emulator.  A test is a program (a function that launches kernels and says whether the result is right).
 * It runs in a child process, because the emulator ends a process with a kernel that does what it must not; and under
 * several schedules and seeds, because what a race does depends on them.
 */
#ifndef HS_TESTS_EMU_HARNESS_H
#define HS_TESTS_EMU_HARNESS_H

#include <functional>
#include <stdio.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/emu/settings.h"

namespace test
{

using hs_emu::emulator::Schedule;
using hs_emu::emulator::Settings;
using hs_emu::emulator::settings;

typedef std::function<bool()> Program;

enum { SEEDS = 8 };
static int failures;

struct Outcome {
    bool right;         /* ended by itself, with the right result */
    std::string report; /* what it wrote to stderr */
};

static inline Outcome run(const Program &program, const Settings &how)
{
    int pipe_ends[2];
    fflush(stdout);
    if (pipe(pipe_ends) != 0)
        return Outcome{ false, "no pipe" };
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        settings() = how;
        _exit(program() ? 0 : 1);
    }
    close(pipe_ends[1]);
    Outcome outcome = { false, "" };
    char text[4096];
    for (ssize_t count; (count = read(pipe_ends[0], text, sizeof text)) > 0;)
        outcome.report.append(text, (size_t)count);
    close(pipe_ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    outcome.right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return outcome;
}

static inline void fail(const char *name, const std::string &how, const Outcome &outcome)
{
    printf("FAIL %s: %s\n%s", name, how.c_str(), outcome.report.substr(0, 1500).c_str());
    failures++;
}

static inline std::string describe(const Settings &how)
{
    static const char *const names[] = { "pct", "forward", "reverse", "random" };
    return std::string(names[(int)how.schedule]) + ", seed " + std::to_string(how.seed) +
           (how.late_copies ? ", late" : ", early") + " copies" + (how.late_streams ? ", late" : ", early") +
           " streams, " + std::to_string(how.threads) + " threads";
}

/* Right in every schedule and mode. */
static inline void holds(const char *name, const Program &program)
{
    const int before = failures;
    for (int schedule = 0; schedule < 4; schedule++)
        for (int mode = 0; mode < 4; mode++) {
            Settings how;
            how.schedule = static_cast<Schedule>(schedule);
            how.seed = (uint64_t)(schedule * 4 + mode);
            how.late_copies = mode % 2 == 0;
            how.late_streams = mode / 2 == 0;
            how.threads = 1 + mode % 2;
            const Outcome outcome = run(program, how);
            if (!outcome.right)
                fail(name, "wrong with " + describe(how), outcome);
        }
    if (failures == before)
        printf("ok   %s\n", name);
}

/* A sanitizer's report, where the tests are built with one, is as good as the emulator's: it comes first. */
static inline bool says(const Outcome &outcome, const char *report)
{
    return outcome.report.find(report) != std::string::npos ||
           outcome.report.find("AddressSanitizer") != std::string::npos ||
           outcome.report.find("runtime error: ") != std::string::npos;
}

/* A planted bug is found with every seed, by the default settings: by a report that holds `report` (which may be empty:
 * any, or a wrong result), or, where that is NULL, by a wrong result. */
static inline void catches(const char *name, const char *report, const Program &wrong)
{
    const int before = failures;
    for (int seed = 1; seed <= SEEDS; seed++) {
        Settings how;
        how.seed = (uint64_t)seed;
        const Outcome outcome = run(wrong, how);
        if (outcome.right)
            fail(name, "the bug was not found with " + describe(how), outcome);
        else if (report == nullptr ? !outcome.report.empty() : !says(outcome, report))
            fail(name,
                 std::string("expected ") + (report == nullptr ? "a wrong result" : report) + ", with " + describe(how),
                 outcome);
    }
    if (failures == before)
        printf("ok   %s: found with every seed\n", name);
}

/* The same, and the program's correct twin passes everywhere. */
static inline void finds(const char *name, const char *report, const Program &correct, const Program &wrong)
{
    holds(name, correct);
    catches(name, report, wrong);
}

/* Device memory that holds `values`, and back.  Freed with the process. */
template <typename T> static inline T *to_device(const std::vector<T> &values)
{
    T *pointer = nullptr;
    hs_emu::cudaMalloc(&pointer, values.size() * sizeof(T));
    hs_emu::cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), hs_emu::cudaMemcpyHostToDevice);
    return pointer;
}

template <typename T> static inline std::vector<T> to_host(const T *pointer, size_t count)
{
    std::vector<T> values(count);
    hs_emu::cudaMemcpy(values.data(), pointer, count * sizeof(T), hs_emu::cudaMemcpyDeviceToHost);
    return values;
}

/* A launch on the null stream. */
template <typename... Parameters, typename... Arguments>
static inline bool launch(void (*kernel)(Parameters...), hs_emu::dim3 grid, hs_emu::dim3 block, size_t shared_bytes,
                          Arguments... arguments)
{
    return hs_emu::emulate_launch("test", grid, block, shared_bytes, nullptr,
                                  [=] { kernel(static_cast<Parameters>(arguments)...); }) == hs_emu::cudaSuccess;
}

/* The same in clusters of `cluster` blocks. */
template <typename... Parameters, typename... Arguments>
static inline bool launch_clusters(void (*kernel)(Parameters...), unsigned cluster, hs_emu::dim3 grid,
                                   hs_emu::dim3 block, size_t shared_bytes, Arguments... arguments)
{
    return hs_emu::emulate_launch(
               "test", grid, block, shared_bytes, nullptr, [=] { kernel(static_cast<Parameters>(arguments)...); },
               cluster) == hs_emu::cudaSuccess;
}

static inline int result()
{
    printf(failures == 0 ? "all right\n" : "%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}

} // namespace test

#endif
