/* SPDX-License-Identifier: MIT
 *
 * The files next to a tokenizer.json, of which transformers' AutoTokenizer makes a tokenizer together with it.
 *
 *     tokenizer_config.json    the class, special tokens by role (eos_token ...), added tokens, options
 *     special_tokens_map.json  special tokens by role, before tokenizer_config.json's; read only where that has no
 *                              added_tokens_decoder, as added_tokens.json is
 *     added_tokens.json        {"token": id}
 *     config.json              model_type and tokenizer_class: the class where tokenizer_config.json has none
 *
 * Three classes make most of the tokenizer themselves and take vocabulary, merges and post_processor alone from
 * tokenizer.json; with all others that file rules.  As transformers 5.24 does it (AutoTokenizer.from_pretrained).
 */
#ifndef HS_RUNTIME_CONFIG_TOKENIZER_FOLDER_H
#define HS_RUNTIME_CONFIG_TOKENIZER_FOLDER_H

#include "runtime/config/config.h"
#include "runtime/io/json.h"

typedef enum HsTokenizerClass {
    HS_TOKENIZER_AS_WRITTEN, /* PreTrainedTokenizerFast, TokenizersBackend: tokenizer.json */
    HS_TOKENIZER_GPT2,
    HS_TOKENIZER_LLAMA,
    HS_TOKENIZER_QWEN2,
    HS_TOKENIZER_GEMMA,
    HS_TOKENIZER_OTHER, /* a class that is not known here */
} HsTokenizerClass;

typedef struct HsTokenizerFolder {
    HsJson *config, *special, *added; /* NULL: the file is not there */
    char *config_path;                /* of tokenizer_config.json */
    char model_type[32];              /* "": not known */
    char class_name[64];              /* "": none is named */
    HsTokenizerClass class;
    int64_t end_id; /* config.json's eos_token_id; -1: none, or several */
} HsTokenizerFolder;

/* tokenizer_json: its path, and its text, which decides about Llama's class.
 * errors: HS_EIO, HS_EFORMAT naming the file; HS_EUNSUPPORTED for an option that would cut text otherwise */
HsStatus hs_tokenizer_folder_open(const char *tokenizer_json, const char *text, HsTokenizerFolder *folder);
void hs_tokenizer_folder_close(HsTokenizerFolder *folder);

/* The roles of special tokens: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token; then NULL. */
extern const char *const hs_token_roles[];
/* The token of a role as JSON has it, a string or an object, by the precedence of the files; NULL: none is said.
 * *fallback: the class's own name for it then; NULL: none. */
const HsJson *hs_tokenizer_folder_role(const HsTokenizerFolder *folder, const char *role, const char **fallback);
/* Its text; NULL: none. */
const char *hs_token_content(const HsJson *token);

/* tokenizer.end_of_text where it is not set, from the folder of tokenizer.path: the eos_token, unless tokenizer.json alone
 * says the same by one of its usual names. */
HsStatus hs_config_adopt_end_of_text(HsConfig *config);
/* errors: HS_EUNSUPPORTED where the class of the folder's tokenizer is not known, so that its ids might be others */
HsStatus hs_tokenizer_folder_check(const char *tokenizer_json);

/* Names that the token between documents goes by, the first that a vocabulary has before the others; then NULL. */
extern const char *const hs_usual_ends_of_text[];

#endif
