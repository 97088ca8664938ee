/* SPDX-License-Identifier: MIT
 *
 * What a run can show at its end: prompts of each task, continued greedily by the model.
 *
 *   with items      prompts that are not in the training text, or else those that are; the data say what is right
 *   plain text      the beginning of a line of the validation text, cut at a word
 *
 * All continuations grow together, a token a pass of the evaluation program, in its memory: nothing is allocated on the
 * device, and every precision mode and device can do it.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/io/utf8.h"
#include "runtime/train/run.h"

enum {
    TEXT_TOKENS = 1 << 16, /* in which a line is looked for */
    PROMPT_BYTES = 32,
    NEW_TOKENS = 48, /* of plain text */
    NEW_LINES = 2,
    MOST_ROWS = 16, /* at a time */
    SHOWN_BYTES = 120
};

typedef struct Sample {
    int task;
    int32_t *tokens; /* [room]: the prompt, then what the model adds */
    int64_t prompt, count, room;
    const int32_t *expected; /* borrowed; NULL: not known */
    int64_t expected_count;
    int lines;
    bool done, exact;
} Sample;

typedef struct Samples {
    const HsRun *run;
    const HsTokenizer *tokenizer;
    Sample *items;
    int count;
} Samples;

static char first_byte(const HsTokenizer *tokenizer, int32_t token)
{
    size_t length;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    return length > 0 ? bytes[0] : '\0';
}

static bool ends_line(const HsTokenizer *tokenizer, int32_t token)
{
    size_t length;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    return token == hs_tokenizer_end_of_text(tokenizer) || (length > 0 && bytes[length - 1] == '\n');
}

static HsStatus add_sample(Samples *samples, int task, const int32_t *prompt, int64_t count, int64_t more)
{
    Sample *sample = &samples->items[samples->count];
    const int64_t length = samples->run->training.config->training.max_length;
    /* The last token is made from `length` ones. */
    *sample = (Sample){ .task = task, .prompt = count, .count = count };
    sample->room = count + more <= length + 1 ? count + more : length + 1;
    sample->tokens = malloc((size_t)sample->room * sizeof *sample->tokens);
    if (!sample->tokens)
        return hs_fail(HS_ENOMEM, "no memory for a sample of %lld tokens", (long long)sample->room);
    memcpy(sample->tokens, prompt, (size_t)count * sizeof *prompt);
    samples->count++;
    return HS_OK;
}

/* `wanted` items, evenly spread. */
static HsStatus add_items(Samples *samples, int task, const HsItemSet *set, int64_t wanted)
{
    wanted = wanted < set->count ? wanted : set->count;
    for (int64_t i = 0; i < wanted; i++) {
        const HsItem *item = &set->items[(2 * i + 1) * set->count / (2 * wanted)];
        const int32_t *tokens = set->tokens.items + item->start;
        HS_TRY(add_sample(samples, task, tokens, item->prompt, item->completion));
        Sample *sample = &samples->items[samples->count - 1];
        sample->expected = tokens + item->prompt;
        sample->expected_count = item->completion;
    }
    return HS_OK;
}

/* From the first line that begins among tokens [0, end): as many tokens as PROMPT_BYTES hold, then back to the end of a word. */
static HsStatus add_line(Samples *samples, int task, const int32_t *tokens, int64_t end)
{
    const HsTokenizer *tokenizer = samples->tokenizer;
    const int64_t room = samples->run->training.config->training.max_length / 2;
    int64_t first = 0, count = 0, word = 0;
    size_t bytes = 0, length;
    while (first < end && !ends_line(tokenizer, tokens[first]))
        first++;
    while (first < end && ends_line(tokenizer, tokens[first])) /* and empty lines */
        first++;
    if (first + 1 >= end) /* no further line: from the beginning */
        first = 0;
    for (; first + count + 1 < end && (count < room || count == 0); count++) {
        (void)hs_tokenizer_bytes(tokenizer, tokens[first + count], &length);
        if (count > 0 &&
            (bytes + length > PROMPT_BYTES || tokens[first + count] == hs_tokenizer_end_of_text(tokenizer)))
            break;
        bytes += length;
        const char next = first_byte(tokenizer, tokens[first + count + 1]);
        if (next == ' ' || next == '\n')
            word = count + 1;
    }
    if (count == 0)
        return HS_OK;
    return add_sample(samples, task, tokens + first, word > 0 ? word : count, NEW_TOKENS);
}

static HsStatus add_text(Samples *samples, int task, const HsStreamTokens *stream, int64_t at)
{
    const int64_t rest = stream->count - at, count = rest < TEXT_TOKENS ? rest : TEXT_TOKENS;
    int32_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
    HsStatus status = tokens ? hs_stream_read(stream, at, count, tokens)
                             : hs_fail(HS_ENOMEM, "no memory to look for a line of %lld tokens", (long long)count);
    if (status == HS_OK)
        status = add_line(samples, task, tokens, count);
    free(tokens);
    return status;
}

static HsStatus choose(Samples *samples, int64_t wanted)
{
    const HsTaskData *data = &samples->run->training.data;
    for (int task = 0; task < data->count; task++) {
        const HsDataset *dataset = &data->tasks[task];
        const HsItemSet *unseen = &dataset->items[HS_ITEMS_UNSEEN];
        const HsItemSet *set = unseen->count > 0 ? unseen : &dataset->items[HS_ITEMS_SEEN];
        if (set->count > 0)
            HS_TRY(add_items(samples, task, set, wanted));
        for (int64_t i = 0; set->count == 0 && i < wanted; i++) {
            const HsDataset *from = dataset->parts ? &dataset->parts[i % dataset->part_count] : dataset;
            const double place = (double)(2 * i + 1) / (double)(2 * wanted);
            HS_TRY(add_text(samples, task, &from->validation, (int64_t)((double)from->validation.count * place)));
        }
    }
    return HS_OK;
}

/* ---- continuing ---- */

/* A known completion is over where it ends by a newline or an end-of-text of the model's own, at its length otherwise;
 * plain text continues for a few lines. */
static void take_token(const HsTokenizer *tokenizer, Sample *sample, int32_t token)
{
    const bool end = token == hs_tokenizer_end_of_text(tokenizer), line = ends_line(tokenizer, token);
    sample->tokens[sample->count++] = token;
    sample->lines += line;
    sample->done = end || sample->count == sample->room || sample->lines >= (sample->expected ? 1 : NEW_LINES);
    const int64_t made = sample->count - sample->prompt;
    if (sample->expected && line && !end && made < sample->expected_count) /* one of several lines */
        sample->done = memcmp(sample->tokens + sample->prompt, sample->expected, (size_t)made * sizeof token) != 0;
    sample->exact = sample->expected && made == sample->expected_count &&
                    memcmp(sample->tokens + sample->prompt, sample->expected, (size_t)made * sizeof token) == 0;
}

/* Samples [first, first + count), side by side. */
static HsStatus continue_rows(const HsEvaluator *evaluator, Samples *samples, int first, int64_t rows, int64_t batch,
                              int64_t length)
{
    const int64_t vocabulary = hs_tokenizer_vocabulary(samples->tokenizer);
    for (bool going = true; going;) {
        going = false;
        memset(evaluator->tokens, 0, (size_t)(batch * length) * sizeof *evaluator->tokens);
        for (int64_t row = 0; row < rows; row++) {
            const Sample *sample = &samples->items[first + row];
            const int64_t held = sample->count < length ? sample->count : length;
            memcpy(evaluator->tokens + row * length, sample->tokens, (size_t)held * sizeof *sample->tokens);
        }
        HS_TRY(hs_program_predict(evaluator->program, evaluator->context, batch, length, vocabulary, evaluator->tokens,
                                  evaluator->targets));
        for (int64_t row = 0; row < rows; row++) {
            Sample *sample = &samples->items[first + row];
            if (!sample->done)
                take_token(samples->tokenizer, sample, evaluator->targets[row * length + sample->count - 1]);
            going = going || !sample->done;
        }
    }
    return HS_OK;
}

static HsStatus continue_all(const HsEvaluator *evaluator, Samples *samples)
{
    const HsProgram *program = evaluator->program;
    int64_t length = 1, batch = samples->count < MOST_ROWS ? samples->count : MOST_ROWS;
    for (int i = 0; i < samples->count; i++)
        length = samples->items[i].room - 1 > length ? samples->items[i].room - 1 : length;
    if (!hs_program_fits(program, evaluator->context, batch, length)) {
        batch = program->batch;
        length = program->sequence_length;
    }
    for (int first = 0; first < samples->count; first += (int)batch) {
        const int64_t left = samples->count - first;
        HS_TRY(continue_rows(evaluator, samples, first, left < batch ? left : batch, batch, length));
    }
    return HS_OK;
}

/* ---- showing ---- */

/* The tokens' text, without the end-of-text; the caller frees. */
static HsStatus text_of(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, HsMetricsText *text)
{
    size_t bytes = 0, used = 0, length;
    for (int64_t i = 0; i < count; i++) {
        (void)hs_tokenizer_bytes(tokenizer, tokens[i], &length);
        bytes += length;
    }
    char *made = malloc(bytes + 1);
    if (!made)
        return hs_fail(HS_ENOMEM, "no memory for a sample of %zu bytes", bytes);
    for (int64_t i = 0; i < count; i++) {
        const char *piece = hs_tokenizer_bytes(tokenizer, tokens[i], &length);
        if (tokens[i] == hs_tokenizer_end_of_text(tokenizer))
            continue;
        memcpy(made + used, piece, length);
        used += length;
    }
    *text = (HsMetricsText){ made, used };
    return HS_OK;
}

/* In quotation marks; what a terminal would obey, and what is no UTF-8, is escaped; the rest of a long text is dots. */
static void quote(const HsMetricsText *text, char shown[4 * SHOWN_BYTES + 16])
{
    size_t used = 0, at = 0;
    shown[used++] = '"';
    while (at < text->length && at < SHOWN_BYTES) {
        uint32_t point = 0;
        const char *place = text->bytes + at;
        const size_t length = hs_utf8_decode(place, text->length - at, &point);
        const bool plain =
            length > 0 && point >= 0x20 && !(point >= 0x7f && point < 0xa0) && point != '"' && point != '\\';
        if (plain)
            memcpy(shown + used, place, length);
        else if (*place == '\n' || *place == '"' || *place == '\\')
            memcpy(shown + used, (const char[2]){ '\\', *place == '\n' ? 'n' : *place }, 2);
        else
            snprintf(shown + used, 5, "\\x%02x", (unsigned)(unsigned char)*place);
        used += plain ? length : *place == '\n' || *place == '"' || *place == '\\' ? 2 : 4;
        at += plain ? length : 1;
    }
    snprintf(shown + used, 5, at < text->length ? "...\"" : "\"");
}

static void print_sample(const HsMetricsSample *sample)
{
    char prompt[4 * SHOWN_BYTES + 16], completion[4 * SHOWN_BYTES + 16], expected[4 * SHOWN_BYTES + 16];
    quote(&sample->prompt, prompt);
    quote(&sample->completion, completion);
    if (!sample->expected.bytes || sample->exact) {
        hs_info("%s: %s -> %s%s", sample->task, prompt, completion, sample->exact ? " exact" : "");
        return;
    }
    quote(&sample->expected, expected);
    hs_info("%s: %s -> %s, expected %s", sample->task, prompt, completion, expected);
}

static HsStatus show(const Samples *samples)
{
    const HsRun *run = samples->run;
    HsMetricsSample *shown = calloc((size_t)samples->count, sizeof *shown);
    HsStatus status = shown ? HS_OK : hs_fail(HS_ENOMEM, "no memory to show %d samples", samples->count);
    for (int i = 0; i < samples->count && status == HS_OK; i++) {
        const Sample *sample = &samples->items[i];
        shown[i].task = run->training.config->tasks[sample->task].name;
        shown[i].exact = sample->exact;
        status = text_of(samples->tokenizer, sample->tokens, sample->prompt, &shown[i].prompt);
        if (status == HS_OK)
            status = text_of(samples->tokenizer, sample->tokens + sample->prompt, sample->count - sample->prompt,
                             &shown[i].completion);
        if (status == HS_OK && sample->expected)
            status = text_of(samples->tokenizer, sample->expected, sample->expected_count, &shown[i].expected);
    }
    if (status == HS_OK)
        status = hs_metrics_samples(run->metrics, run->training.state.counters.applied_steps, shown, samples->count);
    if (status == HS_OK)
        hs_info("prompts, each with what the model makes of it:");
    for (int i = 0; shown && i < samples->count; i++) {
        if (status == HS_OK)
            print_sample(&shown[i]);
        free((char *)(uintptr_t)shown[i].prompt.bytes);
        free((char *)(uintptr_t)shown[i].completion.bytes);
        free((char *)(uintptr_t)shown[i].expected.bytes);
    }
    free(shown);
    return status;
}

HsStatus hs_run_show_samples(HsRun *run)
{
    HsTraining *training = &run->training;
    const int64_t wanted = hs_training_samples_wanted(training);
    const HsEvaluator evaluator = hs_training_evaluator(training);
    Samples samples = { .run = run, .tokenizer = training->data.tokenizer };
    if (wanted == 0)
        return HS_OK;
    samples.items = calloc((size_t)(wanted * training->data.count), sizeof *samples.items);
    HsStatus status = samples.items ? HS_OK : hs_fail(HS_ENOMEM, "no memory for %lld samples", (long long)wanted);
    if (status == HS_OK)
        status = choose(&samples, wanted);
    if (status == HS_OK && samples.count > 0)
        status = continue_all(&evaluator, &samples);
    if (status == HS_OK && samples.count > 0)
        status = show(&samples);
    for (int i = 0; i < samples.count; i++)
        free(samples.items[i].tokens);
    free(samples.items);
    return status;
}
