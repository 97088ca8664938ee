/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out, through the key/value cache.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
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
    tokens->items = malloc(sizeof *tokens->items);
    if (!tokens->items)
        return hs_fail(HS_ENOMEM, "no memory for a prompt of one token");
    tokens->items[0] = end;
    tokens->count = tokens->capacity = 1;
    return HS_OK;
}

static HsStatus generate_loop(HsDecoder *decoder, HsContext *context, const HsTokenizer *tokenizer,
                              const HsTokens *prompt, int64_t count, const HsSampling *sampling, float *scratch,
                              FILE *out)
{
    int64_t vocabulary = hs_tokenizer_vocabulary(tokenizer);
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    const float *logits = NULL;
    HS_TRY(hs_decoder_feed(decoder, context, prompt->items, prompt->count, &logits));
    for (int64_t i = 0; i < count; i++) {
        int32_t token = hs_sample(sampling, logits, vocabulary, (uint64_t)i, scratch);
        if (token == end)
            break;
        write_token(tokenizer, token, out);
        fflush(out);
        if (i + 1 < count)
            HS_TRY(hs_decoder_feed(decoder, context, &token, 1, &logits));
    }
    return HS_OK;
}

HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer, const char *prompt,
                          int64_t count, const HsSampling *sampling, FILE *out)
{
    HsStatus status = HS_OK;
    HsTokens tokens = { 0 };
    HsDecoder *decoder = NULL;
    float *scratch = malloc(sizeof(float) * 2 * (size_t)hs_tokenizer_vocabulary(tokenizer));
    if (!scratch)
        return hs_fail(HS_ENOMEM, "no memory to sample from %lld tokens",
                       (long long)hs_tokenizer_vocabulary(tokenizer));
    HS_TRY_GOTO(status, encode_prompt(tokenizer, prompt, &tokens), done);
    int64_t longest = tokens.count + count;
    if (model->max_positions > 0 && longest > model->max_positions) {
        if (tokens.count >= model->max_positions) {
            status =
                hs_fail(HS_EINVAL, "the prompt has %lld tokens, but the model knows only %lld positions: shorten it",
                        (long long)tokens.count, (long long)model->max_positions);
            goto done;
        }
        hs_warn("the model knows %lld positions: generating %lld tokens instead of %lld",
                (long long)model->max_positions, (long long)(model->max_positions - tokens.count), (long long)count);
        longest = model->max_positions;
        count = longest - tokens.count;
    }
    HS_TRY_GOTO(status, hs_decoder_create(model, context, longest, &decoder), done);
    fputs(prompt, out);
    status = generate_loop(decoder, context, tokenizer, &tokens, count, sampling, scratch, out);
    fputc('\n', out);
done:
    hs_decoder_destroy(decoder);
    hs_tokens_deinit(&tokens);
    free(scratch);
    return status;
}
