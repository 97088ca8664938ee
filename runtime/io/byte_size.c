/* SPDX-License-Identifier: MIT
 *
 * One parser of sizes: digits [. digits] [blanks] [unit].
 */
#include "runtime/io/byte_size.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

static const struct {
    const char *name;
    int64_t bytes;
} units[] = {
    { "KiB", INT64_C(1) << 10 },
    { "MiB", INT64_C(1) << 20 },
    { "GiB", INT64_C(1) << 30 },
    { "TiB", INT64_C(1) << 40 },
    { "K", INT64_C(1) << 10 },
    { "M", INT64_C(1) << 20 },
    { "G", INT64_C(1) << 30 },
    { "T", INT64_C(1) << 40 },
    { "kB", INT64_C(1000) },
    { "MB", INT64_C(1000000) },
    { "GB", INT64_C(1000000000) },
    { "TB", INT64_C(1000000000000) },
    { "B", 1 },
    { "", 1 },
};

static int64_t find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(name, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

bool hs_byte_size_read(const char *text, int64_t *bytes)
{
    const char *at = text;
    int64_t whole = 0;
    long double part = 0, place = 1;
    bool fraction = false, too_many = false;
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at); at++)
        too_many =
            __builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, *at - '0', &whole) || too_many;
    if (*at == '.') {
        fraction = true;
        if (!isdigit((unsigned char)*++at))
            return false;
        for (; isdigit((unsigned char)*at); at++)
            part += (long double)(*at - '0') * (place /= 10);
    }
    while (*at == ' ' || *at == '\t')
        at++;
    const int64_t unit = find_unit(at);
    if (unit == 0 || (fraction && unit == 1))
        return false;
    /* 0.1 is rounded in binary, so 0.1 MB may come out just below 100000: what is added makes up for that and is far
     * less than a byte. */
    const int64_t rest = (int64_t)floorl(part * (long double)unit + 0x1p-12L);
    too_many = too_many || __builtin_mul_overflow(whole, unit, &whole) || __builtin_add_overflow(whole, rest, &whole);
    *bytes = too_many ? INT64_MAX : whole;
    return true;
}
