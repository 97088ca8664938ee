/* SPDX-License-Identifier: MIT
 *
 * The search as a text: a row a combination, best first, a column a rung; then the best one's lines.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/study/grid_results.h"

enum { NAME_LEAST = 12, COLUMN_WIDTH = 12, SPREAD_WIDTH = 20, CELL_BYTES = 64 };

static void format_loss(const HsGridResults *results, int combination, int rung, char cell[CELL_BYTES])
{
    const double mean = hs_grid_mean(results, combination, rung), spread = hs_grid_spread(results, combination, rung);
    if (isnan(mean))
        snprintf(cell, CELL_BYTES, "-");
    else if (isinf(mean))
        snprintf(cell, CELL_BYTES, "diverged");
    else if (isnan(spread))
        snprintf(cell, CELL_BYTES, "%.4f", mean);
    else
        snprintf(cell, CELL_BYTES, "%.4f +-%.4f", mean, spread);
}

static void print_row(const HsGridResults *results, int rank, int name_width, int width, FILE *stream)
{
    const int combination = results->order[rank], reached = hs_grid_reached(results, combination);
    fprintf(stream, "%-*s", name_width, results->variants->items[combination].label);
    for (int rung = 0; rung < results->rungs; rung++) {
        char cell[CELL_BYTES];
        format_loss(results, combination, rung, cell);
        fprintf(stream, "%*s", width, cell);
    }
    if (rank == 0 && results->best)
        fprintf(stream, "  best");
    else if (reached < results->rungs - 1)
        fprintf(stream, "  dropped at rung %d", reached + 1);
    fputc('\n', stream);
}

static HsStatus print_best(const HsGridResults *results, FILE *stream)
{
    char *yaml = NULL, *overrides = NULL;
    HS_TRY(hs_grid_best_yaml(results, &yaml));
    const HsStatus status = hs_grid_best_overrides(results, &overrides);
    if (status == HS_OK)
        fprintf(stream, "\nthe best combination's lines for the configuration:\n\n%s\nor for a command line: %s\n",
                yaml, overrides);
    free(yaml);
    free(overrides);
    return status;
}

HsStatus hs_grid_print(const HsGridResults *results, FILE *stream)
{
    const int width = results->seeds > 1 ? SPREAD_WIDTH : COLUMN_WIDTH, count = results->variants->count;
    int name_width = NAME_LEAST;
    for (int i = 0; i < count; i++) {
        const int length = (int)strlen(results->variants->items[i].label) + 2;
        name_width = length > name_width ? length : name_width;
    }
    fprintf(stream, "%-*s", name_width, "combination");
    for (int rung = 0; rung < results->rungs; rung++) {
        char name[32], title[48];
        hs_grid_rung_name(results, rung, name);
        snprintf(title, sizeof title, "%s length", name);
        fprintf(stream, "%*s", width, title);
    }
    fputc('\n', stream);
    for (int rank = 0; rank < count; rank++)
        print_row(results, rank, name_width, width, stream);
    fprintf(stream,
            "\n%s in nats a token, lower is better%s; trained: %.3g runs of full length a seed, the whole grid "
            "is %d\n",
            results->criterion, results->seeds > 1 ? ", mean +- standard deviation over seeds" : "",
            hs_grid_cost(results), count);
    return results->best ? print_best(results, stream) : HS_OK;
}
