/* SPDX-License-Identifier: MIT
 *
 * A tokenizer learned from a task's text.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_TRAIN_H
#define HS_RUNTIME_DATA_TOKENIZER_TRAIN_H

#include "runtime/config/config.h"

/* Learn byte-level BPE merges (Sennrich et al. 2016; GPT-2's pre-tokenizer) from a task's training sources, as training
 * reads them, and write tokenizer.json.  Deterministic: ties go to the pair that comes first in byte order.  Of
 * conversations the messages' words are learned from.  special: texts that become one token each, the last ids; the
 * vocabulary counts them.
 * errors: the sources', HS_EIO where the output cannot be written, and HS_ECONFIG where it is one of the sources (both
 * before any is read), for token files, for special tokens that cannot be, and where there is no text */
enum { HS_MAX_SPECIAL = 64 };
HsStatus hs_tokenizer_train(const HsTaskConfig *task, int64_t vocabulary, const char *const *special, int special_count,
                            const char *output_path);

#endif
