/* SPDX-License-Identifier: MIT
 *
 * bench.html: what was run, the best of each kind, the table with every figure; the charts are bench_charts.c's.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/record/progress.h"
#include "runtime/study/bench.h"

enum { CELL_BYTES = 64 };

/* ---- head ---- */

static void write_fact(FILE *stream, const char *name, const char *value)
{
    fprintf(stream, "<div><dt>%s</dt><dd>", name);
    hs_html_text(stream, value);
    fputs("</dd></div>\n", stream);
}

static void write_facts(const HsBenchResults *results, FILE *stream)
{
    const HsBenchRun *first = &results->runs[0];
    char text[128], count[32], tokens[32];
    fputs("<section>\n<dl class=\"facts\">\n", stream);
    hs_progress_format_count((double)first->parameters, count, sizeof count);
    write_fact(stream, "parameters", count);
    hs_progress_format_count((double)(results->steps * first->tokens_per_step), tokens, sizeof tokens);
    snprintf(text, sizeof text, "%lld of %lld tokens (%s)", (long long)results->steps,
             (long long)first->tokens_per_step, tokens);
    write_fact(stream, "steps of each mode", text);
    write_fact(stream, "order", results->interleaved ? "turns of a second" : "one after another: not all fit");
    write_fact(stream, "distances from", results->runs[results->reference].mode->name);
    fputs("</dl>\n</section>\n", stream);
}

/* A figure and whose it is. */
static void write_head(FILE *stream, const char *title, const char *value, const char *who)
{
    fprintf(stream, "<div><dt>%s</dt><dd class=\"value\">%s</dd><dd>", title, value);
    hs_html_text(stream, who);
    fputs("</dd></div>\n", stream);
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
static void write_ratio(FILE *stream, const char *title, const char *value, const char *mode, double ratio,
                        const char *reference)
{
    char who[4 * HS_BENCH_NAME_BYTES];
    if (ratio > 0 && isfinite(ratio))
        snprintf(who, sizeof who, "%s: %.2f times %s", mode, ratio, reference);
    else
        snprintf(who, sizeof who, "%s", mode);
    write_head(stream, title, value, who);
}

static void write_heads(const HsBenchResults *results, const Best *best, FILE *stream)
{
    char value[CELL_BYTES], figure[HS_HTML_FIGURE_BYTES];
    const HsBenchRun *reference = &results->runs[results->reference];
    if (best->fastest < 0 && best->smallest < 0 && best->nearest < 0)
        return;
    fputs("<section>\n<dl class=\"figures\" style=\"margin:0\">\n", stream);
    if (best->fastest >= 0) {
        const double speed = best->figures[best->fastest].tokens_per_second;
        hs_progress_format_count(speed, value, sizeof value);
        write_ratio(stream, "most tokens a second", value, results->runs[best->fastest].mode->name,
                    speed / best->figures[results->reference].tokens_per_second, reference->mode->name);
    }
    if (best->smallest >= 0) {
        const double bytes = (double)hs_memory_sum(results->runs[best->smallest].peak);
        write_ratio(stream, "least memory", hs_html_bytes(bytes, figure), results->runs[best->smallest].mode->name,
                    bytes / (double)hs_memory_sum(reference->peak), reference->mode->name);
    }
    if (best->nearest >= 0) {
        snprintf(figure, sizeof figure, "%.4f", results->runs[best->nearest].validation_loss);
        write_head(stream, "lowest validation loss", figure, results->runs[best->nearest].mode->name);
    }
    fputs("</dl>\n</section>\n", stream);
}

/* ---- the table ---- */

static void write_cell(FILE *stream, const char *text)
{
    fprintf(stream, "<td>%s</td>", text);
}

static void write_speed(FILE *stream, const HsBenchFigures *figures)
{
    char median[32], slow[32], fast[32];
    if (isnan(figures->tokens_per_second)) {
        write_cell(stream, "\u2013");
        return;
    }
    hs_progress_format_count(figures->tokens_per_second, median, sizeof median);
    hs_progress_format_count(figures->tokens_per_second_p10, slow, sizeof slow);
    hs_progress_format_count(figures->tokens_per_second_p90, fast, sizeof fast);
    fprintf(stream, "<td>%s<div class=\"soft\" style=\"font-size:.82em\">%s to %s</div></td>", median, slow, fast);
}

/* `format` takes the value; a dash for NAN. */
static void write_real(FILE *stream, double value, const char *format)
{
    char text[32] = "\u2013";
    if (!isnan(value))
        snprintf(text, sizeof text, format, value);
    write_cell(stream, text);
}

static void write_memory(FILE *stream, const HsBenchRun *run)
{
    char peak[HS_HTML_FIGURE_BYTES], planned[HS_HTML_FIGURE_BYTES];
    const bool equal = memcmp(run->peak, run->planned, sizeof run->peak) == 0;
    hs_html_bytes((double)hs_memory_sum(run->planned), planned);
    fprintf(stream, "<td>%s<div class=\"soft\" style=\"font-size:.82em\">%s%s</div></td>",
            hs_html_bytes((double)hs_memory_sum(run->peak), peak), equal ? "as planned" : "planned ",
            equal ? "" : planned);
}

static void write_distance(FILE *stream, const HsBenchFigures *figures)
{
    if (isnan(figures->distance_most)) {
        write_cell(stream, "\u2013");
        return;
    }
    fprintf(stream, "<td>%.3g%%<div class=\"soft\" style=\"font-size:.82em\">at end %.3g%%</div></td>",
            100 * figures->distance_most, 100 * figures->distance_final);
}

static void write_row(const HsBenchResults *results, int index, const HsBenchFigures *figures, FILE *stream)
{
    const HsBenchRun *run = &results->runs[index];
    fputs("<tr><th scope=\"row\">", stream);
    hs_html_text(stream, run->mode->label);
    if (strcmp(run->mode->label, run->mode->name) != 0) {
        fputs("<div class=\"soft\" style=\"font-size:.82em\">", stream);
        hs_html_text(stream, run->mode->name);
        fputs("</div>", stream);
    }
    fputs("</th>", stream);
    write_speed(stream, figures);
    write_real(stream, 100 * figures->peak_share, "%.0f%%");
    write_memory(stream, run);
    write_real(stream, figures->training_loss, "%.4f");
    write_real(stream, run->finished ? run->validation_loss : NAN, "%.4f");
    write_distance(stream, figures);
    fprintf(stream, "<td>%lld", (long long)run->applied_steps);
    if (run->skipped_steps > 0)
        fprintf(stream, "<div class=\"soft\" style=\"font-size:.82em\">skipped %lld</div>",
                (long long)run->skipped_steps);
    fputs("</td></tr>\n", stream);
}

static void write_table(const HsBenchResults *results, const Best *best, FILE *stream)
{
    static const char *const titles[] = {
        "tokens/s", "of peak", "memory", "training", "validation", "distance", "steps"
    };
    fputs("<section>\n<h2>Modes</h2>\n<p class=\"soft\">Tokens a second: median over steps, from the slow tenth to the "
          "fast one. Of peak: share of the measured peak of products in that format. Losses in nats a token; training: "
          "mean of the last tenth of the steps. Distance: the largest between this mode's loss and the one of ",
          stream);
    hs_html_text(stream, results->runs[results->reference].mode->name);
    fputs(" at the same step, relative; at the end, the mean of the last tenth.</p>\n<div class=\"scroll\" "
          "tabindex=\"0\" role=\"group\" aria-label=\"table of modes\">\n"
          "<table>\n<thead><tr><th scope=\"col\" style=\"text-align:left\">mode</th>",
          stream);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        fprintf(stream, "<th scope=\"col\">%s</th>", titles[i]);
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int i = 0; i < results->count; i++)
        write_row(results, i, &best->figures[i], stream);
    fputs("</tbody>\n</table>\n</div>\n", stream);
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        if (run->failure[0] == '\0')
            continue;
        fputs("<p>", stream);
        hs_html_text(stream, run->mode->name);
        fprintf(stream, " ended after %lld steps: ", (long long)run->steps);
        hs_html_text(stream, run->failure);
        fputs("</p>\n", stream);
    }
    fputs("</section>\n", stream);
}

/* ---- the page ---- */

static HsStatus write_body(FILE *stream, const void *user)
{
    const HsBenchResults *results = user;
    Best best;
    find_best(results, &best);
    fputs("<h1>", stream);
    hs_html_text(stream, results->config_path);
    fputs("</h1>\n<p class=\"soft\">Modes side by side: the same model, data and seed, on ", stream);
    hs_html_text(stream, results->device);
    fputs(".</p>\n", stream);
    if (results->interrupted)
        fputs("<p>Interrupted: figures are of the steps until then.</p>\n", stream);
    if (results->emulated)
        fputs("<p>The device is emulated: its times mean nothing.</p>\n", stream);
    write_heads(results, &best, stream);
    write_facts(results, stream);
    write_table(results, &best, stream);
    return hs_bench_write_charts(results, stream);
}

HsStatus hs_bench_write_html(const char *path, const HsBenchResults *results)
{
    return hs_html_write(path, results->config_path, write_body, results);
}
