/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out, through the key/value cache.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/engine/generate.h"

/* `tokens` is prompt and continuation so far; the decoder holds `held` of them, from `first` on. */
struct HsGenerator {
    HsModel *model;
    HsContext *context;
    const HsTokenizer *tokenizer;
    HsDecoder *decoder;
    HsTokens tokens;
    int64_t capacity, room; /* of the decoder, and at first */
    int64_t first, held, reused;
    float *scratch;
};

HsStatus hs_generator_create(HsModel *model, HsContext *context, const HsTokenizer *tokenizer, int64_t room,
                             HsGenerator **generator)
{
    const int64_t vocabulary = hs_tokenizer_vocabulary(tokenizer);
    *generator = calloc(1, sizeof **generator);
    float *scratch = malloc(sizeof(float) * 2 * (size_t)vocabulary);
    if (!*generator || !scratch) {
        free(*generator);
        free(scratch);
        *generator = NULL;
        return hs_fail(HS_ENOMEM, "no memory to sample from %lld tokens", (long long)vocabulary);
    }
    **generator =
        (HsGenerator){ .model = model, .context = context, .tokenizer = tokenizer, .room = room, .scratch = scratch };
    return HS_OK;
}

void hs_generator_destroy(HsGenerator *generator)
{
    if (!generator)
        return;
    hs_decoder_destroy(generator->decoder);
    hs_tokens_deinit(&generator->tokens);
    free(generator->scratch);
    free(generator);
}

int64_t hs_generator_reused(const HsGenerator *generator)
{
    return generator->reused;
}

/* A decoder for `tokens` tokens, or for all positions that the model has learned. */
static HsStatus reserve(HsGenerator *generator, int64_t tokens)
{
    const int64_t positions = generator->model->max_positions;
    int64_t capacity = generator->capacity == 0 ? generator->room : 2 * generator->capacity;
    if (capacity < tokens)
        capacity = tokens;
    if (positions > 0 && capacity > positions)
        capacity = positions;
    if (generator->capacity >= tokens || generator->capacity == capacity)
        return HS_OK;
    hs_decoder_destroy(generator->decoder);
    generator->decoder = NULL;
    generator->held = generator->capacity = 0;
    HS_TRY(hs_decoder_create(generator->model, generator->context, 1, capacity, &generator->decoder));
    generator->capacity = capacity;
    return HS_OK;
}

/* The prompt in place of the text so far; of what the decoder holds stays what the prompt begins with. */
static HsStatus take_prompt(HsGenerator *generator, const HsTokens *prompt, int64_t more)
{
    HsTokens *tokens = &generator->tokens;
    int64_t same = 0;
    while (generator->first == 0 && same < generator->held && same + 1 < prompt->count &&
           tokens->items[same] == prompt->items[same])
        same++;
    tokens->count = 0;
    HS_TRY(hs_tokens_reserve(tokens, prompt->count + more));
    memcpy(tokens->items, prompt->items, (size_t)prompt->count * sizeof *tokens->items);
    tokens->count = prompt->count;
    if (prompt->count > generator->capacity)
        same = 0;
    same = hs_decoder_rewind(generator->decoder, same);
    generator->held = generator->reused = same;
    generator->first = 0;
    return HS_OK;
}

/* Feed what the decoder has not seen.  A model with learned positions knows only `capacity` of them: when they are used
 * up it starts again from the second half of what it held, so that a text may be of any length. */
static HsStatus feed(HsGenerator *generator, const float **logits)
{
    const int64_t count = generator->tokens.count, capacity = generator->capacity;
    if (count - generator->first > capacity) {
        const int64_t keep = generator->held == 0 ? capacity : (capacity + 1) / 2;
        generator->first = count > keep ? count - keep : 0;
        generator->held = 0;
        hs_decoder_reset(generator->decoder);
    }
    const int64_t begin = generator->first + generator->held;
    generator->held += count - begin;
    return hs_decoder_feed(generator->decoder, generator->context, generator->tokens.items + begin, count - begin,
                           logits);
}

static void write_token(const HsTokenizer *tokenizer, int32_t token, FILE *out)
{
    size_t length = 0;
    const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    fwrite(bytes, 1, length, out);
    fflush(out);
}

static bool stops(const HsGenerator *generator, const HsGeneration *wanted, int32_t token)
{
    bool found = !wanted->stops_alone && token == hs_tokenizer_end_of_text(generator->tokenizer);
    for (int64_t i = 0; !found && i < wanted->stop_count; i++)
        found = token == wanted->stops[i];
    return found;
}

HsStatus hs_generator_run(HsGenerator *generator, const HsTokens *prompt, const HsGeneration *generation, FILE *out,
                          HsTokens *added)
{
    const int64_t vocabulary = hs_tokenizer_vocabulary(generator->tokenizer);
    HsTokens *tokens = &generator->tokens;
    HS_TRY(reserve(generator, prompt->count + generation->tokens));
    HS_TRY(take_prompt(generator, prompt, generation->tokens));
    if (added)
        HS_TRY(hs_tokens_reserve(added, generation->tokens));
    if (generation->ended_by)
        *generation->ended_by = -1;
    for (int64_t i = 0; i < generation->tokens; i++) {
        const float *logits = NULL;
        HS_TRY(feed(generator, &logits));
        int32_t token = hs_sample(&generation->sampling, logits, vocabulary, (uint64_t)i, generator->scratch);
        if (stops(generator, generation, token)) {
            if (generation->ended_by)
                *generation->ended_by = token;
            break;
        }
        if (out)
            write_token(generator->tokenizer, token, out);
        tokens->items[tokens->count++] = token;
        if (added)
            added->items[added->count++] = token;
    }
    return HS_OK;
}

/* A model needs at least one token to continue from. */
static HsStatus encode_prompt(const HsTokenizer *tokenizer, const HsGeneration *wanted, HsTokens *tokens)
{
    HsStatus status = hs_tokenizer_encode_whole(tokenizer, wanted->prompt, wanted->prompt_length, tokens);
    if (status != HS_OK)
        return hs_error_prefix(status, "the prompt");
    if (tokens->count > 0)
        return HS_OK;
    int32_t end = hs_tokenizer_end_of_text(tokenizer);
    if (end < 0)
        return hs_tokenizer_encode(tokenizer, "\n", 1, tokens);
    HS_TRY(hs_tokens_reserve(tokens, 1));
    tokens->items[tokens->count++] = end;
    return HS_OK;
}

bool hs_generate_warn_length(const HsModel *model, const HsConfig *config, int64_t tokens)
{
    const int64_t declared = config->model.max_positions;
    const int64_t made_for = declared > 0 ? declared : config->training.max_length;
    const int64_t seen = model->max_positions;
    if (seen > 0 && tokens > seen)
        hs_warn("the prompt has %lld tokens, and the model sees %lld at a time: the first %lld are not seen",
                (long long)tokens, (long long)seen, (long long)(tokens - seen));
    else if (tokens > made_for)
        hs_warn(
            "the prompt has %lld tokens, and the model was made for %lld: the last %lld have positions that it was not "
            "trained on",
            (long long)tokens, (long long)made_for, (long long)(tokens - made_for));
    return (seen > 0 && tokens > seen) || tokens > made_for;
}

HsStatus hs_generate_count_prompt(const HsTokenizer *tokenizer, const HsGeneration *generation, int64_t *tokens)
{
    HsTokens prompt = { 0 };
    const HsStatus status = encode_prompt(tokenizer, generation, &prompt);
    *tokens = prompt.count;
    hs_tokens_deinit(&prompt);
    return status;
}

HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer,
                          const HsGeneration *generation, FILE *out, HsTokens *added)
{
    HsTokens prompt = { 0 };
    HsGenerator *generator = NULL;
    HsStatus status = encode_prompt(tokenizer, generation, &prompt);
    if (status == HS_OK)
        status = hs_generator_create(model, context, tokenizer, 0, &generator);
    if (status == HS_OK && out)
        fwrite(generation->prompt, 1, generation->prompt_length, out);
    if (status == HS_OK) {
        status = hs_generator_run(generator, &prompt, generation, out, added);
        if (out)
            fputc('\n', out);
    }
    hs_generator_destroy(generator);
    hs_tokens_deinit(&prompt);
    return status;
}
