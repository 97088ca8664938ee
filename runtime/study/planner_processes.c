/* SPDX-License-Identifier: MIT
 *
 * Several processes on paper: what each rank takes at each stage of distributed.zero, with the formulas, what it sends,
 * and how fast more of them would be.
 *
 * With P parameters, w, g and s bytes of a weight, of its gradient and of its master and moments, N ranks and A
 * micro-batches a rank (Rajbhandari et al. 2020, section 5, with this run's own formats):
 *
 *     zero   bytes a parameter of states   sent by a rank in a step, times P (N - 1) / N
 *     0      w + g + s                     2 g
 *     1      w + g + s/N                   g + w
 *     2      w + (g + s)/N                 A g + w
 *     3      (w + g + s)/N                 A (g + 2 w)
 *
 * The time of a step: products and memory traffic as without other ranks, then what is sent at the link's rate.  At
 * stages 0 and 1 gradients are sent while the last micro-batch's backward runs: all but the first block's can hide
 * behind it.  At stages 2 and 3 nothing is.  Up to 8 GPUs share a host and its links; beyond that the network's rate
 * counts for all that is sent.  Latencies, other users and stragglers are left out: real runs are slower.
 */
#include <inttypes.h>

#include "runtime/study/planner.h"

enum { STAGES = 4, GPUS_OF_A_HOST = 8, RANKS_SHOWN = 8 };
/* 400 Gbit/s for each GPU, as hosts with eight of them have it. */
static const double NETWORK_BYTES = 50e9;

/* A rank among others that are not there: nothing is exchanged in a dry run. */
static HsStatus draft_rank(const HsTraining *training, const HsConfig *config, int size, int rank, HsMemoryPlan *plan)
{
    HsComm comm = { .rank = rank, .size = size, .local_size = size };
    HsTraining other = *training;
    HsTraining draft;
    other.engine.comm = &comm;
    HS_TRY(hs_training_draft(&other, config, &draft));
    hs_training_measure_plan(&draft, plan);
    hs_training_release(&draft);
    return HS_OK;
}

static double states_of(const HsMemoryPlan *plan)
{
    return (double)plan->bytes[HS_MEMORY_WEIGHTS] + (double)plan->bytes[HS_MEMORY_GRADIENTS] +
           (double)plan->bytes[HS_MEMORY_MASTERS] + (double)plan->bytes[HS_MEMORY_MOMENTS];
}

/* Of a run in one process and one piece. */
typedef struct Whole {
    double weights, gradients, states; /* bytes; states: masters and moments */
} Whole;

static double formula(const Whole *whole, int64_t stage, int size)
{
    const double n = size;
    return whole->weights / (stage >= 3 ? n : 1) + whole->gradients / (stage >= 2 ? n : 1) +
           whole->states / (stage >= 1 ? n : 1);
}

static double sent(const Whole *whole, int64_t stage, int size, double micro_batches)
{
    const double w = whole->weights, g = whole->gradients;
    const double bytes[STAGES] = { 2 * g, g + w, micro_batches * g + w, micro_batches * (g + 2 * w) };
    return bytes[stage] * (size - 1) / size;
}

/* A copy of the configuration with another stage; virtual ranks as they were written, or as each stage has them. */
static HsConfig with_stage(const HsTraining *training, int64_t stage, bool own_parts)
{
    HsConfig config = *training->config;
    config.distributed.zero = stage;
    config.distributed.virtual_ranks = own_parts ? 0 : training->exchange.ranks.asked;
    return config;
}

static HsStatus measure_whole(const HsTraining *training, Whole *whole)
{
    const HsConfig config = with_stage(training, 0, true);
    HsMemoryPlan plan;
    HS_TRY(draft_rank(training, &config, 1, 0, &plan));
    *whole = (Whole){ (double)plan.bytes[HS_MEMORY_WEIGHTS], (double)plan.bytes[HS_MEMORY_GRADIENTS],
                      (double)plan.bytes[HS_MEMORY_MASTERS] + (double)plan.bytes[HS_MEMORY_MOMENTS] };
    return HS_OK;
}

/* --- memory by stage and rank --- */

static HsStatus print_stage(const HsTraining *training, const Whole *whole, int64_t stage, FILE *out)
{
    const HsConfig config = with_stage(training, stage, false);
    const int size = training->engine.comm->size;
    HsMemoryPlan plan;
    double largest = 0, states = 0, micro_batches = 0;
    char ranks[160] = "";
    size_t used = 0;
    for (int rank = 0; rank < size; rank++) {
        HsStatus status = draft_rank(training, &config, size, rank, &plan);
        if (status == HS_ECONFIG) { /* this stage is not to be had so */
            fprintf(out, "  %" PRId64 "     %.200s\n", stage, hs_error_message());
            return HS_OK;
        }
        HS_TRY(status);
        largest = (double)plan.device_bytes > largest ? (double)plan.device_bytes : largest;
        states = states_of(&plan) > states ? states_of(&plan) : states;
        micro_batches = (double)plan.micro_batches;
        if (rank < RANKS_SHOWN && used < sizeof ranks)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%.1f", rank > 0 ? " " : "",
                                     hs_mebibytes((double)plan.device_bytes));
    }
    fprintf(out, "  %" PRId64 "%s %10.1f %10.1f %10.1f %12.1f  %s%s\n", stage,
            stage == training->config->distributed.zero ? " *" : "  ", hs_mebibytes(largest), hs_mebibytes(states),
            hs_mebibytes(formula(whole, stage, size)), hs_mebibytes(sent(whole, stage, size, micro_batches)), ranks,
            size > RANKS_SHOWN ? " ..." : "");
    return HS_OK;
}

HsStatus hs_planner_print_processes(const HsTraining *training, FILE *out)
{
    const int size = training->engine.comm->size;
    Whole whole;
    if (size == 1)
        return HS_OK;
    HS_TRY(measure_whole(training, &whole));
    fprintf(out,
            "processes: %d, virtual ranks: %" PRId64 "; of the %" PRId64 " sequences of a step each trains %" PRId64
            "\n",
            size, training->exchange.ranks.count, training->rows_per_step, training->rows_per_step / size);
    fprintf(out, "  zero  largest     states    formula   sent a step  (MiB; * this configuration)  each rank\n");
    for (int64_t stage = 0; stage < STAGES; stage++)
        HS_TRY(print_stage(training, &whole, stage, out));
    fprintf(out, "\n");
    return HS_OK;
}

/* --- more of them --- */

static double seconds_of(const HsTraining *training, const HsMemoryPlan *plan, const HsDeviceRates *rates,
                         const Whole *whole, int size, double link)
{
    const int64_t stage = training->config->distributed.zero;
    const double alone = hs_memory_plan_seconds(plan, rates);
    const double layers = (double)training->config->model.layers + 1;
    const double share = (double)(size - 1) / size;
    const double all = sent(whole, stage, size, (double)plan->micro_batches) / link;
    if (stage > 1)
        return alone + all;
    const double gradients = (stage == 0 ? 2 : 1) * whole->gradients * share / link;
    const double backward = plan->backward_flops / (double)plan->micro_batches / rates->flops;
    const double hidden = gradients * (1 - 1 / layers) < backward ? gradients * (1 - 1 / layers) : backward;
    return alone + all - hidden;
}

HsStatus hs_planner_print_scaling(const HsTraining *training, const HsPlannerOptions *options, FILE *out)
{
    static const int sizes[] = { 1, 2, 4, 8, 16, 32, 64 };
    const HsCard *card = options->card;
    const HsDeviceRates rates = hs_planner_rates(training, options, &training->precision, 0);
    Whole whole;
    double first = 0;
    HS_TRY(measure_whole(training, &whole));
    fprintf(out,
            "%s, %" PRId64 " tokens a step, zero %" PRId64
            ": predicted, products at the datasheet's rate, links of %.0f GB/s each way in a host of %d, %.0f beyond\n",
            card->name, training->rows_per_step * training->config->training.max_length,
            training->config->distributed.zero, card->link_gigabytes_per_second, GPUS_OF_A_HOST, 1e-9 * NETWORK_BYTES);
    fprintf(out, "  GPUs   s a step   tokens/s    of %%   MiB a GPU   sent MiB\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const HsConfig config = with_stage(training, training->config->distributed.zero, true);
        const int size = sizes[i];
        HsMemoryPlan plan;
        HsStatus status = draft_rank(training, &config, size, 0, &plan);
        if (status == HS_ECONFIG) {
            fprintf(out, "  %4d   the step cannot be divided among this many\n", size);
            continue;
        }
        HS_TRY(status);
        const double own = 1e9 * card->link_gigabytes_per_second;
        const double link = size > GPUS_OF_A_HOST && own > NETWORK_BYTES ? NETWORK_BYTES : own;
        const double seconds = seconds_of(training, &plan, &rates, &whole, size, link);
        const double rate = (double)plan.tokens / seconds;
        first = first > 0 ? first : rate;
        fprintf(out, "  %4d %10.4g %10.0f %6.0f %11.0f %10.0f\n", size, seconds, rate, 100 * rate / (first * size),
                hs_mebibytes((double)plan.device_bytes),
                hs_mebibytes(sent(&whole, training->config->distributed.zero, size, (double)plan.micro_batches)));
    }
    return HS_OK;
}
