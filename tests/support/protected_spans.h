/* SPDX-License-Identifier: MIT
 *
 * Parameters for tests of penalties: three spans on the reference backend, a quadratic loss, and scripted gradients for
 * the Fisher information.  Functions are in the header so that the tests of optim/ do not link the runtime.
 */
#ifndef HS_TESTS_SUPPORT_PROTECTED_SPANS_H
#define HS_TESTS_SUPPORT_PROTECTED_SPANS_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "optim/continual/continual.h"

enum { SPANS = 3, COUNT = 16, FISHER_SAMPLES = 3, EXCLUDED = 2 };

#define SPANS_OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

/* a: f32.  b: bf16 with a master and a bf16 gradient.  c: f32, excluded. */
typedef struct ProtectedSpans {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan spans[SPANS];
    float weight[SPANS][COUNT], master[COUNT], state[SPANS][2][COUNT], gradient[SPANS][COUNT];
    uint16_t weight16[COUNT], gradient16[COUNT];
} ProtectedSpans;

static const HsOptimizerConfig plain_sgd = { .kind = HS_OPTIMIZER_SGD };
static const HsOptimizerConfig plain_adamw = {
    .kind = HS_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1
};

static inline double spans_load(const HsTensor *tensor, int i)
{
    return hs_dtype_load(tensor->dtype, tensor->data, i);
}

/* The parameter as the optimizer holds it. */
static inline double spans_parameter(const ProtectedSpans *fixture, int s, int i)
{
    return s == 1 ? (double)fixture->master[i] : (double)fixture->weight[s][i];
}

static inline void spans_set_parameter(ProtectedSpans *fixture, int s, int i, double value)
{
    hs_dtype_store(fixture->spans[s].weight.dtype, fixture->spans[s].weight.data, i, value);
    if (s == 1)
        fixture->master[i] = (float)value;
}

static inline double spans_start(int s, int i)
{
    return (double)((i * 7 + s * 3) % 11 - 5) / 8.0; /* exact in bf16 */
}

static inline void spans_init(ProtectedSpans *fixture, const HsOptimizerConfig *config, double rate, double loss_scale)
{
    static const char *const names[SPANS] = { "a", "b", "c" };
    memset(fixture, 0, sizeof *fixture);
    SPANS_OK(hs_device_host_init(&fixture->device));
    fixture->context = (HsContext){ .backend = hs_backend_ref(), .device = &fixture->device, .threads = 1 };
    HsSchedule schedule;
    SPANS_OK(hs_schedule_init(&schedule, "constant", rate, 0, 0, 1, 0));
    const HsScalerConfig scaler = { .kind = HS_SCALER_STATIC,
                                    .init_scale = loss_scale,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .min_scale = 1,
                                    .max_scale = 1e30,
                                    .growth_interval = 1000,
                                    .hysteresis = 1 };
    SPANS_OK(hs_optimizer_init(&fixture->optimizer, &fixture->device, config, &schedule, &scaler, SPANS));
    for (int s = 0; s < SPANS; s++) {
        HsSpan *span = &fixture->spans[s];
        *span = (HsSpan){ .name = names[s],
                          .parameter = s,
                          .count = COUNT,
                          .decay = s == 0,
                          .learning_rate_scale = s == 1 ? 0.5f : 1.0f,
                          .weight = hs_tensor_1d(fixture->weight[s], HS_F32, COUNT),
                          .gradient = hs_tensor_1d(fixture->gradient[s], HS_F32, COUNT),
                          .excluded = s == EXCLUDED };
        if (s == 1) {
            span->weight = hs_tensor_1d(fixture->weight16, HS_BF16, COUNT);
            span->master = hs_tensor_1d(fixture->master, HS_F32, COUNT);
            span->gradient = hs_tensor_1d(fixture->gradient16, HS_BF16, COUNT);
        }
        for (int n = 0; n < hs_optimizer_state_count(config, span); n++)
            span->state[n] = hs_tensor_1d(fixture->state[s][n], HS_F32, COUNT);
        for (int i = 0; i < COUNT; i++)
            spans_set_parameter(fixture, s, i, spans_start(s, i));
    }
}

/* Everything that was allocated is released by now. */
static inline void spans_deinit(ProtectedSpans *fixture)
{
    hs_optimizer_deinit(&fixture->optimizer);
    cr_expect_eq(fixture->device.current_bytes, 0);
}

/* Gradients of the loss  1/2 sum h (p - target)^2  of a task, scaled, in the spans' own dtypes. */
static inline void spans_set_gradients(ProtectedSpans *fixture, int task)
{
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double curvature = 0.5 + (double)((i + s) % 5) / 4.0;
            const double target = (double)((i * 5 + s * 2 + task * 7) % 13 - 6) / 16.0;
            const double gradient = curvature * (spans_parameter(fixture, s, i) - target);
            hs_dtype_store(fixture->spans[s].gradient.dtype, fixture->spans[s].gradient.data, i,
                           gradient * (double)fixture->optimizer.counters.loss_scale);
        }
}

/* What is in the spans, without the loss scale. */
static inline double spans_gradient(const ProtectedSpans *fixture, int s, int i)
{
    return spans_load(&fixture->spans[s].gradient, i) / (double)fixture->optimizer.counters.loss_scale;
}

static inline HsStepReport spans_step(ProtectedSpans *fixture)
{
    HsStepReport report;
    SPANS_OK(hs_optimizer_step(&fixture->optimizer, &fixture->context, fixture->spans, SPANS, &report));
    return report;
}

static inline void spans_train(ProtectedSpans *fixture, int task, int steps)
{
    for (int n = 0; n < steps; n++) {
        spans_set_gradients(fixture, task);
        spans_step(fixture);
    }
}

static inline bool spans_equal(const ProtectedSpans *a, const ProtectedSpans *b)
{
    return memcmp(a->weight, b->weight, sizeof a->weight) == 0 && memcmp(a->master, b->master, sizeof a->master) == 0 &&
           memcmp(a->weight16, b->weight16, sizeof a->weight16) == 0 &&
           memcmp(a->state, b->state, sizeof a->state) == 0;
}

/* Gradients for the Fisher information of a task: multiples of 1/64 below 1, exact in every dtype. */
typedef struct ScriptedFisher {
    ProtectedSpans *fixture;
    int task, next;
    double size;  /* gradients are multiplied by it; 0: none */
    int without;  /* this span's are 0; -1: no such span */
    double count; /* of each sample */
} ScriptedFisher;

static inline ScriptedFisher fisher_of(ProtectedSpans *fixture, int task)
{
    return (ScriptedFisher){ .fixture = fixture, .task = task, .size = 1, .without = -1, .count = 5 };
}

static inline double fisher_gradient(const ScriptedFisher *fisher, int s, int sample, int i)
{
    const int value = (i * 13 + s * 29 + sample * 17 + fisher->task * 7) % 101 - 50;
    return s == fisher->without ? 0.0 : fisher->size * (double)value / 64.0;
}

static inline HsFisherSample fisher_sample(const ScriptedFisher *fisher, int sample)
{
    return (HsFisherSample){ .multiplier = sample == 1 ? 0.5f : 2.0f,
                             .weight = 0.75f * (float)(sample + 1),
                             .count = fisher->count };
}

static inline HsStatus fisher_next(void *user, HsFisherSample *sample)
{
    ScriptedFisher *fisher = user;
    ProtectedSpans *fixture = fisher->fixture;
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(spans_load(&fixture->spans[s].gradient, i), 0.0, "%s: the sample before is cleared",
                         fixture->spans[s].name);
    if (fisher->next == FISHER_SAMPLES) {
        *sample = (HsFisherSample){ .end = true };
        return HS_OK;
    }
    *sample = fisher_sample(fisher, fisher->next);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            hs_dtype_store(fixture->spans[s].gradient.dtype, fixture->spans[s].gradient.data, i,
                           fisher_gradient(fisher, s, fisher->next, i));
    fisher->next++;
    return HS_OK;
}

/* The definition, in double:  F = 1/count sum weight (multiplier grad)^2. */
static inline double fisher_exact(const ScriptedFisher *fisher, int s, int i)
{
    double sum = 0, count = 0;
    for (int n = 0; n < FISHER_SAMPLES; n++) {
        const HsFisherSample sample = fisher_sample(fisher, n);
        const double g = (double)sample.multiplier * fisher_gradient(fisher, s, n, i);
        sum += (double)sample.weight * g * g;
        count += sample.count;
    }
    return sum / count;
}

static inline HsStatus spans_end_task(HsContinual *continual, ProtectedSpans *fixture, ScriptedFisher fisher)
{
    HsFisherSource source = { .user = &fisher, .next = fisher_next };
    return hs_continual_after_task(continual, &fixture->context, fisher.task, &source);
}

static inline HsContinual *spans_protect(ProtectedSpans *fixture, const HsContinualConfig *config)
{
    HsContinual *continual = NULL;
    SPANS_OK(hs_continual_create(config, &fixture->context, fixture->spans, SPANS, &continual));
    return continual;
}

static inline double spans_penalty(HsContinual *continual, ProtectedSpans *fixture)
{
    double value = NAN;
    SPANS_OK(hs_continual_penalty(continual, &fixture->context, &value));
    return value;
}

#endif
