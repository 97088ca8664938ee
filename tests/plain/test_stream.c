/* SPDX-License-Identifier: MIT
 *
 * The stream of batches: what every batch holds, checked against samples and draws made one by one, and that a run
 * resumed after any step, from (position, reservoir), hands out the batches of the run that was never disturbed.
 * A plain program like test_loader.c, so that ThreadSanitizer can look at it.
 */
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/stream/stream.h"

enum { LENGTH = 8, TOKENS = 700, TASKS = 3, STRIDE = 1000, CAPACITY = 20, BATCH_MOST = 8, REFERENCE_MOST = 6 };
static const int64_t task_steps[TASKS] = { 14, 11, 9 };
enum { RUN_STEPS = 14 + 11 + 9 };

static int passed, failed;

static void check(bool condition, const char *plan, const char *what, int64_t value)
{
    passed += condition;
    failed += !condition;
    if (!condition && failed < 50)
        printf("FAIL: %s: %s (%lld)\n", plan, what, (long long)value);
}

typedef struct PlanCase {
    const char *name;
    bool remembers, masked;
    HsReplayPlan plan;
} PlanCase;

/* f, R, K, s, algorithms 6 and 7, algorithm 7's rate, reference rows */
#define PLAN(f, r, k, s, first, rate, reference)                                                                    \
    {                                                                                                               \
        .fraction = f, .rows = r, .group_steps = k, .groups = s, .replay_first = first, .current_rate_scale = rate, \
        .reference_rows = reference                                                                                 \
    }

static const PlanCase plan_cases[] = {
    { "none", false, true, PLAN(0, 4, 1, 1, false, 1, 0) },
    { "er", true, false, PLAN(0.25, 8, 1, 1, false, 1, 0) },
    { "er, a share between whole numbers", true, true, PLAN(0.3, 4, 1, 1, false, 1, 0) },
    { "mer", true, false, PLAN(0.25, 4, 4, 1, false, 1, 0) },
    { "mer, three groups", true, true, PLAN(0.25, 4, 4, 3, false, 1, 0) },
    { "mer, algorithm 6", true, false, PLAN(0.4, 4, 4, 1, true, 1, 0) },
    { "mer, algorithm 7", true, false, PLAN(0.3, 4, 3, 1, true, 3, 0) },
    { "a-gem", true, true, PLAN(0, 4, 1, 1, false, 1, REFERENCE_MOST) },
    { "er, of earlier tasks alone",
      true,
      true,
      { .fraction = 0.25,
        .choice = HS_REPLAY_EARLIER,
        .rows = 8,
        .group_steps = 1,
        .groups = 1,
        .current_rate_scale = 1 } },
    { "er, more of it late",
      true,
      false,
      { .fraction = 0.25,
        .choice = HS_REPLAY_EARLIER,
        .late = NAN,
        .late_part = 0.3,
        .rows = 8,
        .group_steps = 1,
        .groups = 1,
        .current_rate_scale = 1 } },
};

/* Every token encodes its task and position. */
static void make_data(HsTaskData *data, bool masked)
{
    *data = (HsTaskData){ .tasks = calloc(TASKS, sizeof(HsDataset)), .count = TASKS };
    for (int task = 0; data->tasks && task < TASKS; task++) {
        HsDataset *dataset = &data->tasks[task];
        *dataset = (HsDataset){ .sequence_length = LENGTH, .seed = 7 + (uint64_t)task };
        dataset->train.count = TOKENS;
        dataset->train.tokens = malloc(TOKENS * sizeof(int32_t));
        dataset->train.loss_mask = masked ? malloc(TOKENS) : NULL;
        if (!dataset->train.tokens || (masked && !dataset->train.loss_mask))
            abort();
        for (int32_t i = 0; i < TOKENS; i++) {
            dataset->train.tokens[i] = task * STRIDE + i;
            if (masked)
                dataset->train.loss_mask[i] = i % 3 != 0;
        }
    }
    if (!data->tasks)
        abort();
}

/* ---- what a run leaves ---- */

typedef struct Row {
    int32_t tokens[LENGTH], targets[LENGTH];
} Row;

/* A batch, in a form that compares by bytes: every unused byte is 0. */
typedef struct Record {
    Row rows[BATCH_MOST], reference[REFERENCE_MOST];
    uint8_t replayed[BATCH_MOST];
    int64_t counted, reference_rows, reference_counted, new_first, new_rows, replay_rows;
} Record;

static void copy_rows(Row *rows, int64_t count, const int32_t *tokens, const int32_t *targets)
{
    for (int64_t row = 0; row < count; row++) {
        memcpy(rows[row].tokens, tokens + row * LENGTH, sizeof rows[row].tokens);
        memcpy(rows[row].targets, targets + row * LENGTH, sizeof rows[row].targets);
    }
}

static void record_batch(const HsStreamBatch *batch, Record *record)
{
    memset(record, 0, sizeof *record);
    copy_rows(record->rows, batch->rows, batch->tokens, batch->targets);
    copy_rows(record->reference, batch->reference_rows, batch->reference_tokens, batch->reference_targets);
    memcpy(record->replayed, batch->replayed, (size_t)batch->rows);
    record->counted = batch->counted;
    record->reference_rows = batch->reference_rows;
    record->reference_counted = batch->reference_counted;
    record->new_first = batch->step.new_first;
    record->new_rows = batch->step.new_rows;
    record->replay_rows = batch->step.replay_rows;
}

/* What a checkpoint holds. */
typedef struct Snapshot {
    HsStreamPosition position;
    HsReservoir reservoir; /* a copy with its own memory; capacity 0: none */
} Snapshot;

static void copy_tensor(const HsTensor *from, HsTensor *to)
{
    if (hs_tensor_present(from))
        memcpy(to->data, from->data, hs_tensor_bytes(from));
}

static void copy_reservoir(const HsReservoir *from, HsReservoir *to)
{
    to->seen = from->seen;
    to->count = from->count;
    copy_tensor(&from->tokens, &to->tokens);
    copy_tensor(&from->mask, &to->mask);
    copy_tensor(&from->task, &to->task);
}

static bool same_tensor(const HsTensor *a, const HsTensor *b)
{
    return !hs_tensor_present(a) || memcmp(a->data, b->data, hs_tensor_bytes(a)) == 0;
}

static bool same_reservoir(const HsReservoir *a, const HsReservoir *b)
{
    return a->seen == b->seen && a->count == b->count && same_tensor(&a->tokens, &b->tokens) &&
           same_tensor(&a->mask, &b->mask) && same_tensor(&a->task, &b->task);
}

static void make_reservoir(const PlanCase *plan, HsReservoir *reservoir)
{
    if (!plan->remembers)
        *reservoir = (HsReservoir){ 0 };
    else if (hs_reservoir_init(reservoir, CAPACITY, LENGTH, TASKS * STRIDE, plan->masked, 3) != HS_OK)
        abort();
}

/* ---- what a batch must hold ---- */

/* Which samples of which tasks the stream must have remembered, in order. */
typedef struct Expected {
    struct {
        int task;
        int64_t sample;
    } seen[RUN_STEPS * BATCH_MOST];
    int64_t seen_count;
    int64_t window_first, window_rows; /* of the task; rows: those that were handed out so far */
    uint64_t draws[RUN_STEPS * (BATCH_MOST + REFERENCE_MOST)];
    int64_t draw_count;
} Expected;

/* The task that is not to be retained; -1: all are. */
static int forgotten = -1;

static bool retains(const void *user, int task)
{
    (void)user;
    return task != forgotten;
}

static const HsContinualConfig which = { .tasks = TASKS, .retains = retains };

static void expect_task_end(Expected *expected, int task)
{
    for (int64_t i = 0; task != forgotten && i < expected->window_rows; i++) {
        expected->seen[expected->seen_count].task = task;
        expected->seen[expected->seen_count++].sample = expected->window_first + i;
    }
    expected->window_first += expected->window_rows;
    expected->window_rows = 0;
}

/* Rows that the reservoir before the batch gives for these draw numbers. */
static bool rows_are_draws(Expected *expected, const HsReservoir *before, const Row *rows, int64_t count,
                           uint64_t first_draw, int before_task)
{
    bool same = true;
    for (int64_t row = 0; row < count; row++) {
        Row drawn;
        int64_t slot = hs_reservoir_draw(before, first_draw + (uint64_t)row, before_task);
        expected->draws[expected->draw_count++] = first_draw + (uint64_t)row;
        if (slot < 0)
            return false;
        hs_reservoir_read(before, slot, drawn.tokens, drawn.targets);
        same = same && memcmp(&drawn, &rows[row], sizeof drawn) == 0;
    }
    return same;
}

static int64_t count_targets(const Row *rows, int64_t count)
{
    int64_t counted = 0;
    for (int64_t row = 0; row < count; row++)
        for (int t = 0; t < LENGTH; t++)
            counted += rows[row].targets[t] >= 0;
    return counted;
}

static void check_batch(const PlanCase *plan, const HsTaskData *data, int task, const HsStreamBatch *batch,
                        const Record *record, const HsReservoir *before, Expected *expected)
{
    const HsReplayStep *step = &batch->step;
    int64_t rows = plan->plan.rows;
    uint64_t first_draw = (uint64_t)task << 40 | (uint64_t)step->replay_first_draw;
    check(batch->rows == rows && step->new_rows + step->replay_rows == rows, plan->name, "rows", batch->rows);
    bool same = true, flags = true;
    for (int64_t row = 0; row < rows; row++) {
        flags = flags && record->replayed[row] == (row >= step->new_rows);
        Row sample;
        if (row >= step->new_rows)
            continue;
        int64_t index = expected->window_first + step->new_first + row;
        hs_dataset_sample(&data->tasks[task], index, sample.tokens, sample.targets);
        same = same && memcmp(&sample, &record->rows[row], sizeof sample) == 0;
    }
    check(same, plan->name, "new sequences, in order", step->new_first);
    check(flags, plan->name, "replayed ones are marked and last", step->new_rows);
    const bool earlier = plan->plan.choice == HS_REPLAY_EARLIER;
    check(rows_are_draws(expected, before, record->rows + step->new_rows, step->replay_rows, first_draw,
                         earlier ? task : HS_RESERVOIR_ANY_TASK),
          plan->name, "replayed sequences are the plan's draws", task);
    for (int64_t row = step->new_rows; row < rows && earlier; row++)
        check(record->rows[row].tokens[0] / STRIDE < task, plan->name, "replayed sequences are of earlier tasks", row);
    check(batch->counted == count_targets(record->rows, rows), plan->name, "counted targets", batch->counted);
    /* The reference: from earlier tasks only, so that the first one that is to be retained has none. */
    int64_t reference_rows = task > (forgotten == 0) ? plan->plan.reference_rows : 0;
    check(batch->reference_rows == reference_rows, plan->name, "reference rows", batch->reference_rows);
    check(rows_are_draws(expected, before, record->reference, batch->reference_rows, first_draw + (uint64_t)rows, task),
          plan->name, "the reference is drawn", task);
    check(batch->reference_counted == count_targets(record->reference, reference_rows), plan->name,
          "counted targets of the reference", batch->reference_counted);
    for (int64_t row = 0; row < batch->reference_rows; row++)
        check(record->reference[row].tokens[0] / STRIDE < task, plan->name, "the reference is of earlier tasks", row);
    /* Groups after the first use the window's sequences again. */
    int64_t end = step->new_first + step->new_rows;
    check(step->new_first <= expected->window_rows, plan->name, "no sequence is left out", step->new_first);
    expected->window_rows = end > expected->window_rows ? end : expected->window_rows;
    if (step->closes_window)
        expect_task_end(expected, task);
}

/* ---- runs ---- */

static HsStreamOptions options_of(const PlanCase *plan, const HsTaskData *data, HsReservoir *reservoir, int64_t workers)
{
    return (HsStreamOptions){
        .data = data,
        .plan = plan->plan,
        .steps = task_steps,
        .reservoir = plan->remembers ? reservoir : NULL,
        .continual = forgotten < 0 ? NULL : &which,
        .prefetch = 1 + workers,
        .workers = workers,
    };
}

/* Hands the next batch out, as a step that is not given up does. */
static HsStatus take_next(HsDataStream *stream, const HsStreamBatch **batch)
{
    HS_TRY(hs_stream_peek(stream, batch));
    hs_stream_accept(stream);
    return HS_OK;
}

/* From step `from` of task `task` to the end of the last task; never settles, so that the mixing thread is always
 * ahead. */
static void run_on(const PlanCase *plan, const HsTaskData *data, HsReservoir *reservoir, int task,
                   const HsStreamPosition *position, int64_t from, Record *records)
{
    HsDataStream *stream = NULL;
    HsStreamOptions options = options_of(plan, data, reservoir, 2);
    HsStreamPosition start = *position;
    if (hs_stream_create(&options, &stream) != HS_OK)
        abort();
    for (; task < TASKS; task++) {
        check(hs_stream_begin_task(stream, task, &start) == HS_OK, plan->name, "begin", task);
        for (int64_t step = from; step < task_steps[task]; step++) {
            const HsStreamBatch *batch = NULL;
            if (take_next(stream, &batch) != HS_OK)
                abort();
            record_batch(batch, records++);
        }
        hs_stream_end_task(stream);
        start = (HsStreamPosition){ 0 };
        from = 0;
    }
    hs_stream_destroy(stream);
}

/* The whole run, settled before every step: batches are checked, and snapshots taken, [task_steps + 1] a task. */
static void run_checked(const PlanCase *plan, const HsTaskData *data, HsReservoir *reservoir, const Record *records,
                        Snapshot *snapshots)
{
    static Expected expected;
    HsDataStream *stream = NULL;
    HsStreamOptions options = options_of(plan, data, reservoir, 1);
    memset(&expected, 0, sizeof expected);
    if (hs_stream_create(&options, &stream) != HS_OK)
        abort();
    for (int task = 0; task < TASKS; task++) {
        check(hs_stream_begin_task(stream, task, NULL) == HS_OK, plan->name, "begin", task);
        expected.window_first = 0;
        for (int64_t step = 0; step <= task_steps[task]; step++, snapshots++) {
            hs_stream_settle(stream);
            snapshots->position = hs_stream_position(stream);
            if (plan->remembers) {
                copy_reservoir(reservoir, &snapshots->reservoir);
                check(reservoir->seen == expected.seen_count, plan->name, "settled reservoir", reservoir->seen);
            }
            check(snapshots->position.window_first == expected.window_first, plan->name, "settled position", step);
            if (step == task_steps[task])
                continue;
            const HsStreamBatch *batch = NULL;
            Record record;
            /* Looking at a batch hands nothing out: a step that is given up has changed nothing. */
            const int64_t seen = plan->remembers ? reservoir->seen : 0;
            if (hs_stream_peek(stream, &batch) != HS_OK)
                abort();
            hs_stream_settle(stream);
            HsStreamPosition looked = hs_stream_position(stream);
            check(memcmp(&looked, &snapshots->position, sizeof looked) == 0, plan->name, "position of a peek", step);
            check(!plan->remembers || reservoir->seen == seen, plan->name, "reservoir of a peek", step);
            if (take_next(stream, &batch) != HS_OK)
                abort();
            record_batch(batch, &record);
            check(memcmp(&record, records++, sizeof record) == 0, plan->name, "settling changes nothing", step);
            check_batch(plan, data, task, batch, &record, &snapshots->reservoir, &expected);
            /* Mixing the next batch leaves the one in hand alone. */
            hs_stream_settle(stream);
            Record again;
            record_batch(batch, &again);
            check(memcmp(&record, &again, sizeof record) == 0, plan->name, "a batch stays", step);
        }
        expect_task_end(&expected, task);
        hs_stream_end_task(stream);
        if (plan->remembers)
            check(reservoir->seen == expected.seen_count, plan->name, "a window still open is remembered once", task);
    }
    hs_stream_destroy(stream);
    for (int64_t i = 0; i < expected.draw_count; i++)
        for (int64_t k = 0; k < i; k++)
            if (expected.draws[i] == expected.draws[k])
                check(false, plan->name, "draw numbers are unique", i);
    /* Every sequence that is remembered is one that was seen, with its task. */
    for (int64_t slot = 0; slot < reservoir->count; slot++) {
        Row held, sample;
        bool found = false;
        hs_reservoir_read(reservoir, slot, held.tokens, held.targets);
        for (int64_t i = 0; !found && i < expected.seen_count; i++) {
            int task = expected.seen[i].task;
            hs_dataset_sample(&data->tasks[task], expected.seen[i].sample, sample.tokens, sample.targets);
            found = memcmp(&held, &sample, sizeof held) == 0 && ((int32_t *)reservoir->task.data)[slot] == task;
        }
        check(found, plan->name, "what is remembered was seen", slot);
    }
}

static void test_plan(const PlanCase *plan)
{
    enum { SNAPSHOTS = RUN_STEPS + TASKS };
    static Record records[RUN_STEPS], resumed[RUN_STEPS];
    static Snapshot snapshots[SNAPSHOTS];
    const HsStreamPosition beginning = { 0 };
    HsTaskData data;
    HsReservoir undisturbed, settled, restored;
    make_data(&data, plan->masked);
    make_reservoir(plan, &undisturbed);
    make_reservoir(plan, &settled);
    make_reservoir(plan, &restored);
    for (int i = 0; i < SNAPSHOTS; i++)
        make_reservoir(plan, &snapshots[i].reservoir);
    run_on(plan, &data, &undisturbed, 0, &beginning, 0, records);
    run_checked(plan, &data, &settled, records, snapshots);
    check(same_reservoir(&undisturbed, &settled), plan->name, "reservoir of a settled run", settled.seen);
    /* After every step, the last of a task and none included. */
    const Snapshot *snapshot = snapshots;
    int64_t done = 0;
    for (int task = 0; task < TASKS; done += task_steps[task++])
        for (int64_t step = 0; step <= task_steps[task]; step++, snapshot++) {
            copy_reservoir(&snapshot->reservoir, &restored);
            run_on(plan, &data, &restored, task, &snapshot->position, step, resumed);
            size_t bytes = (size_t)(RUN_STEPS - done - step) * sizeof *records;
            check(memcmp(resumed, records + done + step, bytes) == 0, plan->name, "resumed run", done + step);
            check(same_reservoir(&restored, &undisturbed), plan->name, "reservoir of a resumed run", done + step);
        }
    for (int i = 0; i < SNAPSHOTS; i++)
        hs_reservoir_deinit(&snapshots[i].reservoir);
    hs_reservoir_deinit(&undisturbed);
    hs_reservoir_deinit(&settled);
    hs_reservoir_deinit(&restored);
    hs_task_data_deinit(&data);
}

/* Destroyed in the middle of a task, without an end: it returns, leaks nothing, and remembers nothing more. */
static void test_shutdown(void)
{
    const PlanCase *plan = &plan_cases[1];
    HsTaskData data;
    make_data(&data, plan->masked);
    for (int64_t taken = 0; taken < 6; taken++) {
        HsDataStream *stream = NULL;
        const HsStreamBatch *batch;
        HsReservoir reservoir;
        make_reservoir(plan, &reservoir);
        HsStreamOptions options = options_of(plan, &data, &reservoir, 1 + taken % 3);
        bool ok = hs_stream_create(&options, &stream) == HS_OK && hs_stream_begin_task(stream, 0, NULL) == HS_OK;
        for (int64_t i = 0; ok && i < taken; i++)
            ok = take_next(stream, &batch) == HS_OK;
        hs_stream_destroy(stream);
        check(ok, plan->name, "shut down", taken);
        hs_reservoir_deinit(&reservoir);
    }
    hs_stream_destroy(NULL);
    hs_task_data_deinit(&data);
}

int main(void)
{
    for (forgotten = -1; forgotten < TASKS - 1; forgotten++)
        for (size_t i = 0; i < sizeof plan_cases / sizeof plan_cases[0]; i++)
            test_plan(&plan_cases[i]);
    forgotten = -1;
    test_shutdown();
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
