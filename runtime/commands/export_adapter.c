/* SPDX-License-Identifier: MIT
 *
 * Which modules an adapter belongs to.  PEFT takes a name for every module that ends in it, so a short one serves where
 * all of them are adapted.
 */
#include "runtime/commands/export_adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/adapter.h"

enum { NAME_BYTES = sizeof((HsParam *)NULL)->name };

static HsStatus add_name(char **names, int *count, const char *name)
{
    for (int i = 0; i < *count; i++)
        if (strcmp(names[i], name) == 0)
            return HS_OK;
    names[*count] = strdup(name);
    if (!names[*count])
        return hs_fail(HS_ENOMEM, "no memory for a list of names");
    *count += 1;
    return HS_OK;
}

static const char *last_of(const char *module)
{
    const char *const dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* "h.0.attn.c_proj" -> "attn.c_proj"; the whole where there is no more. */
static const char *last_two_of(const char *module)
{
    const char *const last = last_of(module);
    for (const char *place = last - 2; place > module; place--)
        if (*place == '.')
            return place + 1;
    return module;
}

typedef struct Module {
    char name[NAME_BYTES];
    bool adapted;
} Module;

/* Every part of every linear layer. */
static int list_modules(const HsModel *model, Module *modules)
{
    int count = 0;
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *node = &model->nodes[n];
        if (node->layer != &hs_layer_linear)
            continue;
        const HsParam *weight = &model->params[node->params[0]];
        const HsAdapterShape *shape = &node->attributes.adapter;
        int64_t first = 0;
        for (int part = 0; part < hs_param_stored_parts(weight); part++) {
            Module *module = &modules[count++];
            hs_adapter_module(hs_param_stored_name(weight, part), module->name, sizeof module->name);
            module->adapted = false;
            for (int block = 0; shape->rank > 0 && block < shape->blocks; block++)
                module->adapted = module->adapted || shape->first_row[block] == first;
            first += hs_param_stored_rows(weight, part);
        }
    }
    return count;
}

/* Are all modules adapted that have `end` as their last part, or last two? */
static bool serves(const Module *modules, int count, const char *end, const char *(*of)(const char *))
{
    bool all = true;
    for (int i = 0; i < count; i++)
        all = all && (modules[i].adapted || strcmp(of(modules[i].name), end) != 0);
    return all;
}

static HsStatus add_targets(const Module *modules, int count, HsAdapterNames *names)
{
    for (int i = 0; i < count; i++) {
        const char *const name = modules[i].name;
        if (!modules[i].adapted)
            continue;
        const char *const shortest = serves(modules, count, last_of(name), last_of)           ? last_of(name)
                                     : serves(modules, count, last_two_of(name), last_two_of) ? last_two_of(name)
                                                                                              : name;
        HS_TRY(add_name(names->targets, &names->target_count, shortest));
    }
    return HS_OK;
}

/* A tensor of the base as files have it. */
typedef struct Tensor {
    char name[NAME_BYTES], module[NAME_BYTES];
    bool saved;
} Tensor;

static int list_tensors(const HsModel *model, Tensor *tensors)
{
    int count = 0;
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        for (int part = 0; param->role != HS_PARAM_ADAPTER && part < hs_param_stored_parts(param); part++) {
            Tensor *tensor = &tensors[count++];
            const char *const name = hs_param_stored_name(param, part), *const dot = strrchr(name, '.');
            snprintf(tensor->name, sizeof tensor->name, "%s", name);
            snprintf(tensor->module, sizeof tensor->module, "%.*s", (int)(dot ? dot - name : 0), name);
            tensor->saved = !param->beside_adapters;
        }
    }
    return count;
}

/* Are all tensors saved that PEFT would take by this name?  It takes every module with a name that ends so, also in
 * the middle of a part: norm is input_layernorm, too. */
static bool saves(const Tensor *tensors, int count, const char *end)
{
    const size_t tail = strlen(end);
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(tensors[i].module);
        if (!tensors[i].saved && length >= tail && strcmp(tensors[i].module + length - tail, end) == 0)
            return false;
    }
    return true;
}

static HsStatus add_saved(const Tensor *tensors, int count, HsAdapterNames *names)
{
    for (int i = 0; i < count; i++) {
        const char *const module = tensors[i].module;
        if (!tensors[i].saved)
            continue;
        for (int k = 0; k < count; k++)
            if (!tensors[k].saved && strcmp(tensors[k].module, module) == 0)
                return hs_fail(HS_EUNSUPPORTED,
                               "%s is trained and %s is not: PEFT saves whole modules; --format hf --merge writes the "
                               "model with all its changes",
                               tensors[i].name, tensors[k].name);
        HS_TRY(add_name(names->saved, &names->saved_count,
                        saves(tensors, count, last_of(module))       ? last_of(module)
                        : saves(tensors, count, last_two_of(module)) ? last_two_of(module)
                                                                     : module));
    }
    return HS_OK;
}

/* PEFT gives the embedding another table and leaves the head the base's: both are named, and both stored. */
static HsStatus add_head(const HsModel *model, HsAdapterNames *names)
{
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].tied && !model->params[i].beside_adapters)
            HS_TRY(add_name(names->saved, &names->saved_count, HS_HEAD_MODULE));
    return HS_OK;
}

HsStatus hs_adapter_names_init(const HsExportSource *source, HsAdapterNames *names)
{
    const HsModel *model = &source->model;
    const size_t most = (size_t)model->param_count * HS_PARAM_MOST_PARTS;
    Module *modules = calloc(most, sizeof *modules);
    Tensor *tensors = calloc(most, sizeof *tensors);
    *names = (HsAdapterNames){ .targets = calloc(most, sizeof(char *)), .saved = calloc(most + 1, sizeof(char *)) };
    HsStatus status = modules && tensors && names->targets && names->saved
                          ? HS_OK
                          : hs_fail(HS_ENOMEM, "no memory for a list of names");
    if (status == HS_OK)
        status = add_targets(modules, list_modules(model, modules), names);
    if (status == HS_OK)
        status = add_saved(tensors, list_tensors(model, tensors), names);
    if (status == HS_OK)
        status = add_head(model, names);
    free(tensors);
    free(modules);
    return status;
}

void hs_adapter_names_deinit(HsAdapterNames *names)
{
    for (int i = 0; i < names->target_count; i++)
        free(names->targets[i]);
    for (int i = 0; i < names->saved_count; i++)
        free(names->saved[i]);
    free(names->targets);
    free(names->saved);
    *names = (HsAdapterNames){ 0 };
}
