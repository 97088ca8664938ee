/* SPDX-License-Identifier: MIT
 *
 * The front of a comparison: which points (a strategy at a strength) no other point makes needless.
 *
 *   compare_front.c        the arithmetic: domination, fronts (pure)
 *   compare_front_table.c  the default table of points
 *   compare_front_plan.c   how many runs and hours, before the first one
 *   compare_front_runs.c   the runs, and what each point costs
 *   compare_front_figures.c, compare_front_print.c, compare_front_page.c: figures and JSON, a terminal, a page
 *
 * Three axes count, all of them lower is better:
 *
 *     learned     mean loss on each task right after its training
 *     forgotten   mean rise of the earlier tasks' losses from there to the end: the matrix's bwt with the sign turned
 *     text        0: no text of earlier tasks is kept; 1: a sample is
 *
 * A dominates B where A is not worse on any of the three and better on one.  So a point that keeps text never dominates
 * one that keeps none: there are users whose text may not be kept.  Retained loss is no axis: of T
 * tasks it is learned + (T - 1) / T forgotten, so that the point that retains most is always on the front.  (The matrix's
 * forgetting, which counts from the lowest loss a task ever had, leaves out what later tasks improved, and would call
 * that point dominated.)  Memory and time are shown and do not count.  Joint training is no point of a stream: it is a reference.
 *
 * Two fronts: of the points that keep no text, those that none of the same kind dominates; and of all points, those that
 * no other one equals or betters in both losses while it betters one.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_FRONT_H
#define HS_RUNTIME_STUDY_COMPARE_FRONT_H

#include <stdbool.h>

typedef struct HsFrontPoint {
    double learned, forgotten; /* one that is not finite: the point takes no part */
    bool keeps_text;
    bool reference; /* shown, and takes no part */
    /* found by hs_front_find: */
    bool on_front, on_front_without_text;
    int dominated_by; /* of those that dominate it the one with the least learned + forgotten; -1: none */
    int with_text;    /* keeps no text and is not dominated: the one that keeps text and is better; -1: none */
} HsFrontPoint;

/* Whether a dominates b. */
bool hs_front_dominates(const HsFrontPoint *a, const HsFrontPoint *b);
/* The point that is named as dominating is dominated by none: if it were, what dominates it would dominate the first
 * one, too, with a smaller sum. */
void hs_front_find(HsFrontPoint *points, int count);
/* The points of a front in the order of what they forget, [count] of room; returns how many. */
int hs_front_order(const HsFrontPoint *points, int count, bool without_text, int *order);

#endif
