/* SPDX-License-Identifier: MIT
 *
 * The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names.
 */
#ifndef HS_RUNTIME_CHECKPOINT_PRETRAINED_H
#define HS_RUNTIME_CHECKPOINT_PRETRAINED_H

#include "runtime/checkpoint/nf4_tensors.h"
#include "runtime/checkpoint/weights.h"

typedef struct HsPretrained {
    char *folder;
    int count; /* files, mapped */
    HsSafetensors *files;
    char **paths;
} HsPretrained;

/* errors: HS_EIO, HS_EFORMAT naming the file */
HsStatus hs_pretrained_open(const char *folder, HsPretrained *pretrained);
void hs_pretrained_close(HsPretrained *pretrained);

/* A tensor under its name, or under it without "model." or "transformer."; NULL where there is none.  *path: its file. */
const HsNamedTensor *hs_pretrained_find(const HsPretrained *pretrained, const char *name, const char **path);

/* The same search as functions of quantized matrices ask for it (nf4_tensors.h); valid as long as `pretrained`. */
HsTensorSource hs_pretrained_source(const HsPretrained *pretrained);

/* Every parameter of the model from the files: into its master where `spans` has one, else into its weight, converted
 * exactly where the format is as wide.  Each name has to be there, in its shape, and none besides but the buffers that
 * some files hold (rotary frequencies, causal masks); "model." and "transformer." before names may be missing.  Of tied
 * tables either or both may be stored, both alike.  Packed copies are left as they are.
 * errors: HS_EFORMAT, HS_ESHAPE naming file and tensor */
HsStatus hs_pretrained_load(const HsPretrained *pretrained, const HsModel *model, const HsSpan *spans, int span_count,
                            HsContext *context);

#endif
