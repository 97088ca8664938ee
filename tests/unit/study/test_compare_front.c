/* SPDX-License-Identifier: MIT
 *
 * The front: domination of random points against another algorithm (staircases), short names, and what is printed and
 * written of a small comparison worked out by hand.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/study/compare_front_figures.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

/* --- domination --- */

enum { POINTS = 40, CELLS = 8, ROUNDS = 400 };

static double uniform(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (double)(1u << 24);
}

/* Of the points that count and, where asked, keep no text: the least `learned` of those that forget at most f. */
static int lowest(const HsFrontPoint *points, int count, bool without_text, int f)
{
    int least = CELLS;
    for (int i = 0; i < count; i++)
        if (!points[i].reference && isfinite(points[i].learned) && !(without_text && points[i].keeps_text) &&
            points[i].forgotten <= f && points[i].learned < least)
            least = (int)points[i].learned;
    return least;
}

/* Something in the staircase lies below or left of (f, learned), or both. */
static bool is_above(const HsFrontPoint *points, int count, bool without_text, const HsFrontPoint *point)
{
    const int f = (int)point->forgotten, learned = (int)point->learned;
    return lowest(points, count, without_text, f) < learned || lowest(points, count, without_text, f - 1) <= learned;
}

static bool has_twin_without_text(const HsFrontPoint *points, int count, const HsFrontPoint *point)
{
    for (int i = 0; i < count; i++)
        if (!points[i].reference && !points[i].keeps_text && points[i].learned == point->learned &&
            points[i].forgotten == point->forgotten)
            return true;
    return false;
}

/* Whole numbers, so that ties are many. */
static void expect_fronts(const HsFrontPoint *points, int count)
{
    for (int i = 0; i < count; i++) {
        const HsFrontPoint *point = &points[i];
        const bool takes_part = !point->reference && isfinite(point->learned) && isfinite(point->forgotten);
        const bool among_all = takes_part && is_above(points, count, false, point);
        const bool among_own = takes_part && is_above(points, count, !point->keeps_text, point);
        const bool twin = takes_part && point->keeps_text && has_twin_without_text(points, count, point);
        cr_assert_eq(point->dominated_by >= 0, among_own || twin);
        cr_assert_eq(point->on_front, takes_part && !among_all && !twin);
        cr_assert_eq(point->on_front_without_text, takes_part && !point->keeps_text && !among_own);
        cr_assert_eq(point->with_text >= 0, takes_part && !among_own && !twin && among_all);
        if (point->dominated_by < 0)
            continue;
        /* What is named is dominated by none, and no other one that dominates has a smaller sum. */
        const HsFrontPoint *named = &points[point->dominated_by];
        cr_assert(hs_front_dominates(named, point));
        cr_assert_eq(named->dominated_by, -1);
        for (int other = 0; other < count; other++)
            if (hs_front_dominates(&points[other], point))
                cr_assert_geq(points[other].learned + points[other].forgotten, named->learned + named->forgotten);
    }
}

Test(compare_front, against_staircases)
{
    unsigned state = 7;
    int dominated = 0, twins = 0;
    for (int round = 0; round < ROUNDS; round++) {
        HsFrontPoint points[POINTS];
        const int count = 1 + (int)(uniform(&state) * POINTS);
        for (int i = 0; i < count; i++) {
            points[i] = (HsFrontPoint){ .learned = floor(uniform(&state) * CELLS),
                                        .forgotten = floor(uniform(&state) * CELLS),
                                        .keeps_text = uniform(&state) < 0.5,
                                        .reference = uniform(&state) < 0.05 };
            if (uniform(&state) < 0.05)
                points[i].learned = points[i].forgotten = NAN;
        }
        hs_front_find(points, count);
        expect_fronts(points, count);
        for (int i = 0; i < count; i++) {
            dominated += points[i].dominated_by >= 0;
            twins += points[i].keeps_text && !points[i].reference && has_twin_without_text(points, count, &points[i]);
        }
    }
    cr_expect_gt(dominated, 1000);
    cr_expect_gt(twins, 100);
}

/* With learned and forgotten of T tasks the retained loss is learned + (T - 1) / T forgotten: the least is on the front. */
Test(compare_front, what_retains_most_is_on_the_front)
{
    unsigned state = 11;
    for (int round = 0; round < ROUNDS; round++) {
        HsFrontPoint points[POINTS];
        const double share = 1 - 1 / (2 + floor(uniform(&state) * 9));
        double least = INFINITY;
        int best = 0;
        for (int i = 0; i < POINTS; i++) {
            points[i] = (HsFrontPoint){ .learned = 1 + uniform(&state), .forgotten = uniform(&state) - 0.2 };
            const double retained = points[i].learned + share * points[i].forgotten;
            best = retained < least ? i : best;
            least = fmin(least, retained);
        }
        hs_front_find(points, POINTS);
        cr_assert(points[best].on_front && points[best].on_front_without_text);
        int order[POINTS];
        const int count = hs_front_order(points, POINTS, false, order);
        cr_assert_gt(count, 0);
        for (int i = 1; i < count; i++) { /* a staircase that falls */
            cr_assert_gt(points[order[i]].forgotten, points[order[i - 1]].forgotten);
            cr_assert_lt(points[order[i]].learned, points[order[i - 1]].learned);
        }
    }
}

/* --- names --- */

Test(compare_front, names_are_short_and_differ)
{
    static const char *const labels[] = { "none",
                                          "er:replay.fraction=0.1",
                                          "er:replay.fraction=0.25",
                                          "ewc",
                                          "ewc:ewc.lambda=1:ewc.curvature=kronecker",
                                          "ewc:ewc.lambda=10:ewc.curvature=kronecker",
                                          "mer:replay.fraction=0.25",
                                          "mer:replay.fraction=0.25:mer.gamma=0.9",
                                          "der++:der.alpha=1",
                                          "der++:der.beta=1",
                                          "learning_rate=1e-3:weight_decay=0",
                                          "si:adapter.rank=4:adapter.alpha=8",
                                          "si:learning_rate=1e-3",
                                          "lwf",
                                          "lwf:adapter.kind=lora:adapter.rank=32:adapter.alpha=64:lwf.alpha=1",
                                          "lwf:adapter.kind=lora:adapter.rank=32:adapter.alpha=64:lwf.alpha=3" };
    static const char *const wanted[] = { "none",
                                          "er 0.1",
                                          "er 0.25",
                                          "ewc",
                                          "ewc 1",
                                          "ewc 10",
                                          "mer",
                                          "mer 0.9",
                                          "der++:der.alpha=1",
                                          "der++:der.beta=1",
                                          "learning_rate 1e-3 weight_decay 0",
                                          "si rank 4",
                                          "si learning_rate 1e-3",
                                          "lwf",
                                          "lwf rank 32 alpha 1",
                                          "lwf rank 32 alpha 3" };
    enum { LABELS = sizeof labels / sizeof *labels };
    char names[LABELS][HS_FRONT_NAME_BYTES];
    hs_front_names(labels, LABELS, names);
    for (int i = 0; i < LABELS; i++)
        cr_expect_str_eq(names[i], wanted[i]);
}

/* --- a comparison by hand --- */

enum { ROWS = 6, SEEDS = 2 };

typedef struct Sample {
    HsRunResult results[ROWS][SEEDS];
    HsCompareRow rows[ROWS];
    HsFrontPrice prices[ROWS];
} Sample;

/* Two tasks: each is learned to `learned`, and the first one rises by `forgotten`. */
static HsRunResult result_of(bool joint, double learned, double forgotten, int64_t kept_bytes)
{
    HsRunResult result = { .tokens_per_second = 1000,
                           .memory_bytes = 2 << 20,
                           .kept_bytes = kept_bytes,
                           .parameters = 500,
                           .seconds = 12.5,
                           .steps = 10,
                           .finished = true };
    cr_assert_eq(hs_matrix_init(&result.matrix, 2), HS_OK);
    hs_matrix_set_name(&result.matrix, 0, "sums");
    hs_matrix_set_name(&result.matrix, 1, "facts");
    if (!joint) {
        *hs_matrix_at(&result.matrix, 0, 0) = learned;
        *hs_matrix_at(&result.matrix, 0, 1) = 4;
    }
    *hs_matrix_at(&result.matrix, 1, 0) = learned + forgotten;
    *hs_matrix_at(&result.matrix, 1, 1) = learned;
    return result;
}

/* Retained: none 1.5, joint 1, er 1.25 (and worse), ewc 1.375, er & "worst" 2.5. */
static void sample_make(Sample *sample)
{
    static const char *const names[] = { "none", "joint",   "er:replay.fraction=0.5", "er:replay.fraction=0.1",
                                         "ewc",  "l2:<b>=1" };
    static const char *const strategies[] = { "none", "joint", "er", "er", "ewc", "l2" };
    static const double learned[] = { 1, 1, 1.125, 1.25, 1.25, 2 }, forgotten[] = { 1, 0, 0.25, 0.5, 0.25, 1 };
    for (int i = 0; i < ROWS; i++) {
        for (int seed = 0; seed < SEEDS; seed++)
            sample->results[i][seed] =
                result_of(i == 1, learned[i] + 0.125 * (seed - 0.5), forgotten[i], i == 4 ? 4000 : 0);
        sample->rows[i] = (HsCompareRow){ names[i], SEEDS, sample->results[i] };
        sample->prices[i] = (HsFrontPrice){ .keeps_text = i >= 1 && i <= 3,
                                            .all_text = i == 1,
                                            .buffer = i == 2 ? 8 : 1000,
                                            .length = 16,
                                            .rows = 4,
                                            .trainable = 500 };
        snprintf(sample->prices[i].strategy, HS_FRONT_STRATEGY_BYTES, "%s", strategies[i]);
    }
}

static void sample_free(Sample *sample)
{
    for (int i = 0; i < ROWS * SEEDS; i++)
        hs_run_result_deinit(&sample->results[i / SEEDS][i % SEEDS]);
}

static void make_front(const Sample *sample, HsFront *front)
{
    const HsFrontText text = { .tokens = 1280, .bytes = NAN };
    cr_assert_eq(hs_front_init(front, "a <b>", sample->rows, sample->prices, &text, ROWS), HS_OK, "%s",
                 hs_error_message());
}

Test(compare_front, figures_by_hand)
{
    Sample sample;
    HsFront front;
    char text[HS_FRONT_LINE_BYTES];
    sample_make(&sample);
    make_front(&sample, &front);
    /* (1.5 - 1.25) / (1.5 - 1), (1.5 - 1.375) / 0.5 */
    cr_expect_eq(front.rows[2].closed, 0.5);
    cr_expect_eq(front.rows[4].closed, 0.25);
    /* 8 sequences of 16 over 1280 tokens; a buffer of 1000 holds no more than 10 steps of 4 */
    cr_expect_eq(front.rows[2].text_share, 0.1);
    cr_expect_eq(front.rows[3].sequences, 40);
    cr_expect_eq(front.rows[0].sequences, 0);
    cr_expect_str_eq(hs_front_text_kept(&front.rows[2], text), "8, 10%");
    cr_expect_str_eq(hs_front_text_kept(&front.rows[1], text), "all");
    cr_expect_eq(front.rows[4].numbers, 2); /* 4000 bytes, 4 each, 500 parameters */
    cr_expect_eq(front.rows[0].colour, 0);
    cr_expect_eq(front.rows[3].colour, front.rows[2].colour);
    cr_expect_eq(front.rows[4].colour, 3);
    cr_expect_str_eq(hs_front_place(&front, 0, text), "front");
    cr_expect_str_eq(hs_front_place(&front, 1, text), "reference");
    cr_expect_str_eq(hs_front_place(&front, 2, text), "front");
    cr_expect_str_eq(hs_front_place(&front, 3, text), "dominated by er 0.5");
    cr_expect_str_eq(hs_front_place(&front, 4, text), "front without text");
    cr_expect_str_eq(hs_front_place(&front, 5, text), "dominated by ewc");
    /* Both seeds move by as much as the losses differ: the standard error of 0.125 is sqrt(2 * 0.125^2 / 2 / 2). */
    cr_expect_str_eq(hs_front_sentence(&front, 3, text),
                     "er 0.1 is dominated by er 0.5, which learns 0.125 nats better and forgets 0.250 less");
    cr_expect_str_eq(hs_front_sentence(&front, 4, text),
                     "ewc keeps no text; er 0.5, which keeps some, learns 0.125 nats better and forgets as much");
    cr_expect_str_eq(hs_front_sentence(&front, 0, text), "");
    hs_front_deinit(&front);
    sample_free(&sample);
}

Test(compare_front, differences_within_the_seeds_are_said)
{
    Sample sample;
    HsFront front;
    char text[HS_FRONT_LINE_BYTES];
    sample_make(&sample);
    for (int seed = 0; seed < SEEDS; seed++) { /* er 0.1: 0.03 above er 0.5 */
        hs_run_result_deinit(&sample.results[3][seed]);
        sample.results[3][seed] = result_of(false, 1.155 + 0.125 * (seed - 0.5), 0.25, 0);
    }
    make_front(&sample, &front);
    cr_expect_str_eq(hs_front_sentence(&front, 3, text),
                     "er 0.1 is dominated by er 0.5, which learns 0.030 nats better and forgets as much (within one "
                     "standard error over seeds)");
    hs_front_deinit(&front);
    sample_free(&sample);
}

Test(compare_front, the_page_is_sound)
{
    Scratch scratch = scratch_make();
    Sample sample;
    HsFront front;
    size_t size = 0;
    sample_make(&sample);
    make_front(&sample, &front);
    const char *path = scratch_path(&scratch, "compare.html");
    cr_assert_eq(hs_front_write_html(path, &front), HS_OK, "%s", hs_error_message());
    char *page = scratch_read(path, &size);
    page_expect_sound(page);
    static const char *const held[] = {
        "<h1>a &lt;b&gt;</h1>",
        "<title>er 0.5: 0.250, 1.125</title>",
        "<td>8, 10%</td><td>0.0</td>",
        "<li>er 0.1 is dominated by er 0.5, which learns",
        "<td>dominated by ewc</td>",
        "the front of what keeps no text</li>",
        "<th scope=\"row\">l2 &lt;b&gt; 1</th>",
    };
    PAGE_EXPECT_HELD(page, held);
    /* two fronts, in the chart and its legend; whiskers of five points in x and y, and joint's */
    cr_expect_eq(page_count(page, "class=\"curve axis"), 4);
    cr_expect_eq(page_count(page, "class=\"whisker\""), 2 * 5 + 1);
    free(page);
    path = scratch_path(&scratch, "compare.json");
    cr_assert_eq(hs_front_write_json(path, &front), HS_OK, "%s", hs_error_message());
    char *text = scratch_read(path, &size);
    HsJson *root = NULL;
    cr_assert_eq(hs_json_parse("compare.json", text, size, &root), HS_OK, "%s", hs_error_message());
    const HsJson *object = hs_json_get(root, "front"), *all = hs_json_get(object, "all");
    cr_expect_eq(hs_json_count(hs_json_get(object, "points")), ROWS);
    cr_expect_eq(hs_json_count(hs_json_get(root, "strategies")), ROWS);
    cr_expect_eq(hs_json_count(all), 2);
    cr_expect_str_eq(hs_json_string(hs_json_first(all)), "er:replay.fraction=0.5");
    cr_expect_eq(hs_json_count(hs_json_get(object, "without_text")), 2);
    hs_json_destroy(root);
    free(text);
    hs_front_deinit(&front);
    sample_free(&sample);
    scratch_remove(&scratch);
}

Test(compare_front, the_terminal)
{
    Sample sample;
    HsFront front;
    char *text = NULL;
    size_t size = 0;
    sample_make(&sample);
    make_front(&sample, &front);
    FILE *stream = open_memstream(&text, &size);
    cr_assert_eq(hs_front_print(&front, stream), HS_OK);
    fclose(stream);
    /* Lower left: er 0.5 (c) forgets least; lower right: none (a); upper right: l2 (f). */
    cr_expect_not_null(
        strstr(text, "    2.000 |                                                                       f\n"));
    cr_expect_not_null(
        strstr(text, "    1.000 |                                                                       a\n"));
    cr_expect_not_null(strstr(text, "          |e                       d"));
    cr_expect_not_null(strstr(text, "\nthe front, from what forgets least to what learns best: er 0.5, none\n"));
    cr_expect_not_null(strstr(text, "\nthe front of what keeps no text: ewc, none\n"));
    cr_expect_not_null(
        strstr(text, "\nl2 <b> 1 is dominated by ewc, which learns 0.750 nats better and forgets 0.750 less\n"));
    free(text);
    /* No point has figures: no plot, and no crash. */
    for (int i = 0; i < ROWS * SEEDS; i++)
        sample.results[i / SEEDS][i % SEEDS].finished = false;
    hs_front_deinit(&front);
    make_front(&sample, &front);
    stream = open_memstream(&text, &size);
    cr_assert_eq(hs_front_print(&front, stream), HS_OK);
    fclose(stream);
    cr_expect_not_null(strstr(text, "no point has figures"));
    free(text);
    hs_front_deinit(&front);
    sample_free(&sample);
}
