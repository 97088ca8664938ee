/* SPDX-License-Identifier: MIT
 *
 * trainer plan --launches against the truth: the kernels that a training on the emulator launches in an optimizer step,
 * in their order, with their blocks, are those that the plan lists without running any.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "kernels/parts/part.h"
#include "runtime/study/planner.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { MOST_BYTES = 1 << 20 };
static char *launched;
static size_t launched_bytes;

/* As the plan writes it: name, blocks, threads. */
static void note(const char *name, int length, long long blocks, unsigned threads)
{
    launched_bytes += (size_t)snprintf(launched + launched_bytes, MOST_BYTES - launched_bytes, "%.*s %lld x %u\n",
                                       length, name, blocks, threads);
    cr_assert_lt(launched_bytes, MOST_BYTES);
}

static bool see(const HsKernelLaunch *launch)
{
    const char *const name = launch->name + strspn(launch->name, "( ");
    note(name, (int)strcspn(name, "<)"), (long long)launch->blocks, launch->block_threads);
    return true;
}

/* The plan's lines, without number, shared memory and layer; copies and memsets are no kernels. */
static char *planned_launches(HsConfig *config, const HsCard *card)
{
    const HsPlannerOptions options = {
        .card = card, .device_bytes = (size_t)card->gigabytes << 30, .step = true, .launches = true
    };
    char *text = NULL, line[512], kernel[128];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    cr_assert_not_null(out);
    HsPlannedModel about;
    OK(hs_planner_run(config, &options, out, &about));
    fclose(out);
    launched_bytes = 0;
    FILE *lines = fmemopen(text, bytes, "r");
    while (fgets(line, sizeof line, lines)) {
        long long number, blocks;
        unsigned threads;
        if (sscanf(line, "%lld %127s %lld x %u", &number, kernel, &blocks, &threads) == 4 && blocks > 0)
            note(kernel, (int)strlen(kernel), blocks, threads);
    }
    fclose(lines);
    free(text);
    return strdup(launched);
}

static void load(HsConfig *config, const char *folder, const char *device, const char *const settings[4])
{
    char out_dir[300];
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", folder);
    const char *overrides[] = { out_dir,
                                device,
                                "max_length=16",
                                "batch_size=2",
                                "max_steps=4",
                                "model.width=32",
                                "model.heads=2",
                                "model.layers=2",
                                settings[0],
                                settings[1],
                                settings[2],
                                settings[3],
                                "logging.progress=none",
                                "tasks.0.synthetic_tokens=8000" };
    OK(hs_config_load(config, NULL, sizeof overrides / sizeof *overrides, overrides));
}

/* The second step: what is made at a first use is made then. */
static char *real_launches(HsConfig *config)
{
    HsTraining training;
    const HsBackendPart *part;
    double loss;
    HsStepReport report;
    OK(hs_training_create(config, &training, NULL));
    OK(hs_training_begin_task(&training));
    OK(hs_training_step(&training, &loss, &report));
    OK(hs_part_open("emu", &part));
    launched_bytes = 0;
    part->observe_launches(see);
    OK(hs_training_step(&training, &loss, &report));
    part->observe_launches(NULL);
    char *seen = strdup(launched);
    hs_training_destroy(&training);
    return seen;
}

static void compare(const char *const settings[4])
{
    Scratch scratch = scratch_make();
    HsConfig planned, real;
    const HsCard *card;
    launched = calloc(1, MOST_BYTES);
    cr_assert_not_null(launched);
    OK(hs_card_find("H200 SXM", &card));
    load(&planned, scratch.folder, "device=cuda", settings);
    char *plan = planned_launches(&planned, card);
    load(&real, scratch.folder, "device=emu", settings);
    char *seen = real_launches(&real);
    cr_assert_gt(strlen(seen), 500, "a step has more launches than that");
    cr_expect_str_eq(plan, seen);
    free(plan);
    free(seen);
    free(launched);
    hs_config_deinit(&planned);
    hs_config_deinit(&real);
    scratch_remove(&scratch);
}

Test(walked_step, lists_what_is_launched)
{
    static const char *const cases[][4] = {
        { "precision.mode=bf16", "gradient_accumulation_steps=2", "model.bias=true", "kernels.cuda_graph=false" },
        { "precision.mode=fp16", "memory.recompute=block", "model.dropout=0.1", "kernels.cuda_graph=false" },
        { "precision.mode=bf16", "model.family=llama", "model.kv_heads=1", "kernels.cuda_graph=false" },
        { "precision.mode=fp32", "memory.head_chunk=8", "optimizer.kind=adamw8bit", "kernels.cuda_graph=false" },
        { "precision.mode=bf16", "memory.recompute=block", "optimizer.kind=adamwfp8", "kernels.cuda_graph=false" },
    };
    hs_log_set_level(HS_LOG_ERROR);
    /* As many multiprocessors as the card has: slices of k depend on it. */
    setenv("HALFSTEP_MULTIPROCESSORS", "132", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(cases[i]);
}
