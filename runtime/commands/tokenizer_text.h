/* SPDX-License-Identifier: MIT
 *
 * trainer tokenizer encode, decode and count: what they do with a tokenizer once arguments are read.
 */
#ifndef HS_RUNTIME_COMMANDS_TOKENIZER_TEXT_H
#define HS_RUNTIME_COMMANDS_TOKENIZER_TEXT_H

#include "runtime/data/source/source.h"

/* Each document as a line of token numbers, separated by blanks; an empty document is an empty line. */
HsStatus hs_tokenizer_print_ids(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                const HsSourceOptions *options, FILE *out);
/* All of them into a token file, an end-of-text token behind each, as training reads text. */
HsStatus hs_tokenizer_write_ids(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                const HsSourceOptions *options, const char *path);
/* Documents, bytes, tokens, bytes a token; as JSON in one line. */
HsStatus hs_tokenizer_print_count(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                  const HsSourceOptions *options, bool json, FILE *out);
/* The texts of a file's tokens: numbers, a text in each line as encode writes them, or a token file by its name; "-":
 * the standard input.  Of a token file the end-of-text token behind the last document is left out, and with `skip_end`
 * those between documents too. errors: HS_EFORMAT with line and column, or byte */
HsStatus hs_tokenizer_decode_file(const HsTokenizer *tokenizer, const char *path, const HsSourceOptions *options,
                                  bool skip_end, FILE *out);
/* One text: a line for each token, its number, a tab, its bytes. */
HsStatus hs_tokenizer_print_split(const HsTokenizer *tokenizer, const char *text, FILE *out);

#endif
