/* SPDX-License-Identifier: MIT
 *
 * Sentences of a small grammar with weighted choices; a document is one sentence or more, a line each, then a blank
 * line.
 *
 *     sentence    clause [link clause] "."
 *     clause      subject verb-phrase
 *     subject     name | "the" [adjective] noun | "the" number-word [adjective] noun+"s"
 *     verb-phrase intransitive [adverb] | transitive object
 *     object      "a" [adjective] noun | "the" [adjective] noun
 *     link        ", and" | ", but" | " while" | " because"
 *
 * Decodable: the grammar is read with one word of look-ahead.  Wherever there is a choice, its alternatives begin with
 * different words, because the word lists share no word (an article, an adjective, a noun, a number, a name, a verb
 * and an adverb are distinguished by sight), and an optional part is there or not according to the next word or mark.
 * The verb's ending follows the subject's number and the capital letter the sentence's beginning: both cost nothing.
 */
#include "runtime/data/synthetic/synthetic.h"

typedef struct Word {
    const char *text;
    uint32_t weight;
} Word;

static const Word names[] = { { "Anna", 5 }, { "Boris", 3 }, { "Clara", 2 }, { "David", 2 }, { "Edith", 1 } };
static const Word nouns[] = { { "cat", 8 },   { "dog", 8 },  { "bird", 6 },  { "farmer", 4 }, { "teacher", 4 },
                              { "horse", 3 }, { "king", 3 }, { "robot", 2 }, { "sailor", 2 }, { "doctor", 2 } };
static const Word adjectives[] = { { "kind", 6 },  { "young", 5 }, { "small", 5 },  { "big", 4 },
                                   { "happy", 3 }, { "tired", 2 }, { "clever", 2 }, { "brave", 1 } };
static const Word number_words[] = { { "two", 4 }, { "three", 3 }, { "four", 2 }, { "many", 3 } };
/* Without the third person's ending. */
static const Word intransitives[] = { { "sleep", 5 }, { "run", 5 }, { "sing", 3 }, { "laugh", 3 }, { "wait", 2 } };
static const Word transitives[] = { { "see", 6 }, { "like", 6 }, { "follow", 4 }, { "help", 3 }, { "hear", 3 } };
static const Word adverbs[] = { { "slowly", 4 }, { "quietly", 3 }, { "often", 3 }, { "alone", 2 } };
static const Word links[] = { { ", and", 5 }, { ", but", 3 }, { " while", 2 }, { " because", 2 } };

#define PICK(writer, words) pick(writer, words, sizeof(words) / sizeof((words)[0]))

static const char *pick(HsSyntheticWriter *writer, const Word *words, size_t count)
{
    uint32_t weights[16];
    for (size_t i = 0; i < count; i++)
        weights[i] = words[i].weight;
    return words[hs_synthetic_choose(writer, weights, (uint32_t)count)].text;
}

/* [adjective] noun */
static void put_noun_phrase(HsSyntheticWriter *writer)
{
    hs_synthetic_put(writer, " ");
    if (hs_synthetic_flip(writer, 1, 3)) {
        hs_synthetic_put(writer, PICK(writer, adjectives));
        hs_synthetic_put(writer, " ");
    }
    hs_synthetic_put(writer, PICK(writer, nouns));
}

/* Returns whether the subject is plural. */
static bool put_subject(HsSyntheticWriter *writer, bool begins_sentence)
{
    static const uint32_t subject_weights[] = { 3, 4, 3 };
    uint32_t form = hs_synthetic_choose(writer, subject_weights, 3);
    if (form == 0) {
        hs_synthetic_put(writer, PICK(writer, names));
        return false;
    }
    hs_synthetic_put(writer, begins_sentence ? "The" : "the");
    bool plural = form == 2;
    if (plural) {
        hs_synthetic_put(writer, " ");
        hs_synthetic_put(writer, PICK(writer, number_words));
    }
    put_noun_phrase(writer);
    if (plural)
        hs_synthetic_put(writer, "s");
    return plural;
}

static void put_clause(HsSyntheticWriter *writer, bool begins_sentence)
{
    bool plural = put_subject(writer, begins_sentence);
    bool transitive = hs_synthetic_flip(writer, 1, 2);
    hs_synthetic_put(writer, " ");
    hs_synthetic_put(writer, transitive ? PICK(writer, transitives) : PICK(writer, intransitives));
    if (!plural)
        hs_synthetic_put(writer, "s");
    if (transitive) {
        hs_synthetic_put(writer, hs_synthetic_flip(writer, 1, 2) ? " a" : " the");
        put_noun_phrase(writer);
    } else if (hs_synthetic_flip(writer, 1, 3)) {
        hs_synthetic_put(writer, " ");
        hs_synthetic_put(writer, PICK(writer, adverbs));
    }
}

void hs_synthetic_english(HsSyntheticWriter *writer)
{
    do {
        put_clause(writer, true);
        if (hs_synthetic_flip(writer, 1, 4)) {
            hs_synthetic_put(writer, PICK(writer, links));
            hs_synthetic_put(writer, " ");
            put_clause(writer, false);
        }
        hs_synthetic_put(writer, ".\n");
    } while (hs_synthetic_flip(writer, 9, 10));
    hs_synthetic_put(writer, "\n");
}
