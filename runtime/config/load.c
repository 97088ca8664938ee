/* SPDX-License-Identifier: MIT
 *
 * A configuration to train with: what files and command line say, and what the weights that they name decide.
 */
#include "runtime/config/chat_template.h"
#include "runtime/config/pretrained.h"
#include "runtime/config/recipe.h"
#include "runtime/config/table.h"
#include "runtime/config/tokenizer_folder.h"

static HsStatus adopt(HsConfig *config)
{
    HS_TRY(hs_config_adopt_size(config));
    HS_TRY(hs_config_adopt_shape(config));
    HS_TRY(hs_config_adopt(config));
    HS_TRY(hs_config_adopt_adapter(config));
    HS_TRY(hs_config_adopt_chat_template(config));
    return hs_config_adopt_end_of_text(config);
}

HsStatus hs_config_parse(HsConfig *config, const char *name, const char *text, size_t length, int override_count,
                         const char *const *overrides)
{
    return hs_config_read_text(config, &(HsConfigText){ name, text, length, override_count, overrides }, adopt);
}

HsStatus hs_config_load(HsConfig *config, const char *path, int override_count, const char *const *overrides)
{
    if (path)
        return hs_config_read_file(config, path, override_count, overrides, adopt);
    return hs_config_read_text(config, &(HsConfigText){ .override_count = override_count, .overrides = overrides },
                               adopt);
}
