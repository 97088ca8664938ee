/* SPDX-License-Identifier: MIT
 *
 * The floor of synthetic text, computed a second time from the text alone: a parser for each language decodes which
 * choices were made and adds up -log p.  It knows the grammars and their weights, but none of the generators' code;
 * that it reads every text to the end also shows that the choices can be read off the text.
 */
#include "runtime/data/synthetic/synthetic.h"
#include "tests/support/text_reader.h"

/* Takes one of the words and pays for it. */
static int take_word(const char *const *words, const int *weights, int count)
{
    double total = 0;
    for (int i = 0; i < count; i++)
        total += weights[i];
    for (int i = 0; i < count; i++)
        if (take(words[i])) {
            pay(weights[i], total);
            return i;
        }
    cr_assert(false, "no word of the list at `%.40s`", at);
    return -1;
}

/* ---- arithmetic ---- */

static long read_operand(void)
{
    static const double weights[] = { 4, 5, 1 }, numbers[] = { 10, 90, 900 };
    char *end;
    long value = strtol(at, &end, 10);
    long digits = end - at;
    cr_assert(digits >= 1 && digits <= 3 && (at[0] != '0' || digits == 1), "operand at `%.40s`", at);
    pay(weights[digits - 1], 10);
    pay(1, numbers[digits - 1]);
    at = end;
    return value;
}

static void read_arithmetic(void)
{
    for (;;) {
        long left = read_operand();
        char sign = *at++;
        pay(sign == '+' ? 5 : sign == '-' ? 3 : 2, 10);
        long right = read_operand();
        char result[32];
        snprintf(result, sizeof result, "=%ld\n",
                 sign == '+'   ? left + right
                 : sign == '-' ? left - right
                               : left * right);
        need(result);
        bool stops = take("\n");
        pay(stops ? 1 : 15, 16);
        if (stops)
            return;
    }
}

/* ---- brackets ---- */

static void read_brackets(void)
{
    static const char open[] = "([{<", close[] = ")]}>";
    char stack[12];
    int depth = 0;
    do {
        const char *kind = *at ? strchr(open, *at) : NULL;
        if (depth > 0 && depth < 12)
            pay(kind ? 9 : 11, 20);
        if (kind) {
            cr_assert_lt(depth, 12);
            pay(4 - (double)(kind - open), 10);
            stack[depth++] = close[kind - open];
            at++;
            continue;
        }
        cr_assert(depth > 0 && *at == stack[depth - 1], "bracket at `%.40s`", at);
        depth--;
        at++;
        if (depth == 0) { /* a group is closed: another, or the end of the line; then another line, or the end */
            bool line_ends = take("\n");
            pay(line_ends ? 1 : 2, 3);
            if (line_ends) {
                bool stops = see("\n");
                pay(stops ? 1 : 7, 8);
            }
        }
    } while (!take("\n"));
}

/* ---- english ---- */

#define WORDS(name, count, ...) static const char *const name[count] = __VA_ARGS__
#define WEIGHTS(name, ...)      static const int name[] = __VA_ARGS__
WORDS(people, 5, { "Anna", "Boris", "Clara", "David", "Edith" });
WEIGHTS(people_weights, { 5, 3, 2, 2, 1 });
WORDS(things, 10, { "cat", "dog", "bird", "farmer", "teacher", "horse", "king", "robot", "sailor", "doctor" });
WEIGHTS(thing_weights, { 8, 8, 6, 4, 4, 3, 3, 2, 2, 2 });
WORDS(qualities, 8, { "kind ", "young ", "small ", "big ", "happy ", "tired ", "clever ", "brave " });
WEIGHTS(quality_weights, { 6, 5, 5, 4, 3, 2, 2, 1 });
WORDS(counts, 4, { " two", " three", " four", " many" });
WEIGHTS(count_weights, { 4, 3, 2, 3 });
WORDS(doings, 5, { "sleep", "run", "sing", "laugh", "wait" });
WEIGHTS(doing_weights, { 5, 5, 3, 3, 2 });
WORDS(relations, 5, { "see", "like", "follow", "help", "hear" });
WEIGHTS(relation_weights, { 6, 6, 4, 3, 3 });
WORDS(manners, 4, { "slowly", "quietly", "often", "alone" });
WEIGHTS(manner_weights, { 4, 3, 3, 2 });
WORDS(links, 4, { ", and ", ", but ", " while ", " because " });
WEIGHTS(link_weights, { 5, 3, 2, 2 });

static bool see_any(const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (see(words[i]))
            return true;
    return false;
}

static void read_noun_phrase(void)
{
    need(" ");
    bool described = see_any(qualities, 8);
    pay(described ? 1 : 2, 3);
    if (described)
        take_word(qualities, quality_weights, 8);
    take_word(things, thing_weights, 10);
}

static void read_clause(bool first)
{
    bool plural = false;
    if (take(first ? "The" : "the")) {
        plural = see_any(counts, 4);
        pay(plural ? 3 : 4, 10);
        if (plural)
            take_word(counts, count_weights, 4);
        read_noun_phrase();
        if (plural)
            need("s");
    } else {
        pay(3, 10);
        take_word(people, people_weights, 5);
    }
    need(" ");
    bool transitive = see_any(relations, 5);
    pay(1, 2);
    if (transitive)
        take_word(relations, relation_weights, 5);
    else
        take_word(doings, doing_weights, 5);
    if (!plural)
        need("s");
    if (transitive) {
        if (!take(" a"))
            need(" the");
        pay(1, 2);
        read_noun_phrase();
        return;
    }
    at++; /* look behind the space */
    bool adverb = see_any(manners, 4);
    pay(adverb ? 1 : 2, 3);
    if (adverb)
        take_word(manners, manner_weights, 4);
    else
        at--;
}

static void read_english(void)
{
    for (;;) {
        read_clause(true);
        bool linked = see_any(links, 4);
        pay(linked ? 1 : 3, 4);
        if (linked) {
            take_word(links, link_weights, 4);
            read_clause(false);
        }
        need(".\n");
        bool stops = take("\n");
        pay(stops ? 1 : 9, 10);
        if (stops)
            return;
    }
}

/* ---- code ---- */

WORDS(variables, 10, { "size", "total", "left", "right", "index", "value", "limit", "first", "last", "key" });
static bool known[10];
static int known_count, depth;

/* A name of the list, or -1 with nothing read. */
static int read_name(void)
{
    for (int i = 0; i < 10; i++)
        if (take(variables[i]))
            return i;
    return -1;
}

static void read_variable(void)
{
    if ((depth < 1 || !take("i")) && (depth < 2 || !take("j"))) {
        int name = read_name();
        cr_assert(name >= 0 && known[name], "a declared variable at `%.40s`", at);
    } else if (at[-1] == 'i' && take("ndex")) {
        cr_assert(known[4]);
    }
    pay(1, known_count + depth);
}

static void read_code_operand(void)
{
    bool digit = *at >= '0' && *at <= '9';
    if (known_count > 0)
        pay(digit ? 2 : 3, 5);
    if (digit) {
        pay(1, 10);
        at++;
    } else {
        read_variable();
    }
}

static void read_expression(void)
{
    bool calls = take("min(") || take("max(") || take("gcd(");
    pay(calls ? 1 : 4, 5);
    if (calls) {
        pay(1, 3);
        read_code_operand();
        need(", ");
        read_code_operand();
        need(")");
        return;
    }
    read_code_operand();
    bool binary = *at == ' ';
    pay(1, 2);
    if (binary) {
        WORDS(operators, 4, { " + ", " - ", " * ", " % " });
        WEIGHTS(operator_weights, { 5, 3, 2, 1 });
        take_word(operators, operator_weights, 4);
        read_code_operand();
    }
}

static void read_block(void);

static void read_statement(void)
{
    need(depth == 2 ? "    " : depth == 1 ? "  " : "");
    double let = known_count < 10 ? 3 : 0, loop = known_count > 0 && depth < 2 ? 1 : 0;
    double total = let + loop + (known_count > 0 ? 5 + 2 : 0);
    if (take("let ")) {
        pay(let, total);
        int name = read_name();
        cr_assert(name >= 0 && !known[name]);
        pay(1, 10 - known_count);
        need(" = ");
        read_expression();
        known[name] = true;
        known_count++;
    } else if (take("print(")) {
        pay(2, total);
        read_variable();
        need(")");
    } else if (take("for ")) {
        pay(loop, total);
        need(depth == 0 ? "i in 0.." : "j in 0..");
        read_code_operand();
        need(" {\n");
        depth++;
        read_block();
        depth--;
        need(depth == 1 ? "  }" : "}");
    } else {
        pay(5, total);
        int name = read_name();
        cr_assert(name >= 0 && known[name], "a statement at `%.40s`", at);
        pay(1, known_count);
        need(" = ");
        read_expression();
    }
    need("\n");
}

static void read_block(void)
{
    for (;;) {
        read_statement();
        bool stops = depth == 0 ? see("\n") : depth == 1 ? see("}") : see("  }");
        pay(stops ? 1 : depth == 0 ? 9 : 2, depth == 0 ? 10 : 3);
        if (stops)
            return;
    }
}

static void read_code(void)
{
    memset(known, 0, sizeof known);
    known_count = depth = 0;
    read_block();
    need("\n");
}

/* ---- all of them ---- */

static void read_mixture(void)
{
    pay(1, 4);
    if (*at >= '0' && *at <= '9')
        read_arithmetic();
    else if (*at >= 'A' && *at <= 'Z')
        read_english();
    else if (*at >= 'a' && *at <= 'z')
        read_code();
    else
        read_brackets();
}

static void (*const readers[])(void) = { read_arithmetic, read_english, read_brackets, read_code, read_mixture };

/* The first rows of the table; test_synthetic_tasks.c reads the others. */
Test(synthetic, floor_equals_what_an_independent_parser_decodes)
{
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        check_floor(hs_synthetic_table[i].name, readers[i]);
}

Test(synthetic, longer_text_begins_with_the_shorter)
{
    for (int i = 0; i < hs_synthetic_count; i++) {
        char *text[3];
        size_t length[3];
        int64_t documents;
        double told;
        const char *name = hs_synthetic_table[i].name;
        cr_assert_eq(hs_synthetic_generate(name, 3, 5000, &text[0], &length[0], &documents, &told), HS_OK);
        cr_assert_eq(hs_synthetic_generate(name, 3, 9000, &text[1], &length[1], &documents, &told), HS_OK);
        cr_assert_eq(hs_synthetic_generate(name, 4, 5000, &text[2], &length[2], &documents, &told), HS_OK);
        cr_expect_eq(memcmp(text[0], text[1], length[0]), 0, "%s: same seed", name);
        cr_expect_neq(memcmp(text[0], text[2], 5000), 0, "%s: another seed", name);
        for (int k = 0; k < 3; k++)
            free(text[k]);
    }
}

Test(synthetic, unknown_name_is_an_error)
{
    char *text;
    size_t length;
    int64_t documents;
    double told;
    cr_expect_eq(hs_synthetic_generate("poetry", 3, 10, &text, &length, &documents, &told), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "there is no synthetic source `poetry`");
}
