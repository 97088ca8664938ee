/* SPDX-License-Identifier: MIT
 *
 * A loaded configuration: one struct per section, generated from keys.h.
 * Errors read "FILE:LINE:COLUMN: section.key must be at least 1 (got -5)" and are HS_ECONFIG.
 */
#ifndef HS_RUNTIME_CONFIG_CONFIG_H
#define HS_RUNTIME_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/status.h"
#include "runtime/config/keys.h"

typedef struct HsStringList {
    int count;
    char **items;
} HsStringList;
/* One more at the end.  errors: HS_ENOMEM */
HsStatus hs_string_list_add(HsStringList *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Items and list were on the heap; empty afterwards. */
void hs_string_list_deinit(HsStringList *list);

#define HS_FIELD_INT(key)                                                             int64_t key;
#define HS_FIELD_BYTES(key)                                                           int64_t key;
#define HS_FIELD_REAL(key)                                                            double key;
#define HS_FIELD_BOOL(key)                                                            bool key;
#define HS_FIELD_STRING(key)                                                          char *key;
#define HS_FIELD_REALS2(key)                                                          double key[2];
#define HS_FIELD_STRINGS(key)                                                         HsStringList key;
#define HS_FIELD(section, type, resume, key, fallback, low, high, choices, unit, doc) HS_FIELD_##type(key)

typedef struct HsTaskConfig {
    HS_KEYS_TASK(HS_FIELD, tasks)
} HsTaskConfig;

typedef struct HsGroupConfig {
    HS_KEYS_GROUP(HS_FIELD, groups)
} HsGroupConfig;

enum { HS_CONFIG_MOST_GROUPS = 16 };

#define HS_SECTION_MEMBER(section, KEYS, doc) \
    struct {                                  \
        KEYS(HS_FIELD, section)               \
    } section;

#define HS_INNER_SECTION_MEMBER(member, name, KEYS, doc) HS_SECTION_MEMBER(member, KEYS, doc)

typedef struct HsConfig {
    HS_CONFIG_SECTIONS(HS_SECTION_MEMBER)
    HS_CONFIG_INNER_SECTIONS(HS_INNER_SECTION_MEMBER)
    int task_count; /* at least 1 after loading */
    HsTaskConfig *tasks;
    int group_count; /* of optimizer.groups */
    HsGroupConfig groups[HS_CONFIG_MOST_GROUPS];
    struct HsConfigOrigin *origin; /* which keys were set and where; private to config.c */
} HsConfig;

/* All defaults, one default task. */
HsStatus hs_config_init(HsConfig *config);

/* Read a YAML file over the defaults, then the overrides ("section.key=value", "tasks.0.train=...", or a top-level
 * "key=value"; values in YAML flow syntax).  Checks types, bounds, choices, unknown and doubled keys (with "did you
 * mean"), and relations between keys.  path may be NULL (overrides only).  On failure nothing need be freed. */
HsStatus hs_config_load(HsConfig *config, const char *path, int override_count, const char *const *overrides);

/* A configuration that a run wrote: what it starts from is in it already, and may be gone. */
HsStatus hs_config_load_saved(HsConfig *config, const char *path, int override_count, const char *const *overrides);

/* The same from memory (tests, fuzzing, checkpoints); `name` stands for the file in messages. */
HsStatus hs_config_parse(HsConfig *config, const char *name, const char *text, size_t length, int override_count,
                         const char *const *overrides);

/* One "section.key=value" more, as load takes them; relations between keys are not checked again. */
HsStatus hs_config_override(HsConfig *config, const char *text);

void hs_config_deinit(HsConfig *config);

/* Overrides that make a run of 1/divisor of the length, with the same course of the learning rate: every step count,
 * token count and number of epochs that `config` gives a length in, warm-up and decay, each over `divisor`, whole ones
 * rounded and at least 1.  Divisor 1: none.  The caller deinits the list.  errors: HS_ENOMEM (shorten.c) */
HsStatus hs_config_shorten(const HsConfig *config, int64_t divisor, HsStringList *overrides);

/* One task named `name` in place of all, of this source and in full, for training and validation.  errors: HS_ENOMEM */
HsStatus hs_config_only_task(HsConfig *config, const char *name, const char *source);

/* Whether a key's value is the word. */
static inline bool hs_is(const char *value, const char *word)
{
    return strcmp(value, word) == 0;
}

/* Was "section.key" (or a top-level "key") given by the user? */
bool hs_config_is_set(const HsConfig *config, const char *dotted_key);

/* The resolved configuration as YAML that loads back to the same values, with each key's doc as a comment if asked. */
HsStatus hs_config_print(const HsConfig *config, FILE *stream, bool with_docs);
/* The same without comments, as a text that the caller frees.  errors: HS_ENOMEM. */
HsStatus hs_config_text(const HsConfig *config, char **text);
/* Of the dotted `keys` (NULL-terminated) alone, without comments.  Keys of a list's entries (tasks.0.steps) are left out:
 * an entry stands for itself only with all its keys. */
HsStatus hs_config_print_keys(const HsConfig *config, const char *const *keys, FILE *stream);

/* Whether a run may continue with another value of a key: the column `resume` of keys.h. */
typedef enum HsKeyResume {
    HS_RESUME_FIXED = 1,
    HS_RESUME_LENGTH = 2,
    HS_RESUME_FUTURE = 4,
    HS_RESUME_FREE = 8,
    HS_RESUME_ANY = 15
} HsKeyResume;

/* The dotted keys that differ (the first eight, comma separated) -> buffer; returns how many differ.  Of the keys
 * with one of `classes` (a sum of HsKeyResume), without those of `ignored`: a NULL-terminated list of dotted keys or
 * "section." prefixes that need not match, or NULL. */
int hs_config_differences(const HsConfig *a, const HsConfig *b, unsigned classes, const char *const *ignored,
                          char *buffer, size_t size);
/* "learning_rate 0.0002 -> 0.0001, ..." of the keys with one of `classes` that differ from `before`. */
HsStatus hs_config_changes(const HsConfig *before, const HsConfig *now, unsigned classes, char *buffer, size_t size);

/* logging.trace as step numbers, counted from 1; first is 0 when nothing is traced. */
typedef struct HsTraceSteps {
    int64_t first, last;
} HsTraceSteps;
HsTraceSteps hs_config_trace_steps(const HsConfig *config);

/* The Markdown reference (configs/REFERENCE.md) and the key part of --help. */
HsStatus hs_config_write_reference(FILE *stream);
HsStatus hs_config_write_help(FILE *stream);

#endif
