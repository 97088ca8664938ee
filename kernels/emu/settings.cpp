/* SPDX-License-Identifier: MIT
 *
 * The settings' environment variables.
 */
#include "kernels/emu/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

namespace hs_emu
{
namespace emulator
{

/* The place of a variable's value among `choices`; 0, the default, when it is not set.  Wrong values end the program:
 * a value that is set must take effect. */
template <int count> static int choice(const char *variable, const char *const (&choices)[count])
{
    const char *value = getenv(variable);
    if (value == nullptr)
        return 0;
    for (int i = 0; i < count; i++)
        if (strcmp(value, choices[i]) == 0)
            return i;
    fprintf(stderr, "emulator: %s=%s: give one of", variable, value);
    for (const char *allowed : choices)
        fprintf(stderr, " %s", allowed);
    fprintf(stderr, "\n");
    exit(2);
}

static uint64_t number(const char *variable, uint64_t otherwise, uint64_t least, uint64_t most)
{
    const char *text = getenv(variable);
    if (text == nullptr)
        return otherwise;
    char *end;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "emulator: %s=%s: give a number from %llu to %llu\n", variable, text, (unsigned long long)least,
                (unsigned long long)most);
        exit(2);
    }
    return value;
}

static Settings from_environment()
{
    static const char *const schedules[] = { "pct", "forward", "reverse", "random" };
    static const char *const times[] = { "late", "early" };
    static const char *const switches[] = { "on", "off" };
    static const char *const sums[] = { "exact", "truncate" };
    static const char *const errors[] = { "exact", "above", "below", "mixed" };
    const unsigned cores = std::thread::hardware_concurrency();
    Settings read;
    read.schedule = static_cast<Schedule>(choice("HALFSTEP_EMU_SCHEDULE", schedules));
    read.seed = number("HALFSTEP_EMU_SEED", 1, 0, UINT64_MAX);
    read.late_copies = choice("HALFSTEP_EMU_COPIES", times) == 0;
    read.late_streams = choice("HALFSTEP_EMU_STREAMS", times) == 0;
    read.guard = choice("HALFSTEP_EMU_GUARD", switches) == 0;
    read.approximate = static_cast<Approximate>(choice("HALFSTEP_EMU_APPROXIMATE", errors));
    read.truncated_sums = choice("HALFSTEP_EMU_SUMS", sums) == 1;
    read.threads = (int)number("HALFSTEP_EMU_THREADS", cores == 0 ? 1 : cores > 8 ? 8 : cores, 1, 256);
    read.shared_limit = number("HALFSTEP_EMU_SHARED", 227, 48, 1024) * 1024;
    return read;
}

Settings &settings()
{
    static Settings current = from_environment();
    return current;
}

} // namespace emulator
} // namespace hs_emu
