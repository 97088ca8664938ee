/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out, through the key/value cache.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/trainer.h"

static void write_token(const HsTokenizer *tokenizer, int32_t token, FILE *out)
{
    size_t length = 0;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    fwrite(bytes, 1, length, out);
}

/* A model needs at least one token to go on from. */
static HsStatus encode_prompt(const HsTokenizer *tokenizer, const char *prompt, HsTokens *tokens)
{
    if (prompt[0] != '\0')
        return hs_tokenizer_encode(tokenizer, prompt, strlen(prompt), tokens);
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    if (end < 0)
        return hs_tokenizer_encode(tokenizer, "\n", 1, tokens);
    HS_TRY(hs_tokens_reserve(tokens, 1));
    tokens->items[tokens->count++] = end;
    return HS_OK;
}

/* What the loop carries: `tokens` is prompt and continuation so far; `capacity` is what the decoder can hold. */
typedef struct Generation {
    HsDecoder *decoder;
    HsContext *context;
    HsTokens tokens;
    int64_t capacity;
    int64_t held; /* tokens in the decoder */
} Generation;

/* Feed what the decoder has not seen.  A model with learned positions knows only `capacity` of them: when they are used
 * up it starts again from the second half of what it held, so that a text may be of any length. */
static HsStatus feed(Generation *generation, const float **logits)
{
    int64_t first = generation->tokens.count - 1;
    if (generation->held == 0 || generation->held == generation->capacity) {
        int64_t keep = generation->held == 0 ? generation->capacity : (generation->capacity + 1) / 2;
        first = generation->tokens.count > keep ? generation->tokens.count - keep : 0;
        hs_decoder_reset(generation->decoder);
        generation->held = 0;
    }
    int64_t count = generation->tokens.count - first;
    generation->held += count;
    return hs_decoder_feed(generation->decoder, generation->context, generation->tokens.items + first, count, logits);
}

static HsStatus generate_loop(Generation *generation, const HsTokenizer *tokenizer, int64_t count,
                              const HsSampling *sampling, float *scratch, FILE *out)
{
    int64_t vocabulary = hs_tokenizer_vocabulary(tokenizer);
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    for (int64_t i = 0; i < count; i++) {
        const float *logits = NULL;
        HS_TRY(feed(generation, &logits));
        int32_t token = hs_sample(sampling, logits, vocabulary, (uint64_t)i, scratch);
        if (token == end)
            break;
        write_token(tokenizer, token, out);
        fflush(out);
        generation->tokens.items[generation->tokens.count++] = token; /* reserved by the caller */
    }
    return HS_OK;
}

HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer, const char *prompt,
                          int64_t count, const HsSampling *sampling, FILE *out)
{
    HsStatus status = HS_OK;
    Generation generation = { .context = context };
    float *scratch = malloc(sizeof(float) * 2 * (size_t)hs_tokenizer_vocabulary(tokenizer));
    if (!scratch)
        return hs_fail(HS_ENOMEM, "no memory to sample from %lld tokens",
                       (long long)hs_tokenizer_vocabulary(tokenizer));
    HS_TRY_GOTO(status, encode_prompt(tokenizer, prompt, &generation.tokens), done);
    HS_TRY_GOTO(status, hs_tokens_reserve(&generation.tokens, count), done);
    generation.capacity = generation.tokens.count + count;
    if (model->max_positions > 0 && generation.capacity > model->max_positions)
        generation.capacity = model->max_positions;
    HS_TRY_GOTO(status, hs_decoder_create(model, context, generation.capacity, &generation.decoder), done);
    fputs(prompt, out);
    status = generate_loop(&generation, tokenizer, count, sampling, scratch, out);
    fputc('\n', out);
done:
    hs_decoder_destroy(generation.decoder);
    hs_tokens_deinit(&generation.tokens);
    free(scratch);
    return status;
}
