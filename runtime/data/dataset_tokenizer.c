/* SPDX-License-Identifier: MIT
 *
 * The one tokenizer of all tasks.
 *
 * Most kinds exist before any text is read.  Kind char is made from the text: from the union of what every task's
 * training and validation text holds, or a task would meet characters that only another one knows.  The union goes by
 * way of each corpus's own vocabulary, so that no corpus is copied.
 */
#include "runtime/data/dataset_build.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/io/utf8.h"

HsStatus hs_dataset_tokenizer_early(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer)
{
    const HsConfig *config = buildings->config;
    if (!hs_is(config->tokenizer.kind, "char")) {
        const char *path = config->tokenizer.path[0] ? config->tokenizer.path : NULL;
        return hs_tokenizer_create(config->tokenizer.kind, path, NULL, 0, tokenizer);
    }
    for (int i = 0; i < count; i++)
        if (hs_source_list_has_tokens(&buildings[i].sources))
            return hs_fail(
                HS_ECONFIG,
                "task %s: token files (.bin) need a tokenizer that exists, but tokenizer.kind: char is made from "
                "this task's text; set tokenizer.kind to the one that wrote them, or give text files only",
                buildings[i].task->name);
    return HS_OK;
}

/* From one corpus, which the readers of sources have found to be UTF-8. */
static HsStatus create_char(const HsDatasetBuild *building, HsTokenizer **tokenizer)
{
    return hs_tokenizer_create("char", NULL, building->corpus.text, building->corpus.text_length, tokenizer);
}

/* Appends every character of the vocabulary, which is all that a char tokenizer is made of. */
static HsStatus append_characters(const HsTokenizer *tokenizer, char **text, size_t *length)
{
    int64_t vocabulary = hs_tokenizer_vocabulary(tokenizer);
    size_t most = *length + (size_t)vocabulary * HS_UTF8_MAX_BYTES;
    char *grown = realloc(*text, most);
    if (!grown)
        return hs_fail(HS_ENOMEM, "no memory for the characters of all tasks (%zu bytes)", most);
    *text = grown;
    for (int32_t token = 0; token < vocabulary; token++) {
        size_t size;
        const char *bytes = hs_tokenizer_bytes(tokenizer, token, &size);
        memcpy(grown + *length, bytes, size);
        *length += size;
    }
    return HS_OK;
}

HsStatus hs_dataset_tokenizer_from_text(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer)
{
    char *text = NULL;
    size_t length = 0;
    HsStatus status = HS_OK;
    if (count == 1)
        return hs_dataset_blame_task(buildings, create_char(buildings, tokenizer));
    for (int i = 0; status == HS_OK && i < count; i++) {
        HsTokenizer *own = NULL;
        status = hs_dataset_blame_task(&buildings[i], create_char(&buildings[i], &own));
        if (status == HS_OK)
            status = append_characters(own, &text, &length);
        hs_tokenizer_destroy(own);
    }
    if (status == HS_OK)
        status = hs_tokenizer_create("char", NULL, text, length, tokenizer);
    free(text);
    return status;
}

/* Appends the token's character to the list that a message shows, as far as there is room: 'x', or its number. */
static void name_character(const HsTokenizer *tokenizer, int32_t token, char *names, size_t room)
{
    size_t size;
    uint32_t c = 0;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &size);
    const size_t used = strlen(names);
    (void)hs_utf8_decode(bytes, size, &c);
    if (c >= 0x20 && c != 0x7F)
        snprintf(names + used, room - used, "%s'%.*s'", used > 0 ? ", " : "", (int)size, bytes);
    else
        snprintf(names + used, room - used, "%sU+%04X", used > 0 ? ", " : "", (unsigned)c);
}

HsStatus hs_dataset_explain_characters(const HsDatasetBuild *building, HsStatus failed)
{
    enum { NAMED = 8 };
    HsTokenizer *own = NULL;
    char why[512], names[128] = "", more[32] = "";
    int missing = 0;
    if (strcmp(hs_tokenizer_kind(building->tokenizer), "char") != 0)
        return failed;
    snprintf(why, sizeof why, "%s", hs_error_message());
    if (create_char(building, &own) != HS_OK)
        return hs_fail(failed, "%s", why);
    for (int32_t token = 0; token < hs_tokenizer_vocabulary(own); token++) {
        HsTokens known = { 0 };
        size_t size;
        const char *bytes = hs_tokenizer_bytes(own, token, &size);
        if (hs_tokenizer_encode(building->tokenizer, bytes, size, &known) == HS_EFORMAT && missing++ < NAMED)
            name_character(own, token, names, sizeof names);
        hs_tokens_deinit(&known);
    }
    hs_tokenizer_destroy(own);
    if (missing == 0)
        return hs_fail(failed, "%s", why);
    if (missing > NAMED)
        snprintf(more, sizeof more, " and %d more", missing - NAMED);
    return hs_fail(failed,
                   "%s; tokenizer.kind: char stays with the characters of the text that it was made of, and the task "
                   "has %d others: %s%s. Replace them, or begin with tokenizer.kind: byte, which takes any text, in a "
                   "fresh out_dir",
                   why, missing, names, more);
}
