/* SPDX-License-Identifier: MIT
 *
 * Validation: windows spread evenly over the validation stream, the same ones every time, dropout off.
 */
#include <math.h>

#include "runtime/train/evaluate.h"
#include "runtime/train/reduce.h"

HsStatus hs_evaluate(HsProgram *program, HsContext *context, HsComm *comm, const HsDataset *dataset, int64_t windows,
                     int32_t *tokens, int32_t *targets, double *mean_loss)
{
    int64_t available = hs_dataset_validation_windows(dataset);
    int64_t length = dataset->sequence_length;
    if (windows <= 0 || windows > available)
        windows = available;
    double loss = 0;
    int64_t counted = 0;
    /* Ranks take batches in turn. */
    for (int64_t first = comm->rank * program->batch; first < windows; first += comm->size * program->batch) {
        for (int64_t row = 0; row < program->batch; row++) {
            /* The program's batch is fixed: rows beyond the last window repeat it with every target ignored. */
            int64_t index = first + row < windows ? first + row : windows - 1;
            hs_dataset_validation_sample(dataset, index, windows, tokens + row * length, targets + row * length);
            for (int64_t t = 0; t < length; t++) {
                int32_t *target = &targets[row * length + t];
                if (first + row >= windows)
                    *target = -1;
                counted += *target >= 0;
            }
        }
        double sum = 0;
        HS_TRY(hs_program_evaluate(program, context, tokens, targets, &sum, NULL));
        loss += sum;
    }
    HS_TRY(hs_reduce_losses(comm, context->stream, &loss, &counted, 1));
    *mean_loss = counted > 0 ? loss / (double)counted : NAN;
    return HS_OK;
}
