/* SPDX-License-Identifier: MIT
 *
 * What an export is made from: a checkpoint of ours or a Hugging Face folder, its files mapped and its model's table
 * without separate memory.
 */
#ifndef HS_RUNTIME_COMMANDS_EXPORT_SOURCE_H
#define HS_RUNTIME_COMMANDS_EXPORT_SOURCE_H

#include "runtime/checkpoint/pretrained.h"
#include "runtime/config/carried.h"
#include "runtime/data/tokenizer/tokenizer.h"

typedef struct HsExportSource {
    HsConfig config;
    HsModel model; /* shapes alone */
    HsTokenizer *tokenizer;
    HsPretrained files;
    HsCarried carried;   /* from the folder that it began with */
    HsNaming naming;     /* of the files */
    int64_t vocabulary;  /* rows of the token table that are written: padding of ours is not */
    bool qwen_tokenizer; /* cuts text as Qwen's do */
    bool has_config, has_model;
    HsQuantized *views; /* of quantized matrices: HS_PARAM_MOST_PARTS a parameter */
} HsExportSource;

/* The caller owns the storage; deinit also after a failure. */
HsStatus hs_export_source_init(HsExportSource *source, const char *folder);
void hs_export_source_deinit(HsExportSource *source);

/* The tensors under Hugging Face's names, in its layout, as views of the files, adapters merged; of a GPT-2 without biases
 * with zeros for them, which is the same function.  naming: whether gains are as its files have them, or as ours.  The caller frees *items.  errors: HS_EFORMAT, HS_ESHAPE naming file and tensor */
HsStatus hs_export_source_tensors(const HsExportSource *source, HsNaming naming, HsNamedTensor **items, int *count);

/* The same under PEFT's names, of what is trained next to a frozen model. */
HsStatus hs_export_source_adapters(const HsExportSource *source, HsNamedTensor **items, int *count);

/* Size of the MLP's hidden layer. */
int64_t hs_export_source_mlp_width(const HsExportSource *source);

#endif
