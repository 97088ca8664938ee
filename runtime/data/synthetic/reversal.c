/* SPDX-License-Identifier: MIT
 *
 * Five random letters and the same letters backwards, such as "kqwea>aewqk"; a document is one line or more, then a
 * blank line.
 *
 * Decodable: the letters before '>' are the draws themselves; those after it follow and cost nothing.  After a line
 * comes a letter (another line) or the blank line.  The floor is 5 ln 26 nats a line and the end of documents.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { LENGTH = 5, LETTERS = 26 };

void hs_synthetic_reversal(HsSyntheticWriter *writer)
{
    do {
        char line[2 * LENGTH + 3] = { 0 };
        for (int i = 0; i < LENGTH; i++)
            line[i] = line[2 * LENGTH - i] = (char)('a' + hs_synthetic_uniform(writer, LETTERS));
        line[LENGTH] = '>';
        line[2 * LENGTH + 1] = '\n';
        hs_synthetic_put(writer, line);
    } while (hs_synthetic_flip(writer, 15, 16));
    hs_synthetic_put(writer, "\n");
}
