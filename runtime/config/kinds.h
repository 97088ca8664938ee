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

/* model.shape: rows in runtime/config/shapes.c */
#define HS_MODEL_SHAPES(X)          \
    X(NONE, "none")                 \
    X(GPT2, "gpt2")                 \
    X(GPT2_MEDIUM, "gpt2-medium")   \
    X(GPT2_LARGE, "gpt2-large")     \
    X(GPT2_XL, "gpt2-xl")           \
    X(SMOLLM2_135M, "smollm2-135m") \
    X(SMOLLM2_360M, "smollm2-360m") \
    X(SMOLLM2_1_7B, "smollm2-1.7b") \
    X(SMOLLM3_3B, "smollm3-3b")     \
    X(LLAMA3_2_1B, "llama3.2-1b")   \
    X(LLAMA3_2_3B, "llama3.2-3b")   \
    X(QWEN2_5_0_5B, "qwen2.5-0.5b") \
    X(QWEN2_5_1_5B, "qwen2.5-1.5b") \
    X(QWEN3_0_6B, "qwen3-0.6b")     \
    X(QWEN3_1_7B, "qwen3-1.7b")     \
    X(QWEN3_4B, "qwen3-4b")         \
    X(GEMMA2_2B, "gemma2-2b")       \
    X(GEMMA3_270M, "gemma3-270m")   \
    X(GEMMA3_1B, "gemma3-1b")       \
    X(OLMO2_1B, "olmo2-1b")         \
    X(NANOCHAT_D12, "nanochat-d12") \
    X(NANOCHAT_D20, "nanochat-d20")

/* precision.mode, precision.fp8.recipe: rows in runtime/model/precision.c */
#define HS_PRECISION_MODES(X) X(fp32, "fp32") X(tf32, "tf32") X(bf16, "bf16") X(fp16, "fp16") X(fp8, "fp8")
#define HS_FP8_RECIPES(X) \
    X(current, "current") X(delayed, "delayed") X(block, "block") X(mxfp8, "mxfp8") X(nvfp4, "nvfp4")

/* memory.recompute: HS_RECOMPUTE_identifier (runtime/engine/program.h), rows in program_schedule.c */
#define HS_RECOMPUTE_POLICIES(X) X(NONE, "none") X(ATTENTION, "attention") X(MLP, "mlp") X(BLOCK, "block")

/* schedule.kind and others of optim: optim/kinds.h */

#endif
