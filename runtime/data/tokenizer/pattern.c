/* SPDX-License-Identifier: MIT
 *
 * Patterns by PCRE2 (the only file that includes it); see pattern.h.
 *
 * An expression P is compiled as  (?:P)|(?:(?!P).)++(*MARK:gap)  and matched anchored, so that one call is one match or
 * one gap.  PCRE2's limit of steps holds for one place of the text at a time: unanchored, a call could take that long
 * at each of a million places before it returns.  A step may scan ahead to the end of the text, so steps alone bound
 * nothing, and a clock is read in addition.
 */
#include "runtime/data/tokenizer/pattern.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    JIT_STACK_FIRST = 32 << 10,
    JIT_STACK_MAX = 8 << 20,
    FIRST_STEPS = 1024,      /* enough for words */
    STEPS_FACTOR = 4,        /* at most this much is wasted when the last try fails */
    CLOCK_EVERY = 16,        /* matches between two looks at the clock */
    BUDGET_NS = 250000000,   /* processor time that any text may take */
    BUDGET_CALL_NS = 200000, /* and each call besides: a short text costs little more than its call */
    BUDGET_BYTE_NS = 4000,   /* and for each byte besides */
};
#define MOST_STEPS (UINT32_MAX / STEPS_FACTOR)

struct HsPattern {
    pcre2_code *code; /* NULL: a literal */
    int (*match)(const pcre2_code *, PCRE2_SPTR, PCRE2_SIZE, PCRE2_SIZE, uint32_t, pcre2_match_data *,
                 pcre2_match_context *);
    bool as_written; /* no stand-ins */
    bool looks_back;
    char *literal; /* NULL: an expression */
    size_t literal_length;
    char *where;
};

struct HsPatternBudget {
    _Atomic int64_t left_ns;
};

struct HsMatcher {
    HsPatternBudget *budget;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
    int64_t began_ns; /* processor time of the thread */
    int64_t began_wall_ns;
    int64_t matches;
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static HsStatus allocate(const char *where, HsPattern **pattern)
{
    *pattern = calloc(1, sizeof **pattern);
    if (*pattern)
        (*pattern)->where = strdup(where);
    if (*pattern && (*pattern)->where)
        return HS_OK;
    hs_pattern_destroy(*pattern);
    *pattern = NULL;
    return hs_fail(HS_ENOMEM, "%s: out of memory", where);
}

/* ^ outside of a class looks at the character before it; PCRE2 counts it as no lookbehind. */
static bool begins_lines(const char *expression)
{
    bool in_class = false;
    for (const char *at = expression; *at; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
            if (*at == 'G' || *at == 'K')
                return true;
        } else if (*at == '[' && !in_class) {
            in_class = true;
            at += at[1] == '^';
            at += at[1] == ']';
        } else if (*at == ']') {
            in_class = false;
        } else if (*at == '^' && !in_class) {
            return true;
        }
    }
    return false;
}

static HsStatus compile(HsPattern *pattern, const char *expression)
{
    int error;
    PCRE2_SIZE offset;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE; /* ^ and $ are always per line in Oniguruma */
    /* First alone: messages count characters of what the user wrote. */
    pcre2_code *alone = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, options, &error, &offset, NULL);
    if (!alone && error == PCRE2_ERROR_HEAP_FAILED)
        return hs_fail(HS_ENOMEM, "%s: out of memory", pattern->where);
    if (!alone) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(error, message, sizeof message);
        return hs_fail(HS_EUNSUPPORTED, "%s: %s at character %zu of the expression", pattern->where,
                       (const char *)message, offset);
    }
    uint32_t matches_empty = 0, lookbehind = 0;
    pcre2_pattern_info(alone, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    pcre2_pattern_info(alone, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
    pattern->looks_back = lookbehind > 0 || begins_lines(expression);
    pcre2_code_free(alone);
    if (matches_empty)
        return hs_fail(HS_EUNSUPPORTED, "%s: an expression that can match nothing is not supported", pattern->where);
    char *whole = NULL;
    if (asprintf(&whole, "(?:%s)|(?:(?!%s)(?s:.))++(*MARK:gap)", expression, expression) < 0)
        return hs_fail(HS_ENOMEM, "%s: out of memory", pattern->where);
    pattern->code =
        pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, options | PCRE2_ANCHORED, &error, &offset, NULL);
    free(whole);
    if (!pattern->code)
        return error == PCRE2_ERROR_HEAP_FAILED
                   ? hs_fail(HS_ENOMEM, "%s: out of memory", pattern->where)
                   : hs_fail(HS_EUNSUPPORTED, "%s: the expression is too large", pattern->where);
    /* Where the machine has no JIT the interpreter gives the same matches, only later. */
    const bool compiled = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    pattern->match = compiled ? pcre2_jit_match : pcre2_match;
    return HS_OK;
}

HsStatus hs_pattern_create(const char *where, const char *expression, HsPattern **pattern)
{
    HS_TRY(allocate(where, pattern));
    HsStatus status = compile(*pattern, expression);
    if (status != HS_OK) {
        hs_pattern_destroy(*pattern);
        *pattern = NULL;
    }
    return status;
}

HsStatus hs_pattern_create_literal(const char *where, const char *text, HsPattern **pattern)
{
    *pattern = NULL;
    if (text[0] == '\0')
        return hs_fail(HS_EUNSUPPORTED, "%s: an empty String matches nothing", where);
    HS_TRY(allocate(where, pattern));
    (*pattern)->literal = strdup(text);
    (*pattern)->literal_length = strlen(text);
    if ((*pattern)->literal)
        return HS_OK;
    hs_pattern_destroy(*pattern);
    *pattern = NULL;
    return hs_fail(HS_ENOMEM, "%s: out of memory", where);
}

HsStatus hs_pattern_parse(const char *where, const HsJson *node, HsPattern **pattern)
{
    *pattern = NULL;
    const char *regex = hs_json_string(hs_json_get(node, "Regex"));
    const char *text = hs_json_string(hs_json_get(node, "String"));
    if (hs_json_count(node) != 1 || (!regex && !text))
        return hs_fail(HS_EFORMAT, "%s: member `pattern` must be {\"Regex\": \"...\"} or {\"String\": \"...\"}", where);
    if (text)
        return hs_pattern_create_literal(where, text, pattern);
    char *translated, *changed = NULL;
    HS_TRY(hs_pattern_translate(where, regex, &translated));
    HsStatus status = hs_unicode_stand_ins(regex, strlen(regex), &changed);
    if (status == HS_OK && changed)
        status = hs_fail(HS_EUNSUPPORTED,
                         "%s: a character that came after Unicode 14 in an expression is not supported", where);
    free(changed);
    if (status == HS_OK)
        status = hs_pattern_create(where, translated, pattern);
    free(translated);
    return status;
}

void hs_pattern_destroy(HsPattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern->literal);
    free(pattern->where);
    free(pattern);
}

void hs_pattern_match_as_written(HsPattern *pattern)
{
    pattern->as_written = true;
}

bool hs_pattern_takes_stand_ins(const HsPattern *pattern)
{
    return pattern->code && !pattern->as_written;
}

HsStatus hs_pattern_budget_create(const char *name, HsPatternBudget **budget)
{
    *budget = calloc(1, sizeof **budget);
    if (!*budget)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    atomic_init(&(*budget)->left_ns, BUDGET_NS);
    return HS_OK;
}

void hs_pattern_budget_destroy(HsPatternBudget *budget)
{
    free(budget);
}

static void begin(HsMatcher *matcher, size_t text_length)
{
    matcher->began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    matcher->began_wall_ns = clock_ns(CLOCK_MONOTONIC);
    atomic_fetch_add(&matcher->budget->left_ns, BUDGET_CALL_NS + (int64_t)text_length * BUDGET_BYTE_NS);
}

HsStatus hs_matcher_create(HsPatternBudget *budget, size_t text_length, HsMatcher **matcher)
{
    HsMatcher *made = calloc(1, sizeof *made);
    *matcher = made;
    if (made) {
        made->context = pcre2_match_context_create(NULL);
        made->jit_stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MAX, NULL);
        made->match = pcre2_match_data_create(1, NULL); /* the whole match only */
    }
    if (!made || !made->context || !made->jit_stack || !made->match) {
        hs_matcher_destroy(made);
        *matcher = NULL;
        return hs_fail(HS_ENOMEM, "out of memory while tokenizing");
    }
    pcre2_jit_stack_assign(made->context, NULL, made->jit_stack);
    pcre2_set_match_limit(made->context, FIRST_STEPS);
    made->budget = budget;
    begin(made, text_length);
    return HS_OK;
}

void hs_matcher_begin(HsMatcher *matcher, size_t text_length)
{
    atomic_fetch_sub(&matcher->budget->left_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - matcher->began_ns);
    begin(matcher, text_length);
}

void hs_matcher_destroy(HsMatcher *matcher)
{
    if (!matcher)
        return;
    if (matcher->budget)
        atomic_fetch_sub(&matcher->budget->left_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - matcher->began_ns);
    pcre2_match_data_free(matcher->match);
    pcre2_jit_stack_free(matcher->jit_stack);
    pcre2_match_context_free(matcher->context);
    free(matcher);
}

static HsStatus fail_slow(const HsPattern *pattern)
{
    return hs_fail(HS_EUNSUPPORTED,
                   "%s: the expression takes too long on this text (more than %d ms and %d microseconds a byte); it "
                   "backtracks too much, write it so that each place of a text can match in one way only",
                   pattern->where, BUDGET_NS / 1000000, BUDGET_BYTE_NS / 1000);
}

static HsStatus check_budget(const HsMatcher *matcher, const HsPattern *pattern)
{
    int64_t left = atomic_load(&matcher->budget->left_ns);
    /* The cheap clock first: processor time is never more. */
    if (clock_ns(CLOCK_MONOTONIC) - matcher->began_wall_ns <= left ||
        clock_ns(CLOCK_THREAD_CPUTIME_ID) - matcher->began_ns <= left)
        return HS_OK;
    return fail_slow(pattern);
}

static HsStatus fail_match(const HsPattern *pattern, int error)
{
    PCRE2_UCHAR message[128];
    if (error == PCRE2_ERROR_MATCHLIMIT) /* a thousand million steps in one place */
        return fail_slow(pattern);
    pcre2_get_error_message(error, message, sizeof message);
    return hs_fail(HS_EUNSUPPORTED, "%s: the expression fails on this text: %s", pattern->where, (const char *)message);
}

static HsStatus next_literal(const HsPattern *pattern, const char *text, size_t length, size_t from, size_t *end,
                             bool *is_match)
{
    const char *found = memmem(text + from, length - from, pattern->literal, pattern->literal_length);
    *is_match = found == text + from;
    *end = *is_match ? from + pattern->literal_length : found ? (size_t)(found - text) : length;
    return HS_OK;
}

/* PCRE2's result for the place `from`, with as many steps as the budget allows; *result: PCRE2_ERROR_PARTIAL too, where
 * the options ask for it. */
static HsStatus run_pattern(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length, size_t from,
                            uint32_t options, int *result)
{
    if (++matcher->matches % CLOCK_EVERY == 0)
        HS_TRY(check_budget(matcher, pattern));
    uint32_t steps = FIRST_STEPS;
    while ((*result = pattern->match(pattern->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK | options,
                                     matcher->match, matcher->context)) == PCRE2_ERROR_MATCHLIMIT &&
           steps < MOST_STEPS) {
        HS_TRY(check_budget(matcher, pattern));
        pcre2_set_match_limit(matcher->context, steps *= STEPS_FACTOR);
    }
    if (steps != FIRST_STEPS)
        pcre2_set_match_limit(matcher->context, FIRST_STEPS);
    return *result < 0 && *result != PCRE2_ERROR_PARTIAL ? fail_match(pattern, *result) : HS_OK;
}

HsStatus hs_matcher_next(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length, size_t from,
                         size_t *end, bool *is_match)
{
    int result;
    if (pattern->literal)
        return next_literal(pattern, text, length, from, end, is_match);
    HS_TRY(run_pattern(matcher, pattern, text, length, from, 0, &result));
    *end = pcre2_get_ovector_pointer(matcher->match)[1];
    *is_match = pcre2_get_mark(matcher->match) == NULL;
    return HS_OK;
}

HsStatus hs_matcher_next_open(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length,
                              size_t from, size_t *end, bool *decided)
{
    int result;
    if (pattern->literal) {
        bool is_match;
        HS_TRY(next_literal(pattern, text, length, from, end, &is_match));
        *decided = *end < length;
        return HS_OK;
    }
    HS_TRY(run_pattern(matcher, pattern, text, length, from, PCRE2_PARTIAL_HARD, &result));
    *decided = result != PCRE2_ERROR_PARTIAL;
    *end = *decided ? pcre2_get_ovector_pointer(matcher->match)[1] : length;
    return HS_OK;
}

const char *hs_pattern_literal(const HsPattern *pattern)
{
    return pattern->literal;
}

bool hs_pattern_looks_back(const HsPattern *pattern)
{
    return pattern->looks_back;
}

static HsStatus replace_run(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length,
                            const char *content, HsBytes *out)
{
    char *stand_ins = NULL;
    if (hs_pattern_takes_stand_ins(pattern))
        HS_TRY(hs_unicode_stand_ins(text, length, &stand_ins));
    HsStatus status = HS_OK;
    for (size_t at = 0, end = 0; at < length && status == HS_OK; at = end) {
        bool is_match = false;
        status = hs_matcher_next(matcher, pattern, stand_ins ? stand_ins : text, length, at, &end, &is_match);
        if (status == HS_OK)
            status =
                is_match ? hs_bytes_append(out, content, strlen(content)) : hs_bytes_append(out, text + at, end - at);
    }
    free(stand_ins);
    return status;
}

HsStatus hs_matcher_replace(HsMatcher *matcher, const HsPattern *pattern, const char *text, size_t length,
                            const char *content, HsBytes *out)
{
    for (size_t at = 0; at < length;) {
        size_t valid = hs_utf8_valid_prefix(text + at, length - at);
        HS_TRY(replace_run(matcher, pattern, text + at, valid, content, out));
        at += valid;
        if (at < length)
            HS_TRY(hs_bytes_append(out, text + at++, 1));
    }
    return HS_OK;
}
