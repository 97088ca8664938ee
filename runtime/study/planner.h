/* SPDX-License-Identifier: MIT
 *
 * trainer plan: where the memory of a configuration goes, what a step costs, what would fit, and which models fit which
 * devices.  Nothing of it is allocated or trained: it is the run's own allocation, made on paper.  What a given time
 * would train (planner_hours.c) is behind all that, and trains two small models for a moment.
 */
#ifndef HS_RUNTIME_STUDY_PLANNER_H
#define HS_RUNTIME_STUDY_PLANNER_H

#include <stdio.h>

#include "kernels/base/cards.h"
#include "runtime/config/recipe.h"
#include "runtime/train/training.h"

typedef struct HsPlannerOptions {
    size_t device_bytes; /* plan for a GPU of this size that is not here; 0: for the device here */
    const HsCard *card;  /* the one with the rates to use; device_bytes is its memory then.  NULL: measure */
    bool layers;         /* a row for each block */
    bool fit;            /* search for the fastest way also when the configuration fits */
    bool table;          /* the largest models for common sizes of memory, instead of this one's plan */
    bool ladder;         /* the memory techniques one after another, instead of this one's plan */
    bool scaling;        /* 1 to 64 of the card, instead of this one's plan */
    bool step;           /* the launches of a step on the card and their times, instead of this one's plan */
    bool launches;       /* the same, every launch */
    bool json;           /* with ladder: as one JSON object */
    /* ladder, table: where the configuration came from, as hs_config_load takes it */
    const char *config_path;
    int override_count;
    const char *const *overrides;
} HsPlannerOptions;

/* A training on paper, for hs_training_draft: device, vocabulary, precision, with or without the tasks' texts.  The
 * caller destroys it, after a failure too. */
HsStatus hs_planner_open(HsConfig *config, const HsPlannerOptions *options, HsTraining *training);

/* What hs_planner_print_hours asks of a plan. */
typedef struct HsPlannedModel {
    bool trains_here; /* one process, from scratch, on a device that is here and measures its rate */
    int64_t vocabulary;
    double text_tokens; /* of the tasks, to train on; 0: not known */
} HsPlannedModel;

/* errors: those of the configuration and the device; HS_ENOMEM when the plan exceeds the limit, after printing it and
 * what would fit */
HsStatus hs_planner_run(HsConfig *config, const HsPlannerOptions *options, FILE *out, HsPlannedModel *about);

/* Weights and all that is kept for each, without activations and scratch. */
bool hs_planner_is_per_parameter(HsMemoryCategory category);
size_t hs_planner_parameter_bytes(const HsMemoryPlan *plan);

/* --- planner_rates.c --- */

/* By its name, in any case.  errors: HS_ECONFIG with the nearest name and the list */
HsStatus hs_card_find(const char *name, const HsCard **card);
/* "RTX 3060 (12 GB), ...": all of them, on the heap; NULL when there is no memory. */
char *hs_card_list(void);
/* Of the options' card, else as this device measures them; flops and bytes are 0 where unknown.
 * probe_bytes: of memory that measuring may hold meanwhile */
HsDeviceRates hs_planner_rates(const HsTraining *training, const HsPlannerOptions *options,
                               const HsPrecision *precision, size_t probe_bytes);

/* --- planner_room.c --- */

/* What can grow until memory is full. */
typedef struct HsGrowth {
    void (*set)(HsConfig *config, int64_t value);
} HsGrowth;
/* Sequences of a micro-batch; the length of one sequence. */
extern const HsGrowth hs_planner_rows, hs_planner_length;

/* The largest value up to `bound` that takes `limit` bytes or less on the training's device; `from` takes `from_bytes`
 * and fits.  `config` is copied, not changed. */
enum { HS_PLANNER_FAR = 1 << 20 };
HsStatus hs_planner_find_most(const HsTraining *training, const HsGrowth *growth, const HsConfig *config, int64_t from,
                              size_t from_bytes, size_t limit, int64_t bound, int64_t *most);

/* --- planner_processes.c --- */

/* Where the configuration has several processes: memory by stage of distributed.zero and rank, and what is sent. */
HsStatus hs_planner_print_processes(const HsTraining *training, FILE *out);
/* How fast more of the options' card would be. */
HsStatus hs_planner_print_scaling(const HsTraining *training, const HsPlannerOptions *options, FILE *out);

/* --- planner_hours.c --- */

typedef struct HsPlannedTime {
    double seconds, flops; /* operations a second */
    double vocabulary;
    double most; /* tokens that a text is worth */
} HsPlannedTime;
/* What train.size gives for a time: HS_RECIPE_TOKENS_A_SIZE tokens a parameter, or up to a quarter more or less where
 * two neighbouring shapes have more and fewer. */
HsRecipe hs_planner_recipe_of_time(const HsPlannedTime *time);
/* What the rules of train.size train here in an hour, a night and a week, at the rate of a short training, after a plan.
 * errors: none of the training's, which are said in place of the table */
HsStatus hs_planner_print_hours(const HsConfig *config, const HsPlannedModel *about, FILE *out);

/* --- planner_step.c --- */

/* A step on the options' card, by part and operation, or launch by launch; predicted. */
HsStatus hs_planner_print_step(const HsTraining *training, const HsPlannerOptions *options, FILE *out);

/* --- planner_layers.c --- */

/* Parameters, kept and passing activations and products of each block. */
HsStatus hs_planner_print_layers(const HsTraining *draft, FILE *out);

/* --- planner_table.c --- */

/* For 8 to 80 GB, and eight of 80: the largest model with the configuration's proportions that trains, and how; then
 * how much of the configuration itself each kind of training has room for. */
HsStatus hs_planner_print_table(const HsTraining *training, const HsPlannerOptions *options, FILE *out);

/* --- planner_fits.c --- */

/* A device, or several that hold the whole each (data parallel). */
typedef struct HsDeviceSize {
    int gigabytes, devices;
} HsDeviceSize;

/* Full training, LoRA, QLoRA and the others of hs_rungs that are a kind of training: for each size the most sequences of
 * max_length at a time, and the longest single sequence; or the bytes that it misses. */
HsStatus hs_planner_print_fits(const HsTraining *training, const HsPlannerOptions *options, const HsDeviceSize *sizes,
                               int count, FILE *out);

/* --- planner_ladder.c --- */

/* What each memory technique saves: a line for each of hs_rungs, planned by its own dry run.  A rung that the
 * configuration or the device refuses is shown with the reason.
 * errors: HS_ECONFIG where all are refused, HS_ENOMEM */
HsStatus hs_planner_print_ladder(const HsTraining *training, const HsPlannerOptions *options, FILE *out);

#endif
