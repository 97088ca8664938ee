/* SPDX-License-Identifier: MIT
 *
 * Rows of the key table, and looking keys up, exactly or nearly.
 * Nearly: Levenshtein's distance (1966) by one row of dynamic programming; a third of the word may differ.
 */
#include "runtime/config/table.h"
#include "runtime/config/aliases.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FILLED(type, resume, section, key, fallback, low, high, choices, unit, doc, offset) \
    { HS_KEY_##type, HS_RESUME_##resume, section, key, fallback, low, high, choices, unit, doc, offset, 0 },
/* #fallback is taken here, before any further macro could expand it: `true` must stay the word. */
#define ROW(section, type, resume, key, fallback, low, high, choices, unit, doc) \
    FILLED(type, resume, #section, #key, #fallback, low, high, choices, unit, doc, offsetof(HsConfig, section.key))
#define GROUP_ROW(section, type, resume, key, fallback, low, high, choices, unit, doc) \
    FILLED(type, resume, HS_CONFIG_GROUPS, #key, #fallback, low, high, choices, unit, doc, offsetof(HsGroupConfig, key))
#define TASK_ROW(section, type, resume, key, fallback, low, high, choices, unit, doc) \
    FILLED(type, resume, #section, #key, #fallback, low, high, choices, unit, doc, offsetof(HsTaskConfig, key))
#define ROWS(section, KEYS, doc) KEYS(ROW, section)
/* Their `section` is (member of HsConfig, name). */
#define INNER_MEMBER(member, name) member
#define INNER_NAME(member, name)   name
#define INNER_ROW(section, type, resume, key, fallback, low, high, choices, unit, doc)       \
    FILLED(type, resume, INNER_NAME section, #key, #fallback, low, high, choices, unit, doc, \
           offsetof(HsConfig, INNER_MEMBER section.key))
#define INNER_ROWS(member, name, KEYS, doc) KEYS(INNER_ROW, (member, name))

const HsConfigKey hs_config_key_table[] = { HS_CONFIG_SECTIONS(ROWS) HS_CONFIG_INNER_SECTIONS(INNER_ROWS)
                                                HS_KEYS_GROUP(GROUP_ROW, groups) HS_KEYS_TASK(TASK_ROW, tasks) };
const int hs_config_key_count = (int)(sizeof hs_config_key_table / sizeof hs_config_key_table[0]);

#define SECTION(section, KEYS, doc)            { #section, doc },
#define INNER_SECTION(member, name, KEYS, doc) { name, doc },
const HsConfigSection hs_config_section_table[] = {
    HS_CONFIG_SECTIONS(SECTION)
        HS_CONFIG_INNER_SECTIONS(INNER_SECTION){ HS_CONFIG_GROUPS, "a list of parameters with their own settings" },
    { "tasks", "a list of what to train on, one after another; one task is plain training; a run that has begun, or "
               "ended, continues when tasks are appended" }
};
const int hs_config_section_count = (int)(sizeof hs_config_section_table / sizeof hs_config_section_table[0]);

bool hs_config_key_is_top_level(const HsConfigKey *key)
{
    return strcmp(key->section, "training") == 0;
}

bool hs_config_key_is_task(const HsConfigKey *key)
{
    return strcmp(key->section, "tasks") == 0;
}

bool hs_config_key_is_group(const HsConfigKey *key)
{
    return strcmp(key->section, HS_CONFIG_GROUPS) == 0;
}

bool hs_config_key_is_path(const HsConfigKey *key)
{
    return strcmp(key->unit, HS_UNIT_PATH) == 0;
}

const char *hs_config_key_dotted(const HsConfigKey *key, char *buffer)
{
    bool top = hs_config_key_is_top_level(key);
    if (hs_config_key_is_task(key) || hs_config_key_is_group(key))
        snprintf(buffer, HS_DOTTED_BYTES, "%s.%d.%s", key->section, key->item, key->name);
    else
        snprintf(buffer, HS_DOTTED_BYTES, "%s%s%s", top ? "" : key->section, top ? "" : ".", key->name);
    return buffer;
}

int hs_config_section_key_count(const char *section)
{
    int count = 0;
    for (int i = 0; i < hs_config_key_count; i++)
        count += strcmp(hs_config_key_table[i].section, section) == 0;
    return count;
}

static int group_origins(void)
{
    return (HS_CONFIG_MOST_GROUPS - 1) * hs_config_section_key_count(HS_CONFIG_GROUPS);
}

int hs_config_origin_count(int tasks)
{
    return hs_config_key_count + group_origins() + (tasks - 1) * hs_config_section_key_count("tasks");
}

/* Further entries follow the table in the order of its rows: those of the groups, of which there is a fixed number. */
int hs_config_origin_index(const HsConfigKey *key, int item)
{
    const int index = (int)(key - hs_config_key_table);
    if (item == 0)
        return index;
    const int keys = hs_config_section_key_count(key->section);
    const HsConfigKey *row = key;
    while (row > hs_config_key_table && strcmp(row[-1].section, key->section) == 0)
        row--;
    const int base = hs_config_key_count + (hs_config_key_is_task(key) ? group_origins() : 0);
    return base + (item - 1) * keys + (int)(key - row);
}

const HsConfigKey *hs_config_key_find(const char *section, const char *name)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (strcmp(key->section, section) == 0 && strcmp(key->name, name) == 0)
            return key;
    }
    return NULL;
}

bool hs_config_section_is_inner(const char *name)
{
    return strchr(name, '.') != NULL;
}

bool hs_config_section_exists(const char *name)
{
    for (int i = 0; i < hs_config_section_count; i++)
        if (strcmp(hs_config_section_table[i].name, name) == 0)
            return true;
    return false;
}

static const HsConfigKey *find_anywhere(const char *name)
{
    for (int i = 0; i < hs_config_key_count; i++)
        if (strcmp(hs_config_key_table[i].name, name) == 0)
            return &hs_config_key_table[i];
    return NULL;
}

/* Insertions, deletions and replacements between two words, in whatever case; words beyond the row are cut, which only
 * makes them look further apart than any suggestion may be. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[HS_DOTTED_BYTES];
    if (a_length >= HS_DOTTED_BYTES || b_length >= HS_DOTTED_BYTES)
        return HS_DOTTED_BYTES;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replace = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            size_t insert = row[j - 1] + 1, erase = row[j] + 1;
            diagonal = row[j];
            row[j] = replace < insert ? replace : insert;
            row[j] = row[j] < erase ? row[j] : erase;
        }
    }
    return row[b_length];
}

/* Near enough to be a slip: at most a third of the word, and at least one letter right. */
static size_t slip_limit(size_t length)
{
    return length < 3 ? 1 : (length + 2) / 3;
}

bool hs_config_key_suggest(const char *unknown, char *buffer)
{
    const char *const alias = hs_config_alias_key(unknown);
    if (alias) {
        snprintf(buffer, HS_DOTTED_BYTES, "%s", alias);
        return true;
    }
    /* The right word in the wrong place comes first: `layers` for model.layers. */
    const char *dot = strrchr(unknown, '.');
    const HsConfigKey *elsewhere = find_anywhere(dot ? dot + 1 : unknown);
    if (elsewhere) {
        hs_config_key_dotted(elsewhere, buffer);
        return true;
    }
    size_t length = strlen(unknown), best = slip_limit(length) + 1;
    for (int i = 0; i < hs_config_key_count; i++) {
        char dotted[HS_DOTTED_BYTES];
        hs_config_key_dotted(&hs_config_key_table[i], dotted);
        size_t distance = edit_distance(unknown, length, dotted, strlen(dotted));
        if (distance < best) {
            best = distance;
            memcpy(buffer, dotted, sizeof dotted);
        }
    }
    for (int i = 0; i < hs_config_section_count; i++) {
        const char *section = hs_config_section_table[i].name;
        size_t distance = edit_distance(unknown, length, section, strlen(section));
        if (distance < best && strcmp(section, "training") != 0) {
            best = distance;
            snprintf(buffer, HS_DOTTED_BYTES, "%s", section);
        }
    }
    return best <= slip_limit(length);
}

bool hs_config_choice_suggest(const char *choices, const char *unknown, char *buffer)
{
    size_t length = strlen(unknown), best = slip_limit(length) + 1;
    for (const char *word = choices; *word;) {
        size_t word_length = strcspn(word, "|");
        size_t distance = edit_distance(unknown, length, word, word_length);
        if (distance < best) {
            best = distance;
            snprintf(buffer, HS_DOTTED_BYTES, "%.*s", (int)word_length, word);
        }
        word += word_length + (word[word_length] == '|');
    }
    return best <= slip_limit(length);
}
