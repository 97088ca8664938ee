/* SPDX-License-Identifier: MIT
 *
 * The key table as data: one row a key, made from keys.h.  Private to this folder.
 */
#ifndef HS_RUNTIME_CONFIG_TABLE_H
#define HS_RUNTIME_CONFIG_TABLE_H

#include "runtime/config/config.h"
#include "runtime/config/yaml.h"

typedef enum HsKeyType {
    HS_KEY_INT,
    HS_KEY_BYTES,
    HS_KEY_REAL,
    HS_KEY_BOOL,
    HS_KEY_STRING,
    HS_KEY_REALS2,
    HS_KEY_STRINGS,
    HS_KEY_TYPE_COUNT
} HsKeyType;

typedef struct HsConfigKey {
    HsKeyType type;
    HsKeyResume resume;
    const char *section; /* "training": top level; "memory.place": within section memory; "tasks", "optimizer.groups":
                            one entry of the list */
    const char *name;
    const char *fallback; /* as written in keys.h, a string with its quotes */
    double low, high;
    const char *choices, *unit, *doc;
    size_t offset; /* in HsConfig, or in HsTaskConfig or HsGroupConfig for keys of a list's entry */
    int item;      /* of a list: which entry messages name; 0 in the table */
} HsConfigKey;

typedef struct HsConfigSection {
    const char *name, *doc;
} HsConfigSection;

/* Rows of a section are neighbours, sections in the order of keys.h, "optimizer.groups" and "tasks" last. */
extern const HsConfigKey hs_config_key_table[];
extern const int hs_config_key_count;
extern const HsConfigSection hs_config_section_table[];
extern const int hs_config_section_count;

enum { HS_DOTTED_BYTES = 96 };

bool hs_config_key_is_top_level(const HsConfigKey *key);
bool hs_config_key_is_task(const HsConfigKey *key);
bool hs_config_key_is_group(const HsConfigKey *key);
/* The section of optimizer.groups, with entries that stand inside section optimizer. */
#define HS_CONFIG_GROUPS "optimizer.groups"

/* "batch_size", "mer.beta", "tasks.0.train" -> buffer[HS_DOTTED_BYTES]; returns buffer. */
const char *hs_config_key_dotted(const HsConfigKey *key, char *buffer);
/* Its values name files and folders. */
bool hs_config_key_is_path(const HsConfigKey *key);

/* The row of a key within a section; NULL when there is none. */
const HsConfigKey *hs_config_key_find(const char *section, const char *name);
bool hs_config_section_exists(const char *name);
/* It stands within the section before its dot, as memory.place and optimizer.groups do. */
bool hs_config_section_is_inner(const char *name);

/* The dotted key most like an unknown one (edit distance, or the same word elsewhere) -> buffer[HS_DOTTED_BYTES];
 * returns false when nothing is near. */
bool hs_config_key_suggest(const char *unknown, char *buffer);
/* The word of "a|b|c" nearest to an unknown one -> buffer[HS_DOTTED_BYTES]; false when nothing is near. */
bool hs_config_choice_suggest(const char *choices, const char *unknown, char *buffer);

/* --- values (value.c); `object` is the HsConfig or HsTaskConfig that holds the key --- */

/* Check type, bounds and choices, then store.  name: the file for messages, NULL for the command line. */
HsStatus hs_config_value_set(const HsConfigKey *key, const char *name, const HsYaml *node, void *object);
/* ~ at the beginning of a path is the home folder from here on.  name, node: for messages, as above */
HsStatus hs_config_value_expand(const HsConfigKey *key, const char *name, const HsYaml *node, void *object);
HsStatus hs_config_value_set_default(const HsConfigKey *key, void *object);
void hs_config_value_release(const HsConfigKey *key, void *object);
bool hs_config_value_equal(const HsConfigKey *key, const void *a, const void *b);

/* --- text (print.c, value.c) --- */

/* The stored value as YAML that reads back to the same value. */
void hs_config_value_print(const HsConfigKey *key, const void *object, FILE *stream);
const char *hs_config_type_name(HsKeyType type);
/* The fewest digits that read back to the same finite number, as a number of YAML 1.1 -> buffer[32]; returns buffer. */
const char *hs_config_real_text(double value, char *buffer);

/* --- origin: where each key's value came from --- */

typedef enum HsKeySource {
    HS_SOURCE_DEFAULT,
    HS_SOURCE_SIZE, /* train.size: not given, and no default */
    HS_SOURCE_FILE,
    HS_SOURCE_COMMAND_LINE
} HsKeySource;

typedef struct HsConfigOrigin {
    char *name; /* of the file */
    bool saved; /* a run wrote it: its paths are what they were then */
    struct {
        HsKeySource source;
        int line, column;
    } key[]; /* the table's rows, then those of a group for every further one, then those of a task likewise */
} HsConfigOrigin;

/* Rows of an entry of the list. */
int hs_config_section_key_count(const char *section);
/* How many origins a configuration of `tasks` tasks has. */
int hs_config_origin_count(int tasks);
/* Where a row of the table (not a copy) has its origin, for entry `item` of its list. */
int hs_config_origin_index(const HsConfigKey *key, int item);
/* The row with its messages naming entry `item`. */
static inline HsConfigKey hs_config_key_of_item(const HsConfigKey *key, int item)
{
    HsConfigKey placed = *key;
    placed.item = item;
    return placed;
}
/* What holds the row's value. */
static inline void *hs_config_key_object(const HsConfig *config, const HsConfigKey *key, int item)
{
    const void *object = hs_config_key_is_task(key)    ? (const void *)&config->tasks[item]
                         : hs_config_key_is_group(key) ? (const void *)&config->groups[item]
                                                       : (const void *)config;
    return (void *)(uintptr_t)object;
}
/* How often a row stands in this configuration: 1, or once an entry of its list. */
static inline int hs_config_key_places(const HsConfig *config, const HsConfigKey *key)
{
    return hs_config_key_is_task(key) ? config->task_count : hs_config_key_is_group(key) ? config->group_count : 1;
}

/* What a configuration is read from: the text of a file (name: for messages; NULL: none), then the command line. */
typedef struct HsConfigText {
    const char *name, *text;
    size_t length;
    int override_count;
    const char *const *overrides; /* "section.key=value" */
} HsConfigText;

/* config.c: defaults, the text, and relations between keys.  adopt: in between takes what the weights decide that the
 * configuration names (load.c); NULL: it is one that was saved, and has that already.  errors: HS_ECONFIG, HS_ENOMEM */
HsStatus hs_config_read_text(HsConfig *config, const HsConfigText *given, HsStatus (*adopt)(HsConfig *config));
HsStatus hs_config_read_file(HsConfig *config, const char *path, int override_count, const char *const *overrides,
                             HsStatus (*adopt)(HsConfig *config));

/* Relations between keys (check.c); also settles memory.recompute from use_gradient_checkpointing. */
HsStatus hs_config_check(HsConfig *config);
/* check_model.c: the part of it that is about the section model. */
HsStatus hs_config_check_model(const HsConfig *config);
/* HS_ECONFIG at the first of two keys that the user set (the second may be NULL); defaults have no line. */
HsStatus hs_config_relation_fail(const HsConfig *config, const char *first, const char *second, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
