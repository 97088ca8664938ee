/* SPDX-License-Identifier: MIT
 *
 * What an hour, a night and a week train here, by the rules of train.size: a size, its tokens and steps.
 *
 * A model of the configuration's vocabulary is trained for a moment, first a small one, then one near the hour's size.
 * The second's arithmetic a second, R, is taken for all sizes, as the share of a device's peak changes little with them
 * (bench/results/cpu-zen4-2core/scaling.md: 62 to 78% from 2 to 124 million parameters).  A time S then has room for
 *
 *     tokens = S R / f(size),    f(size) = 6 (12 L C^2 + V C) + 6 L C T operations a token
 *
 * of a model of that size.  Loss is said where the law of runtime/config/recipe.c was measured, and nowhere else.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/base/clock.h"
#include "runtime/config/table.h"
#include "runtime/study/planner.h"
#include "runtime/study/proposal.h"

enum { BYTE_VOCABULARY = 257, HALVINGS = 40 };
static const double FIRST_SIZE = 1e5, LEAST_SIZE = 1e5, STEP_S = 2;

static const struct {
    const char *name;
    double hours;
} times[] = { { "an hour", 1 }, { "a night, 10 h", 10 }, { "a week, 168 h", 168 } };

/* What a token of training takes (Kaplan et al. 2020, section 2.1, with causal attention). */
static double token_flops(const HsRecipe *recipe, double vocabulary)
{
    const double layers = (double)recipe->layers, width = (double)recipe->width;
    return 6 * (hs_recipe_blocks(recipe->layers, recipe->width) + vocabulary * width) +
           6 * layers * width * (double)recipe->max_length;
}

/* Tokens that a time has room for. */
static double tokens_of(const HsRecipe *recipe, const HsPlannedTime *time)
{
    return time->seconds * time->flops / token_flops(recipe, time->vocabulary);
}

/* The size that a time's work of `size` asks for, over `size`: 1 where they agree, more where `size` is too small. */
static double room_for(double size, const HsPlannedTime *time)
{
    const HsRecipe recipe = hs_recipe_of_size(size, 0);
    return hs_recipe_size_of_work(tokens_of(&recipe, time) * size, time->most) / size;
}

/* Shapes come in steps, and a token's operations with them, so that there may be no size with just the tokens that it asks
 * for: it lies between two bounds, of which the nearer is taken.  Following one size from the other would not end. */
HsRecipe hs_planner_recipe_of_time(const HsPlannedTime *time)
{
    double low = log(LEAST_SIZE), high = log(HS_RECIPE_MOST_SIZE);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = 0.5 * (low + high);
        if (room_for(exp(middle), time) >= 1)
            low = middle;
        else
            high = middle;
    }
    const double size = exp(room_for(exp(low), time) * room_for(exp(high), time) < 1 ? low : high);
    const HsRecipe recipe = hs_recipe_of_size(size, 0);
    return hs_recipe_of_size(size, fmax(fmin(tokens_of(&recipe, time), time->most), 1));
}

/* --- the rate --- */

/* Where the configuration trains, and in which precision. */
static HsStatus add_settings(const HsConfig *config, int64_t vocabulary, HsStringList *overrides)
{
    HS_TRY(hs_string_list_add(overrides, "device=%s", config->training.device));
    HS_TRY(hs_string_list_add(overrides, "threads=%" PRId64, config->training.threads));
    HS_TRY(hs_string_list_add(overrides, "use_amp=%s", config->training.use_amp ? "true" : "false"));
    HS_TRY(hs_string_list_add(overrides, "precision.mode=%s", config->precision.mode));
    return hs_string_list_add(overrides, "model.vocabulary=%" PRId64,
                              vocabulary > BYTE_VOCABULARY ? vocabulary : BYTE_VOCABULARY);
}

/* Tokens a second of the recipe, on made text: a step takes as long whichever tokens come. */
static HsStatus measure(const HsRecipe *recipe, const HsStringList *overrides, int64_t rows, HsProposalSpeed *speed)
{
    static HsProposal proposal; /* large */
    const HsProposalRequest request = { .text_count = 1,
                                        .hours = HS_PROPOSAL_LEAST_HOURS,
                                        .override_count = overrides->count,
                                        .overrides = (const char *const *)overrides->items };
    proposal = (HsProposal){ .request = &request, .tokenizer = "byte", .recipe = *recipe };
    snprintf(proposal.output, sizeof proposal.output, "plan.yaml");
    snprintf(proposal.out_dir, sizeof proposal.out_dir, "runs/plan"); /* nothing is written there */
    snprintf(proposal.texts[0].name, sizeof proposal.texts[0].name, "made");
    HsStatus status = hs_string_list_add(&proposal.texts[0].train, "synthetic:mixture");
    if (status == HS_OK)
        status = hs_proposal_measure(&proposal, rows, false, speed);
    hs_string_list_deinit(&proposal.texts[0].train);
    return status;
}

/* Operations a second, and the parameters that they were measured with. */
static HsStatus measure_flops(const HsStringList *overrides, double vocabulary, double *flops, double *parameters)
{
    HsRecipe recipe = hs_recipe_of_size(FIRST_SIZE, 0);
    HsProposalSpeed speed;
    HS_TRY(measure(&recipe, overrides, recipe.batch_size, &speed));
    *flops = speed.tokens_per_second * token_flops(&recipe, vocabulary);
    recipe = hs_planner_recipe_of_time(&(HsPlannedTime){ 3600, *flops, vocabulary, INFINITY });
    /* Whole steps, as an update costs the same with fewer sequences, unless they would take long. */
    const double rows = floor(STEP_S * *flops / token_flops(&recipe, vocabulary) / (double)recipe.max_length);
    const int64_t most = rows < 1 ? 1 : rows < (double)recipe.batch_size ? (int64_t)rows : recipe.batch_size;
    HS_TRY(measure(&recipe, overrides, most, &speed));
    *flops = speed.tokens_per_second * token_flops(&recipe, vocabulary);
    *parameters = speed.parameters;
    return HS_OK;
}

/* --- the table --- */

static const char *loss_text(const HsRecipe *recipe, char text[96])
{
    const double size = hs_recipe_blocks(recipe->layers, recipe->width);
    double loss;
    if (hs_recipe_measured_loss(size, &loss))
        snprintf(text, 96, "%.2f +- %.2f", loss, loss * HS_RECIPE_LAW_ERROR);
    else
        snprintf(text, 96, "%s what was measured", size > HS_RECIPE_LAW_MOST ? "beyond" : "below");
    return text;
}

static const char *million(double value, char text[32])
{
    snprintf(text, 32, value < 10e6 ? "%.1f" : "%.0f", 1e-6 * value);
    return text;
}

static void print_row(const char *time, const HsRecipe *recipe, double text_tokens, FILE *out)
{
    char size[32], tokens[32], shape[48], steps[64], passes[32] = "", loss[96];
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64, recipe->layers, recipe->width);
    snprintf(steps, sizeof steps, "%" PRId64 " of %" PRId64 " x %" PRId64, recipe->steps, recipe->batch_size,
             recipe->max_length);
    if (text_tokens > 0)
        snprintf(passes, sizeof passes, "%.2g", recipe->tokens / text_tokens);
    fprintf(out, "  %-16s %9sM %10s %11sM %20s %7s  %s\n", time, million(recipe->size, size), shape,
            million(recipe->tokens, tokens), steps, passes, loss_text(recipe, loss));
}

/* Where a time is longer than the text is worth, longer ones would train the same. */
static void print_table(double flops, double vocabulary, double text, FILE *out)
{
    const double most = text > 0 ? HS_RECIPE_MOST_EPOCHS * text : INFINITY;
    bool all = false;
    fprintf(out, "  %-16s %10s %10s %12s %20s %7s  %s\n", "time", "train.size", "blocks", "tokens", "steps",
            text > 0 ? "passes" : "", "loss to expect");
    for (size_t i = 0; i < sizeof times / sizeof *times && !all; i++) {
        const HsRecipe recipe =
            hs_planner_recipe_of_time(&(HsPlannedTime){ 3600 * times[i].hours, flops, vocabulary, most });
        all = recipe.tokens >= most;
        print_row(times[i].name, &recipe, text, out);
        if (all)
            fprintf(
                out,
                "  that takes %.2g hours, and longer times train the same: after %g passes over the text more would "
                "be learned by heart\n",
                recipe.tokens * token_flops(&recipe, vocabulary) / flops / 3600, HS_RECIPE_MOST_EPOCHS);
    }
    fprintf(out,
            "  loss: nats a byte of Python's library in bytes, measured at %.2f to %.2f million parameters and ten "
            "tokens a parameter; of another text it is not known\n",
            1e-6 * HS_RECIPE_LAW_LEAST, 1e-6 * HS_RECIPE_LAW_MOST);
}

HsStatus hs_planner_print_hours(const HsConfig *config, const HsPlannedModel *about, FILE *out)
{
    HsStringList overrides = { 0 };
    const double vocabulary = (double)about->vocabulary;
    double flops = 0, parameters = 0;
    const double began_s = hs_clock_s();
    HsStatus status = add_settings(config, about->vocabulary, &overrides);
    if (status == HS_OK)
        status = measure_flops(&overrides, vocabulary, &flops, &parameters);
    hs_string_list_deinit(&overrides);
    if (status == HS_OK) {
        fprintf(out,
                "\nin a given time, by the rules of train.size, at %.3g GFLOP/s (two models trained in %.1f s, the "
                "larger one of %.2g million parameters; --no-training leaves this out):\n",
                flops * 1e-9, hs_clock_s() - began_s, parameters * 1e-6);
        print_table(flops, vocabulary, about->text_tokens, out);
    } else {
        fprintf(out, "\nin a given time: not known, as the short training failed: %s\n", hs_error_message());
    }
    return HS_OK;
}
