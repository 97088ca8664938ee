/* SPDX-License-Identifier: MIT */
#include "kernels/base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

HsStatus hs_array_grow(void *array_pointer, size_t size, size_t needed, size_t *capacity)
{
    if (needed <= *capacity)
        return HS_OK;
    size_t grown = *capacity ? *capacity : 16;
    while (grown < needed && grown <= SIZE_MAX / 2)
        grown *= 2;
    if (grown < needed || grown > SIZE_MAX / size)
        return hs_fail(HS_ENOMEM, "out of memory: %zu items of %zu bytes", needed, size);
    void *array;
    memcpy(&array, array_pointer, sizeof array); /* any object pointer: all have one representation here */
    array = realloc(array, grown * size);
    if (!array)
        return hs_fail(HS_ENOMEM, "out of memory: %zu items of %zu bytes", grown, size);
    memcpy(array_pointer, &array, sizeof array);
    *capacity = grown;
    return HS_OK;
}
