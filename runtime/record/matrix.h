/* SPDX-License-Identifier: MIT
 *
 * What was learned and what was forgotten.  R[i][j] is the held-out loss (nats a token) on task j after training task i
 * (counting from 0); T tasks; b[j] is the loss of the untrained model.  Losses: smaller is better.
 *
 *   learned     mean_j R[j][j]  over the tasks that were trained: not over the first `known`, which change nothing
 *   retained    mean_j R[T-1][j]
 *   forgetting  mean_{j < T-1} ( R[T-1][j] - min_i R[i][j] )
 *   BWT         mean_{j < T-1} ( R[j][j] - R[T-1][j] )      below 0 is forgetting
 *   FWT         mean_{j > 0} ( b[j] - R[j-1][j] )           above 0 is help from earlier tasks
 *   excess      mean_j ( R[T-1][j] - joint[j] ), and over the floor: mean_j ( R[T-1][j] - floor[j] )
 *   ratio       exp(excess over joint), of perplexities
 *   bits a byte mean_j R[T-1][j] / (ln 2 * bytes of text a token of task j): tokenizers compare
 *   accuracy    mean_j A[T-1][j] over the tasks that have prompts and completions: A is the share of greedy completions
 *               that are exact, on prompts of the training text (seen) and on others (unseen); larger is better
 *   left        mean_f ( b[f] - R[T-1][f] ) / ( b[f] - min_i R[i][f] )  over the tasks f that are not to be retained:
 *               1 where such a task's loss is the lowest it ever had, 0 where it is the untrained model's; below 0 past that
 *
 * All but `left` are over the tasks that are to be retained (`forgets`); the sums above skip the others.
 *
 * BWT and FWT are equations 3 and 4 of Lopez-Paz & Ranzato 2017 with the sign turned: theirs are accuracies.
 *
 * A value that needs something unknown is NAN (joint training has only a last row).  A task that was appended when
 * earlier ones had been trained has no losses in their rows: none of the figures needs them but the least loss of
 * forgetting, which is then the least of those measured.
 */
#ifndef HS_RUNTIME_RECORD_MATRIX_H
#define HS_RUNTIME_RECORD_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"
#include "runtime/data/dataset.h"

typedef struct HsMatrix {
    int tasks;
    int known; /* the first n of them were learned before the run */
    char (*names)[64];
    double *loss;                        /* [tasks, tasks], NAN where not measured */
    double *untrained;                   /* b [tasks] */
    double *floor;                       /* [tasks], NAN: unknown */
    double *joint;                       /* [tasks], NAN: unknown */
    double *bytes_per_token;             /* [tasks], NAN: unknown */
    bool *forgets;                       /* [tasks] tasks.N.retain is false */
    double *accuracy[HS_ITEM_SET_COUNT]; /* [1 + tasks, tasks]: the untrained model's row, then as loss; NAN: unknown */
} HsMatrix;

typedef struct HsMatrixSummary {
    double learned, retained, forgetting, bwt, fwt, excess_over_joint, excess_over_floor, perplexity_ratio;
    double bits_per_byte, accuracy_seen, accuracy_unseen, left;
} HsMatrixSummary;

HsStatus hs_matrix_init(HsMatrix *matrix, int tasks); /* everything NAN, names empty */
void hs_matrix_deinit(HsMatrix *matrix);
static inline double *hs_matrix_at(const HsMatrix *matrix, int after, int task)
{
    return &matrix->loss[after * matrix->tasks + task];
}
/* after: -1: the untrained model */
static inline double *hs_matrix_accuracy(const HsMatrix *matrix, int set, int after, int task)
{
    return &matrix->accuracy[set][(after + 1) * matrix->tasks + task];
}
/* "seen" and "unseen": how members and titles call the sets. */
extern const char *const hs_item_set_names[HS_ITEM_SET_COUNT];
/* One training on all tasks: several, of which only the last row is known.  Nothing can be forgotten in it. */
bool hs_matrix_is_joint(const HsMatrix *matrix);
/* The name, cut to fit at a whole character. */
void hs_matrix_set_name(HsMatrix *matrix, int task, const char *name);
/* Rows filled so far decide: "last row" is the highest row that knows the tasks trained up to it, and T that row + 1. */
HsMatrixSummary hs_matrix_summary(const HsMatrix *matrix);
int hs_matrix_last_row(const HsMatrix *matrix); /* -1: none */
/* R[last][task] - min over the rows so far; NAN when one from the task's own on is unknown.  Rows in which but their own
 * task was measured (evaluation.matrix: own) count for that one. */
double hs_matrix_forgetting(const HsMatrix *matrix, int task);
/* Some task is not to be retained. */
bool hs_matrix_forgets(const HsMatrix *matrix);
/* The share of the task that is left, after the last row; NAN where something that it needs is unknown. */
double hs_matrix_left(const HsMatrix *matrix, int task);
/* The table for a terminal: a column a task, a row after each task, floor and joint where known, accuracies in
 * separate tables where known, the summary below.
 * At most `columns` wide (at least 56): names are cut, many tasks take several blocks. */
void hs_matrix_print(const HsMatrix *matrix, int columns, FILE *stream);
/* Names, units and one-sentence meanings of the summary's members, in order: tables, pages and documents use them. */
typedef struct HsMatrixMember {
    const char *name, *doc;
    size_t offset; /* of the double in HsMatrixSummary */
    bool rare;     /* shown and written only where it is known */
    bool leads;    /* shown first; a page folds the others away */
} HsMatrixMember;
extern const HsMatrixMember hs_matrix_members[];
extern const int hs_matrix_member_count;
static inline double hs_matrix_member_value(const HsMatrixSummary *summary, int member)
{
    return *(const double *)(const void *)((const char *)summary + hs_matrix_members[member].offset);
}

#endif
