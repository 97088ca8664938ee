/* SPDX-License-Identifier: MIT
 *
 * A Llama or Qwen model as one GGUF file, for llama.cpp and what is built on ggml.
 */
#ifndef HS_RUNTIME_COMMANDS_EXPORT_GGUF_H
#define HS_RUNTIME_COMMANDS_EXPORT_GGUF_H

#include "runtime/commands/export_about.h"
#include "runtime/commands/gguf.h"

/* Matrices in `type`, what is narrower than its blocks in f16; vectors in f32.  errors: HS_EUNSUPPORTED for models and
 * tokenizers that ggml has no name for; those of hs_export_source_tensors and hs_gguf_write */
HsStatus hs_export_gguf(const HsExportSource *source, HsGgufType type, const char *path);

/* The tokenizer's tables, tokens with a meaning, templates and sampling defaults.  errors: HS_EUNSUPPORTED naming what
 * cannot be said in such a file */
HsStatus hs_export_gguf_tokenizer(const HsExportAbout *about, HsGguf *file);

/* ggml's name for how the tokenizer of a tokenizer.json cuts text.  errors: HS_EUNSUPPORTED naming what has none */
HsStatus hs_gguf_cut(const HsJson *root, const char **name);
/* Whether llama.cpp takes a token with this text for the end of a text, whatever the file says. */
bool hs_gguf_ends_by_name(const char *text, size_t length);
/* Whether its tokens are found in texts as ggml finds them.  errors: HS_EUNSUPPORTED naming one that is not */
HsStatus hs_gguf_check_tokens(const HsJson *root);

#endif
