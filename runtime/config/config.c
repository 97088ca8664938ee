/* SPDX-License-Identifier: MIT
 *
 * Loading a configuration: defaults, then the file, then the command line, then relations between keys.
 * Each key remembers where its value came from, so that a relation found broken at the end can point at a line.
 */
#include "runtime/config/mixture.h"
#include "runtime/config/table.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 1 << 20, CONFIG_MAX_TASKS = 1000 };

static HsStatus set_defaults(HsConfig *config)
{
    *config = (HsConfig){ .task_count = 1 };
    config->tasks = calloc(1, sizeof *config->tasks);
    config->origin =
        calloc(1, sizeof *config->origin + (size_t)hs_config_origin_count(1) * sizeof config->origin->key[0]);
    HsStatus status =
        config->tasks && config->origin ? HS_OK : hs_fail(HS_ENOMEM, "out of memory while making a configuration");
    for (int i = 0; i < hs_config_key_count && status == HS_OK; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (!hs_config_key_is_group(key)) /* there is none yet */
            status = hs_config_value_set_default(key, hs_config_key_object(config, key, 0));
    }
    if (status != HS_OK)
        hs_config_deinit(config);
    return status;
}

HsStatus hs_config_init(HsConfig *config)
{
    HS_TRY(set_defaults(config));
    HsStatus status = hs_config_check(config); /* settles what is left open, such as continual.strategy: auto */
    if (status != HS_OK)
        hs_config_deinit(config);
    return status;
}

void hs_config_deinit(HsConfig *config)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        for (int task = 0; task < hs_config_key_places(config, key); task++)
            if (!hs_config_key_is_task(key) || config->tasks)
                hs_config_value_release(key, hs_config_key_object(config, key, task));
    }
    if (config->origin)
        free(config->origin->name);
    free(config->origin);
    free(config->tasks);
    *config = (HsConfig){ 0 };
}

/* Room for `count` tasks, the new ones with their defaults. */
static HsStatus resize_tasks(HsConfig *config, int count)
{
    size_t keys = (size_t)hs_config_origin_count(count), before = (size_t)hs_config_origin_count(config->task_count);
    HsConfigOrigin *origin = realloc(config->origin, sizeof *config->origin + keys * sizeof config->origin->key[0]);
    if (!origin)
        return hs_fail(HS_ENOMEM, "out of memory for %d tasks", count);
    memset(origin->key + before, 0, (keys - before) * sizeof origin->key[0]);
    config->origin = origin;
    HsTaskConfig *tasks = realloc(config->tasks, (size_t)count * sizeof *tasks);
    if (!tasks)
        return hs_fail(HS_ENOMEM, "out of memory for %d tasks", count);
    config->tasks = tasks;
    memset(tasks + config->task_count, 0, (size_t)(count - config->task_count) * sizeof *tasks);
    while (config->task_count < count) {
        int task = config->task_count++;
        for (int i = hs_config_key_count - hs_config_section_key_count("tasks"); i < hs_config_key_count; i++)
            HS_TRY(hs_config_value_set_default(&hs_config_key_table[i], &config->tasks[task]));
    }
    return HS_OK;
}

static HsStatus unknown_key(const char *name, const HsYaml *node, const char *dotted)
{
    char near[HS_DOTTED_BYTES];
    if (hs_config_key_suggest(dotted, near)) {
        char *const colon = strstr(near, ": ");
        if (!name && colon) { /* as the command line has it */
            *colon = '=';
            memmove(colon + 1, colon + 2, strlen(colon + 2) + 1);
        }
        if (strcmp(dotted, near) == 0) /* dots are for the command line */
            return hs_yaml_fail(name, node->line, node->column,
                                "write %.*s: and, indented under it, %s:", (int)strcspn(near, "."), near,
                                strrchr(near, '.') + 1);
        return hs_yaml_fail(name, node->line, node->column, "unknown key %.80s; did you mean %s?", dotted, near);
    }
    return hs_yaml_fail(name, node->line, node->column, "unknown key %.80s; configs/REFERENCE.md lists them all",
                        dotted);
}

/* Store one key's value and where it came from. */
static HsStatus apply_key(HsConfig *config, const HsConfigKey *row, int task, const char *name, const HsYaml *node)
{
    int index = hs_config_origin_index(row, task);
    const HsConfigKey placed = hs_config_key_of_item(row, task), *key = &placed;
    HsConfigOrigin *origin = config->origin;
    if (name && origin->key[index].source == HS_SOURCE_FILE) {
        char dotted[HS_DOTTED_BYTES];
        return hs_yaml_fail(name, node->line, node->column, "%s is given twice; first in line %d",
                            hs_config_key_dotted(key, dotted), origin->key[index].line);
    }
    void *object = hs_config_key_object(config, key, task);
    HS_TRY(hs_config_value_set(key, name, node, object));
    if (!name || !origin->saved)
        HS_TRY(hs_config_value_expand(key, name, node, object));
    origin->key[index].source = name ? HS_SOURCE_FILE : HS_SOURCE_COMMAND_LINE;
    origin->key[index].line = node->line;
    origin->key[index].column = node->column;
    return HS_OK;
}

static HsStatus apply_groups(HsConfig *config, const char *name, const HsYaml *node);
static HsStatus apply_sources(HsConfig *config, int task, const char *name, const HsYaml *node);

/* The key that `precision: bf16` probably means. */
static const char *main_key(const char *section)
{
    static const char *const names[] = { "kind", "mode", "strategy", "family", "matmul" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (hs_config_key_find(section, names[i]))
            return names[i];
    return "key";
}

/* The members of `model: {...}`, of one task, or of one group. */
static HsStatus apply_section(HsConfig *config, const char *section, int item, const char *name, const HsYaml *node)
{
    if (hs_yaml_is_null(node)) /* every key of it commented out */
        return HS_OK;
    if (node->kind != HS_YAML_MAP)
        return hs_yaml_fail(name, node->line, node->column,
                            "%s is a section: it holds keys, indented under it (%s: ...)", section, main_key(section));
    for (const HsYaml *member = node->first; member; member = member->next) {
        const HsConfigKey *key = hs_config_key_find(section, member->key);
        char inner[HS_DOTTED_BYTES * 2];
        snprintf(inner, sizeof inner, "%s.%.96s", section, member->key);
        if (hs_config_section_exists(inner)) {
            for (const HsYaml *earlier = node->first; earlier != member; earlier = earlier->next)
                if (strcmp(earlier->key, member->key) == 0)
                    return hs_yaml_fail(name, member->line, member->column, "%s is given twice; first in line %d",
                                        inner, earlier->line);
            HS_TRY(strcmp(inner, HS_CONFIG_GROUPS) == 0 ? apply_groups(config, name, member)
                                                        : apply_section(config, inner, 0, name, member));
            continue;
        }
        if (strcmp(section, "tasks") == 0 && strcmp(member->key, "sources") == 0) {
            HS_TRY(apply_sources(config, item, name, member));
            continue;
        }
        if (!key) {
            char dotted[HS_DOTTED_BYTES * 2], number[16] = "";
            if (strcmp(section, "tasks") == 0 || strcmp(section, HS_CONFIG_GROUPS) == 0)
                snprintf(number, sizeof number, ".%d", item);
            snprintf(dotted, sizeof dotted, "%s%s.%.96s", section, number, member->key);
            return unknown_key(name, member, dotted);
        }
        HS_TRY(apply_key(config, key, item, name, member));
    }
    return HS_OK;
}

/* One member of each source, as a list: nodes[count] are copies that follow one another. */
static HsStatus apply_member(HsConfig *config, int task, const char *key, const char *name, const HsYaml *node,
                             HsYaml *nodes, int count)
{
    const HsYaml list = { .kind = HS_YAML_LIST,
                          .line = node->line,
                          .column = node->column,
                          .count = count,
                          .first = nodes,
                          .last = nodes + count - 1 };
    for (int i = 0; i < count; i++)
        nodes[i].next = i + 1 < count ? &nodes[i + 1] : NULL;
    return apply_key(config, hs_config_key_find("tasks", key), task, name, &list);
}

/* `sources: [{path, weight, name, validation}, ...]` is another way to write train, weights, source_names and
 * source_validation. */
static HsStatus apply_sources(HsConfig *config, int task, const char *name, const HsYaml *node)
{
    static const char *const members[] = { "path", "weight", "name", "validation" };
    static const char *const keys[] = { "train", "weights", "source_names", "source_validation" };
    enum { PATH, WEIGHT, NAME, VALIDATION, MEMBERS };
    HsYaml nodes[MEMBERS][HS_MIXTURE_MOST];
    int given[MEMBERS] = { 0 }, count = 0;
    char one[] = "1";
    if (node->kind != HS_YAML_LIST || node->count == 0 || node->count > HS_MIXTURE_MOST)
        return hs_yaml_fail(name, node->line, node->column,
                            "sources must be a list of 1 to %d, such as - {path: data/books, weight: 2}",
                            HS_MIXTURE_MOST);
    for (const HsYaml *item = node->first; item; item = item->next, count++) {
        const HsYaml *found[MEMBERS] = { NULL };
        for (const HsYaml *member = item->kind == HS_YAML_MAP ? item->first : NULL; member; member = member->next) {
            int which = 0;
            while (which < MEMBERS && strcmp(members[which], member->key) != 0)
                which++;
            if (which == MEMBERS || found[which] || member->kind != HS_YAML_SCALAR)
                return hs_yaml_fail(name, member->line, member->column,
                                    "a source has path, weight, name and validation, each once and one value (got "
                                    "%.40s)",
                                    member->key);
            found[which] = member;
            given[which]++;
        }
        if (!found[PATH])
            return hs_yaml_fail(name, item->line, item->column,
                                "a source must be a map with a path, such as {path: data/books, weight: 2}");
        for (int which = 0; which < MEMBERS; which++)
            nodes[which][count] = found[which] ? *found[which] : *found[PATH];
        if (!found[WEIGHT])
            nodes[WEIGHT][count].text = one;
    }
    if (given[VALIDATION] > 0 && given[VALIDATION] < count)
        return hs_yaml_fail(name, node->line, node->column,
                            "validation must be given for each source, or for none: %d of %d have one",
                            given[VALIDATION], count);
    for (int which = 0; which < MEMBERS; which++)
        if (given[which] > 0 || which == NAME) /* names say that it is a mixture */
            HS_TRY(apply_member(config, task, keys[which], name, node, nodes[which], count));
    return HS_OK;
}

/* The list as a whole: it takes the place of one that was given before. */
static HsStatus apply_groups(HsConfig *config, const char *name, const HsYaml *node)
{
    const int last = hs_config_key_count - hs_config_section_key_count("tasks");
    const int first = last - hs_config_section_key_count(HS_CONFIG_GROUPS);
    if (node->kind != HS_YAML_LIST)
        return hs_yaml_fail(name, node->line, node->column,
                            "optimizer.groups must be a list of groups, such as - {match: head, learning_rate: 1e-4}");
    if (node->count > HS_CONFIG_MOST_GROUPS)
        return hs_yaml_fail(name, node->line, node->column, "optimizer.groups lists %d; at most %d are possible",
                            node->count, HS_CONFIG_MOST_GROUPS);
    if (name && config->group_count > 0)
        return hs_yaml_fail(name, node->line, node->column, "optimizer.groups is given twice");
    for (int i = first; i < last; i++)
        for (int group = 0; group < config->group_count; group++)
            hs_config_value_release(&hs_config_key_table[i], &config->groups[group]);
    memset(config->groups, 0, sizeof config->groups);
    config->group_count = node->count;
    for (int i = first; i < last; i++)
        for (int group = 0; group < node->count; group++)
            HS_TRY(hs_config_value_set_default(&hs_config_key_table[i], &config->groups[group]));
    int group = 0;
    for (const HsYaml *item = node->first; item; item = item->next) {
        if (item->kind != HS_YAML_MAP)
            return hs_yaml_fail(name, item->line, item->column,
                                "a group must be a map, such as {match: head, learning_rate: 1e-4}");
        HS_TRY(apply_section(config, HS_CONFIG_GROUPS, group++, name, item));
    }
    return HS_OK;
}

static HsStatus apply_tasks(HsConfig *config, const char *name, const HsYaml *node)
{
    if (node->kind != HS_YAML_LIST || node->count == 0)
        return hs_yaml_fail(name, node->line, node->column,
                            "tasks must be a list of tasks, such as - {name: mine, train: data/mine.txt}");
    if (node->count > CONFIG_MAX_TASKS)
        return hs_yaml_fail(name, node->line, node->column, "tasks lists %d; at most %d are possible", node->count,
                            CONFIG_MAX_TASKS);
    HS_TRY(resize_tasks(config, node->count));
    int task = 0;
    for (const HsYaml *item = node->first; item; item = item->next) {
        if (item->kind != HS_YAML_MAP)
            return hs_yaml_fail(name, item->line, item->column,
                                "a task must be a map, such as {name: mine, train: data/mine.txt}");
        HS_TRY(apply_section(config, "tasks", task++, name, item));
    }
    return HS_OK;
}

/* Top level: keys of `training`, sections, the list of tasks. */
static HsStatus apply_file(HsConfig *config, const char *name, const HsYaml *root)
{
    if (!root || hs_yaml_is_null(root)) /* an empty file: all defaults */
        return HS_OK;
    if (root->kind != HS_YAML_MAP)
        return hs_yaml_fail(name, root->line, root->column, "a configuration must be a map of keys (key: value)");
    for (const HsYaml *member = root->first; member; member = member->next) {
        const HsConfigKey *key = hs_config_key_find("training", member->key);
        if (key) {
            HS_TRY(apply_key(config, key, 0, name, member));
            continue;
        }
        if (strcmp(member->key, "training") == 0)
            return hs_yaml_fail(name, member->line, member->column,
                                "training is no section: its keys stand at the top level");
        if (hs_config_section_is_inner(member->key) || !hs_config_section_exists(member->key))
            return unknown_key(name, member, member->key);
        for (const HsYaml *earlier = root->first; earlier != member; earlier = earlier->next)
            if (strcmp(earlier->key, member->key) == 0)
                return hs_yaml_fail(name, member->line, member->column, "%s is given twice; first in line %d",
                                    member->key, earlier->line);
        bool tasks = strcmp(member->key, "tasks") == 0;
        HS_TRY(tasks ? apply_tasks(config, name, member) : apply_section(config, member->key, 0, name, member));
    }
    return HS_OK;
}

/* Split "tasks.0.train" or "mer.beta" or "batch_size" at its dots and find the row. */
static HsStatus find_override(const HsConfig *config, const char *dotted, const HsConfigKey **key, int *task)
{
    static const HsYaml nowhere = { .line = 1, .column = 1 };
    char section[HS_DOTTED_BYTES] = "training";
    const char *last_dot = strrchr(dotted, '.');
    if (last_dot)
        snprintf(section, sizeof section, "%.*s", (int)(last_dot - dotted), dotted);
    int used = 0;
    *task = 0;
    if (sscanf(section, HS_CONFIG_GROUPS ".%d%n", task, &used) == 1 && section[used] == '\0') {
        if (*task < 0 || *task >= config->group_count)
            return hs_yaml_fail(NULL, 0, 0,
                                "there is no optimizer.groups.%d: the configuration lists %d, counting from 0", *task,
                                config->group_count);
        snprintf(section, sizeof section, HS_CONFIG_GROUPS);
    } else if (sscanf(section, "tasks.%d%n", task, &used) == 1 && section[used] == '\0') {
        if (*task < 0 || *task >= config->task_count)
            return hs_yaml_fail(NULL, 0, 0,
                                "there is no tasks.%d: the configuration lists %d, counting from 0; tasks.%d.name=NAME "
                                "appends one",
                                *task, config->task_count, config->task_count);
        snprintf(section, sizeof section, "tasks");
    } else if (strcmp(section, "tasks") == 0) {
        return hs_yaml_fail(NULL, 0, 0, "name the task by its number, as in tasks.0.train");
    }
    *key = hs_config_key_find(section, last_dot ? last_dot + 1 : dotted);
    if (*key && (!last_dot || !hs_config_key_is_top_level(*key)))
        return HS_OK;
    if (strcmp(dotted, "training") != 0 && hs_config_section_exists(dotted))
        return hs_yaml_fail(NULL, 0, 0, "%s is a section: set its keys one at a time, as %s.%s=value", dotted,
                            strcmp(dotted, "tasks") == 0 ? "tasks.0" : dotted, main_key(dotted));
    return unknown_key(NULL, &nowhere, dotted);
}

/* "tasks.N.name" of a list of N tasks: a task more.  Its other keys do not make one: they may be meant for another. */
static HsStatus append_task(HsConfig *config, const char *dotted)
{
    char next[HS_DOTTED_BYTES];
    snprintf(next, sizeof next, "tasks.%d.name", config->task_count);
    if (strcmp(dotted, next) != 0)
        return HS_OK;
    if (config->task_count == CONFIG_MAX_TASKS)
        return hs_yaml_fail(NULL, 0, 0, "tasks lists %d, and no more are possible", CONFIG_MAX_TASKS);
    return resize_tasks(config, config->task_count + 1);
}

HsStatus hs_config_override(HsConfig *config, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return hs_yaml_fail(NULL, 0, 0, "%.80s is not of the form section.key=value", text);
    if (hs_utf8_valid_prefix(text, strlen(text)) != strlen(text)) /* it could not be printed as YAML */
        return hs_yaml_fail(NULL, 0, 0, "the value of %.*s is not UTF-8", (int)(equals - text), text);
    char dotted[HS_DOTTED_BYTES];
    snprintf(dotted, sizeof dotted, "%.*s", (int)(equals - text), text);
    const HsConfigKey *key = NULL;
    HsYaml *node;
    int task;
    const bool groups = strcmp(dotted, HS_CONFIG_GROUPS) == 0;
    HS_TRY(append_task(config, dotted));
    if (!groups)
        HS_TRY(find_override(config, dotted, &key, &task));
    HS_TRY(hs_yaml_parse_value(equals + 1, &node));
    HsStatus status = !node    ? hs_yaml_fail(NULL, 0, 0, "%s has no value", dotted)
                      : groups ? apply_groups(config, NULL, node)
                               : apply_key(config, key, task, NULL, node);
    hs_yaml_destroy(node);
    return status;
}

HsStatus hs_config_only_task(HsConfig *config, const char *name, const char *source)
{
    const int first = hs_config_key_count - hs_config_section_key_count("tasks");
    const struct {
        const char *key, *value;
    } given[] = { { "name", name }, { "train", source }, { "validation", source } };
    for (int i = first; i < hs_config_key_count; i++)
        for (int task = 0; task < config->task_count; task++)
            hs_config_value_release(&hs_config_key_table[i], &config->tasks[task]);
    memset(config->tasks, 0, (size_t)config->task_count * sizeof *config->tasks);
    config->task_count = 1;
    for (int i = first; i < hs_config_key_count; i++)
        HS_TRY(hs_config_value_set_default(&hs_config_key_table[i], &config->tasks[0]));
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        const HsYaml node = { .kind = HS_YAML_SCALAR, .text = (char *)(uintptr_t)given[i].value };
        HS_TRY(hs_config_value_set(hs_config_key_find("tasks", given[i].key), NULL, &node, &config->tasks[0]));
    }
    return HS_OK;
}

static HsStatus check_utf8(const char *name, const char *text, size_t length)
{
    size_t valid = hs_utf8_valid_prefix(text, length);
    if (valid == length)
        return HS_OK;
    int line = 1, column = 1;
    for (size_t i = 0; i < valid; i++) {
        bool continues = ((unsigned char)text[i] & 0xC0) == 0x80; /* a character's later byte takes no column */
        line += text[i] == '\n';
        column = text[i] == '\n' ? 1 : column + !continues;
    }
    return hs_yaml_fail(name, line, column, "byte 0x%02X is not UTF-8; save the file as UTF-8",
                        (unsigned char)text[valid]);
}

static HsStatus apply_all(HsConfig *config, const HsConfigText *given)
{
    if (given->name) {
        if (given->length > CONFIG_MAX_BYTES)
            return hs_fail(HS_ECONFIG,
                           "%s: over 1 MiB, the most that a configuration may have: is this the right file?",
                           given->name);
        config->origin->name = strdup(given->name);
        if (!config->origin->name)
            return hs_fail(HS_ENOMEM, "out of memory while reading %s", given->name);
        HS_TRY(check_utf8(given->name, given->text, given->length));
        HsYaml *root;
        HS_TRY(hs_yaml_parse(given->name, given->text, given->length, &root));
        HsStatus status = apply_file(config, given->name, root);
        hs_yaml_destroy(root);
        HS_TRY(status);
    }
    for (int i = 0; i < given->override_count; i++)
        HS_TRY(hs_config_override(config, given->overrides[i]));
    return HS_OK;
}

HsStatus hs_config_read_text(HsConfig *config, const HsConfigText *given, HsStatus (*adopt)(HsConfig *config))
{
    HS_TRY(set_defaults(config));
    config->origin->saved = adopt == NULL;
    HsStatus status = apply_all(config, given);
    if (status == HS_OK && adopt)
        status = adopt(config);
    if (status == HS_OK)
        status = hs_config_check(config);
    if (status != HS_OK)
        hs_config_deinit(config);
    return status;
}

HsStatus hs_config_read_file(HsConfig *config, const char *path, int override_count, const char *const *overrides,
                             HsStatus (*adopt)(HsConfig *config))
{
    *config = (HsConfig){ 0 };
    FILE *file;
    HsStatus status = hs_open_file(path, &file);
    if (status != HS_OK)
        return status == HS_ENOMEM ? status : HS_ECONFIG;
    /* One byte over the limit shows that a file is too long; parsing reports it. */
    char *text = malloc(CONFIG_MAX_BYTES + 1);
    size_t length = text ? fread(text, 1, CONFIG_MAX_BYTES + 1, file) : 0;
    if (!text)
        status = hs_fail(HS_ENOMEM, "out of memory while reading %s", path);
    else if (ferror(file))
        status = hs_fail(HS_ECONFIG, "cannot read %s: %s", path, strerror(errno));
    fclose(file);
    if (status == HS_OK)
        status = hs_config_read_text(config, &(HsConfigText){ path, text, length, override_count, overrides }, adopt);
    free(text);
    return status;
}

HsStatus hs_config_load_saved(HsConfig *config, const char *path, int override_count, const char *const *overrides)
{
    return hs_config_read_file(config, path, override_count, overrides, NULL);
}
