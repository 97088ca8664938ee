/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a run know, and others do not: the secret by which a newcomer is let in where ranks meet over TCP.
 * It comes from HALFSTEP_SECRET, or from the file that HALFSTEP_SECRET_FILE names, which only its owner may read; it is
 * never sent, printed or kept, and a key that is made from it is all that stays in memory.
 */
#ifndef HS_RUNTIME_LAUNCH_SECRET_H
#define HS_RUNTIME_LAUNCH_SECRET_H

#include <stdbool.h>

#include "kernels/base/status.h"

enum { HS_SECRET_BYTES = 32 }; /* of keys, nonces and proofs */

typedef struct HsSecret {
    bool known; /* false: none was given, and every newcomer can make the proof */
    unsigned char key[HS_SECRET_BYTES];
} HsSecret;

/* From the environment.  errors: HS_ECONFIG for a file that others may read or that is another user's, for both variables
 * at once, and for a secret that is too short to be one; no message has any of it */
HsStatus hs_secret_read(HsSecret *secret);
/* A random one, for processes that have another way to share it. */
HsStatus hs_secret_make(HsSecret *secret);
/* Overwrites it. */
void hs_secret_forget(HsSecret *secret);

/* Bytes that never come again, from the system's generator.  errors: HS_EDEVICE */
HsStatus hs_secret_nonce(unsigned char nonce[HS_SECRET_BYTES]);

/* Two sides that prove to each other that they know the same: each has sent a nonce, and the proof is a keyed hash
 * (HMAC-SHA-512-256) of both, in the order own, other, behind a word for the side.  So a proof is of one connection and one
 * direction only. */
typedef enum HsSide { HS_SIDE_HUB, HS_SIDE_NEWCOMER } HsSide;
void hs_secret_prove(const HsSecret *secret, HsSide side, const unsigned char own[HS_SECRET_BYTES],
                     const unsigned char other[HS_SECRET_BYTES], unsigned char proof[HS_SECRET_BYTES]);
/* Whether `proof` is what hs_secret_prove makes, in a time that does not depend on where it differs. */
bool hs_secret_is_proved(const HsSecret *secret, HsSide side, const unsigned char own[HS_SECRET_BYTES],
                         const unsigned char other[HS_SECRET_BYTES], const unsigned char proof[HS_SECRET_BYTES]);

#endif
