/* SPDX-License-Identifier: MIT
 *
 * Expressions of a tokenizer.json, and texts looked for literally: where they match, in bounded time.
 *
 *   text  ->  match | gap | match | match | gap ...     (gap: the bytes between two matches)
 *
 * Bounded: a regular expression can take time that is exponential in a text's length, or quadratic.  Each match has a
 * limit of steps, raised fourfold while the budget lasts.  The budget is processor time: a quarter second, and four
 * microseconds for each byte ever given, shared by all of a tokenizer's expressions.  What else is done with the text
 * (merges) counts too; together an ordinary text needs a twentieth of it.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_PATTERN_H
#define HS_RUNTIME_DATA_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base/status.h"
#include "runtime/data/tokenizer/unicode.h"
#include "runtime/io/json.h"

/* White space is Unicode's property: PCRE2's own \s also takes U+180E. */
#define HS_SPACE     "\\p{White_Space}"
#define HS_NOT_SPACE "\\P{White_Space}"

/* GPT-2's: contractions, words, numbers and the rest, each with the one space before it; spaces. */
#define HS_PATTERN_GPT2                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" HS_SPACE "\\p{L}\\p{N}]+" \
    "|" HS_SPACE "+(?!" HS_NOT_SPACE ")|" HS_SPACE "+"

/* An expression written for Oniguruma -> the same for PCRE2 (caller frees), or HS_EUNSUPPORTED naming the construct.
 * where: the file and the place in it, for messages. */
HsStatus hs_pattern_translate(const char *where, const char *pattern, char **translated);

typedef struct HsPattern HsPattern;

/* From PCRE2's own syntax; from a text, which must not be empty.  errors: HS_EUNSUPPORTED, also for an expression that
 * can match nothing */
HsStatus hs_pattern_create(const char *where, const char *expression, HsPattern **pattern);
HsStatus hs_pattern_create_literal(const char *where, const char *text, HsPattern **pattern);
/* From {"Regex": ...} or {"String": ...}. */
HsStatus hs_pattern_parse(const char *where, const HsJson *node, HsPattern **pattern);
void hs_pattern_destroy(HsPattern *pattern);
/* From now on it is given the text itself: it names new characters. */
void hs_pattern_match_as_written(HsPattern *pattern);
/* Whether it is to be given text with stand-ins (unicode.h), as expressions are. */
bool hs_pattern_takes_stand_ins(const HsPattern *pattern);

/* What a tokenizer's expressions may still spend; shared by threads. */
typedef struct HsPatternBudget HsPatternBudget;
HsStatus hs_pattern_budget_create(const char *name, HsPatternBudget **budget);
void hs_pattern_budget_destroy(HsPatternBudget *budget);

/* One thread's scratch memory for any patterns. */
typedef struct HsMatcher HsMatcher;
HsStatus hs_matcher_create(HsPatternBudget *budget, size_t text_length, HsMatcher **matcher);
void hs_matcher_destroy(HsMatcher *matcher);

/* The match or gap that begins at `from` -> *end, *is_match.  text [length] is UTF-8 and from < length.
 * errors: HS_EUNSUPPORTED when the budget is spent, naming the pattern's place */
HsStatus hs_matcher_next(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length, size_t from,
                         size_t *end, bool *is_match);
/* The same in a text of which more follows: *decided false where that could change the match or gap, which reaches the
 * end, or looks there. */
HsStatus hs_matcher_next_open(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length,
                              size_t from, size_t *end, bool *decided);
/* The text that it looks for; NULL: it is an expression. */
const char *hs_pattern_literal(const HsPattern *pattern);
/* Whether what it matches may depend on the text before it. */
bool hs_pattern_looks_back(const HsPattern *pattern);
/* One more text for the matcher, as if it had been created for it. */
void hs_matcher_begin(HsMatcher *matcher, size_t text_length);
/* text[length] with every match replaced by content -> appended to out.  Bytes that are not UTF-8 pass unchanged. */
HsStatus hs_matcher_replace(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length,
                            const char *content, HsBytes *out);

#endif
