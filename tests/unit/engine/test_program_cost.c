/* SPDX-License-Identifier: MIT
 *
 * A plan takes little itself, however much it plans: sizes that do not wrap round, keys named where they are too large,
 * and the time and memory of the largest models and batches.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "kernels/base/size.h"
#include "kernels/base/tensor.h"
#include "runtime/study/planner.h"

/* Against arithmetic of twice as many bits. */
Test(plan_cost, sizes_saturate)
{
    static const size_t values[] = { 0,        1,          2,          63,           64,           65,      4096,
                                     1u << 31, UINT32_MAX, 1ull << 32, SIZE_MAX / 3, SIZE_MAX / 2, SIZE_MAX };
    enum { COUNT = sizeof values / sizeof *values };
    __extension__ typedef unsigned __int128 Wide;
    const Wide most = SIZE_MAX;
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++) {
            const Wide a = values[i], b = values[j];
            cr_expect_eq(hs_size_add(values[i], values[j]), a + b > most ? SIZE_MAX : (size_t)(a + b));
            cr_expect_eq(hs_size_multiply(values[i], values[j]), a * b > most ? SIZE_MAX : (size_t)(a * b));
        }
    for (int i = 0; i < COUNT; i++) {
        const Wide up = ((Wide)values[i] + 63) / 64 * 64;
        cr_expect_eq(hs_size_align(values[i], 64), up > most ? SIZE_MAX : (size_t)up, "%zu", values[i]);
    }
    const HsTensor huge = hs_tensor_3d(NULL, HS_F32, 1ll << 40, 1ll << 23, 1ll << 20);
    cr_expect_eq(hs_tensor_count(&huge), INT64_MAX);
    cr_expect_gt(hs_tensor_bytes(&huge), HS_SIZE_MOST);
    const HsTensor large = hs_tensor_2d(NULL, HS_F32, 1ll << 40, 1ll << 22);
    cr_expect_eq(hs_tensor_count(&large), 1ll << 62);
    cr_expect_eq(hs_tensor_bytes(&large), SIZE_MAX);
    const HsTensor none = hs_tensor_2d(NULL, HS_F32, 0, 1ll << 22);
    cr_expect_eq(hs_tensor_bytes(&none), 0);
}

enum { MOST = 12 };
static const char *const common[] = { "device=ref", "max_steps=1", "tasks.0.train=synthetic:addition",
                                      "tasks.0.synthetic_tokens=4000" };

static HsStatus plan_quietly(const char *const *own)
{
    const char *all[MOST + 4];
    int count = 0;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        all[count++] = common[i];
    for (int i = 0; i < MOST && own[i]; i++)
        all[count++] = own[i];
    HsConfig config;
    const HsPlannerOptions options = { 0 };
    HS_TRY(hs_config_load(&config, NULL, count, all));
    FILE *nowhere = fopen("/dev/null", "w");
    cr_assert(nowhere);
    HsPlannedModel about;
    HsStatus status = hs_planner_run(&config, &options, nowhere, &about);
    fclose(nowhere);
    hs_config_deinit(&config);
    return status;
}

Test(plan_cost, what_is_too_large_is_named)
{
    static const struct {
        const char *own[MOST], *says[4];
        HsStatus status;
    } rows[] = {
        { { "batch_size=1048576", "gradient_accumulation_steps=65536", "max_length=1048576" },
          { "batch_size 1048576", "gradient_accumulation_steps 65536", "max_length" },
          HS_ECONFIG },
        { { "batch_size=1048576", "max_length=1048576", "model.family=llama", "model.width=1048576",
            "model.head_dim=128", "model.layers=64", "model.heads=1024" },
          { "memory.micro_batch", "batch_size", "max_length", "model.layers" },
          HS_ECONFIG },
        { { "model.family=llama", "model.width=1048576", "model.head_dim=256", "model.heads=1024", "model.layers=1024",
            "model.mlp_width=4194304" },
          { "model.layers", "model.width", "model.mlp_width", "model.vocabulary" },
          HS_ECONFIG },
        { { "continual.strategy=er", "replay.buffer_size=4500000000000000" }, { "replay.buffer_size" }, HS_ECONFIG },
        { { "continual.strategy=mer", "mer.buffer_size=9000000000000000", "max_length=1048576" },
          { "mer.buffer_size", "max_length" },
          HS_ECONFIG },
        { { "continual.strategy=mer", "mer.group_steps=65536", "batch_size=1048576", "max_length=1048576",
            "memory.micro_batch=1" },
          { "mer.group_steps", "batch_size 1048576" },
          HS_ECONFIG },
        { { "tasks.0.epochs=9000000000000000", "batch_size=1" }, { "task's epochs", "9.", "steps" }, HS_ECONFIG },
        /* Far more than this machine has, but a number: planned, and refused with it. */
        { { "continual.strategy=er", "replay.buffer_size=90000000000" }, { "the plan needs" }, HS_ENOMEM },
        { { "batch_size=1048576", "max_length=1048576" }, { "the plan needs" }, HS_ENOMEM },
        { { "model.vocabulary=16777216", "model.width=65536", "model.heads=512" }, { "the plan needs" }, HS_ENOMEM },
    };
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        cr_expect_eq(plan_quietly(rows[r].own), rows[r].status, "%s: %s", rows[r].own[0], hs_error_message());
        for (int i = 0; i < 4 && rows[r].says[i]; i++)
            cr_expect(strstr(hs_error_message(), rows[r].says[i]), "row %zu lacks `%s`: %s", r, rows[r].says[i],
                      hs_error_message());
    }
}

/* In a separate process: what it takes, and seconds of processor time. */
static struct rusage measure(const char *const *own)
{
    struct rusage usage;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        const HsStatus planned = plan_quietly(own);
        _exit(planned == HS_OK || planned == HS_ENOMEM ? 0 : 1);
    }
    cr_assert(child > 0 && wait4(child, &status, 0, &usage) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", own[0]);
    return usage;
}

/* A sanitizer's programs are larger and slower by a factor that says nothing about plans. */
#if defined(__SANITIZE_ADDRESS__)
static const double slower = 10;
#else
static const double slower = 1;
#endif

/* Walks over tokens, or over pairs of steps, would take from minutes to years; what was measured is a tenth of these
 * bounds. */
Test(plan_cost, grows_with_layers_alone)
{
    static const struct {
        const char *own[MOST];
        double seconds, mebibytes;
    } rows[] = {
        { { "batch_size=16384", "max_length=65536" }, 2, 64 },
        { { "batch_size=1048576", "max_length=1048576", "memory.head_chunk=1" }, 2, 64 },
        { { "batch_size=720720", "memory.limit=100MiB" }, 2, 64 },
        { { "device=cpu", "model.width=64", "model.heads=4" }, 5, 64 },
        { { "model.layers=1024" }, 8, 160 },
        { { "model.layers=1024", "memory.recompute=block", "max_length=65536", "model.dropout=0.1" }, 10, 160 },
    };
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const struct rusage usage = measure(rows[r].own);
        const double seconds = (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec;
        const double mebibytes = (double)usage.ru_maxrss / 1024;
        cr_log_info("%s: %.2f s, %.0f MiB", rows[r].own[0], seconds, mebibytes);
        cr_expect_leq(seconds, slower * rows[r].seconds, "%s: %g s", rows[r].own[0], seconds);
        cr_expect_leq(mebibytes, slower * rows[r].mebibytes, "%s: %g MiB", rows[r].own[0], mebibytes);
    }
}
