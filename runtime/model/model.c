/* SPDX-License-Identifier: MIT
 *
 * From configuration to the table of nodes: sizes are settled and checked here, the families' tables are built by
 * gpt2.c and llama.c.
 */
#include "runtime/model/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/adapter.h"
#include "runtime/model/builder.h"
#include "runtime/model/coded.h"
#include "runtime/model/fuse.h"
#include "runtime/model/head_work.h"
#include "runtime/model/quantized.h"
#include "runtime/model/selector.h"

enum { LARGEST_HEAD = 256 };

#define FAMILY(identifier, word) { word, &hs_family_##identifier },
static const struct {
    const char *name;
    const HsFamily *family;
} families[] = { HS_FAMILIES(FAMILY) };

/* -> its row and its name as the table has it */
static HsStatus find_family(const char *name, const HsFamily **family, const char **own_name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, name) == 0) {
            *family = families[i].family;
            *own_name = families[i].name;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "model.family: there is no family %s", name);
}

static HsStatus settle_heads(const HsConfig *config, const HsFamily *family, HsModel *model)
{
    model->heads = config->model.heads;
    model->kv_heads = config->model.kv_heads ? config->model.kv_heads : model->heads;
    model->head_dim = config->model.head_dim;
    if (model->head_dim == 0) {
        if (model->width % model->heads != 0)
            return hs_fail(HS_ECONFIG,
                           "model.width %" PRId64 " is not a multiple of model.heads %" PRId64 ": change one",
                           model->width, model->heads);
        model->head_dim = model->width / model->heads;
    }
    if (model->heads % model->kv_heads != 0)
        return hs_fail(HS_ECONFIG,
                       "model.heads %" PRId64 " is not a multiple of model.kv_heads %" PRId64 ": change one",
                       model->heads, model->kv_heads);
    if (model->head_dim > LARGEST_HEAD)
        return hs_fail(HS_ECONFIG, "a head has %" PRId64 " features, at most %d can be served: raise model.heads%s",
                       model->head_dim, LARGEST_HEAD, family->free_head_dim ? " or set model.head_dim" : "");
    if (family->rotary && model->head_dim % 2 != 0)
        return hs_fail(HS_ECONFIG,
                       "a head has %" PRId64
                       " features, but the rotary embedding turns pairs: make model.head_dim even",
                       model->head_dim);
    model->rotated = (int64_t)((double)model->head_dim * config->model.rope_share);
    if (family->rotary && (model->rotated < 2 || model->rotated % 2 != 0))
        return hs_fail(HS_ECONFIG,
                       "of a head's %" PRId64 " features model.rope_share %g rotates %" PRId64
                       ", but the rotary embedding turns pairs: choose another share",
                       model->head_dim, config->model.rope_share, model->rotated);
    return HS_OK;
}

static HsStatus read_divisors(const char *key, const HsStringList *list, int64_t pairs, double *divisors)
{
    if (list->count != pairs)
        return hs_fail(HS_ECONFIG, "%s has %d numbers, and a head has %" PRId64 " pairs of rotated features", key,
                       list->count, pairs);
    for (int64_t i = 0; i < pairs; i++) {
        char *end;
        divisors[i] = strtod(list->items[i], &end);
        if (end == list->items[i] || *end != '\0' || !(divisors[i] > 0) || isinf(divisors[i]))
            return hs_fail(HS_ECONFIG, "%s: \"%.40s\" is no number above 0", key, list->items[i]);
    }
    return HS_OK;
}

static HsStatus settle_positions(const HsConfig *config, const HsFamily *family, HsModel *model)
{
    const int64_t pairs = model->rotated / 2;
    if (!family->rotary || !hs_is(config->model.rope_scaling, "longrope"))
        return HS_OK;
    model->rope_divisors = malloc(2 * (size_t)pairs * sizeof *model->rope_divisors);
    if (!model->rope_divisors)
        return hs_fail(HS_ENOMEM, "no memory for the divisors of rotary frequencies");
    HS_TRY(read_divisors("model.rope_short_divisors", &config->model.rope_short_divisors, pairs, model->rope_divisors));
    return read_divisors("model.rope_long_divisors", &config->model.rope_long_divisors, pairs,
                         model->rope_divisors + pairs);
}

static HsStatus settle_sizes(const HsConfig *config, const HsFamily *family, int64_t vocabulary, HsModel *model)
{
    model->layers = config->model.layers;
    model->width = config->model.width;
    model->vocabulary = config->model.vocabulary ? config->model.vocabulary : vocabulary;
    if (model->vocabulary < vocabulary)
        return hs_fail(HS_ECONFIG,
                       "model.vocabulary is %" PRId64 " but the tokenizer has %" PRId64
                       " tokens: raise it, or leave it out",
                       model->vocabulary, vocabulary);
    if (family->learned_positions) {
        int64_t length = config->training.max_length;
        model->max_positions = config->model.max_positions ? config->model.max_positions : length;
        if (model->max_positions < length)
            return hs_fail(HS_ECONFIG,
                           "max_length is %" PRId64 " but model.max_positions is %" PRId64
                           ": lower the one or raise the other",
                           length, model->max_positions);
    }
    HS_TRY(settle_heads(config, family, model));
    return settle_positions(config, family, model);
}

/* Roughly, and rather more than less: attention takes width x heads, the MLP two or three matrices of its hidden size.
 * Weight, master, gradient, moments, packed copies and what strategies keep are 64 bytes a parameter at most. */
static HsStatus check_parameters(const HsConfig *config, const HsModel *model)
{
    const double width = (double)model->width, mixed = (double)(model->heads * model->head_dim);
    const double hidden = config->model.mlp_width > 0 ? (double)config->model.mlp_width : 4 * width;
    const double rows = 2 * (double)model->vocabulary + (double)model->max_positions;
    const double parameters = width * (rows + (double)model->layers * (4 * mixed + 3 * hidden + 16));
    if (64 * parameters <= (double)HS_SIZE_MOST)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "a model of about %.3g parameters is more than can be planned: lower model.layers, model.width, "
                   "model.mlp_width or model.vocabulary",
                   parameters);
}

/* Does anything that the step reads depend on a trainable parameter? */
static bool reads_trained(const HsModel *model, const HsNode *node)
{
    for (int i = 0; i < HS_NODE_INPUTS; i++) {
        const int producer = node->inputs[i] == HS_NONE ? HS_NONE : model->slots[node->inputs[i]].producer;
        if (producer != HS_NONE && model->nodes[producer].trains)
            return true;
    }
    return false;
}

/* Does backward of this node make a gradient of anything that it reads? */
static bool passes_gradient(const HsModel *model, const HsNode *node)
{
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        if (node->inputs[i] != HS_NONE && model->slots[node->inputs[i]].needs_gradient)
            return node->trains;
    return false;
}

/* Backward stops where nothing below is trainable: a slot has a gradient where its producer has a backward, or where a
 * layer makes the gradients of its weights and of its input in one pass. */
static void derive_backward(HsModel *model)
{
    for (int n = 0; n < model->node_count; n++) {
        HsNode *node = &model->nodes[n];
        bool own = false;
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            own = own || (node->params[i] != HS_NONE && model->params[node->params[i]].trainable);
        node->trains = own || reads_trained(model, node);
    }
    for (int i = 0; i < model->slot_count; i++) {
        HsSlot *slot = &model->slots[i];
        slot->needs_gradient = slot->needs_gradient && slot->producer != HS_NONE && model->nodes[slot->producer].trains;
    }
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *node = &model->nodes[n];
        if (node->trains && node->layer->joint)
            model->slots[node->inputs[0]].needs_gradient = true;
    }
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *node = &model->nodes[n];
        const bool passes = passes_gradient(model, node);
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            if (passes && node->params[i] != HS_NONE)
                model->params[node->params[i]].passes_gradient = true;
    }
}

/* What an adapter changes stays as it is, and so does all else that adapter.also_train does not name. */
static HsStatus freeze_base(HsModel *model, const HsConfig *config, bool *frozen)
{
    if (!hs_adapter_wanted(config))
        return HS_OK;
    HS_TRY(hs_params_select(model, "adapter.also_train", &config->adapter.also_train, frozen));
    for (int n = 0; n < model->node_count; n++)
        if (model->nodes[n].attributes.adapter.rank > 0 && frozen[model->nodes[n].params[0]])
            return hs_fail(HS_ECONFIG,
                           "adapter.also_train names %s, which has an adapter: narrow it, or take the matrix out of "
                           "adapter.targets",
                           model->params[model->nodes[n].params[0]].name);
    for (int i = 0; i < model->param_count; i++) {
        frozen[i] = !frozen[i] && model->params[i].role != HS_PARAM_ADAPTER;
        model->params[i].beside_adapters = frozen[i];
    }
    return hs_is(config->adapter.base, "nf4") ? hs_model_quantize_base(model) : HS_OK;
}

static HsStatus freeze(HsModel *model, const HsConfig *config)
{
    bool *frozen = calloc((size_t)model->param_count, sizeof *frozen);
    if (!frozen)
        return hs_fail(HS_ENOMEM, "no memory to mark %d parameters", model->param_count);
    HsStatus status = freeze_base(model, config, frozen);
    if (status == HS_OK)
        status = hs_params_select(model, "train.freeze", &config->train.freeze, frozen);
    for (int i = 0; i < model->param_count; i++) {
        model->params[i].trainable = !frozen[i];
        if (frozen[i])
            model->params[i].gradient = (HsTensor){ 0 };
    }
    free(frozen);
    HS_TRY(status);
    if (hs_model_trainable_count(model) == 0)
        return hs_fail(HS_ECONFIG, "train.freeze names every parameter: nothing would be trained; shorten it");
    derive_backward(model);
    return HS_OK;
}

/* A mask's element depends on the length of rows. */
static bool draws_masks(const HsConfig *config)
{
    return config->model.dropout > 0 || (hs_adapter_wanted(config) && config->adapter.dropout > 0);
}

static HsStatus create(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary, bool fused,
                       HsModel *model)
{
    const char *const packing = config->data.packing ? config->data.packing : "";
    *model = (HsModel){ .precision = *precision,
                        .documents = strcmp(packing, "documents") == 0,
                        .pads = strcmp(packing, "none") == 0 && !draws_masks(config) };
    const HsFamily *family = NULL;
    HS_TRY(find_family(config->model.family, &family, &model->family));
    HsStatus status = settle_sizes(config, family, vocabulary, model);
    if (status == HS_OK)
        status = check_parameters(config, model);
    HsBuilder builder = { .model = model, .config = config, .status = status, .block = HS_NONE };
    if (status == HS_OK)
        family->build(&builder);
    status = builder.status;
    if (status == HS_OK && hs_adapter_wanted(config))
        status = hs_model_add_adapters(&builder);
    if (status == HS_OK)
        status = freeze(model, config);
    if (status == HS_OK && fused)
        status = hs_model_fuse(&builder);
    if (status == HS_OK)
        status = hs_model_mark_coded(&builder);
    if (status != HS_OK)
        hs_model_destroy(model);
    return status;
}

HsStatus hs_model_create(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary, HsModel *model)
{
    return create(config, precision, vocabulary, true, model);
}

HsStatus hs_model_create_unfused(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary,
                                 HsModel *model)
{
    return create(config, precision, vocabulary, false, model);
}

void hs_model_expect_head_work(HsModel *model, int64_t kept, bool teacher)
{
    HsAttributes *head = &model->nodes[model->loss_node].attributes;
    head->own_logit_gradient = true;
    head->kept_logits = kept;
    head->teacher_logits = teacher;
}

void hs_model_destroy(HsModel *model)
{
    HsArena *arenas[] = { &model->weights, &model->gradients, &model->packed };
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++) {
        if (arenas[i]->device)
            hs_arena_deinit(arenas[i]);
    }
    free(model->nodes);
    free(model->slots);
    free(model->params);
    free(model->rope_divisors);
    *model = (HsModel){ 0 };
}

int64_t hs_model_parameter_count(const HsModel *model)
{
    int64_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += hs_tensor_count(&model->params[i].stored.values);
    return count;
}

int64_t hs_model_trainable_count(const HsModel *model)
{
    int64_t count = 0;
    for (int i = 0; i < model->param_count; i++)
        count += model->params[i].trainable ? hs_tensor_count(&model->params[i].stored.values) : 0;
    return count;
}

static double product_flops(const HsModel *model, const HsNode *node)
{
    const HsParam *matrix = &model->params[node->params[0]];
    const double products = 2.0 + (reads_trained(model, node) ? 2.0 : 0.0) + (matrix->trainable ? 2.0 : 0.0);
    return products * (double)hs_tensor_count(&matrix->stored.values);
}

double hs_model_left_out_flops(const HsModel *model)
{
    const HsNode *head = &model->nodes[model->loss_node];
    return head->attributes.leaves_out ? product_flops(model, head) : 0;
}

/* Scores of a window W by those of all T T / 2: all but the triangle of (T - W)^2 / 2. */
static double window_share(const HsNode *node, int64_t sequence_length)
{
    const double window = (double)node->attributes.score.window / (double)sequence_length;
    return window > 0 && window < 1 ? window * (2.0 - window) : 1.0;
}

double hs_model_flops_per_token(const HsModel *model, int64_t sequence_length)
{
    const double attention = (double)(model->heads * model->head_dim) * (double)sequence_length;
    double flops = 0;
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *node = &model->nodes[n];
        const double inputs = reads_trained(model, node) ? 1.0 : 0.0;
        if (node->layer == &hs_layer_attention)
            flops += (2.0 + 4.0 * inputs) * attention * window_share(node, sequence_length);
        if (node->layer != &hs_layer_linear && node->layer != &hs_layer_head_loss)
            continue;
        flops += product_flops(model, node);
        for (int i = 2; i < HS_NODE_PARAMS && node->params[i] != HS_NONE; i++)
            flops += 6.0 * (double)hs_tensor_count(&model->params[node->params[i]].stored.values);
    }
    return flops;
}
