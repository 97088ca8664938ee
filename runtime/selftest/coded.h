/* SPDX-License-Identifier: MIT
 *
 * Operands of a product in codes below 16 bits: made here by the reference from a's and b's random numbers, which become
 * what the codes stand for; the backend under test gets the codes alone.  And results that are left in codes
 * (ops.h: hs_cast_apart).
 */
#ifndef HS_RUNTIME_SELFTEST_CODED_H
#define HS_RUNTIME_SELFTEST_CODED_H

#include "runtime/selftest/trial.h"

static inline bool hs_case_coded(const HsCase *config)
{
    return config->policy.granularity != HS_SCALE_NONE;
}

/* A scaling that earlier casts have left. */
static inline HsScaling hs_case_scaling(float kept)
{
    return (HsScaling){ .scale = 24.0f,
                        .inverse = 1.0f / 24.0f,
                        .kept = kept,
                        .largest = 448.0f,
                        .amax = 0.25f,
                        .recorded = 3,
                        .elements = 7,
                        .saturated = 2,
                        .zeroed = 1 };
}

/* The images of operands `a` and `b` become exact numbers, and trial->codes what they are in codes.  reference: NULL for
 * timing, when any codes will do.  errors: HS_ENOMEM */
HsStatus hs_trial_encode(HsTrial *trial, HsContext *reference, HsTrialOperand *a, HsTrialOperand *b);
/* The codes on the device, once a trial, with a's and b's own bytes withheld; in a dry run their shapes. */
HsStatus hs_trial_upload_codes(HsTrial *trial, HsContext *context, HsTensor *a, HsTensor *b, HsCodes codes[2]);
/* What the tensors' scales multiply the product by. */
float hs_trial_coded_factor(const HsTrial *trial);

/* Bytes of both operands' codes and block scales. */
double hs_trial_coded_bytes(const HsTrial *trial);

static inline bool hs_case_casts(const HsCase *config)
{
    return config->cast != HS_F32;
}

/* Operands `codes` and the next, of a case that casts: the codes of a result of that shape, and their scaling. */
void hs_trial_declare_cast(HsTrial *trial, int codes, const HsTensor *result);
/* The scaling's image, with a scale by which some numbers are too large, or by which none is; of other cases nothing. */
void hs_trial_prepare_cast(HsTrial *trial, int codes);
/* As the operation's argument; t: the operands' tensors, `result` which one is cast. */
HsCodes hs_trial_cast(const HsTrial *trial, const HsTensor *t, int result, int codes);
/* Codes and scaling that the reference makes of the result as the backend stored it: all but its own roundings is compared.
 * Of other cases nothing. */
HsStatus hs_trial_follow_cast(HsTrial *trial, HsContext *reference, void *const *stored, int result, int codes);

#endif
