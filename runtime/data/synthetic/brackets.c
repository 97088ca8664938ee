/* SPDX-License-Identifier: MIT
 *
 * Nested brackets of four kinds, written by a random walk on a stack; a document is one line or more, then a blank
 * line.
 *
 * Decodable, character by character: at every point the next character is an opening bracket (which names the kind
 * that was chosen), the one closing bracket that the stack allows, or the end of the line.  Which choices exist
 * depends on the depth alone, and the depth is seen in the text.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { BRACKET_KINDS = 4, BRACKET_DEPTH = 12 };

static const char *const opening[BRACKET_KINDS] = { "(", "[", "{", "<" };
static const char *const closing[BRACKET_KINDS] = { ")", "]", "}", ">" };
static const uint32_t kind_weights[BRACKET_KINDS] = { 4, 3, 2, 1 };

/* Goes down and comes back: opens one bracket, and more inside, until the first is closed again. */
static void put_group(HsSyntheticWriter *writer)
{
    uint32_t stack[BRACKET_DEPTH];
    int depth = 0;
    bool opens = true;
    do {
        if (opens) {
            uint32_t kind = hs_synthetic_choose(writer, kind_weights, BRACKET_KINDS);
            stack[depth++] = kind;
            hs_synthetic_put(writer, opening[kind]);
        } else {
            hs_synthetic_put(writer, closing[stack[--depth]]);
        }
        /* Closing is a little likelier than opening: groups end, and are a dozen characters long.  At the greatest
         * depth there is no choice. */
        if (depth > 0)
            opens = depth < BRACKET_DEPTH && hs_synthetic_flip(writer, 9, 20);
    } while (depth > 0);
}

void hs_synthetic_brackets(HsSyntheticWriter *writer)
{
    do {
        do
            put_group(writer);
        while (hs_synthetic_flip(writer, 2, 3));
        hs_synthetic_put(writer, "\n");
    } while (hs_synthetic_flip(writer, 7, 8));
    hs_synthetic_put(writer, "\n");
}
