/* SPDX-License-Identifier: MIT
 *
 * Reading Hugging Face folders.  The library that writes them fills in what is missing with random numbers and a warning,
 * and passes over what it does not know; here each is an error.
 */
#include "runtime/checkpoint/pretrained.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"

enum { MOST_FILES = 1000, INDEX_BYTES = 1 << 26 };

static const char head_name[] = "lm_head.weight";

static HsStatus add_file(HsPretrained *pretrained, const char *name)
{
    for (int i = 0; i < pretrained->count; i++)
        if (strcmp(strrchr(pretrained->paths[i], '/') + 1, name) == 0)
            return HS_OK;
    if (strchr(name, '/') || pretrained->count == MOST_FILES)
        return hs_fail(HS_EFORMAT,
                       "%s: model.safetensors.index.json: `%.80s` must be the name of a file in this folder",
                       pretrained->folder, name);
    const int index = pretrained->count;
    HS_TRY(hs_storage_join(pretrained->folder, name, &pretrained->paths[index]));
    pretrained->count++;
    return hs_safetensors_open(pretrained->paths[index], &pretrained->files[index]);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* {"weight_map": {tensor: file}}: the files that it names, in order, for the last of several that have a tensor counts. */
static HsStatus open_shards(HsPretrained *pretrained, const char *path, const HsJson *root)
{
    const HsJson *map = hs_json_get(root, "weight_map");
    const int count = hs_json_is_object(map) ? hs_json_count(map) : 0;
    if (count == 0)
        return hs_fail(HS_EFORMAT, "%s: weight_map is missing", path);
    const char **names = calloc((size_t)count, sizeof *names);
    HsStatus status = names ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the %d names in %s", count, path);
    int used = 0;
    for (const HsJson *entry = hs_json_first(map); entry && status == HS_OK; entry = hs_json_next(entry)) {
        names[used] = hs_json_string(entry);
        if (!names[used])
            status = hs_fail(HS_EFORMAT, "%s: weight_map: `%.80s` names no file", path, hs_json_key(entry));
        used += hs_json_is_last(map, entry);
    }
    if (status == HS_OK)
        qsort(names, (size_t)used, sizeof *names, by_name);
    for (int i = 0; i < used && status == HS_OK; i++)
        status = add_file(pretrained, names[i]);
    free(names);
    return status;
}

static bool is_file(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

/* What a folder has in place of weights that can be read, as an error with what to do. */
static HsStatus explain_absence(const char *folder)
{
    static const struct {
        const char *ending, *what;
    } others[] = {
        { ".bin", "PyTorch's own format" },
        { ".bin.index.json", "PyTorch's own format, in shards" },
        { ".pt", "PyTorch's own format" },
        { ".pth", "PyTorch's own format" },
        { ".gguf", "a GGUF" },
        { ".h5", "TensorFlow's format" },
        { ".msgpack", "Flax's format" },
        { ".safetensors", "weights under another name" },
        { ".safetensors.index.json", "an index under another name" },
    };
    HsFolderListing listing = { 0 };
    char found[256] = "";
    const char *what = NULL;
    HS_TRY(hs_storage_list(folder, &listing));
    for (size_t k = 0; k < sizeof others / sizeof *others && !what; k++)
        for (int i = 0; i < listing.count && !what; i++) {
            if (!ends_with(listing.names[i], others[k].ending))
                continue;
            what = others[k].what;
            snprintf(found, sizeof found, "%s", listing.names[i]);
        }
    hs_storage_list_free(&listing);
    if (!what)
        return hs_fail(HS_EFORMAT,
                       "%s: no weights: neither model.safetensors nor model.safetensors.index.json is there; download "
                       "them into the folder",
                       folder);
    return hs_fail(HS_EFORMAT,
                   "%s: no weights that can be read: model.safetensors is not there, %s is %s. Write it with "
                   "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers",
                   folder, found, what);
}

/* model.safetensors, and where that is not there the shards of the index. */
static HsStatus open_files(HsPretrained *pretrained)
{
    char *path = NULL, *single = NULL;
    HsJson *root = NULL;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_storage_join(pretrained->folder, "model.safetensors", &single), done);
    HS_TRY_GOTO(status, hs_storage_join(pretrained->folder, "model.safetensors.index.json", &path), done);
    if (is_file(single)) {
        if (is_file(path))
            hs_warn("%s: both model.safetensors and an index of shards are there: the first is taken, as transformers "
                    "does",
                    pretrained->folder);
        status = add_file(pretrained, "model.safetensors");
    } else if (is_file(path)) {
        HS_TRY_GOTO(status, hs_json_read_python(path, INDEX_BYTES, &root), done);
        status = open_shards(pretrained, path, root);
    } else {
        status = explain_absence(pretrained->folder);
    }
done:
    hs_json_destroy(root);
    free(single);
    free(path);
    return status;
}

HsStatus hs_pretrained_open(const char *folder, HsPretrained *pretrained)
{
    *pretrained = (HsPretrained){ .folder = strdup(folder),
                                  .files = calloc(MOST_FILES, sizeof *pretrained->files),
                                  .paths = calloc(MOST_FILES, sizeof *pretrained->paths) };
    HsStatus status = HS_OK;
    if (!pretrained->folder || !pretrained->files || !pretrained->paths)
        status = hs_fail(HS_ENOMEM, "no memory to open %s", folder);
    if (status == HS_OK)
        status = open_files(pretrained);
    if (status != HS_OK)
        hs_pretrained_close(pretrained);
    return status;
}

void hs_pretrained_close(HsPretrained *pretrained)
{
    for (int i = 0; i < pretrained->count; i++) {
        hs_safetensors_close(&pretrained->files[i]);
        free(pretrained->paths[i]);
    }
    free(pretrained->files);
    free(pretrained->paths);
    free(pretrained->folder);
    *pretrained = (HsPretrained){ 0 };
}

/* The name without "model." or "transformer."; NULL where it has neither. */
static const char *bare_name(const char *name)
{
    const bool prefixed = strncmp(name, "model.", 6) == 0 || strncmp(name, "transformer.", 12) == 0;
    return prefixed ? strchr(name, '.') + 1 : NULL;
}

/* Where a folder is of text and pictures, the text's part stands behind one of these: names, and names without their own
 * prefix. */
static const char older_part[] = "language_model.", newer_part[] = "model.language_model.";

static const HsNamedTensor *find_form(const HsPretrained *pretrained, const char *prefix, const char *name,
                                      const char **path)
{
    char form[sizeof newer_part + sizeof((HsNamedTensor *)0)->name];
    snprintf(form, sizeof form, "%s%s", prefix, name);
    for (int i = pretrained->count - 1; i >= 0; i--) {
        const HsNamedTensor *found = hs_safetensors_find(&pretrained->files[i], form);
        *path = pretrained->paths[i];
        if (found)
            return found;
    }
    return NULL;
}

const HsNamedTensor *hs_pretrained_find(const HsPretrained *pretrained, const char *name, const char **path)
{
    const char *const bare = bare_name(name);
    const HsNamedTensor *found = find_form(pretrained, "", name, path);
    if (!found && bare)
        found = find_form(pretrained, "", bare, path);
    if (!found)
        found = find_form(pretrained, older_part, name, path);
    if (!found && bare)
        found = find_form(pretrained, newer_part, bare, path);
    return found;
}

/* A file's name without what stands before the text's part; *part: whether that was there. */
static const char *name_in_text(const char *name, bool *part)
{
    const char *const prefixes[] = { newer_part, older_part };
    for (int i = 0; i < 2; i++) {
        *part = strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
        if (*part)
            return name + strlen(prefixes[i]);
    }
    return name;
}

/* Not parameters: older releases of the library stored them. */
static bool is_buffer(const char *name)
{
    return ends_with(name, "rotary_emb.inv_freq") || ends_with(name, ".attn.bias") ||
           ends_with(name, "attn.masked_bias");
}

/* A bias that our models do not have and that changes nothing. */
static bool is_zero_bias(const HsNamedTensor *named)
{
    double value = 0;
    if (!ends_with(named->name, "self_attn.o_proj.bias") || !hs_dtype_info(named->tensor.dtype)->is_float)
        return false;
    for (int64_t i = 0; i < hs_tensor_count(&named->tensor) && value == 0; i++)
        hs_safetensors_load(&named->tensor, i, 1, 1, &value);
    return value == 0;
}

static bool is_known(const HsWeights *weights, bool tied, const char *name)
{
    bool part;
    name = name_in_text(name, &part);
    if (is_buffer(name) || (tied && strcmp(name, head_name) == 0))
        return true;
    for (int i = 0; i < weights->count; i++) {
        const char *const own = weights->items[i].name, *const bare = bare_name(own);
        if (strcmp(own, name) == 0 || (bare && strcmp(bare, name) == 0) || hs_nf4_is_companion(name, own) ||
            (bare && hs_nf4_is_companion(name, bare)))
            return true;
    }
    return false;
}

/* Whether the files hold a model of text and pictures. */
static bool has_parts(const HsPretrained *pretrained)
{
    bool part = false;
    for (int f = 0; f < pretrained->count && !part; f++)
        for (int i = 0; i < pretrained->files[f].count && !part; i++)
            (void)name_in_text(pretrained->files[f].tensors[i].name, &part);
    return part;
}

static HsStatus check_names(const HsPretrained *pretrained, const HsWeights *weights, bool tied)
{
    const bool parts = has_parts(pretrained);
    const char *other = NULL;
    int others = 0;
    for (int f = 0; f < pretrained->count; f++)
        for (int i = 0; i < pretrained->files[f].count; i++) {
            const HsNamedTensor *tensor = &pretrained->files[f].tensors[i];
            bool part;
            if (is_known(weights, tied, tensor->name) || is_zero_bias(tensor))
                continue;
            (void)name_in_text(tensor->name, &part);
            if (!parts || part)
                return hs_fail(
                    HS_EFORMAT,
                    "%s: tensor `%s` belongs to nothing that config.json describes: is it this model's config.json?",
                    pretrained->paths[f], tensor->name);
            other = tensor->name;
            others++;
        }
    if (others > 0)
        hs_info("%s: %d tensors of other parts than the text's are left out, such as %s", pretrained->folder, others,
                other);
    return HS_OK;
}

/* A tied table may be stored as the head, or twice. */
static HsStatus find_tied(const HsPretrained *pretrained, const char *name, const HsNamedTensor **source,
                          const char **path)
{
    const char *head_path = NULL;
    const HsNamedTensor *table = hs_pretrained_find(pretrained, name, path);
    const HsNamedTensor *head = hs_pretrained_find(pretrained, head_name, &head_path);
    *source = table ? table : head;
    if (!table)
        *path = head_path;
    if (!table || !head)
        return HS_OK;
    const size_t bytes = hs_tensor_bytes(&table->tensor);
    if (table->tensor.dtype != head->tensor.dtype || bytes != hs_tensor_bytes(&head->tensor) ||
        memcmp(table->tensor.data, head->tensor.data, bytes) != 0)
        return hs_fail(HS_EFORMAT,
                       "%s: config.json ties the head to the embedding, and `%s` differs from `%s`: set "
                       "tie_word_embeddings to false there, or remove one of the two",
                       head_path, head->name, table->name);
    return HS_OK;
}

static const HsNamedTensor *find_in_files(const void *files, const char *name, const char **path)
{
    return hs_pretrained_find(files, name, path);
}

HsTensorSource hs_pretrained_source(const HsPretrained *pretrained)
{
    return (HsTensorSource){ find_in_files, pretrained };
}

static HsStatus load_item(const HsPretrained *pretrained, const HsNamedTensor *item, bool tied)
{
    const char *path = NULL;
    const HsNamedTensor *source = NULL;
    if (tied)
        HS_TRY(find_tied(pretrained, item->name, &source, &path));
    else
        source = hs_pretrained_find(pretrained, item->name, &path);
    if (!source)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s` is missing", pretrained->folder, item->name);
    const HsTensorSource files = hs_pretrained_source(pretrained);
    return hs_checkpoint_restore_tensor(&files, path, source, item);
}

static const char *tied_name(const HsModel *model)
{
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].tied)
            return model->params[i].name;
    return NULL;
}

HsStatus hs_pretrained_load(const HsPretrained *pretrained, const HsModel *model, const HsSpan *spans, int span_count,
                            HsContext *context)
{
    HsWeights weights;
    const char *const tied = tied_name(model);
    HsStatus status = hs_weights_list(model, spans, span_count, context, HS_NAMING_PUBLISHED, &weights);
    if (status == HS_OK)
        status = check_names(pretrained, &weights, tied != NULL);
    for (int i = 0; i < weights.count && status == HS_OK; i++)
        status = load_item(pretrained, &weights.items[i], tied && strcmp(tied, weights.items[i].name) == 0);
    hs_weights_deinit(&weights);
    return status;
}
