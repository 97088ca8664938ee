/* SPDX-License-Identifier: MIT
 *
 * Words first, then globs.  The nearest names of a pattern that names nothing: the edit distance (Levenshtein 1966),
 * in which the pattern's `*` stands for any letters and `?` for any one at no cost.
 */
#include "runtime/model/selector.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool is_norm(const HsParam *param)
{
    return param->start == HS_START_ONE;
}

static bool is_bias(const HsParam *param)
{
    return param->role == HS_PARAM_VECTOR && param->start == HS_START_ZERO && param->rank == 1;
}

static const struct {
    const char *word;
    bool (*matches)(const HsParam *param);
} kinds[] = { { "norm", is_norm }, { "bias", is_bias } };

static const char *const roles[] = {
    [HS_PARAM_MATRIX] = "matrix", [HS_PARAM_VECTOR] = "vector",   [HS_PARAM_EMBEDDING] = "embedding",
    [HS_PARAM_HEAD] = "head",     [HS_PARAM_ADAPTER] = "adapter",
};

const char *hs_param_role_name(HsParamRole role)
{
    return roles[role];
}

bool hs_param_matches(const HsParam *param, const char *pattern)
{
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(pattern, roles[i]) == 0)
            return param->role == (HsParamRole)i || (i == HS_PARAM_HEAD && param->tied);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(pattern, kinds[i].word) == 0)
            return kinds[i].matches(param);
    return fnmatch(pattern, param->name, 0) == 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions and replacements that turn the pattern into the name. */
static size_t distance(const char *pattern, const char *name)
{
    size_t row[sizeof((HsParam *)NULL)->name], length = strlen(name);
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (; *pattern; pattern++) {
        const bool any = *pattern == '*';
        size_t diagonal = row[0];
        row[0] += !any;
        for (size_t j = 1; j <= length; j++) {
            const bool same =
                *pattern == '?' || tolower((unsigned char)*pattern) == tolower((unsigned char)name[j - 1]);
            const size_t replaced = diagonal + !same, inserted = row[j - 1] + !any, erased = row[j] + !any;
            diagonal = row[j];
            row[j] = any ? least(inserted, erased) : least(replaced, least(inserted, erased));
        }
    }
    return row[length];
}

/* Two names of the same place in different blocks. */
static bool differ_in_digits_only(const char *a, const char *b)
{
    for (;;) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b || *a == '\0')
            return *a == *b;
        a++, b++;
    }
}

enum { NAMES_SHOWN = 3 };

/* "a, b or c" of the nearest names, each place of a block once. */
static void list_nearest(const HsModel *model, const char *pattern, char *text, size_t size)
{
    const char *shown[NAMES_SHOWN] = { 0 };
    size_t used = 0;
    for (int n = 0; n < NAMES_SHOWN; n++) {
        const char *best = NULL;
        size_t best_distance = 0;
        for (int i = 0; i < model->param_count; i++) {
            const char *name = model->params[i].name;
            bool known = false;
            for (int k = 0; k < n; k++)
                known = known || (shown[k] && differ_in_digits_only(shown[k], name));
            const size_t apart = distance(pattern, name);
            if (!known && (!best || apart < best_distance)) {
                best = name;
                best_distance = apart;
            }
        }
        if (!best)
            return;
        shown[n] = best;
        const int written = snprintf(text + used, size - used, "%s%s", n > 0 ? ", " : "", best);
        used += written > 0 ? (size_t)written : 0;
    }
}

/* Of a parameter that files divide (q|k|v, gate|up): which parts a pattern names. */
static unsigned parts_matched(const HsParam *param, const char *pattern)
{
    unsigned parts = 0;
    for (int part = 0; hs_param_stored_parts(param) > 1 && part < hs_param_stored_parts(param); part++)
        parts |= fnmatch(pattern, hs_param_stored_name(param, part), 0) == 0 ? 1U << part : 0;
    return parts;
}

/* All parts, or none: they are one matrix here. */
static HsStatus choose_whole(const HsModel *model, const char *key, const HsStringList *patterns, bool *chosen)
{
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        unsigned parts = 0;
        for (int p = 0; p < patterns->count; p++)
            parts |= parts_matched(param, patterns->items[p]);
        if (chosen[i] || parts == 0)
            continue;
        for (int part = 0; part < hs_param_stored_parts(param); part++)
            if (!(parts & 1U << part))
                return hs_fail(
                    HS_ECONFIG,
                    "%s names a part of %s without %s, and these are one matrix here: name all of its parts, or "
                    "none",
                    key, param->name, hs_param_stored_name(param, part));
        chosen[i] = true;
    }
    return HS_OK;
}

HsStatus hs_params_select(const HsModel *model, const char *key, const HsStringList *patterns, bool *chosen)
{
    for (int p = 0; p < patterns->count; p++) {
        const char *pattern = patterns->items[p];
        bool matched = false;
        for (int i = 0; i < model->param_count; i++) {
            const bool matches = hs_param_matches(&model->params[i], pattern);
            matched = matched || matches || parts_matched(&model->params[i], pattern) > 0;
            chosen[i] = chosen[i] || matches;
        }
        if (matched)
            continue;
        char near[NAMES_SHOWN * sizeof model->params[0].name + 8] = "";
        list_nearest(model, pattern, near, sizeof near);
        return hs_fail(HS_ECONFIG,
                       "%s: `%.80s` names no parameter of this model; nearest: %s. It takes matrix, vector, embedding, "
                       "head, adapter, norm, bias, or a pattern of names such as *.mlp.*",
                       key, pattern, near);
    }
    return choose_whole(model, key, patterns, chosen);
}
