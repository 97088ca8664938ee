/* SPDX-License-Identifier: MIT
 *
 * A model is a table of steps.  Forward reads it down, backward reads it up; the memory plan, recomputation, traces and
 * parameter names come from the same table.
 *
 *   slot   a value: one row per token, `columns` wide, of one dtype; written by exactly one step (inputs: by none)
 *   step   layer + attributes + slots in and out + parameters + saved slots (statistics for backward)
 *   param  name, shape, dtype, flags, offset
 *
 * Steps are pure: their outputs depend on inputs, parameters and the RNG key only, so a range can be run again.
 */
#ifndef HS_RUNTIME_MODEL_H
#define HS_RUNTIME_MODEL_H

#include "kernels/backend.h"
#include "kernels/base/arena.h"
#include "optim/update.h"
#include "runtime/config.h"
#include "runtime/precision.h"

enum {
    HS_STEP_INPUTS = 3,
    HS_STEP_OUTPUTS = 2,
    HS_STEP_SAVED = 2,
    HS_STEP_PARAMS = 2,
    HS_STEP_SCRATCH = 2,
    HS_NONE = -1
};

/* Policies of recomputation that drop a step's outputs (plan.h). */
enum { HS_GROUP_ATTENTION = 1, HS_GROUP_MLP = 2, HS_GROUP_BLOCK = 4 };

typedef enum HsParamFlags {
    HS_PARAM_DECAY = 1, /* weight decay (two dimensions) */
    HS_PARAM_TRAINABLE = 2,
    HS_PARAM_TIED = 4,      /* used by more than one step */
    HS_PARAM_MATRIX = 8,    /* right operand of products: packed after every update */
    HS_PARAM_RESIDUAL = 16, /* projection into the residual stream: initial std / sqrt(2 layers) */
    HS_PARAM_ONES = 32,     /* initialised with 1 (norm gains); without it and without MATRIX/EMBEDDING: 0 */
    HS_PARAM_EMBEDDING = 64
} HsParamFlags;

typedef struct HsParam {
    char name[64]; /* checkpoint name, close to Hugging Face's; matrices are stored [out, in] in both families */
    HsDtype dtype; /* what forward reads */
    int rank;
    int64_t shape[2];
    unsigned flags;
    /* shapes from the start (for dry runs), pointers when the memory is committed; absent ones have rank 0 */
    HsTensor weight, master, gradient, state[2];
    HsPacked packed_forward, packed_backward; /* x w^T and dy w */
    size_t offset_weight, offset_master, offset_gradient, offset_state[2], offset_packed[2];
} HsParam;

typedef struct HsSlot {
    char name[64]; /* "block.3.attention.out" */
    int64_t columns;
    int rank; /* 2: [rows, columns]; 1: [rows], columns is 1 */
    HsDtype dtype;
    int producer;        /* step, or HS_NONE for tokens and targets */
    bool needs_gradient; /* backward makes a gradient of the same shape and dtype */
} HsSlot;

typedef struct HsLayer HsLayer;

/* Attributes of any layer; a layer reads its own. */
typedef struct HsAttributes {
    HsHeads heads; /* batch and sequence_length are filled at run time */
    HsNormKind norm;
    float epsilon, scale, dropout, z_loss;
    double rope_theta;
    HsEpilogue epilogue, backward_epilogue; /* of a linear layer: its own activation; its input's, backward */
    bool convert_gradient; /* the output's gradient must be rounded to the product's operand format first */
    HsDtype operand;       /* that format */
    uint32_t site;         /* RNG site, unique in the model */
    int64_t vocabulary, head_chunk;
    HsDtype logit, logit_gradient;
} HsAttributes;

typedef struct HsStep {
    const HsLayer *layer;
    char name[48]; /* "block.3.mlp.down" */
    int block;     /* -1 outside blocks */
    HsAttributes attributes;
    int inputs[HS_STEP_INPUTS];
    int outputs[HS_STEP_OUTPUTS];
    int saved[HS_STEP_SAVED]; /* slots written by forward for backward only */
    int params[HS_STEP_PARAMS];
    unsigned recompute_group; /* HS_GROUP_* bits: which policies drop what this step makes */
} HsStep;

typedef struct HsModel {
    const char *family;
    HsPrecision precision;
    int64_t layers, width, vocabulary, heads, kv_heads, head_dim;
    int64_t max_positions; /* rows of the position table; 0: any length */
    HsStep *steps;
    int step_count;
    HsSlot *slots;
    int slot_count;
    HsParam *params;
    int param_count;
    int tokens_slot, targets_slot, loss_step;
    int hidden_slot; /* input of the head */
    /* memory */
    HsArena weights, masters, gradients, states, packed;
} HsModel;

/* Build the table of config->model.family.  vocabulary: the tokenizer's.  errors: HS_ECONFIG naming key and mend. */
HsStatus hs_model_create(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary, HsModel *model);
void hs_model_destroy(HsModel *model);

int64_t hs_model_parameter_count(const HsModel *model); /* trainable elements, tied ones once */
/* 6 N + 6 L H D T with N = matrix parameters (embedding lookups excluded, head included): flops of a trained token. */
double hs_model_flops_per_token(const HsModel *model, int64_t sequence_length);

/* Allocate weights, masters, gradients, optimizer states and packed copies.  inference: weights and packed only.
 * training may be false for eval and generate. */
HsStatus hs_model_commit(HsModel *model, HsContext *context, bool training, int optimizer_states);
/* Fresh weights: N(0, init_std) by Philox keyed by seed and parameter index; masters first, then rounded copies. */
HsStatus hs_model_initialize(HsModel *model, HsContext *context, uint64_t seed, double init_std);
/* After any change of weights: refresh 16-bit copies from masters if from_master, then every packed copy. */
HsStatus hs_model_refresh(HsModel *model, HsContext *context, bool from_master);
/* The optimizer's view; spans[param_count] with model lifetime of the pointers. Returns how many. */
int hs_model_spans(HsModel *model, HsSpan *spans);

#endif
