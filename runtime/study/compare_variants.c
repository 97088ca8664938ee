/* SPDX-License-Identifier: MIT
 *
 * Axes are lists of texts, variants their product.
 */
#include "runtime/study/compare_variants.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "optim/continual/continual.h"
#include "runtime/config/aliases.h"
#include "runtime/config/table.h"

enum { VARIANT_MOST = 4096 };

static HsStatus no_memory(void)
{
    return hs_fail(HS_ENOMEM, "out of memory for a comparison's variants");
}

/* Up to the next comma that stands in no brackets, braces or quotes. */
static size_t item_length(const char *text)
{
    int depth = 0;
    char quote = '\0';
    size_t i = 0;
    for (; text[i]; i++) {
        const char c = text[i];
        if (quote)
            quote = c == quote ? '\0' : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
        else if (c == ',' && depth <= 0)
            break;
    }
    return i;
}

/* The items between commas, without blanks around them, each once. */
static HsStatus split(const char *option, const char *text, HsStringList *items)
{
    for (bool more = true; more;) {
        const size_t length = item_length(text);
        size_t from = 0, to = length;
        while (from < to && text[from] == ' ')
            from++;
        while (to > from && text[to - 1] == ' ')
            to--;
        if (from == to)
            return hs_fail(HS_ECONFIG, "%s: there is nothing between two commas, or at an end of the list", option);
        HS_TRY(hs_string_list_add(items, "%.*s", (int)(to - from), text + from));
        for (int i = 0; i < items->count - 1; i++)
            if (strcmp(items->items[i], items->items[items->count - 1]) == 0)
                return hs_fail(HS_ECONFIG, "%s lists %.60s twice", option, items->items[i]);
        more = text[length] == ',';
        text += length + more;
    }
    return HS_OK;
}

/* How long the first of the joined names is: a strategy's own plus signs ("der++") belong to it. */
static size_t name_length(const char *names)
{
    size_t length = strcspn(names, "+");
    for (int i = 0; i < hs_strategy_count; i++) {
        const size_t own = strlen(hs_strategy_table[i]->name);
        const bool here = strncmp(names, hs_strategy_table[i]->name, own) == 0;
        if (here && own > length && (names[own] == '+' || names[own] == '\0'))
            length = own;
    }
    return length;
}

static HsStatus check_names(const char *names)
{
    for (bool more = true; more;) {
        char name[64];
        const size_t length = name_length(names);
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (length >= sizeof name || !hs_strategy_find(name)) {
            char near[HS_DOTTED_BYTES];
            const char *const known = hs_config_key_find("continual", "strategy")->choices;
            const char *const alias = hs_config_alias_choice("continual.strategy", known, name);
            const bool suggested = alias || hs_config_choice_suggest(known, name, near);
            return hs_fail(HS_ECONFIG, "--strategies: there is no strategy `%.60s`%s%s%s", name,
                           suggested ? "; did you mean " : "",
                           alias       ? alias
                           : suggested ? near
                                       : "",
                           suggested ? "?" : "");
        }
        more = names[length] == '+';
        names += length + more;
    }
    return HS_OK;
}

/* "ewc+er:ewc.lambda=10" -> overrides */
static HsStatus read_strategy(const char *label, HsStringList *overrides)
{
    const size_t names = strcspn(label, ":");
    HS_TRY(hs_string_list_add(overrides, "continual.strategy=%.*s", (int)names, label));
    const char *name = strchr(overrides->items[overrides->count - 1], '=') + 1;
    if (*name == '\0')
        return hs_fail(HS_ECONFIG,
                       "--strategies: `%.60s` is not a variant; write names between commas, such as none,ewc,er",
                       label);
    HS_TRY(check_names(name));
    for (const char *part = label + names; *part;) {
        const size_t length = strcspn(++part, ":");
        HS_TRY(hs_string_list_add(overrides, "%.*s", (int)length, part));
        if (!strchr(overrides->items[overrides->count - 1], '='))
            return hs_fail(HS_ECONFIG, "--strategies: `%.60s` in %.60s is not of the form section.key=value",
                           overrides->items[overrides->count - 1], label);
        part += length;
    }
    return HS_OK;
}

/* --- axes --- */

static HsStatus read_grid(const char *text, HsVariantAxis *axis)
{
    const size_t length = strcspn(text, "=");
    char option[128];
    if (length == 0 || text[length] == '\0' || text[length + 1] == '\0')
        return hs_fail(HS_ECONFIG,
                       "--grid %.60s is not of the form KEY=VALUE,VALUE,..., such as learning_rate=1e-3,3e-4", text);
    axis->key = strndup(text, length);
    if (!axis->key)
        return no_memory();
    if (strcmp(axis->key, "seed") == 0)
        return hs_fail(HS_ECONFIG, "--grid seed: --seeds says how many seeds each combination has");
    if (strcmp(axis->key, "out_dir") == 0)
        return hs_fail(HS_ECONFIG, "--grid out_dir: each run has its own folder already, under --out");
    if (strcmp(axis->key, "strategy") == 0)
        return hs_fail(HS_ECONFIG, "--grid: unknown key strategy; did you mean continual.strategy?");
    snprintf(option, sizeof option, "--grid %.100s", axis->key);
    return split(option, text + length + 1, &axis->values);
}

/* "key" of "key=value" */
static bool has_key(const char *override, const char *key)
{
    const size_t length = strcspn(override, "=");
    return strlen(key) == length && strncmp(override, key, length) == 0;
}

static HsStatus read_axes(const char *strategies, const char *const *grids, int grid_count, HsVariants *variants)
{
    if (grid_count + (strategies != NULL) > HS_VARIANT_AXES)
        return hs_fail(HS_ECONFIG, "--grid is given %d times; at most %d are possible", grid_count,
                       HS_VARIANT_AXES - (strategies != NULL));
    if (strategies) {
        HsVariantAxis *axis = &variants->axes[variants->axis_count++];
        axis->key = strdup("strategy");
        if (!axis->key)
            return no_memory();
        HS_TRY(split("--strategies", strategies, &axis->values));
    }
    for (int i = 0; i < grid_count; i++) {
        HsVariantAxis *axis = &variants->axes[variants->axis_count++];
        HS_TRY(read_grid(grids[i], axis));
        for (const HsVariantAxis *earlier = variants->axes; earlier < axis; earlier++)
            if (strcmp(earlier->key, axis->key) == 0)
                return hs_fail(HS_ECONFIG, "--grid %.60s is given twice: write all its values in one", axis->key);
        if (strategies && strcmp(axis->key, "continual.strategy") == 0)
            return hs_fail(HS_ECONFIG,
                           "--grid continual.strategy and --strategies both list strategies: leave one out");
    }
    return HS_OK;
}

int hs_variants_value(const HsVariants *variants, int variant, int axis)
{
    for (int i = variants->axis_count - 1; i > axis; i--)
        variant /= variants->axes[i].values.count;
    return variant % variants->axes[axis].values.count;
}

/* --- variants --- */

/* What a file's name cannot hold, or should not, becomes "_"; a long one is cut and marked by its hash. */
static void make_folder(HsVariant *variant)
{
    enum { KEPT = HS_VARIANT_FOLDER_BYTES - 1 - 17 };
    const size_t length = strlen(variant->label);
    snprintf(variant->folder, sizeof variant->folder, "%.*s", (int)sizeof variant->folder - 1, variant->label);
    for (char *c = variant->folder; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("+-._=", *c))
            *c = '_';
    if (variant->folder[0] == '.')
        variant->folder[0] = '_';
    if (length >= sizeof variant->folder)
        snprintf(variant->folder + KEPT, sizeof variant->folder - KEPT, "-%016llx",
                 (unsigned long long)XXH3_64bits(variant->label, length));
}

static HsStatus extend_label(HsVariant *variant, const char *part)
{
    char *longer = NULL;
    const int length =
        asprintf(&longer, "%s%s%s", variant->label ? variant->label : "", variant->label ? ":" : "", part);
    free(variant->label);
    variant->label = length < 0 ? NULL : longer;
    return variant->label ? HS_OK : no_memory();
}

static HsStatus make_variant(const HsVariants *variants, int index, HsVariant *variant)
{
    for (int axis = 0; axis < variants->axis_count; axis++) {
        const HsVariantAxis *from = &variants->axes[axis];
        const char *value = from->values.items[hs_variants_value(variants, index, axis)];
        if (strcmp(from->key, "strategy") == 0) {
            HS_TRY(extend_label(variant, value));
            HS_TRY(read_strategy(value, &variant->overrides));
            continue;
        }
        for (int i = 0; i < variant->overrides.count; i++)
            if (has_key(variant->overrides.items[i], from->key))
                return hs_fail(HS_ECONFIG, "%.60s sets %.60s, which --grid lists: leave one out", variant->label,
                               from->key);
        HS_TRY(hs_string_list_add(&variant->overrides, "%s=%s", from->key, value));
        HS_TRY(extend_label(variant, variant->overrides.items[variant->overrides.count - 1]));
    }
    if (strlen(variant->label) > VARIANT_MOST)
        return hs_fail(HS_ECONFIG, "a variant has over %d characters with its settings, so set less in it: %.60s...",
                       VARIANT_MOST, variant->label);
    make_folder(variant);
    return HS_OK;
}

static int by_folder(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Values that differ in what no file's name shows would share a folder. */
static HsStatus check_folders(const HsVariants *variants)
{
    const char **names = malloc((size_t)variants->count * sizeof *names);
    if (!names)
        return no_memory();
    for (int i = 0; i < variants->count; i++)
        names[i] = variants->items[i].folder;
    qsort(names, (size_t)variants->count, sizeof *names, by_folder);
    HsStatus status = HS_OK;
    for (int i = 1; i < variants->count && status == HS_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = hs_fail(HS_ECONFIG,
                             "two variants would have the same folder, %.100s: write their values otherwise", names[i]);
    free(names);
    return status;
}

HsStatus hs_variants_parse(const char *strategies, const char *const *grids, int grid_count, HsVariants *variants)
{
    *variants = (HsVariants){ 0 };
    HS_TRY(read_axes(strategies, grids, grid_count, variants));
    int64_t count = 1;
    for (int i = 0; i < variants->axis_count; i++) {
        count *= variants->axes[i].values.count;
        if (count > HS_VARIANTS_MOST)
            return hs_fail(HS_ECONFIG, "--strategies and --grid make more than %d combinations", HS_VARIANTS_MOST);
    }
    variants->items = calloc((size_t)count, sizeof *variants->items);
    if (!variants->items)
        return no_memory();
    for (variants->count = 0; variants->count < count; variants->count++)
        HS_TRY(make_variant(variants, variants->count, &variants->items[variants->count]));
    return check_folders(variants);
}

void hs_variants_deinit(HsVariants *variants)
{
    /* The one that was being made when it failed is there, too. */
    int64_t room = variants->items ? 1 : 0;
    for (int i = 0; i < variants->axis_count && variants->items; i++)
        room *= variants->axes[i].values.count;
    for (int64_t i = 0; i < room; i++) {
        free(variants->items[i].label);
        hs_string_list_deinit(&variants->items[i].overrides);
    }
    free(variants->items);
    for (int i = 0; i < variants->axis_count; i++) {
        free(variants->axes[i].key);
        hs_string_list_deinit(&variants->axes[i].values);
    }
    *variants = (HsVariants){ 0 };
}
