/* SPDX-License-Identifier: MIT
 *
 * The sources for one task after another: their floors, computed a second time from the text alone as in
 * test_synthetic.c, and that their tables do not depend on the seed.
 */
#include "runtime/data/synthetic/synthetic.h"
#include "tests/support/text_reader.h"

/* Rows of the table. */
enum { FIRST_TASK = 5, FIRST_PERMUTED = 9, PERMUTED = 10 };

/* Another line, or the blank line. */
static bool read_line_end(void)
{
    need("\n");
    bool stops = take("\n");
    pay(stops ? 1 : 15, 16);
    return stops;
}

static void read_addition(void)
{
    do {
        int digits[4]; /* tens and units of both operands */
        for (int i = 0; i < 4; i++) {
            cr_assert(*at >= (i % 2 ? '0' : '1') && *at <= '9', "operand at `%.40s`", at);
            digits[i] = *at++ - '0';
            if (i == 1)
                need("+");
        }
        pay(1, 90 * 90);
        char result[16];
        snprintf(result, sizeof result, "=%d", 10 * (digits[0] + digits[2]) + digits[1] + digits[3]);
        need(result);
    } while (!read_line_end());
}

/* What a key's value was when it was seen first; "" before. */
static char values[26][26][26][4];
static int fact_count;

static void read_facts(void)
{
    do {
        for (int i = 0; i < 7; i++)
            cr_assert(i == 3 ? at[i] == ':' : at[i] >= 'a' && at[i] <= 'z', "a fact at `%.40s`", at);
        char *value = values[at[0] - 'a'][at[1] - 'a'][at[2] - 'a'];
        if (!*value) {
            memcpy(value, at + 4, 3);
            fact_count++;
        }
        at += 4;
        need(value);
        pay(1, 200);
    } while (!read_line_end());
}

static void read_reversal(void)
{
    do {
        for (int i = 0; i < 5; i++) {
            cr_assert(at[i] >= 'a' && at[i] <= 'z' && at[10 - i] == at[i], "letters at `%.40s`", at);
            pay(1, 26);
        }
        at += 5;
        need(">");
        at += 5;
    } while (!read_line_end());
}

/* The words' chain as text of another seed shows it: how often each word followed each. */
enum { WORD_MOST = 128, WORD_BYTES = 8 };
static char words[WORD_MOST][WORD_BYTES];
static int word_count, followed[WORD_MOST][WORD_MOST];

/* The number of the word at the reading point, which is learnt when it is new. */
static int read_word(void)
{
    char word[WORD_BYTES] = "";
    size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");
    cr_assert(length >= 4 && length < WORD_BYTES, "a word at `%.40s`", at);
    memcpy(word, at, length);
    at += length;
    for (int i = 0; i < word_count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    cr_assert_lt(word_count, WORD_MOST, "more than %d words", WORD_MOST);
    memcpy(words[word_count], word, length);
    return word_count++;
}

static void learn_words(void)
{
    size_t length;
    int64_t documents;
    double told;
    char *text = generate("words", 99, 4000000, &length, &documents, &told);
    for (at = text; *at;) {
        int word = read_word();
        while (take(" ")) {
            int next = read_word();
            followed[word][next]++;
            word = next;
        }
        need("\n");
        (void)take("\n");
    }
    free(text);
    cr_expect_eq(word_count, WORD_MOST);
}

/* The weight out of 10 of `next` after `word`, by its rank among those that followed.  The 4 MB show every word over
 * 500 times as a line's first alone, and 9 times in 10 another comes after it: counts of 90 +- 8.5 and 45 +- 6.4 are
 * more than four deviations of their difference apart, and two shares of .1 have the same weight in either order. */
static int weight_after(int word, int next)
{
    int rank = 0, successors = 0;
    for (int i = 0; i < WORD_MOST; i++) {
        successors += followed[word][i] > 0;
        rank += followed[word][i] > followed[word][next];
    }
    cr_assert_eq(successors, 4, "%s has %d successors", words[word], successors);
    cr_assert_gt(followed[word][next], 0, "%s never followed %s", words[next], words[word]);
    return rank == 0 ? 6 : rank == 1 ? 2 : 1;
}

static void read_words(void)
{
    if (word_count == 0) {
        const char *here = at;
        learn_words();
        at = here;
    }
    do {
        int word = read_word();
        pay(1, WORD_MOST);
        for (;;) {
            bool more = take(" ");
            pay(more ? 9 : 1, 10);
            if (!more)
                break;
            int next = read_word();
            pay(weight_after(word, next), 10);
            word = next;
        }
    } while (!read_line_end());
}

Test(synthetic_tasks, floor_equals_what_an_independent_parser_decodes)
{
    static void (*const readers[])(void) = { read_addition, read_facts, read_words, read_reversal };
    for (int i = FIRST_TASK; i < FIRST_PERMUTED; i++)
        check_floor(hs_synthetic_table[i].name, readers[i - FIRST_TASK]);
    cr_expect_eq(hs_synthetic_count, FIRST_PERMUTED + PERMUTED);
}

/* The table of facts is the source's: text of any seed holds the same 200, and no key has two values. */
Test(synthetic_tasks, facts_do_not_depend_on_the_seed)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        size_t length;
        int64_t documents;
        double told;
        char *text = generate("facts", seed, 50000, &length, &documents, &told);
        for (at = text; *at;)
            read_facts(); /* fails at a value that differs */
        free(text);
        /* 6000 lines miss one of 200 facts with probability 200 e^-30. */
        cr_expect_eq(fact_count, 200, "%d facts after seed %d", fact_count, (int)seed);
    }
}

/* Each is `english` of the same seed, letter by letter through a bijection of the small letters: so its floor is
 * english's, which test_synthetic.c decodes. */
Test(synthetic_tasks, permuted_is_english_in_ten_alphabets)
{
    char alphabets[PERMUTED][26] = { 0 };
    size_t length, permuted_length;
    int64_t documents, permuted_documents;
    double told, permuted_told;
    char *english = generate("english", 7, 100000, &length, &documents, &told);
    for (int k = 0; k < PERMUTED; k++) {
        const char *name = hs_synthetic_table[FIRST_PERMUTED + k].name;
        char *alphabet = alphabets[k];
        bool used[26] = { false };
        cr_expect_eq(strncmp(name, "permuted", 8), 0);
        cr_expect_eq(name[8], '0' + k);
        char *text = generate(name, 7, 100000, &permuted_length, &permuted_documents, &permuted_told);
        cr_assert_eq(permuted_length, length);
        cr_expect_eq(permuted_documents, documents);
        cr_expect_eq(permuted_told, told);
        for (size_t i = 0; i < length; i++) {
            if (english[i] < 'a' || english[i] > 'z') {
                cr_assert_eq(text[i], english[i]);
                continue;
            }
            cr_assert(text[i] >= 'a' && text[i] <= 'z');
            char *image = &alphabet[english[i] - 'a'];
            if (!*image) {
                cr_assert_not(used[text[i] - 'a'], "two letters become %c", text[i]);
                used[text[i] - 'a'] = true;
                *image = text[i];
            }
            cr_assert_eq(*image, text[i]);
        }
        free(text);
        /* Of 26 letters a random permutation leaves one in place on average, and two agree in one: 10 have a
         * probability of 3e-7. */
        for (int other = -1; other < k; other++) {
            int same = 0;
            for (int letter = 0; letter < 26; letter++)
                same += alphabet[letter] && alphabet[letter] == (other < 0 ? 'a' + letter : alphabets[other][letter]);
            cr_expect_lt(same, 10, "%s and alphabet %d share %d letters", name, other, same);
        }
    }
    free(english);
}
