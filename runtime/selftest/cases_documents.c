/* SPDX-License-Identifier: MIT
 *
 * Cases of document_starts, and the documents of other operations' cases.
 */
#include "runtime/selftest/trial.h"

/* rows N; heads.sequence_length T */
#define CASE(n, t)                                                            \
    {                                                                         \
        HS_F32, HS_F32, HS_F32, .rows = n, .heads = { .sequence_length = t }, \
    }

static const HsCase document_cases[] = {
    CASE(1, 1), CASE(6, 3), CASE(31, 31), CASE(64, 32), CASE(99, 33), CASE(300, 100), CASE(4000, 1000),
};

enum { TOKENS, STARTS };

static HsTensor indices(int64_t rows)
{
    return hs_tensor_1d(NULL, HS_I32, rows);
}

static void declare(HsTrial *trial)
{
    trial->operands[TOKENS] = hs_filled(hs_updated("tokens", 1000.0, indices(trial->config->rows)), HS_FILL_INDEX);
    trial->operands[STARTS] = hs_output("starts", indices(trial->config->rows));
}

/* One in nine is marked, now and then the first of a sequence too. */
static HsStatus prepare(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    int32_t *tokens = trial->operands[TOKENS].image;
    for (int64_t n = 0; n < trial->config->rows; n++)
        tokens[n] = tokens[n] % 9 == 0 ? ~tokens[n] : tokens[n];
    return HS_OK;
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_document_starts(context,
                                 &(HsDocumentStartsArgs){ .tokens = t[TOKENS],
                                                          .sequence_length = trial->config->heads.sequence_length,
                                                          .starts = t[STARTS] });
}

static const HsCase document_timed[] = { CASE(4096, 1024) };

const HsOpTest hs_op_test_document_starts = {
    .cases = document_cases,
    .case_count = HS_COUNT_OF(document_cases),
    .timed = document_timed,
    .timed_count = HS_COUNT_OF(document_timed),
    .few_bytes = true,
    .declare = declare,
    .prepare = prepare,
    .call = call,
};

HsTrialOperand hs_starts_operand(const HsTrial *trial, int64_t rows)
{
    if (!trial->config->documents)
        return (HsTrialOperand){ 0 };
    return hs_filled(hs_input("starts", 1000.0, indices(rows)), HS_FILL_INDEX);
}

void hs_trial_draw_starts(HsTrial *trial, int operand)
{
    const int64_t length = trial->config->heads.sequence_length;
    int32_t *starts = trial->operands[operand].image;
    for (int64_t n = 0; n < hs_tensor_count(&trial->operands[operand].tensor); n++) {
        const int64_t t = n % length;
        const bool first = starts[n] < (t < length / 2 ? 8 : 150); /* of 1000 */
        starts[n] = t == 0 ? 0 : first ? (int32_t)t : starts[n - 1];
    }
}
