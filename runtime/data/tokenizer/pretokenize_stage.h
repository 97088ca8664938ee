/* SPDX-License-Identifier: MIT
 *
 * The stages of a pre-tokenizer.  Private to pretokenize*.c.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_STAGE_H
#define HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_STAGE_H

#include "runtime/data/tokenizer/members.h"
#include "runtime/data/tokenizer/pretokenize.h"
#include "runtime/data/tokenizer/pretokenize_ascii.h"

enum { HS_MAX_STAGES = 16 };

/* What becomes of a match; the text between two matches is always a piece. */
typedef enum HsSplitBehavior {
    HS_SPLIT_ISOLATED,      /* a piece */
    HS_SPLIT_REMOVED,       /* dropped */
    HS_SPLIT_WITH_PREVIOUS, /* joins the text before it */
    HS_SPLIT_WITH_NEXT,     /* joins the text after it */
    HS_SPLIT_CONTIGUOUS,    /* joins the matches next to it */
} HsSplitBehavior;

typedef struct HsStage {
    HsPattern *pattern;  /* NULL: nothing is cut */
    HsAsciiMatch *ascii; /* the pattern's matches in ASCII; NULL: all are PCRE2's */
    HsSplitBehavior behavior;
    bool invert;        /* matches and what lies between change places */
    bool one_character; /* the pattern matches single characters, whatever follows them */
    HsPrefix prefix;
    char space[5]; /* what is put in front of what does not begin with it: " ", or Metaspace's character */
    bool replace_spaces;
} HsStage;

struct HsPretokenizer {
    HsStage stages[HS_MAX_STAGES];
    int stage_count;
    bool byte_level;
};

#endif
