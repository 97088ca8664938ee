/* SPDX-License-Identifier: MIT
 *
 * Lines such as "37+48=85"; a document is one line or more, then a blank line.
 *
 * Decodable: an operand's digits tell its length and value (no leading zeros), the operator is one character, and after
 * a line comes either a digit (another line) or the blank line.  The result is computed: it costs nothing, so a model
 * that has learnt to calculate loses nothing on it.
 */
#include "runtime/data/synthetic/synthetic.h"

/* One, two or three digits.  Short numbers are common, so that there is something easy to learn first. */
static const uint32_t digit_weights[] = { 4, 5, 1 };
static const uint32_t operator_weights[] = { 5, 3, 2 }; /* + - * */

static int64_t put_operand(HsSyntheticWriter *writer)
{
    static const int64_t lowest[] = { 0, 10, 100, 1000 };
    uint32_t digits = hs_synthetic_choose(writer, digit_weights, 3);
    int64_t span = lowest[digits + 1] - lowest[digits];
    int64_t value = lowest[digits] + hs_synthetic_uniform(writer, (uint32_t)span);
    hs_synthetic_put_integer(writer, value);
    return value;
}

void hs_synthetic_arithmetic(HsSyntheticWriter *writer)
{
    do {
        int64_t left = put_operand(writer);
        uint32_t operator_index = hs_synthetic_choose(writer, operator_weights, 3);
        hs_synthetic_put(writer, (const char *const[]){ "+", "-", "*" }[operator_index]);
        int64_t right = put_operand(writer);
        const int64_t results[] = { left + right, left - right, left * right };
        hs_synthetic_put(writer, "=");
        hs_synthetic_put_integer(writer, results[operator_index]);
        hs_synthetic_put(writer, "\n");
    } while (hs_synthetic_flip(writer, 15, 16));
    hs_synthetic_put(writer, "\n");
}
