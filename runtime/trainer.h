/* SPDX-License-Identifier: MIT
 *
 * The training run: everything it owns, and the state that a checkpoint must hold so that a killed and resumed run is
 * bit-identical to one that was never disturbed.
 *
 *   trainer.c             create and destroy: data, model, plans, optimizer
 *   trainer_loop.c        one optimizer step after another; logging, evaluation, saving, signals
 *   trainer_checkpoint.c  save and restore
 *   evaluate.c            mean validation loss
 */
#ifndef HS_RUNTIME_TRAINER_H
#define HS_RUNTIME_TRAINER_H

#include "runtime/checkpoint.h"
#include "runtime/data/dataset.h"
#include "runtime/engine.h"
#include "runtime/metrics.h"
#include "runtime/decode.h"
#include "runtime/plan.h"

/* Everything beside tensors that a checkpoint restores; one row of state_table in trainer_checkpoint.c each. */
typedef struct HsTrainerState {
    int64_t applied_steps, skipped_steps;
    int64_t next_sample; /* index of the next sequence of the data order */
    int64_t tokens_seen;
    int64_t evaluated_at;   /* applied step of the latest evaluation, -1 before the first */
    double best_validation; /* NAN before the first */
    int64_t best_step;
    double window_loss; /* losses since the latest step record: their mean is what is logged */
    int64_t window_steps;
    int64_t jsonl_bytes, tensorboard_bytes;
    double loss_scale;
    int64_t scaler_tracker, scaler_hysteresis;
} HsTrainerState;

typedef struct HsTrainer {
    HsConfig *config; /* borrowed */
    HsEngine engine;
    HsPrecision precision;
    char precision_why[256];
    HsDataset dataset;
    HsModel model;
    HsPlan train_plan, evaluation_plan;
    bool has_dataset, has_model, has_train_plan, has_evaluation_plan, has_optimizer;
    HsOptimizer optimizer;
    HsSpan *spans;
    int span_count;
    HsLoader *loader;
    HsMetrics *metrics;
    HsTrainerState state;
    int64_t total_steps;
    int64_t rows_per_step;                           /* sequences of an optimizer step */
    int32_t *evaluation_tokens, *evaluation_targets; /* [batch_size, T] */
    /* timing, not part of the state */
    double start_s, window_start_s;
    double peak_flops; /* of the device in this precision; 0: unknown */
    double flops_per_token;
    double trained_s; /* spent in optimizer steps, and how many tokens they saw */
    int64_t trained_tokens;
    int64_t window_tokens;
    bool resumed;
} HsTrainer;

HsStatus hs_trainer_create(HsConfig *config, HsTrainer *trainer);
/* Runs to the end, or to a signal (saves, then HS_EINTERRUPTED). */
HsStatus hs_trainer_run(HsTrainer *trainer);
void hs_trainer_destroy(HsTrainer *trainer);

/* SIGINT and SIGTERM ask the loop to save and stop; a second one ends the process at once. */
void hs_trainer_install_signals(void);

/* A metrics record of this instant, everything but step, skipped steps and time left out. */
HsMetricsRecord hs_trainer_record(const HsTrainer *trainer, const char *event);

/* Write a checkpoint of this instant (after recording its event). */
HsStatus hs_trainer_save(HsTrainer *trainer);
/* Apply `resume`: find, compare configurations, restore tensors and state; trainer->resumed tells. */
HsStatus hs_trainer_resume(HsTrainer *trainer, const char *folder);
/* What `resume` and out_dir's contents say: *folder is the checkpoint to go on from, or NULL.  Caller frees. */
HsStatus hs_trainer_find_checkpoint(const HsConfig *config, char **folder);

/* Mean loss in nats a token over `windows` validation windows (0: all).  tokens, targets: scratch [batch, T]. */
HsStatus hs_evaluate(HsPlan *plan, HsContext *context, const HsDataset *dataset, int64_t windows, int32_t *tokens,
                     int32_t *targets, double *mean_loss);

/* Encode `prompt`, generate `count` tokens, write prompt and continuation to `out` as they come.  Stops at the
 * end-of-text token.  Longer texts than the model has positions go on from the latest half of them.  An empty prompt
 * starts from end-of-text or a newline. */
HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer, const char *prompt,
                          int64_t count, const HsSampling *sampling, FILE *out);

double hs_clock_s(void); /* monotonic seconds */

#endif
