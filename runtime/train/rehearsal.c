/* SPDX-License-Identifier: MIT
 *
 * Generative replay's text (optim/continual/generative.c): before a later task the model writes, HS_ABREAST sequences
 * side by side through the cache of keys and values, and what it wrote is the reservoir while the task trains.
 *
 *     sequence i      of earlier task i mod tasks, of those that are to be retained; its first token is drawn from that
 *                     task's openings
 *     token t + 1     draw (i, t) from the model's distribution, cut to top_k
 *
 * Behind a task that is not to be retained nothing is written: the model would put that task's text into the others'.
 * What was written before the task, by a model that did not know it, stays in the reservoir.
 *
 * All draws are Philox of (seed, task, i, t), so how many are written side by side changes nothing, and a run that was
 * killed while writing begins again with the same.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/io/storage.h"
#include "runtime/train/run.h"

enum { HS_ABREAST = 32, SHOWN = 3, OPENINGS_MOST = 65536 };
static const uint32_t OPENING_SITE = 0x4f50454e, WRITING_SITE = 0x57524954;

typedef struct Writing {
    HsTraining *training;
    HsDecoder *decoder;
    HsSampling sampling;
    int task;                   /* that begins */
    int *origins, origin_count; /* the earlier tasks that are to be retained */
    int64_t count, length;
    int32_t *tokens; /* [HS_ABREAST, length + 1] */
    int32_t *column; /* [HS_ABREAST] */
    float *scratch;  /* [HS_ABREAST, 2 vocabulary] */
    FILE *file;
} Writing;

static int64_t abreast_of(const HsTraining *training)
{
    const int64_t most = hs_config_buffer_size(training->config);
    return most < HS_ABREAST ? most : HS_ABREAST;
}

HsStatus hs_training_note_openings(HsTraining *training, int task)
{
    const HsDataset *dataset = &training->data.tasks[task];
    const int64_t windows = hs_dataset_windows(dataset);
    if (!training->openings)
        return HS_OK;
    int32_t *counts = training->openings + task * training->vocabulary;
    memset(counts, 0, (size_t)training->vocabulary * sizeof *counts);
    if (!hs_continual_retains(&training->continual_config, task)) /* not even how its text begins is kept */
        return HS_OK;
    for (int64_t i = 0; i < windows && i < OPENINGS_MOST; i++) {
        HS_TRY(hs_dataset_sample(dataset, i, training->evaluation_tokens, training->evaluation_targets));
        counts[training->evaluation_tokens[0]]++;
    }
    return HS_OK;
}

static uint64_t bits_of(const HsTraining *training, uint32_t site, int task, int64_t i)
{
    const uint32_t counter[4] = { (uint32_t)i, (uint32_t)(i >> 32), (uint32_t)task, site };
    const HsPhilox draw = hs_philox((uint64_t)training->config->training.seed, counter);
    return (uint64_t)draw.word[1] << 32 | draw.word[0];
}

static int origin_of(const Writing *writing, int64_t i)
{
    return writing->origins[i % writing->origin_count];
}

/* The token at which the running count passes a uniform share of all. */
static int32_t draw_opening(const Writing *writing, int64_t i)
{
    const HsTraining *training = writing->training;
    const int32_t *counts = training->openings + origin_of(writing, i) * training->vocabulary;
    uint64_t all = 0;
    for (int64_t v = 0; v < training->vocabulary; v++)
        all += (uint64_t)counts[v];
    uint64_t place = bits_of(training, OPENING_SITE, writing->task, i) % (all > 0 ? all : 1);
    int32_t token = 0;
    for (; token < training->vocabulary - 1 && place >= (uint64_t)counts[token]; token++)
        place -= (uint64_t)counts[token];
    return token;
}

/* The next token of each sequence; rows are independent of each other. */
static void draw_tokens(Writing *writing, const float *logits, int64_t first, int64_t rows, int64_t t)
{
    const int64_t vocabulary = writing->training->vocabulary, width = writing->training->model.vocabulary;
    const int64_t stride = writing->length + 1;
#pragma omp parallel for schedule(static) num_threads(writing->training->engine.context.threads)
    for (int64_t row = 0; row < rows; row++)
        writing->tokens[row * stride + t + 1] =
            hs_sample(&writing->sampling, logits + row * width, vocabulary, (uint64_t)((first + row) * stride + t),
                      writing->scratch + row * 2 * vocabulary);
}

/* As bytes that a terminal and a text file can show: control characters become escapes. */
static void print_text(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, FILE *out)
{
    for (int64_t t = 0; t < count; t++) {
        size_t size;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens[t], &size);
        for (size_t i = 0; i < size; i++) {
            if (bytes[i] == '\n')
                fputs("\\n", out);
            else if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
                fprintf(out, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
            else
                fputc(bytes[i], out);
        }
    }
}

static HsStatus show(const Writing *writing, int64_t i, const int32_t *tokens)
{
    const HsTraining *training = writing->training;
    const char *const origin = training->config->tasks[origin_of(writing, i)].name;
    fprintf(writing->file, "%s: ", origin);
    print_text(training->data.tokenizer, tokens, writing->length + 1, writing->file);
    fputc('\n', writing->file);
    if (i >= SHOWN)
        return HS_OK;
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return hs_fail(HS_ENOMEM, "no memory for a sample of the rehearsal");
    print_text(training->data.tokenizer, tokens, writing->length + 1, memory);
    fclose(memory);
    hs_info("rehearsal of %s: %.160s%s", origin, text, size > 160 ? " ..." : "");
    free(text);
    return HS_OK;
}

/* Sequences [first, first + rows), all of the decoder's written, `rows` of them wanted. */
static HsStatus write_group(Writing *writing, int64_t first, int64_t rows)
{
    HsTraining *training = writing->training;
    const int64_t abreast = abreast_of(training), stride = writing->length + 1;
    hs_decoder_reset(writing->decoder);
    for (int64_t row = 0; row < abreast; row++)
        writing->tokens[row * stride] = draw_opening(writing, first + row);
    for (int64_t t = 0; t < writing->length; t++) {
        const float *logits;
        for (int64_t row = 0; row < abreast; row++)
            writing->column[row] = writing->tokens[row * stride + t];
        HS_TRY(hs_decoder_feed(writing->decoder, &training->engine.context, writing->column, abreast, &logits));
        draw_tokens(writing, logits, first, abreast, t);
    }
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *tokens = writing->tokens + row * stride;
        hs_reservoir_add(&training->reservoir, tokens, tokens + 1, origin_of(writing, first + row));
        HS_TRY(show(writing, first + row, tokens));
    }
    return HS_OK;
}

/* gamma |T|, |T| what the task trains on of its text, at most all of it once. */
static int64_t count_of(const HsTraining *training, int task, double fraction)
{
    const HsReplayPlan plan = hs_continual_replay_plan(&training->continual_config, training->rows_per_step);
    const double windows = (double)hs_dataset_windows(&training->data.tasks[task]);
    const double trained = (double)training->lengths.phase_steps[task] * hs_replay_new_rows_per_step(&plan);
    const double wanted = ceil(fraction * fmin(windows, trained));
    const int64_t most = training->reservoir.capacity;
    if (wanted > (double)most)
        hs_info("rehearsal: %.0f sequences are asked for (generative.fraction), and replay.buffer_size holds %lld",
                wanted, (long long)most);
    return wanted > (double)most ? most : (int64_t)wanted;
}

static void end_writing(Writing *writing)
{
    hs_decoder_destroy(writing->decoder);
    free(writing->tokens);
    free(writing->column);
    free(writing->scratch);
    free(writing->origins);
}

static HsStatus list_origins(Writing *writing)
{
    writing->origins = calloc((size_t)writing->task, sizeof *writing->origins);
    if (!writing->origins)
        return hs_fail(HS_ENOMEM, "no memory to list %d tasks", writing->task);
    for (int task = 0; task < writing->task; task++)
        if (hs_continual_retains(&writing->training->continual_config, task))
            writing->origins[writing->origin_count++] = task;
    return HS_OK;
}

static HsStatus begin_writing(Writing *writing)
{
    HsTraining *training = writing->training;
    const size_t abreast = (size_t)abreast_of(training);
    writing->tokens = calloc(abreast * (size_t)(writing->length + 1), sizeof *writing->tokens);
    writing->column = calloc(abreast, sizeof *writing->column);
    writing->scratch = calloc(abreast * 2 * (size_t)training->vocabulary, sizeof *writing->scratch);
    if (!writing->tokens || !writing->column || !writing->scratch)
        return hs_fail(HS_ENOMEM, "no memory to write a rehearsal of %zu sequences side by side", abreast);
    return hs_decoder_create(&training->model, &training->engine.context, (int64_t)abreast, writing->length,
                             &writing->decoder);
}

static HsStatus write_all(Writing *writing, char **path)
{
    HsTraining *training = writing->training;
    char name[96];
    snprintf(name, sizeof name, "rehearsal-%d.txt", writing->task + 1);
    /* Every process writes the same, one of them to a file. */
    HS_TRY(hs_storage_join(training->config->training.out_dir, name, path));
    writing->file = fopen(hs_training_records(training) ? *path : "/dev/null", "w");
    if (!writing->file)
        return hs_fail(HS_EIO, "cannot write %s: %s", *path, strerror(errno));
    HsStatus status = HS_OK;
    const int64_t abreast = abreast_of(training);
    for (int64_t first = 0; first < writing->count && status == HS_OK; first += abreast) {
        const int64_t left = writing->count - first;
        status = write_group(writing, first, left < abreast ? left : abreast);
    }
    if (fclose(writing->file) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "cannot write %s: %s", *path, strerror(errno));
    return status;
}

HsStatus hs_training_write_rehearsal(HsTraining *training, int task)
{
    const HsStrategy *writes = hs_continual_writes_rehearsal(&training->continual_config);
    const HsContinualConfig *config = &training->continual_config;
    if (!writes || task == 0)
        return HS_OK;
    if (!hs_continual_retains(config, task - 1)) {
        if (training->reservoir.count > 0)
            hs_info(
                "rehearsal: task %s is not to be retained, and the model knows it now: what was written before it is "
                "replayed again",
                training->config->tasks[task - 1].name);
        return HS_OK;
    }
    const double began_s = hs_clock_s();
    Writing writing = {
        .training = training,
        .task = task,
        .length = training->config->training.max_length,
        .count = count_of(training, task, hs_continual_number(config, writes->section, "fraction")),
        .sampling = { .temperature = hs_continual_number(config, writes->section, "temperature"),
                      .top_k = (int64_t)hs_continual_number(config, writes->section, "top_k"),
                      .top_p = 1,
                      .seed = bits_of(training, WRITING_SITE, task, 0) },
    };
    char *path = NULL;
    training->consolidating = true; /* a signal now: the checkpoint before it is the one to continue from */
    hs_reservoir_clear(&training->reservoir);
    HsStatus status = list_origins(&writing);
    if (status == HS_OK)
        status = hs_training_lend_weights(training);
    if (status == HS_OK)
        status = begin_writing(&writing);
    if (status == HS_OK)
        status = write_all(&writing, &path);
    if (status == HS_OK) {
        training->consolidating = false;
        hs_info("rehearsal: %lld sequences of %lld tokens in %.1f s, in %s", (long long)writing.count,
                (long long)writing.length, hs_clock_s() - began_s, path);
    }
    end_writing(&writing);
    hs_training_take_back_weights(training);
    free(path);
    return status;
}

HsStatus hs_training_try_rehearsal(HsTraining *training)
{
    HsContext *context = &training->engine.context;
    HsDecoder *decoder;
    if (!context->dry_run || !hs_continual_writes_rehearsal(&training->continual_config) ||
        training->config->task_count < 2)
        return HS_OK;
    HS_TRY(hs_decoder_create(&training->model, context, abreast_of(training), training->config->training.max_length,
                             &decoder));
    hs_decoder_destroy(decoder);
    return HS_OK;
}
