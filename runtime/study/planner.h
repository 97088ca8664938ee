/* SPDX-License-Identifier: MIT
 *
 * trainer plan: where the memory of a configuration goes, what a step costs, what would fit, and which models fit which
 * devices.  Nothing is allocated and nothing is trained; all of it is the run's own allocation, made on paper.
 */
#ifndef HS_RUNTIME_STUDY_PLANNER_H
#define HS_RUNTIME_STUDY_PLANNER_H

#include <stdio.h>

#include "runtime/train/trainer.h"

typedef struct HsPlannerOptions {
    size_t device_bytes; /* plan for a GPU of this size that is not here; 0: for the device here */
    bool layers;         /* a row for each block */
    bool fit;            /* search for the fastest way also when the configuration fits */
    bool table;          /* the largest models for common sizes of memory, instead of this one's plan */
} HsPlannerOptions;

/* A trainer on paper, for hs_trainer_draft: device, vocabulary, precision, with or without the tasks' texts.  The
 * caller destroys it, after a failure too. */
HsStatus hs_planner_open(HsConfig *config, const HsPlannerOptions *options, HsTrainer *trainer);

/* errors: those of the configuration and the device; HS_ENOMEM when the plan exceeds the limit, after printing it and
 * what would fit */
HsStatus hs_planner_run(HsConfig *config, const HsPlannerOptions *options, FILE *out);

/* --- planner_layers.c --- */

/* Parameters, kept and passing activations and products of each block. */
HsStatus hs_planner_print_layers(const HsTrainer *draft, FILE *out);

/* --- planner_table.c --- */

/* For 8 to 80 GB: the largest model with the configuration's proportions that trains, and how. */
HsStatus hs_planner_print_table(const HsTrainer *trainer, FILE *out);

#endif
