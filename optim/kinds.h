/* SPDX-License-Identifier: MIT
 *
 * What this folder offers by name (kernels/base/words.h).
 */
#ifndef HS_OPTIM_KINDS_H
#define HS_OPTIM_KINDS_H

#include "kernels/base/words.h"

/* optimizer.kind: HS_OPTIMIZER_identifier (update.h), rows in rules.c */
#define HS_OPTIMIZERS(X)      \
    X(ADAMW, "adamw")         \
    X(ADAMW8BIT, "adamw8bit") \
    X(ADAMWFP8, "adamwfp8") X(SGD, "sgd") X(MUON, "muon") X(SCHEDULE_FREE, "schedule-free") X(APOLLO, "apollo")

/* muon.polynomial: HS_MUON_identifier (update.h), rows in muon.c */
#define HS_MUON_POLYNOMIALS(X) X(NEWTON_SCHULZ, "newton-schulz") X(POLAR_EXPRESS, "polar-express")

/* apollo.granularity: HS_APOLLO_identifier (update.h) */
#define HS_APOLLO_GRANULARITIES(X) X(CHANNEL, "channel") X(TENSOR, "tensor")

/* memory.offload: HS_OFFLOAD_identifier (update.h) */
#define HS_OFFLOAD_LEVELS(X) X(NONE, "none") X(OPTIMIZER, "optimizer") X(GRADIENTS, "gradients") X(WEIGHTS, "weights")

/* schedule.kind: identifier_decay in schedule.c */
#define HS_SCHEDULES(X) X(constant, "constant") X(linear, "linear") X(cosine, "cosine") X(wsd, "wsd")

/* schedule.wsd_shape: identifier_decay in schedule.c */
#define HS_DECAY_SHAPES(X) X(sqrt, "sqrt") X(linear, "linear") X(cosine, "cosine")

/* continual.strategy: hs_strategy_identifier in a file of continual/ (none, joint, er: continual.c), in the order in which
 * those of a run act */
/* clang-format off */
#define HS_STRATEGIES(X) \
    X(none, "none") X(joint, "joint") X(er, "er") X(l2, "l2") X(ewc, "ewc") X(si, "si") X(mer, "mer") \
    X(agem, "a-gem") X(derpp, "der++") X(lwf, "lwf") X(generative, "generative") X(inclora, "inc-lora") \
    X(olora, "o-lora") X(merge, "merge")
/* clang-format on */

#endif
