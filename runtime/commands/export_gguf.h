/* SPDX-License-Identifier: MIT
 *
 * A Llama or Qwen model as one GGUF file, for llama.cpp and what is built on ggml.
 */
#ifndef HS_RUNTIME_COMMANDS_EXPORT_GGUF_H
#define HS_RUNTIME_COMMANDS_EXPORT_GGUF_H

#include "runtime/commands/export_source.h"
#include "runtime/commands/gguf.h"

/* Matrices in `type`, what is narrower than its blocks in f16; vectors in f32.  errors: HS_EUNSUPPORTED for models and
 * tokenizers that ggml has no name for; those of hs_export_source_tensors and hs_gguf_write */
HsStatus hs_export_gguf(const HsExportSource *source, HsGgufType type, const char *path);

/* The tokenizer's tables.  errors: HS_EUNSUPPORTED naming what cannot be said in such a file */
HsStatus hs_export_gguf_tokenizer(const HsExportSource *source, HsGguf *file);

#endif
