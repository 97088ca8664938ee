/* SPDX-License-Identifier: MIT
 *
 * data.packing: documents: which documents share a row.  First fit (Johnson et al. 1974, "Worst-case performance bounds for
 * simple one-dimensional packing algorithms"): in the order of the text, each goes to the first row that has room for
 * it.  A tree over the rows finds that row; a node holds the most room below it:
 *
 *     room[1]           the most of all
 *     room[2] room[3]   of either half
 *     room[size + i]    of row i; of rows not begun, all
 */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/data/dataset_build.h"

typedef struct Rooms {
    int64_t size; /* leaves, a power of two */
    int64_t *room;
} Rooms;

static int64_t first_with(const Rooms *rooms, int64_t count)
{
    int64_t node = 1;
    while (node < rooms->size)
        node = rooms->room[2 * node] >= count ? 2 * node : 2 * node + 1;
    return node - rooms->size;
}

static void take(Rooms *rooms, int64_t row, int64_t count)
{
    int64_t node = rooms->size + row;
    rooms->room[node] -= count;
    while ((node /= 2) > 0) {
        const int64_t left = rooms->room[2 * node], right = rooms->room[2 * node + 1];
        rooms->room[node] = left > right ? left : right;
    }
}

/* place[i]: the row of document i.  Returns how many rows there are. */
static int64_t choose_rows(const HsStreamTokens *stream, Rooms *rooms, int64_t *place)
{
    int64_t used = 0;
    for (int64_t i = 0; i < stream->row_count; i++) {
        place[i] = first_with(rooms, stream->rows[i].count);
        take(rooms, place[i], stream->rows[i].count);
        used = place[i] >= used ? place[i] + 1 : used;
    }
    return used;
}

/* Documents row by row, in a row as they came. */
static void order_rows(HsStreamTokens *stream, const int64_t *place, HsRow *ordered)
{
    HsPack *packs = stream->packs;
    for (int64_t i = 0; i < stream->row_count; i++)
        packs[place[i]].count++;
    for (int64_t p = 1; p < stream->pack_count; p++)
        packs[p].first = packs[p - 1].first + packs[p - 1].count;
    for (int64_t p = 0; p < stream->pack_count; p++)
        packs[p].count = 0;
    for (int64_t i = 0; i < stream->row_count; i++) {
        HsPack *pack = &packs[place[i]];
        ordered[pack->first + pack->count++] = stream->rows[i];
    }
    free(stream->rows);
    stream->rows = ordered;
}

HsStatus hs_dataset_pack(HsStreamTokens *stream, int64_t most)
{
    const size_t documents = (size_t)stream->row_count;
    Rooms rooms = { .size = 1 };
    while (rooms.size < stream->row_count)
        rooms.size *= 2;
    rooms.room = malloc(2 * (size_t)rooms.size * sizeof *rooms.room);
    int64_t *place = malloc((documents + 1) * sizeof *place);
    HsRow *ordered = malloc((documents + 1) * sizeof *ordered);
    stream->packs = calloc(documents + 1, sizeof *stream->packs);
    if (!rooms.room || !place || !ordered || !stream->packs) {
        free(rooms.room);
        free(place);
        free(ordered);
        return hs_fail(HS_ENOMEM, "no memory to put %zu documents into rows", documents);
    }
    for (int64_t node = 0; node < 2 * rooms.size; node++)
        rooms.room[node] = most;
    stream->pack_count = choose_rows(stream, &rooms, place);
    order_rows(stream, place, ordered);
    free(rooms.room);
    free(place);
    return HS_OK;
}
