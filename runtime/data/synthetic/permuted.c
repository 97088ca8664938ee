/* SPDX-License-Identifier: MIT
 *
 * The sentences of `english` in a secret alphabet: a fixed permutation of the small letters, another one for each
 * variant.  As tasks one after another they are to language models what permuted MNIST is to classifiers (Goodfellow
 * et al. 2013, section 4): equally hard, alike in structure, and each of no use for the letters of the next.
 *
 * Decodable: a permutation is a bijection and `english` can be decoded from its text, so that the entropy is the same.
 * Capital letters stay, and mark where names and sentences begin.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { LETTERS = 26 };

/* The first of the variants' keys: any number would do, but it must stay what it is. */
static const uint64_t alphabet_key = 0x414c50480000;

void hs_synthetic_permuted(HsSyntheticWriter *writer)
{
    HsSyntheticText *text = writer->text;
    size_t start = text->length;
    hs_synthetic_english(writer);
    for (size_t i = start; i < text->length; i++)
        if (text->bytes[i] >= 'a' && text->bytes[i] <= 'z')
            text->bytes[i] =
                (char)('a' + hs_rng_permute(alphabet_key + writer->variant, text->bytes[i] - 'a', LETTERS));
}
