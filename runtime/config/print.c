/* SPDX-License-Identifier: MIT
 *
 * A configuration as text, and which keys differ between two.  What is printed is YAML that loads back to the same
 * values, here and in readers of YAML 1.1 (PyYAML): numbers look like numbers there too, and texts do not.
 */
#include "runtime/config/recipe.h"
#include "runtime/config/table.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Words that need no quotes in YAML, 1.1 and 1.2, whatever stands around them; anything else is quoted.  Numbers, dates
 * and times begin with no letter. */
static bool is_plain_safe(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const reserved[] = { "null", "true", "false", "yes", "no", "on", "off", "y", "n" };
    if (!*text || !strchr(letters, *text) || text[strspn(text, safe)] != '\0')
        return false;
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strcasecmp(text, reserved[i]) == 0)
            return false;
    return true;
}

static void print_text(const char *text, FILE *stream)
{
    if (is_plain_safe(text)) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    size_t length = strlen(text), size;
    for (size_t at = 0; at < length; at += size) {
        uint32_t character = 0;
        size = hs_utf8_decode(text + at, length - at, &character);
        assert(size > 0); /* loading lets nothing else in */
        /* What YAML does not print, takes for a line break, or drops: controls, separators, byte order marks. */
        bool escaped = character < 0x20 || (character >= 0x7F && character < 0xA0) || character == 0x2028 ||
                       character == 0x2029 || character == 0xFEFF || character == 0xFFFE || character == 0xFFFF;
        if (escaped)
            fprintf(stream, "\\u%04X", (unsigned)character);
        else
            fprintf(stream, "%s%.*s", character == '"' || character == '\\' ? "\\" : "", (int)size, text + at);
    }
    fputc('"', stream);
}

void hs_config_value_print(const HsConfigKey *key, const void *object, FILE *stream)
{
    const void *field = (const char *)object + key->offset;
    const double *reals = field;
    const HsStringList *list = field;
    char a[32], b[32];
    switch (key->type) {
    case HS_KEY_INT:
    case HS_KEY_BYTES: /* without a unit: a number to every reader of YAML */
        fprintf(stream, "%" PRId64, *(const int64_t *)field);
        break;
    case HS_KEY_REAL:
        fputs(isnan(*reals) ? key->choices : hs_config_real_text(*reals, a), stream);
        break;
    case HS_KEY_BOOL:
        fputs(*(const bool *)field ? "true" : "false", stream);
        break;
    case HS_KEY_STRING:
        print_text(*(char *const *)field, stream);
        break;
    case HS_KEY_REALS2:
        fprintf(stream, "[%s, %s]", hs_config_real_text(reals[0], a), hs_config_real_text(reals[1], b));
        break;
    case HS_KEY_STRINGS:
        if (list->count != 1)
            fputc('[', stream);
        for (int i = 0; i < list->count; i++) {
            fputs(i > 0 ? ", " : "", stream);
            print_text(list->items[i], stream);
        }
        if (list->count != 1)
            fputc(']', stream);
        break;
    case HS_KEY_TYPE_COUNT:
        break;
    }
}

/* One key's line, its doc above it, and where train.size has filled it in the reason. */
static void print_key(const HsConfig *config, int item, const HsConfigKey *key, const char *indent,
                      const char *first_indent, FILE *stream, bool with_docs)
{
    const void *object = hs_config_key_object(config, key, item);
    char dotted[HS_DOTTED_BYTES];
    if (with_docs)
        fprintf(stream, "%s# %s%s%s%s\n", indent, key->doc, *key->unit ? " [" : "", key->unit, *key->unit ? "]" : "");
    if (with_docs && config->origin->key[hs_config_origin_index(key, item)].source == HS_SOURCE_SIZE)
        fprintf(stream, "%s# by train.size %s: %s\n", indent, config->train.size,
                hs_recipe_reason(hs_config_key_dotted(key, dotted)));
    fprintf(stream, "%s%s: ", first_indent, key->name);
    hs_config_value_print(key, object, stream);
    fputc('\n', stream);
}

static void print_section(const HsConfig *config, const HsConfigSection *section, int task, FILE *stream,
                          bool with_docs)
{
    bool top = strcmp(section->name, "training") == 0, is_task = strcmp(section->name, "tasks") == 0, first = true;
    const bool is_group = strcmp(section->name, HS_CONFIG_GROUPS) == 0;
    const char *indent = top                                                    ? ""
                         : is_group                                             ? "      "
                         : is_task || hs_config_section_is_inner(section->name) ? "    "
                                                                                : "  ";
    const char *item_indent = is_task ? "  - " : "    - ";
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (strcmp(key->section, section->name) != 0)
            continue;
        print_key(config, task, key, indent, (is_task || is_group) && first ? item_indent : indent, stream, with_docs);
        first = false;
    }
}

/* An empty list is not printed: there is nothing to say. */
static void print_groups(const HsConfig *config, FILE *stream, bool with_docs)
{
    const HsConfigSection groups = { HS_CONFIG_GROUPS, "" };
    if (config->group_count > 0)
        fputs("  groups:\n", stream);
    for (int group = 0; group < config->group_count; group++)
        print_section(config, &groups, group, stream, with_docs && group == 0);
}

/* "place" of "memory.place" where that is within `section`; else NULL. */
static const char *name_within(const char *inner, const char *section)
{
    const size_t length = strlen(section);
    return strncmp(inner, section, length) == 0 && inner[length] == '.' ? inner + length + 1 : NULL;
}

static void print_inner_sections(const HsConfig *config, const HsConfigSection *outer, FILE *stream, bool with_docs)
{
    for (int s = 0; s < hs_config_section_count; s++) {
        const HsConfigSection *section = &hs_config_section_table[s];
        const char *name = name_within(section->name, outer->name);
        if (!name)
            continue;
        if (strcmp(section->name, HS_CONFIG_GROUPS) == 0) {
            print_groups(config, stream, with_docs);
            continue;
        }
        if (with_docs)
            fprintf(stream, "  # %s\n", section->doc);
        fprintf(stream, "  %s:\n", name);
        print_section(config, section, 0, stream, with_docs);
    }
}

HsStatus hs_config_print(const HsConfig *config, FILE *stream, bool with_docs)
{
    for (int s = 0; s < hs_config_section_count; s++) {
        const HsConfigSection *section = &hs_config_section_table[s];
        bool top = strcmp(section->name, "training") == 0;
        int places = strcmp(section->name, "tasks") == 0 ? config->task_count : 1;
        if (hs_config_section_is_inner(section->name))
            continue;
        if (!top && with_docs)
            fprintf(stream, "\n# %s\n", section->doc);
        if (!top)
            fprintf(stream, "%s:\n", section->name);
        for (int task = 0; task < places; task++)
            print_section(config, section, task, stream, with_docs && task == 0);
        print_inner_sections(config, section, stream, with_docs);
    }
    return ferror(stream) ? hs_fail(HS_EIO, "the configuration cannot be written: %s", strerror(errno)) : HS_OK;
}

/* "section." covers a section, a whole dotted key itself. */
static bool is_among(const char *dotted, const char *const *keys)
{
    for (; keys && *keys; keys++) {
        size_t length = strlen(*keys);
        bool prefix = length > 0 && (*keys)[length - 1] == '.';
        if (prefix ? strncmp(dotted, *keys, length) == 0 : strcmp(dotted, *keys) == 0)
            return true;
    }
    return false;
}

/* Of one section and those within it. */
static void print_listed(const HsConfig *config, const char *const *keys, const char *outer, FILE *stream)
{
    const char *section = "training"; /* has no line to print: its keys stand at the top level */
    bool opened = strcmp(outer, section) == 0;
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        const char *inner = name_within(key->section, outer);
        char dotted[HS_DOTTED_BYTES];
        if ((!inner && strcmp(key->section, outer) != 0) || hs_config_key_is_task(key) || hs_config_key_is_group(key) ||
            !is_among(hs_config_key_dotted(key, dotted), keys))
            continue;
        if (!opened)
            fprintf(stream, "%s:\n", outer);
        if (inner && strcmp(key->section, section) != 0)
            fprintf(stream, "  %s:\n", inner);
        opened = true;
        section = key->section;
        print_key(config, 0, key, "", hs_config_key_is_top_level(key) ? "" : inner ? "    " : "  ", stream, false);
    }
}

HsStatus hs_config_print_keys(const HsConfig *config, const char *const *keys, FILE *stream)
{
    for (int s = 0; s < hs_config_section_count; s++)
        if (!hs_config_section_is_inner(hs_config_section_table[s].name))
            print_listed(config, keys, hs_config_section_table[s].name, stream);
    return ferror(stream) ? hs_fail(HS_EIO, "the configuration cannot be written: %s", strerror(errno)) : HS_OK;
}

static bool places_equal(const HsConfigKey *key, const HsConfig *a, const HsConfig *b, int task)
{
    bool both = task < hs_config_key_places(a, key) && task < hs_config_key_places(b, key);
    return both && hs_config_value_equal(key, hs_config_key_object(a, key, task), hs_config_key_object(b, key, task));
}

typedef struct Differences {
    const HsConfig *a, *b;
    unsigned classes;           /* of HsKeyResume */
    const char *const *ignored; /* dotted keys and "section." prefixes */
    int key, task;              /* where the walk is: start with task -1 */
} Differences;

/* The next key that differs; NULL: no more.  dotted: its name, with its task. */
static const HsConfigKey *next_difference(Differences *walk, char dotted[HS_DOTTED_BYTES])
{
    for (; walk->key < hs_config_key_count; walk->key++, walk->task = -1) {
        const HsConfigKey *row = &hs_config_key_table[walk->key];
        const int places = hs_config_key_places(walk->a, row), others = hs_config_key_places(walk->b, row);
        if (!(row->resume & walk->classes))
            continue;
        while (++walk->task < (places > others ? places : others)) {
            const HsConfigKey key = hs_config_key_of_item(row, walk->task);
            hs_config_key_dotted(&key, dotted);
            if (!is_among(dotted, walk->ignored) && !places_equal(row, walk->a, walk->b, walk->task))
                return row;
        }
    }
    return NULL;
}

int hs_config_differences(const HsConfig *a, const HsConfig *b, unsigned classes, const char *const *ignored,
                          char *buffer, size_t size)
{
    enum { NAMED = 8 }; /* more would bury the message */
    Differences walk = { .a = a, .b = b, .classes = classes, .ignored = ignored, .task = -1 };
    char dotted[HS_DOTTED_BYTES];
    int count = 0;
    size_t used = 0;
    if (size > 0)
        buffer[0] = '\0';
    while (next_difference(&walk, dotted)) {
        count++;
        if (count > NAMED || used >= size)
            continue;
        int written = snprintf(buffer + used, size - used, "%s%s", count > 1 ? ", " : "", dotted);
        used += written > 0 ? (size_t)written : 0;
    }
    if (count > NAMED && used < size)
        snprintf(buffer + used, size - used, ", and %d more", count - NAMED);
    return count;
}

static void print_place(const HsConfig *config, const HsConfigKey *row, int task, FILE *stream)
{
    if (task < hs_config_key_places(config, row))
        hs_config_value_print(row, hs_config_key_object(config, row, task), stream);
    else
        fputs("none", stream);
}

HsStatus hs_config_changes(const HsConfig *before, const HsConfig *now, unsigned classes, char *buffer, size_t size)
{
    Differences walk = { .a = before, .b = now, .classes = classes, .task = -1 };
    char dotted[HS_DOTTED_BYTES];
    FILE *stream = fmemopen(buffer, size, "w");
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory to list what changed");
    for (const HsConfigKey *row; (row = next_difference(&walk, dotted)) != NULL;) {
        fprintf(stream, "%s%s ", ftell(stream) > 0 ? ", " : "", dotted);
        print_place(before, row, walk.task, stream);
        fputs(" -> ", stream);
        print_place(now, row, walk.task, stream);
    }
    fclose(stream);
    buffer[size - 1] = '\0';
    return HS_OK;
}

HsStatus hs_config_text(const HsConfig *config, char **text)
{
    size_t size = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    if (stream)
        (void)hs_config_print(config, stream, false); /* closing shows whether it is whole */
    return hs_close_text(stream, text) == HS_OK ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a configuration's text");
}
