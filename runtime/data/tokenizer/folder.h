/* SPDX-License-Identifier: MIT
 *
 * A tokenizer.json and the files next to it -> the tokenizer.json that transformers' AutoTokenizer makes of them all.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_FOLDER_H
#define HS_RUNTIME_DATA_TOKENIZER_FOLDER_H

#include "runtime/config/tokenizer_folder.h"

/* Changes `root`, the parsed tokenizer.json, into it: the parts that the class makes itself, and the tokens that only
 * the other files name, which get the ids that the library gives them.  *changed: whether anything did.
 * errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_tokenizer_folder_apply(const HsTokenizerFolder *folder, HsJson *root, bool *changed);

/* The parts that the class makes itself, and whether there are any (folder_class.c).  errors: HS_EFORMAT */
HsStatus hs_tokenizer_class_apply(const HsTokenizerFolder *folder, HsJson *root);
bool hs_tokenizer_class_rebuilds(HsTokenizerClass class);

#endif
