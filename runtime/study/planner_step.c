/* SPDX-License-Identifier: MIT
 *
 * trainer plan --card NAME --step: an optimizer step on a GPU that is not here, launch by launch.
 *
 * Which launches a step has is not modelled but walked: a training on paper (hs_training_draft) runs its step with the GPU
 * kernels' own host code, laid out for that card, on a device that only counts.  Every launch is seen and turned away.
 *
 * How long they take is a model, in this order:
 *     products and attention   the backend's own (kernels/cuda/product/matmul_model.cuh, predicted.cuh)
 *     everything else          launches * LAUNCH_CLOCKS / clock + bytes / (SHARE * bandwidth)
 * where bytes are those that no implementation can avoid (kernels/ops/cost.h), each from memory, though a small model's
 * come from L2.  A kernel that begins while the one before runs (compute capability 9.0) has EARLY_CLOCKS of its start
 * behind it when that one ends: an assumption.  SHARE is what good kernels reach of the datasheet's bandwidth.  Kernels
 * of a stream run in turn; meanwhile the host needs HOST_LAUNCH_S a launch, or one replay for all (a recorded graph).
 *
 * That is the one end of what is printed: nothing waits but for what the model knows.  The other end is the same times
 * what one H200 took over it, by what a row is (TAKEN).
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/study/planner.h"

static const double LAUNCH_CLOCKS = 3000.0, EARLY_CLOCKS = 1000.0, SHARE = 0.9, HOST_LAUNCH_S = 3e-6;

/* Measured over predicted in a step of GPT-2 124M, bf16, 32 x 1,024 tokens (bench/results/nvidia-h200/blocks.md): products
 * 47.3 ms for 31.6, attention 8.2 for 5.4, the others 9.3 for 6.8.  Without Hopper's kernels (README.md there) the step took
 * 90.1 ms: products and attention 1.51 times. */
static const struct {
    const char *operation; /* what its name begins with */
    double factor;
} TAKEN[] = { { "matmul", 1.50 }, { "attention", 1.51 }, { "", 1.38 } };

/* What an operation, or a copy or memset of the runtime's own, comes to in a part of the step. */
typedef struct StepRow {
    HsRangeKind part;
    const char *operation;
    int64_t calls, launches, early;      /* early: begin while the kernel before runs */
    double bytes, flops, seconds, taken; /* taken: seconds as the measured GPU would have it */
} StepRow;

enum { MOST_ROWS = 256, MOST_DEPTH = 32 };

typedef struct StepWalk {
    HsObserver observer; /* first: the context holds its address */
    const HsCard *card;
    FILE *list; /* of launches; NULL: none is wanted */
    StepRow rows[MOST_ROWS];
    int row_count;
    HsRangeKind kinds[MOST_DEPTH];
    const char *names[MOST_DEPTH];
    int depth;
    StepRow open; /* the operation under way */
    HsOpCost cost;
    int64_t listed;
} StepWalk;

/* The hook for launches has no user pointer. */
static _Thread_local StepWalk *walking;

static double launch_seconds(const HsCard *card)
{
    return LAUNCH_CLOCKS / (1e9 * card->clock_ghz);
}

static double moving_seconds(const HsCard *card, double bytes)
{
    return bytes / (SHARE * 1e9 * card->gigabytes_per_second);
}

static double factor_taken(const char *operation)
{
    int i = 0;
    while (strncmp(operation, TAKEN[i].operation, strlen(TAKEN[i].operation)) != 0)
        i++;
    return TAKEN[i].factor;
}

/* The innermost range that is a part of the step. */
static HsRangeKind part_of(const StepWalk *walk)
{
    for (int i = walk->depth - 1; i >= 0; i--)
        if (walk->kinds[i] != HS_RANGE_LAYER && walk->kinds[i] != HS_RANGE_OPERATION)
            return walk->kinds[i];
    return HS_RANGE_STEP;
}

static const char *layer_of(const StepWalk *walk)
{
    for (int i = walk->depth - 1; i >= 0; i--)
        if (walk->kinds[i] == HS_RANGE_LAYER)
            return walk->names[i];
    return "";
}

static void add_row(StepWalk *walk, const StepRow *added)
{
    StepRow *row = walk->rows;
    const StepRow *const end = walk->rows + walk->row_count;
    while (row < end && !(row->part == added->part && strcmp(row->operation, added->operation) == 0))
        row++;
    if (row == end) {
        assert(walk->row_count < MOST_ROWS);
        walk->row_count++;
        *row = (StepRow){ .part = added->part, .operation = added->operation };
    }
    row->calls += added->calls;
    row->launches += added->launches;
    row->early += added->early;
    row->bytes += added->bytes;
    row->flops += added->flops;
    row->seconds += added->seconds;
    row->taken += added->seconds * factor_taken(added->operation);
}

static void begin(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    StepWalk *walk = (StepWalk *)observer;
    (void)context;
    assert(walk->depth < MOST_DEPTH);
    walk->kinds[walk->depth] = kind;
    walk->names[walk->depth++] = name;
    if (kind != HS_RANGE_OPERATION)
        return;
    walk->cost = *cost;
    walk->open = (StepRow){ .part = part_of(walk), .operation = name, .calls = 1 };
}

static void end(HsObserver *observer, HsContext *context)
{
    StepWalk *walk = (StepWalk *)observer;
    (void)context;
    const HsRangeKind kind = walk->kinds[--walk->depth];
    StepRow *open = &walk->open;
    if (kind != HS_RANGE_OPERATION || open->launches == 0) /* a description, such as pack_weight's, costs nothing */
        return;
    open->bytes = walk->cost.bytes;
    open->flops = walk->cost.flops;
    open->seconds = walk->cost.predicted_s > 0
                        ? walk->cost.predicted_s
                        : (double)open->launches * launch_seconds(walk->card) + moving_seconds(walk->card, open->bytes);
    open->seconds -= (double)open->early * EARLY_CLOCKS / (1e9 * walk->card->clock_ghz);
    add_row(walk, open);
    if (walk->list)
        fprintf(walk->list, "%48s %-22s %8.2f us\n", "", open->operation, 1e6 * open->seconds);
}

/* "norm_forward_kernel" of "(norm_forward_kernel<width, 8, true, Task>)". */
static void list_launch(StepWalk *walk, const char *kernel, int64_t blocks, unsigned threads, size_t shared_bytes)
{
    const char *const name = kernel + strspn(kernel, "( ");
    walk->listed++;
    if (walk->list)
        fprintf(walk->list, "%5" PRId64 "  %-34.*s %7" PRId64 " x %-4u %7zu  %s\n", walk->listed,
                (int)strcspn(name, "<)"), name, blocks, threads, shared_bytes, layer_of(walk));
}

static bool see_launch(const HsKernelLaunch *launch)
{
    walking->open.launches++;
    walking->open.early += launch->early;
    list_launch(walking, launch->name, launch->blocks, launch->block_threads, launch->shared_bytes);
    return false;
}

/* The runtime's own copies and memsets are work on the stream too. */
static void see_memory(const char *what, double moved)
{
    StepRow row = { .part = part_of(walking), .operation = what, .calls = 1, .launches = 1, .bytes = moved };
    row.seconds = launch_seconds(walking->card) + moving_seconds(walking->card, moved);
    list_launch(walking, what, 0, 0, 0);
    add_row(walking, &row);
}

static HsStatus see_copy(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes)
{
    (void)device;
    (void)stream;
    (void)destination;
    (void)source;
    see_memory("copy", 2.0 * (double)bytes);
    return HS_OK;
}

static HsStatus see_fill(HsDevice *device, HsStream *stream, void *pointer, size_t bytes)
{
    (void)device;
    (void)stream;
    (void)pointer;
    see_memory("fill_zero", (double)bytes);
    return HS_OK;
}

/* What works on data on the way cannot be walked without any. */
static HsStatus check_walk(const HsTraining *training)
{
    const HsBackendPart *part = training->engine.part;
    const HsConfig *config = training->config;
    if (!part || !part->observe_launches)
        return hs_fail(
            HS_ECONFIG,
            "--step simulates a GPU's kernel launches, but the device is not a GPU: set device: cuda or auto");
    if (hs_training_offload_level(training) != HS_OFFLOAD_NONE)
        return hs_fail(HS_ECONFIG,
                       "--step: with memory.offload: %s the host updates in the middle of a step, which is "
                       "not simulated; trainer plan without --step says what it costs",
                       config->memory.offload);
    if (config->distributed.processes > 1)
        return hs_fail(HS_ECONFIG, "--step is for one GPU: leave distributed.processes out; --scaling is for several");
    return HS_OK;
}

static HsStatus walk_step(const HsTraining *training, StepWalk *walk, HsMemoryPlan *plan)
{
    HsTraining draft;
    const HsBackendPart *part = training->engine.part;
    HS_TRY(check_walk(training));
    HS_TRY(hs_training_draft(training, training->config, &draft));
    hs_training_measure_plan(&draft, plan);
    HsEngine *engine = &draft.engine;
    engine->device.copy = see_copy;
    engine->device.fill_zero = see_fill;
    engine->context.dry_run = false;
    engine->context.observer = &walk->observer;
    walking = walk;
    part->observe_launches(see_launch);
    const HsStatus status = hs_training_walk_step(&draft);
    part->observe_launches(NULL);
    walking = NULL;
    hs_training_release(&draft);
    return status;
}

/* --- the tables --- */

static const char *const part_names[] = {
    [HS_RANGE_STEP] = "around it",     [HS_RANGE_DATA] = "data",           [HS_RANGE_FORWARD] = "forward",
    [HS_RANGE_HEAD] = "head and loss", [HS_RANGE_RECOMPUTE] = "recompute", [HS_RANGE_BACKWARD] = "backward",
    [HS_RANGE_UPDATE] = "update",      [HS_RANGE_STRATEGY] = "strategies",
};

static void print_line(FILE *out, const char *part, const char *operation, const StepRow *row, double all)
{
    fprintf(out, "| %s | %s | %" PRId64 " | %" PRId64 " | %.3f | %.3f - %.3f | %.1f%% |\n", part, operation, row->calls,
            row->launches, 1e-9 * row->bytes, 1e3 * row->seconds, 1e3 * row->taken, 100.0 * row->seconds / all);
}

static StepRow sum_rows(const StepWalk *walk, int part)
{
    StepRow sum = { 0 };
    for (int i = 0; i < walk->row_count; i++) {
        const StepRow *row = &walk->rows[i];
        if (part >= 0 && (int)row->part != part)
            continue;
        sum.calls += row->calls;
        sum.launches += row->launches;
        sum.early += row->early;
        sum.bytes += row->bytes;
        sum.flops += row->flops;
        sum.seconds += row->seconds;
        sum.taken += row->taken;
    }
    return sum;
}

static int longest_first(const void *a, const void *b)
{
    const StepRow *left = a, *right = b;
    return left->seconds < right->seconds ? 1 : left->seconds > right->seconds ? -1 : 0;
}

static void print_tables(StepWalk *walk, FILE *out)
{
    const StepRow whole = sum_rows(walk, -1);
    qsort(walk->rows, (size_t)walk->row_count, sizeof *walk->rows, longest_first);
    fprintf(out, "| part | operation | calls | launches | GB | ms | share |\n|---|---|---|---|---|---|---|\n");
    for (int part = 0; part < (int)(sizeof part_names / sizeof *part_names); part++) {
        const StepRow sum = sum_rows(walk, part);
        if (sum.launches == 0)
            continue;
        for (int i = 0; i < walk->row_count; i++)
            if ((int)walk->rows[i].part == part)
                print_line(out, part_names[part], walk->rows[i].operation, &walk->rows[i], whole.seconds);
        print_line(out, part_names[part], "**all**", &sum, whole.seconds);
    }
    print_line(out, "**step**", "", &whole, whole.seconds);
}

static void print_total(const StepWalk *walk, const HsTraining *training, const HsMemoryPlan *plan, FILE *out)
{
    const StepRow whole = sum_rows(walk, -1);
    const double peak = 1e12 * walk->card->half_teraflops, tokens = (double)plan->tokens;
    const double host = (double)whole.launches * HOST_LAUNCH_S;
    const bool halves = hs_dtype_bytes(training->precision.weight) < 4;
    fprintf(out, "\n%s: %s, %" PRId64 " tokens a step in %" PRId64 " of %" PRId64 " sequences: %" PRId64 " launches, ",
            walk->card->name, training->precision.name, plan->tokens, plan->micro_batches, plan->micro_batch,
            whole.launches);
    fprintf(out, "%.2f GB, %.3f - %.3f ms, **%.0f - %.0f tokens/s**", 1e-9 * whole.bytes, 1e3 * whole.seconds,
            1e3 * whole.taken, tokens / whole.taken, tokens / whole.seconds);
    if (halves)
        fprintf(out, ", %.1f%% - %.1f%% of the datasheet's peak in products",
                100.0 * whole.flops / (whole.taken * peak), 100.0 * whole.flops / (whole.seconds * peak));
    fprintf(out, " (PREDICTED, NOT MEASURED)\n"
                 "Between what the model of the GPU says and as much longer as one H200 took (docs/kernels.md)\n");
    if (host > whole.seconds)
        fprintf(out,
                "Launched one by one, at %.0f us each, the host would be the slower: %.3f ms, %.0f tokens/s; "
                "steps are replays of one recording where they can be (kernels.cuda_graph)\n",
                1e6 * HOST_LAUNCH_S, 1e3 * host, tokens / host);
    if (plan->offload_host > 0 || plan->disk_bytes > 0)
        fprintf(out, "memory.offload and memory.place.disk add at least %.3f ms (nominal rates)\n",
                1e3 * hs_memory_plan_offload_seconds(plan));
}

HsStatus hs_planner_print_step(const HsTraining *training, const HsPlannerOptions *options, FILE *out)
{
    StepWalk walk = { .observer = { begin, end }, .card = options->card, .list = options->launches ? out : NULL };
    HsMemoryPlan plan;
    if (options->launches)
        fprintf(out, "launch kernel                              blocks x threads  shared  layer\n");
    HS_TRY(walk_step(training, &walk, &plan));
    if (!options->launches)
        print_tables(&walk, out);
    print_total(&walk, training, &plan, out);
    return HS_OK;
}
