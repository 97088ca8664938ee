/* SPDX-License-Identifier: MIT
 *
 * Facts to be learnt by heart: lines key:value out of a table of 200, such as "qav:zmo"; a document is one line or
 * more, then a blank line.
 *
 * The table belongs to the source and does not depend on the seed, so that training text, validation text and every
 * run hold the same facts.  It is computed rather than stored: a key is a place in a permutation of all three-letter
 * strings, which makes the keys unique, and a value is drawn for each.
 *
 * Decodable: keys are unique, so that a key names the line that was chosen; its value costs nothing.  After a line
 * comes a letter (another line) or the blank line.  The floor is ln 200 nats a line and the end of documents; a model
 * that has not learnt the table pays up to 3 ln 26 more for each value.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { FACTS = 200, LETTERS = 26, STRINGS = LETTERS * LETTERS * LETTERS };

static const uint64_t table_key = 0x4641435453; /* any number would do, but it must stay what it is */

static void put_letters(HsSyntheticWriter *writer, uint32_t number)
{
    const char text[4] = { (char)('a' + number / (LETTERS * LETTERS)), (char)('a' + number / LETTERS % LETTERS),
                           (char)('a' + number % LETTERS), '\0' };
    hs_synthetic_put(writer, text);
}

void hs_synthetic_facts(HsSyntheticWriter *writer)
{
    do {
        uint32_t fact = hs_synthetic_uniform(writer, FACTS);
        put_letters(writer, (uint32_t)hs_rng_permute(table_key, fact, STRINGS));
        hs_synthetic_put(writer, ":");
        put_letters(writer, hs_philox(table_key, (const uint32_t[4]){ fact }).word[0] % STRINGS);
        hs_synthetic_put(writer, "\n");
    } while (hs_synthetic_flip(writer, 15, 16));
    hs_synthetic_put(writer, "\n");
}
