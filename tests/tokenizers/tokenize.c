/* SPDX-License-Identifier: MIT
 *
 * tokenize encode|decode TOKENIZER INPUT OUTPUT: what compare.py holds against the `tokenizers` library.
 *
 *   encode   INPUT is texts, OUTPUT is lists of tokens;  decode: the other way round
 *   a text   int64 bytes, then the bytes;  a list: int64 tokens, then int32 each;  -1 bytes or tokens: refused
 *
 * The refusal of a text goes to standard error and does not end the program.  The time of the calls alone is printed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/io/files.h"

enum { INPUT_MAX_BYTES = 1 << 30 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void write_item(FILE *output, HsStatus status, const void *items, int64_t count, size_t size)
{
    if (status != HS_OK) {
        fprintf(stderr, "%s\n", hs_error_message());
        count = -1;
    }
    fwrite(&count, sizeof count, 1, output);
    if (count > 0)
        fwrite(items, size, (size_t)count, output);
}

/* One text or list at `at`; returns where the next begins. */
static const char *run_one(const HsTokenizer *tokenizer, bool decode, const char *at, FILE *output, double *spent)
{
    int64_t count;
    memcpy(&count, at, sizeof count);
    at += sizeof count;
    double began = seconds();
    if (!decode) {
        HsTokens tokens = { 0 };
        HsStatus status = hs_tokenizer_encode(tokenizer, at, (size_t)count, &tokens);
        *spent += seconds() - began;
        write_item(output, status, tokens.items, tokens.count, sizeof *tokens.items);
        hs_tokens_deinit(&tokens);
        return at + count;
    }
    size_t bytes = (size_t)count * sizeof(int32_t), length = 0;
    int32_t *tokens = malloc(bytes + 1);
    char *text = NULL;
    if (!tokens)
        exit(1);
    memcpy(tokens, at, bytes);
    HsStatus status = hs_tokenizer_decode(tokenizer, tokens, count, &text, &length);
    *spent += seconds() - began;
    write_item(output, status, text, (int64_t)length, 1);
    free(text);
    free(tokens);
    return at + bytes;
}

int main(int count, char **words)
{
    HsTokenizer *tokenizer = NULL;
    char *input = NULL;
    size_t length;
    if (count != 5 || (strcmp(words[1], "encode") != 0 && strcmp(words[1], "decode") != 0)) {
        fprintf(stderr, "usage: tokenize encode|decode TOKENIZER INPUT OUTPUT\n");
        return 2;
    }
    HsStatus status = hs_tokenizer_load(words[2], &tokenizer);
    if (status == HS_OK)
        status = hs_read_file(words[3], INPUT_MAX_BYTES, &input, &length);
    FILE *output = status == HS_OK ? fopen(words[4], "wb") : NULL;
    if (!output) {
        fprintf(stderr, "%s\n", status == HS_OK ? words[4] : hs_error_message());
        hs_tokenizer_destroy(tokenizer);
        free(input);
        return 1;
    }
    double spent = 0;
    for (const char *at = input; at < input + length;)
        at = run_one(tokenizer, strcmp(words[1], "decode") == 0, at, output, &spent);
    printf("%.6f\n", spent);
    hs_tokenizer_destroy(tokenizer);
    free(input);
    return fclose(output) == 0 ? 0 : 1;
}
