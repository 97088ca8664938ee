/* SPDX-License-Identifier: MIT
 *
 * Settings that a folder of weights decides, collected before they are taken.
 */
#include <stdio.h>

#include "runtime/config/pretrained.h"
#include "runtime/config/table.h"

HsStatus hs_adoption_add(HsAdoption *adoption, const char *section, const char *key, const char *text, const char *from)
{
    const HsConfigKey *row = hs_config_key_find(section, key);
    const HsYaml scalar = { .kind = HS_YAML_SCALAR,
                            .text = (char *)(uintptr_t)text,
                            .plain = row->type != HS_KEY_STRING };
    HsYaml *list = NULL;
    char place[512];
    snprintf(place, sizeof place, "%s: %s", adoption->path, from);
    if (row->type == HS_KEY_STRINGS)
        HS_TRY(hs_yaml_parse_value(text, &list));
    HsStatus status = hs_config_value_set(row, place, list ? list : &scalar, &adoption->made);
    hs_yaml_destroy(list);
    HS_TRY(status);
    return hs_adoption_keep(adoption, section, key, from);
}

HsStatus hs_adoption_keep(HsAdoption *adoption, const char *section, const char *key, const char *from)
{
    adoption->items[adoption->count].key = hs_config_key_find(section, key);
    snprintf(adoption->items[adoption->count].from, sizeof adoption->items[0].from, "%s", from);
    adoption->count++;
    return HS_OK;
}
