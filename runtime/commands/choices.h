/* SPDX-License-Identifier: MIT
 *
 * Multiple choice: which of a question's endings the model finds likeliest, as HellaSwag is scored (Zellers et al. 2019).
 */
#ifndef HS_RUNTIME_COMMANDS_CHOICES_H
#define HS_RUNTIME_COMMANDS_CHOICES_H

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/train/evaluate.h"

typedef struct HsChoiceScores {
    int64_t questions;
    double right;          /* share in which the right ending has the largest log-likelihood, */
    double right_by_token; /* ... the largest a token of the ending, */
    double right_by_byte;  /* ... the largest a byte of it */
    double chance;         /* what guessing would have */
} HsChoiceScores;

/* `path`: JSON Lines, an object a question: a context (context, ctx, question or prompt), a list of two or more endings
 * (endings, choices or options), and the right one (label, answer or gold: counted from 0, as a number or its digits, or
 * A, B, C ...).  A space goes between context and ending where neither has one.  Of what is longer than the program's
 * sequences the end is read.  errors: HS_EFORMAT naming the line */
HsStatus hs_score_choices(const HsEvaluator *evaluator, const HsTokenizer *tokenizer, const char *path,
                          HsChoiceScores *scores);

#endif
