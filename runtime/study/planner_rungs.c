/* SPDX-License-Identifier: MIT
 *
 * The rungs, and the configuration of each.
 */
#include "runtime/study/planner_rungs.h"

#include <stdlib.h>
#include <string.h>

/* The first row sets every key that a later one changes, whatever the file says: a ladder begins on the ground.  LoRA
 * gives the section adapter back to the file. */
const HsRung hs_rungs[] = {
    { "fp32",
      { "precision.mode=fp32", "precision.master_weights=true", "precision.gradients=fp32", "memory.recompute=none",
        "memory.recompute_every=1", "use_gradient_checkpointing=false", "optimizer.kind=adamw", "optimizer.moments=f32",
        "adapter.kind=none", "adapter.rank=16", "adapter.alpha=32", "adapter.rank_stabilized=false",
        "adapter.dropout=0", "adapter.also_train=\"\"", "adapter.init_from=\"\"", "adapter.base=unchanged" },
      HS_SCORES_OF_ALL_LAYERS,
      NULL,
      "everything in 32 bits, AdamW, nothing computed again" },
    { "fp16",
      { "precision.mode=fp16", "use_amp=true" },
      HS_SCORES_OF_ALL_LAYERS,
      NULL,
      "products and activations in fp16, with loss scaling and f32 masters" },
    { "bf16", { "precision.mode=bf16" }, HS_SCORES_OF_ALL_LAYERS, NULL, "bf16 in place of fp16, without loss scaling" },
    { "+ recomputation",
      { "memory.recompute=block" },
      HS_SCORES_OF_ONE_LAYER,
      NULL,
      "backward computes each block again; its input alone is kept" },
    { "+ attention without T x T",
      { NULL },
      HS_SCORES_NONE,
      "full, AdamW",
      "scores are never written to memory: what this runtime always does" },
    { "+ 8-bit optimizer",
      { "optimizer.kind=adamw8bit" },
      HS_SCORES_NONE,
      "full, 8-bit AdamW",
      "AdamW's moments as codes of 8 bits" },
    { "+ LoRA",
      { "adapter.", "adapter.kind=lora", "adapter.base=unchanged" },
      HS_SCORES_NONE,
      "LoRA",
      "low-rank changes to frozen matrices are trained; rank and targets as the file says" },
    { "+ QLoRA", { "adapter.base=nf4" }, HS_SCORES_NONE, "QLoRA", "the blocks' frozen matrices in four bits" },
};
const int hs_rung_count = sizeof hs_rungs / sizeof *hs_rungs;

/* --- overrides --- */

/* Takes out those that begin with `prefix`; returns how many are left. */
static int drop(const char *overrides[HS_RUNG_OVERRIDES], int count, const char *prefix, size_t length)
{
    int left = 0;
    for (int i = 0; i < count; i++)
        if (strncmp(overrides[i], prefix, length) != 0)
            overrides[left++] = overrides[i];
    return left;
}

int hs_rung_overrides(int rung, const char *overrides[HS_RUNG_OVERRIDES])
{
    int count = 0;
    for (int r = 0; r <= rung; r++)
        for (int s = 0; s < HS_RUNG_SETS && hs_rungs[r].sets[s]; s++) {
            const char *set = hs_rungs[r].sets[s], *equals = strchr(set, '=');
            count = drop(overrides, count, set, equals ? (size_t)(equals - set) + 1 : strlen(set));
            if (equals)
                overrides[count++] = set;
        }
    return count;
}

HsStatus hs_rung_load(const HsPlannerOptions *options, int rung, HsConfig *config)
{
    const char *own[HS_RUNG_OVERRIDES];
    const int given = options->override_count, count = hs_rung_overrides(rung, own);
    const char **all = malloc((size_t)(given + count) * sizeof *all);
    if (!all)
        return hs_fail(HS_ENOMEM, "no memory for the overrides of a rung");
    for (int i = 0; i < given; i++)
        all[i] = options->overrides[i];
    memcpy(all + given, own, (size_t)count * sizeof *all);
    HsStatus status = hs_config_load(config, options->config_path, given + count, all);
    free(all);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "rung %s", hs_rungs[rung].name);
}

size_t hs_rung_score_bytes(const HsConfig *config, int64_t sequences, size_t element_bytes)
{
    const size_t length = (size_t)config->training.max_length;
    const size_t heads = hs_size_multiply((size_t)sequences, (size_t)config->model.heads);
    return hs_size_multiply(hs_size_multiply(heads, element_bytes), hs_size_multiply(length, length));
}
