/* SPDX-License-Identifier: MIT
 *
 * The layers of a config.json in which attention sees a window alone, has other positions or none, by the rules of
 * transformers' models (docs/huggingface-folders.md has the table).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/attention_pattern.h"
#include "runtime/config/huggingface_reader.h"

typedef struct HsLayersRead {
    int64_t count;
    bool sliding[HS_MOST_LAYERS], nope[HS_MOST_LAYERS];
} HsLayersRead;

static bool is_whole(const HsJson *value)
{
    return hs_json_is_number(value) && floor(hs_json_number(value)) == hs_json_number(value);
}

static bool any_of(const bool *marks, int64_t count)
{
    bool any = false;
    for (int64_t layer = 0; layer < count; layer++)
        any |= marks[layer];
    return any;
}

/* A whole number from `least` on under that name, else `missing`. */
static HsStatus read_count(const HsModelReader *reader, const char *name, int64_t least, int64_t missing,
                           int64_t *count)
{
    const HsJson *value = name ? hs_json_get(reader->root, name) : NULL;
    *count = missing;
    if (!value)
        return HS_OK;
    if (!is_whole(value) || hs_json_number(value) < (double)least || hs_json_number(value) > 1e9)
        return hs_fail(HS_EFORMAT, "%s: %s must be a whole number from %lld on", reader->path, name, (long long)least);
    *count = (int64_t)hs_json_number(value);
    return HS_OK;
}

/* no_rope_layers: 1 where there are positions. */
static HsStatus read_nopes(const HsModelReader *reader, HsLayersRead *layers)
{
    const HsJson *list = hs_model_member(reader->root, "no_rope_layers");
    int64_t interval, layer = 0;
    HS_TRY(read_count(reader, "no_rope_layer_interval", 1, 4, &interval));
    if (!list)
        for (; layer < layers->count; layer++)
            layers->nope[layer] = (layer + 1) % interval == 0;
    if (list && (!hs_json_is_array(list) || hs_json_count(list) < layers->count))
        return hs_fail(HS_EFORMAT, "%s: no_rope_layers must be a list with a number for each of num_hidden_layers",
                       reader->path);
    for (const HsJson *item = hs_json_first(list); item && layer < layers->count; item = hs_json_next(item)) {
        if (!is_whole(item))
            return hs_fail(HS_EFORMAT, "%s: no_rope_layers must be a list of 0 and 1", reader->path);
        layers->nope[layer++] = hs_json_number(item) == 0;
    }
    return HS_OK;
}

/* layer_types -> sliding */
static HsStatus read_types(const HsModelReader *reader, const HsJson *types, HsLayersRead *layers)
{
    bool *sliding = layers->sliding;
    if (!hs_json_is_array(types) || hs_json_count(types) != layers->count)
        return hs_fail(HS_EFORMAT, "%s: layer_types must be a list with a kind for each of num_hidden_layers",
                       reader->path);
    for (const HsJson *type = hs_json_first(types); type; type = hs_json_next(type)) {
        const char *kind = hs_json_string(type);
        if (!kind || (strcmp(kind, "full_attention") != 0 && strcmp(kind, "sliding_attention") != 0))
            return hs_model_unsupported(reader, "layer_types", type, "full_attention, sliding_attention");
        *sliding++ = strcmp(kind, "sliding_attention") == 0;
    }
    return HS_OK;
}

/* The type's rule where layer_types is missing. */
static HsStatus guess_types(const HsModelReader *reader, HsLayersRead *layers)
{
    const HsModelLayers *const rule = &reader->type->layers;
    const HsJson *from = hs_json_get(reader->root, "max_window_layers");
    int64_t period;
    HS_TRY(read_count(reader, rule->period_key, 1, rule->period, &period));
    if (from && rule->missing == HS_LAYERS_FROM && !is_whole(from))
        return hs_fail(HS_EFORMAT, "%s: max_window_layers must be a whole number", reader->path);
    for (int64_t layer = 0; layer < layers->count; layer++)
        layers->sliding[layer] = rule->missing == HS_LAYERS_ALL      ? true
                                 : rule->missing == HS_LAYERS_PERIOD ? (layer + 1) % period != 0
                                 : rule->missing == HS_LAYERS_NOPES
                                     ? layers->nope[layer]
                                     : (double)layer >= (from ? hs_json_number(from) : 28.0);
    return HS_OK;
}

/* Of a type that reads sliding_window: the layers that have it. */
static HsStatus choose_layers(const HsModelReader *reader, HsLayersRead *layers)
{
    const unsigned kinds = reader->type->layers.kinds;
    const HsJson *types = hs_model_member(reader->root, "layer_types");
    const HsJson *asked = hs_json_get(reader->root, "use_sliding_window");
    const HsJson *window = hs_json_get(reader->root, "sliding_window");
    HS_TRY(types ? read_types(reader, types, layers) : guess_types(reader, layers));
    if (kinds & HS_LAYERS_WINDOW) {
        for (int64_t layer = 0; layer < layers->count; layer++)
            layers->sliding[layer] = true;
        return types ? hs_model_unsupported(reader, "layer_types", types, "layers of one kind: leave the key out")
                     : HS_OK;
    }
    if (!(kinds & HS_LAYERS_FLAG))
        return HS_OK;
    if (asked && !hs_json_is_bool(asked))
        return hs_fail(HS_EFORMAT, "%s: use_sliding_window must be true or false", reader->path);
    const bool on = asked && hs_json_is_true(asked) && (window ? !hs_json_is_null(window) : true);
    if (types && !on && any_of(layers->sliding, layers->count))
        return hs_model_unsupported(reader, "layer_types", types, "full_attention where no window is asked for");
    for (int64_t layer = 0; layer < layers->count; layer++)
        layers->sliding[layer] = layers->sliding[layer] && on;
    return HS_OK;
}

static HsStatus add_pattern(const HsModelReader *reader, const HsLayersRead *layers, int64_t window, double theta)
{
    const HsConfig *const made = &reader->adoption->made;
    const bool apart = (reader->type->layers.kinds & HS_LAYERS_POSITIONS) != 0;
    const bool scaled = !hs_is(made->model.rope_scaling, "none");
    HsAttentionKind kinds[HS_MOST_LAYERS];
    char *text = NULL;
    for (int64_t layer = 0; layer < layers->count; layer++) {
        const bool own = layers->sliding[layer] && apart;
        kinds[layer] = (HsAttentionKind){ .window = layers->sliding[layer] ? window : 0,
                                          .theta = own && theta != made->model.rope_theta ? theta : 0,
                                          .unscaled = own && scaled,
                                          .nope = layers->nope[layer] };
    }
    HS_TRY(hs_attention_pattern_text(kinds, layers->count, &text));
    const HsStatus status =
        hs_model_add(reader, "attention", text[0] ? text : "[]",
                     reader->type->layers.kinds & HS_LAYERS_NOPE ? "no_rope_layers" : "sliding_window");
    free(text);
    return status;
}

/* Of a type without windows: a file that speaks of one is another model's. */
static HsStatus refuse_windows(const HsModelReader *reader, HsLayersRead *layers)
{
    const HsJson *types = hs_model_member(reader->root, "layer_types");
    const HsJson *window = hs_json_get(reader->root, "sliding_window");
    HS_TRY(types ? read_types(reader, types, layers) : HS_OK);
    if (any_of(layers->sliding, layers->count))
        return hs_model_unsupported(reader, "layer_types", types, "layers of one kind: leave the key out");
    /* One that reaches over all positions is none. */
    return hs_json_is_number(window) && hs_json_number(window) < (double)reader->adoption->made.model.max_positions
               ? hs_model_unsupported(reader, "sliding_window", window, "none for this model_type: leave the key out")
               : HS_OK;
}

HsStatus hs_model_add_layers(const HsModelReader *reader)
{
    const HsModelLayers *const rule = &reader->type->layers;
    const HsJson *window = hs_json_get(reader->root, "sliding_window");
    HsLayersRead layers = { .count = reader->adoption->made.model.layers };
    double width = window ? hs_json_number(window) : (double)rule->window, theta = rule->local_theta;
    const bool none = window ? hs_json_is_null(window) : rule->window == 0;
    if (rule->kinds & HS_LAYERS_NOPE)
        HS_TRY(read_nopes(reader, &layers));
    HS_TRY(rule->kinds & (HS_LAYERS_WINDOW | HS_LAYERS_WINDOWS) ? choose_layers(reader, &layers)
                                                                : refuse_windows(reader, &layers));
    if (rule->kinds & HS_LAYERS_POSITIONS)
        HS_TRY(hs_model_local_theta(reader, &theta));
    const bool any = any_of(layers.sliding, layers.count);
    for (int64_t layer = 0; layer < layers.count && rule->kinds & HS_LAYERS_FULL_NOPE && !none; layer++)
        layers.nope[layer] = !layers.sliding[layer];
    if (none)
        width = 0;
    if (any && !(none && !(rule->kinds & HS_LAYERS_POSITIONS)) && !(width >= 1 && floor(width) == width))
        return hs_model_unsupported(reader, "sliding_window", window, "a whole number of tokens from 1 on, or null");
    return add_pattern(reader, &layers, (int64_t)width, theta);
}

/* --- as files have it --- */

bool hs_model_layers_fit(const HsConfig *config, const HsModelType *type)
{
    const unsigned allowed = type->layers.kinds;
    const bool scaled = !hs_is(config->model.rope_scaling, "none");
    HsAttentionKind kinds[HS_MOST_LAYERS], first = { 0 };
    bool all = true, some = false, nopes = false, fulls = false;
    if (hs_attention_kinds(config, kinds) != HS_OK)
        return false;
    for (int64_t layer = 0; layer < config->model.layers; layer++) {
        const HsAttentionKind *kind = &kinds[layer];
        const bool slides = kind->window > 0;
        if ((kind->nope && !(allowed & (HS_LAYERS_NOPE | HS_LAYERS_FULL_NOPE))) || kind->sink || kind->values)
            return false;
        if (slides && some && (kind->window != first.window || kind->theta != first.theta))
            return false;
        if (slides && (allowed & HS_LAYERS_POSITIONS ? kind->unscaled != scaled : kind->unscaled || kind->theta > 0))
            return false;
        if (!slides && (kind->unscaled || kind->theta > 0))
            return false;
        first = slides && !some ? *kind : first;
        some |= slides;
        all &= slides;
        nopes |= kind->nope;
        fulls |= !slides && !kind->nope;
        if (allowed & HS_LAYERS_FULL_NOPE && slides && kind->nope)
            return false;
    }
    if (allowed & HS_LAYERS_FULL_NOPE && (some || nopes) && fulls)
        return false;
    return !some || (allowed & HS_LAYERS_WINDOWS) || (all && (allowed & HS_LAYERS_WINDOW));
}

static void write_nopes(const HsAttentionKind *kinds, int64_t layers, HsJson *root)
{
    HsJson *list = hs_json_array();
    for (int64_t layer = 0; layer < layers; layer++)
        hs_json_append(list, hs_json_new_integer(kinds[layer].nope ? 0 : 1));
    hs_json_set(root, "no_rope_layers", list);
}

/* Versions that know no layer_types read max_window_layers, from which layers on have the window, or a period. */
static void write_older(const HsModelLayers *rule, const HsAttentionKind *kinds, int64_t layers, bool any, HsJson *root)
{
    int64_t first = layers;
    for (int64_t layer = layers - 1; layer >= 0; layer--)
        first = kinds[layer].window > 0 ? layer : first;
    if (rule->kinds & HS_LAYERS_FLAG)
        hs_json_set_bool(root, "use_sliding_window", any);
    if (rule->missing == HS_LAYERS_FROM)
        hs_json_set_integer(root, "max_window_layers", first);
    if (rule->period_key)
        hs_json_set_integer(root, rule->period_key, rule->period);
}

void hs_model_write_layers(const HsConfig *config, const HsModelType *type, HsJson *root)
{
    const HsModelLayers *const rule = &type->layers;
    HsAttentionKind kinds[HS_MOST_LAYERS] = { 0 };
    const int64_t layers = config->model.layers;
    int64_t window = 0;
    (void)hs_attention_kinds(config, kinds); /* a checked pattern */
    for (int64_t layer = 0; layer < layers; layer++)
        window = kinds[layer].window > 0 ? kinds[layer].window : window;
    if (rule->kinds & HS_LAYERS_NOPE)
        write_nopes(kinds, layers, root);
    if (!(rule->kinds & (HS_LAYERS_WINDOW | HS_LAYERS_WINDOWS)))
        return;
    if (window > 0)
        hs_json_set_integer(root, "sliding_window", window);
    else if (rule->kinds & HS_LAYERS_FULL_NOPE ? kinds[0].nope
                                               : rule->kinds & HS_LAYERS_POSITIONS || rule->missing == HS_LAYERS_PERIOD)
        hs_json_set_integer(root, "sliding_window", rule->window);
    else
        hs_json_set(root, "sliding_window", hs_json_new_null());
    if (!(rule->kinds & HS_LAYERS_WINDOWS))
        return;
    HsJson *types = hs_json_array();
    for (int64_t layer = 0; layer < layers; layer++)
        hs_json_append(types, hs_json_new_string(kinds[layer].window > 0 ? "sliding_attention" : "full_attention"));
    hs_json_set(root, "layer_types", types);
    write_older(rule, kinds, layers, window > 0, root);
}
