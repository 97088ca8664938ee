/* SPDX-License-Identifier: MIT
 *
 * Endings of many questions go through the program a batch at a time, each a row that begins with its context; only the
 * ending's tokens are targets.
 */
#include "runtime/commands/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/data/source/source.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/io/utf8.h"

enum { MOST_ENDINGS = 26 };

/* One ending on its way. */
typedef struct Ending {
    int64_t question;
    int index;
    int64_t tokens, bytes;
} Ending;

typedef struct Question {
    int count, label;
    double sum[MOST_ENDINGS], by_token[MOST_ENDINGS], by_byte[MOST_ENDINGS]; /* log-likelihoods */
} Question;

typedef struct Scorer {
    const HsEvaluator *evaluator;
    const HsTokenizer *tokenizer;
    int64_t length, batch;
    Ending *rows; /* of the batch under way */
    int64_t row_count;
    float *losses;
    Question *questions;
    int64_t question_count;
    size_t question_capacity;
    int64_t cut, longest; /* endings that did not fit into a row with their contexts, and the most tokens of one */
} Scorer;

static const HsJson *member(const HsJson *object, const char *const *names)
{
    for (; *names; names++)
        if (hs_json_get(object, *names))
            return hs_json_get(object, *names);
    return NULL;
}

static bool has_space(const char *context, const char *ending)
{
    const size_t length = strlen(context);
    return length == 0 || ending[0] == ' ' || ending[0] == '\n' || context[length - 1] == ' ' ||
           context[length - 1] == '\n';
}

static HsStatus read_label(const char *place, const HsJson *value, int count, int *label)
{
    const char *const text = hs_json_string(value);
    double number = hs_json_number(value);
    if (text && text[0] >= 'A' && text[0] <= 'Z' && text[1] == '\0')
        number = text[0] - 'A';
    else if (text && text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789") == strlen(text))
        number = strtod(text, NULL);
    if (!(number >= 0 && number < count) || number != (double)(int)number)
        return hs_fail(HS_EFORMAT, "%s: the label must name one of the %d endings, from 0 (or A) on", place, count);
    *label = (int)number;
    return HS_OK;
}

/* The batch through the program; rows that are not there have no targets. */
static HsStatus run_batch(Scorer *scorer)
{
    const HsEvaluator *evaluator = scorer->evaluator;
    double sum = 0;
    for (int64_t row = scorer->row_count; row < scorer->batch; row++) {
        for (int64_t t = 0; t < scorer->length; t++) {
            evaluator->tokens[row * scorer->length + t] = 0;
            evaluator->targets[row * scorer->length + t] = -1;
        }
    }
    HS_TRY(hs_program_evaluate(evaluator->program, evaluator->context, evaluator->tokens, evaluator->targets, &sum,
                               scorer->losses));
    for (int64_t row = 0; row < scorer->row_count; row++) {
        const Ending *ending = &scorer->rows[row];
        Question *question = &scorer->questions[ending->question];
        double likelihood = 0;
        for (int64_t t = 0; t < scorer->length; t++)
            if (evaluator->targets[row * scorer->length + t] >= 0)
                likelihood -= (double)scorer->losses[row * scorer->length + t];
        question->sum[ending->index] = likelihood;
        question->by_token[ending->index] = likelihood / (double)(ending->tokens > 0 ? ending->tokens : 1);
        question->by_byte[ending->index] = likelihood / (double)(ending->bytes > 0 ? ending->bytes : 1);
    }
    scorer->row_count = 0;
    return HS_OK;
}

/* Context and ending as the next row; the ending's tokens are targets of the positions before them. */
static HsStatus add_ending(Scorer *scorer, const HsTokens *context, const char *text, int64_t bytes, int index)
{
    const HsEvaluator *evaluator = scorer->evaluator;
    HsTokens all = { 0 };
    const int64_t length = scorer->length, row = scorer->row_count;
    HsStatus status = hs_tokens_reserve(&all, context->count);
    for (int64_t i = 0; status == HS_OK && i < context->count; i++)
        all.items[all.count++] = context->items[i];
    if (status == HS_OK)
        status = hs_tokenizer_encode(scorer->tokenizer, text, strlen(text), &all);
    const int64_t first = all.count > length + 1 ? all.count - length - 1 : 0; /* the end of what is too long */
    scorer->cut += first > 0;
    scorer->longest = first > 0 && all.count > scorer->longest ? all.count : scorer->longest;
    int64_t targets = 0;
    for (int64_t t = 0; status == HS_OK && t < length; t++) {
        const int64_t at = first + t;
        const bool scored = at + 1 < all.count && at + 1 >= context->count;
        evaluator->tokens[row * length + t] = at < all.count ? all.items[at] : 0;
        evaluator->targets[row * length + t] = scored ? all.items[at + 1] : -1;
        targets += scored;
    }
    hs_tokens_deinit(&all);
    HS_TRY(status);
    scorer->rows[row] = (Ending){ scorer->question_count - 1, index, targets, bytes };
    scorer->row_count++;
    return scorer->row_count == scorer->batch ? run_batch(scorer) : HS_OK;
}

static HsStatus add_endings(Scorer *scorer, const char *place, const char *context, const HsJson *endings)
{
    HsTokens tokens = { 0 };
    const int32_t end = hs_tokenizer_end_of_text(scorer->tokenizer);
    HsStatus status = hs_tokenizer_append_begin(scorer->tokenizer, &tokens);
    if (status == HS_OK)
        status = hs_tokenizer_encode(scorer->tokenizer, context, strlen(context), &tokens);
    /* A first token needs one before it. */
    if (status == HS_OK && tokens.count == 0 && end >= 0) {
        status = hs_tokens_reserve(&tokens, 1);
        if (status == HS_OK)
            tokens.items[tokens.count++] = end;
    }
    int index = 0;
    for (const HsJson *node = hs_json_first(endings); node && status == HS_OK; node = hs_json_next(node), index++) {
        const char *const ending = hs_json_string(node);
        if (!ending || ending[0] == '\0') {
            status = hs_fail(HS_EFORMAT, "%s: ending %d must be a text that is not empty", place, index);
            break;
        }
        const size_t room = strlen(ending) + 2;
        char *text = malloc(room);
        if (text) {
            snprintf(text, room, "%s%s", has_space(context, ending) ? "" : " ", ending);
            status = add_ending(scorer, &tokens, text, (int64_t)strlen(ending), index);
        } else {
            status = hs_fail(HS_ENOMEM, "%s: no memory for an ending", place);
        }
        free(text);
    }
    hs_tokens_deinit(&tokens);
    return status;
}

static HsStatus add_question(Scorer *scorer, const char *place, const HsJson *root)
{
    static const char *const contexts[] = { "context", "ctx", "question", "prompt", NULL };
    static const char *const lists[] = { "endings", "choices", "options", NULL };
    static const char *const labels[] = { "label", "answer", "gold", NULL };
    const char *const context = hs_json_string(member(root, contexts));
    const HsJson *endings = member(root, lists);
    const int count = hs_json_is_array(endings) ? hs_json_count(endings) : 0;
    if (!context)
        return hs_fail(HS_EFORMAT, "%s: no context (a text named context, ctx, question or prompt)", place);
    if (count < 2 || count > MOST_ENDINGS)
        return hs_fail(HS_EFORMAT, "%s: no list of 2 to %d endings (named endings, choices or options)", place,
                       MOST_ENDINGS);
    HS_TRY(hs_array_grow(&scorer->questions, sizeof *scorer->questions, (size_t)scorer->question_count + 1,
                         &scorer->question_capacity));
    Question *question = &scorer->questions[scorer->question_count];
    *question = (Question){ .count = count };
    HS_TRY(read_label(place, member(root, labels), count, &question->label));
    scorer->question_count++;
    return add_endings(scorer, place, context, endings);
}

static HsStatus read_questions(Scorer *scorer, const char *path, const char *text, size_t size)
{
    int64_t line = 0;
    for (size_t start = hs_utf8_mark_bytes(text, size); start < size;) {
        const char *newline = memchr(text + start, '\n', size - start);
        const size_t length = newline ? (size_t)(newline - text) - start : size - start;
        char place[512];
        HsJson *root = NULL;
        line++;
        snprintf(place, sizeof place, "%s:%" PRId64, path, line);
        if (strspn(text + start, " \t\r\n") < length) { /* not blank */
            HsStatus status = hs_json_parse_python(place, text + start, length, &root);
            if (status != HS_OK)
                status = hs_jsonl_explain(status, place, text + start, length, start + length + 1 >= size);
            else
                status = add_question(scorer, place, root);
            hs_json_destroy(root);
            HS_TRY(status);
        }
        start += length + 1;
    }
    if (scorer->question_count == 0)
        return hs_fail(HS_EFORMAT,
                       "%s: no question in it: each line must be a JSON object with context, endings and label", path);
    return scorer->row_count > 0 ? run_batch(scorer) : HS_OK;
}

/* Of endings that are as likely as each other the first counts, as in the harnesses that this is compared with. */
static bool is_best(const double *values, int count, int label)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        best = values[i] > values[best] ? i : best;
    return best == label;
}

static void sum_up(const Scorer *scorer, HsChoiceScores *scores)
{
    const double count = (double)scorer->question_count;
    *scores = (HsChoiceScores){ .questions = scorer->question_count };
    for (int64_t i = 0; i < scorer->question_count; i++) {
        const Question *question = &scorer->questions[i];
        scores->right += is_best(question->sum, question->count, question->label);
        scores->right_by_token += is_best(question->by_token, question->count, question->label);
        scores->right_by_byte += is_best(question->by_byte, question->count, question->label);
        scores->chance += 1.0 / question->count;
    }
    scores->right /= count;
    scores->right_by_token /= count;
    scores->right_by_byte /= count;
    scores->chance /= count;
}

HsStatus hs_score_choices(const HsEvaluator *evaluator, const HsTokenizer *tokenizer, const char *path,
                          HsChoiceScores *scores)
{
    char *text = NULL;
    size_t size = 0;
    const HsProgram *program = evaluator->program;
    Scorer scorer = {
        .evaluator = evaluator, .tokenizer = tokenizer, .length = program->sequence_length, .batch = program->batch
    };
    scorer.rows = calloc((size_t)scorer.batch, sizeof *scorer.rows);
    scorer.losses = calloc((size_t)(scorer.batch * scorer.length), sizeof *scorer.losses);
    HsStatus status = scorer.rows && scorer.losses ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a batch of endings");
    if (status == HS_OK)
        status = hs_read_file(path, 0, &text, &size);
    if (status == HS_OK)
        status = read_questions(&scorer, path, text, size);
    if (status == HS_OK)
        sum_up(&scorer, scores);
    if (status == HS_OK && scorer.cut > 0)
        hs_warn("%s: %lld endings with their contexts are longer than max_length %lld (the longest has %lld tokens): "
                "their beginnings are not seen; raise max_length",
                path, (long long)scorer.cut, (long long)scorer.length, (long long)scorer.longest);
    free(text);
    free(scorer.rows);
    free(scorer.losses);
    free(scorer.questions);
    return status;
}
