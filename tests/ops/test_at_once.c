/* SPDX-License-Identifier: MIT
 *
 * How work is shared out: turns inside an operation of the cpu backend, and pieces of several operations side by side.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Every piece once, in whatever order the threads come: the last one alone, all in turn, or by a die. */
static void check_turns(int64_t rows, int64_t columns, int threads, int order)
{
    HsTurns turns;
    HsTurn turn[70];
    int seen[40][6] = { { 0 } }, left = threads;
    unsigned die = 1;
    hs_turns_begin(&turns, rows, columns, threads);
    for (int t = 0; t < threads; t++)
        turn[t] = hs_turn_first(&turns, t);
    bool done[70] = { false };
    for (int t = 0; left > 0;) {
        die = die * 1103515245u + 12345u;
        t = order == 0 ? threads - 1 : order == 1 ? (t + 1) % threads : (int)(die >> 16) % threads;
        if (order == 0)
            for (; t > 0 && done[t]; t--) {
            }
        if (done[t])
            continue;
        if (hs_turn_take(&turns, &turn[t])) {
            cr_assert(turn[t].row >= 0 && turn[t].row < rows && turn[t].column >= 0 && turn[t].column < columns);
            seen[turn[t].row][turn[t].column]++;
        } else {
            done[t] = true;
            left--;
        }
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            cr_assert_eq(seen[row][column], 1, "(%lld, %lld) of %lld x %lld by %d threads: %d times", (long long)row,
                         (long long)column, (long long)rows, (long long)columns, threads, seen[row][column]);
}

Test(at_once, turns_take_every_piece_once)
{
    for (int64_t rows = 0; rows <= 40; rows = rows < 9 ? rows + 1 : rows + 7)
        for (int64_t columns = 1; columns <= 6; columns++)
            for (int threads = 1; threads <= 70; threads += threads < 5 ? 1 : 13)
                for (int order = 0; order < 3; order++)
                    check_turns(rows, columns, threads, order);
}

/* The thread's share of the rows is the one that a static loop over them gives it. */
Test(at_once, a_thread_begins_with_its_own_rows)
{
    HsTurns turns;
    hs_turns_begin(&turns, 12, 2, 3);
    HsTurn turn = hs_turn_first(&turns, 1);
    for (int i = 0; i < 8; i++) {
        cr_assert(hs_turn_take(&turns, &turn));
        cr_expect_eq(turn.row, 4 + i % 4);
        cr_expect_eq(turn.column, i / 4);
    }
    cr_assert(hs_turn_take(&turns, &turn));
    cr_expect_eq(turn.row, 8, "then the next thread's");
}

/* --- several operations --- */

enum { PIECES = 23, SIZE = 3000 };

typedef struct Pieces {
    float x[PIECES][SIZE], y[PIECES][SIZE];
    int threads[PIECES];
    int broken; /* the piece that fails; -1: none */
} Pieces;

static HsStatus add_twice(void *data, HsContext *context, void *scratch, int index)
{
    Pieces *pieces = data;
    HsTensor between = hs_tensor_1d(scratch, HS_F32, SIZE), y = hs_tensor_1d(pieces->y[index], HS_F32, SIZE);
    const HsTensor x = hs_tensor_1d(pieces->x[index], HS_F32, SIZE);
    pieces->threads[index] = context->threads;
    if (index == pieces->broken)
        between.shape[0] = SIZE - 1;
    if (!context->dry_run)
        memset(scratch, 0, SIZE * sizeof(float));
    HS_TRY(hs_op_combine(context, &(HsCombineArgs){ .x = x, .y = between, .alpha = 2.0f, .beta = 0.0f }));
    return hs_op_combine(context, &(HsCombineArgs){ .x = between, .y = y, .alpha = 1.0f, .beta = 3.0f });
}

static void fill(Pieces *pieces)
{
    pieces->broken = -1;
    for (int i = 0; i < PIECES; i++)
        for (int j = 0; j < SIZE; j++) {
            pieces->x[i][j] = (float)(i + j);
            pieces->y[i][j] = (float)i;
        }
}

/* Of four threads. */
static HsContext cpu_context(void)
{
    const HsBackend *cpu;
    cr_assert_eq(hs_backend_cpu(&cpu), HS_OK);
    return (HsContext){ .backend = cpu, .threads = 4 };
}

/* Workspace by a dry run, then the work. */
static HsStatus run(HsContext *context, Pieces *pieces, size_t scratch_bytes)
{
    context->dry_run = true;
    context->workspace_needed = 0;
    HsObserver *observer = context->observer;
    context->observer = NULL;
    const HsStatus planned = hs_at_once(context, "sums", PIECES, scratch_bytes, add_twice, pieces);
    if (planned != HS_OK)
        return planned;
    context->dry_run = false;
    context->observer = observer;
    context->workspace_bytes = (context->workspace_needed + 63) / 64 * 64;
    context->workspace = aligned_alloc(64, context->workspace_bytes);
    const HsStatus status = hs_at_once(context, "sums", PIECES, scratch_bytes, add_twice, pieces);
    free(context->workspace);
    return status;
}

static void check_sums(const Pieces *pieces, int threads)
{
    for (int i = 0; i < PIECES; i++) {
        cr_assert_eq(pieces->threads[i], threads);
        for (int j = 0; j < SIZE; j++)
            cr_assert_eq(pieces->y[i][j], (float)(2 * (i + j) + 3 * i), "piece %d, element %d", i, j);
    }
}

static Pieces pieces;

Test(at_once, small_pieces_run_side_by_side)
{
    fill(&pieces);
    HsContext context = cpu_context();
    cr_assert_eq(run(&context, &pieces, SIZE * sizeof(float)), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.workspace_needed, 4u * 12032u, "a scratch for each thread, in whole lines of 64 bytes");
    check_sums(&pieces, 1);
}

Test(at_once, large_pieces_and_other_backends_take_turns)
{
    fill(&pieces);
    HsContext context = cpu_context();
    cr_assert_eq(run(&context, &pieces, (size_t)2 << 20), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.workspace_needed, (size_t)2 << 20);
    check_sums(&pieces, 4);

    fill(&pieces);
    context = (HsContext){ .backend = hs_backend_ref(), .threads = 4 };
    cr_assert_eq(run(&context, &pieces, SIZE * sizeof(float)), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.workspace_needed, 12032u);
    check_sums(&pieces, 4);
}

Test(at_once, a_piece_that_fails_is_heard)
{
    fill(&pieces);
    HsContext context = cpu_context();
    cr_assert_eq(run(&context, &pieces, SIZE * sizeof(float)), HS_OK);
    pieces.broken = 11;
    context.workspace = aligned_alloc(64, context.workspace_bytes);
    cr_expect_eq(hs_at_once(&context, "sums", PIECES, SIZE * sizeof(float), add_twice, &pieces), HS_ESHAPE);
    cr_expect(strstr(hs_error_message(), "combine") != NULL, "%s", hs_error_message());
    context.workspace_bytes = 4 * 6000;
    cr_expect_eq(hs_at_once(&context, "sums", PIECES, SIZE * sizeof(float), add_twice, &pieces), HS_ENOMEM);
    free(context.workspace);
}

typedef struct Watch {
    HsObserver observer; /* first: the context holds its address */
    int begun, ended;
    HsOpCost cost;
    char name[16];
} Watch;

static void see_begin(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name,
                      const HsOpCost *cost)
{
    Watch *watch = (Watch *)observer;
    (void)context;
    cr_expect_eq(kind, HS_RANGE_OPERATION);
    snprintf(watch->name, sizeof watch->name, "%s", name);
    watch->begun++;
    watch->cost = *cost;
}

static void see_end(HsObserver *observer, HsContext *context)
{
    (void)context;
    ((Watch *)observer)->ended++;
}

/* Its cost is the sum of theirs. */
Test(at_once, an_observer_sees_one_operation)
{
    fill(&pieces);
    Watch watch = { .observer = { see_begin, see_end } };
    HsContext context = cpu_context();
    context.observer = &watch.observer;
    cr_assert_eq(run(&context, &pieces, SIZE * sizeof(float)), HS_OK, "%s", hs_error_message());
    const HsTensor tensor = hs_tensor_1d(NULL, HS_F32, SIZE);
    const HsCombineArgs first = { tensor, tensor, 2.0f, 0.0f }, second = { tensor, tensor, 1.0f, 3.0f };
    cr_expect_eq(watch.begun, 1);
    cr_expect_eq(watch.ended, 1);
    cr_expect_str_eq(watch.name, "sums");
    cr_expect_eq(watch.cost.bytes, PIECES * (hs_cost_combine(&first).bytes + hs_cost_combine(&second).bytes));
    check_sums(&pieces, 1);
}
