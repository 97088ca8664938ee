/* SPDX-License-Identifier: MIT
 *
 * bench.html: what was run, the best of each kind, the table with every figure; the charts are bench_charts.c's.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html_text.h"
#include "runtime/record/progress.h"
#include "runtime/study/bench.h"

/* ---- head ---- */

static void add_facts(const HsBenchResults *results, HsPage *page)
{
    const HsBenchRun *first = &results->runs[0];
    char count[32], tokens[32];
    hs_page_bare_section(page, NULL);
    hs_page_facts(page);
    hs_progress_format_count((double)first->parameters, count, sizeof count);
    hs_page_fact(page, "parameters", "%s", count);
    hs_progress_format_count((double)(results->steps * first->tokens_per_step), tokens, sizeof tokens);
    hs_page_fact(page, "steps of each mode", "%lld of %lld tokens (%s)", (long long)results->steps,
                 (long long)first->tokens_per_step, tokens);
    hs_page_fact(page, "order", results->interleaved ? "turns of a second" : "one after another: not all fit");
    hs_page_fact(page, "distances from", "%s", results->runs[results->reference].mode->name);
}

typedef struct Best {
    int fastest, smallest, nearest; /* -1: not known */
    HsBenchFigures figures[HS_BENCH_MODES];
} Best;

static void find_best(const HsBenchResults *results, Best *best)
{
    *best = (Best){ -1, -1, -1, { { 0 } } };
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        best->figures[i] = hs_bench_figures(results, i);
        const double speed = best->figures[i].tokens_per_second;
        const size_t bytes = hs_memory_sum(run->peak);
        if (speed > 0 && (best->fastest < 0 || speed > best->figures[best->fastest].tokens_per_second))
            best->fastest = i;
        if (bytes > 0 && (best->smallest < 0 || bytes < hs_memory_sum(results->runs[best->smallest].peak)))
            best->smallest = i;
        if (run->finished && run->validation_loss > 0 &&
            (best->nearest < 0 || run->validation_loss < results->runs[best->nearest].validation_loss))
            best->nearest = i;
    }
}

/* "bf16: 1.31 times fp32"; just the mode where there is nothing to compare it with. */
static void add_best(HsPage *page, const char *title, const char *value, const char *mode, double ratio,
                     const char *reference)
{
    const bool known = ratio > 0 && isfinite(ratio);
    hs_page_figure(page, title, value, known ? hs_page_print(page, "%s: %.2f times %s", mode, ratio, reference) : mode);
}

static void add_heads(const HsBenchResults *results, const Best *best, HsPage *page)
{
    char value[64];
    const HsBenchRun *reference = &results->runs[results->reference];
    if (best->fastest < 0 && best->smallest < 0 && best->nearest < 0)
        return;
    hs_page_bare_section(page, NULL);
    hs_page_figures(page);
    if (best->fastest >= 0) {
        const double speed = best->figures[best->fastest].tokens_per_second;
        hs_progress_format_count(speed, value, sizeof value);
        add_best(page, "most tokens a second", value, results->runs[best->fastest].mode->name,
                 speed / best->figures[results->reference].tokens_per_second, reference->mode->name);
    }
    if (best->smallest >= 0) {
        const double bytes = (double)hs_memory_sum(results->runs[best->smallest].peak);
        add_best(page, "least memory", hs_html_bytes(bytes, value), results->runs[best->smallest].mode->name,
                 bytes / (double)hs_memory_sum(reference->peak), reference->mode->name);
    }
    if (best->nearest >= 0)
        hs_page_figure(page, "lowest validation loss",
                       hs_page_print(page, "%.4f", results->runs[best->nearest].validation_loss),
                       results->runs[best->nearest].mode->name);
}

/* ---- the table ---- */

static void add_speed(HsPage *page, const HsBenchFigures *figures)
{
    char median[32], slow[32], fast[32];
    if (isnan(figures->tokens_per_second)) {
        hs_page_cell(page, "\u2013");
        return;
    }
    hs_progress_format_count(figures->tokens_per_second, median, sizeof median);
    hs_progress_format_count(figures->tokens_per_second_p10, slow, sizeof slow);
    hs_progress_format_count(figures->tokens_per_second_p90, fast, sizeof fast);
    hs_page_cell(page, "%s", median);
    hs_page_below(page, "%s to %s", slow, fast);
}

static void add_memory(HsPage *page, const HsBenchRun *run)
{
    char text[HS_HTML_FIGURE_BYTES];
    hs_page_cell(page, "%s", hs_html_bytes((double)hs_memory_sum(run->peak), text));
    if (memcmp(run->peak, run->planned, sizeof run->peak) == 0)
        hs_page_below(page, "as planned");
    else
        hs_page_below(page, "planned %s", hs_html_bytes((double)hs_memory_sum(run->planned), text));
}

static void add_row(const HsBenchRun *run, const HsBenchFigures *figures, HsPage *page)
{
    hs_page_row(page, run->mode->label);
    if (strcmp(run->mode->label, run->mode->name) != 0)
        hs_page_below(page, "%s", run->mode->name);
    add_speed(page, figures);
    hs_page_real(page, "%.0f%%", 100 * figures->peak_share);
    add_memory(page, run);
    hs_page_real(page, "%.4f", figures->training_loss);
    hs_page_real(page, "%.4f", run->finished ? run->validation_loss : NAN);
    hs_page_real(page, "%.3g%%", 100 * figures->distance_most);
    if (!isnan(figures->distance_most))
        hs_page_below(page, "at end %.3g%%", 100 * figures->distance_final);
    hs_page_cell(page, "%lld", (long long)run->applied_steps);
    if (run->skipped_steps > 0)
        hs_page_below(page, "skipped %lld", (long long)run->skipped_steps);
}

static void add_table(const HsBenchResults *results, const Best *best, HsPage *page)
{
    static const char *const titles[] = { "mode",     "tokens/s",   "of peak",  "memory",
                                          "training", "validation", "distance", "steps" };
    hs_page_section(
        page, "Modes",
        "Tokens a second: median over steps, from the slow tenth to the fast one. Of peak: share of the measured peak "
        "of products in that format. Losses in nats a token; training: mean of the last tenth of the steps. Distance: "
        "the largest between this mode's loss and the one of %s at the same step, relative; at the end, the mean of "
        "the last tenth.",
        results->runs[results->reference].mode->name);
    hs_page_table(page, "table of modes");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (int i = 0; i < results->count; i++)
        add_row(&results->runs[i], &best->figures[i], page);
    for (int i = 0; i < results->count; i++)
        if (results->runs[i].failure[0])
            hs_page_paragraph(page, "%s ended after %lld steps: %s", results->runs[i].mode->name,
                              (long long)results->runs[i].steps, results->runs[i].failure);
}

/* ---- the page ---- */

static HsStatus fill(HsPage *page, const void *user)
{
    const HsBenchResults *results = user;
    Best best;
    find_best(results, &best);
    hs_page_heading(page, results->config_path, "Modes side by side: the same model, data and seed, on %s.",
                    results->device);
    if (results->interrupted)
        hs_page_paragraph(page, "Interrupted: figures are of the steps until then.");
    if (results->emulated)
        hs_page_paragraph(page, "The device is emulated: its times mean nothing.");
    add_heads(results, &best, page);
    add_facts(results, page);
    add_table(results, &best, page);
    hs_bench_add_charts(results, page);
    return HS_OK;
}

HsStatus hs_bench_write_html(const char *path, const HsBenchResults *results)
{
    return hs_page_write(path, results->config_path, fill, results);
}
