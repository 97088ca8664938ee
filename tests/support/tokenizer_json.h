/* SPDX-License-Identifier: MIT
 *
 * Small tokenizer.json texts for tests, with their own byte map.
 */
#ifndef HS_TESTS_SUPPORT_TOKENIZER_JSON_H
#define HS_TESTS_SUPPORT_TOKENIZER_JSON_H

#define PRE_GPT2 "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

/* A tokenizer.json with the bytes in numerical order as tokens 0..255.  Each argument is JSON text:
 *   vocab   further members of model.vocab, such as ",\"he\":256"
 *   merges  elements of model.merges, such as "\"h e\""
 *   model   further members of model, such as ",\"ignore_merges\":true"
 *   pre     the pre_tokenizer
 *   root    further members of the file, such as ",\"added_tokens\":[]"
 * The caller frees. */
char *tokenizer_json(const char *vocab, const char *merges, const char *model, const char *pre, const char *root);

#endif
