/* SPDX-License-Identifier: MIT
 *
 * Training steps of several ranks, threads of this process, each with its own model and its part of the batch,
 * against one rank with the whole batch: in the order of runtime/train/step.c, with its reductions.
 *
 * Rows do not mix, and ref rounds a parameter's gradient once a micro-batch: N ranks differ from one by the roundings
 * of N gradients and of their sums.
 */
#include <math.h>
#include <pthread.h>

#include "kernels/base/comm_threads.h"
#include "kernels/base/tolerance.h"
#include "runtime/exchange/reduce.h"
#include "tests/support/tiny_model.h"

enum { BATCH = 4, LENGTH = 5, RANKS_MOST = 4, STEPS = 2, PARAMS_MOST = 64 };
static const double RATE = 0.125;

typedef struct Rank {
    TinyModel tiny;
    HsComm *comm;
    HsOptimizer optimizer;
    HsSpan spans[PARAMS_MOST];
    int span_count;
    int poisoned_step; /* one of this rank's gradients is made infinite there; -1: none */
    bool fails;        /* gives up instead of its second step */
    /* what came out */
    HsStatus status;
    HsStepReport reports[STEPS];
    double loss[STEPS];
    int64_t counted;
    float *local, *reduced; /* gradients of the first step, before and after the sum */
} Rank;

static size_t elements_of(const Rank *rank)
{
    size_t count = 0;
    for (int s = 0; s < rank->span_count; s++)
        count += (size_t)hs_tensor_count(&rank->spans[s].gradient);
    return count;
}

static void copy_gradients(const Rank *rank, float *to)
{
    for (int s = 0; s < rank->span_count; s++)
        for (int64_t i = 0; i < hs_tensor_count(&rank->spans[s].gradient); i++)
            *to++ = (float)hs_dtype_load(rank->spans[s].gradient.dtype, rank->spans[s].gradient.data, i);
}

static TinySpec spec_of(const char *mode, bool gradients_in_16_bits, int size)
{
    return (TinySpec){ .family = "gpt2",
                       .mode = mode,
                       .layers = 2,
                       .heads = 2,
                       .width = 8,
                       .vocabulary = 13,
                       .batch = BATCH / size,
                       .length = LENGTH,
                       .bias = true,
                       .dropout = 0.25,
                       .head_chunk = 4096,
                       .gradients_in_16_bits = gradients_in_16_bits };
}

/* The rank's rows are those of the whole batch; one rank's targets are all ignored when there are four. */
static void create(Rank *rank, const TinySpec *spec, HsComm *comm)
{
    static const HsOptimizerConfig rule = { .kind = HS_OPTIMIZER_SGD };
    const HsScalerConfig scaler = { .kind = HS_SCALER_DYNAMIC,
                                    .init_scale = 64,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .min_scale = 1,
                                    .max_scale = 1024,
                                    .growth_interval = 1000,
                                    .hysteresis = 1 };
    TinySpec whole_spec = *spec;
    TinyModel whole;
    HsSchedule schedule;
    memset(rank, 0, sizeof *rank);
    rank->comm = comm;
    rank->poisoned_step = -1;
    whole_spec.batch = BATCH;
    tiny_create(&whole, whole_spec);
    for (int64_t i = 2 * LENGTH; i < 3 * LENGTH; i++)
        whole.targets[i] = -1;
    tiny_create(&rank->tiny, *spec);
    const size_t offset = (size_t)(comm->rank * rank->tiny.rows), rows = (size_t)rank->tiny.rows;
    memcpy(rank->tiny.tokens, whole.tokens + offset, rows * sizeof *whole.tokens);
    memcpy(rank->tiny.targets, whole.targets + offset, rows * sizeof *whole.targets);
    rank->tiny.counted = 0;
    for (size_t i = 0; i < rows; i++)
        rank->tiny.counted += rank->tiny.targets[i] >= 0;
    tiny_destroy(&whole);

    cr_assert_leq(rank->tiny.model.param_count, PARAMS_MOST);
    rank->span_count = hs_model_spans(&rank->tiny.model, rank->spans);
    tiny_clear_gradients(&rank->tiny);
    TINY_OK(hs_schedule_init(&schedule, "constant", RATE, 0, 0, 1, 0));
    TINY_OK(hs_optimizer_init(&rank->optimizer, &rank->tiny.device, &rule, &schedule, &scaler, rank->span_count));
    rank->local = malloc(elements_of(rank) * sizeof *rank->local);
    rank->reduced = malloc(elements_of(rank) * sizeof *rank->reduced);
    cr_assert(rank->local && rank->reduced);
}

static void destroy(Rank *rank)
{
    hs_optimizer_deinit(&rank->optimizer);
    tiny_destroy(&rank->tiny);
    free(rank->local);
    free(rank->reduced);
}

/* As runtime/train/step.c does it; on the host's memory everything is there at once. */
static HsStatus step(Rank *rank, int index)
{
    TinyModel *tiny = &rank->tiny;
    HsContext *context = &tiny->context;
    HsOptimizer *optimizer = &rank->optimizer;
    float losses[BATCH * LENGTH];
    int64_t counted[HS_STEP_ROWS] = { [HS_ROWS_TRAINED] = tiny->counted };
    HS_TRY(hs_comm_all_reduce(rank->comm, NULL, counted, HS_STEP_ROWS, HS_I64, HS_COMM_SUM));
    HS_TRY(hs_optimizer_announce(optimizer, context, counted[HS_ROWS_TRAINED], 0, optimizer->input));
    HS_TRY(hs_optimizer_begin(optimizer, context));
    const HsProgramFeed feed = { .tokens = tiny->tokens,
                                 .targets = tiny->targets,
                                 .seed = 11,
                                 .step_counter = &optimizer->state->attempt,
                                 .gradient_scale = &optimizer->gradient_scales[HS_ROWS_TRAINED],
                                 .row_offset = rank->comm->rank * tiny->rows,
                                 .losses = losses };
    HS_TRY(hs_program_train_queued(&tiny->train, context, &feed));
    if (index == rank->poisoned_step)
        hs_dtype_store(rank->spans[1].gradient.dtype, rank->spans[1].gradient.data, 2, INFINITY);
    if (index == 0)
        copy_gradients(rank, rank->local);
    HS_TRY(hs_reduce_gradients(rank->comm, NULL, rank->spans, rank->span_count));
    if (index == 0)
        copy_gradients(rank, rank->reduced);
    HS_TRY(hs_optimizer_update(optimizer, context, rank->spans, rank->span_count));
    hs_optimizer_collect(optimizer, optimizer->outcome, &rank->reports[index]);

    int64_t count = tiny->counted;
    rank->loss[index] = 0;
    for (int64_t row = 0; row < tiny->rows; row++)
        rank->loss[index] += tiny->targets[row] >= 0 ? (double)losses[row] : 0;
    HS_TRY(hs_comm_all_reduce(rank->comm, NULL, &rank->loss[index], 1, HS_F64, HS_COMM_SUM));
    HS_TRY(hs_comm_all_reduce(rank->comm, NULL, &count, 1, HS_I64, HS_COMM_SUM));
    rank->counted = count;
    return HS_OK;
}

static void *train(void *argument)
{
    Rank *rank = argument;
    for (int i = 0; i < STEPS && rank->status == HS_OK; i++) {
        if (i == 1 && rank->fails) {
            hs_comm_abort(rank->comm, hs_error_message());
            rank->status = HS_ENOMEM;
        } else {
            rank->status = step(rank, i);
        }
    }
    return NULL;
}

static Rank alone, ranks[RANKS_MOST];

static HsCommThreads *create_ranks(const char *mode, bool gradients_in_16_bits, int size)
{
    HsCommThreads *group;
    const TinySpec spec = spec_of(mode, gradients_in_16_bits, size);
    TINY_OK(hs_comm_threads_create(size, &group));
    for (int r = 0; r < size; r++)
        create(&ranks[r], &spec, hs_comm_threads_rank(group, r));
    return group;
}

static void run_ranks(int size)
{
    pthread_t threads[RANKS_MOST];
    for (int r = 0; r < size; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, train, &ranks[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

static void destroy_ranks(HsCommThreads *group, int size)
{
    for (int r = 0; r < size; r++)
        destroy(&ranks[r]);
    hs_comm_threads_destroy(group);
}

static void expect_equal_ranks(int size)
{
    for (int r = 0; r < size; r++) {
        cr_assert_eq(ranks[r].status, HS_OK, "rank %d", r);
        cr_expect_eq(memcmp(ranks[r].reports, ranks[0].reports, sizeof ranks[0].reports), 0, "reports of rank %d", r);
        cr_expect_eq(memcmp(ranks[r].loss, ranks[0].loss, sizeof ranks[0].loss), 0, "losses of rank %d", r);
        for (int s = 0; s < ranks[r].span_count; s++) {
            const HsTensor *one = &ranks[0].spans[s].weight, *own = &ranks[r].spans[s].weight;
            cr_expect_eq(memcmp(own->data, one->data, hs_tensor_bytes(one)), 0, "%s of rank %d", ranks[r].spans[s].name,
                         r);
        }
    }
}

/* The first step's gradients, and weights after two steps, of which the second saw weights within the bound: its own
 * gradients are only compared between ranks. */
static void expect_near_whole(int size)
{
    const size_t elements = elements_of(&alone);
    const HsDtype stored = alone.spans[0].gradient.dtype;
    size_t differing = 0;
    for (size_t i = 0; i < elements; i++) {
        double magnitude = 0;
        for (int r = 0; r < size; r++)
            magnitude += fabs((double)ranks[r].local[i]);
        /* The parts were rounded themselves: one more rounding on each side. */
        const double whole = (double)alone.reduced[i], sum = (double)ranks[0].reduced[i];
        const double bound = hs_tolerance(size + 1, 2, stored, stored, magnitude, whole);
        cr_assert(fabs(sum - whole) <= bound, "element %zu: %g against %g, bound %g", i, sum, whole, bound);
        differing += sum != whole;
    }
    cr_expect(differing > 0, "the two would have to differ somewhere");
    cr_expect_eq(ranks[0].counted, alone.counted);
    /* Row losses have the same bits before the first update: only their sum in double has another order. */
    cr_expect_float_eq(ranks[0].loss[0], alone.loss[0],
                       hs_tolerance(BATCH * LENGTH, 0, HS_F64, HS_F64, alone.loss[0], alone.loss[0]));
}

static void check(const char *mode, bool gradients_in_16_bits, int size)
{
    const TinySpec whole = spec_of(mode, gradients_in_16_bits, 1);
    create(&alone, &whole, hs_comm_alone());
    train(&alone);
    cr_assert_eq(alone.status, HS_OK);
    cr_assert_eq(alone.reports[0].verdict, HS_SCALER_APPLY);
    HsCommThreads *group = create_ranks(mode, gradients_in_16_bits, size);
    run_ranks(size);
    expect_equal_ranks(size);
    cr_expect_eq(ranks[0].reports[STEPS - 1].verdict, HS_SCALER_APPLY);
    expect_near_whole(size);
    destroy_ranks(group, size);
    destroy(&alone);
}

Test(ranks, two_and_four_are_as_one)
{
    for (int size = 2; size <= RANKS_MOST; size *= 2) {
        check("fp32", false, size);
        check("bf16", false, size);
        check("bf16", true, size);
    }
}

/* One update of f32 weights: rate times the gradients' difference, and the roundings of unscaling, step and sum. */
Test(ranks, weights_after_a_step)
{
    const TinySpec whole = spec_of("fp32", false, 1);
    create(&alone, &whole, hs_comm_alone());
    cr_assert_eq(step(&alone, 0), HS_OK);
    HsCommThreads *group = create_ranks("fp32", false, 2);
    for (int r = 0; r < 2; r++)
        ranks[r].fails = true; /* one step is enough */
    run_ranks(2);
    size_t at = 0;
    const double scale = (double)alone.reports[0].loss_scale;
    for (int s = 0; s < alone.span_count; s++)
        for (int64_t i = 0; i < hs_tensor_count(&alone.spans[s].weight); i++, at++) {
            const double one = hs_dtype_load(HS_F32, alone.spans[s].weight.data, i);
            const double other = hs_dtype_load(HS_F32, ranks[0].spans[s].weight.data, i);
            const double magnitude = fabs((double)ranks[0].local[at]) + fabs((double)ranks[1].local[at]);
            const double gradients = hs_tolerance(3, 2, HS_F32, HS_F32, magnitude, (double)alone.reduced[at]) / scale;
            const double moved = RATE * magnitude / scale;
            const double bound = RATE * gradients + 2 * hs_tolerance(4, 0, HS_F32, HS_F32, fabs(one) + moved, one);
            cr_assert(fabs(one - other) <= bound, "%s: %g against %g, bound %g", alone.spans[s].name, one, other,
                      bound);
        }
    destroy_ranks(group, 2);
    destroy(&alone);
}

/* What one rank finds, all act upon: the step is skipped everywhere, and the loss scale falls everywhere. */
Test(ranks, a_non_finite_gradient_of_one_makes_all_skip)
{
    for (int poisoned = 0; poisoned < RANKS_MOST; poisoned++) {
        HsCommThreads *group = create_ranks("fp32", false, RANKS_MOST);
        ranks[poisoned].poisoned_step = 0;
        run_ranks(RANKS_MOST);
        expect_equal_ranks(RANKS_MOST);
        for (int r = 0; r < RANKS_MOST; r++) {
            cr_expect_eq(ranks[r].reports[0].verdict, HS_SCALER_SKIP, "rank %d", r);
            cr_expect_eq(ranks[r].reports[0].nonfinite_elements, 1);
            cr_expect_eq(ranks[r].reports[1].verdict, HS_SCALER_APPLY, "rank %d", r);
            cr_expect_eq(ranks[r].reports[1].loss_scale, 32.0f, "rank %d", r);
            cr_expect(ranks[r].optimizer.counters.applied_steps == 1 && ranks[r].optimizer.counters.skipped_steps == 1);
        }
        destroy_ranks(group, RANKS_MOST);
    }
}

Test(ranks, one_that_fails_ends_all, .timeout = 60)
{
    HsCommThreads *group = create_ranks("fp32", false, RANKS_MOST);
    ranks[2].fails = true;
    run_ranks(RANKS_MOST);
    for (int r = 0; r < RANKS_MOST; r++) {
        cr_expect_eq(ranks[r].status, r == 2 ? HS_ENOMEM : HS_EDEVICE, "rank %d", r);
        cr_expect_eq(ranks[r].optimizer.counters.applied_steps, 1, "rank %d", r);
    }
    destroy_ranks(group, RANKS_MOST);
}
