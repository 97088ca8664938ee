/* SPDX-License-Identifier: MIT
 *
 * adapter_config.json of PEFT, both ways.  What changes an adapter's mathematics and is not served is refused with file,
 * key and value.
 */
#include "runtime/config/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/model_types.h"
#include "runtime/config/pretrained.h"
#include "runtime/config/table.h"

enum { CONFIG_BYTES = 1 << 22, TEXT_BYTES = 64 };

static HsStatus unsupported(const char *path, const char *key, const HsJson *value, const char *supported)
{
    char *text = hs_json_write(value, false);
    HsStatus status = hs_fail(HS_EUNSUPPORTED, "%s: %s is %.60s, which is not supported; supported: %s", path, key,
                              text ? text : "?", supported);
    free(text);
    return status;
}

/* Absent, null, false, 0 or empty. */
static bool is_nothing(const HsJson *value)
{
    if (!value || hs_json_is_null(value) || (hs_json_is_bool(value) && !hs_json_is_true(value)))
        return true;
    if (hs_json_is_array(value) || hs_json_is_object(value))
        return hs_json_count(value) == 0;
    return hs_json_is_number(value) && hs_json_number(value) == 0;
}

/* Kinds of adapters beyond the plain one; each would be another function of the same tensors. */
static HsStatus check_refused(const char *path, const HsJson *root)
{
    static const char *const refused[] = {
        "use_dora",
        "rank_pattern",
        "alpha_pattern",
        "layers_to_transform",
        "layers_pattern",
        "lora_bias",
        "target_parameters",
        "trainable_token_indices",
        "exclude_modules",
        "layer_replication",
        "alora_invocation_tokens",
        "use_qalora",
        "use_bdlora",
        "arrow_config",
        "loftq_config",
        "eva_config",
        "corda_config",
        "lora_ga_config",
        "megatron_config",
        "velora_config",
        "monteclora_config",
        "kasa_config",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const HsJson *value = hs_json_get(root, refused[i]);
        if (!is_nothing(value) || hs_json_is_number(value)) /* layers_to_transform: 0 is a layer */
            return unsupported(path, refused[i], value, "plain LoRA without it");
    }
    const HsJson *type = hs_json_get(root, "peft_type"), *bias = hs_json_get(root, "bias");
    const HsJson *task = hs_json_get(root, "task_type"), *start = hs_json_get(root, "init_lora_weights");
    if (!type || !hs_json_string(type) || strcmp(hs_json_string(type), "LORA") != 0)
        return type ? unsupported(path, "peft_type", type, "LORA")
                    : hs_fail(HS_EFORMAT, "%s: peft_type is missing", path);
    if (bias && hs_json_string(bias) && strcmp(hs_json_string(bias), "none") != 0)
        return unsupported(path, "bias", bias, "none; adapter.also_train: bias trains biases whole");
    if (task && hs_json_string(task) && strcmp(hs_json_string(task), "CAUSAL_LM") != 0)
        return unsupported(path, "task_type", task, "CAUSAL_LM");
    if (start && hs_json_string(start) && strcmp(hs_json_string(start), "gaussian") != 0)
        return unsupported(path, "init_lora_weights", start,
                           "true, false and gaussian: others change the base model too");
    return HS_OK;
}

/* PEFT compares names to the letter; here some are words for many modules, and some letters stand for others. */
static HsStatus check_name(const char *path, const char *key, const HsJson *item)
{
    static const char *const words[] = { "attention", "mlp", "all-linear" };
    const char *const name = hs_json_string(item);
    const bool target = strcmp(key, "target_modules") == 0;
    if (!name || name[0] == '\0' || strlen(name) > 200)
        return hs_fail(HS_EFORMAT, "%s: %s must be a list of names", path, key);
    if (strpbrk(name, "*?[]\\"))
        return unsupported(path, key, item, "names of modules, which PEFT takes to the letter");
    for (size_t i = 0; target && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0)
            return unsupported(path, key, item, "names of linear layers, such as q_proj");
    return HS_OK;
}

static bool is_head(const HsJson *item)
{
    const char *const name = hs_json_string(item), *const dot = name ? strrchr(name, '.') : NULL;
    return name && strcmp(dot ? dot + 1 : name, "lm_head") == 0;
}

/* Strings -> ["a", "b"], each put into `pattern`. */
static HsStatus add_list(const char *path, const HsJson *list, const char *name, const char *key, const char *pattern,
                         bool without_head, HsAdoption *adoption)
{
    HsJson *out = hs_json_array();
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item)) {
        char text[256];
        const HsStatus status = check_name(path, name, item);
        if (status != HS_OK) {
            hs_json_destroy(out);
            return status;
        }
        if (without_head && is_head(item))
            continue;
        snprintf(text, sizeof text, "%s%s%s", pattern[0] == '*' ? "*" : "", hs_json_string(item),
                 pattern[0] == '*' ? ".*" : "");
        hs_json_append(out, hs_json_new_string(text));
    }
    char *text = hs_json_write(out, false);
    hs_json_destroy(out);
    HsStatus status = text ? hs_adoption_add(adoption, "adapter", key, text, name)
                           : hs_fail(HS_ENOMEM, "%s: no memory for a list of names", path);
    free(text);
    return status;
}

static HsStatus add_targets(const char *path, const HsJson *root, HsAdoption *adoption)
{
    const HsJson *targets = hs_json_get(root, "target_modules");
    if (hs_json_is_array(targets) && hs_json_count(targets) > 0)
        return add_list(path, targets, "target_modules", "targets", "", false, adoption);
    if (targets && hs_json_string(targets) && strcmp(hs_json_string(targets), "all-linear") == 0)
        return hs_adoption_add(adoption, "adapter", "targets", "all-linear", "target_modules");
    return targets ? unsupported(path, "target_modules", targets, "a list of names, or all-linear")
                   : hs_fail(HS_EFORMAT, "%s: target_modules is missing", path);
}

static HsStatus read_values(const char *path, const HsJson *root, bool tied, HsAdoption *adoption)
{
    char text[TEXT_BYTES];
    int64_t rank;
    const HsJson *alpha = hs_json_get(root, "lora_alpha"), *saved = hs_json_get(root, "modules_to_save");
    HS_TRY(check_refused(path, root));
    HS_TRY(hs_json_need_range(path, root, "r", 1, 4096, &rank));
    snprintf(text, sizeof text, "%lld", (long long)rank);
    HS_TRY(hs_adoption_add(adoption, "adapter", "kind", "lora", "peft_type"));
    HS_TRY(hs_adoption_add(adoption, "adapter", "rank", text, "r"));
    if (alpha && !isfinite(hs_json_number(alpha)))
        return hs_fail(HS_EFORMAT, "%s: lora_alpha must be a number", path);
    HS_TRY(hs_adoption_add(adoption, "adapter", "alpha", hs_config_real_text(alpha ? hs_json_number(alpha) : 8, text),
                           "lora_alpha"));
    HS_TRY(hs_adoption_add(adoption, "adapter", "rank_stabilized",
                           hs_json_is_true(hs_json_get(root, "use_rslora")) ? "true" : "false", "use_rslora"));
    HS_TRY(add_targets(path, root, adoption));
    if (is_nothing(saved))
        return HS_OK;
    if (!hs_json_is_array(saved))
        return unsupported(path, "modules_to_save", saved, "a list of names");
    if (tied && hs_json_count(saved) == 1 && is_head(hs_json_first(saved)))
        return unsupported(path, "modules_to_save", saved,
                           "the head together with the embedding, as the head is the embedding's table here");
    return add_list(path, saved, "modules_to_save", "also_train", "*", tied && hs_json_count(saved) > 1, adoption);
}

HsStatus hs_peft_read(const char *path, bool tied, HsAdoption *adoption)
{
    HsJson *root = NULL;
    HS_TRY(hs_json_read_python(path, CONFIG_BYTES, &root));
    const HsStatus status = hs_json_is_object(root) ? read_values(path, root, tied, adoption)
                                                    : hs_fail(HS_EFORMAT, "%s: not a JSON object", path);
    hs_json_destroy(root);
    return status;
}

HsJson *hs_peft_config(const HsConfig *config, const HsPeftNames *names)
{
    HsJson *root = hs_json_object(), *targets = hs_json_array(), *saved = hs_json_array();
    for (int i = 0; i < names->target_count; i++)
        hs_json_append(targets, hs_json_new_string(names->targets[i]));
    for (int i = 0; i < names->saved_count; i++)
        hs_json_append(saved, hs_json_new_string(names->saved[i]));
    hs_json_set_string(root, "peft_type", "LORA");
    hs_json_set_string(root, "task_type", "CAUSAL_LM");
    hs_json_set_string(root, "base_model_name_or_path", names->base);
    hs_json_set_integer(root, "r", config->adapter.rank);
    hs_json_set_real(root, "lora_alpha", config->adapter.alpha);
    hs_json_set_real(root, "lora_dropout", config->adapter.dropout);
    hs_json_set_bool(root, "use_rslora", config->adapter.rank_stabilized);
    hs_json_set(root, "target_modules", targets);
    if (names->saved_count > 0)
        hs_json_set(root, "modules_to_save", saved);
    else
        hs_json_destroy(saved);
    hs_json_set_bool(root, "fan_in_fan_out", hs_family_files(config)->input_rows);
    hs_json_set_string(root, "bias", "none");
    hs_json_set_bool(root, "init_lora_weights", true);
    hs_json_set_bool(root, "inference_mode", true);
    return root;
}
