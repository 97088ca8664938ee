/* SPDX-License-Identifier: MIT
 *
 * A model is a table of nodes.  Forward reads it down, backward reads it up; the memory plan, recomputation, traces and
 * parameter names come from the same table.
 *
 *   slot   a value: `columns` wide, of one dtype, one row a token where it does not say how many; written by exactly one
 *          node (inputs: by none), by its forward or, for a node below, by its backward
 *   node   layer + attributes + slots in and out + parameters + saved slots (statistics for backward)
 *   param  name, shape, dtype, role, offset
 *
 * Nodes are pure: their outputs depend on inputs, parameters and the RNG key only, so a range can be run again.
 */
#ifndef HS_RUNTIME_MODEL_MODEL_H
#define HS_RUNTIME_MODEL_MODEL_H

#include "kernels/base/arena.h"
#include "kernels/ops/backend.h"
#include "optim/update.h"
#include "runtime/config/config.h"
#include "runtime/model/precision.h"

enum {
    HS_NODE_INPUTS = 4,
    HS_NODE_OUTPUTS = 4,
    HS_NODE_SAVED = 2,
    /* Of a linear layer: codes of x that the layer below leaves; codes of y for the layer above; codes of x that it makes and
     * keeps.  The other saved slot is its adapter's. */
    HS_INPUT_CODES = 3,
    HS_OUTPUT_CODES = 2,
    HS_SAVED_CODES = 1,
    HS_NODE_PARAMS = 8,
    HS_NODE_MADE = 3,
    HS_NODE_SCRATCH = 13,
    HS_NONE = -1
};

/* Policies of recomputation that drop a node's outputs (runtime/engine/program.h). */
enum { HS_GROUP_ATTENTION = 1, HS_GROUP_MLP = 2, HS_GROUP_BLOCK = 4 };

/* What a parameter is in the network.  A table that is embedding and head in one (tied) is an embedding. */
typedef enum HsParamRole {
    HS_PARAM_MATRIX, /* of a linear layer inside the blocks */
    HS_PARAM_VECTOR, /* norm gain, bias or learned number, and a gate's few rows: nothing that is packed for products */
    HS_PARAM_EMBEDDING,
    HS_PARAM_HEAD,
    HS_PARAM_ADAPTER /* one of the two factors of a low-rank change to a frozen matrix */
} HsParamRole;

/* How its first values are drawn. */
typedef enum HsParamStart {
    HS_START_ZERO,     /* biases */
    HS_START_ONE,      /* norm gains */
    HS_START_NORMAL,   /* N(0, init_std), or of start_to where that is above 0 */
    HS_START_RESIDUAL, /* projections into the residual stream: std / sqrt(2 layers) */
    HS_START_UNIFORM,  /* U(-1/sqrt(columns), 1/sqrt(columns)): what He et al. 2015 give for a slope of sqrt 5 */
    HS_START_BETWEEN,  /* U(start_from, start_to) */
    HS_START_LINE      /* from start_from to start_to, evenly over the elements */
} HsParamStart;

enum { HS_PARAM_MOST_PARTS = 3 };

typedef struct HsParam {
    char name[64]; /* checkpoint name, close to Hugging Face's; matrices are stored [out, in] in both families */
    HsDtype dtype; /* what forward reads */
    int rank;
    int64_t shape[2];
    HsParamRole role;
    HsParamStart start;
    double start_from, start_to;
    bool tied; /* used by more than one step */
    /* Several matrices stacked along their rows (q|k|v, gate|up): the rows of each; one part: the whole. */
    int part_count;
    int64_t part_rows[HS_PARAM_MOST_PARTS];
    int64_t head_rows;                        /* of a head, in a stack of queries, keys and values; 0: it is none */
    char part_names[HS_PARAM_MOST_PARTS][64]; /* where files hold each part under its own name; else empty */
    bool published_transposed;                /* Hugging Face's files hold it as [in, out] */
    double published_shift;                   /* and this added to it: -1 of gains that are one plus a weight */
    bool spread;          /* an adapter's B that its layer lays out anew before it multiplies (adapter.c) */
    bool trainable;       /* not named by train.freeze */
    bool beside_adapters; /* frozen, because adapters are trained instead */
    bool streams;         /* the model's; no copy is kept packed */
    bool passes_gradient; /* something that it multiplies has a gradient: dy w is computed */
    /* shapes from the start (for dry runs), pointers when the memory is committed; absent ones have rank 0 */
    HsOperand stored; /* the weight: rows, or four bits (quantized.h) */
    /* copies that x w^T and dy w read: packed, where they have data, or codes of w and of w^T */
    HsOperand forward, backward;
    HsTensor gradient; /* no gradient where it is frozen */
    size_t offset_stored, offset_forward, offset_backward, offset_gradient;
} HsParam;

/* The right operand of x w^T, or of dy w. */
static inline HsOperand hs_param_operand(const HsParam *param, bool backward)
{
    const HsOperand *const copy = backward ? &param->backward : &param->forward;
    if (copy->layout == HS_LAYOUT_CODES)
        return *copy;
    return param->stored.layout == HS_LAYOUT_ROWS ? hs_operand_packed(param->stored.values, hs_packed_of(copy))
                                                  : param->stored;
}

/* The right operand of products: packed after every update. */
static inline bool hs_param_multiplies(const HsParam *param)
{
    return param->role == HS_PARAM_MATRIX || param->role == HS_PARAM_HEAD || param->tied ||
           (param->role == HS_PARAM_ADAPTER && !param->spread);
}

/* The tensors that files have for a parameter: its parts, where these have their own names, else the whole. */
static inline int hs_param_stored_parts(const HsParam *param)
{
    return param->part_names[0][0] == '\0' ? 1 : param->part_count;
}

static inline const char *hs_param_stored_name(const HsParam *param, int part)
{
    return param->part_names[0][0] == '\0' ? param->name : param->part_names[part];
}

static inline int64_t hs_param_stored_rows(const HsParam *param, int part)
{
    return param->part_names[0][0] == '\0' ? param->shape[0] : param->part_rows[part];
}

typedef struct HsSlot {
    char name[64]; /* "block.3.attention.out" */
    int64_t rows;  /* 0: one a token */
    int64_t columns;
    int rank; /* 2: [rows, columns]; 1: [rows], columns is 1 */
    HsDtype dtype;
    int producer;   /* node, or HS_NONE for tokens and targets */
    int block;      /* -1 outside blocks */
    unsigned group; /* HS_GROUP_* bits: which policies drop it */
    /* This is a share of that parameter's gradient, made by another node than the parameter's: added to the gradient
     * straight away, or, where gradients pass (HsModel.passing), left to the parameter's node.  HS_NONE: of none. */
    int share_of;
    bool needs_gradient; /* backward makes a gradient of the same shape and dtype: something trainable lies below */
    /* Codes of another slot or its transpose, [columns, rows], or of its gradient: bytes, as many as they are.  scaling: index
     * of that by which another node than their reader makes them. */
    HsDtype format;
    HsScaleGranularity granularity;
    int scaling;
    bool amax, gradient_amax; /* the largest magnitude of it, of its gradient, is found by what makes it (coded.h) */
} HsSlot;

typedef struct HsLayer HsLayer;

/* What a linear layer's products quantize, by index from its first scaling; the last two only where runs are rotated. */
typedef enum HsScalingRole {
    HS_SCALING_X,
    HS_SCALING_WEIGHT,
    HS_SCALING_DY,
    HS_SCALING_X_TURNED,
    HS_SCALING_DY_TURNED,
    HS_SCALING_ROLES
} HsScalingRole;

/* The scalings of a model's linear layers, in memory of the device. */
typedef struct HsModelScalings {
    int count, per_node;
    HsScaling *now, *report; /* [count]; report: of the latest step */
    HsTensor history;        /* [count, L] f32; absent without delayed scaling */
    HsTensor maxima;         /* [count] f32, what processes agree on; with the history */
    HsTensor found;          /* [2, slots] f32, of this pass: largest magnitudes of values, and of gradients; absent
                              * where no scale follows from them */
    bool begun;              /* kept scales follow from a history */
    bool stale;              /* weights have changed since they were cast */
    size_t offset_now, offset_report, offset_history, offset_maxima, offset_found;
} HsModelScalings;

/* A low-rank change to a linear layer's matrix [outputs, inputs], one of `rank` to each of its parts that is adapted (Hu
 * et al. 2021, eq. 3).  A [blocks rank, inputs] stacks the parts' first factors, B their second ones. */
typedef struct HsAdapterShape {
    int64_t rank; /* 0: none */
    int64_t inputs, outputs;
    float scale; /* alpha / rank, or alpha / sqrt(rank) */
    float dropout;
    HsDtype sum; /* of B's gradient before its blocks are taken out */
    int blocks;  /* adapted parts */
    bool spread; /* B has to be laid out along a diagonal: not all rows are of one part */
    int64_t first_row[HS_PARAM_MOST_PARTS], rows[HS_PARAM_MOST_PARTS]; /* of each in the matrix */
} HsAdapterShape;

/* Attributes of any layer; a layer reads its own. */
typedef struct HsAttributes {
    HsHeads heads; /* batch and sequence_length are filled at run time */
    HsNormKind norm;
    float epsilon, dropout, z_loss;
    float embedding_factor; /* of a token's row */
    float logit_factor;     /* of the head's product */
    float logit_cap;        /* of the logits that it makes; 0: none */
    HsRopeRule rope;
    bool reversed;    /* rotary positions turn the other way round */
    int64_t blend_at; /* of learned numbers, one for each layer: this node's */
    float blend_sign, gate_factor;
    bool whole;                             /* a head norm of all queries' features, and all keys' */
    float factor;                           /* of a linear layer's product */
    HsScoreRule score;                      /* starts are known at run time */
    HsEpilogue epilogue, backward_epilogue; /* of a linear layer: its own activation; its input's, backward */
    bool convert_gradient; /* the output's gradient must be rounded to the product's operand format first */
    HsDtype operand;       /* that format */
    uint32_t site;         /* RNG site, unique in the model */
    int64_t vocabulary, head_chunk;
    HsDtype logit, trained_logit, logit_gradient; /* trained_logit: where a gradient is made of them */
    bool own_logit_gradient, teacher_logits;      /* the head needs separate memory for them (head_work.h) */
    int64_t kept_logits;                          /* of each row, in each step */
    bool leaves_out;                              /* the head runs on rows with a target alone, where they are listed */
    HsAdapterShape adapter;
    HsProductPolicy code_policy; /* of a linear layer's forward product of codes; else there are none */
    bool turns_codes;            /* HsScalingRecipe's */
    int scaling;                 /* its first in HsModel.scalings */
    int64_t inputs;              /* columns of x */
} HsAttributes;

typedef struct HsNode {
    const HsLayer *layer;
    char name[48]; /* "block.3.mlp.down" */
    int block;     /* -1 outside blocks */
    HsAttributes attributes;
    int inputs[HS_NODE_INPUTS];
    int outputs[HS_NODE_OUTPUTS];
    int saved[HS_NODE_SAVED]; /* slots written by forward for backward only */
    int made[HS_NODE_MADE];   /* what backward writes for the backward of a node below, besides gradients */
    int taken[HS_NODE_MADE];  /* slots that a node above has made for this one's backward */
    int params[HS_NODE_PARAMS];
    bool trains; /* a parameter of this node, or of one that it reads from, is trainable: it has a backward */
    /* Of a linear layer in codes, for the program that is being made: forward keeps those of x for the weight's gradient
     * (saved[HS_SAVED_CODES]), so that x is not kept for it; else backward makes them again from x. */
    bool keeps_codes;
    /* Likewise: it leaves its result in codes for the one node that reads it (outputs[HS_OUTPUT_CODES]); its x comes in codes
     * (inputs[HS_INPUT_CODES]), which are kept, or its dy does (taken[HS_MADE_CODES]). */
    bool leaves_codes, takes_x_codes, takes_dy_codes;
} HsNode;

/* Whether a linear layer's products are of codes. */
static inline bool hs_node_coded(const HsNode *node)
{
    return node->attributes.code_policy.granularity != HS_SCALE_NONE;
}

typedef struct HsModel {
    const char *family;
    HsPrecision precision;
    int64_t layers, width, vocabulary, heads, kv_heads, head_dim;
    int64_t rotated;       /* features of each head that rotary positions turn */
    double *rope_divisors; /* longrope: [2, rotated / 2], of short sequences and of long ones; NULL: none */
    int64_t max_positions; /* rows of the position table; 0: any length */
    HsNode *nodes;
    int node_count;
    HsSlot *slots;
    int slot_count;
    HsParam *params;
    int param_count;
    int tokens_slot, targets_slot, loss_node;
    int hidden_slot;      /* input of the head */
    bool documents;       /* data.packing: documents: tokens come with marks (hs_op_document_starts) */
    bool pads;            /* data.packing: none, without dropout: a pass may end behind the last target */
    bool teacher;         /* a copy of another model that only teaches: its memory is accounted apart */
    bool streams;         /* weights of what is trained, too, in training (runtime/exchange/weight_stream.h) */
    bool passing;         /* gradients have their memory from what passes them on (runtime/exchange/passing.h) */
    bool looks_at_inputs; /* something other than the layers reads x of linear layers backward: it is kept as it is */
    HsModelScalings scalings;
    /* memory */
    HsArena weights, gradients, packed;
} HsModel;

/* Build the table of config->model.family.  vocabulary: the tokenizer's.  Parameters that train.freeze names are not
 * trainable; what only they would need of backward is left out.  errors: HS_ECONFIG naming the key. */
enum { HS_LEAST_HEAD_CHUNK = 256, HS_MOST_HEAD_CHUNK = 8192 };
HsStatus hs_model_create(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary, HsModel *model);
void hs_model_destroy(HsModel *model);

int64_t hs_model_parameter_count(const HsModel *model); /* elements, tied ones once */
int64_t hs_model_trainable_count(const HsModel *model);
/* 6 N + 6 L H D T with N = matrix parameters (embedding lookups excluded, head included): flops of a trained token; in
 * layers with a window only the scores within it count.  Of
 * the 6, 2 are forward's, 2 the gradient of the input's, 2 the gradient of the weight's; what is frozen has fewer. */
double hs_model_flops_per_token(const HsModel *model, int64_t sequence_length);
/* What of that a token without a target does not need: the head leaves it out on some devices; 0 on others. */
double hs_model_left_out_flops(const HsModel *model);

/* Allocate weights and packed copies, and for training the gradients of what is trainable.  Masters and moments are the
 * optimizer's. */
HsStatus hs_model_commit(HsModel *model, HsContext *context, bool training);
/* Fresh weights: N(0, init_std) by Philox keyed by seed and parameter index, drawn in the master's format.  The masters
 * of `spans` (none where span_count is 0) get them as they are, weights are rounded from them. */
HsStatus hs_model_initialize(HsModel *model, HsContext *context, uint64_t seed, double init_std, const HsSpan *spans,
                             int span_count);
/* Of adapters alone, the same numbers; packed copies are left as they are. */
HsStatus hs_model_initialize_adapters(HsModel *model, HsContext *context, uint64_t seed, const HsSpan *spans,
                                      int span_count);
/* After any change of weights: every packed copy anew; codes are made when a pass begins. */
HsStatus hs_model_pack(HsModel *model, HsContext *context);
/* Codes of what is stale, before a pass.  training: a pass that records magnitudes and may use kept scales. */
HsStatus hs_model_cast(HsModel *model, HsContext *context, bool training);
/* The end of an optimizer step's passes: scales of the next one, which follow from what all processes have seen. */
HsStatus hs_model_roll_scales(HsModel *model, HsContext *context, HsComm *comm);
/* The scale source of a cast.  HS_SCALE_KEPT: products leave codes in place of their results, where these have a place. */
HsScaleSource hs_model_scale_source(const HsModel *model, bool training);

/* Inputs that read a slot: the first node's, which is the last to add to its gradient in backward, and how many. */
typedef struct HsReaders {
    int node, input, count; /* node: HS_NONE where nothing reads it */
} HsReaders;
HsReaders hs_model_readers(const HsModel *model, int slot);

/* Where the largest magnitude of a slot's value, or of its gradient, is found in this pass; NULL: it is not. */
float *hs_model_amax(const HsModel *model, int slot, bool gradient, bool training);
/* Before a pass: none is found yet.  errors: the device's */
HsStatus hs_model_forget_amax(const HsModel *model, HsContext *context, bool training);
/* A node's scaling. */
static inline HsScaling *hs_model_scaling(const HsModel *model, const HsNode *node, HsScalingRole role)
{
    return model->scalings.now ? model->scalings.now + node->attributes.scaling + role : NULL;
}
/* The optimizer's view: a span for each trainable parameter, in their order; spans[param_count] with model lifetime of
 * the pointers.  Returns how many. */
int hs_model_spans(HsModel *model, HsSpan *spans);

#endif
