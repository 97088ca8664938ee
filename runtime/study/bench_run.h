/* SPDX-License-Identifier: MIT
 *
 * One mode of a bench, being trained.  Private to bench.c and bench_run.c.
 */
#ifndef HS_RUNTIME_STUDY_BENCH_RUN_H
#define HS_RUNTIME_STUDY_BENCH_RUN_H

#include "runtime/study/bench.h"
#include "runtime/train/training.h"

typedef struct HsBenchRunner {
    HsBenchRun *run; /* borrowed: where what is measured goes */
    HsConfig config;
    bool has_config;
    HsMemoryPlan plan;
    HsTraining training; /* must not move */
    bool alive;          /* there is a training */
} HsBenchRunner;

/* The training, at the beginning of the first task. */
HsStatus hs_bench_runner_start(HsBenchRunner *runner);
/* Steps for about a second, at most `most`.  Gradients that stay non-finite end the run here, with run->failure. */
HsStatus hs_bench_runner_turn(HsBenchRunner *runner, int64_t most);
/* More steps are to come. */
bool hs_bench_runner_wants(const HsBenchRunner *runner);
/* After the last step: memory, validation, survey. */
HsStatus hs_bench_runner_finish(HsBenchRunner *runner);
/* Then, as often as there is patience: a few steps more for the split of a step's time, which is the quickest try's. */
HsStatus hs_bench_runner_watch(HsBenchRunner *runner);
/* Safe on a zeroed runner, and twice.  The run stays. */
void hs_bench_runner_stop(HsBenchRunner *runner);

#endif
