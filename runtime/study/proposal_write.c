/* SPDX-License-Identifier: MIT
 *
 * The configuration that a proposal is, each value with its reason above it.  Comments are the file's alone: what is
 * loaded is what `trainer --config` loads.
 */
#include "runtime/study/proposal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/table.h"
#include "runtime/io/files.h"

enum { WIDTH = 100, INDENT = 2 };

/* A comment of whole words in lines of WIDTH. */
static void note(FILE *out, int indent, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void note(FILE *out, int indent, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *at = text; *at;) {
        const size_t room = (size_t)(WIDTH - indent - 2);
        size_t length = strlen(at);
        if (length > room) {
            length = room;
            while (length > 0 && at[length] != ' ')
                length--;
            length = length > 0 ? length : strcspn(at, " ");
        }
        fprintf(out, "%*s# ", indent, "");
        for (size_t i = 0; i < length; i++) /* a name may hold what would end the comment */
            fputc((unsigned char)at[i] < ' ' ? '?' : at[i], out);
        fputc('\n', out);
        at += length;
        at += *at == ' ';
    }
}

void hs_proposal_quote(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    fputc('"', out);
}

/* --- the head --- */

/* What loss to expect: of this text none was measured. */
static void write_expected(const HsProposal *proposal, FILE *out)
{
    const HsRecipe *const recipe = &proposal->recipe;
    double loss;
    if (proposal->request->checkpoint)
        return;
    if (hs_recipe_measured_loss(hs_recipe_blocks(recipe->layers, recipe->width), &loss))
        note(
            out, 0,
            "Expected loss: not known for this text.  Of Python's library in bytes, ten tokens a parameter, a model of "
            "this size ends at %.2f nats a byte, %.2f bits (bench/results/cpu-zen4-2core/recipe.md; off by %.1f%% on a "
            "size that was left out).",
            loss, loss / log(2), 100 * HS_RECIPE_LAW_ERROR);
    else
        note(out, 0, "Expected loss: not known; of a model of this size none was measured.");
}

static HsStatus write_head(const HsProposal *proposal, FILE *out)
{
    char *output;
    HS_TRY(hs_shell_word(proposal->output, &output));
    const HsProposalSpeed *const speed = &proposal->speed;
    fputs("# Written by `trainer new`; every value has its reason above it, and may be changed.\n#\n", out);
    if (speed->tokens_per_second > 0)
        note(out, 0,
             "%.2f million parameters, %.3g million tokens.  Measured here, with what else was running: %.0f tokens a "
             "second on %s.  So the run takes about %.0f seconds (%.2g hours; %g were asked for).",
             1e-6 * speed->parameters, 1e-6 * proposal->recipe.tokens, speed->tokens_per_second, speed->device,
             proposal->seconds, proposal->seconds / 3600, proposal->request->hours);
    if (proposal->short_of_text)
        note(out, 0, "The text is worth no more time: after %g passes over it, more would be learned by heart.",
             proposal->most_epochs);
    if (isfinite(speed->untrained_loss))
        note(out, 0, "Loss before training, on the first text: %.3f nats a token.  What it will be was not measured.",
             speed->untrained_loss);
    write_expected(proposal, out);
    fputs("#\n", out);
    note(out, 0, "trainer plan --config %s    shows its memory", output);
    fputs("\n", out);
    note(out, 0, "a folder that is not there yet");
    fputs("out_dir: ", out);
    hs_proposal_quote(proposal->out_dir, out);
    fputs("\n\n", out);
    free(output);
    return HS_OK;
}

/* --- tasks and tokenizer --- */

/* A share that is measured on, and as little as serves. */
static int validation_percent(double tokens)
{
    return tokens < 1e6 ? 10 : tokens < 100e6 ? 5 : 1;
}

static void write_task(const HsProposal *proposal, int task, FILE *out)
{
    const HsProposalText *const text = &proposal->texts[task];
    fputs("  - name: ", out);
    hs_proposal_quote(text->name, out);
    fputc('\n', out);
    note(out, 4, "%d file%s, %.3g MB%s%s", text->files, text->files == 1 ? "" : "s", text->bytes / 1e6,
         text->left_out[0] ? "; left out, as they hold no text or no documents: " : "", text->left_out);
    fputs("    train: ", out);
    hs_proposal_quote(text->train.items[0], out);
    fputc('\n', out);
    if (text->exclude.count > 0) {
        note(out, 4, "by their names and first bytes");
        fputs("    exclude:\n", out);
    }
    for (int i = 0; i < text->exclude.count; i++) {
        fputs("      - ", out);
        hs_proposal_quote(text->exclude.items[i], out);
        fputc('\n', out);
    }
    note(out, 4, "cut from the end; the share falls as the text grows");
    fprintf(out, "    validation: %d%%\n", validation_percent(text->bytes));
    if (text->given <= 0)
        return;
    note(out, 4, "%.2f passes over it%s", text->given / fmax(text->tokens, 1),
         text->given < (proposal->most_epochs - 0.01) * text->tokens
             ? ": what there is time for"
             : "; more would be learned by heart (Muennighoff et al. 2023 found four worth nearly what new text is)");
    fprintf(out, "    tokens: %.0f\n", floor(text->given));
}

static void write_tasks(const HsProposal *proposal, FILE *out)
{
    if (proposal->request->text_count > 1)
        note(out, 0,
             "one text after another, in the order of the command line; tokens by the square root of their sizes, so "
             "that "
             "a small one is not lost");
    fputs("tasks:\n", out);
    for (int i = 0; i < proposal->request->text_count; i++)
        write_task(proposal, i, out);
    fputc('\n', out);
    if (proposal->request->checkpoint)
        return;
    fputs("tokenizer:\n", out);
    note(out, INDENT, "%s", proposal->tokenizer_reason);
    fprintf(out, "  kind: %s\n", proposal->tokenizer);
    if (proposal->tokenizer_path[0] != '\0') {
        note(out, INDENT, "made from this text by `trainer new`");
        fputs("  path: ", out);
        hs_proposal_quote(proposal->tokenizer_path, out);
        fputc('\n', out);
    }
    fputc('\n', out);
}

/* --- the recipe --- */

static void write_rule(const HsProposal *proposal, const HsRecipeRule *rule, FILE *out)
{
    const char *const dot = strrchr(rule->key, '.');
    char value[HS_RECIPE_VALUE];
    rule->write(&proposal->recipe, value);
    note(out, dot ? INDENT : 0, "%s", rule->reason);
    fprintf(out, "%*s%s: %s\n", dot ? INDENT : 0, "", dot ? dot + 1 : rule->key, value);
}

/* Sections in the order in which rules first name them; steps follow from the tasks' tokens. */
static void write_rules(const HsProposal *proposal, const HsRecipeRule *rules, int count, FILE *out)
{
    const char *section = "";
    for (int i = 0; i < count; i++)
        if (!strchr(rules[i].key, '.') && !hs_is(rules[i].key, "max_steps"))
            write_rule(proposal, &rules[i], out);
    for (int i = 0; i < count; i++) {
        const char *const dot = strchr(rules[i].key, '.');
        if (!dot)
            continue;
        const size_t length = (size_t)(dot - rules[i].key);
        if (strncmp(section, rules[i].key, length + 1) != 0)
            fprintf(out, "\n%.*s:\n", (int)length, rules[i].key);
        section = rules[i].key;
        write_rule(proposal, &rules[i], out);
    }
}

static void write_weights(const HsProposal *proposal, FILE *out)
{
    note(out, 0, "model and tokenizer are this folder's");
    fputs("init_from: ", out);
    hs_proposal_quote(proposal->request->checkpoint, out);
    fputc('\n', out);
    const bool all = hs_is(proposal->weights, "full");
    fputs("adapter:\n", out);
    note(out, INDENT, "%s", proposal->weights_reason[0] ? proposal->weights_reason : "not planned yet");
    fprintf(out, "  kind: %s\n", all ? "none" : "lora");
    if (!all)
        note(out, INDENT, "the model's matrices as they are, or in four bits where memory asks for it");
    if (!all)
        fprintf(out, "  base: %s\n", hs_is(proposal->weights, "nf4") ? "nf4" : "unchanged");
    fputc('\n', out);
}

/* --- several texts --- */

/* What docs/forgetting.md says of earlier text that may be kept. */
static void write_strategy(const HsProposal *proposal, FILE *out)
{
    const bool all = proposal->request->checkpoint && hs_is(proposal->weights, "full");
    double tokens = 0;
    if (proposal->request->text_count < 2)
        return;
    for (int i = 0; i < proposal->request->text_count; i++)
        tokens += proposal->texts[i].tokens;
    fputs("\ncontinual:\n", out);
    note(out, INDENT,
         "docs/forgetting.md, \"earlier text may be kept, a sample of it\": a quarter of each batch is replayed; "
         "the cheapest, and close to training on all texts at once");
    if (all)
        note(out, INDENT, "\"a model that exists is to lose little\", all of it trained: ewc next to it");
    fprintf(out, "  strategy: %s\n", all ? "ewc+er" : "er");
    fputs("\nreplay:\n", out);
    note(out, INDENT, "sequences; 6%% of the texts, as in that page's tables");
    fprintf(out, "  buffer_size: %.0f\n",
            fmin(fmax(16, floor(0.06 * tokens / (double)proposal->recipe.max_length)), 1e6));
}

static void write_evaluation(const HsProposal *proposal, FILE *out)
{
    fputs("\nevaluation:\n", out);
    note(out, INDENT, "optimizer steps: ten times in the run");
    fprintf(out, "  every: %" PRId64 "\n", proposal->evaluation_every > 0 ? proposal->evaluation_every : 1);
    note(out, INDENT, "all of them together take about 2%% of the time");
    fprintf(out, "  batches: %" PRId64 "\n\n", proposal->evaluation_batches > 0 ? proposal->evaluation_batches : 1);
    note(out, 0, "optimizer steps: as often as it is evaluated; a run that is stopped continues by the same command");
    fprintf(out, "checkpoint_freq: %" PRId64 "\n", proposal->evaluation_every > 0 ? proposal->evaluation_every : 1);
}

HsStatus hs_proposal_write(const HsProposal *proposal, FILE *out)
{
    HS_TRY(write_head(proposal, out));
    write_tasks(proposal, out);
    if (proposal->request->checkpoint)
        write_weights(proposal, out);
    if (proposal->request->checkpoint)
        write_rules(proposal, hs_recipe_tuning_rules, hs_recipe_tuning_rule_count, out);
    else
        write_rules(proposal, hs_recipe_rules, hs_recipe_rule_count, out);
    write_strategy(proposal, out);
    write_evaluation(proposal, out);
    return ferror(out) ? hs_fail(HS_EIO, "%s cannot be written: %s", proposal->output, strerror(errno)) : HS_OK;
}

HsStatus hs_proposal_text(const HsProposal *proposal, char **text)
{
    size_t size = 0;
    *text = NULL;
    FILE *const stream = open_memstream(text, &size);
    const HsStatus written = stream ? hs_proposal_write(proposal, stream) : HS_OK;
    HS_TRY(hs_close_text(stream, text));
    return written;
}
