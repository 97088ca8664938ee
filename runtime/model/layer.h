/* SPDX-License-Identifier: MIT
 *
 * What a layer is: forward and backward over tensors that the program has laid out, and a declaration of what backward
 * reads.  A layer owns nothing, allocates nothing and never looks at a dtype to decide what to do.
 *
 * Invariant: a layer is pure.  Outputs depend on inputs, parameters and the RNG key only; backward reads only what the
 * masks below declare.  Lifetimes (runtime/engine/program.c) and recomputation rest on both.
 */
#ifndef HS_RUNTIME_MODEL_LAYER_H
#define HS_RUNTIME_MODEL_LAYER_H

#include "optim/continual/factors.h"
#include "runtime/model/head_work.h"
#include "runtime/model/target_rows.h"

/* Where backward adds factors of curvature (optim/continual/factors.h) in a Fisher's passes. */
typedef struct HsFactorPass {
    const HsSpanFactors **params; /* by parameter; NULL: this one has none */
    HsTensor ones;                /* f32, one a row of the micro-batch */
    void *scratch;                /* hs_factor_scratch_bytes */
    void *workspace;              /* of the operations, which are no part of the program's plan */
    size_t workspace_bytes;
} HsFactorPass;

/* What decoding keeps of an attention: of a layer with a window only what it may still see; and of a smear. */
typedef struct HsKeyValueCache {
    HsTensor keys, values; /* [batch, room, G*D]; rank 0: none.  Of a smear: keys are its rows [batch, room, C] */
    int64_t first;         /* the position of the first row */
} HsKeyValueCache;

/* One call's view of the world.  Tensors of rank 0 are absent. */
typedef struct HsLayerCall {
    HsContext *context;
    bool training;                  /* dropout and z-loss on */
    bool sample_labels;             /* the head draws its targets from the model */
    int64_t predict;                /* the head writes the likeliest of that many tokens over each target; 0: none */
    int64_t batch, sequence_length; /* rows = batch * sequence_length */
    int64_t position_start;         /* of row 0; 0 except in decoding */
    HsTensor starts;                /* [rows] i32, where documents begin; absent: one a sequence */
    HsRng rng;                      /* site is the node's */
    const float *gradient_scale;    /* device scalar */
    const HsPrecision *precision;   /* the model's */
    const HsModel *model;
    bool again;      /* forward for the second time: nothing is recorded twice */
    bool stores_all; /* values are looked at: none is left out for its codes */
    HsTensor inputs[HS_NODE_INPUTS], outputs[HS_NODE_OUTPUTS], saved[HS_NODE_SAVED], scratch[HS_NODE_SCRATCH];
    HsTensor d_inputs[HS_NODE_INPUTS]; /* absent: not needed, or it is the output's gradient itself */
    HsTensor d_outputs[HS_NODE_OUTPUTS];
    /* Backward: what it makes for a node below, and what a node above has made for it (HsNode).  A share of a parameter's
     * gradient is added to. */
    HsTensor made[HS_NODE_MADE], taken[HS_NODE_MADE];
    bool accumulate[HS_NODE_INPUTS];       /* add to d_inputs[i] instead of writing it */
    bool accumulate_sum;                   /* ... of a layer that carries a sum, to d_outputs[0] */
    const HsParam *params[HS_NODE_PARAMS]; /* NULL: absent */
    const HsKeyValueCache *cache;          /* NULL: this is no decoding, or nothing is kept */
    const HsHeadWork *head_work;           /* NULL: the loss alone */
    HsTargetRows target_rows;              /* of the whole call */
    const HsFactorPass *pass;              /* NULL: backward adds no factors */
    const HsSpanFactors *factors[HS_NODE_PARAMS];
} HsLayerCall;

/* What a norm makes of a sum's gradient for the linear layer that made the sum (runtime/model/fuse.c): a copy in the format
 * of its products, and the sums over its rows, a share of the bias's gradient.  What a linear layer makes for the one below
 * an activation: codes of the gradient of the value before it (runtime/model/casts.c). */
enum { HS_MADE_ROUNDED, HS_MADE_SUMS, HS_MADE_CODES };

struct HsLayer {
    const char *name;
    HsStatus (*forward)(const HsLayerCall *call, const HsNode *node);
    HsStatus (*backward)(const HsLayerCall *call, const HsNode *node);
    /* Shapes of the scratch that one call needs in addition to the backend's workspace; NULL: none. */
    void (*scratch)(const HsNode *node, const HsTensor *outputs, bool backward, HsTensor scratch[HS_NODE_SCRATCH]);
    /* Bit i: backward reads inputs[i], outputs[i], saved[i]. */
    unsigned reads_inputs, reads_outputs, reads_saved;
    unsigned reads_for_weight; /* those of reads_inputs that only the gradients of `weights` need */
    unsigned weights;          /* bit i: params[i] multiplies them */
    /* This input's gradient is output 0's, unchanged: the program hands the same buffer on; HS_NONE: no such input. */
    int passes_gradient;
    bool in_place;                /* output 0 may overwrite input 0, and in backward the other way round */
    bool accumulates;             /* backward obeys `accumulate` */
    unsigned finds_amax;          /* bit i: of outputs[i], forward */
    unsigned finds_gradient_amax; /* bit i: of inputs[i]'s gradient, which backward is the last to write */
    bool joint; /* backward makes the gradients of input 0 and of the weights in one pass, never one alone */
    bool turns; /* training calls backward only, which does the work of forward too */
    /* Output 0 is a sum that later nodes read, too.  Forward makes the other outputs of it alone where inputs are absent;
     * backward completes its gradient, d_outputs[0], before it makes those of inputs. */
    bool carries_sum;
};

extern const HsLayer hs_layer_embedding, hs_layer_norm, hs_layer_norm_sum, hs_layer_round, hs_layer_linear,
    hs_layer_head_norm, hs_layer_rope, hs_layer_attention, hs_layer_dropout_residual, hs_layer_dropout_norm,
    hs_layer_blend, hs_layer_smear, hs_layer_values, hs_layer_head_loss;

/* logits [rows, V] = factor hidden w^T, not capped: the head alone, for decoding. */
HsStatus hs_layer_head_logits(HsContext *context, const HsPrecision *precision, const HsParam *weight, float factor,
                              HsTensor hidden, HsTensor logits);

/* Scratch of the two functions below, for a micro-batch of `rows`. */
size_t hs_factor_scratch_bytes(const HsSpanFactors *factors, int64_t rows);
/* factor += (scale x)^T (scale x).  x [rows, size] act; that of a diagonal is overwritten. */
HsStatus hs_layer_add_moment(const HsLayerCall *call, const HsFactor *factor, float scale, HsTensor x);
/* left += how often each row is named; right += g^T g, g the gradient of a row that was looked up: of parameters 0 and 1, a
 * table of tokens, where g = scale dy, and one of positions, where g = dy. */
HsStatus hs_layer_add_lookups(const HsLayerCall *call, float scale, HsTensor tokens, HsTensor dy);

/* What sums next to values of that format are kept in. */
static inline HsDtype hs_wide_with(HsDtype dtype)
{
    return dtype == HS_F64 ? HS_F64 : HS_F32;
}

/* Rows [first, first + count) of a tensor. */
static inline HsTensor hs_tensor_rows(HsTensor tensor, int64_t first, int64_t count)
{
    int64_t row = tensor.rank > 1 ? tensor.shape[1] : 1;
    if (tensor.data)
        tensor.data = (unsigned char *)tensor.data + (size_t)(first * row) * hs_dtype_bytes(tensor.dtype);
    tensor.shape[0] = count;
    return tensor;
}

static inline HsTensor hs_call_weight(const HsLayerCall *call, int index)
{
    return call->params[index] ? call->params[index]->stored.values : (HsTensor){ 0 };
}

/* Absent where the parameter is frozen: backward leaves that gradient out. */
static inline HsTensor hs_call_gradient(const HsLayerCall *call, int index)
{
    return call->params[index] ? call->params[index]->gradient : (HsTensor){ 0 };
}

/* The node's heads, at this call's batch and length. */
static inline HsHeads hs_call_heads(const HsLayerCall *call, const HsNode *node)
{
    HsHeads heads = node->attributes.heads;
    heads.batch = call->batch;
    heads.sequence_length = call->sequence_length;
    return heads;
}

/* What training adds to -log p and its gradient: neither evaluation nor a probe has any of it. */
static inline float hs_call_z_loss(const HsLayerCall *call, const HsNode *node)
{
    return call->training ? node->attributes.z_loss : 0.0f;
}

static inline float hs_call_dropout(const HsLayerCall *call, const HsNode *node)
{
    return call->training ? node->attributes.dropout : 0.0f;
}

#endif
