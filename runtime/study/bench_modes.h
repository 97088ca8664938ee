/* SPDX-License-Identifier: MIT
 *
 * The language of `trainer bench --modes`: which configurations are trained side by side.
 *
 *     LIST  = MODE,MODE,...
 *     MODE  = [+]WORD+WORD+...[:section.key=value]...     a leading + extends the mode before it
 *     WORD  = one of hs_bench_word, or accumulateN        N micro-batches where the configuration has one
 *
 * So  fp32,+bf16,+recompute,+accumulate4  is a ladder of four modes, each with everything that the one before has but
 * what its own words replace: the last one's whole setting is bf16+recompute+accumulate4.  Within one mode two words
 * for the same key contradict each other.
 */
#ifndef HS_RUNTIME_STUDY_BENCH_MODES_H
#define HS_RUNTIME_STUDY_BENCH_MODES_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"
#include "runtime/model/precision.h"

enum {
    HS_BENCH_MODES = 32,
    HS_BENCH_PARTS = 16, /* of a mode: words and key=value */
    HS_BENCH_PART_BYTES = 96,
    HS_BENCH_NAME_BYTES = 256,
    HS_BENCH_WORD_OVERRIDES = HS_PRECISION_SETTINGS,
    HS_BENCH_OVERRIDES = HS_BENCH_PARTS * HS_BENCH_WORD_OVERRIDES
};

/* A word and what it sets.  Words with first overrides that set the same key are alternatives. */
typedef struct HsBenchWord {
    const char *word;
    const char *overrides[HS_BENCH_WORD_OVERRIDES]; /* NULL: no second one */
    const char *doc;
} HsBenchWord;
/* Word i: the precision modes first, then this file's own; its `word` is NULL behind the last. */
HsBenchWord hs_bench_word(int i);

typedef struct HsBenchMode {
    char label[HS_BENCH_NAME_BYTES];  /* as written */
    char name[HS_BENCH_NAME_BYTES];   /* the whole setting, unlike every other mode's */
    char folder[HS_BENCH_NAME_BYTES]; /* the name, safe as a file's */
    char parts[HS_BENCH_PARTS][HS_BENCH_PART_BYTES];
    int part_count;
    int64_t accumulate; /* memory.micro_batch is batch_size over this; 0: as configured */
} HsBenchMode;

typedef struct HsBenchModes {
    HsBenchMode modes[HS_BENCH_MODES];
    int count;
} HsBenchModes;

/* errors: HS_ECONFIG with the word, what was meant perhaps, and the list */
HsStatus hs_bench_modes_parse(const char *list, HsBenchModes *modes);
/* Overrides as hs_config_load takes them, valid as long as the mode; returns how many.  accumulateN is not among them:
 * it needs the batch size. */
int hs_bench_mode_overrides(const HsBenchMode *mode, const char *overrides[HS_BENCH_OVERRIDES]);
/* Every word with what it does, a line each, on the heap; NULL when there is no memory. */
char *hs_bench_modes_help(void);

#endif
