/* SPDX-License-Identifier: MIT
 *
 * A search's results from losses by hand: means, ranks, cost, the best combination's lines, table, JSON and page.
 */
#include <math.h>

#include "runtime/io/json.h"
#include "runtime/study/grid_results.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

typedef struct Sample {
    HsVariants variants;
    HsConfig config;
    HsGridResults results;
} Sample;

/* Six combinations, two rungs, two seeds: 1 and 3 continued; 5 diverged with one seed; 3 ended best. */
static void sample_make(Sample *sample)
{
    static const char *const grids[] = { "learning_rate=1e-3,1e-2,1e-1", "optimizer.betas=[0.9, 0.99],[0.5, 0.6]" };
    static const double first[6][2] = { { 4, 5 }, { 2, 3 }, { 4, 5 }, { 2, 2.5 }, { 9, 8 }, { 1, INFINITY } };
    static const double last[6] = { NAN, 1.75, NAN, 1.5, NAN, NAN };
    cr_assert_eq(hs_variants_parse("ewc+er:ewc.lambda=10", grids, 2, &sample->variants), HS_OK);
    const HsStringList *best = &sample->variants.items[3].overrides;
    cr_assert_eq(hs_config_load(&sample->config, NULL, best->count, (const char *const *)best->items), HS_OK, "%s",
                 hs_error_message());
    cr_assert_eq(hs_grid_results_init(&sample->results, &sample->variants, 2, 2), HS_OK);
    HsGridResults *results = &sample->results;
    for (int i = 0; i < 6; i++)
        for (int seed = 0; seed < 2; seed++) {
            hs_grid_losses(results, i, 0)[seed] = first[i][seed];
            hs_grid_losses(results, i, 1)[seed] = last[i] + seed;
        }
    results->title = "configs/<mine>.yaml";
    results->criterion = "retained loss";
    results->best = &sample->config;
    results->eta = 3;
    results->divisors[0] = 3;
    results->divisors[1] = 1;
    results->counts[0] = 6;
    results->counts[1] = 2;
    cr_assert_eq(hs_grid_rank(results), HS_OK);
}

static void sample_free(Sample *sample)
{
    hs_grid_results_deinit(&sample->results);
    hs_config_deinit(&sample->config);
    hs_variants_deinit(&sample->variants);
}

Test(grid_results, means_ranks_and_cost)
{
    Sample sample;
    sample_make(&sample);
    const HsGridResults *results = &sample.results;
    cr_expect_eq(hs_grid_mean(results, 3, 1), 2);
    cr_expect_eq(hs_grid_spread(results, 1, 1), sqrt(0.5));
    cr_expect(isnan(hs_grid_mean(results, 0, 1)));
    cr_expect(isinf(hs_grid_mean(results, 5, 0)));
    cr_expect(isnan(hs_grid_spread(results, 5, 0)));
    cr_expect_eq(hs_grid_reached(results, 3), 1);
    cr_expect_eq(hs_grid_reached(results, 5), 0);
    /* Further before lower, equal ones in their order, what diverged last. */
    static const int order[] = { 3, 1, 0, 2, 4, 5 };
    cr_expect_arr_eq(results->order, order, sizeof order);
    cr_expect_eq(hs_grid_cost(results), 4);
    sample_free(&sample);
}

Test(grid_results, the_best_lines_load_to_the_same_values)
{
    Sample sample;
    char *yaml, *overrides;
    sample_make(&sample);
    cr_assert_eq(hs_grid_best_yaml(&sample.results, &yaml), HS_OK);
    cr_assert_eq(hs_grid_best_overrides(&sample.results, &overrides), HS_OK);
    cr_expect_str_eq(yaml, "learning_rate: 0.01\noptimizer:\n  betas: [0.5, 0.6]\ncontinual:\n  strategy: [ewc, er]\n"
                           "ewc:\n  lambda: 10\n");
    cr_expect_str_eq(overrides, "continual.strategy=ewc+er ewc.lambda=10 learning_rate=1e-2 "
                                "'optimizer.betas=[0.5, 0.6]'");
    HsConfig loaded;
    char differing[256];
    cr_assert_eq(hs_config_parse(&loaded, "best", yaml, strlen(yaml), 0, NULL), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_config_differences(&loaded, &sample.config, HS_RESUME_ANY, NULL, differing, sizeof differing), 0,
                 "%s", differing);
    hs_config_deinit(&loaded);
    free(yaml);
    free(overrides);
    sample_free(&sample);
}

Test(grid_results, the_table_names_the_rung_where_each_fell)
{
    Sample sample;
    char *text = NULL;
    size_t size;
    sample_make(&sample);
    FILE *stream = open_memstream(&text, &size);
    cr_assert_eq(hs_grid_print(&sample.results, stream), HS_OK);
    fclose(stream);
    cr_expect(strstr(text, "2.0000 +-0.7071  best\n"), "%s", text);
    cr_expect(strstr(text, "4.5000 +-0.7071                   -  dropped at rung 1\n"), "%s", text);
    cr_expect(strstr(text, "diverged"), "%s", text);
    cr_expect(strstr(text, "trained: 4 runs of full length a seed, the whole grid is 6"), "%s", text);
    free(text);
    sample_free(&sample);
}

Test(grid_results, json_and_page)
{
    Sample sample;
    size_t size;
    sample_make(&sample);
    Scratch scratch = scratch_make();
    const char *json_path = scratch_path(&scratch, "a.json"), *html_path = scratch_path(&scratch, "a.html");
    cr_assert_eq(hs_grid_write_json(json_path, &sample.results), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_grid_write_html(html_path, &sample.results), HS_OK, "%s", hs_error_message());
    char *text = scratch_read(json_path, &size);
    HsJson *root;
    cr_assert_eq(hs_json_parse("a.json", text, size, &root), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_json_number(hs_json_get(root, "cost")), 4);
    cr_expect_eq(hs_json_number(hs_json_get(hs_json_get(root, "best"), "loss")), 2);
    const HsJson *combination = hs_json_first(hs_json_get(root, "combinations"));
    cr_expect_str_eq(hs_json_string(hs_json_get(combination, "reached")), "full");
    cr_expect_eq(hs_json_count(hs_json_get(combination, "rungs")), 2);
    for (int i = 0; i < 5; i++)
        combination = hs_json_next(combination);
    const HsJson *rung = hs_json_first(hs_json_get(combination, "rungs"));
    cr_expect(hs_json_is_true(hs_json_get(rung, "diverged")));
    cr_expect(hs_json_is_null(hs_json_get(rung, "loss")));
    hs_json_destroy(root);
    free(text);
    text = scratch_read(html_path, &size);
    page_expect_sound(text);
    cr_expect(strstr(text, "&lt;mine&gt;"));
    cr_expect(strstr(text, "learning_rate: lower is better"));
    cr_expect(strstr(text, "1e-2 (best)"));
    cr_expect_eq(page_count(text, "dropped at rung 1"), 4);
    free(text);
    scratch_remove(&scratch);
    sample_free(&sample);
}

Test(grid_results, nothing_is_best_when_all_diverged)
{
    Sample sample;
    char *text = NULL;
    size_t size;
    sample_make(&sample);
    sample.results.best = NULL;
    Scratch scratch = scratch_make();
    cr_assert_eq(hs_grid_write_html(scratch_path(&scratch, "a.html"), &sample.results), HS_OK);
    cr_assert_eq(hs_grid_write_json(scratch_path(&scratch, "a.json"), &sample.results), HS_OK);
    FILE *stream = open_memstream(&text, &size);
    cr_assert_eq(hs_grid_print(&sample.results, stream), HS_OK);
    fclose(stream);
    cr_expect_null(strstr(text, "best"), "%s", text);
    free(text);
    text = scratch_read(scratch_path(&scratch, "a.html"), &size);
    page_expect_sound(text);
    cr_expect(strstr(text, "No best combination"));
    free(text);
    scratch_remove(&scratch);
    sample_free(&sample);
}
