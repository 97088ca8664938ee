/* SPDX-License-Identifier: MIT
 *
 * A strategy's settings by name: a short list, looked through from its beginning.
 */
#include <assert.h>
#include <string.h>

#include "optim/continual/continual.h"

/* The entry, or the place behind the last one. */
static int find(const HsContinualConfig *config, const char *section, const char *name)
{
    int i = 0;
    while (i < HS_SETTINGS_MAX && config->settings[i].section &&
           (strcmp(config->settings[i].section, section) != 0 || strcmp(config->settings[i].name, name) != 0))
        i++;
    return i;
}

void hs_continual_set(HsContinualConfig *config, HsSetting setting)
{
    const int i = find(config, setting.section, setting.name);
    assert(i < HS_SETTINGS_MAX && "raise HS_SETTINGS_MAX");
    config->settings[i] = setting;
}

double hs_continual_number(const HsContinualConfig *config, const char *section, const char *name)
{
    const int i = find(config, section, name);
    assert(i < HS_SETTINGS_MAX && config->settings[i].section && !config->settings[i].word);
    return config->settings[i].number;
}

const char *hs_continual_word(const HsContinualConfig *config, const char *section, const char *name)
{
    const int i = find(config, section, name);
    assert(i < HS_SETTINGS_MAX && config->settings[i].section && config->settings[i].word);
    return config->settings[i].word;
}

bool hs_continual_word_is(const HsContinualConfig *config, const char *section, const char *name, const char *word)
{
    return strcmp(hs_continual_word(config, section, name), word) == 0;
}
