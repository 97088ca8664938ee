/* SPDX-License-Identifier: MIT
 *
 * The key table as data: one row a key, made from config_keys.h.  Private to config*.c.
 */
#ifndef HS_RUNTIME_CONFIG_TABLE_H
#define HS_RUNTIME_CONFIG_TABLE_H

#include "runtime/config.h"
#include "runtime/config_yaml.h"

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
    const char *section; /* "training": top level; "tasks": one entry of the list */
    const char *name;
    const char *fallback; /* as written in config_keys.h, a string with its quotes */
    double low, high;
    const char *choices, *unit, *doc;
    size_t offset; /* in HsConfig, or in HsTaskConfig for "tasks" */
    int task;      /* "tasks": which entry messages name; 0 in the table */
} HsConfigKey;

typedef struct HsConfigSection {
    const char *name, *doc;
} HsConfigSection;

/* Rows of a section are neighbours, sections in the order of config_keys.h, "tasks" last. */
extern const HsConfigKey hs_config_key_table[];
extern const int hs_config_key_count;
extern const HsConfigSection hs_config_section_table[];
extern const int hs_config_section_count;

enum { HS_DOTTED_BYTES = 96 };

bool hs_config_key_is_top_level(const HsConfigKey *key);
bool hs_config_key_is_task(const HsConfigKey *key);

/* "batch_size", "mer.beta", "tasks.0.train" -> buffer[HS_DOTTED_BYTES]; returns buffer. */
const char *hs_config_key_dotted(const HsConfigKey *key, char *buffer);

/* The row of a key within a section; NULL when there is none. */
const HsConfigKey *hs_config_key_find(const char *section, const char *name);
bool hs_config_section_exists(const char *name);

/* The dotted key most like an unknown one (edit distance, or the same word elsewhere) -> buffer[HS_DOTTED_BYTES];
 * returns false when nothing is near. */
bool hs_config_key_suggest(const char *unknown, char *buffer);
/* The word of "a|b|c" nearest to an unknown one -> buffer[HS_DOTTED_BYTES]; false when nothing is near. */
bool hs_config_choice_suggest(const char *choices, const char *unknown, char *buffer);

/* --- values (config_value.c); `object` is the HsConfig or HsTaskConfig that holds the key --- */

/* Check type, bounds and choices, then store.  name: the file for messages, NULL for the command line. */
HsStatus hs_config_value_set(const HsConfigKey *key, const char *name, const HsYaml *node, void *object);
HsStatus hs_config_value_set_default(const HsConfigKey *key, void *object);
void hs_config_value_release(const HsConfigKey *key, void *object);
bool hs_config_value_equal(const HsConfigKey *key, const void *a, const void *b);

/* --- text (config_print.c, config_value_text.c) --- */

/* The stored value as YAML that reads back to the same value. */
void hs_config_value_print(const HsConfigKey *key, const void *object, FILE *stream);
const char *hs_config_type_name(HsKeyType type);
/* The fewest digits that read back to the same finite number, as a number of YAML 1.1 -> buffer[32]; returns buffer. */
const char *hs_config_real_text(double value, char *buffer);

/* --- origin: where each key's value came from --- */

typedef enum HsKeySource { HS_SOURCE_DEFAULT, HS_SOURCE_FILE, HS_SOURCE_COMMAND_LINE } HsKeySource;

typedef struct HsConfigOrigin {
    char *name; /* of the file */
    struct {
        HsKeySource source;
        int line, column;
    } key[]; /* the table's rows, then the rows of "tasks" again for every further task */
} HsConfigOrigin;

/* Rows of "tasks". */
int hs_config_task_key_count(void);
/* Where a row of the table (not a copy) has its origin, for task `task`. */
int hs_config_origin_index(const HsConfigKey *key, int task);
/* The row with its messages naming task `task`. */
static inline HsConfigKey hs_config_key_of_task(const HsConfigKey *key, int task)
{
    HsConfigKey placed = *key;
    placed.task = task;
    return placed;
}
/* What holds the row's value. */
static inline void *hs_config_key_object(const HsConfig *config, const HsConfigKey *key, int task)
{
    return hs_config_key_is_task(key) ? (void *)&config->tasks[task] : (void *)(uintptr_t)config;
}
/* How often a row stands in this configuration: 1, or once a task. */
static inline int hs_config_key_places(const HsConfig *config, const HsConfigKey *key)
{
    return hs_config_key_is_task(key) ? config->task_count : 1;
}

/* Relations between keys (config_check.c); also settles memory.recompute from use_gradient_checkpointing. */
HsStatus hs_config_check(HsConfig *config);

#endif
