/* SPDX-License-Identifier: MIT
 *
 * Measuring the choices of products.
 *
 * Each choice becomes a table of one row, which the device takes in: what is measured is exactly what a table will
 * bring. All choices of a product are timed in turn (a, b, c, a, b, c, ...), so that clocks and heat favour none, and
 * the median of the rounds counts.  Operands are random, codes too, since zeros let a GPU run faster than training ever
 * does, and there are several sets of them, used in turn, so that no call finds its operands in the L2 cache from the one
 * before.  Of codes the casts are no part of the time: every choice has the same.
 */
#include "runtime/selftest/tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops/operands.h"

enum { MOST_CHOICES = 24, MOST_ROUNDS = 25, LEAST_ROUNDS = 5, MOST_SETS = 16, MOST_CALLS = 100 };

static const double seconds_a_product = 0.4, sample_ms = 2.0;
/* Several times a GPU's L2. */
static const size_t uncached_bytes = (size_t)256 << 20;
/* What does not gain as much is noise, and keeps the model's choice: tables made twice should agree. */
static const double least_gain = 1.01;

/* A choice under measurement. */
typedef struct Candidate {
    HsProductChoice choice;
    HsTuningRow row;
    size_t workspace_bytes;
    int calls; /* of a sample */
    double ms[MOST_ROUNDS], median_ms;
} Candidate;

typedef struct Tuning {
    HsEngine *engine;
    HsTuningDevice device;
    HsMatmulArgs sets[MOST_SETS];
    int set_count, next_set;
    Candidate candidates[MOST_CHOICES];
    int count;
    HsEvent *start, *stop;
} Tuning;

/* --- operands --- */

/* Walks the operands of a product: a row, and its tensor in `args`. */
#define FOR_OPERANDS(row) for (const HsOperandRow *row = hs_operands.matmul.rows; row->name; row++)

static HsTensor *tensor_of(HsMatmulArgs *args, const HsOperandRow *row)
{
    return (HsTensor *)(void *)((char *)args + row->at);
}

/* Whether a call has codes in the place of an operand's numbers. */
static bool has_numbers(HsMatmulArgs *args, const HsOperandRow *row)
{
    const HsTensor *const tensor = tensor_of(args, row);
    return hs_tensor_present(tensor) &&
           !(args->a.layout == HS_LAYOUT_CODES && (tensor == &args->a.values || tensor == &args->b.values));
}

static size_t operand_bytes(const HsMatmulArgs *args)
{
    HsMatmulArgs copy = *args;
    size_t bytes =
        args->a.layout == HS_LAYOUT_CODES ? hs_codes_bytes(&args->a.codes) + hs_codes_bytes(&args->b.codes) : 0;
    FOR_OPERANDS(row)
    bytes += has_numbers(&copy, row) ? hs_tensor_bytes(tensor_of(&copy, row)) : 0;
    return bytes;
}

enum { BLOCK = 1 << 15 }; /* numbers that are drawn; the others are these again */

/* Memory of `bytes`, filled with copies of the host's, one behind the other. */
static HsStatus place_repeated(HsContext *context, const void *host, size_t host_bytes, size_t bytes, void **memory)
{
    HsDevice *device = context->device;
    HS_TRY(device->alloc(device, bytes, memory));
    HS_TRY(device->copy(device, context->stream, *memory, host, host_bytes));
    for (size_t done = host_bytes; done < bytes; done *= 2)
        HS_TRY(device->copy(device, context->stream, (char *)*memory + done, *memory,
                            bytes - done < done ? bytes - done : done));
    return device->stream_sync(device, context->stream);
}

/* Numbers around zero. */
static HsStatus fill(HsContext *context, HsTensor *tensor, uint32_t site)
{
    const int64_t count = hs_tensor_count(tensor);
    const int64_t block = count < BLOCK ? count : BLOCK;
    const size_t bytes = hs_tensor_bytes(tensor), block_bytes = (size_t)block * hs_dtype_bytes(tensor->dtype);
    char *host = malloc(block_bytes);
    if (!host)
        return hs_fail(HS_ENOMEM, "no memory for %zu bytes of random numbers", block_bytes);
    const HsRng rng = { .seed = 1, .site = site };
    for (int64_t i = 0; i < block; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        hs_dtype_store(tensor->dtype, host, i, 0.5 * normal[0]);
    }
    const HsStatus status = place_repeated(context, host, block_bytes, bytes, &tensor->data);
    free(host);
    return status;
}

/* Codes of both signs below 2, and bytes of block scales that are as good as any other: their speed is the same. */
static HsStatus fill_codes(HsContext *context, HsCodes *codes, uint32_t site)
{
    HsDevice *device = context->device;
    const HsScaling scaling = { .scale = 1.0f, .inverse = 1.0f };
    const HsRng rng = { .seed = 1, .site = site };
    const size_t bytes = hs_codes_bytes(codes), block = bytes < BLOCK ? bytes : BLOCK;
    unsigned char *const host = malloc(BLOCK);
    if (!host)
        return hs_fail(HS_ENOMEM, "no memory for %zu random codes", block);
    for (size_t i = 0; i < block; i++)
        host[i] = (unsigned char)(hs_rng_draw(&rng, i).word[0] & 0xB7u);
    void *memory = NULL;
    const HsStatus status = place_repeated(context, host, block, bytes, &memory);
    free(host);
    hs_codes_place(codes, memory);
    HS_TRY(status);
    HS_TRY(device->alloc(device, sizeof scaling, &memory));
    codes->scaling = memory;
    HS_TRY(device->copy(device, context->stream, codes->scaling, &scaling, sizeof scaling));
    return device->stream_sync(device, context->stream);
}

static HsStatus make_sets(Tuning *tuning, const HsMatmulArgs *args)
{
    const size_t wanted = tuning->engine->emulated ? 1 : uncached_bytes / operand_bytes(args) + 1;
    tuning->set_count = (int)(wanted < MOST_SETS ? wanted : MOST_SETS);
    tuning->next_set = 0;
    for (int set = 0; set < tuning->set_count; set++) {
        HsMatmulArgs *const own = &tuning->sets[set];
        *own = *args;
        FOR_OPERANDS(row)
        tensor_of(own, row)->data = NULL; /* a dry run's are places that are not there */
    }
    for (int set = 0; set < tuning->set_count; set++) {
        HsContext *const context = &tuning->engine->context;
        uint32_t site = (uint32_t)(set * (HS_MOST_OPERANDS + 2));
        FOR_OPERANDS(row)
        if (has_numbers(&tuning->sets[set], row))
            HS_TRY(fill(context, tensor_of(&tuning->sets[set], row), site++));
        HsOperand *const operands[] = { &tuning->sets[set].a, &tuning->sets[set].b };
        for (int i = 0; i < 2; i++)
            if (operands[i]->layout == HS_LAYOUT_CODES)
                HS_TRY(fill_codes(context, &operands[i]->codes, site++));
    }
    return HS_OK;
}

static void release_sets(Tuning *tuning)
{
    HsDevice *device = &tuning->engine->device;
    for (int set = 0; set < tuning->set_count; set++) {
        FOR_OPERANDS(row)
        {
            HsTensor *tensor = tensor_of(&tuning->sets[set], row);
            if (hs_tensor_present(tensor) && tensor->data)
                device->release(device, tensor->data);
        }
        const HsOperand *const operands[] = { &tuning->sets[set].a, &tuning->sets[set].b };
        for (int i = 0; i < 2; i++) {
            const HsCodes *const codes = hs_codes_of(operands[i]);
            if (codes && codes->data)
                device->release(device, codes->data);
            if (codes && codes->scaling)
                device->release(device, codes->scaling);
        }
    }
    tuning->set_count = 0;
}

/* --- one choice --- */

static HsStatus take(Tuning *tuning, Candidate *candidate)
{
    const HsTuningTable table = { .device = tuning->device, .rows = &candidate->row, .count = 1 };
    return tuning->engine->tuner->use(&tuning->engine->device, &table, "a choice to measure");
}

static HsStatus plan(Tuning *tuning, Candidate *candidate)
{
    HsContext dry = tuning->engine->context;
    HS_TRY(take(tuning, candidate));
    dry.dry_run = true;
    dry.workspace_needed = 0;
    HS_TRY(hs_op_matmul(&dry, &tuning->sets[0]));
    candidate->workspace_bytes = dry.workspace_needed;
    return HS_OK;
}

/* Milliseconds of a call, of the choice that was taken last. */
static HsStatus sample(Tuning *tuning, int calls, double *ms)
{
    HsContext *context = &tuning->engine->context;
    HsDevice *device = context->device;
    HS_TRY(device->event_record(device, tuning->start, context->stream));
    for (int i = 0; i < calls; i++) {
        HS_TRY(hs_op_matmul(context, &tuning->sets[tuning->next_set]));
        tuning->next_set = (tuning->next_set + 1) % tuning->set_count;
    }
    HS_TRY(device->event_record(device, tuning->stop, context->stream));
    HS_TRY(device->event_elapsed_ms(device, tuning->start, tuning->stop, ms));
    *ms /= calls;
    return HS_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static HsStatus time_candidates(Tuning *tuning)
{
    double ms, total_ms = 0.0;
    for (int c = 0; c < tuning->count; c++) {
        Candidate *candidate = &tuning->candidates[c];
        candidate->calls = 1;
        if (tuning->engine->emulated)
            continue;
        HS_TRY(take(tuning, candidate));
        HS_TRY(sample(tuning, 2, &ms)); /* the first call loads the kernel */
        HS_TRY(sample(tuning, 1, &ms));
        /* Events resolve half a microsecond: samples of milliseconds hide it. */
        candidate->calls = ms * MOST_CALLS > sample_ms ? (int)(sample_ms / ms) + 1 : MOST_CALLS;
    }
    int rounds = 0;
    const int least = tuning->engine->emulated ? 1 : LEAST_ROUNDS;
    while (rounds < least ||
           (total_ms < 1e3 * seconds_a_product && rounds < MOST_ROUNDS && !tuning->engine->emulated)) {
        for (int c = 0; c < tuning->count; c++) {
            Candidate *candidate = &tuning->candidates[c];
            HS_TRY(take(tuning, candidate));
            HS_TRY(sample(tuning, candidate->calls, &candidate->ms[rounds]));
            total_ms += candidate->ms[rounds] * candidate->calls;
        }
        rounds++;
    }
    for (int c = 0; c < tuning->count; c++) {
        Candidate *candidate = &tuning->candidates[c];
        qsort(candidate->ms, (size_t)rounds, sizeof *candidate->ms, compare_doubles);
        candidate->median_ms = candidate->ms[rounds / 2];
    }
    return HS_OK;
}

/* --- one product --- */

static void list_candidates(Tuning *tuning, const HsMatmulArgs *args)
{
    HsProductChoice choices[MOST_CHOICES];
    tuning->count = tuning->engine->tuner->choices(&tuning->engine->context, args, choices, MOST_CHOICES);
    for (int c = 0; c < tuning->count; c++) {
        Candidate *candidate = &tuning->candidates[c];
        *candidate = (Candidate){ .choice = choices[c] };
        candidate->row = (HsTuningRow){ .key = hs_product_key(args), .slices = choices[c].slices };
        memcpy(candidate->row.kernel, choices[c].kernel, sizeof candidate->row.kernel);
    }
}

/* The workspace of the neediest choice serves all. */
static HsStatus measure_in_workspace(Tuning *tuning)
{
    HsContext *context = &tuning->engine->context;
    size_t bytes = 0;
    for (int c = 0; c < tuning->count; c++) {
        HS_TRY(plan(tuning, &tuning->candidates[c]));
        if (tuning->candidates[c].workspace_bytes > bytes)
            bytes = tuning->candidates[c].workspace_bytes;
    }
    void *workspace = NULL;
    if (bytes > 0)
        HS_TRY(context->device->alloc(context->device, bytes, &workspace));
    context->workspace = workspace;
    context->workspace_bytes = bytes;
    HsStatus status = time_candidates(tuning);
    const HsStatus synced = context->device->stream_sync(context->device, context->stream);
    if (workspace)
        context->device->release(context->device, workspace);
    context->workspace = NULL;
    context->workspace_bytes = 0;
    return status == HS_OK ? synced : status;
}

static const Candidate *winner(const Tuning *tuning)
{
    const Candidate *best = &tuning->candidates[0];
    for (int c = 1; c < tuning->count; c++)
        if (tuning->candidates[c].median_ms < best->median_ms)
            best = &tuning->candidates[c];
    return best->median_ms * least_gain < tuning->candidates[0].median_ms ? best : &tuning->candidates[0];
}

static void print_choice(FILE *out, const HsProductChoice *choice)
{
    fprintf(out, " %s", choice->kernel);
    if (choice->slices > 1)
        fprintf(out, " /%d", choice->slices);
    fprintf(out, " |");
}

static void print_product(const HsTuningRow *row, const Candidate *model, const Candidate *best, FILE *out)
{
    fprintf(out, "| %" PRId64 " x %" PRId64 " x %" PRId64 " | %s | %s |", row->key.m, row->key.n, row->key.k,
            hs_product_layout_name(&row->key), hs_product_format_name(row->key.format));
    print_choice(out, &model->choice);
    fprintf(out, " %.4g | %.4g |", model->choice.predicted_us, 1e3 * model->median_ms);
    print_choice(out, &best->choice);
    fprintf(out, " %.4g | %.2f |\n", 1e3 * best->median_ms,
            best->median_ms > 0.0 ? model->median_ms / best->median_ms : 1.0);
    fflush(out);
}

static HsStatus tune_product(Tuning *tuning, const HsMatmulArgs *args, HsTuningRow *row, FILE *out)
{
    list_candidates(tuning, args);
    HsStatus status = make_sets(tuning, args);
    if (status == HS_OK)
        status = measure_in_workspace(tuning);
    release_sets(tuning);
    HS_TRY(status);
    const Candidate *best = winner(tuning);
    *row = best->row;
    row->microseconds = 1e3 * best->median_ms;
    print_product(row, &tuning->candidates[0], best, out);
    return HS_OK;
}

/* --- all of them --- */

static HsStatus tune_all(Tuning *tuning, const HsTuneList *list, const char *path, FILE *out)
{
    HsDevice *device = &tuning->engine->device;
    HsTuningTable table = { .device = tuning->device, .rows = calloc((size_t)list->count + 1, sizeof *table.rows) };
    if (!table.rows)
        return hs_fail(HS_ENOMEM, "no memory for a table of %d products", list->count);
    fprintf(out,
            "| M x N x K | layout | format | model's choice | predicted us | measured us | best | measured us | gain "
            "|\n|---|---|---|---|---|---|---|---|---|\n");
    HsStatus status = device->event_create(device, &tuning->start);
    if (status == HS_OK)
        status = device->event_create(device, &tuning->stop);
    for (; status == HS_OK && table.count < list->count; table.count++)
        status = tune_product(tuning, &list->products[table.count], &table.rows[table.count], out);
    if (tuning->start)
        device->event_destroy(device, tuning->start);
    if (tuning->stop)
        device->event_destroy(device, tuning->stop);
    hs_tuning_sort(&table);
    if (status == HS_OK)
        status = hs_tuning_write(path, &table);
    if (status == HS_OK)
        fprintf(out, "\n%d choices in %s: set kernels.tuning to it\n", table.count, path);
    if (status == HS_OK && list->left_out > 0)
        fprintf(out, "%d more products did not fit in the list: the model chooses for them\n", list->left_out);
    hs_tuning_deinit(&table);
    return status;
}

HsStatus hs_tune_run(HsEngine *engine, const HsTuneList *list, const char *path, FILE *out)
{
    if (!engine->tuner)
        return hs_fail(HS_ECONFIG, "--tune measures a GPU's kernels, and this is %s: add --device cuda", engine->why);
    Tuning *tuning = calloc(1, sizeof *tuning);
    if (!tuning)
        return hs_fail(HS_ENOMEM, "no memory to measure products");
    tuning->engine = engine;
    engine->tuner->describe(&engine->device, &tuning->device);
    if (engine->emulated)
        fprintf(out, "Emulated: these times say nothing about any hardware.\n\n");
    HsStatus status = tune_all(tuning, list, path, out);
    free(tuning);
    const HsStatus cleared = engine->tuner->use(&engine->device, NULL, "");
    return status == HS_OK ? cleared : status;
}
