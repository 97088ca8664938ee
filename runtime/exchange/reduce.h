/* SPDX-License-Identifier: MIT
 *
 * What the processes of a run add up (kernels/base/comm.h).  Alone, each of these is one comparison.
 *
 *     loss scale / counted targets of the whole effective batch -> each process's virtual ranks (virtual_ranks.h)
 *     -> sum of the gradients -> norm, verdict, update: the same everywhere -> losses, micro-batch by micro-batch
 *
 * Every process reads the whole batch, and so knows how many targets count before its backward: gradients are summed
 * and not averaged.  A mean of the processes' means would weigh one with few targets too much; one without any takes
 * part like the others.
 *
 * No rank branches on its own gradients.  A NaN or an infinity of one is in every rank's sum, in the same
 * element, so all of them count the same non-finite elements, come to the same verdict and lower the same loss scale.
 */
#ifndef HS_RUNTIME_EXCHANGE_REDUCE_H
#define HS_RUNTIME_EXCHANGE_REDUCE_H

#include "kernels/base/comm.h"
#include "optim/update.h"

/* After a step's last micro-batch. */
HsStatus hs_reduce_gradients(HsComm *comm, HsStream *stream, const HsSpan *spans, int count);
/* The same of a list of tensors. */
HsStatus hs_reduce_tensors(HsComm *comm, HsStream *stream, const HsTensor *tensors, int count);
/* Entries that one process each worked out, and that are 0 in the others: all have all of them, and may fold them in
 * their order, whichever process made them.  Host memory. */
HsStatus hs_share_entries(HsComm *comm, HsStream *stream, double *entries, size_t count);
/* rows [count, row_bytes] of host memory, of which process r made the r-th of `size` equal parts: all have all. */
HsStatus hs_share_rows(HsComm *comm, HsStream *stream, void *rows, int64_t count, size_t row_bytes);
/* Whether all processes have the same text, which says what a run is made of; `what` is for the message, which names the
 * first process that has another.  errors: HS_ECONFIG, the same on all */
HsStatus hs_check_same(HsComm *comm, const char *text, const char *what);
/* Gives process 0's text to all: the others' is NULL before, and to be freed afterwards.  errors: HS_ENOMEM */
HsStatus hs_share_text(HsComm *comm, char **text);

#endif
