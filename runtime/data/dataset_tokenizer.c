/* SPDX-License-Identifier: MIT
 *
 * The one tokenizer of all tasks.
 *
 * Most kinds exist before any text is read.  Kind char is made from the text, which is read for it: from the union of
 * what every task's training and validation text holds, or a task would meet characters that only another one knows.
 */
#include "runtime/data/dataset_build.h"

#include <stdio.h>
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

/* The characters of sources [first, last), added. */
static HsStatus add_characters(const HsDatasetBuild *building, int first, int last, uint8_t *present)
{
    const HsEncoding encoding = { .sources = &building->sources,
                                  .first = first,
                                  .last = last,
                                  .options = hs_dataset_source_options,
                                  .threads = (int)building->config->training.threads,
                                  .user = (void *)&building, /* which is not changed */
                                  .what = "looking for characters" };
    return hs_dataset_blame_task(building, hs_sources_characters(&encoding, present));
}

static bool has_any(const uint8_t *present)
{
    for (size_t i = 0; i < HS_CODE_POINTS / 8; i++)
        if (present[i])
            return true;
    return false;
}

static HsStatus create_char(const uint8_t *present, HsTokenizer **tokenizer)
{
    size_t length = 0, count = 0;
    for (uint32_t c = 0; c < HS_CODE_POINTS; c++)
        count += present[c / 8] >> c % 8 & 1;
    char *text = malloc(count * HS_UTF8_MAX_BYTES + 1);
    if (!text)
        return hs_fail(HS_ENOMEM, "no memory for %zu characters", count);
    for (uint32_t c = 0; c < HS_CODE_POINTS; c++)
        if (present[c / 8] >> c % 8 & 1)
            length += hs_utf8_encode(c, text + length);
    const HsStatus status = hs_tokenizer_create("char", NULL, text, length, tokenizer);
    free(text);
    return status;
}

static HsStatus collect(const HsDatasetBuild *buildings, int count, uint8_t *present)
{
    for (int i = 0; i < count; i++) {
        const HsDatasetBuild *building = &buildings[i];
        uint8_t *own = calloc(HS_CODE_POINTS / 8, 1);
        if (!own)
            return hs_fail(HS_ENOMEM, "no memory to look for characters");
        HsStatus status = add_characters(building, 0, building->train_sources, own);
        if (status == HS_OK)
            status = hs_dataset_require_text(building, has_any(own));
        if (status == HS_OK)
            status = add_characters(building, building->train_sources, building->sources.count, own);
        for (size_t k = 0; k < HS_CODE_POINTS / 8; k++)
            present[k] |= own[k];
        free(own);
        HS_TRY(status);
    }
    return HS_OK;
}

HsStatus hs_dataset_tokenizer_from_text(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer)
{
    uint8_t *present = calloc(HS_CODE_POINTS / 8, 1);
    HsStatus status =
        present ? collect(buildings, count, present) : hs_fail(HS_ENOMEM, "no memory to look for characters");
    if (status == HS_OK)
        status = create_char(present, tokenizer);
    free(present);
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

/* Counts the characters of `own` that the tokenizer has not, and names the first of them. */
static int count_missing(const HsTokenizer *tokenizer, const HsTokenizer *own, char *names, size_t room)
{
    enum { NAMED = 8 };
    int missing = 0;
    for (int32_t token = 0; token < hs_tokenizer_vocabulary(own); token++) {
        HsTokens known = { 0 };
        size_t size;
        const char *bytes = hs_tokenizer_bytes(own, token, &size);
        if (hs_tokenizer_encode(tokenizer, bytes, size, &known) == HS_EFORMAT && missing++ < NAMED)
            name_character(own, token, names, room);
        hs_tokens_deinit(&known);
    }
    if (missing > NAMED)
        snprintf(names + strlen(names), room - strlen(names), " and %d more", missing - NAMED);
    return missing;
}

HsStatus hs_dataset_explain_characters(const HsDatasetBuild *building, HsStatus failed)
{
    HsTokenizer *own = NULL;
    char why[512], names[160] = "";
    if (strcmp(hs_tokenizer_kind(building->tokenizer), "char") != 0)
        return failed;
    snprintf(why, sizeof why, "%s", hs_error_message());
    uint8_t *present = calloc(HS_CODE_POINTS / 8, 1);
    HsStatus status = present ? add_characters(building, 0, building->sources.count, present) : HS_ENOMEM;
    if (status == HS_OK)
        status = create_char(present, &own);
    free(present);
    const int missing = status == HS_OK ? count_missing(building->tokenizer, own, names, sizeof names) : 0;
    hs_tokenizer_destroy(own);
    if (missing == 0)
        return hs_fail(failed, "%s", why);
    return hs_fail(failed,
                   "%s; tokenizer.kind: char stays with the characters of the text that it was made of, and the task "
                   "has %d others: %s. Replace them, or begin with tokenizer.kind: byte, which takes any text, in a "
                   "fresh out_dir",
                   why, missing, names);
}
