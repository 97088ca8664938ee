/* SPDX-License-Identifier: MIT
 *
 * prepare_step and begin_step against the same decisions written out again, as one long function, over random runs of
 * clean and broken steps.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/ops/backend.h"

enum { TENSORS = 5, STEPS = 400 };

typedef struct Run {
    double sum_squares[TENSORS];
    int64_t nonfinite[TENSORS];
    HsStepInput input;
    HsStepState state;
    HsStepScalars scalars;
    HsStepOutcome outcome;
} Run;

/* Expectations, in the order in which a step takes its decisions. */
static void transcribe(const Run *run, const HsPrepareStepArgs *args, HsStepState *state, HsStepScalars *scalars,
                       HsStepOutcome *outcome)
{
    double total = 0, scale = (double)state->counters.loss_scale;
    int64_t broken = 0;
    outcome->first_nonfinite = -1;
    for (int i = 0; i < TENSORS; i++) {
        total += run->sum_squares[i];
        broken += run->nonfinite[i];
        if (run->nonfinite[i] && outcome->first_nonfinite == -1)
            outcome->first_nonfinite = i;
    }
    outcome->loss_scale = state->counters.loss_scale;
    outcome->nonfinite_elements = broken;
    outcome->gradient_norm = broken ? INFINITY : sqrt(total) / scale;

    HsScalerVerdict verdict = HS_SCALER_APPLY;
    if (state->halted) {
        verdict = HS_SCALER_SKIP;
    } else if (broken && !args->scaling.dynamic) {
        verdict = HS_SCALER_HOPELESS;
    } else if (broken) {
        verdict = HS_SCALER_SKIP;
        state->counters.scaler_tracker = 0;
        if (state->counters.scaler_hysteresis > 1) {
            state->counters.scaler_hysteresis--;
        } else if (scale <= args->scaling.min_scale) {
            verdict = HS_SCALER_HOPELESS;
        } else {
            double lower = scale * args->scaling.backoff_factor;
            state->counters.loss_scale = (float)(lower > args->scaling.min_scale ? lower : args->scaling.min_scale);
        }
    } else if (args->scaling.dynamic && ++state->counters.scaler_tracker == args->scaling.growth_interval) {
        double higher = scale * args->scaling.growth_factor;
        state->counters.loss_scale = (float)(higher < args->scaling.max_scale ? higher : args->scaling.max_scale);
        state->counters.scaler_tracker = 0;
        state->counters.scaler_hysteresis = args->scaling.hysteresis;
    }
    const bool apply = verdict == HS_SCALER_APPLY;
    double clip = 1;
    if (apply && args->clip_norm > 0 && args->clip_norm < outcome->gradient_norm + 1e-6)
        clip = args->clip_norm / (outcome->gradient_norm + 1e-6);
    outcome->verdict = (int32_t)verdict;
    outcome->clip_coefficient = clip;
    outcome->learning_rate = run->input.learning_rates[state->counters.schedule_steps - run->input.first_schedule_step];
    const double rate = outcome->learning_rate * sqrt(1 - pow(args->beta2, (double)(state->counters.moment_steps + 1)));
    const double largest = rate > state->counters.largest_rate ? rate : state->counters.largest_rate;
    const double squares = state->counters.rate_squares + largest * largest;
    *scalars = (HsStepScalars){
        .learning_rate = (float)outcome->learning_rate,
        .momentum = (float)run->input.momenta[state->counters.schedule_steps - run->input.first_schedule_step],
        .gradient_multiplier = (float)(clip / scale),
        .bias_correction1 = (float)(1 - pow(args->beta1, (double)(state->counters.moment_steps + 1))),
        .bias_correction2 = (float)(1 - pow(args->beta2, (double)(state->counters.moment_steps + 1))),
        .unscale = (float)(1 / scale),
        .free_rate = (float)rate,
        .free_weight = (float)(largest * largest / squares),
        .average_rate =
            apply ? (float)fmax(1 - args->average_decay, 1 / (double)(state->counters.moment_steps + 1)) : 0,
        .skip = !apply,
    };
    state->update_step = (uint32_t)state->counters.applied_steps;
    if (apply) {
        state->counters.applied_steps++;
        state->counters.schedule_steps++;
        state->counters.moment_steps++;
        state->counters.largest_rate = largest;
        state->counters.rate_squares = squares;
    } else {
        state->counters.skipped_steps++;
    }
    state->halted |= verdict == HS_SCALER_HOPELESS;
    state->attempt = (uint32_t)(state->counters.applied_steps + state->counters.skipped_steps);
    outcome->state = *state;
}

static void draw_gradients(Run *run, int step)
{
    const HsRng rng = { .seed = 5, .step = (uint32_t)step };
    for (int i = 0; i < TENSORS; i++) {
        const HsPhilox bits = hs_rng_draw(&rng, (uint64_t)i);
        run->sum_squares[i] = exp2(20 * (double)hs_rng_uniform(bits.word[0]));
        run->nonfinite[i] = bits.word[1] % 31 == 0 ? bits.word[2] % 4 : 0;
    }
}

static void follow(const HsLossScaling *scaling, double clip_norm, bool stops)
{
    HsContext context = { .backend = hs_backend_ref(), .threads = 1 };
    Run run = { .state = { .counters = { .scaler_hysteresis = scaling->hysteresis, .loss_scale = 1024.0f } } };
    HsStepState expected = run.state;
    int64_t applied = 0, skipped = 0;
    for (int step = 0; step < STEPS; step++) {
        draw_gradients(&run, step);
        run.input = (HsStepInput){ .first_schedule_step = run.state.counters.schedule_steps - step % HS_STEPS_AHEAD };
        for (int i = 0; i < HS_STEPS_AHEAD; i++) {
            run.input.learning_rates[i] = 1e-3 / (double)(abs(step - STEPS / 4) + i + 1); /* it rises and falls */
            run.input.momenta[i] = 1 - 0.1 / (double)(step + i + 1);
        }
        const HsPrepareStepArgs args = { .sum_squares = run.sum_squares,
                                         .nonfinite = run.nonfinite,
                                         .count = TENSORS,
                                         .input = &run.input,
                                         .beta1 = 0.9,
                                         .beta2 = 0.999,
                                         .clip_norm = clip_norm,
                                         .average_decay = 0.99,
                                         .scaling = *scaling,
                                         .state = &run.state,
                                         .scalars = &run.scalars,
                                         .outcome = &run.outcome };
        HsStepScalars scalars = { 0 };
        HsStepOutcome outcome = { 0 };
        transcribe(&run, &args, &expected, &scalars, &outcome);
        cr_assert_eq(hs_op_prepare_step(&context, &args), HS_OK, "%s", hs_error_message());
        cr_assert_eq(memcmp(&run.scalars, &scalars, sizeof scalars), 0, "scalars of step %d", step);
        cr_assert_eq(memcmp(&run.outcome, &outcome, sizeof outcome), 0, "outcome of step %d", step);
        cr_assert_eq(memcmp(&run.state, &expected, sizeof expected), 0, "state after step %d", step);
        applied += run.outcome.verdict == HS_SCALER_APPLY;
        skipped += run.outcome.verdict == HS_SCALER_SKIP;
    }
    cr_assert(stops || (applied > 10 && skipped > 10), "the run met too little");
    cr_expect_eq(run.state.halted, stops);
}

Test(step, decisions_are_those_of_a_plain_transcription)
{
    const HsLossScaling rules[] = {
        { true, 2.0, 0.5, 1e-6, 65536.0, 7, 1 },
        { true, 2.0, 0.5, 1e-6, 1e30, 3, 3 },
        { true, 1.7, 0.3, 900.0, 1e30, 50, 2 }, /* the floor is near: it ends hopeless, and stays so */
        { .dynamic = false },                   /* the first broken step is hopeless */
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        follow(&rules[i], 1.0, i >= 2);
        follow(&rules[i], 0.0, i >= 2);
    }
}

Test(step, gradient_scales_are_quotients_of_floats)
{
    HsContext context = { .backend = hs_backend_ref(), .threads = 1 };
    const HsStepInput input = { .counted = { 1021.0f, 7.0f } };
    const HsStepState state = { .counters.loss_scale = 65536.0f };
    float scales[2];
    const HsBeginStepArgs args = { .input = &input, .state = &state, .gradient_scales = scales };
    cr_assert_eq(hs_op_begin_step(&context, &args), HS_OK);
    cr_expect_eq(scales[0], 65536.0f / 1021.0f);
    cr_expect_eq(scales[1], 65536.0f / 7.0f);
}

Test(step, random_numbers_follow_a_counter_in_memory)
{
    const uint32_t counter = 12;
    const HsRng fixed = { .seed = 3, .step = 17, .site = 2 };
    const HsRng counted = { .seed = 3, .step = 5, .site = 2, .step_counter = &counter };
    for (uint64_t draw = 0; draw < 8; draw++) {
        const HsPhilox a = hs_rng_draw(&fixed, draw), b = hs_rng_draw(&counted, draw);
        cr_expect_eq(memcmp(&a, &b, sizeof a), 0);
    }
}
