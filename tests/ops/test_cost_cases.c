/* SPDX-License-Identifier: MIT
 *
 * Bytes counted twice: kernels/checks/cost.c counts them from an operation's arguments, the self-test from its table of
 * operands.  On every case the two agree, and an observer gets the cost of each call once.  The backend computes
 * nothing, so shapes may be as large as they like and no memory is touched.
 *
 * They differ where the bytes depend on the data: the self-test counts the embedding's rows that random tokens name on
 * average, where the cost has all that they may name, and the penalty's tensors without an anchor as if they had one.
 * begin_step shares its records with prepare_step there, which writes the state.
 * pack_weight is left out, as this backend has no packed layout.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/ops/backend.h"
#include "runtime/selftest/selftest.h"
#include "runtime/selftest/speed.h"

#define IDLE(op, Args, formula)                                     \
    static HsStatus idle_##op(HsContext *context, const Args *args) \
    {                                                               \
        (void)context;                                              \
        (void)args;                                                 \
        return HS_OK;                                               \
    }
HS_OPS(IDLE)

#define IDLE_MEMBER(op, Args, formula) .op = idle_##op,
static const HsBackend idle_backend = { .name = "idle", HS_OPS(IDLE_MEMBER) };

/* Keeps the cost of the first call of the operation that is asked for. */
typedef struct Listener {
    HsObserver observer; /* first: the context holds its address */
    const char *op;
    int calls;
    HsOpCost cost;
} Listener;

static void listen(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    Listener *listener = (Listener *)observer;
    (void)context;
    cr_assert(kind == HS_RANGE_OPERATION && cost, "%s came without a cost", name);
    if (strcmp(name, listener->op) != 0)
        return;
    if (listener->calls++ == 0)
        listener->cost = *cost;
}

static void ignore(HsObserver *observer, HsContext *context)
{
    (void)observer;
    (void)context;
}

static void expect_agreement(const char *op, const HsOpTest *test, const HsCase *config)
{
    static char
        places[HS_TRIAL_OPERANDS]; /* an address for each operand: which are the same matters, no byte is read */
    char described[256];
    HsTrial trial = { .op = op, .test = test, .config = config };
    Listener listener = { .observer = { listen, ignore }, .op = op };
    HsContext context = { .backend = &idle_backend, .threads = 1, .observer = &listener.observer };
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    if (strcmp(op, "pack_weight") == 0)
        return;
    test->declare(&trial);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        tensors[i] = trial.operands[i].tensor;
        if (tensors[i].rank > 0)
            tensors[i].data = &places[i];
    }
    hs_trial_place_amax(&trial, tensors);
    cr_assert_eq(test->call(&trial, &context, tensors), HS_OK, "%s: %s", op, hs_error_message());
    /* What casts its result is repeated without, but where it adds to sums. */
    const bool repeated = config->cast != HS_F32 && strcmp(op, "norm_backward") != 0;
    cr_assert_eq(listener.calls, repeated ? 2 : 1, "%s: %d calls", op, listener.calls);
    const double expected = hs_speed_bytes(&trial, &context);
    const bool more = strncmp(op, "embedding", strlen("embedding")) == 0,
               fewer = strcmp(op, "penalty") == 0 || strcmp(op, "begin_step") == 0;
    const bool right = more    ? listener.cost.bytes >= expected
                       : fewer ? listener.cost.bytes <= expected
                               : listener.cost.bytes == expected;
    cr_expect(right, "%s, %s: %.0f bytes, the self-test says %.0f", op,
              hs_case_describe(config, described, sizeof described), listener.cost.bytes, expected);
}

static void expect_agreements(const char *op, const HsOpTest *test)
{
    for (int i = 0; i < test->case_count; i++)
        expect_agreement(op, test, &test->cases[i]);
    for (int i = 0; i < test->timed_count; i++)
        expect_agreement(op, test, &test->timed[i]);
}

#define EXPECT_AGREEMENTS(op, Args, formula)      \
    Test(cost_cases, op)                          \
    {                                             \
        expect_agreements(#op, &hs_op_test_##op); \
    }
HS_OPS(EXPECT_AGREEMENTS)
