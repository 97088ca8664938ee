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
    HsEpilogue input_activation; /* HS_EPILOGUE_GELU or SWIGLU */
    int64_t outputs;
    int weight, bias;      /* params; bias HS_NONE: none */
    HsEpilogue activation; /* of y, fused: NONE, GELU, or SWIGLU, which halves the outputs */
    int residual;          /* slot to add to, which makes the output part of the residual stream; HS_NONE: none */
} HsLinearSpec;

/* `suffix` follows the family's prefix of the current block: "transformer.h.3." + "ln_1.weight".  Of two dimensions: a
 * matrix, an embedding or a head, stored [rows, columns]; of one: a vector, which starts with zeros or ones. */
int hs_builder_table(HsBuilder *builder, const char *prefix, const char *suffix, HsParamRole role, HsParamStart start,
                     int64_t rows, int64_t columns);
int hs_builder_vector(HsBuilder *builder, const char *prefix, const char *suffix, HsParamStart start, int64_t size);
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

/* An activation that an earlier node keeps for its backward, its saved[0]. */
int hs_builder_saved(HsBuilder *builder, int node, const char *suffix, int64_t columns);

/* What an earlier node's backward makes for a node below, its made[index]; of the shape: rows, columns, rank, dtype and
 * share_of. */
int hs_builder_made(HsBuilder *builder, int node, int index, const char *suffix, HsSlot shape);

/* A linear node's place for the codes of x that backward multiplies. */
void hs_builder_codes(HsBuilder *builder, int node);

int hs_builder_inputs(HsBuilder *builder); /* the slots of tokens and targets; returns tokens' */
int hs_builder_embedding(HsBuilder *builder, int tokens, int token_table, int position_table);
int hs_builder_norm(HsBuilder *builder, const char *name, HsNormKind kind, int input, int weight, int bias);
/* Returns the slot of y; *pre (may be NULL) gets the slot before a fused activation. */
int hs_builder_linear(HsBuilder *builder, const HsLinearSpec *spec, int *pre);
/* A branch's last projection: fused with the sum when there is no dropout, else followed by dropout_residual. */
int hs_builder_branch_end(HsBuilder *builder, HsLinearSpec spec, int residual);
int hs_builder_head_norm(HsBuilder *builder, int qkv, int q_weight, int k_weight);
int hs_builder_rope(HsBuilder *builder, int qkv);
int hs_builder_attention(HsBuilder *builder, int qkv);
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
