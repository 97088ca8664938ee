/* SPDX-License-Identifier: MIT
 *
 * init_from: a model's shape is what its weights have, so it comes from where they come from, and what the configuration
 * says of it besides must agree.
 */
#include "runtime/config/pretrained.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/config/model_types.h"
#include "runtime/config/peft.h"
#include "runtime/config/table.h"
#include "runtime/config/tokenizer_folder.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

/* A file must be one that names a checkpoint, as checkpoints/latest and best do; others lie in the folder that is meant. */
static HsStatus check_names_checkpoint(const char *path)
{
    enum { LONGEST = 256 };
    static const char start[] = "step-";
    struct stat about;
    char *text = NULL, *folder = NULL;
    size_t length = 0;
    const char *const dot = strrchr(path, '.');
    if (stat(path, &about) == 0 && about.st_size <= LONGEST) {
        HS_TRY(hs_read_file(path, LONGEST, &text, &length));
        const bool named = strncmp(text, start, sizeof start - 1) == 0;
        free(text);
        if (named)
            return HS_OK;
    }
    if (dot && strcmp(dot, ".gguf") == 0)
        return hs_fail(HS_ECONFIG,
                       "%s: a GGUF can be exported but not read: name the Hugging Face folder that it was made of",
                       path);
    HS_TRY(hs_storage_folder(path, &folder));
    const HsStatus status = hs_fail(HS_ECONFIG,
                                    "%s is a file: name the folder that holds config.json, weights and tokenizer "
                                    "(perhaps %s), a run's folder or one of its checkpoints",
                                    path, folder);
    free(folder);
    return status;
}

HsStatus hs_pretrained_kind(const char *path, HsPretrainedKind *kind)
{
    struct stat about;
    bool there = false, huggingface = false, own = false;
    *kind = HS_PRETRAINED_NONE;
    HS_TRY(hs_path_exists(path, &there));
    if (!there)
        return HS_OK;
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode)) { /* checkpoints/best */
        *kind = HS_PRETRAINED_CHECKPOINT;
        return check_names_checkpoint(path);
    }
    HS_TRY(hs_storage_has(path, "config.json", &huggingface));
    HS_TRY(hs_storage_has(path, "config.yaml", &own));
    *kind = huggingface ? HS_PRETRAINED_HUGGINGFACE : own ? HS_PRETRAINED_CHECKPOINT : HS_PRETRAINED_NONE;
    return HS_OK;
}

/* The value as YAML; the caller frees. */
static HsStatus text_of(const HsConfigKey *key, const HsConfig *config, char **text)
{
    size_t size = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    if (stream)
        hs_config_value_print(key, config, stream);
    return hs_close_text(stream, text);
}

/* by: the key that named the place */
static HsStatus take(HsConfig *config, const HsAdoption *adoption, const char *by, int item)
{
    const HsConfigKey *const key = adoption->items[item].key;
    char dotted[HS_DOTTED_BYTES], *theirs = NULL, *ours = NULL;
    HsYaml *node = NULL;
    hs_config_key_dotted(key, dotted);
    HsStatus status = text_of(key, &adoption->made, &theirs);
    if (status == HS_OK && hs_config_is_set(config, dotted)) {
        status = text_of(key, config, &ours);
        if (status == HS_OK && !hs_config_value_equal(key, config, &adoption->made))
            status =
                hs_config_relation_fail(config, dotted, by, "%s: %s contradicts %s, where %s is %s; leave the key out",
                                        dotted, ours, adoption->path, adoption->items[item].from, theirs);
    } else if (status == HS_OK) {
        status = hs_yaml_parse_value(theirs, &node);
        if (status == HS_OK)
            status = hs_config_value_set(key, NULL, node, config);
        hs_yaml_destroy(node);
    }
    free(theirs);
    free(ours);
    return status;
}

/* config.yaml next to what `path` names; the caller frees. */
static HsStatus own_config_path(const char *path, char **file)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return hs_storage_join(path, "config.yaml", file);
    char *text = NULL;
    size_t length = 0;
    HS_TRY(hs_read_file(path, 256, &text, &length));
    text[strcspn(text, "\r\n")] = '\0';
    const char *slash = strrchr(path, '/');
    const size_t size = strlen(path) + length + sizeof "/config.yaml";
    *file = malloc(size);
    if (*file)
        snprintf(*file, size, "%.*s%s/config.yaml", slash ? (int)(slash - path + 1) : 0, path, text);
    free(text);
    return *file ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", path);
}

/* A checkpoint of ours: its model section, but for what only says how to train, and its tokenizer. */
static HsStatus read_own(const char *file, const HsConfig *config, HsAdoption *adoption)
{
    static const char *const free_keys[] = { "dropout", "init_std", "z_loss" };
    /* Conversations may begin with this run, or be written otherwise from here on. */
    const bool own_template = hs_config_is_set(config, "tokenizer.chat_template");
    HS_TRY(hs_config_load_saved(&adoption->made, file, 0, NULL));
    HsConfig *made = &adoption->made;
    if (made->model.max_positions == 0 && hs_family_files(made)->ends)
        made->model.max_positions = made->training.max_length;
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        bool taken = strcmp(key->section, "model") == 0 || strcmp(key->section, "tokenizer") == 0;
        for (size_t k = 0; k < sizeof free_keys / sizeof *free_keys; k++)
            taken = taken && strcmp(key->name, free_keys[k]) != 0;
        if (!taken || (own_template && strcmp(key->name, "chat_template") == 0))
            continue;
        adoption->items[adoption->count].key = key;
        hs_config_key_dotted(key, adoption->items[adoption->count].from);
        adoption->count++;
    }
    return HS_OK;
}

/* Its own: other ids would mean other words.  A folder without one serves with a tokenizer that the configuration names. */
static HsStatus take_tokenizer(const HsConfig *config, const char *folder, HsAdoption *adoption)
{
    char *path = NULL;
    bool exists = false;
    const bool named = hs_config_is_set(config, "tokenizer.kind") || hs_config_is_set(config, "tokenizer.path");
    HS_TRY(hs_storage_join(folder, "tokenizer.json", &path));
    HsStatus status = hs_path_exists(path, &exists);
    if (status == HS_OK && !exists && !named)
        status = hs_config_relation_fail(
            config, "init_from", NULL,
            "%s is not there: name another (tokenizer.kind: bpe, tokenizer.path: FILE), or write it with "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            path);
    if (status == HS_OK && exists)
        status = hs_tokenizer_folder_check(path);
    if (status == HS_OK && exists)
        status = hs_adoption_add(adoption, "tokenizer", "kind", "bpe", "the tokenizer");
    if (status == HS_OK && exists)
        status = hs_adoption_add(adoption, "tokenizer", "path", path, "the tokenizer");
    free(path);
    return status;
}

/* What a place says is read by `read` and becomes the configuration's; `path`, which this frees, is the file's, and `by`
 * the key that named the place. */
typedef HsStatus (*HsPlaceReader)(const char *path, const HsConfig *config, HsAdoption *adoption);

static HsStatus adopt(HsConfig *config, char *path, const char *by, HsPlaceReader read)
{
    HsAdoption *adoption = calloc(1, sizeof *adoption);
    HsStatus status = adoption ? HS_OK : hs_fail(HS_ENOMEM, "no memory to read %s", path);
    if (status == HS_OK) {
        adoption->path = path;
        status = read(path, config, adoption);
    }
    for (int i = 0; status == HS_OK && i < adoption->count; i++)
        status = take(config, adoption, by, i);
    if (adoption)
        hs_config_deinit(&adoption->made);
    free(adoption);
    free(path);
    return status;
}

static HsStatus read_peft(const char *path, const HsConfig *config, HsAdoption *adoption)
{
    HS_TRY(hs_config_init(&adoption->made));
    return hs_peft_read(path, config->model.tie_head, adoption);
}

/* Adapters that lie with the weights are part of the model that transformers makes of the folder. */
static HsStatus check_adapter_there(const HsConfig *config)
{
    const char *const folder = config->training.init_from;
    bool there = false;
    HS_TRY(hs_storage_has(folder, "adapter_config.json", &there));
    if (!there || strcmp(config->adapter.init_from, folder) == 0)
        return HS_OK;
    return hs_config_relation_fail(config, "init_from", NULL,
                                   "init_from: %s holds adapters (adapter_config.json) with its weights, and would not "
                                   "be the same model without them: set adapter.init_from to the same folder, or "
                                   "remove the file",
                                   folder);
}

static HsStatus read_huggingface(const char *path, const HsConfig *config, HsAdoption *adoption)
{
    HS_TRY(hs_config_init(&adoption->made));
    HS_TRY(check_adapter_there(config));
    HS_TRY(hs_huggingface_read(path, adoption));
    return take_tokenizer(config, config->training.init_from, adoption);
}

/* The configuration of the latest checkpoint in out_dir, where the run began with what `key` names now: it has all that a
 * run which continues needs, although the folder may be gone.  *file: the caller frees; NULL: there is none. */
static HsStatus find_own_checkpoint(const HsConfig *config, const char *key, char **file)
{
    char *latest = NULL, *found = NULL;
    bool there = false;
    *file = NULL;
    HS_TRY(hs_storage_join(config->training.out_dir, "checkpoints/latest", &latest));
    HsStatus status = hs_path_exists(latest, &there);
    if (status == HS_OK && there)
        status = own_config_path(latest, &found);
    free(latest);
    HsConfig saved;
    if (status != HS_OK || !found || hs_config_load_saved(&saved, found, 0, NULL) != HS_OK) {
        free(found);
        return HS_OK; /* what is wrong with the folder is the better message */
    }
    const bool adapter = strcmp(key, "adapter.init_from") == 0;
    const char *const was = adapter ? saved.adapter.init_from : saved.training.init_from;
    const char *const is = adapter ? config->adapter.init_from : config->training.init_from;
    if (strcmp(was, is) == 0)
        *file = found;
    else
        free(found);
    hs_config_deinit(&saved);
    return HS_OK;
}

/* The section `adapter` of a checkpoint of the same run. */
static HsStatus read_own_adapter(const char *file, const HsConfig *config, HsAdoption *adoption)
{
    (void)config;
    HS_TRY(hs_config_load_saved(&adoption->made, file, 0, NULL));
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (strcmp(key->section, "adapter") != 0 || strcmp(key->name, "init_from") == 0)
            continue;
        adoption->items[adoption->count].key = key;
        hs_config_key_dotted(key, adoption->items[adoption->count].from);
        adoption->count++;
    }
    return HS_OK;
}

HsStatus hs_config_adopt_adapter(HsConfig *config)
{
    const char *const from = config->adapter.init_from;
    bool there = false;
    char *path = NULL;
    if (from[0] == '\0')
        return HS_OK;
    HS_TRY(hs_storage_has(from, "adapter_config.json", &there));
    if (!there)
        HS_TRY(find_own_checkpoint(config, "adapter.init_from", &path));
    if (path)
        return adopt(config, path, "adapter.init_from", read_own_adapter);
    if (!there)
        return hs_config_relation_fail(
            config, "adapter.init_from", NULL,
            "adapter.init_from: %s is no folder with an adapter_config.json: name one that PEFT has saved", from);
    if (config->training.init_from[0] == '\0')
        return hs_config_relation_fail(
            config, "adapter.init_from", NULL,
            "adapter.init_from: the model that these adapters change is not named: set init_from");
    HS_TRY(hs_storage_join(from, "adapter_config.json", &path));
    return adopt(config, path, "adapter.init_from", read_peft);
}

/* What was meant by a place where nothing is that a run can begin with. */
static const char *advice_for(const char *place)
{
    bool cached = false;
    struct stat about;
    const char *const slash = strchr(place, '/');
    if (hs_storage_has(place, "snapshots", &cached) == HS_OK && cached)
        return "; it is a hub's cache: name the folder in its snapshots";
    if (stat(place, &about) != 0 && place[0] != '/' && place[0] != '.' && slash && !strchr(slash + 1, '/') && slash[1])
        return "; nothing is fetched from a hub here: `hf download NAME --local-dir FOLDER`, then name FOLDER";
    return "";
}

HsStatus hs_config_adopt(HsConfig *config)
{
    const char *const from = config->training.init_from;
    HsPretrainedKind kind;
    char *path = NULL;
    if (from[0] == '\0')
        return HS_OK;
    HS_TRY(hs_pretrained_kind(from, &kind));
    if (kind == HS_PRETRAINED_NONE)
        HS_TRY(find_own_checkpoint(config, "init_from", &path));
    if (kind == HS_PRETRAINED_NONE && !path)
        return hs_config_relation_fail(
            config, "init_from", NULL,
            "init_from: %s is neither a Hugging Face folder (config.json) nor a run's folder "
            "or a checkpoint of Halfstep%s",
            from, advice_for(from));
    const bool huggingface = kind == HS_PRETRAINED_HUGGINGFACE;
    if (!path)
        HS_TRY(huggingface ? hs_storage_join(from, "config.json", &path) : own_config_path(from, &path));
    HS_TRY(adopt(config, path, "init_from", huggingface ? read_huggingface : read_own));
    const int64_t positions = config->model.max_positions;
    if (!hs_config_is_set(config, "max_length") && positions > 0 && config->training.max_length > positions)
        config->training.max_length = positions;
    return HS_OK;
}
