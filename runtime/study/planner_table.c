/* SPDX-License-Identifier: MIT
 *
 * The largest model for common sizes of memory.  The family is the configuration's own, grown or shrunk in proportion:
 *
 *     L layers, width = L * (width / layers) rounded to whole heads, heads = width / head size
 *
 * with vocabulary, length, effective batch, precision and strategies as they are.  Whether anything trains at all is
 * asked of the combination that needs least; which one is fastest, of the search.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/study/planner.h"

enum { MOST_LAYERS = 256 };
static const HsDeviceSize sizes[] = { { 8, 1 }, { 12, 1 }, { 16, 1 }, { 24, 1 }, { 40, 1 }, { 80, 1 }, { 80, 8 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static int64_t head_size(const HsConfig *config)
{
    return config->model.head_dim > 0 ? config->model.head_dim : config->model.width / config->model.heads;
}

/* The configuration's model with `layers` layers. */
static HsConfig scaled(const HsConfig *config, int64_t layers)
{
    HsConfig changed = *config;
    const int64_t size = head_size(config);
    const int64_t group = config->model.kv_heads > 0 ? config->model.heads / config->model.kv_heads : 1;
    const double ratio = (double)layers / (double)config->model.layers;
    int64_t heads = (int64_t)(ratio * (double)config->model.heads + 0.5);
    heads = heads < group ? group : heads / group * group; /* whole groups of query heads */
    changed.model.layers = layers;
    changed.model.heads = heads;
    changed.model.width = heads * config->model.width / config->model.heads;
    if (config->model.head_dim > 0 || config->model.width % config->model.heads != 0)
        changed.model.head_dim = size;
    if (config->model.kv_heads > 0)
        changed.model.kv_heads = heads / group;
    if (config->model.mlp_width > 0) /* in whole vectors of 64 */
        changed.model.mlp_width = (int64_t)(ratio * (double)config->model.mlp_width / 64 + 0.5) * 64;
    return changed;
}

static HsStatus trains(const HsTraining *training, int64_t layers, size_t limit, bool *does)
{
    const HsFit least = { 1, "block", 1, true, "none" };
    const HsConfig model = scaled(training->config, layers);
    HsConfig config;
    HsMemoryPlan plan;
    hs_fit_apply(&model, &least, &config);
    HS_TRY(hs_training_plan(training, &config, &plan));
    *does = plan.device_bytes <= limit;
    return HS_OK;
}

/* 0: not even one layer. */
static HsStatus find_layers(const HsTraining *training, size_t limit, int64_t *layers)
{
    int64_t low = 0, high = MOST_LAYERS + 1;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        bool does;
        HS_TRY(trains(training, middle, limit, &does));
        *(does ? &low : &high) = middle;
    }
    *layers = low;
    return HS_OK;
}

static HsStatus print_row(const HsTraining *training, const HsDeviceSize *size, FILE *out)
{
    HsTraining sized = *training; /* borrows everything; never destroyed */
    HsConfig config;
    HsFit fit;
    HsMemoryPlan plan;
    int64_t layers;
    bool found = false;
    sized.engine.device.memory_bytes = (size_t)size->gigabytes << 30;
    sized.engine.context.device = &sized.engine.device;
    const size_t limit = hs_training_memory_limit(&sized);
    HS_TRY(find_layers(&sized, limit, &layers));
    if (layers > 0) {
        config = scaled(training->config, layers);
        sized.config = &config;
        HS_TRY(hs_training_search(&sized, limit, &fit, &plan, &found));
    }
    if (!found) {
        fprintf(out, "| %d GB | none | | | | | | |\n", size->gigabytes);
        return HS_OK;
    }
    fprintf(out,
            "| %d GB | %.0f M | %" PRId64 " x %" PRId64 " | %" PRId64 " of %" PRId64 " | %s%s | %s | %.0f | %.0f |\n",
            size->gigabytes, 1e-6 * (double)plan.parameters, config.model.layers, config.model.width, fit.micro_batch,
            config.training.batch_size, fit.recompute, fit.recompute_every > 1 ? ", every 2nd" : "",
            fit.narrow_gradients ? hs_dtype_name(training->precision.weight) : "f32",
            (double)plan.device_bytes / (1024.0 * 1024.0), (double)limit / (1024.0 * 1024.0));
    return HS_OK;
}

HsStatus hs_planner_print_table(const HsTraining *training, const HsPlannerOptions *options, FILE *out)
{
    const HsConfig *config = training->config;
    fprintf(out,
            "device: %s\nprecision: %s\nfamily: %s, width %" PRId64 " for every %" PRId64 " layers, length %" PRId64
            ", %" PRId64 " sequences a step, target_gpu_util %g\n\n",
            training->engine.why, training->precision_why, config->model.family, config->model.width,
            config->model.layers, config->training.max_length, training->rows_per_step,
            config->training.target_gpu_util);
    fprintf(out,
            "| memory | parameters | layers x width | micro-batch | recompute | gradients | MiB planned | MiB allowed "
            "|\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SIZES; i++)
        if (sizes[i].devices == 1) /* of several each holds the whole */
            HS_TRY(print_row(training, &sizes[i], out));
    return hs_planner_print_fits(training, options, sizes, SIZES, out);
}
