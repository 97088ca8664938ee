/* SPDX-License-Identifier: MIT
 *
 * A model's parameters under the names that files have for them.  Matrices that are stacked in memory (q|k|v, gate|up)
 * are rows of one tensor here and separate tensors there, as the field's readers expect.
 */
#ifndef HS_RUNTIME_CHECKPOINT_WEIGHTS_H
#define HS_RUNTIME_CHECKPOINT_WEIGHTS_H

#include "runtime/checkpoint/safetensors.h"
#include "runtime/model/model.h"

/* What PEFT puts before a module's name. */
#define HS_PEFT_PREFIX "base_model.model."
/* What all families call the head where it has a table. */
#define HS_HEAD_MODULE "lm_head"

typedef enum HsNaming {
    HS_NAMING_OWN,       /* our checkpoints': parts by name, matrices [out, in] */
    HS_NAMING_PUBLISHED, /* Hugging Face's: parts by name, and GPT-2's matrices [in, out]; adapters have other files */
    HS_NAMING_ADAPTED,   /* PEFT's: what is trained on top of a frozen model, the same behind its prefix */
} HsNaming;

typedef struct HsWeights {
    HsNamedTensor *items; /* views of the parameters' memory: masters where `spans` have them, else weights */
    int count;
    void **owned; /* what hs_weights_spell_out made */
    int owned_count;
} HsWeights;

/* errors: HS_ENOMEM.  The caller deinits; nothing of it owns a tensor. */
HsStatus hs_weights_list(const HsModel *model, const HsSpan *spans, int span_count, HsContext *context, HsNaming naming,
                         HsWeights *weights);
/* To be written: in place of each quantized matrix the tensors that files have for it. */
HsStatus hs_weights_spell_out(HsWeights *weights);
void hs_weights_deinit(HsWeights *weights);

bool hs_weights_have_adapters(const HsSafetensors *file);

/* The parameters of a checkpoint's file `file_name`, under our names; packed copies are left as they are, and so are
 * adapters where the file has none.  errors: as hs_checkpoint_restore's */
HsStatus hs_weights_restore(const char *file_name, const HsSafetensors *file, const HsModel *model, const HsSpan *spans,
                            int span_count, HsContext *context);

#endif
