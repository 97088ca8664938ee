/* SPDX-License-Identifier: MIT
 *
 * Means, ranks and JSON of a search.
 */
#include "runtime/study/grid_results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"

HsStatus hs_grid_results_init(HsGridResults *results, const HsVariants *variants, int rungs, int64_t seeds)
{
    const size_t combinations = (size_t)variants->count, all = combinations * (size_t)rungs * (size_t)seeds;
    *results = (HsGridResults){ .variants = variants, .rungs = rungs, .seeds = seeds };
    results->losses = malloc(all * sizeof *results->losses);
    results->order = calloc(combinations, sizeof *results->order);
    if (!results->losses || !results->order) {
        hs_grid_results_deinit(results);
        return hs_fail(HS_ENOMEM, "no memory for %zu losses", all);
    }
    for (size_t i = 0; i < all; i++)
        results->losses[i] = NAN;
    return HS_OK;
}

void hs_grid_results_deinit(HsGridResults *results)
{
    free(results->losses);
    free(results->order);
    results->losses = NULL;
    results->order = NULL;
}

double *hs_grid_losses(const HsGridResults *results, int combination, int rung)
{
    return results->losses + ((int64_t)combination * results->rungs + rung) * results->seeds;
}

double hs_grid_mean(const HsGridResults *results, int combination, int rung)
{
    const double *losses = hs_grid_losses(results, combination, rung);
    double sum = 0;
    for (int64_t i = 0; i < results->seeds; i++)
        sum += losses[i];
    return sum / (double)results->seeds;
}

double hs_grid_spread(const HsGridResults *results, int combination, int rung)
{
    const double *losses = hs_grid_losses(results, combination, rung);
    const double mean = hs_grid_mean(results, combination, rung);
    double squares = 0;
    if (results->seeds < 2 || !isfinite(mean))
        return NAN;
    for (int64_t i = 0; i < results->seeds; i++)
        squares += (losses[i] - mean) * (losses[i] - mean);
    return sqrt(squares / (double)(results->seeds - 1));
}

int hs_grid_reached(const HsGridResults *results, int combination)
{
    int rung = results->rungs - 1;
    while (rung >= 0 && isnan(hs_grid_mean(results, combination, rung)))
        rung--;
    return rung;
}

/* --- ranks --- */

typedef struct Place {
    int combination, reached;
    double loss;
} Place;

static int by_place(const void *a, const void *b)
{
    const Place *left = a, *right = b;
    if (left->reached != right->reached)
        return right->reached - left->reached;
    if (left->loss != right->loss)
        return left->loss < right->loss ? -1 : 1;
    return left->combination - right->combination;
}

HsStatus hs_grid_rank(HsGridResults *results)
{
    const int count = results->variants->count;
    Place *places = calloc((size_t)count, sizeof *places);
    if (!places)
        return hs_fail(HS_ENOMEM, "no memory to rank %d combinations", count);
    for (int i = 0; i < count; i++) {
        const int reached = hs_grid_reached(results, i);
        places[i] = (Place){ i, reached, reached < 0 ? (double)INFINITY : hs_grid_mean(results, i, reached) };
    }
    qsort(places, (size_t)count, sizeof *places, by_place);
    for (int i = 0; i < count; i++)
        results->order[i] = places[i].combination;
    free(places);
    return HS_OK;
}

const char *hs_grid_rung_name(const HsGridResults *results, int rung, char name[32])
{
    if (results->divisors[rung] == 1)
        snprintf(name, 32, "full");
    else
        snprintf(name, 32, "1/%lld", (long long)results->divisors[rung]);
    return name;
}

double hs_grid_cost(const HsGridResults *results)
{
    double cost = 0;
    for (int i = 0; i < results->rungs; i++)
        cost += (double)results->counts[i] / (double)results->divisors[i];
    return cost;
}

/* --- the best combination's lines --- */

/* An entry of a list stands for itself only with all its keys: such a key is left to the command line. */
static bool in_list(const char *override)
{
    return strncmp(override, "tasks.", 6) == 0 || strncmp(override, "optimizer.groups", 16) == 0;
}

HsStatus hs_grid_best_yaml(const HsGridResults *results, char **text)
{
    const HsStringList *overrides = &results->variants->items[results->order[0]].overrides;
    size_t size = 0;
    *text = NULL;
    const char **keys = calloc((size_t)overrides->count + 1, sizeof *keys);
    char *names = keys ? calloc((size_t)overrides->count + 1, 128) : NULL;
    FILE *stream = names ? open_memstream(text, &size) : NULL;
    for (int i = 0; stream && i < overrides->count; i++) {
        char *name = names + 128 * (size_t)i;
        snprintf(name, 128, "%.*s", (int)strcspn(overrides->items[i], "="), overrides->items[i]);
        keys[i] = name;
    }
    if (stream)
        (void)hs_config_print_keys(results->best, keys, stream); /* closing shows whether it is whole */
    for (int i = 0; stream && i < overrides->count; i++)
        if (in_list(overrides->items[i]))
            fprintf(stream, "# in its list: %s\n", overrides->items[i]);
    const bool whole = hs_close_text(stream, text) == HS_OK;
    free(keys);
    free(names);
    return whole ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the best combination's lines");
}

HsStatus hs_grid_best_overrides(const HsGridResults *results, char **text)
{
    const HsStringList *overrides = &results->variants->items[results->order[0]].overrides;
    size_t size = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    for (int i = 0; stream && i < overrides->count; i++) {
        fputs(i > 0 ? " " : "", stream);
        hs_write_shell_word(overrides->items[i], stream);
    }
    return hs_close_text(stream, text) == HS_OK ? HS_OK
                                                : hs_fail(HS_ENOMEM, "no memory for the best combination's lines");
}

/* --- JSON --- */

static HsJson *rung_json(const HsGridResults *results, int combination, int rung)
{
    char name[32];
    HsJson *object = hs_json_object(), *losses = hs_json_array();
    const double mean = hs_grid_mean(results, combination, rung), *each = hs_grid_losses(results, combination, rung);
    hs_json_set_string(object, "length", hs_grid_rung_name(results, rung, name));
    hs_json_set_real(object, "loss", mean); /* null: infinite */
    hs_json_set_real(object, "spread", hs_grid_spread(results, combination, rung));
    hs_json_set_bool(object, "diverged", isinf(mean));
    for (int64_t i = 0; i < results->seeds; i++)
        hs_json_append(losses, hs_json_new_real(each[i]));
    hs_json_set(object, "losses", losses);
    return object;
}

static HsJson *combination_json(const HsGridResults *results, int rank)
{
    const int combination = results->order[rank], reached = hs_grid_reached(results, combination);
    const HsVariant *variant = &results->variants->items[combination];
    HsJson *object = hs_json_object(), *overrides = hs_json_array(), *rungs = hs_json_array();
    char name[32];
    hs_json_set_string(object, "name", variant->label);
    hs_json_set_integer(object, "rank", rank + 1);
    for (int i = 0; i < variant->overrides.count; i++)
        hs_json_append(overrides, hs_json_new_string(variant->overrides.items[i]));
    hs_json_set(object, "overrides", overrides);
    if (reached >= 0)
        hs_json_set_string(object, "reached", hs_grid_rung_name(results, reached, name));
    for (int rung = 0; rung < results->rungs; rung++)
        if (!isnan(hs_grid_mean(results, combination, rung)))
            hs_json_append(rungs, rung_json(results, combination, rung));
    hs_json_set(object, "rungs", rungs);
    return object;
}

static HsStatus best_json(const HsGridResults *results, HsJson *root)
{
    char *yaml = NULL, *overrides = NULL;
    HsStatus status = hs_grid_best_yaml(results, &yaml);
    if (status == HS_OK)
        status = hs_grid_best_overrides(results, &overrides);
    if (status == HS_OK) {
        const int best = results->order[0];
        HsJson *object = hs_json_object();
        hs_json_set_string(object, "name", results->variants->items[best].label);
        hs_json_set_real(object, "loss", hs_grid_mean(results, best, hs_grid_reached(results, best)));
        hs_json_set_string(object, "yaml", yaml);
        hs_json_set_string(object, "overrides", overrides);
        hs_json_set(root, "best", object);
    }
    free(yaml);
    free(overrides);
    return status;
}

HsStatus hs_grid_write_json(const char *path, const HsGridResults *results)
{
    HsJson *root = hs_json_object(), *rungs = hs_json_array(), *combinations = hs_json_array();
    char name[32];
    hs_json_set_string(root, "criterion", results->criterion);
    hs_json_set_string(root, "better", "lower");
    hs_json_set_integer(root, "eta", results->eta);
    hs_json_set_integer(root, "first_seed", results->first_seed);
    hs_json_set_integer(root, "seeds", results->seeds);
    for (int i = 0; i < results->rungs; i++) {
        HsJson *rung = hs_json_object();
        hs_json_set_string(rung, "length", hs_grid_rung_name(results, i, name));
        hs_json_set_integer(rung, "combinations", results->counts[i]);
        hs_json_append(rungs, rung);
    }
    hs_json_set(root, "rungs", rungs);
    hs_json_set_real(root, "cost", hs_grid_cost(results));
    for (int rank = 0; rank < results->variants->count; rank++)
        hs_json_append(combinations, combination_json(results, rank));
    hs_json_set(root, "combinations", combinations);
    HsStatus status = results->best ? best_json(results, root) : HS_OK;
    char *text = status == HS_OK ? hs_json_write(root, true) : NULL;
    hs_json_destroy(root);
    HS_TRY(status);
    status = hs_storage_replace_text(path, text);
    free(text);
    return status;
}
