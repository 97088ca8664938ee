/* SPDX-License-Identifier: MIT
 *
 * HsTrainingState in trainer.json: a row for each member, with its range.  A checkpoint is data that comes from outside:
 * what no run can have written is refused before anything is computed from it, each member by itself first, and then
 * those that belong together.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "runtime/train/run.h"

enum NumberKind { NUMBER_INTEGER, NUMBER_REAL, NUMBER_FLOAT, NUMBER_SUM };

#define HASH_MOST (((int64_t)1 << 48) - 1)

#define INTEGER(member, least, most)                                                   \
    {                                                                                  \
#member, NUMBER_INTEGER, offsetof(HsTrainingState, member), least, most, false \
    }
#define COUNT(member) INTEGER(member, 0, HS_COUNT_MOST)
/* Of HsStepCounters: its members have no prefix in the file. */
#define COUNTER(member)                                                                              \
    {                                                                                                \
#member, NUMBER_INTEGER, offsetof(HsTrainingState, counters.member), 0, HS_COUNT_MOST, false \
    }
/* Finite, or null for a value that there is not. */
#define REAL(member)                                                         \
    {                                                                        \
#member, NUMBER_REAL, offsetof(HsTrainingState, member), 0, 0, false \
    }
#define REAL_ADDED(member)                                                  \
    {                                                                       \
#member, NUMBER_REAL, offsetof(HsTrainingState, member), 0, 0, true \
    }
/* Not in every checkpoint: 0 where it is missing.  Sums, of HsStepCounters, are finite, and not below 0. */
#define SUM_ADDED(member)                                                           \
    {                                                                               \
#member, NUMBER_SUM, offsetof(HsTrainingState, counters.member), 0, 0, true \
    }
#define INTEGER_ADDED(member, most)                                               \
    {                                                                             \
#member, NUMBER_INTEGER, offsetof(HsTrainingState, member), 0, most, true \
    }
static const struct {
    const char *name;
    enum NumberKind kind;
    size_t offset;
    int64_t least, most;
    bool added;
} table[] = {
    COUNTER(applied_steps),
    COUNTER(skipped_steps),
    COUNT(task),
    INTEGER(task_begun, 0, 1),
    COUNT(task_steps),
    COUNT(matrix_rows),
    COUNT(position.window),
    COUNT(position.window_step),
    COUNT(position.window_first),
    COUNTER(schedule_steps),
    COUNTER(moment_steps),
    COUNT(tokens_seen),
    REAL(window_replay_loss),
    COUNT(window_replay_steps),
    INTEGER(evaluated_at, -1, HS_COUNT_MOST),
    REAL(best_validation),
    COUNT(best_step),
    REAL(window_loss),
    COUNT(window_steps),
    COUNT(jsonl_bytes),
    COUNT(tensorboard_bytes),
    { "loss_scale", NUMBER_FLOAT, offsetof(HsTrainingState, counters.loss_scale), 0, 0, false },
    COUNTER(scaler_tracker),
    COUNTER(scaler_hysteresis),
    COUNT(micro_batch),
    INTEGER(tuning_hash, 0, HASH_MOST),
    COUNT(since_gain),
    INTEGER_ADDED(rate_let_down, 1),
    INTEGER(surveyed_at, -1, HS_COUNT_MOST),
    INTEGER_ADDED(looked_at, HS_COUNT_MOST),
    COUNT(consolidated_at),
    REAL(window_distillation), /* of no meaning where there are no steps of it */
    COUNT(window_distillation_steps),
    SUM_ADDED(largest_rate),
    SUM_ADDED(rate_squares),
    REAL_ADDED(rate_found), /* null: no trial was made */
    REAL(gain_loss),        /* of no meaning where since_gain is 0 */
};
enum { NUMBERS = sizeof table / sizeof *table };

HsJson *hs_run_numbers_json(const HsTrainingState *state)
{
    HsJson *json = hs_json_object();
    for (size_t i = 0; json && i < NUMBERS; i++) {
        const char *field = (const char *)state + table[i].offset;
        if (table[i].kind == NUMBER_INTEGER) {
            int64_t value;
            memcpy(&value, field, sizeof value);
            hs_json_set_integer(json, table[i].name, value);
        } else if (table[i].kind == NUMBER_REAL || table[i].kind == NUMBER_SUM) {
            double value;
            memcpy(&value, field, sizeof value);
            hs_json_set_real(json, table[i].name, value); /* NAN becomes null */
        } else {
            float value;
            memcpy(&value, field, sizeof value);
            hs_json_set_real(json, table[i].name, (double)value);
        }
    }
    return json;
}

static HsStatus read_integer(const char *file, const HsJson *json, size_t row, char *field)
{
    int64_t value = 0;
    if (!table[row].added || hs_json_get(json, table[row].name))
        HS_TRY(hs_json_need_range(file, json, table[row].name, table[row].least, table[row].most, &value));
    memcpy(field, &value, sizeof value);
    return HS_OK;
}

static HsStatus read_real(const char *file, const HsJson *json, size_t row, char *field)
{
    double value = NAN;
    const HsJson *node = hs_json_get(json, table[row].name);
    if ((node || !table[row].added) && !hs_json_is_null(node))
        HS_TRY(hs_json_need_real(file, json, table[row].name, &value));
    if (table[row].kind == NUMBER_REAL) {
        memcpy(field, &value, sizeof value);
        return HS_OK;
    }
    const float narrow = (float)value;
    if (!(narrow > 0) || (double)narrow != value)
        return hs_fail(HS_EFORMAT, "%s: %s must be positive, and within the range of f32", file, table[row].name);
    memcpy(field, &narrow, sizeof narrow);
    return HS_OK;
}

static HsStatus read_sum(const char *file, const HsJson *json, size_t row, char *field)
{
    double value = 0;
    if (hs_json_get(json, table[row].name))
        HS_TRY(hs_json_need_real(file, json, table[row].name, &value));
    if (!(value >= 0))
        return hs_fail(HS_EFORMAT, "%s: %s must not be below 0", file, table[row].name);
    memcpy(field, &value, sizeof value);
    return HS_OK;
}

HsStatus hs_run_read_numbers(const char *file, const HsJson *json, HsTrainingState *state)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        char *field = (char *)state + table[i].offset;
        HS_TRY(table[i].kind == NUMBER_INTEGER ? read_integer(file, json, i, field)
               : table[i].kind == NUMBER_SUM   ? read_sum(file, json, i, field)
                                               : read_real(file, json, i, field));
    }
    return HS_OK;
}

HsStatus hs_run_peek_numbers(const char *folder, char file[HS_RUN_PATH], HsTrainingState *state)
{
    HsCheckpoint checkpoint;
    memset(state, 0, sizeof *state);
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    snprintf(file, HS_RUN_PATH, "%s/trainer.json", checkpoint.folder);
    const HsStatus status = hs_run_read_numbers(file, checkpoint.state, state);
    hs_checkpoint_close(&checkpoint);
    return status;
}

/* `value` of member `name` may be `most` at most, as `why` says. */
typedef struct Bound {
    const char *name, *why;
    int64_t value, most;
} Bound;

static HsStatus check_bounds(const char *file, const Bound *bounds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bounds[i].value > bounds[i].most)
            return hs_fail(HS_EFORMAT, "%s: %s is %lld, and cannot be more than %lld: %s", file, bounds[i].name,
                           (long long)bounds[i].value, (long long)bounds[i].most, bounds[i].why);
    return HS_OK;
}

/* Every step that was tried in a task, applied or skipped, took one batch of its stream. */
static HsStatus check_position(const HsTraining *training, const char *file)
{
    const HsTrainingState *state = &training->state;
    const HsReplayPlan plan = hs_continual_replay_plan(&training->continual_config, training->rows_per_step);
    const int64_t steps = hs_replay_window_steps(&plan), rows = hs_replay_window_rows_most(&plan);
    const int64_t tried = state->task_steps + state->counters.skipped_steps;
    const Bound bounds[] = {
        { "position.window_step", "a window has no more steps", state->position.window_step, steps - 1 },
        { "position.window", "the task has tried no more steps", state->position.window, tried / steps },
    };
    HS_TRY(check_bounds(file, bounds, sizeof bounds / sizeof *bounds));
    const int64_t taken = state->position.window * steps + state->position.window_step;
    if (taken < state->task_steps || taken > tried)
        return hs_fail(HS_EFORMAT, "%s: position says %lld steps of the task, and its steps are %lld to %lld", file,
                       (long long)taken, (long long)state->task_steps, (long long)tried);
    /* Divided, as the product may leave 64 bits.  Without replay every window takes all of its rows. */
    const int64_t first = state->position.window_first, windows = first / rows + (first % rows > 0);
    if (windows > state->position.window || (plan.fraction == 0 && (windows < state->position.window || first % rows)))
        return hs_fail(HS_EFORMAT,
                       "%s: position.window_first is %lld, and %lld windows have at most %lld sequences each", file,
                       (long long)first, (long long)state->position.window, (long long)rows);
    return HS_OK;
}

HsStatus hs_run_check_numbers(const HsRun *run, const char *file)
{
    const HsTraining *training = &run->training;
    const HsTrainingState *state = &training->state;
    const HsScalerConfig *scaler = &training->optimizer.scaling;
    const int64_t applied = state->counters.applied_steps, tried = applied + state->counters.skipped_steps;
    const bool same_scaler = !run->new_mode;
    const int phases = training->lengths.phase_count - run->appended; /* the checkpoint's run knew no more */
    const Bound bounds[] = {
        { "task", "the run has no more tasks", state->task, phases },
        { "task_begun", "all tasks are done", state->task_begun, state->task < phases },
        { "matrix_rows", "no more tasks are done", state->matrix_rows,
          training->lengths.unmarked ? training->config->task_count + 1 : state->task + 1 },
        { "consolidated_at", "that is all steps", state->consolidated_at, state->task_steps },
        { "task_steps", "that is all steps", state->task_steps, applied },
        { "schedule_steps", "that is all steps", state->counters.schedule_steps, tried },
        { "moment_steps", "that is all steps", state->counters.moment_steps, applied },
        { "evaluated_at", "that is all steps", state->evaluated_at, applied },
        { "surveyed_at", "that is all steps", state->surveyed_at, applied },
        { "looked_at", "that is all steps", state->looked_at, applied },
        { "best_step", "that is all steps", state->best_step, applied },
        { "window_steps", "that is all steps", state->window_steps, applied },
        { "window_replay_steps", "that is all steps", state->window_replay_steps, applied },
        { "window_distillation_steps", "that is all steps", state->window_distillation_steps, applied },
        { "tokens_seen", "the steps have no more", state->tokens_seen / training->config->training.max_length,
          tried < HS_COUNT_MOST / training->rows_per_step ? tried * training->rows_per_step : HS_COUNT_MOST },
        { "scaler_tracker", "precision.growth_interval", state->counters.scaler_tracker,
          same_scaler ? scaler->growth_interval : HS_COUNT_MOST },
        { "scaler_hysteresis", "precision.hysteresis", state->counters.scaler_hysteresis,
          same_scaler ? scaler->hysteresis : HS_COUNT_MOST },
    };
    HS_TRY(check_bounds(file, bounds, sizeof bounds / sizeof *bounds));
    return check_position(training, file);
}
