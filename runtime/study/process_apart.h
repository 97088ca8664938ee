/* SPDX-License-Identifier: MIT
 *
 * Something that is computed in a separate process, a fork of this one: a GPU that was looked at keeps memory for the
 * process that looked, and a plan reads texts.
 */
#ifndef HS_RUNTIME_STUDY_PROCESS_APART_H
#define HS_RUNTIME_STUDY_PROCESS_APART_H

#include <stdbool.h>
#include <stddef.h>

/* work(user) fills `answer`, which user leads to, in the other process; here it has these `bytes` afterwards.  The other
 * process logs errors alone.  False: it failed, and what `answer` holds is of no meaning. */
bool hs_ask_apart(void (*work)(void *user), void *user, void *answer, size_t bytes);

#endif
