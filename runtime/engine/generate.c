/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out, through the key/value cache.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/generate.h"

static void write_token(const HsTokenizer *tokenizer, int32_t token, FILE *out)
{
    size_t length = 0;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    fwrite(bytes, 1, length, out);
}

/* A model needs at least one token to go on from. */
static HsStatus encode_prompt(const HsTokenizer *tokenizer, const HsGeneration *wanted, HsTokens *tokens)
{
    if (wanted->prompt_length > 0) {
        HsStatus status = hs_tokenizer_encode(tokenizer, wanted->prompt, wanted->prompt_length, tokens);
        return status == HS_OK ? HS_OK : hs_error_prefix(status, "the prompt");
    }
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    if (end < 0)
        return hs_tokenizer_encode(tokenizer, "\n", 1, tokens);
    HS_TRY(hs_tokens_reserve(tokens, 1));
    tokens->items[tokens->count++] = end;
    return HS_OK;
}

/* What the loop carries: `tokens` is prompt and continuation so far; `capacity` is what the decoder can hold. */
typedef struct Loop {
    HsDecoder *decoder;
    HsContext *context;
    HsTokens tokens;
    int64_t capacity;
    int64_t held; /* tokens in the decoder */
} Loop;

/* Feed what the decoder has not seen.  A model with learned positions knows only `capacity` of them: when they are used
 * up it starts again from the second half of what it held, so that a text may be of any length. */
static HsStatus feed(Loop *loop, const float **logits)
{
    int64_t first = loop->tokens.count - 1;
    if (loop->held == 0 || loop->held == loop->capacity) {
        int64_t keep = loop->held == 0 ? loop->capacity : (loop->capacity + 1) / 2;
        first = loop->tokens.count > keep ? loop->tokens.count - keep : 0;
        hs_decoder_reset(loop->decoder);
        loop->held = 0;
    }
    int64_t count = loop->tokens.count - first;
    loop->held += count;
    return hs_decoder_feed(loop->decoder, loop->context, loop->tokens.items + first, count, logits);
}

static HsStatus generate_loop(Loop *loop, const HsTokenizer *tokenizer, const HsGeneration *wanted, float *scratch,
                              FILE *out)
{
    int64_t vocabulary = hs_tokenizer_vocabulary(tokenizer);
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    for (int64_t i = 0; i < wanted->tokens; i++) {
        const float *logits = NULL;
        HS_TRY(feed(loop, &logits));
        int32_t token = hs_sample(&wanted->sampling, logits, vocabulary, (uint64_t)i, scratch);
        if (token == end)
            break;
        if (out) {
            write_token(tokenizer, token, out);
            fflush(out);
        }
        loop->tokens.items[loop->tokens.count++] = token; /* reserved by the caller */
    }
    return HS_OK;
}

static HsStatus append(const HsTokens *tokens, int64_t first, HsTokens *added)
{
    if (!added)
        return HS_OK;
    HS_TRY(hs_tokens_reserve(added, tokens->count - first));
    for (int64_t i = first; i < tokens->count; i++)
        added->items[added->count++] = tokens->items[i];
    return HS_OK;
}

HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer,
                          const HsGeneration *generation, FILE *out, HsTokens *added)
{
    HsStatus status = HS_OK;
    Loop loop = { .context = context };
    float *scratch = malloc(sizeof(float) * 2 * (size_t)hs_tokenizer_vocabulary(tokenizer));
    if (!scratch)
        return hs_fail(HS_ENOMEM, "no memory to sample from %lld tokens",
                       (long long)hs_tokenizer_vocabulary(tokenizer));
    HS_TRY_GOTO(status, encode_prompt(tokenizer, generation, &loop.tokens), done);
    HS_TRY_GOTO(status, hs_tokens_reserve(&loop.tokens, generation->tokens), done);
    const int64_t given = loop.tokens.count;
    loop.capacity = given + generation->tokens;
    if (model->max_positions > 0 && loop.capacity > model->max_positions)
        loop.capacity = model->max_positions;
    HS_TRY_GOTO(status, hs_decoder_create(model, context, 1, loop.capacity, &loop.decoder), done);
    if (out)
        fwrite(generation->prompt, 1, generation->prompt_length, out);
    status = generate_loop(&loop, tokenizer, generation, scratch, out);
    if (out)
        fputc('\n', out);
    if (status == HS_OK)
        status = append(&loop.tokens, given, added);
done:
    hs_decoder_destroy(loop.decoder);
    hs_tokens_deinit(&loop.tokens);
    free(scratch);
    return status;
}
