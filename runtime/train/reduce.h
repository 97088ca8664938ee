/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a run add up in an optimizer step (kernels/base/comm.h).  Alone, each of these is one comparison.
 *
 *     counted targets -> loss scale / their sum over all ranks -> each rank's micro-batches, accumulated locally
 *     -> sum of the gradients -> norm, verdict, update: the same on every rank -> sums of the losses
 *
 * A rank divides by the targets of all ranks before its backward, so that gradients are summed and not averaged: a mean
 * of the ranks' means would weigh a rank with few targets too much, and a rank without any takes part like the others.
 *
 * Nobody branches on a rank's own gradients.  A NaN or an infinity of one rank is in every rank's sum, in the same
 * element, so all of them count the same non-finite elements, come to the same verdict and lower the same loss scale.
 */
#ifndef HS_RUNTIME_TRAIN_REDUCE_H
#define HS_RUNTIME_TRAIN_REDUCE_H

#include "kernels/base/comm.h"
#include "kernels/ops/step.h"
#include "optim/update.h"

/* Of the step that is about to start. */
HsStatus hs_reduce_counted(HsComm *comm, HsStream *stream, int64_t counted[HS_STEP_ROWS]);
/* After a step's last micro-batch, span by span in the order in which backward finished them: from the last. */
HsStatus hs_reduce_gradients(HsComm *comm, HsStream *stream, const HsSpan *spans, int count);
/* Sums of losses and how many targets each is of; host memory. */
HsStatus hs_reduce_losses(HsComm *comm, HsStream *stream, double *sums, int64_t *counts, size_t count);

#endif
