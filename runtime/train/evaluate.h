/* SPDX-License-Identifier: MIT
 *
 * The mean loss over validation windows.
 */
#ifndef HS_RUNTIME_TRAIN_EVALUATE_H
#define HS_RUNTIME_TRAIN_EVALUATE_H

#include "kernels/base/comm.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/program.h"

/* Mean loss in nats a token over `windows` validation windows (0: all), which the ranks share.  tokens, targets:
 * scratch [batch, T].
 * errors: HS_EINTERRUPTED when the context's stop_asked says so */
HsStatus hs_evaluate(HsProgram *program, HsContext *context, HsComm *comm, const HsDataset *dataset, int64_t windows,
                     int32_t *tokens, int32_t *targets, double *mean_loss);

#endif
