/* SPDX-License-Identifier: MIT
 *
 * The ladder of memory techniques: one table, hs_rungs, each row a few keys.  A rung's configuration is the file, then
 * the command line, then the keys of all rows from the first to its own, so that it can be trained by writing them
 * behind `trainer --config FILE`.
 */
#ifndef HS_RUNTIME_STUDY_PLANNER_RUNGS_H
#define HS_RUNTIME_STUDY_PLANNER_RUNGS_H

#include "runtime/study/planner.h"

enum { HS_RUNG_SETS = 16, HS_RUNG_OVERRIDES = 32 };

/* Attention that writes its scores to memory keeps softmax's probabilities [B, heads, T, T] for backward, in the mode's
 * 16-bit format or f32.  This runtime has no such attention; what it would take is computed, and added to the plan. */
typedef enum HsScoresKept {
    HS_SCORES_NONE,
    HS_SCORES_OF_ONE_LAYER, /* its forward is computed again */
    HS_SCORES_OF_ALL_LAYERS
} HsScoresKept;

typedef struct HsRung {
    const char *name;
    /* "section.key=value"; "section." without a value: what earlier rungs set there is as the file says again */
    const char *sets[HS_RUNG_SETS];
    HsScoresKept scores;
    const char *training; /* the column of `plan --table` in which this kind of training stands; NULL: none */
    const char *doc;
} HsRung;
extern const HsRung hs_rungs[];
extern const int hs_rung_count;

/* What hs_rungs[rung] and the rows before it set, each key once, valid as long as the program; returns how many. */
int hs_rung_overrides(int rung, const char *overrides[HS_RUNG_OVERRIDES]);
/* errors: those of the configuration with these keys, behind the rung's name */
HsStatus hs_rung_load(const HsPlannerOptions *options, int rung, HsConfig *config);
/* Of one layer for a batch of `sequences` sequences of the configuration's length; `element_bytes` a score. */
size_t hs_rung_score_bytes(const HsConfig *config, int64_t sequences, size_t element_bytes);

#endif
