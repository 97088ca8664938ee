/* SPDX-License-Identifier: MIT
 *
 * After start-up a training step allocates nothing: malloc and its kin are counted here, in a plain program, while
 * optimizer steps run in every precision mode, with and without recomputation, and with every kind of strategy.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_long allocations;

#if !defined(__SANITIZE_ADDRESS__)
void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(pointer, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **pointer, size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    *pointer = __libc_memalign(alignment, size);
    return *pointer ? 0 : ENOMEM;
}
#endif

enum { WARM_UP = 2, STEPS = 4 };

static HsStatus count_case(const char *const *overrides, int override_count, long *counted)
{
    HsConfig config;
    HsRun run;
    HS_TRY(hs_config_load(&config, NULL, override_count, overrides));
    HsStatus status = hs_run_create(&config, &run, NULL);
    if (status == HS_OK) {
        double loss;
        HsStepReport report;
        status = hs_training_begin_task(&run.training);
        for (int step = 0; step < WARM_UP && status == HS_OK;
             step++) /* OpenMP's threads and libm's tables start here */
            status = hs_training_step(&run.training, &loss, &report);
        const long before = atomic_load(&allocations);
        for (int step = 0; step < STEPS && status == HS_OK; step++)
            status = hs_training_step(&run.training, &loss, &report);
        *counted = atomic_load(&allocations) - before;
        hs_run_destroy(&run);
    }
    hs_config_deinit(&config);
    return status;
}

int main(void)
{
    char folder[] = "/tmp/halfstep-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    char out_dir[64];
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", folder);
    hs_log_set_level(HS_LOG_WARNING);
    int passed = 0, failed = 0;
    static const char *const variants[][2] = {
        { "precision.mode=fp32", "memory.recompute=none" },
        { "precision.mode=bf16", "memory.recompute=block" },
        { "precision.mode=fp16", "memory.recompute=attention" },
        { "precision.mode=bf16", "optimizer.kind=sgd" },
        { "precision.mode=bf16", "model.family=llama" },
        { "precision.mode=fp32", "continual.strategy=[er, ewc]" },
        { "continual.strategy=ewc", "ewc.curvature=kronecker" },
        { "precision.mode=bf16", "continual.strategy=[mer, si]" },
        { "precision.mode=fp16", "continual.strategy=a-gem" },
        { "precision.mode=fp16", "continual.strategy=der++" },
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const char *overrides[] = {
            out_dir,          "max_length=48", "batch_size=3",   "model.dropout=0.1",
            "model.width=32", "model.heads=2", "model.layers=2", "tasks.0.synthetic_tokens=20000",
            "max_steps=10",   variants[i][0],  variants[i][1]
        };
        long counted = -1;
        HsStatus status = count_case(overrides, (int)(sizeof overrides / sizeof *overrides), &counted);
        if (status == HS_OK && counted == 0) {
            passed++;
            continue;
        }
        failed++;
        printf("%s %s: %s, %ld allocations in %d steps\n", variants[i][0], variants[i][1],
               status == HS_OK ? "ok" : hs_error_message(), counted, STEPS);
    }
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
