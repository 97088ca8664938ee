/* SPDX-License-Identifier: MIT
 *
 * A bench from its options to its files:
 *
 *     modes -> configurations -> each planned on paper, refused by name -> all at once if their sum fits, else one
 *     after another -> turns -> figures
 *
 * Its folder is a bench's own: bench.json is there from the beginning and names the folders of the modes, and only what
 * an earlier bench.json names is ever removed.
 */
#include "runtime/study/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/data/dataset.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/record/progress.h"
#include "runtime/study/bench_run.h"
#include "runtime/train/signals.h"

enum { DEFAULT_STEPS = 100, ROUNDS = 12, LEAST_TURN = 4, WATCHES = 3 };
#define LINE_S 15 /* between lines where there is no bar */
enum { PATH_BYTES = 1024, OVERRIDES = 320 + HS_BENCH_OVERRIDES };

typedef struct Bench {
    const HsBenchOptions *options;
    char out_dir[PATH_BYTES / 2];
    HsBenchModes modes;
    HsBenchResults results;
    HsBenchRun runs[HS_BENCH_MODES];
    HsBenchRunner runners[HS_BENCH_MODES];
    HsProgress progress;
    double began_s; /* of the first turn */
    double said_s;  /* of the latest line about progress */
} Bench;

static HsStatus of_mode(const Bench *bench, int index, HsStatus status)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "mode %s", bench->modes.modes[index].name);
}

/* --- configurations --- */

/* What a run of a bench is, whatever the file says: a task of `steps` steps that writes and saves nothing. */
static HsStatus load_config(Bench *bench, int index, int64_t steps, HsConfig *config)
{
    const HsBenchMode *mode = &bench->modes.modes[index];
    const HsBenchOptions *options = bench->options;
    char steps_text[64], out_text[PATH_BYTES], micro_text[64];
    const char *all[OVERRIDES];
    int count = 0;
    for (int i = 0; i < options->override_count; i++)
        all[count++] = options->overrides[i];
    count += hs_bench_mode_overrides(mode, all + count);
    snprintf(steps_text, sizeof steps_text, "tasks.0.steps=%lld", (long long)steps);
    snprintf(out_text, sizeof out_text, "out_dir=\"%s/%s\"", bench->out_dir, mode->folder);
    const char *const fixed[] = {
        out_text,
        steps_text,
        "tasks.0.tokens=0",
        "tasks.0.epochs=0",
        "resume=never",
        "checkpoint_freq=0",
        "logging.trace=\"\"",
        "logging.progress=none",
        "memory.pressure=0",
        "logging.tensorboard=false",
        "logging.device_seconds=0",
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        all[count++] = fixed[i];
    HS_TRY(hs_config_load(config, options->config_path, count, all));
    if (mode->accumulate == 0)
        return HS_OK;
    const int64_t batch = config->training.batch_size;
    HsStatus status = HS_OK;
    snprintf(micro_text, sizeof micro_text, "memory.micro_batch=%lld", (long long)(batch / mode->accumulate));
    if (batch % mode->accumulate != 0)
        status = hs_fail(HS_ECONFIG, "batch_size %lld cannot be split into %lld equal micro-batches: use a divisor",
                         (long long)batch, (long long)mode->accumulate);
    if (status == HS_OK)
        status = hs_config_override(config, micro_text);
    if (status != HS_OK)
        hs_config_deinit(config);
    return status;
}

/* Steps of each mode, from the options or the configuration as it was written. */
static HsStatus settle_steps(Bench *bench, const HsConfig *config)
{
    const HsBenchOptions *options = bench->options;
    const int64_t tokens = hs_config_rows_per_step(config) * config->training.max_length;
    const int64_t own = config->tasks[0].steps > 0 ? config->tasks[0].steps : config->training.max_steps;
    bench->results.steps = options->steps > 0               ? options->steps
                           : options->tokens > 0            ? (options->tokens - 1) / tokens + 1
                           : own > 0 && own < DEFAULT_STEPS ? own
                                                            : DEFAULT_STEPS;
    return HS_OK;
}

static HsStatus load_base(Bench *bench)
{
    const HsBenchOptions *options = bench->options;
    HsConfig config;
    HS_TRY(hs_config_load(&config, options->config_path, options->override_count, options->overrides));
    int length =
        snprintf(bench->out_dir, sizeof bench->out_dir, "%s%s",
                 options->out_dir ? options->out_dir : config.training.out_dir, options->out_dir ? "" : "-bench");
    HsStatus status = settle_steps(bench, &config);
    if (length >= (int)sizeof bench->out_dir)
        status = hs_fail(HS_ECONFIG, "--out: a path of over %zu characters", sizeof bench->out_dir - 1);
    hs_config_deinit(&config);
    return status;
}

static HsStatus load_configs(Bench *bench)
{
    for (int i = 0; i < bench->modes.count; i++) {
        HsBenchRunner *runner = &bench->runners[i];
        HS_TRY(of_mode(bench, i, load_config(bench, i, bench->results.steps, &runner->config)));
        runner->has_config = true;
        runner->run = &bench->runs[i];
        bench->runs[i].mode = &bench->modes.modes[i];
        bench->runs[i].wanted = bench->results.steps;
        bench->results.count = i + 1;
    }
    return HS_OK;
}

/* --- on paper --- */

/* What the modes have in common, and what of the device is left for them. */
typedef struct Ground {
    int64_t vocabulary;
    bool masked;
    size_t planned_bytes, limit;
} Ground;

static HsStatus read_ground(Bench *bench, Ground *ground)
{
    HsTaskData data;
    HS_TRY(hs_task_data_create(&bench->runners[0].config, NULL, &data));
    *ground = (Ground){ .vocabulary = hs_tokenizer_vocabulary(data.tokenizer),
                        .masked = hs_task_data_masked(&data),
                        .limit = SIZE_MAX };
    hs_task_data_deinit(&data);
    return HS_OK;
}

/* A GPU may be in use by others. */
static HsStatus narrow_limit(HsTraining *scout, Ground *ground)
{
    HsDevice *device = &scout->engine.device;
    size_t limit = hs_training_memory_limit(scout), free_bytes = limit;
    if (!device->host_accessible && device->free_memory && !scout->engine.emulated)
        HS_TRY(device->free_memory(device, &free_bytes));
    limit = free_bytes < limit ? free_bytes : limit;
    ground->limit = limit < ground->limit ? limit : ground->limit;
    return HS_OK;
}

/* As far as a training comes before it allocates: the device, the precision and the plan are there or refused. */
static HsStatus plan_on(HsBenchRunner *runner, HsTraining *scout, Ground *ground)
{
    HS_TRY(hs_config_continual(&runner->config, &scout->continual_config));
    if (hs_continual_mixes_tasks(&scout->continual_config))
        return hs_fail(HS_ECONFIG, "a bench trains the first task, and continual.strategy joint has all in one: set "
                                   "continual.strategy=none");
    HS_TRY(hs_training_divide(scout));
    HS_TRY(hs_precision_resolve(&runner->config, scout->engine.products, &scout->precision, scout->precision_why,
                                sizeof scout->precision_why));
    snprintf(runner->run->precision, sizeof runner->run->precision, "%s", scout->precision.name);
    HS_TRY(hs_training_fit(scout));
    ground->planned_bytes += scout->planned.device_bytes;
    return narrow_limit(scout, ground);
}

static HsStatus plan_mode(Bench *bench, int index, Ground *ground)
{
    HsBenchRunner *runner = &bench->runners[index];
    HsTraining scout = { .config = &runner->config, .vocabulary = ground->vocabulary, .masked = ground->masked };
    const HsEngineOptions engine = hs_engine_options(&runner->config);
    HS_TRY(hs_engine_init(&scout.engine, &engine));
    HsStatus status = plan_on(runner, &scout, ground);
    snprintf(bench->results.device, sizeof bench->results.device, "%s", scout.engine.why);
    bench->results.emulated = bench->results.emulated || scout.engine.emulated;
    hs_engine_deinit(&scout.engine);
    return status;
}

static HsStatus plan(Bench *bench)
{
    Ground ground;
    HS_TRY(read_ground(bench, &ground));
    for (int i = 0; i < bench->modes.count; i++)
        HS_TRY(of_mode(bench, i, plan_mode(bench, i, &ground)));
    bench->results.interleaved = ground.planned_bytes <= ground.limit;
    bench->results.reference = hs_bench_find_reference(&bench->results);
    return HS_OK;
}

/* --- the folder --- */

static HsStatus remove_mode(void *user, const char *folder)
{
    const Bench *bench = user;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%.255s", bench->out_dir, folder);
    return hs_storage_remove(path);
}

/* Long text may lie there as tokens already: the memory of each mode was planned from its data. */
static HsStatus holds_others(const char *folder, bool *others)
{
    HsFolderListing listing;
    HS_TRY(hs_storage_list(folder, &listing));
    *others = false;
    for (int i = 0; i < listing.count; i++)
        *others = *others || strcmp(listing.names[i], HS_TOKENS_FOLDER) != 0;
    hs_storage_list_free(&listing);
    return HS_OK;
}

static HsStatus prepare_folder(Bench *bench)
{
    char json[PATH_BYTES];
    bool others;
    snprintf(json, sizeof json, "%s/bench.json", bench->out_dir);
    HS_TRY(hs_make_directories(bench->out_dir));
    HS_TRY(holds_others(bench->out_dir, &others));
    bool made_here;
    HS_TRY(hs_path_exists(json, &made_here));
    if (others && !made_here)
        return hs_fail(HS_EIO, "%s holds files that no bench made: choose another folder with --out", bench->out_dir);
    if (made_here)
        HS_TRY(hs_bench_read_folders(json, remove_mode, bench));
    return hs_bench_write_json(json, &bench->results, false);
}

/* --- turns --- */

/* Steps of all modes together: losses and speeds would be now one's, now another's. */
static void show_progress(Bench *bench)
{
    HsProgressView view = { .loss = NAN };
    for (int i = 0; i < bench->results.count; i++)
        view.step += bench->runs[i].steps;
    const double left = (double)(bench->progress.total_steps - view.step);
    view.eta_s = view.step > 0 ? (hs_clock_s() - bench->began_s) * left / (double)view.step : 0;
    hs_progress_update(&bench->progress, &view);
    if (!bench->progress.lines || hs_clock_s() - bench->said_s < LINE_S)
        return;
    char line[128], eta[32];
    hs_progress_format_time(view.eta_s, eta, sizeof eta);
    snprintf(line, sizeof line, "%lld of %lld steps, %s left", (long long)view.step,
             (long long)bench->progress.total_steps, eta);
    hs_progress_print(&bench->progress, line);
    bench->said_s = hs_clock_s();
}

/* Turns of the runners from `first` on, until each has its steps.  The first of a round is second in none: the
 * order rotates. */
static HsStatus take_turns(Bench *bench, int first, int count)
{
    const int64_t share = bench->results.steps / ROUNDS, most = share > LEAST_TURN ? share : LEAST_TURN;
    bool wanted = true;
    for (int round = 0; wanted && !hs_run_stop_asked(); round++) {
        wanted = false;
        for (int k = 0; k < count && !hs_run_stop_asked(); k++) {
            const int index = first + (round + k) % count;
            if (!hs_bench_runner_wants(&bench->runners[index]))
                continue;
            HS_TRY(of_mode(bench, index, hs_bench_runner_turn(&bench->runners[index], most)));
            wanted = wanted || hs_bench_runner_wants(&bench->runners[index]);
            show_progress(bench);
        }
    }
    return HS_OK;
}

static HsStatus finish_runs(Bench *bench, int first, int count)
{
    for (int i = first; i < first + count && !hs_run_stop_asked(); i++)
        if (bench->runs[i].failure[0] == '\0')
            HS_TRY(of_mode(bench, i, hs_bench_runner_finish(&bench->runners[i])));
    for (int round = 0; round < WATCHES; round++)
        for (int i = first; i < first + count && !hs_run_stop_asked(); i++)
            if (bench->runs[i].finished)
                HS_TRY(of_mode(bench, i, hs_bench_runner_watch(&bench->runners[i])));
    return HS_OK;
}

static HsStatus run_together(Bench *bench, int first, int count)
{
    for (int i = first; i < first + count; i++)
        HS_TRY(of_mode(bench, i, hs_bench_runner_start(&bench->runners[i])));
    HS_TRY(take_turns(bench, first, count));
    HS_TRY(finish_runs(bench, first, count));
    for (int i = first; i < first + count; i++)
        hs_bench_runner_stop(&bench->runners[i]);
    return HS_OK;
}

static HsStatus run_all(Bench *bench)
{
    const int count = bench->modes.count;
    if (bench->results.interleaved)
        return run_together(bench, 0, count);
    for (int i = 0; i < count && !hs_run_stop_asked(); i++)
        HS_TRY(run_together(bench, i, 1));
    return HS_OK;
}

static HsStatus run_quietly(Bench *bench)
{
    HS_TRY(hs_progress_init(&bench->progress, "auto", bench->results.steps * bench->modes.count));
    bench->began_s = bench->said_s = hs_clock_s();
    hs_log_set_level(HS_LOG_WARNING); /* each run would tell of its device, its data, its skipped steps */
    HsStatus status = run_all(bench);
    hs_log_set_level(HS_LOG_INFO);
    hs_progress_deinit(&bench->progress);
    return status;
}

/* --- all of it --- */

static HsStatus report(Bench *bench)
{
    char json[PATH_BYTES], html[PATH_BYTES];
    snprintf(json, sizeof json, "%s/bench.json", bench->out_dir);
    snprintf(html, sizeof html, "%s/bench.html", bench->out_dir);
    bench->results.interrupted = hs_run_stop_asked();
    HS_TRY(hs_bench_write_json(json, &bench->results, true));
    HS_TRY(hs_bench_write_html(html, &bench->results));
    hs_bench_print(&bench->results, stdout);
    printf("page: %s\n", html);
    if (bench->results.interrupted)
        return hs_fail(HS_EINTERRUPTED, "stopped by a signal: the results cover the steps until then; a bench that is "
                                        "started again starts over");
    return HS_OK;
}

static HsStatus run_bench(Bench *bench)
{
    HS_TRY(hs_bench_modes_parse(bench->options->modes, &bench->modes));
    HS_TRY(load_base(bench));
    HS_TRY(load_configs(bench));
    HS_TRY(plan(bench));
    HS_TRY(prepare_folder(bench));
    hs_info("device: %s", bench->results.device);
    hs_info("%d modes, %lld steps each, %s", bench->modes.count, (long long)bench->results.steps,
            bench->results.interleaved ? "taking turns" : "one after another: together they do not fit the device");
    HS_TRY(run_quietly(bench));
    return report(bench);
}

static void free_run(HsBenchRun *run)
{
    free(run->config);
    free(run->losses);
    free(run->seconds);
    hs_survey_deinit(&run->survey);
}

HsStatus hs_bench(const HsBenchOptions *options)
{
    Bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return hs_fail(HS_ENOMEM, "no memory for a bench");
    bench->options = options;
    bench->results.config_path = options->config_path;
    bench->results.runs = bench->runs;
    HsStatus status = run_bench(bench);
    for (int i = 0; i < HS_BENCH_MODES; i++) {
        hs_bench_runner_stop(&bench->runners[i]);
        free_run(&bench->runs[i]);
    }
    free(bench);
    return status;
}
