/* SPDX-License-Identifier: MIT
 *
 * The exponent chart as inline SVG, in a box as wide as html_chart.c's:
 *
 *     [ fp16 subnormal |          fp16          ]       one lane a format: what it represents
 *     [                  bf16                   ]
 *          [ |     e5m2    ]   [|  e4m3  ]
 *     |        :       .-.                      :
 *     |        :    .-'   '-.                   :       fp16's lane is shaded down through the plot
 *     |________:__.-'________'--._______________:____   2^-24 ... 2^16
 *
 * Shares are linear, so that what lies left of a format's range is seen as large as it is: on a logarithmic axis a
 * millionth looks like a loss.
 */
#include "runtime/pages/html_chart.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 384, LEFT = 58, RIGHT = 16, TOP = 118, BOTTOM = 44 };
enum { LANE_TOP = 24, LANE_STEP = 22, LANE_HEIGHT = 18, COLOURS = 8, TICKS_MOST = 16, FILLED_MOST = 2 };
/* fp16's range is always in sight; tails beyond are drawn as far as a series has this share of its elements there. */
enum { LOWEST_SHOWN = -28, HIGHEST_SHOWN = 18 };
#define TAIL_SHARE      1e-4
#define CHARACTER_WIDTH 6.6 /* about, of the 12-unit font */

typedef struct Frame {
    int low, high; /* exponents: binades low .. high - 1 are drawn */
    double top, step;
    bool cut; /* a series has numbers outside */
} Frame;

/* One lane a format; the first is shaded in the plot. */
static const struct {
    HsDtype dtype;
    const char *name, *subnormal;
} lanes[] = {
    { HS_F16, "fp16", "fp16 subnormal" },
    { HS_BF16, "bf16", "bf16 subnormal" },
    { HS_E5M2, "e5m2", "e5m2 subnormal" },
    { HS_E4M3, "e4m3", "e4m3 subnormal" },
};
enum { LANES = sizeof lanes / sizeof *lanes };

/* 2 to the power, with raised digits. */
static const char *power_text(int exponent, char text[HS_HTML_FIGURE_BYTES])
{
    static const char *const raised[] = { "\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                          "\u2075", "\u2076", "\u2077", "\u2078", "\u2079" };
    char digits[16];
    snprintf(digits, sizeof digits, "%d", exponent);
    size_t used = (size_t)snprintf(text, HS_HTML_FIGURE_BYTES, "2");
    for (const char *at = digits; *at; at++)
        used +=
            (size_t)snprintf(text + used, HS_HTML_FIGURE_BYTES - used, "%s", *at == '-' ? "\u207b" : raised[*at - '0']);
    return text;
}

static double share(const HsHistogram *histogram, int64_t count)
{
    return histogram->elements > 0 ? (double)count / (double)histogram->elements : 0;
}

/* The share of a series in a binade of the axis, which its shift may have moved out of the histogram. */
static double share_at(const HsExponentSeries *series, int exponent)
{
    int group = exponent - series->shift - HS_HISTOGRAM_LOWEST;
    bool inside = group >= 0 && group < HS_HISTOGRAM_GROUPS;
    return inside ? share(series->histogram, series->histogram->groups[group]) : 0;
}

/* The axis reaches as far as either tail of the series has TAIL_SHARE of its elements. */
static void widen(Frame *frame, const HsExponentSeries *series)
{
    const int first = HS_HISTOGRAM_LOWEST + series->shift, last = HS_HISTOGRAM_HIGHEST + series->shift;
    int low = first, high = last;
    double below = share_at(series, low), above = share_at(series, high);
    while (low <= last && below <= TAIL_SHARE)
        below += share_at(series, ++low);
    while (high >= first && above <= TAIL_SHARE)
        above += share_at(series, --high);
    if (low > last) /* next to nothing but zeros */
        return;
    frame->low = low < frame->low ? low : frame->low;
    frame->high = high + 1 > frame->high ? high + 1 : frame->high;
}

static Frame make_frame(const HsExponentSeries *series, int count)
{
    Frame frame = { .low = LOWEST_SHOWN, .high = HIGHEST_SHOWN };
    double largest = 0;
    for (int i = 0; i < count; i++)
        widen(&frame, &series[i]);
    for (int i = 0; i < count; i++) {
        const HsHistogram *histogram = series[i].histogram;
        int64_t drawn = histogram->zeros + histogram->nonfinite;
        for (int group = 0; group < HS_HISTOGRAM_GROUPS; group++) {
            int exponent = hs_histogram_exponent(group) + series[i].shift;
            drawn += exponent >= frame.low && exponent < frame.high ? histogram->groups[group] : 0;
            largest = fmax(largest, share(histogram, histogram->groups[group]));
        }
        frame.cut = frame.cut || drawn < histogram->elements;
    }
    /* Four to ten ticks of 1, 2 or 5 times a power of ten. */
    double raw = (largest > 0 ? largest : 1) / 5, power = pow(10, floor(log10(raw))), ratio = raw / power;
    frame.step = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
    frame.top = ceil(largest / frame.step - 1e-9) * frame.step;
    frame.top = frame.top > 0 ? frame.top : 1;
    return frame;
}

static double x_of(const Frame *frame, int exponent)
{
    return LEFT + (double)(exponent - frame->low) / (frame->high - frame->low) * (WIDTH - RIGHT - LEFT);
}

static double y_of(const Frame *frame, double value)
{
    return HEIGHT - BOTTOM - value / frame->top * (HEIGHT - BOTTOM - TOP);
}

/* ---- the formats ---- */

/* The part of [from, to) that is in sight, in its lane; the first lane's down through the plot too. */
static void write_band(FILE *stream, const Frame *frame, int lane, const char *name, int from, int to, double opacity)
{
    char low[HS_HTML_FIGURE_BYTES], high[HS_HTML_FIGURE_BYTES];
    int first = from > frame->low ? from : frame->low, end = to < frame->high ? to : frame->high;
    if (first >= end)
        return;
    double left = x_of(frame, first), width = x_of(frame, end) - left, top = LANE_TOP + LANE_STEP * lane;
    fprintf(stream,
            "<g><title>%s: %s to %s</title><rect class=\"f%d\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" "
            "width=\"%.1f\" height=\"%d\"/>",
            name, power_text(from, low), power_text(to, high), COLOURS - 1, opacity, left, top, width, LANE_HEIGHT);
    if (lane == 0) /* lighter than the lane: the curves are read through it */
        fprintf(stream, "<rect class=\"f%d\" fill-opacity=\"%.3f\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                COLOURS - 1, opacity / 3, left, TOP, width, HEIGHT - BOTTOM - TOP);
    if (width > CHARACTER_WIDTH * (double)strlen(name) + 8)
        fprintf(stream, "<text class=\"strong\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                left + width / 2, top + 13, name);
    fputs("</g>\n", stream);
}

static void write_limit(FILE *stream, const Frame *frame, int exponent)
{
    if (exponent <= frame->low || exponent >= frame->high)
        return;
    double at = x_of(frame, exponent);
    fprintf(stream, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at, at, TOP,
            HEIGHT - BOTTOM);
}

static void write_formats(FILE *stream, const Frame *frame)
{
    for (int lane = 0; lane < LANES; lane++) {
        const HsDtypeInfo *info = hs_dtype_info(lanes[lane].dtype);
        int subnormal = ilogb(info->smallest_subnormal), normal = ilogb(info->smallest_normal);
        int end = ilogb(info->max) + 1;
        write_band(stream, frame, lane, lanes[lane].subnormal, subnormal, normal, 0.18);
        write_band(stream, frame, lane, lanes[lane].name, normal, end, 0.36);
        if (lane == 0) {
            write_limit(stream, frame, subnormal);
            write_limit(stream, frame, normal);
            write_limit(stream, frame, end);
        }
    }
}

/* ---- axes and curves ---- */

static void write_axes(FILE *stream, const Frame *frame)
{
    char text[HS_HTML_FIGURE_BYTES];
    for (int i = 0; i * frame->step <= frame->top * (1 + 1e-9); i++) {
        double value = i * frame->step, at = y_of(frame, value);
        fprintf(stream,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g%%</text>\n",
                LEFT, WIDTH - RIGHT, at, at, LEFT - 8, at + 4, 100 * value);
    }
    int step = 2;
    while ((frame->high - frame->low) / step > TICKS_MOST)
        step *= 2;
    for (int exponent = frame->low; exponent <= frame->high; exponent++) {
        if (exponent % step != 0)
            continue;
        double at = x_of(frame, exponent);
        fprintf(stream,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                at, at, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4, at, HEIGHT - BOTTOM + 18, power_text(exponent, text));
    }
    fprintf(stream,
            "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">magnitude</text>\n"
            "<text x=\"8\" y=\"14\">share of elements in each binade</text>\n",
            LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
}

static void write_steps(FILE *stream, const Frame *frame, const HsExponentSeries *series)
{
    fprintf(stream, " d=\"M%.1f %.1f", x_of(frame, frame->low), y_of(frame, 0));
    for (int exponent = frame->low; exponent < frame->high; exponent++)
        fprintf(stream, "V%.1fH%.1f", y_of(frame, share_at(series, exponent)), x_of(frame, exponent + 1));
    fprintf(stream, "V%.1f\"/>\n", y_of(frame, 0));
}

static void write_curve(FILE *stream, const Frame *frame, const HsExponentSeries *series, int index, bool filled)
{
    int colour = index % COLOURS;
    if (filled) {
        fprintf(stream, "<path class=\"f%d\" fill-opacity=\"0.18\"", colour);
        write_steps(stream, frame, series);
    }
    fprintf(stream, "<path class=\"curve s%d%s\"", colour, index >= COLOURS ? " second" : "");
    write_steps(stream, frame, series);
}

/* "12.34%"; what is not zero never reads as zero. */
static const char *percent_text(double value, char text[HS_HTML_FIGURE_BYTES])
{
    bool tiny = value > 0 && value < 1e-4;
    snprintf(text, HS_HTML_FIGURE_BYTES, tiny ? "under 0.01%%" : value > 0 ? "%.2f%%" : "%.0f", 100 * value);
    return text;
}

/* Something to point at in every binade: all series' shares. */
static void write_hits(FILE *stream, const Frame *frame, const HsExponentSeries *series, int count)
{
    char low[HS_HTML_FIGURE_BYTES], high[HS_HTML_FIGURE_BYTES], percent[HS_HTML_FIGURE_BYTES];
    for (int exponent = frame->low; exponent < frame->high; exponent++) {
        double left = x_of(frame, exponent);
        fprintf(stream, "<rect class=\"hit\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>%s to %s", left,
                TOP, x_of(frame, exponent + 1) - left, HEIGHT - BOTTOM - TOP, power_text(exponent, low),
                power_text(exponent + 1, high));
        for (int i = 0; i < count; i++) {
            fputc('\n', stream);
            hs_html_text(stream, series[i].name);
            fprintf(stream, ": %s", percent_text(share_at(&series[i], exponent), percent));
        }
        fputs("</title></rect>\n", stream);
    }
}

static void write_legend(FILE *stream, const HsExponentSeries *series, int count)
{
    char percent[HS_HTML_FIGURE_BYTES];
    fputs("<ul class=\"legend\">\n", stream);
    for (int i = 0; i < count; i++) {
        const HsHistogram *histogram = series[i].histogram;
        fprintf(stream,
                "<li><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"curve s%d%s\" d=\"M0 5L22 5\"/>"
                "</svg>",
                i % COLOURS, i >= COLOURS ? " second" : "");
        hs_html_text(stream, series[i].name);
        fprintf(stream, " <span class=\"soft\">(zero: %s", percent_text(share(histogram, histogram->zeros), percent));
        if (histogram->nonfinite > 0)
            fprintf(stream, ", not finite: %s", percent_text(share(histogram, histogram->nonfinite), percent));
        fputs(")</span></li>\n", stream);
    }
    fputs("</ul>\n", stream);
}

void hs_html_exponents(FILE *stream, const HsExponentChart *chart)
{
    const HsExponentSeries *series = chart->series;
    const int count = chart->count;
    Frame frame = make_frame(series, count);
    hs_chart_begin(stream, chart->title, HEIGHT, "exponent chart");
    write_formats(stream, &frame);
    write_axes(stream, &frame);
    for (int i = 0; i < count; i++)
        write_curve(stream, &frame, &series[i], i, count <= FILLED_MOST);
    write_hits(stream, &frame, series, count);
    fputs("</svg></div>\n", stream);
    write_legend(stream, series, count);
    if (frame.cut)
        fputs("<p class=\"soft\">At most 0.01% of a series lies beyond either end of the axis.</p>\n", stream);
    fputs("</figure>\n", stream);
}
