/* SPDX-License-Identifier: MIT
 *
 * Pseudo-words in a first-order Markov chain; a document is one line of words or more, then a blank line.
 *
 *     line        word {" " successor}
 *     word        syllable syllable ending     (128 of them; a syllable is a consonant and a vowel)
 *     successor   one of four that every word has, with probabilities .6 .2 .1 .1
 *
 * Words and successors belong to the source and do not depend on the seed.  They are computed: a word's two syllables
 * are a place in a permutation of all pairs of syllables, its successors the first four places of a permutation of the
 * words that is its own.
 *
 * Decodable: the first four letters tell the word, the ending follows from it and costs nothing.  A line's first word
 * is uniform; later, the four successors are different words, so that the word names the choice.  After a word comes a
 * space (another word) or the end of the line, after a line a letter or the blank line.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { WORDS = 128, SUCCESSORS = 4, CONSONANTS = 14, VOWELS = 5, ENDINGS = 4, SYLLABLES = CONSONANTS * VOWELS };

static const char consonants[] = "bdfghklmnprstv", vowels[] = "aeiou";
static const char *const endings[ENDINGS] = { "", "n", "r", "s" };
static const uint32_t successor_weights[SUCCESSORS] = { 6, 2, 1, 1 };
/* Any numbers would do, but they must stay what they are: the second is the first of WORDS keys. */
static const uint64_t word_key = 0x574f524453, successor_key = 0x535543430000;

static void put_syllable(HsSyntheticWriter *writer, uint32_t syllable)
{
    hs_synthetic_put(writer, (const char[3]){ consonants[syllable / VOWELS], vowels[syllable % VOWELS], '\0' });
}

static void put_word(HsSyntheticWriter *writer, uint32_t word)
{
    uint32_t pair = (uint32_t)hs_rng_permute(word_key, word, SYLLABLES * SYLLABLES);
    put_syllable(writer, pair / SYLLABLES);
    put_syllable(writer, pair % SYLLABLES);
    hs_synthetic_put(writer, endings[word % ENDINGS]);
}

void hs_synthetic_words(HsSyntheticWriter *writer)
{
    do {
        uint32_t word = hs_synthetic_uniform(writer, WORDS);
        put_word(writer, word);
        while (hs_synthetic_flip(writer, 9, 10)) {
            uint32_t chosen = hs_synthetic_choose(writer, successor_weights, SUCCESSORS);
            word = (uint32_t)hs_rng_permute(successor_key + word, chosen, WORDS);
            hs_synthetic_put(writer, " ");
            put_word(writer, word);
        }
        hs_synthetic_put(writer, "\n");
    } while (hs_synthetic_flip(writer, 15, 16));
    hs_synthetic_put(writer, "\n");
}
