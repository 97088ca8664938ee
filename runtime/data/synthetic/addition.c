/* SPDX-License-Identifier: MIT
 *
 * Sums of two-digit numbers, such as "37+48=85"; a document is one line or more, then a blank line.
 *
 * Decodable: both operands have two digits, so that the text shows them as they were drawn, and after a line comes a
 * digit (another line) or the blank line.  The sum costs nothing: a model that can add reaches the floor of 2 ln 90
 * nats a line, and the little for where documents end.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { LOWEST = 10, OPERANDS = 90 };

void hs_synthetic_addition(HsSyntheticWriter *writer)
{
    do {
        int64_t left = LOWEST + hs_synthetic_uniform(writer, OPERANDS);
        int64_t right = LOWEST + hs_synthetic_uniform(writer, OPERANDS);
        hs_synthetic_put_integer(writer, left);
        hs_synthetic_put(writer, "+");
        hs_synthetic_put_integer(writer, right);
        hs_synthetic_put(writer, "=");
        hs_synthetic_put_integer(writer, left + right);
        hs_synthetic_put(writer, "\n");
    } while (hs_synthetic_flip(writer, 15, 16));
    hs_synthetic_put(writer, "\n");
}
