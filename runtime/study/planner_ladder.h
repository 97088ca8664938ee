/* SPDX-License-Identifier: MIT
 *
 * The lines of trainer plan --ladder, between planning and printing.
 */
#ifndef HS_RUNTIME_STUDY_PLANNER_LADDER_H
#define HS_RUNTIME_STUDY_PLANNER_LADDER_H

#include "runtime/study/planner_rungs.h"

enum { HS_LADDER_LINES = 16 };

typedef struct HsLadderLine {
    const HsRung *rung;
    char refused[512]; /* why there is no plan; empty: there is one */
    HsMemoryPlan plan;
    size_t score_bytes;                /* computed, not planned */
    size_t bytes;                      /* in the device's memory: the plan and the scores */
    double saved_before, saved_in_all; /* of the line before that has a plan, of the first: shares; less than 0: more */
    double seconds;                    /* a step, at least; NAN: the device's rates are not known */
    bool fits;
} HsLadderLine;

typedef struct HsLadder {
    const HsTraining *training;
    const char *rates; /* what the seconds rest on */
    size_t limit;
    const HsLadderLine *first; /* that has a plan */
    int count;
    HsLadderLine lines[HS_LADDER_LINES];
} HsLadder;

/* planner_ladder_print.c: the table as text, or as one line of JSON.  errors: HS_ENOMEM */
HsStatus hs_ladder_print(const HsLadder *ladder, FILE *out);
HsStatus hs_ladder_print_json(const HsLadder *ladder, FILE *out);

#endif
