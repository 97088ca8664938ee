/* SPDX-License-Identifier: MIT
 *
 * What the rooms above this one offer by name: their enumerations and tables are made from these lists (kernels/base/words.h),
 * and so are the configuration's choices.
 */
#ifndef HS_RUNTIME_CONFIG_KINDS_H
#define HS_RUNTIME_CONFIG_KINDS_H

#include "kernels/base/words.h"

/* model.family: rows in runtime/model/model.c */
#define HS_FAMILIES(X) X(gpt2, "gpt2") X(llama, "llama")

/* precision.mode, precision.fp8.recipe: rows in runtime/model/precision.c */
#define HS_PRECISION_MODES(X) X(fp32, "fp32") X(tf32, "tf32") X(bf16, "bf16") X(fp16, "fp16") X(fp8, "fp8")
#define HS_FP8_RECIPES(X) \
    X(current, "current") X(delayed, "delayed") X(block, "block") X(mxfp8, "mxfp8") X(nvfp4, "nvfp4")

/* memory.recompute: HS_RECOMPUTE_identifier (runtime/engine/program.h), rows in program_schedule.c */
#define HS_RECOMPUTE_POLICIES(X) X(NONE, "none") X(ATTENTION, "attention") X(MLP, "mlp") X(BLOCK, "block")

/* schedule.kind and others of optim: optim/kinds.h */

#endif
