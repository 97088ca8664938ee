/* SPDX-License-Identifier: MIT
 *
 * A YAML scalar or list -> one typed, checked value.  One row of `kinds` per type.
 * Numbers are read by our own grammar, because YAML 1.1 would call 2e-4 a string and 1_000 a number.
 */
#include "runtime/config/table.h"
#include "runtime/config/aliases.h"
#include "runtime/io/byte_size.h"
#include "runtime/io/files.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 64 };

/* What stands in the file, for "(got ...)": long texts cut at a character's edge. */
static const char *show(const HsYaml *node, char *buffer, size_t size)
{
    if (node->kind != HS_YAML_SCALAR)
        return node->kind == HS_YAML_LIST ? "a list" : "a map";
    if (hs_yaml_is_null(node))
        return "nothing";
    size_t length = strlen(node->text);
    bool cut = length > SHOWN_BYTES - 20;
    if (cut)
        for (length = SHOWN_BYTES - 20; length > 0 && ((unsigned char)node->text[length] & 0xC0) == 0x80;)
            length--;
    snprintf(buffer, size, "%s%.*s%s%s", node->plain ? "" : "the text \"", (int)length, node->text, cut ? "..." : "",
             node->plain ? "" : "\"");
    return buffer;
}

/* "KEY must be REQUIREMENT (got ...)" */
static HsStatus must_be(const HsConfigKey *key, const char *name, const HsYaml *node, const char *requirement)
{
    char dotted[HS_DOTTED_BYTES], shown[SHOWN_BYTES * 2];
    return hs_yaml_fail(name, node->line, node->column, "%s must be %s (got %s)", hs_config_key_dotted(key, dotted),
                        requirement, show(node, shown, sizeof shown));
}

static HsStatus check_bounds(const HsConfigKey *key, const char *name, const HsYaml *node, double value)
{
    char requirement[64], number[32];
    if (value >= key->low && value <= key->high)
        return HS_OK;
    bool below = value < key->low;
    snprintf(requirement, sizeof requirement, "at %s %s", below ? "least" : "most",
             hs_config_real_text(below ? key->low : key->high, number));
    return must_be(key, name, node, requirement);
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* [+-] digits */
static bool is_integer(const char *text)
{
    text += *text == '+' || *text == '-';
    size_t digits = count_digits(text);
    return digits > 0 && text[digits] == '\0';
}

/* [+-] (digits [. digits] | . digits) [e [+-] digits] */
static bool is_real(const char *text)
{
    text += *text == '+' || *text == '-';
    size_t before = count_digits(text), after = 0;
    text += before;
    if (*text == '.') {
        after = count_digits(text + 1);
        text += 1 + after;
    }
    if (before + after == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text += 1 + (text[1] == '+' || text[1] == '-');
        size_t exponent = count_digits(text);
        if (exponent == 0)
            return false;
        text += exponent;
    }
    return *text == '\0';
}

static HsStatus set_int(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    if (node->kind != HS_YAML_SCALAR || !node->plain || !is_integer(node->text))
        return must_be(key, name, node, "a whole number");
    errno = 0;
    long long value = strtoll(node->text, NULL, 10);
    /* Out of int64's range: clamped by strtoll, so that the bounds below refuse it and show the text as written. */
    HS_TRY(check_bounds(key, name, node, (double)value));
    *(int64_t *)field = value;
    return HS_OK;
}

static HsStatus set_bytes(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    int64_t bytes = 0;
    if (node->kind != HS_YAML_SCALAR || hs_yaml_is_null(node) || !hs_byte_size_read(node->text, &bytes))
        return must_be(key, name, node, HS_BYTE_SIZE_FORM);
    HS_TRY(check_bounds(key, name, node, (double)bytes));
    *(int64_t *)field = bytes;
    return HS_OK;
}

static HsStatus read_real(const HsConfigKey *key, const char *name, const HsYaml *node, double *value)
{
    if (node->kind != HS_YAML_SCALAR || !node->plain || !is_real(node->text))
        return must_be(key, name, node, "a finite number");
    *value = strtod(node->text, NULL);
    if (!isfinite(*value))
        return must_be(key, name, node, "a finite number");
    return check_bounds(key, name, node, *value);
}

/* A number, or the one word that may stand instead. */
static HsStatus set_real(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    char requirement[64];
    if (!key->choices)
        return read_real(key, name, node, field);
    if (node->kind == HS_YAML_SCALAR && strcmp(node->text, key->choices) == 0) {
        *(double *)field = NAN;
        return HS_OK;
    }
    if (node->kind == HS_YAML_SCALAR && node->plain && is_real(node->text))
        return read_real(key, name, node, field);
    snprintf(requirement, sizeof requirement, "a finite number or %s", key->choices);
    return must_be(key, name, node, requirement);
}

static HsStatus set_bool(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    bool scalar = node->kind == HS_YAML_SCALAR && node->plain;
    bool yes = scalar && strcmp(node->text, "true") == 0;
    if (!yes && !(scalar && strcmp(node->text, "false") == 0))
        return must_be(key, name, node, "true or false");
    *(bool *)field = yes;
    return HS_OK;
}

/* A choice is a word, or "word:N": then N stands for a number of at most four digits. */
static bool matches(const char *choice, size_t length, const char *text)
{
    bool numbered = length > 2 && strncmp(choice + length - 2, ":N", 2) == 0;
    size_t fixed = numbered ? length - 1 : length;
    if (strncmp(choice, text, fixed) != 0)
        return false;
    size_t digits = strspn(text + fixed, "0123456789");
    return numbered ? digits >= 1 && digits <= 4 && text[fixed + digits] == '\0' : text[fixed] == '\0';
}

/* "a|b|c" contains the word */
static bool is_choice(const char *choices, const char *text)
{
    for (const char *word = choices; *word;) {
        size_t length = strcspn(word, "|");
        if (matches(word, length, text))
            return true;
        word += length + (word[length] == '|');
    }
    return false;
}

/* What other programs call one of its choices.  A list's entry has its key's name without a number. */
static const char *alias_of(const HsConfigKey *key, const char *word)
{
    char name[HS_DOTTED_BYTES];
    const bool top = hs_config_key_is_top_level(key);
    snprintf(name, sizeof name, "%s%s%s", top ? "" : key->section, top ? "" : ".", key->name);
    return hs_config_alias_choice(name, key->choices, word);
}

static HsStatus choice_fail(const HsConfigKey *key, const char *name, const HsYaml *node)
{
    char list[192], near[HS_DOTTED_BYTES], requirement[sizeof list + sizeof near + 32];
    size_t used = 0;
    for (const char *c = key->choices; *c && used + 4 < sizeof list; c++) {
        const char *piece = *c != '|' ? NULL : strchr(c + 1, '|') ? ", " : " or ";
        used += (size_t)snprintf(list + used, sizeof list - used, "%.*s", piece ? 4 : 1, piece ? piece : c);
    }
    char dotted[HS_DOTTED_BYTES], shown[SHOWN_BYTES * 2];
    const bool scalar = node->kind == HS_YAML_SCALAR;
    const char *const alias = scalar ? alias_of(key, node->text) : NULL;
    bool suggested = alias || (scalar && hs_config_choice_suggest(key->choices, node->text, near));
    if (alias)
        snprintf(near, sizeof near, "%s", alias);
    snprintf(requirement, sizeof requirement, "%s", list);
    return hs_yaml_fail(name, node->line, node->column, "%s must be %s (got %s)%s%s%s",
                        hs_config_key_dotted(key, dotted), requirement, show(node, shown, sizeof shown),
                        suggested ? "; did you mean " : "", suggested ? near : "", suggested ? "?" : "");
}

static HsStatus copy_text(const char *text, char **copy)
{
    *copy = strdup(text);
    return *copy ? HS_OK : hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
}

/* Plain numbers and words alike are texts here: `name: 7` names the task "7". */
static HsStatus set_string(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    if (node->kind != HS_YAML_SCALAR || hs_yaml_is_null(node))
        return must_be(key, name, node, key->choices ? "one word" : "a text (\"\" for none)");
    if (key->choices && !is_choice(key->choices, node->text))
        return choice_fail(key, name, node);
    char *copy;
    HS_TRY(copy_text(node->text, &copy));
    free(*(char **)field);
    *(char **)field = copy;
    return HS_OK;
}

static HsStatus set_reals2(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    if (node->kind != HS_YAML_LIST || node->count != 2)
        return must_be(key, name, node, "a list of two numbers such as [0.9, 0.95]");
    double values[2];
    HS_TRY(read_real(key, name, node->first, &values[0]));
    HS_TRY(read_real(key, name, node->last, &values[1]));
    memcpy(field, values, sizeof values);
    return HS_OK;
}

HsStatus hs_string_list_add(HsStringList *list, const char *format, ...)
{
    char **larger = realloc(list->items, ((size_t)list->count + 1) * sizeof *larger);
    list->items = larger ? larger : list->items;
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = larger ? vasprintf(&text, format, arguments) : -1;
    va_end(arguments);
    if (length < 0)
        return hs_fail(HS_ENOMEM, "no memory for a list of %d words", list->count + 1);
    list->items[list->count++] = text;
    return HS_OK;
}

void hs_string_list_deinit(HsStringList *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (HsStringList){ 0 };
}

static void release_strings(void *field)
{
    hs_string_list_deinit(field);
}

/* How long the first of the joined words is: a choice's own plus signs ("der++") belong to it. */
static size_t part_length(const char *choices, const char *text)
{
    size_t length = strcspn(text, "+");
    for (const char *choice = choices; *choice;) {
        const size_t own = strcspn(choice, "|");
        if (own > length && strncmp(text, choice, own) == 0 && (text[own] == '+' || text[own] == '\0'))
            length = own;
        choice += own + (choice[own] == '|');
    }
    return length;
}

/* The most words it can hold: where the key has choices, plus signs join several of them: "ewc+er" is [ewc, er]. */
static int count_texts(const HsConfigKey *key, const char *text)
{
    int count = 1;
    for (; key->choices && *text; text++)
        count += *text == '+';
    return count;
}

/* One scalar's text, or its parts, checked and copied behind those that are in the list. */
static HsStatus add_texts(const HsConfigKey *key, const char *name, const HsYaml *item, HsStringList *list)
{
    if (item->kind != HS_YAML_SCALAR || hs_yaml_is_null(item) || item->text[0] == '\0')
        return must_be(key, name, item, "a text or a list of texts");
    if (!key->choices || item->text[part_length(key->choices, item->text)] == '\0') {
        if (key->choices && !is_choice(key->choices, item->text))
            return choice_fail(key, name, item);
        HS_TRY(copy_text(item->text, &list->items[list->count]));
        list->count++;
        return HS_OK;
    }
    char *parts = NULL;
    HsStatus status = copy_text(item->text, &parts);
    char *rest = parts;
    while (rest && status == HS_OK) {
        HsYaml part = *item; /* messages show the part, at the whole's place */
        const size_t length = part_length(key->choices, rest);
        const bool more = rest[length] == '+';
        part.text = rest;
        rest = more ? rest + length + 1 : NULL;
        part.text[length] = '\0';
        if (part.text[0] == '\0')
            status = must_be(key, name, item, "words joined by +, such as ewc+er");
        else if (!is_choice(key->choices, part.text))
            status = choice_fail(key, name, &part);
        else
            status = copy_text(part.text, &list->items[list->count]);
        list->count += status == HS_OK;
    }
    free(parts);
    return status;
}

static HsStatus set_strings(const HsConfigKey *key, const char *name, const HsYaml *node, void *field)
{
    bool single = node->kind == HS_YAML_SCALAR;
    /* Where the default is nothing, nothing may be written: "" or []. */
    bool may_be_empty = strcmp(key->fallback, "\"\"") == 0;
    if (may_be_empty && (single ? node->text[0] == '\0' : node->kind == HS_YAML_LIST && node->count == 0)) {
        release_strings(field);
        return HS_OK;
    }
    if (node->kind == HS_YAML_MAP || (!single && node->count == 0))
        return must_be(key, name, node, "a text or a list of texts");
    int count = 0;
    for (const HsYaml *item = single ? node : node->first; item; item = single ? NULL : item->next)
        count += item->kind == HS_YAML_SCALAR ? count_texts(key, item->text) : 1;
    HsStringList list = { 0, calloc((size_t)count, sizeof *list.items) };
    if (!list.items)
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    HsStatus status = HS_OK;
    for (const HsYaml *item = single ? node : node->first; item && status == HS_OK; item = single ? NULL : item->next)
        status = add_texts(key, name, item, &list);
    if (status != HS_OK) {
        release_strings(&list);
        return status;
    }
    release_strings(field);
    *(HsStringList *)field = list;
    return HS_OK;
}

static void release_string(void *field)
{
    free(*(char **)field);
    *(char **)field = NULL;
}

static bool equal_int(const void *a, const void *b)
{
    return *(const int64_t *)a == *(const int64_t *)b;
}
static bool equal_real(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left == right || (isnan(left) && isnan(right)); /* NAN: the key's word */
}
static bool equal_bool(const void *a, const void *b)
{
    return *(const bool *)a == *(const bool *)b;
}
static bool equal_string(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b) == 0;
}
static bool equal_reals2(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return left[0] == right[0] && left[1] == right[1];
}
static bool equal_strings(const void *a, const void *b)
{
    const HsStringList *left = a, *right = b;
    if (left->count != right->count)
        return false;
    for (int i = 0; i < left->count; i++)
        if (strcmp(left->items[i], right->items[i]) != 0)
            return false;
    return true;
}

static const struct {
    HsStatus (*set)(const HsConfigKey *key, const char *name, const HsYaml *node, void *field);
    bool (*equal)(const void *a, const void *b);
    void (*release)(void *field);
} kinds[HS_KEY_TYPE_COUNT] = {
    [HS_KEY_INT] = { set_int, equal_int, NULL },
    [HS_KEY_BYTES] = { set_bytes, equal_int, NULL },
    [HS_KEY_REAL] = { set_real, equal_real, NULL },
    [HS_KEY_BOOL] = { set_bool, equal_bool, NULL },
    [HS_KEY_STRING] = { set_string, equal_string, release_string },
    [HS_KEY_REALS2] = { set_reals2, equal_reals2, NULL },
    [HS_KEY_STRINGS] = { set_strings, equal_strings, release_strings },
};

static void *field_of(const HsConfigKey *key, void *object)
{
    return (char *)object + key->offset;
}

HsStatus hs_config_value_set(const HsConfigKey *key, const char *name, const HsYaml *node, void *object)
{
    char dotted[HS_DOTTED_BYTES];
    if (hs_yaml_is_null(node))
        return hs_yaml_fail(name, node->line, node->column, "%s has no value; give one or remove the key",
                            hs_config_key_dotted(key, dotted));
    return kinds[key->type].set(key, name, node, field_of(key, object));
}

static HsStatus expand(const HsConfigKey *key, const char *name, const HsYaml *node, char **text)
{
    char dotted[HS_DOTTED_BYTES], why[512], *expanded;
    if (**text != '~')
        return HS_OK;
    const HsStatus status = hs_path_expand(*text, &expanded);
    if (status == HS_ECONFIG) {
        snprintf(why, sizeof why, "%.500s", hs_error_message());
        return hs_yaml_fail(name, node->line, node->column, "%s: %s", hs_config_key_dotted(key, dotted), why);
    }
    HS_TRY(status);
    free(*text);
    *text = expanded;
    return HS_OK;
}

HsStatus hs_config_value_expand(const HsConfigKey *key, const char *name, const HsYaml *node, void *object)
{
    if (!hs_config_key_is_path(key))
        return HS_OK;
    if (key->type == HS_KEY_STRING)
        return expand(key, name, node, field_of(key, object));
    const HsStringList *list = field_of(key, object);
    for (int i = 0; i < list->count; i++)
        HS_TRY(expand(key, name, node, &list->items[i]));
    return HS_OK;
}

HsStatus hs_config_value_set_default(const HsConfigKey *key, void *object)
{
    HsYaml *node;
    char list[64];
    const char *text = key->fallback;
    if (key->type == HS_KEY_REALS2) { /* "[a, b]" with its quotes: a list once they are off */
        snprintf(list, sizeof list, "%.*s", (int)strlen(text) - 2, text + 1);
        text = list;
    }
    HS_TRY(hs_yaml_parse_value(text, &node));
    HsStatus status = hs_config_value_set(key, NULL, node, object);
    hs_yaml_destroy(node);
    return status;
}

void hs_config_value_release(const HsConfigKey *key, void *object)
{
    if (kinds[key->type].release)
        kinds[key->type].release(field_of(key, object));
}

bool hs_config_value_equal(const HsConfigKey *key, const void *a, const void *b)
{
    return kinds[key->type].equal((const char *)a + key->offset, (const char *)b + key->offset);
}

const char *hs_config_real_text(double value, char *buffer)
{
    char digits[32] = "";
    for (int count = 1; count <= 17 && strtod(digits, NULL) != value; count++)
        snprintf(digits, sizeof digits, "%.*g", count, value);
    char *exponent = strchr(digits, 'e');
    if (value == 0 && signbit(value))
        return strcpy(buffer, "-0.0"); /* -0 is a whole number, which has no sign */
    /* 1e06 reads worse than 1000000; whole numbers below 2^53 are written out. */
    if (value > -1e16 && value < 1e16 && value == (double)(int64_t)value)
        snprintf(buffer, 32, "%" PRId64, (int64_t)value);
    else if (!exponent)
        snprintf(buffer, 32, "%s", digits);
    else { /* 1e-05 -> 1.0e-5: YAML 1.1 takes what has no point, or no sign in its exponent, for a text */
        *exponent++ = '\0';
        snprintf(buffer, 32, "%.22s%se%c%.3s", digits, strchr(digits, '.') ? "" : ".0", *exponent,
                 exponent + strcspn(exponent, "123456789"));
    }
    return buffer;
}

bool hs_config_is_set(const HsConfig *config, const char *dotted_key)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        for (int task = 0; task < hs_config_key_places(config, key); task++) {
            char dotted[HS_DOTTED_BYTES];
            const HsConfigKey placed = hs_config_key_of_item(key, task);
            if (strcmp(hs_config_key_dotted(&placed, dotted), dotted_key) == 0)
                return config->origin->key[hs_config_origin_index(key, task)].source > HS_SOURCE_SIZE;
        }
    }
    return false;
}
