/* SPDX-License-Identifier: MIT
 *
 * compare.html of a front: the chart of learned against forgotten, what each point costs, what is dominated and by which
 * point, and the table of all figures.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/study/compare_front_figures.h"

enum { NAMES_MOST = 12 /* points that are all named in the chart */ };

static void begin_section(FILE *stream, const char *title, const char *text)
{
    fprintf(stream, "<section>\n<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

/* --- the chart --- */

/* What of a chart is on the heap. */
typedef struct Drawing {
    HsFrontMark *marks;
    const char **series;
    int *orders[2], counts[2], series_count;
} Drawing;

static void free_drawing(Drawing *drawing)
{
    free(drawing->marks);
    free(drawing->series);
    free(drawing->orders[0]);
    free(drawing->orders[1]);
}

/* The mean loss at the end on the tasks that `learned` is a mean over; NAN without a matrix. */
static double loss_of_trained(const HsMatrix *matrix)
{
    double sum = 0;
    for (int task = matrix->known; task < matrix->tasks; task++)
        sum += *hs_matrix_at(matrix, matrix->tasks - 1, task);
    return matrix->tasks > matrix->known ? sum / (matrix->tasks - matrix->known) : (double)NAN;
}

/* Joint training has learned nothing in an order and forgets nothing: it stands where its loss is, at forgetting 0. */
static HsFrontMark mark_of(const HsFront *front, int index)
{
    const HsFrontPoint *point = &front->points[index];
    const HsFrontRow *row = &front->rows[index];
    const HsMatrix *matrix = &row->figures->mean;
    const HsCompareFigure *retained = &row->figures->members[offsetof(HsMatrixSummary, retained) / sizeof(double)];
    const double spread = matrix->known > 0 ? (double)NAN : retained->spread; /* that is of all tasks */
    const bool none = strcmp(row->figures->name, "none") == 0;
    if (point->reference)
        return (HsFrontMark){ row->name, 0, loss_of_trained(matrix), NAN, spread, row->colour, HS_MARK_DIAMOND, true };
    return (HsFrontMark){ row->name,
                          point->forgotten,
                          point->learned,
                          row->forgotten_spread,
                          row->learned_spread,
                          row->colour,
                          point->keeps_text ? HS_MARK_SQUARE : HS_MARK_CIRCLE,
                          none || front->count <= NAMES_MOST || point->dominated_by < 0 };
}

static HsStatus make_drawing(const HsFront *front, Drawing *drawing)
{
    const size_t count = (size_t)front->count;
    *drawing = (Drawing){ .marks = calloc(count, sizeof *drawing->marks),
                          .series = calloc(count, sizeof *drawing->series),
                          .orders = { calloc(count, sizeof(int)), calloc(count, sizeof(int)) } };
    if (!drawing->marks || !drawing->series || !drawing->orders[0] || !drawing->orders[1])
        return hs_fail(HS_ENOMEM, "no memory to draw a front of %d points", front->count);
    for (int i = 0; i < front->count; i++) {
        const int colour = front->rows[i].colour;
        drawing->marks[i] = mark_of(front, i);
        drawing->series[colour] = front->rows[i].price.strategy;
        drawing->series_count = colour >= drawing->series_count ? colour + 1 : drawing->series_count;
    }
    for (int i = 0; i < 2; i++)
        drawing->counts[i] = hs_front_order(front->points, front->count, i == 1, drawing->orders[i]);
    return HS_OK;
}

static HsStatus write_chart(const HsFront *front, FILE *stream)
{
    Drawing drawing;
    HsStatus status = make_drawing(front, &drawing);
    if (status == HS_OK) {
        begin_section(stream, "The front",
                      "Each mark is a strategy at one strength; lower left is better. What is not on a line is "
                      "dominated: another point is not worse in learned, forgotten and text kept, and better in one. "
                      "Memory and time do not count. Whiskers are one standard deviation over seeds.");
        hs_html_front_chart(stream,
                            &(HsFrontChart){ .title = "Learned against forgotten: lower left is best",
                                             .x_label = "forgotten, nats a token",
                                             .y_label = "learned, nats a token",
                                             .marks = drawing.marks,
                                             .count = front->count,
                                             .series = drawing.series,
                                             .series_count = drawing.series_count,
                                             .shapes = { "keeps no text", "keeps a sample of the text",
                                                         "all tasks at once: its loss, nothing forgotten" },
                                             .line = { drawing.orders[0], drawing.orders[1] },
                                             .line_count = { drawing.counts[0], drawing.counts[1] },
                                             .line_names = { "the front", "the front of what keeps no text" } });
        fputs("</section>\n", stream);
    }
    free_drawing(&drawing);
    return status;
}

/* --- the table --- */

/* sign: -1 of bwt, which is what was forgotten with the sign turned */
static void write_member(FILE *stream, const HsFrontRow *row, size_t offset, double sign)
{
    char mean[HS_HTML_FIGURE_BYTES], spread[HS_HTML_FIGURE_BYTES];
    const HsCompareFigure *figure = &row->figures->members[offset / sizeof(double)];
    fprintf(stream, "<td>%s", hs_html_figure(sign * figure->mean, mean));
    if (!isnan(figure->spread))
        fprintf(stream, " <span class=\"soft\">\u00b1 %s</span>", hs_html_figure(figure->spread, spread));
    fputs("</td>", stream);
}

static void write_number(FILE *stream, double value, const char *format)
{
    fputs("<td>", stream);
    if (isfinite(value))
        fprintf(stream, format, value);
    else
        fputs("\u2013", stream);
    fputs("</td>", stream);
}

static void write_row(const HsFront *front, int index, FILE *stream)
{
    char text[HS_FRONT_LINE_BYTES], bytes[HS_HTML_FIGURE_BYTES];
    const HsFrontRow *row = &front->rows[index];
    const double trainable = row->price.trainable > 0 ? (double)row->price.trainable : (double)NAN;
    fputs("<tr><th scope=\"row\">", stream);
    hs_html_text(stream, row->name);
    fputs("</th>", stream);
    write_member(stream, row, offsetof(HsMatrixSummary, learned), 1);
    write_member(stream, row, offsetof(HsMatrixSummary, bwt), -1);
    write_member(stream, row, offsetof(HsMatrixSummary, retained), 1);
    write_number(stream, 100 * row->closed, "%.0f%%");
    fprintf(stream, "<td>%s</td>", hs_front_text_kept(row, text));
    write_number(stream, row->numbers, "%.1f");
    fprintf(stream, "<td>%s</td>", hs_html_bytes(row->figures->memory_bytes.mean, bytes));
    write_number(stream, 100 * row->figures->memory_overhead, "%+.0f%%");
    write_number(stream, 100 * row->figures->time_overhead, "%+.0f%%");
    write_number(stream, row->figures->seconds.mean, row->figures->seconds.mean < 100 ? "%.1f" : "%.0f");
    write_number(stream, trainable, "%.0f");
    fputs("<td>", stream);
    hs_html_text(stream, hs_front_place(front, index, text));
    fputs("</td></tr>\n", stream);
}

static void write_table(const HsFront *front, FILE *stream)
{
    static const char *const titles[] = { "point",     "learned",   "forgotten", "retained", "closed",
                                          "text kept", "numbers",   "memory",    "+memory",  "+time",
                                          "seconds",   "trainable", "" };
    begin_section(
        stream, "Points and what they cost",
        "Losses in nats a token, lower is better. Learned: mean loss of each task right after it; forgotten: "
        "mean rise of the earlier tasks' losses from there to the end, below 0: later tasks helped. Closed: share of "
        "the distance from none to joint, of "
        "retained losses. Text kept: sequences of earlier text in the sample, at most, and their share of the "
        "training text. Numbers: kept of earlier tasks, 4 bytes each, for each parameter that is trained. "
        "+memory, +time (a token): against none. Seconds of a run; trainable: parameters that are trained.");
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table of points\">\n<table>\n<thead><tr>",
          stream);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        fprintf(stream, "<th scope=\"col\">%s</th>", titles[i]);
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int i = 0; i < front->count; i++)
        write_row(front, i, stream);
    fputs("</tbody>\n</table>\n</div>\n</section>\n", stream);
}

static void write_sentences(const HsFront *front, FILE *stream)
{
    char text[HS_FRONT_LINE_BYTES];
    begin_section(stream, "What is dominated, and by what",
                  "The point that is named is itself dominated by none. Of points without text that none of their kind "
                  "dominates: what keeping text would bring.");
    fputs("<ul>\n", stream);
    for (int i = 0; i < front->count; i++) {
        if (!hs_front_sentence(front, i, text)[0])
            continue;
        fputs("<li>", stream);
        hs_html_text(stream, text);
        fputs("</li>\n", stream);
    }
    fputs("</ul>\n</section>\n", stream);
}

static HsStatus write_body(FILE *stream, const void *user)
{
    const HsFront *front = user;
    fputs("<h1>", stream);
    hs_html_text(stream, front->title);
    fputs("</h1>\n<p class=\"soft\">Continual learning: the front of learned against forgotten.</p>\n", stream);
    HS_TRY(write_chart(front, stream));
    write_table(front, stream);
    write_sentences(front, stream);
    return hs_compare_write_table(front->figures, front->count, stream);
}

HsStatus hs_front_write_html(const char *path, const HsFront *front)
{
    return hs_html_write(path, front->title, write_body, front);
}
