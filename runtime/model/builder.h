/* SPDX-License-Identifier: MIT
 *
 * The vocabulary in which the node tables of the model families are written (gpt2.c, llama.c).
 * The first failure sticks in builder->status; after it every call does nothing and returns HS_NONE, so that a builder
 * reads as the network it describes and checks once at its end.
 */
#ifndef HS_RUNTIME_MODEL_BUILDER_H
#define HS_RUNTIME_MODEL_BUILDER_H

#include "runtime/config/kinds.h"
#include "runtime/model/layer.h"

typedef struct HsBuilder {
    HsModel *model;
    const HsConfig *config;
    HsStatus status;
    int block;      /* of the next nodes; HS_NONE outside blocks */
    unsigned group; /* HS_GROUP_* of the next nodes */
    int node_capacity, slot_capacity, param_capacity;
} HsBuilder;

/* One linear layer. */
typedef struct HsLinearSpec {
    const char *name; /* of the node and its slot */
    int input;
    int input_pre;               /* input is input_activation(input_pre); HS_NONE: it is not */
    HsEpilogue input_activation; /* any that is no gradient */
    int64_t outputs;
    int weight, bias;      /* params; bias HS_NONE: none */
    HsEpilogue activation; /* of y, fused: NONE, or any that is no gradient; a gate halves the outputs */
    float factor;          /* of the product; 0: 1 */
    int residual;          /* slot to add to, which makes the output part of the residual stream; HS_NONE: none */
} HsLinearSpec;

/* `suffix` follows the family's prefix of the current block: "transformer.h.3." + "ln_1.weight".  Of two dimensions: a
 * matrix, an embedding or a head, stored [rows, columns]; of one: a vector, which starts with zeros or ones. */
int hs_builder_table(HsBuilder *builder, const char *prefix, const char *suffix, HsParamRole role, HsParamStart start,
                     int64_t rows, int64_t columns);
int hs_builder_vector(HsBuilder *builder, const char *prefix, const char *suffix, HsParamStart start, int64_t size);
/* Other first values than by its kind; HS_NONE: none. */
void hs_builder_start(HsBuilder *builder, int param, HsParamStart start, double from, double to);
/* The token table: with model.tie_head it is the head as well. */
int hs_builder_token_table(HsBuilder *builder, const char *prefix, const char *suffix);
/* The head's matrix: the tied token table, or a separate one. */
int hs_builder_head_table(HsBuilder *builder, int token_table);
/* The parameter is made of parts, stacked along its rows; `suffix` as above, NULL where files hold the whole. */
typedef struct HsPart {
    const char *suffix;
    int64_t rows;
} HsPart;
void hs_builder_stack(HsBuilder *builder, int param, const char *prefix, int count, const HsPart *parts);
/* A stack of queries, keys and values: heads of the model's head_dim. */
void hs_builder_heads(HsBuilder *builder, int param);

/* An activation that an earlier node keeps for its backward, its saved[0]. */
int hs_builder_saved(HsBuilder *builder, int node, const char *suffix, int64_t columns);

/* What an earlier node's backward makes for a node below, its made[index]; of the shape: rows, columns, rank, dtype and
 * share_of. */
int hs_builder_made(HsBuilder *builder, int node, int index, const char *suffix, HsSlot shape);

/* A linear node's place for the codes of x that backward multiplies; a node's for those of a value that it makes, of which the
 * caller says the rest: its outputs[HS_OUTPUT_CODES]. */
void hs_builder_codes(HsBuilder *builder, int node);
int hs_builder_left_codes(HsBuilder *builder, int node, int value);

int hs_builder_inputs(HsBuilder *builder); /* the slots of tokens and targets; returns tokens' */
int hs_builder_embedding(HsBuilder *builder, int tokens, int token_table, int position_table);

typedef struct HsNormSpec {
    const char *name;
    HsNormKind kind;
    int input, weight, bias; /* params HS_NONE: none */
    int residual;            /* slot that what is normed is added to; HS_NONE: none */
    bool stream;             /* the output is the residual stream, as it is with a residual */
} HsNormSpec;

int hs_builder_norm(HsBuilder *builder, const HsNormSpec *spec);
/* The residual stream as an operand of products, where its format is another. */
int hs_builder_round(HsBuilder *builder, const char *name, int stream);
/* Returns the slot of y; *pre (may be NULL) gets the slot before a fused activation. */
int hs_builder_linear(HsBuilder *builder, const HsLinearSpec *spec, int *pre);
/* A branch's last projection: fused with the sum when there is no dropout, else followed by dropout_residual. */
int hs_builder_branch_end(HsBuilder *builder, HsLinearSpec spec, int residual);
/* The sum of a branch, with dropout, and the residual stream. */
int hs_builder_dropout_sum(HsBuilder *builder, const char *branch_name, int branch, int residual);
int hs_builder_head_norm(HsBuilder *builder, int qkv, int q_weight, int k_weight);
int hs_builder_rope(HsBuilder *builder, int qkv);
/* sinks: a vector with a logit a head, or HS_NONE. */
int hs_builder_attention(HsBuilder *builder, int qkv, int sinks);

/* What nanochat adds to a block.  Vectors a, b have an element a layer, of which this is `at`; a HS_NONE: 1. */
typedef struct HsBlendSpec {
    const char *name;
    int x, z; /* slots of the residual stream */
    int a, b, at;
    float sign;
} HsBlendSpec;
int hs_builder_blend(HsBuilder *builder, const HsBlendSpec *spec);
/* gate: a vector's role, [1, K]; strength [1]. */
int hs_builder_smear(HsBuilder *builder, int x, int gate, int strength);
/* Rows of `table` [V, GD] for the tokens, times gates [G, K] of `x`, added to the values of qkv. */
int hs_builder_values(HsBuilder *builder, int qkv, int x, int table, int gate);
void hs_builder_head(HsBuilder *builder, int hidden, int weight);

/* A family of models; each has a file with its row, hs_family_identifier. */
typedef struct HsFamily {
    bool learned_positions; /* a table of them */
    bool rotary;            /* heads have an even size */
    bool free_head_dim;     /* heads * head_dim need not be the width */
    void (*build)(HsBuilder *builder);
} HsFamily;

#define HS_DECLARE_FAMILY(identifier, word) extern const HsFamily hs_family_##identifier;
HS_FAMILIES(HS_DECLARE_FAMILY)

#endif
