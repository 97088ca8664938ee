/* SPDX-License-Identifier: MIT
 *
 * Short names of variants: ewc:ewc.lambda=10:ewc.curvature=kronecker is "ewc 10" where all of ewc's points with
 * settings have the same curvature.  A setting is written without its key where it is the only one and a strategy's own,
 * else with the last part of it; what follows from another one is left out, as an alpha that goes with a rank.  Names that
 * would be alike are written in full.
 */
#include <stdio.h>
#include <string.h>

#include "optim/continual/continual.h"
#include "runtime/study/compare_front_figures.h"

/* The strategy of "ewc+er:a=1"; of "a=1:b=2", where the configuration's own is meant, nothing. */
static size_t strategy_length(const char *label)
{
    const size_t length = strcspn(label, ":");
    return memchr(label, '=', length) ? 0 : length;
}

/* The setting at `*at`, which then stands behind it; returns its length, 0 at the end. */
static size_t next_setting(const char **at, const char **setting)
{
    *setting = **at == ':' ? *at + 1 : *at;
    const size_t length = strcspn(*setting, ":");
    *at = *setting + length;
    return length;
}

static bool has_setting(const char *label, const char *setting, size_t length)
{
    const char *at = label + strategy_length(label), *other;
    for (size_t other_length; (other_length = next_setting(&at, &other)) > 0;)
        if (other_length == length && strncmp(other, setting, length) == 0)
            return true;
    return false;
}

/* Whether key[length] lies in a section that belongs to strategies. */
static bool is_strategys(const char *key, size_t length)
{
    const size_t section = strcspn(key, ".");
    if (section >= length)
        return false;
    for (int i = 0; i < hs_strategy_count; i++) {
        const char *const own = hs_strategy_table[i]->section;
        if (own && strlen(own) == section && strncmp(own, key, section) == 0)
            return true;
    }
    return strncmp(key, "replay.", section + 1) == 0;
}

/* Whether two or more points of the strategy have settings, and all of those have this one.  A point without settings has
 * a strategy's own keys at their defaults, which is another strength and no other kind of run; of other keys it has others. */
static bool is_common(const char *const *labels, int count, const char *label, const char *setting, size_t length)
{
    const size_t own = strategy_length(label);
    const bool of_strategy = is_strategys(setting, strcspn(setting, "="));
    int with = 0;
    for (int i = 0; i < count; i++) {
        const size_t other = strategy_length(labels[i]);
        if (other != own || strncmp(labels[i], label, own) != 0 || (labels[i][other] == '\0' && of_strategy))
            continue;
        if (!has_setting(labels[i], setting, length))
            return false;
        with++;
    }
    return with > 1;
}

/* The default table changes some keys together. */
static bool is_implied(const char *label, const char *setting)
{
    static const struct {
        const char *setting, *by;
    } pairs[] = { { "adapter.alpha=", ":adapter.rank=" },
                  { "adapter.kind=lora", ":adapter.rank=" },
                  { "schedule.min_learning_rate=", ":learning_rate=" } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strncmp(setting, pairs[i].setting, strlen(pairs[i].setting)) == 0 && strstr(label, pairs[i].by))
            return true;
    return false;
}

static bool is_shown(const char *const *labels, int count, const char *label, const char *setting, size_t length)
{
    return !is_common(labels, count, label, setting, length) && !is_implied(label, setting);
}

static void append(char name[HS_FRONT_NAME_BYTES], const char *text, size_t length)
{
    const size_t used = strlen(name);
    snprintf(name + used, HS_FRONT_NAME_BYTES - used, "%s%.*s", used > 0 ? " " : "", (int)length, text);
}

static void shorten(const char *const *labels, int count, const char *label, char name[HS_FRONT_NAME_BYTES])
{
    const size_t strategy = strategy_length(label);
    const char *at = label + strategy, *setting;
    int shown = 0;
    name[0] = '\0';
    if (strategy > 0)
        append(name, label, strategy);
    for (size_t length; (length = next_setting(&at, &setting)) > 0;)
        shown += is_shown(labels, count, label, setting, length);
    at = label + strategy;
    for (size_t length; (length = next_setting(&at, &setting)) > 0;) {
        const size_t key = strcspn(setting, "=");
        if (!is_shown(labels, count, label, setting, length) || key >= length)
            continue;
        size_t last = key; /* of the dotted key */
        while (last > 0 && setting[last - 1] != '.')
            last--;
        if (shown > 1 || !is_strategys(setting, key))
            append(name, setting + last, key - last);
        append(name, setting + key + 1, length - key - 1);
    }
}

void hs_front_names(const char *const *labels, int count, char (*names)[HS_FRONT_NAME_BYTES])
{
    for (int i = 0; i < count; i++)
        shorten(labels, count, labels[i], names[i]);
    for (int i = 0; i < count; i++) {
        bool alike = names[i][0] == '\0';
        for (int other = 0; other < count; other++) {
            if (other == i || strcmp(names[other], names[i]) != 0)
                continue;
            snprintf(names[other], HS_FRONT_NAME_BYTES, "%s", labels[other]);
            alike = true;
        }
        if (alike)
            snprintf(names[i], HS_FRONT_NAME_BYTES, "%s", labels[i]);
    }
}
