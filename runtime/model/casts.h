/* SPDX-License-Identifier: MIT
 *
 * Codes that are left in place of results.
 *
 * With delayed scaling (precision.fp8.recipe: delayed) the scale of a cast is known before the numbers are, so that what makes
 * them, a product or a norm, can cast them, and they need not be stored and read:
 *
 *     forward    norm --y, codes--> linear        up --f(pre), codes--> down             f: an activation, or a gate
 *     backward   norm --dx, codes--> linear       down --dpre = f'(pre) (dy w), codes--> up
 *
 * where nothing but the next linear layer's products reads them, and the device reads codes across
 * (HsBackend.turns_codes), so that those along rows are all there is.  In a pass without kept scales (the first
 * step, a probe) or one whose values are looked at, values are stored as ever, and the layer that reads them casts them into
 * the same places.
 */
#ifndef HS_RUNTIME_MODEL_CASTS_H
#define HS_RUNTIME_MODEL_CASTS_H

#include "runtime/model/builder.h"

/* Gives the linear layers in codes for which that holds, and what makes their values, their places for codes:
 * outputs[HS_OUTPUT_CODES] and inputs[HS_INPUT_CODES], made[HS_MADE_CODES] and taken[HS_MADE_CODES]. */
HsStatus hs_model_mark_casts(HsBuilder *builder);

#endif
