/* SPDX-License-Identifier: MIT
 *
 * compare.html of a front: the chart of learned against forgotten, what each point costs, what is dominated and by which
 * point, and the table of all figures.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html_text.h"
#include "runtime/study/compare_front_figures.h"

enum { NAMES_MOST = 12 /* points that are all named in the chart */ };

/* --- the chart --- */

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

static void add_chart(const HsFront *front, HsPage *page)
{
    const size_t count = (size_t)front->count;
    HsFrontMark *marks = hs_page_room(page, count, sizeof *marks);
    const char **series = hs_page_room(page, count, sizeof *series);
    int *orders[2] = { hs_page_room(page, count, sizeof(int)), hs_page_room(page, count, sizeof(int)) };
    if (!marks || !series || !orders[0] || !orders[1])
        return;
    HsFrontChart chart = { .title = "Learned against forgotten: lower left is best",
                           .x_label = "forgotten, nats a token",
                           .y_label = "learned, nats a token",
                           .marks = marks,
                           .count = front->count,
                           .series = series,
                           .shapes = { "keeps no text", "keeps a sample of the text",
                                       "all tasks at once: its loss, nothing forgotten" },
                           .line_names = { "the front", "the front of what keeps no text" } };
    for (int i = 0; i < front->count; i++) {
        const int colour = front->rows[i].colour;
        marks[i] = mark_of(front, i);
        series[colour] = front->rows[i].price.strategy;
        chart.series_count = colour >= chart.series_count ? colour + 1 : chart.series_count;
    }
    for (int i = 0; i < 2; i++) {
        chart.line[i] = orders[i];
        chart.line_count[i] = hs_front_order(front->points, front->count, i == 1, orders[i]);
    }
    hs_page_section(
        page, "The front",
        "Each mark is a strategy at one strength; lower left is better. What is not on a line is dominated: "
        "another point is not worse in learned, forgotten and text kept, and better in one. Memory and time "
        "do not count. Whiskers are one standard deviation over seeds.");
    hs_page_front(page, &chart);
}

/* --- the table --- */

/* sign: -1 of bwt, which is what was forgotten with the sign turned */
static void add_member(HsPage *page, const HsFrontRow *row, size_t offset, double sign)
{
    const HsCompareFigure *figure = &row->figures->members[offset / sizeof(double)];
    hs_page_mean(page, sign * figure->mean, figure->spread);
}

static void add_row(const HsFront *front, int index, HsPage *page)
{
    char text[HS_FRONT_LINE_BYTES], bytes[HS_HTML_FIGURE_BYTES];
    const HsFrontRow *row = &front->rows[index];
    hs_page_row(page, row->name);
    add_member(page, row, offsetof(HsMatrixSummary, learned), 1);
    add_member(page, row, offsetof(HsMatrixSummary, bwt), -1);
    add_member(page, row, offsetof(HsMatrixSummary, retained), 1);
    hs_page_real(page, "%.0f%%", 100 * row->closed);
    hs_page_cell(page, "%s", hs_front_text_kept(row, text));
    hs_page_real(page, "%.1f", row->numbers);
    hs_page_cell(page, "%s", hs_html_bytes(row->figures->memory_bytes.mean, bytes));
    hs_page_real(page, "%+.0f%%", 100 * row->figures->memory_overhead);
    hs_page_real(page, "%+.0f%%", 100 * row->figures->time_overhead);
    hs_page_real(page, row->figures->seconds.mean < 100 ? "%.1f" : "%.0f", row->figures->seconds.mean);
    hs_page_real(page, "%.0f", row->price.trainable > 0 ? (double)row->price.trainable : (double)NAN);
    hs_page_cell(page, "%s", hs_front_place(front, index, text));
}

static void add_table(const HsFront *front, HsPage *page)
{
    static const char *const titles[] = { "point",     "learned",   "forgotten", "retained", "closed",
                                          "text kept", "numbers",   "memory",    "+memory",  "+time",
                                          "seconds",   "trainable", "" };
    hs_page_section(
        page, "Points and what they cost",
        "Losses in nats a token, lower is better. Learned: mean loss of each task right after it; forgotten: "
        "mean rise of the earlier tasks' losses from there to the end, below 0: later tasks helped. Closed: share of "
        "the distance from none to joint, of "
        "retained losses. Text kept: sequences of earlier text in the sample, at most, and their share of the "
        "training text. Numbers: kept of earlier tasks, 4 bytes each, for each parameter that is trained. "
        "+memory, +time (a token): against none. Seconds of a run; trainable: parameters that are trained.");
    hs_page_table(page, "table of points");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (int i = 0; i < front->count; i++)
        add_row(front, i, page);
}

static void add_sentences(const HsFront *front, HsPage *page)
{
    char text[HS_FRONT_LINE_BYTES];
    hs_page_section(page, "What is dominated, and by what",
                    "The point that is named is itself dominated by none. Of points without text that none of their "
                    "kind dominates: what keeping text would bring.");
    hs_page_list(page);
    for (int i = 0; i < front->count; i++)
        if (hs_front_sentence(front, i, text)[0])
            hs_page_item(page, "%s", text);
}

static HsStatus fill(HsPage *page, const void *user)
{
    const HsFront *front = user;
    hs_page_heading(page, front->title, "Continual learning: the front of learned against forgotten.");
    add_chart(front, page);
    add_table(front, page);
    add_sentences(front, page);
    hs_compare_add_table(front->figures, front->count, page);
    return HS_OK;
}

HsStatus hs_front_write_html(const char *path, const HsFront *front)
{
    return hs_page_write(path, front->title, fill, front);
}
