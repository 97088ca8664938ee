/* SPDX-License-Identifier: MIT
 *
 * See bpe_learned.h.  The file is written directly, not through a JSON tree: 50,000 members cost nothing that way.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/bpe_learned.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/kind.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"

HsStatus hs_bpe_learned_init(HsBpeLearned *learned)
{
    *learned = (HsBpeLearned){ 0 };
    /* First the bytes that stand for themselves, then the others, as in GPT-2's vocabulary. */
    for (int itself = 1; itself >= 0; itself--) {
        for (int byte = 0; byte < 256; byte++) {
            if ((hs_byte_map_character((unsigned char)byte) == (uint32_t)byte) != (itself == 1))
                continue;
            char value = (char)byte;
            learned->byte_ids[byte] = hs_bpe_learned_count(learned);
            HS_TRY(hs_map_put(&learned->tokens, &value, 1, learned->byte_ids[byte]));
        }
    }
    return HS_OK;
}

HsStatus hs_bpe_learned_add(HsBpeLearned *learned, int32_t left, int32_t right, int32_t *id)
{
    size_t a_length, b_length;
    const char *a = hs_map_key(&learned->tokens, (size_t)left, &a_length);
    const char *b = hs_map_key(&learned->tokens, (size_t)right, &b_length);
    char *bytes = malloc(a_length + b_length);
    if (!bytes)
        return hs_fail(HS_ENOMEM, "out of memory: a token of %zu bytes", a_length + b_length);
    memcpy(bytes, a, a_length);
    memcpy(bytes + a_length, b, b_length);
    int64_t value = hs_bpe_learned_count(learned);
    HsStatus status = HS_OK;
    if (!hs_map_get(&learned->tokens, bytes, a_length + b_length, &value))
        status = hs_map_put(&learned->tokens, bytes, a_length + b_length, value);
    free(bytes);
    HS_TRY(status);
    HS_TRY(
        hs_array_grow(&learned->merges, sizeof *learned->merges, learned->merge_count + 1, &learned->merge_capacity));
    learned->merges[learned->merge_count][0] = left;
    learned->merges[learned->merge_count++][1] = right;
    *id = (int32_t)value;
    return HS_OK;
}

int hs_bpe_learned_compare(const HsBpeLearned *learned, int32_t a, int32_t b)
{
    size_t a_length, b_length;
    const char *x = hs_map_key(&learned->tokens, (size_t)a, &a_length);
    const char *y = hs_map_key(&learned->tokens, (size_t)b, &b_length);
    int order = memcmp(x, y, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

/* A token's bytes in the byte map, as a JSON string's inside. */
static void write_mapped(const HsBpeLearned *learned, int32_t id, FILE *stream)
{
    size_t length;
    const char *bytes = hs_map_key(&learned->tokens, (size_t)id, &length);
    for (size_t i = 0; i < length; i++) {
        char character[HS_UTF8_MAX_BYTES];
        uint32_t mapped = hs_byte_map_character((unsigned char)bytes[i]);
        if (mapped == '"' || mapped == '\\')
            fputc('\\', stream);
        fwrite(character, 1, hs_utf8_encode(mapped, character), stream);
    }
}

HsStatus hs_bpe_learned_check_special(const HsBpeLearned *learned)
{
    enum { LONGEST = 128 };
    char bytes[LONGEST + 1];
    int64_t known;
    for (int i = 0; i < learned->special_count; i++) {
        const char *const text = learned->special[i];
        const size_t length = strlen(text);
        if (length == 0 || length > LONGEST || hs_utf8_valid_prefix(text, length) < length)
            return hs_fail(HS_ECONFIG, "--special `%.60s`: a special token is 1 to %d bytes of UTF-8", text, LONGEST);
        bool there = strcmp(text, HS_END_OF_TEXT) == 0;
        for (int k = 0; k < i; k++)
            there = there || strcmp(text, learned->special[k]) == 0;
        const long mapped = hs_byte_map_decode(text, length, bytes);
        there = there || (mapped >= 0 && hs_map_get(&learned->tokens, bytes, (size_t)mapped, &known));
        if (there)
            return hs_fail(HS_ECONFIG, "--special `%.60s`: the vocabulary has this token already; leave it out", text);
    }
    return HS_OK;
}

static HsStatus print_special(const HsBpeLearned *learned, int32_t first, FILE *stream)
{
    for (int i = 0; i < learned->special_count; i++) {
        HsJson *string = hs_json_new_string(learned->special[i]);
        char *text = hs_json_write(string, false);
        hs_json_destroy(string);
        if (!text)
            return hs_fail(HS_ENOMEM, "no memory for a special token");
        fprintf(stream,
                ",\n    {\"id\": %d, \"content\": %s, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                "\"normalized\": false, \"special\": true}",
                first + i, text);
        free(text);
    }
    return HS_OK;
}

static HsStatus print_json(FILE *stream, const void *user)
{
    const HsBpeLearned *learned = user;
    int32_t end = hs_bpe_learned_count(learned);
    fprintf(stream,
            "{\n"
            "  \"version\": \"1.0\",\n"
            "  \"truncation\": null,\n"
            "  \"padding\": null,\n"
            "  \"added_tokens\": [\n"
            "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false, \"special\": true}",
            end, HS_END_OF_TEXT);
    HS_TRY(print_special(learned, end + 1, stream));
    fprintf(stream,
            "\n  ],\n"
            "  \"normalizer\": null,\n"
            "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
            "\"use_regex\": true},\n"
            "  \"post_processor\": null,\n"
            "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
            "\"use_regex\": true},\n"
            "  \"model\": {\n"
            "    \"type\": \"BPE\",\n"
            "    \"dropout\": null,\n"
            "    \"unk_token\": null,\n"
            "    \"continuing_subword_prefix\": null,\n"
            "    \"end_of_word_suffix\": null,\n"
            "    \"fuse_unk\": false,\n"
            "    \"byte_fallback\": false,\n"
            "    \"ignore_merges\": false,\n"
            "    \"vocab\": {\n");
    for (int32_t id = 0; id < end; id++) {
        fputs("      \"", stream);
        write_mapped(learned, id, stream);
        fprintf(stream, "\": %d,\n", id);
    }
    fprintf(stream, "      \"%s\": %d\n    },\n    \"merges\": [", HS_END_OF_TEXT, end);
    for (size_t i = 0; i < learned->merge_count; i++) {
        fputs(i > 0 ? ",\n      [\"" : "\n      [\"", stream);
        write_mapped(learned, learned->merges[i][0], stream);
        fputs("\", \"", stream);
        write_mapped(learned, learned->merges[i][1], stream);
        fputs("\"]", stream);
    }
    fputs("\n    ]\n  }\n}\n", stream);
    return HS_OK;
}

HsStatus hs_bpe_learned_write(const HsBpeLearned *learned, const char *path)
{
    return hs_storage_replace_printed(path, print_json, learned);
}

void hs_bpe_learned_deinit(HsBpeLearned *learned)
{
    hs_map_deinit(&learned->tokens);
    free(learned->merges);
    *learned = (HsBpeLearned){ 0 };
}
