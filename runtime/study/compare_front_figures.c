/* SPDX-License-Identifier: MIT
 *
 * From rows and prices to points; sentences; JSON.
 */
#include "runtime/study/compare_front_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/storage.h"
#include "runtime/pages/html_text.h"

#define MEMBER(name) ((int)(offsetof(HsMatrixSummary, name) / sizeof(double)))

/* --- points --- */

static double bytes_per_token(const HsMatrix *matrix)
{
    double sum = 0;
    for (int i = 0; i < matrix->tasks; i++)
        sum += matrix->bytes_per_token[i];
    return sum / matrix->tasks; /* NAN without tasks, or where one is unknown */
}

/* Tokens of the sample over tokens of the text, or both in bytes where a plan did not read the text. */
static void find_text(const HsFrontText *text, int64_t steps, HsFrontRow *row)
{
    const HsFrontPrice *price = &row->price;
    const double seen = (double)steps * (double)price->rows;
    row->sequences = price->all_text ? (double)NAN : !price->keeps_text ? 0 : fmin((double)price->buffer, seen);
    double tokens = text->tokens;
    if (!(tokens > 0))
        tokens = text->bytes / bytes_per_token(&row->figures->mean);
    const double share = row->sequences * (double)price->length / tokens;
    row->text_share = price->all_text ? 1 : !price->keeps_text ? 0 : share > 1 ? 1 : share;
}

/* Each strategy's number in the order of their first points; -1 of the row itself: a new one. */
static int colour_of(const HsFrontRow *rows, int index)
{
    int colours = 0;
    for (int i = 0; i < index; i++) {
        if (strcmp(rows[i].price.strategy, rows[index].price.strategy) == 0)
            return rows[i].colour;
        colours = rows[i].colour >= colours ? rows[i].colour + 1 : colours;
    }
    return colours;
}

static double retained_of(const HsFront *front, const char *name)
{
    for (int i = 0; i < front->count; i++)
        if (strcmp(front->figures[i].name, name) == 0)
            return front->figures[i].members[MEMBER(retained)].mean;
    return NAN;
}

static void fill_row(const HsCompareRow *compared, const HsFrontPrice *price, const HsFrontText *text, HsFront *front,
                     int index)
{
    HsFrontRow *row = &front->rows[index];
    const HsCompareFigures *figures = &front->figures[index];
    const HsCompareFigure *learned = &figures->members[MEMBER(learned)];
    const HsCompareFigure *helped = &figures->members[MEMBER(bwt)];
    int64_t steps = 0;
    row->figures = figures;
    row->price = *price;
    row->colour = colour_of(front->rows, index);
    for (int seed = 0; seed < compared->seeds; seed++)
        steps = compared->results[seed].steps > steps ? compared->results[seed].steps : steps;
    find_text(text, steps, row);
    row->numbers = price->trainable > 0 ? figures->kept_bytes.mean / 4 / (double)price->trainable : (double)NAN;
    row->learned_spread = learned->spread;
    row->forgotten_spread = helped->spread;
    front->points[index] = (HsFrontPoint){ .learned = learned->mean,
                                           .forgotten = -helped->mean,
                                           .keeps_text = price->keeps_text,
                                           .reference = price->all_text };
}

HsStatus hs_front_init(HsFront *front, const char *title, const HsCompareRow *rows, const HsFrontPrice *prices,
                       const HsFrontText *text, int count)
{
    *front = (HsFront){ .title = title, .compared = rows, .count = count };
    HS_TRY(hs_compare_figures(rows, count, &front->figures));
    front->points = calloc((size_t)count, sizeof *front->points);
    front->rows = calloc((size_t)count, sizeof *front->rows);
    char(*names)[HS_FRONT_NAME_BYTES] = calloc((size_t)count, sizeof *names);
    const char **labels = calloc((size_t)count, sizeof *labels);
    const bool made = front->points && front->rows && names && labels;
    if (made) {
        for (int i = 0; i < count; i++)
            labels[i] = rows[i].name;
        hs_front_names(labels, count, names);
        front->none = retained_of(front, "none");
        front->joint = retained_of(front, "joint");
    }
    for (int i = 0; i < count && made; i++) {
        fill_row(&rows[i], &prices[i], text, front, i);
        memcpy(front->rows[i].name, names[i], HS_FRONT_NAME_BYTES);
        const double retained = front->figures[i].members[MEMBER(retained)].mean;
        front->rows[i].closed = (front->none - retained) / (front->none - front->joint);
    }
    free(labels);
    free(names);
    if (!made)
        return hs_fail(HS_ENOMEM, "no memory for a front of %d points", count);
    hs_front_find(front->points, count);
    return HS_OK;
}

void hs_front_deinit(HsFront *front)
{
    hs_compare_figures_free(front->figures, front->count);
    free(front->points);
    free(front->rows);
    *front = (HsFront){ 0 };
}

/* --- sentences --- */

/* "learns 0.010 nats better", or `equal` where nothing is gained. */
static void describe_gain(double gain, const char *before, const char *after, const char *equal, char *text,
                          size_t bytes)
{
    if (gain >= 0.0005)
        snprintf(text, bytes, "%s %.3f%s", before, gain, after);
    else
        snprintf(text, bytes, "%s%s%s", gain > 0 ? before : equal, gain > 0 ? " less than 0.001" : "",
                 gain > 0 ? after : "");
}

/* Of a difference of means over seeds; NAN with one seed. */
static double standard_error(const HsCompareFigure *a, const HsCompareFigure *b)
{
    return sqrt(a->spread * a->spread / a->count + b->spread * b->spread / b->count);
}

/* Both differences are within what seeds alone explain. */
static bool is_noise(const HsFront *front, int a, int b)
{
    const HsCompareFigure *first = front->figures[a].members, *second = front->figures[b].members;
    static const int members[] = { MEMBER(learned), MEMBER(bwt) };
    bool noise = true;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const HsCompareFigure *one = &first[members[i]], *other = &second[members[i]];
        noise = noise && fabs(one->mean - other->mean) <= standard_error(one, other);
    }
    return noise;
}

const char *hs_front_sentence(const HsFront *front, int index, char text[HS_FRONT_LINE_BYTES])
{
    const HsFrontPoint *point = &front->points[index];
    const bool dominated = point->dominated_by >= 0;
    const int other = dominated ? point->dominated_by : point->with_text;
    char learned[48], forgotten[48];
    text[0] = '\0';
    if (other < 0)
        return text;
    const HsFrontPoint *better = &front->points[other];
    describe_gain(point->learned - better->learned, "learns", " nats better", "learns as well", learned,
                  sizeof learned);
    describe_gain(point->forgotten - better->forgotten, "forgets", " less", "forgets as much", forgotten,
                  sizeof forgotten);
    snprintf(text, HS_FRONT_LINE_BYTES,
             dominated ? "%s is dominated by %s, which %s and %s%s%s"
                       : "%s keeps no text; %s, which keeps some, %s and %s%s%s",
             front->rows[index].name, front->rows[other].name, learned, forgotten,
             dominated && point->keeps_text && !better->keeps_text ? ", and keeps no text" : "",
             is_noise(front, index, other) ? " (within one standard error over seeds)" : "");
    return text;
}

static bool all_diverged(const HsCompareRow *row)
{
    bool all = row->seeds > 0;
    for (int seed = 0; seed < row->seeds; seed++)
        all = all && row->results[seed].diverged;
    return all;
}

const char *hs_front_place(const HsFront *front, int index, char text[HS_FRONT_LINE_BYTES])
{
    const HsFrontPoint *point = &front->points[index];
    if (point->reference)
        return "reference";
    if (point->on_front)
        return "front";
    if (point->on_front_without_text)
        return "front without text";
    if (point->dominated_by < 0)
        return all_diverged(&front->compared[index]) ? "diverged" : "no figures";
    snprintf(text, HS_FRONT_LINE_BYTES, "dominated by %s", front->rows[point->dominated_by].name);
    return text;
}

const char *hs_front_text_kept(const HsFrontRow *row, char text[HS_FRONT_LINE_BYTES])
{
    if (row->price.all_text)
        return "all";
    if (!row->price.keeps_text)
        return "none";
    if (isnan(row->text_share))
        snprintf(text, HS_FRONT_LINE_BYTES, "%.0f", row->sequences);
    else
        snprintf(text, HS_FRONT_LINE_BYTES, "%.0f, %.*f%%", row->sequences, row->text_share < 0.1 ? 1 : 0,
                 100 * row->text_share);
    return text;
}

/* --- JSON --- */

static void set_name(HsJson *object, const char *key, const HsFront *front, int index)
{
    if (index >= 0)
        hs_json_set_string(object, key, front->figures[index].name);
    else
        hs_json_set_real(object, key, NAN); /* null */
}

static HsJson *point_json(const HsFront *front, int index)
{
    const HsFrontRow *row = &front->rows[index];
    const HsFrontPoint *point = &front->points[index];
    HsJson *object = hs_json_object();
    hs_json_set_string(object, "short_name", row->name);
    hs_json_set_string(object, "strategy", row->price.strategy);
    hs_json_set_real(object, "learned", point->learned);
    hs_json_set_real(object, "learned_spread", row->learned_spread);
    hs_json_set_real(object, "forgotten", point->forgotten);
    hs_json_set_real(object, "forgotten_spread", row->forgotten_spread);
    hs_json_set_string(object, "text_kept", row->price.all_text ? "all" : point->keeps_text ? "sample" : "none");
    hs_json_set_real(object, "sequences", row->sequences);
    hs_json_set_real(object, "text_share", row->text_share);
    hs_json_set_real(object, "numbers_per_parameter", row->numbers);
    hs_json_set_real(object, "parameters", row->figures->parameters > 0 ? (double)row->figures->parameters : NAN);
    hs_json_set_real(object, "trainable_parameters", row->price.trainable > 0 ? (double)row->price.trainable : NAN);
    hs_json_set_real(object, "share_closed", row->closed);
    hs_json_set_bool(object, "on_front", point->on_front);
    hs_json_set_bool(object, "on_front_without_text", point->on_front_without_text);
    set_name(object, "dominated_by", front, point->dominated_by);
    set_name(object, "better_with_text", front, point->with_text);
    return object;
}

static HsJson *order_json(const HsFront *front, bool without_text, int *order)
{
    HsJson *names = hs_json_array();
    const int count = hs_front_order(front->points, front->count, without_text, order);
    for (int i = 0; i < count; i++)
        hs_json_append(names, hs_json_new_string(front->figures[order[i]].name));
    return names;
}

HsStatus hs_front_write_json(const char *path, const HsFront *front)
{
    int *order = malloc((size_t)front->count * sizeof *order);
    if (!order)
        return hs_fail(HS_ENOMEM, "no memory for a front of %d points", front->count);
    HsJson *root = hs_compare_json(front->compared, front->figures, front->count), *object = hs_json_object();
    HsJson *points = hs_json_array(), *axes = hs_json_array();
    static const char *const names[] = { "learned", "forgotten", "text_kept" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hs_json_append(axes, hs_json_new_string(names[i]));
    for (int i = 0; i < front->count; i++)
        hs_json_append(points, point_json(front, i));
    hs_json_set(object, "axes", axes);
    hs_json_set_real(object, "none_retained", front->none);
    hs_json_set_real(object, "joint_retained", front->joint);
    hs_json_set(object, "all", order_json(front, false, order));
    hs_json_set(object, "without_text", order_json(front, true, order));
    hs_json_set(object, "points", points); /* in the order of "strategies" */
    hs_json_set(root, "front", object);
    free(order);
    char *text = hs_json_write(root, true);
    hs_json_destroy(root);
    const HsStatus status =
        text ? hs_storage_replace_text(path, text) : hs_fail(HS_ENOMEM, "no memory to write %s", path);
    free(text);
    return status;
}
