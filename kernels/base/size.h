/* SPDX-License-Identifier: MIT
 *
 * Arithmetic of sizes that cannot wrap round: a sum or product that does not fit is SIZE_MAX, and stays SIZE_MAX in
 * what is made of it.  No allocation of more than HS_SIZE_MOST is tried, or counted in a plan, so that the sum of all
 * categories of memory is a number, too.
 */
#ifndef HS_KERNELS_BASE_SIZE_H
#define HS_KERNELS_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* 256 PiB. */
#define HS_SIZE_MOST ((size_t)1 << 58)

static inline size_t hs_size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static inline size_t hs_size_multiply(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* Rounded up to a multiple of `alignment`. */
static inline size_t hs_size_align(size_t bytes, size_t alignment)
{
    const size_t padded = hs_size_add(bytes, alignment - 1);
    return padded == SIZE_MAX ? SIZE_MAX : padded / alignment * alignment;
}

#endif
