/* SPDX-License-Identifier: MIT
 *
 * Sizes in bytes as people write them, for keys of the configuration and options of commands alike.
 *
 *     4096   512KiB   1.5 GiB   500MB   12G
 *
 * KiB, MiB, GiB, TiB are powers of 1024 (IEC 80000-13), and so are K, M, G, T; kB, MB, GB, TB are powers of 1000.  No
 * unit, or B: bytes.  Case does not matter, and blanks may stand before the unit.
 */
#ifndef HS_RUNTIME_IO_BYTE_SIZE_H
#define HS_RUNTIME_IO_BYTE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* A device's memory lies between these: less can only be a number without its unit. */
#define HS_MEMORY_LEAST_BYTES (INT64_C(1) << 20)
#define HS_MEMORY_MOST_BYTES  (INT64_C(1) << 50)

/* What a text that is none should have been, for messages. */
#define HS_BYTE_SIZE_FORM "a size in bytes, such as 12GiB, 500MB or 1048576"

/* A part of a byte is dropped; more than INT64_MAX becomes INT64_MAX, which bounds refuse.  false: the text is no
 * size: signs, a unit that does not exist, a fraction without a unit. */
bool hs_byte_size_read(const char *text, int64_t *bytes);

#endif
