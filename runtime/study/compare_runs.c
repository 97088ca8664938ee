/* SPDX-License-Identifier: MIT
 *
 * A run is started by `trainer --config out_dir/config.yaml OVERRIDES`, as a user would.
 */
#include "runtime/study/compare_runs.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/io/files.h"
#include "runtime/record/progress.h"
#include "runtime/study/planner.h"
#include "runtime/study/process_apart.h"
#include "runtime/study/process_pool.h"
#include "runtime/train/run.h"

/* --- configurations --- */

static HsStatus parse(const HsComparison *comparison, const HsStringList *overrides, HsConfig *config)
{
    return hs_config_parse(config, comparison->options->config_path, comparison->text, comparison->length,
                           overrides->count, (const char *const *)overrides->items);
}

void hs_compare_run_name(const HsComparison *comparison, const HsCompareRun *run, char *name, size_t bytes)
{
    char part[32] = "";
    if (run->divisor > 1)
        snprintf(part, sizeof part, "-1of%" PRId64, run->divisor);
    snprintf(name, bytes, "%s%s-seed%" PRId64, comparison->variants.items[run->variant].folder, part, run->seed);
}

static void folder_of(const HsComparison *comparison, const HsCompareRun *run, char folder[HS_COMPARE_PATH_BYTES])
{
    char name[HS_VARIANT_FOLDER_BYTES + 64];
    hs_compare_run_name(comparison, run, name, sizeof name);
    snprintf(folder, HS_COMPARE_PATH_BYTES, "%s/%s", comparison->out_dir, name);
}

/* Everything that makes the run out of the configuration's file. */
static HsStatus list_overrides(const HsComparison *comparison, const HsCompareRun *run, HsStringList *list)
{
    const HsCompareOptions *options = comparison->options;
    const HsStringList *own = &comparison->variants.items[run->variant].overrides;
    char folder[HS_COMPARE_PATH_BYTES];
    HS_TRY(hs_string_list_add(list, "logging.progress=none"));
    for (int i = 0; i < options->override_count; i++)
        HS_TRY(hs_string_list_add(list, "%s", options->overrides[i]));
    for (int i = 0; i < own->count; i++)
        HS_TRY(hs_string_list_add(list, "%s", own->items[i]));
    if (run->divisor > 1) {
        HsConfig whole;
        HsStringList shorter;
        HS_TRY(parse(comparison, list, &whole));
        HsStatus status = hs_config_shorten(&whole, run->divisor, &shorter);
        hs_config_deinit(&whole);
        for (int i = 0; i < shorter.count && status == HS_OK; i++)
            status = hs_string_list_add(list, "%s", shorter.items[i]);
        hs_string_list_deinit(&shorter);
        HS_TRY(status);
    }
    folder_of(comparison, run, folder);
    if (comparison->each > 0)
        HS_TRY(hs_string_list_add(list, "threads=%" PRId64, comparison->each));
    HS_TRY(hs_string_list_add(list, "seed=%" PRId64, run->seed));
    /* What begins like a list or a quoted text would be read as one. */
    return hs_string_list_add(list, "out_dir=%s%s", strchr("\"'[{", folder[0]) ? "./" : "", folder);
}

HsStatus hs_compare_load(const HsComparison *comparison, int variant, int64_t seed, int64_t divisor, HsConfig *config)
{
    const HsCompareRun run = { .variant = variant, .seed = seed, .divisor = divisor };
    HsStringList list = { 0 };
    HsStatus status = list_overrides(comparison, &run, &list);
    if (status == HS_OK)
        status = parse(comparison, &list, config);
    hs_string_list_deinit(&list);
    if (status != HS_OK)
        return hs_error_prefix(status, "variant %.200s", comparison->variants.items[variant].label);
    return HS_OK;
}

/* --- results --- */

/* Of a run that is not finished: NAN. */
static double loss_of(const HsComparison *comparison, const HsRunResult *result)
{
    double loss = comparison->keep_best ? result->best_validation_loss : result->validation_loss;
    if (comparison->tasks > 1) {
        const bool whole = result->matrix.tasks > 0 && hs_matrix_last_row(&result->matrix) == result->matrix.tasks - 1;
        loss = whole ? hs_matrix_summary(&result->matrix).retained : (double)INFINITY;
    }
    if (result->diverged)
        return INFINITY;
    return !result->finished ? (double)NAN : isfinite(loss) ? loss : (double)INFINITY;
}

/* A run that was made longer on the way is not the run of that length: a search compares only like with like. */
static HsStatus check_length(const HsComparison *comparison, const HsConfig *made, const HsConfig *wanted,
                             const char *folder)
{
    const bool same = made->training.max_steps == wanted->training.max_steps &&
                      made->training.max_epochs == wanted->training.max_epochs;
    if (same || comparison->options->grid_count == 0)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%s was made for another length (max_steps, max_epochs): choose another --out, or remove it",
                   folder);
}

/* Whether the run in `folder` is at its end, and is the one that is wanted.  Of all others its own process says more. */
static HsStatus look(const HsComparison *comparison, HsCompareRun *run, const char *folder, bool *done)
{
    static const char *const ignored[] = { "threads", "out_dir", "resume", "logging.", NULL };
    char path[HS_COMPARE_PATH_BYTES + 16], differing[256];
    bool there = false;
    HsConfig made, wanted;
    *done = false;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_path_exists(path, &there));
    if (!there)
        return HS_OK;
    HS_TRY(hs_compare_load(comparison, run->variant, run->seed, run->divisor, &wanted));
    HsStatus status = hs_config_load_saved(&made, path, 0, NULL);
    bool same = false;
    if (status == HS_OK) {
        status = check_length(comparison, &made, &wanted, folder);
        same = hs_config_differences(&made, &wanted, HS_RESUME_ANY, ignored, differing, sizeof differing) == 0;
        hs_config_deinit(&made);
    } else if (status == HS_ECONFIG) {
        status = HS_OK;
    }
    hs_config_deinit(&wanted);
    HS_TRY(status);
    if (!same || hs_run_result_read(folder, &run->result) != HS_OK)
        return HS_OK;
    run->loss = loss_of(comparison, &run->result);
    *done = !isnan(run->loss);
    if (!*done)
        hs_run_result_deinit(&run->result);
    return HS_OK;
}

HsStatus hs_compare_find(const HsComparison *comparison, HsCompareRun *runs, int64_t count, int64_t *found)
{
    char folder[HS_COMPARE_PATH_BYTES];
    *found = 0;
    for (int64_t i = 0; i < count; i++) {
        folder_of(comparison, &runs[i], folder);
        HS_TRY(look(comparison, &runs[i], folder, &runs[i].found));
        *found += runs[i].found;
    }
    return HS_OK;
}

/* --- lists of runs --- */

HsStatus hs_compare_list_runs(const HsComparison *comparison, const int *variants, int variant_count, int64_t divisor,
                              HsCompareRun **runs, int64_t *count)
{
    *count = variant_count * comparison->options->seeds;
    *runs = calloc((size_t)*count, sizeof **runs);
    if (!*runs)
        return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " runs' results", *count);
    for (int64_t i = 0; i < *count; i++) {
        const int variant = (int)(i % variant_count);
        (*runs)[i] = (HsCompareRun){ .variant = variants ? variants[variant] : variant,
                                     .seed = comparison->first_seed + i / variant_count,
                                     .divisor = divisor };
    }
    return HS_OK;
}

void hs_compare_free_runs(HsCompareRun *runs, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        hs_run_result_deinit(&runs[i].result);
    free(runs);
}

HsStatus hs_compare_all(HsComparison *comparison,
                        HsStatus (*work)(HsComparison *comparison, HsCompareRun *runs, int64_t count))
{
    HsCompareRun *runs;
    int64_t count;
    HS_TRY(hs_compare_list_runs(comparison, NULL, comparison->variants.count, 1, &runs, &count));
    if (comparison->jobs > 1)
        hs_info("%d runs at a time: each is slower than it would be alone; --jobs 1 measures speeds", comparison->jobs);
    const HsStatus status = work(comparison, runs, count);
    hs_compare_free_runs(runs, count);
    return status;
}

/* --- how many at a time --- */

typedef struct Room {
    bool known, gpu, memory_known;
    size_t most, limit; /* bytes of the largest variant's run, and what all runs together may have */
} Room;

/* What is asked, and the answer. */
typedef struct RoomQuestion {
    const HsComparison *comparison;
    Room room;
} RoomQuestion;

static void measure_room(void *user)
{
    RoomQuestion *question = user;
    const HsComparison *comparison = question->comparison;
    Room *room = &question->room;
    enum { PLANNED = 256 };
    HsConfig config;
    HsEngine engine;
    static HsTraining training;
    if (hs_compare_load(comparison, 0, comparison->first_seed, 1, &config) != HS_OK)
        return;
    const HsEngineOptions engine_options = hs_engine_options(&config);
    if (hs_engine_init(&engine, &engine_options) != HS_OK)
        return;
    room->known = true;
    room->gpu = strncmp(engine.device.name, "cuda", 4) == 0 && !engine.emulated;
    hs_engine_deinit(&engine);
    const HsPlannerOptions planner = { 0 };
    if (room->gpu || hs_planner_open(&config, &planner, &training) != HS_OK)
        return;
    room->limit = hs_training_memory_limit(&training);
    const int count = comparison->variants.count;
    for (int i = 0; i < count; i += 1 + count / PLANNED) {
        HsConfig other;
        HsMemoryPlan plan;
        if (hs_compare_load(comparison, i, comparison->first_seed, 1, &other) != HS_OK ||
            hs_training_plan(&training, &other, &plan) != HS_OK)
            return;
        const size_t bytes = hs_memory_sum(plan.bytes);
        room->most = bytes > room->most ? bytes : room->most;
        hs_config_deinit(&other);
    }
    room->memory_known = room->most > 0;
}

static Room ask_for_room(const HsComparison *comparison)
{
    RoomQuestion question = { .comparison = comparison };
    const bool answered = hs_ask_apart(measure_room, &question, &question.room, sizeof question.room);
    return answered ? question.room : (Room){ 0 };
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Small models train best with a thread each.  Results depend on neither number. */
HsStatus hs_compare_settle_jobs(HsComparison *comparison, int64_t count)
{
    HsLimits limits;
    hs_limits_read("", &limits);
    const int64_t cores = hs_limits_threads(&limits, omp_get_num_procs()), asked = comparison->options->jobs;
    Room room = { 0 };
    int64_t jobs = asked > 0 ? asked : comparison->threads > 0 ? cores / comparison->threads : cores;
    if (least(jobs, count) > 1)
        room = ask_for_room(comparison);
    if (asked == 0 && room.gpu)
        jobs = 1;
    const int64_t fitting = room.memory_known ? (int64_t)(room.limit / room.most) : 1;
    if (asked == 0 && jobs > 1 && fitting < least(jobs, count)) {
        hs_info("%" PRId64 " run%s at a time: %s", fitting > 1 ? fitting : 1, fitting > 1 ? "s" : "",
                room.memory_known ? "more would not fit into target_gpu_util of the memory"
                                  : "what memory a run takes is not known without its data (--jobs says otherwise)");
        jobs = fitting;
    }
    jobs = least(jobs, count) > 1 ? least(jobs, count) : 1;
    if (asked > 1 && room.memory_known && jobs > fitting)
        hs_warn("%" PRId64 " runs at a time may take %.0f MiB together, more than target_gpu_util allows (%.0f): a "
                "smaller --jobs is safer",
                jobs, hs_mebibytes((double)room.most) * (double)jobs, hs_mebibytes((double)room.limit));
    comparison->jobs = (int)jobs;
    comparison->cores = comparison->threads > 0 || room.gpu ? 0 : cores;
    return HS_OK;
}

/* --- training what is missing --- */

typedef struct Training {
    HsComparison *comparison;
    HsCompareRun *runs;
    int64_t count, finished;
    const char *where;
    HsPoolJob *jobs;     /* [missing] */
    HsStringList *lists; /* [missing]: the jobs' arguments */
    int64_t *run_of;     /* [missing] */
    int missing;
    double began_s;
} Training;

/* A front has many runs: each says how long the others will take, by those that this call trained. */
static void say_time(const Training *training, double seconds, char *text, size_t bytes)
{
    const int trained = training->comparison->trained;
    const int64_t left = training->missing - trained;
    char rest[32];
    if (!training->comparison->options->front || trained <= 0 || left <= 0) {
        snprintf(text, bytes, "%.0f s", seconds);
        return;
    }
    hs_progress_format_time((hs_clock_s() - training->began_s) / trained * (double)left, rest, sizeof rest);
    snprintf(text, bytes, "%.0f s; about %s left", seconds, rest);
}

static void report(Training *training, const HsCompareRun *run, double seconds)
{
    const HsComparison *comparison = training->comparison;
    const char *const label = comparison->variants.items[run->variant].label;
    char what[128], forgetting[32] = "none", took[96] = "finished before";
    const HsMatrixSummary summary = hs_matrix_summary(&run->result.matrix);
    if (!isnan(summary.forgetting)) /* joint training has none */
        snprintf(forgetting, sizeof forgetting, "%.4f", summary.forgetting);
    if (!isfinite(run->loss))
        snprintf(what, sizeof what, "diverged, which counts as infinitely bad");
    else if (comparison->tasks > 1)
        snprintf(what, sizeof what, "retained %.4f, forgetting %s", summary.retained, forgetting);
    else
        snprintf(what, sizeof what, "validation loss %.4f", run->loss);
    if (seconds >= 0)
        say_time(training, seconds, took, sizeof took);
    hs_info("%srun %" PRId64 " of %" PRId64 ": %s, seed %" PRId64 ": %s (%s)", training->where, ++training->finished,
            training->count, label, run->seed, what, took);
}

/* A job has ended. */
static HsStatus take_run(void *user, int index)
{
    Training *training = user;
    const HsPoolJob *job = &training->jobs[index];
    HsCompareRun *run = &training->runs[training->run_of[index]];
    char folder[HS_COMPARE_PATH_BYTES], reason[HS_POOL_REASON_BYTES];
    folder_of(training->comparison, run, folder);
    training->comparison->processor_s += job->processor_s;
    training->comparison->trained++;
    const HsStatus status = hs_run_result_read(folder, &run->result);
    run->loss = status == HS_OK ? loss_of(training->comparison, &run->result) : (double)NAN;
    if (job->exit_code != 0 && !(status == HS_OK && run->result.diverged))
        return hs_fail(job->exit_code == 2 ? HS_ECONFIG : HS_EDEVICE, "%s%s: %s", training->where, folder,
                       hs_pool_reason(job, reason));
    HS_TRY(status);
    if (isnan(run->loss))
        return hs_fail(HS_EFORMAT,
                       "%s: the run ended, but its metrics.jsonl does not say so: remove the folder, and start again",
                       folder);
    report(training, run, job->seconds);
    return HS_OK;
}

/* Children of a comparison that was killed save and leave, which takes a moment. */
static void wait_for_owner(const char *folder)
{
    enum { TRIES = 200, PAUSE_NS = 50000000 };
    for (int i = 0; i < TRIES && !hs_run_stop_asked() && hs_run_lock_held(folder); i++)
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

/* The last of several values counts. */
static bool is_set_again(const HsStringList *overrides, int index)
{
    const size_t key = strcspn(overrides->items[index], "=") + 1;
    for (int i = index + 1; i < overrides->count; i++)
        if (strncmp(overrides->items[i], overrides->items[index], key) == 0)
            return true;
    return false;
}

static HsStatus list_arguments(const HsComparison *comparison, const HsCompareRun *run, HsStringList *list)
{
    HsStringList overrides = { 0 };
    HsStatus status = list_overrides(comparison, run, &overrides);
    if (status == HS_OK)
        status = hs_string_list_add(list, "trainer");
    if (status == HS_OK)
        status = hs_string_list_add(list, "--config");
    if (status == HS_OK)
        status = hs_string_list_add(list, "%s/config.yaml", comparison->out_dir);
    for (int i = 0; i < overrides.count && status == HS_OK; i++)
        if (!is_set_again(&overrides, i)) /* a command line says it once */
            status = hs_string_list_add(list, "%s", overrides.items[i]);
    hs_string_list_deinit(&overrides);
    HS_TRY(status);
    HS_TRY(hs_string_list_add(list, "%s", "")); /* its place is that of the list's end */
    free(list->items[--list->count]);
    list->items[list->count] = NULL;
    return HS_OK;
}

static HsStatus prepare_job(Training *training, int64_t index, const char *folder)
{
    HsPoolJob *job = &training->jobs[training->missing];
    HsStringList *list = &training->lists[training->missing];
    training->missing++;
    HS_TRY(hs_make_directories(folder));
    wait_for_owner(folder);
    HS_TRY(list_arguments(training->comparison, &training->runs[index], list));
    job->arguments = list->items;
    if (asprintf(&job->log_path, "%s/output.log", folder) < 0) {
        job->log_path = NULL;
        return hs_fail(HS_ENOMEM, "no memory for a run's command line");
    }
    return HS_OK;
}

/* The last few of a search have the cores for themselves. */
static void share_cores(HsComparison *comparison, int64_t missing)
{
    const int64_t at_once = least(comparison->jobs, missing);
    const bool shared = comparison->cores > 0 && at_once > 1;
    comparison->each = !shared ? 0 : comparison->cores / at_once > 1 ? comparison->cores / at_once : 1;
}

static HsStatus train(Training *training)
{
    const size_t count = (size_t)training->count;
    char folder[HS_COMPARE_PATH_BYTES];
    training->jobs = calloc(count, sizeof *training->jobs);
    training->lists = calloc(count, sizeof *training->lists);
    training->run_of = calloc(count, sizeof *training->run_of);
    if (!training->jobs || !training->lists || !training->run_of)
        return hs_fail(HS_ENOMEM, "no memory for %zu runs", count);
    int64_t missing = 0;
    for (int64_t i = 0; i < training->count; i++) {
        folder_of(training->comparison, &training->runs[i], folder);
        bool done = training->runs[i].found;
        if (!done)
            HS_TRY(look(training->comparison, &training->runs[i], folder, &done));
        if (done)
            report(training, &training->runs[i], -1);
        else
            training->run_of[missing++] = i;
    }
    share_cores(training->comparison, missing);
    for (int64_t i = 0; i < missing; i++) {
        folder_of(training->comparison, &training->runs[training->run_of[i]], folder);
        HS_TRY(prepare_job(training, training->run_of[i], folder));
    }
    if (training->missing == 0)
        return HS_OK;
    return hs_pool_run(training->jobs, training->missing, training->comparison->jobs, take_run, training);
}

HsStatus hs_compare_train(HsComparison *comparison, HsCompareRun *runs, int64_t count, const char *where)
{
    Training training = {
        .comparison = comparison, .runs = runs, .count = count, .where = where, .began_s = hs_clock_s()
    };
    const HsStatus status = train(&training);
    for (int i = 0; i < training.missing; i++) {
        hs_string_list_deinit(&training.lists[i]);
        free(training.jobs[i].log_path);
    }
    free(training.jobs);
    free(training.lists);
    free(training.run_of);
    return status;
}
