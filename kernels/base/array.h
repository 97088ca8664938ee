/* SPDX-License-Identifier: MIT
 *
 * Arrays of the heap that grow.
 */
#ifndef HS_KERNELS_BASE_ARRAY_H
#define HS_KERNELS_BASE_ARRAY_H

#include <stddef.h>

#include "kernels/base/status.h"

/* Grow an array of `size`-byte items to hold `needed`, doubling.  array_pointer: where the array's pointer is, of any
 * type of object.  errors: HS_ENOMEM, the array is left alone */
HsStatus hs_array_grow(void *array_pointer, size_t size, size_t needed, size_t *capacity);

#endif
