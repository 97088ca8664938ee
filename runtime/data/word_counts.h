/* SPDX-License-Identifier: MIT
 *
 * Words of sources and how often each occurs, by all threads; memory is that of the distinct ones.
 */
#ifndef HS_RUNTIME_DATA_WORD_COUNTS_H
#define HS_RUNTIME_DATA_WORD_COUNTS_H

#include "runtime/data/source/source.h"
#include "runtime/data/tokenizer/map.h"

/* GPT-2's pieces of the texts, read as the task says -> their counts, in the order in which they occur first.
 * errors: the sources', HS_ECONFIG where there is no text */
HsStatus hs_count_words(const HsSourceList *sources, const HsTaskConfig *task, HsMap *pieces);

#endif
