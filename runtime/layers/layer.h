/* SPDX-License-Identifier: MIT
 *
 * What a layer is: forward and backward over tensors that the plan has laid out, and a declaration of what backward
 * reads.  A layer owns nothing, allocates nothing and never looks at a dtype to decide what to do.
 *
 * Invariant: a layer is pure.  Outputs depend on inputs, parameters and the RNG key only; backward reads only what the
 * masks below declare.  Lifetimes (plan.c) and recomputation rest on both.
 */
#ifndef HS_RUNTIME_LAYERS_LAYER_H
#define HS_RUNTIME_LAYERS_LAYER_H

#include "runtime/model.h"

/* One call's view of the world.  Tensors of rank 0 are absent. */
typedef struct HsRun {
    HsContext *context;
    bool training;                  /* dropout and z-loss on */
    bool sample_labels;             /* the head draws its targets from the model */
    int64_t batch, sequence_length; /* rows = batch * sequence_length */
    int64_t position_start;         /* of row 0; 0 except in decoding */
    HsRng rng;                      /* site is the step's */
    const float *gradient_scale;    /* device scalar */
    const HsPrecision *precision;   /* the model's */
    HsTensor inputs[HS_STEP_INPUTS], outputs[HS_STEP_OUTPUTS], saved[HS_STEP_SAVED], scratch[HS_STEP_SCRATCH];
    HsTensor d_inputs[HS_STEP_INPUTS]; /* absent: nobody needs it, or it is the output's gradient itself */
    HsTensor d_outputs[HS_STEP_OUTPUTS];
    bool accumulate[HS_STEP_INPUTS];       /* add to d_inputs[i] instead of writing it */
    const HsParam *params[HS_STEP_PARAMS]; /* NULL: absent */
    HsTensor k_cache, v_cache;             /* decoding only */
} HsRun;

struct HsLayer {
    const char *name;
    HsStatus (*forward)(const HsRun *run, const HsStep *step);
    HsStatus (*backward)(const HsRun *run, const HsStep *step);
    /* Shapes of the scratch that one call needs beside the backend's workspace; NULL: none. */
    void (*scratch)(const HsStep *step, const HsTensor *outputs, bool backward, HsTensor scratch[HS_STEP_SCRATCH]);
    /* Bit i: backward reads inputs[i], outputs[i], saved[i]. */
    unsigned reads_inputs, reads_outputs, reads_saved;
    /* This input's gradient is output 0's, unchanged: the plan hands the same buffer on; HS_NONE: no such input. */
    int passes_gradient;
    bool in_place;    /* output 0 may overwrite input 0, and in backward the other way round */
    bool accumulates; /* backward obeys `accumulate` */
    bool turns;       /* training calls backward only, which does the work of forward too */
};

extern const HsLayer hs_layer_embedding, hs_layer_norm, hs_layer_linear, hs_layer_head_norm, hs_layer_rope,
    hs_layer_attention, hs_layer_dropout_residual, hs_layer_head_loss;

/* logits [rows, V] = hidden w^T: the head alone, for decoding. */
HsStatus hs_layer_head_logits(HsContext *context, const HsPrecision *precision, const HsParam *weight, HsTensor hidden,
                              HsTensor logits);

/* Rows [first, first + count) of a tensor. */
static inline HsTensor hs_tensor_rows(HsTensor tensor, int64_t first, int64_t count)
{
    int64_t row = tensor.rank > 1 ? tensor.shape[1] : 1;
    if (tensor.data)
        tensor.data = (unsigned char *)tensor.data + (size_t)(first * row) * hs_dtype_bytes(tensor.dtype);
    tensor.shape[0] = count;
    return tensor;
}

static inline HsTensor hs_run_weight(const HsRun *run, int index)
{
    return run->params[index] ? run->params[index]->weight : (HsTensor){ 0 };
}

static inline HsTensor hs_run_gradient(const HsRun *run, int index)
{
    return run->params[index] ? run->params[index]->gradient : (HsTensor){ 0 };
}

/* The step's heads, at this call's batch and length. */
static inline HsHeads hs_run_heads(const HsRun *run, const HsStep *step)
{
    HsHeads heads = step->attributes.heads;
    heads.batch = run->batch;
    heads.sequence_length = run->sequence_length;
    return heads;
}

/* What training adds to -log p and its gradient: neither evaluation nor a probe has any of it. */
static inline float hs_run_z_loss(const HsRun *run, const HsStep *step)
{
    return run->training ? step->attributes.z_loss : 0.0f;
}

static inline float hs_run_dropout(const HsRun *run, const HsStep *step)
{
    return run->training ? step->attributes.dropout : 0.0f;
}

#endif
