/* SPDX-License-Identifier: MIT
 *
 * From a request to a proposal.
 *
 * Size and tokens: with F tokens a second at size N, and k tokens wanted for each parameter, a time of S seconds is full at
 *     k N' = F S N / N'    =>    N' = sqrt(F S N / k),
 * as a token's work grows with the size; with D tokens that the text is worth at most, N' = F S N / D.  F is measured at N', and the choice made again, until the shape stays; the
 * tokens are what the speed that was measured last has time for, and at most what the text is worth.
 */
#include "runtime/study/proposal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/config/pretrained.h"
#include "runtime/io/files.h"

enum { MOST_TRIES = 4, EVALUATIONS = 10 };
static const double LEAST_SIZE = 1e5, FIRST_SIZE = 1e5, TUNING_EPOCHS = 3;
/* Of the tokens that are trained on, those of an evaluation; of a step's time, an evaluation's for as many tokens. */
static const double EVALUATED_SHARE = 0.005, EVALUATION_COST = 1.0 / 3;
/* Seconds for what is around the steps: the page, the checkpoints of a small model, the program itself. */
static const double AROUND_S = 1;
/* A tenth of it, for validation, has a few windows of 128 tokens of 4 bytes. */
static const double LEAST_BYTES = 20000;

/* --- names --- */

static HsStatus refuse_existing(const char *path, const char *what)
{
    bool exists;
    HS_TRY(hs_path_exists(path, &exists));
    return exists ? hs_fail(HS_ECONFIG,
                            "%s is there already, and %s is not written over it: name another file with "
                            "--output, or move this one away",
                            path, what)
                  : HS_OK;
}

static HsStatus name_files(HsProposal *proposal)
{
    const HsProposalRequest *const request = proposal->request;
    const char *const name = proposal->texts[0].name;
    if (request->output)
        snprintf(proposal->output, sizeof proposal->output, "%.4000s", request->output);
    else
        snprintf(proposal->output, sizeof proposal->output, "%s.yaml", name);
    HS_TRY(refuse_existing(proposal->output, "a configuration"));
    if (hs_check_output(proposal->output) != HS_OK) {
        hs_error_prefix(HS_EIO, "--output");
        return HS_ECONFIG;
    }
    for (int i = 1;; i++) {
        bool exists;
        snprintf(proposal->out_dir, sizeof proposal->out_dir, i > 1 ? "runs/%s-%d" : "runs/%s", name, i);
        HS_TRY(hs_path_exists(proposal->out_dir, &exists));
        if (!exists)
            return HS_OK;
    }
}

/* Tasks' names have to differ, or nothing could be said of one of them. */
static void tell_names_apart(HsProposal *proposal)
{
    for (int i = 1; i < proposal->request->text_count; i++)
        for (int k = 0; k < i; k++)
            if (hs_is(proposal->texts[i].name, proposal->texts[k].name)) {
                const size_t length = strlen(proposal->texts[i].name);
                snprintf(proposal->texts[i].name + length, sizeof proposal->texts[i].name - length, "-%d", i + 1);
                break;
            }
}

/* --- tokens and time --- */

static double seconds_asked(const HsProposal *proposal)
{
    return proposal->request->hours * 3600;
}

/* Tokens that one pass over all texts trains on, by the sample. */
static double tokens_of_texts(HsProposal *proposal)
{
    double all = 0;
    for (int i = 0; i < proposal->request->text_count; i++) {
        HsProposalText *const text = &proposal->texts[i];
        const double share = text->sample_bytes > 0 ? text->bytes / text->sample_bytes : 1;
        text->tokens = proposal->speed.tokens[i] * share;
        all += text->tokens;
    }
    return all;
}

/* A quarter of each batch is replayed in later tasks, so that a new token there costs 4/3. */
static double cost_of_text(const HsProposal *proposal, int i)
{
    return i == 0 || proposal->request->text_count == 1 ? 1 : 4.0 / 3;
}

/* Seconds of the run around its steps, but for evaluations: reading all texts, and what the end writes. */
static double seconds_around(const HsProposal *proposal)
{
    double bytes = 0, sample = 0;
    for (int i = 0; i < proposal->request->text_count; i++) {
        bytes += proposal->texts[i].bytes;
        sample += proposal->texts[i].sample_bytes;
    }
    return AROUND_S + proposal->speed.start_s * (sample > 0 ? bytes / sample : 1);
}

/* Tokens that the time allows at the speed that was measured. */
static double tokens_of_time(const HsProposal *proposal)
{
    const double left = seconds_asked(proposal) - seconds_around(proposal);
    const double evaluated = 1 + (EVALUATIONS + 1) * EVALUATED_SHARE * EVALUATION_COST;
    return left > 0 ? left * proposal->speed.tokens_per_second / evaluated : 0;
}

/* What the texts cost where each is given `level` times the square root of its size, and at most most_epochs passes. */
static double give_level(HsProposal *proposal, double level)
{
    double costs = 0;
    proposal->recipe.tokens = 0;
    for (int i = 0; i < proposal->request->text_count; i++) {
        HsProposalText *const text = &proposal->texts[i];
        text->given = fmin(level * sqrt(text->tokens), proposal->most_epochs * text->tokens);
        proposal->recipe.tokens += text->given;
        costs += text->given * cost_of_text(proposal, i);
    }
    return costs;
}

/* Divides tokens over the texts, so that a small one is not lost next to a large one; sets the seconds. */
static void give_tokens(HsProposal *proposal, double time_tokens)
{
    const int count = proposal->request->text_count;
    double low = 0, high = 1e12, costs = give_level(proposal, high);
    proposal->short_of_text = time_tokens > 1.25 * costs;
    for (int i = 0; i < 100 && costs > time_tokens; i++) { /* halving ends at rounding */
        const double middle = (low + high) / 2;
        *(give_level(proposal, middle) > time_tokens ? &high : &low) = middle;
    }
    costs = give_level(proposal, costs > time_tokens ? low : high);
    hs_recipe_settle(&proposal->recipe);
    const double step =
        (double)(proposal->recipe.batch_size * proposal->recipe.accumulation * proposal->recipe.max_length);
    const double steps = fmax(1, floor(costs / step)), batches = ceil(EVALUATED_SHARE * steps);
    const double cost = EVALUATION_COST * batches * (EVALUATIONS + count * count);
    proposal->recipe.steps = (int64_t)steps;
    proposal->recipe.warmup_steps = (int64_t)(steps / count / 20);
    proposal->evaluation_every = (int64_t)ceil(steps / EVALUATIONS);
    proposal->evaluation_batches = (int64_t)batches;
    proposal->seconds =
        seconds_around(proposal) + (steps + cost) * step / fmax(proposal->speed.tokens_per_second, 1e-9);
}

/* Before any is read: training and validation want some windows each. */
static HsStatus check_text(const HsProposal *proposal)
{
    for (int i = 0; i < proposal->request->text_count; i++)
        if (proposal->texts[i].bytes < LEAST_BYTES)
            return hs_fail(
                HS_ECONFIG,
                "--text %s: is too short, %.0f bytes: a model has something to learn from %.0f on; name more "
                "text",
                proposal->request->texts[i], proposal->texts[i].bytes, LEAST_BYTES);
    return HS_OK;
}

/* --- a model from nothing --- */

static HsStatus measure(HsProposal *proposal)
{
    HsStatus status = HS_ENOMEM;
    int64_t rows = proposal->recipe.batch_size;
    /* A slow step says no more than a step of fewer sequences. */
    const double guess = proposal->speed.tokens_per_second;
    if (guess > 0) {
        const double most = floor(4 * guess / (double)proposal->recipe.max_length);
        rows = most < 1 ? 1 : most < (double)rows ? (int64_t)most : rows;
    }
    status = hs_proposal_measure(proposal, rows, false, &proposal->speed);
    if (status != HS_OK)
        return status;
    tokens_of_texts(proposal);
    return HS_OK;
}

static bool same_shape(const HsRecipe *a, const HsRecipe *b)
{
    return a->layers == b->layers && a->width == b->width && a->max_length == b->max_length &&
           a->batch_size == b->batch_size;
}

/* The size whose tokens fill the time.  Where the text is not worth as many, the one with which the text fills it, within
 * what the text has to teach. */
static double wanted_size(HsProposal *proposal)
{
    const double work = tokens_of_time(proposal) * proposal->recipe.size; /* tokens times size */
    const double text = proposal->most_epochs * tokens_of_texts(proposal);
    return fmax(hs_recipe_size_of_work(work, text), LEAST_SIZE);
}

static HsStatus choose_size(HsProposal *proposal, double size)
{
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        proposal->recipe = hs_recipe_of_size(size, 0);
        HsStatus status = measure(proposal);
        if (status == HS_ENOMEM && size > LEAST_SIZE) { /* what the memory has room for */
            size /= 2;
            continue;
        }
        HS_TRY(status);
        const double next = wanted_size(proposal);
        const HsRecipe other = hs_recipe_of_size(next, 0);
        if (same_shape(&other, &proposal->recipe))
            break;
        if (tries + 1 < MOST_TRIES)
            size = next;
    }
    return HS_OK;
}

static HsStatus propose_model(HsProposal *proposal)
{
    proposal->most_epochs = HS_RECIPE_MOST_EPOCHS;
    proposal->tokenizer = "byte";
    proposal->recipe = hs_recipe_of_size(FIRST_SIZE, 0);
    HS_TRY(measure(proposal));
    const double size = wanted_size(proposal);
    hs_proposal_choose_tokenizer(proposal, size);
    if (proposal->tokenizer_path[0] != '\0')
        HS_TRY(refuse_existing(proposal->tokenizer_path, "a tokenizer"));
    HS_TRY(hs_proposal_make_tokenizer(proposal));
    HS_TRY(choose_size(proposal, size));
    give_tokens(proposal, tokens_of_time(proposal));
    return HS_OK;
}

/* --- weights that exist --- */

static HsStatus choose_weights(HsProposal *proposal)
{
    static const char *const kinds[] = { "full", "lora", "nf4" };
    double bytes = 0, limit = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        proposal->weights = kinds[i];
        HS_TRY(hs_proposal_plan(proposal, &bytes, &limit));
        const size_t used = strlen(proposal->weights_reason);
        snprintf(proposal->weights_reason + used, HS_PROPOSAL_REASON - used, "%s%s takes %.0f MiB",
                 used > 0 ? ", " : "",
                 i == 0   ? "training all of the model"
                 : i == 1 ? "an adapter"
                          : "an adapter on four bits a weight",
                 bytes / 1048576);
        if (bytes <= limit)
            break;
    }
    if (bytes > limit)
        return hs_fail(HS_ENOMEM,
                       "--checkpoint %s: %s, and this device allows %.0f: name a smaller model, or a larger "
                       "device (trainer plan --table)",
                       proposal->request->checkpoint, proposal->weights_reason, limit / 1048576);
    const size_t used = strlen(proposal->weights_reason);
    snprintf(proposal->weights_reason + used, HS_PROPOSAL_REASON - used, " (planned), and the device allows %.0f",
             limit / 1048576);
    return HS_OK;
}

/* How long a sequence may be; 0: not said. */
static HsStatus find_positions(const char *folder, int64_t *positions)
{
    HsConfig config;
    char *override;
    if (asprintf(&override, "init_from=%s", folder) < 0)
        return hs_fail(HS_ENOMEM, "no memory for the path %s", folder);
    const HsStatus status = hs_config_load(&config, NULL, 2, (const char *const[]){ override, "max_length=1" });
    free(override);
    HS_TRY(status);
    *positions = config.model.max_positions;
    hs_config_deinit(&config);
    return HS_OK;
}

static HsStatus propose_tuning(HsProposal *proposal)
{
    HsPretrainedKind kind;
    int64_t positions = 0;
    const char *const folder = proposal->request->checkpoint;
    HS_TRY(hs_pretrained_kind(folder, &kind));
    if (kind == HS_PRETRAINED_NONE)
        return hs_fail(HS_ECONFIG,
                       "--checkpoint %s: is neither a Hugging Face folder (config.json, model.safetensors) nor "
                       "a checkpoint of Halfstep: name one",
                       folder);
    proposal->most_epochs = TUNING_EPOCHS;
    HS_TRY(find_positions(folder, &positions));
    proposal->recipe = hs_recipe_of_tuning(positions, false);
    HS_TRY(choose_weights(proposal));
    proposal->recipe = hs_recipe_of_tuning(positions, hs_is(proposal->weights, "full"));
    HS_TRY(hs_proposal_measure(proposal, proposal->recipe.batch_size, true, &proposal->speed));
    tokens_of_texts(proposal);
    give_tokens(proposal, tokens_of_time(proposal));
    return HS_OK;
}

/* --- all of it --- */

static const char *time_text(double seconds, char text[32])
{
    if (seconds < 180)
        snprintf(text, 32, "%.0f seconds", seconds);
    else if (seconds < 3 * 3600)
        snprintf(text, 32, "%.0f minutes", seconds / 60);
    else
        snprintf(text, 32, "%.1f hours", seconds / 3600);
    return text;
}

static void print_result(const HsProposal *proposal, FILE *out)
{
    const HsProposalRequest *const request = proposal->request;
    double tokens = 0;
    char time[32];
    for (int i = 0; i < request->text_count; i++)
        tokens += proposal->texts[i].tokens;
    fprintf(out, "%s: %.2f million parameters, %.3g million tokens (%.2f passes over the text), %s\n", proposal->output,
            1e-6 * proposal->speed.parameters, 1e-6 * proposal->recipe.tokens,
            proposal->recipe.tokens / fmax(tokens, 1), time_text(proposal->seconds, time));
    hs_write_shell_word(program_invocation_name, out);
    fputs(" --config ", out);
    hs_write_shell_word(proposal->output, out);
    for (int i = 0; i < request->override_count; i++) {
        fputc(' ', out);
        hs_write_shell_word(request->overrides[i], out);
    }
    fputc('\n', out);
}

static void say(const HsProposal *proposal)
{
    char time[32];
    for (int i = 0; i < proposal->request->text_count; i++)
        if (proposal->texts[i].left_out[0] != '\0')
            hs_warn("%s: left out, as they hold no text or no documents: %s", proposal->request->texts[i],
                    proposal->texts[i].left_out);
    if (proposal->short_of_text)
        hs_warn(
            "there is too little text for %g hours: after %g passes over it more would be learned by heart, and these "
            "take %s; with more text the same time trains a larger model",
            proposal->request->hours, proposal->most_epochs, time_text(proposal->seconds, time));
}

static HsStatus write_file(const HsProposal *proposal)
{
    FILE *const file = fopen(proposal->output, "wx"); /* not over a file that came meanwhile */
    if (!file)
        return hs_fail(HS_EIO, "%s cannot be written: %s", proposal->output, strerror(errno));
    HsStatus status = hs_proposal_write(proposal, file);
    if (fclose(file) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "%s cannot be written: %s", proposal->output, strerror(errno));
    if (status != HS_OK)
        unlink(proposal->output);
    return status;
}

HsStatus hs_propose(const HsProposalRequest *request, FILE *out)
{
    static HsProposal proposal; /* large */
    HsStatus status = HS_OK;
    proposal = (HsProposal){ .request = request };
    for (int i = 0; i < request->text_count && status == HS_OK; i++)
        status = hs_proposal_look(request, i, &proposal.texts[i]);
    tell_names_apart(&proposal);
    if (status == HS_OK)
        status = check_text(&proposal);
    if (status == HS_OK)
        status = name_files(&proposal);
    if (status == HS_OK)
        status = request->checkpoint ? propose_tuning(&proposal) : propose_model(&proposal);
    if (status == HS_OK)
        status = write_file(&proposal);
    if (status == HS_OK) {
        say(&proposal);
        print_result(&proposal, out);
    } else if (proposal.made_tokenizer) {
        unlink(proposal.tokenizer_path); /* was made for nothing */
    }
    for (int i = 0; i < request->text_count; i++)
        hs_proposal_text_deinit(&proposal.texts[i]);
    return status;
}
