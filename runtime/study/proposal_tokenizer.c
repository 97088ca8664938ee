/* SPDX-License-Identifier: MIT
 *
 * Which tokenizer a text and a model want: bytes need nothing, characters serve other alphabets in small texts, and
 * learned tokens make sequences shorter, as soon as the text shows each of them often and the model has room for them.
 */
#include "runtime/study/proposal.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/data/tokenizer_train.h"

enum { LEAST_VOCABULARY = 512, MOST_VOCABULARY = 32768, MOST_CHARACTERS = 2048 };
/* Bytes of text for each token to be learned; parameters of the blocks for each of the embedding. */
static const double BYTES_A_TOKEN = 2000, MODEL_AN_EMBEDDING = 1.25;
/* Characters a byte below which a text is not written in Latin letters. */
static const double OTHER_ALPHABET = 0.75;

static void choose_small(HsProposal *proposal, bool utf8, double characters, double bytes, int distinct)
{
    const bool other = utf8 && bytes > 0 && characters / bytes < OTHER_ALPHABET && distinct <= MOST_CHARACTERS;
    proposal->tokenizer = other ? "char" : "byte";
    if (other)
        snprintf(proposal->tokenizer_reason, HS_PROPOSAL_REASON,
                 "too little text or time to learn tokens, and a character has %.1f bytes: %d characters are the "
                 "vocabulary",
                 bytes / characters, distinct);
    else
        snprintf(proposal->tokenizer_reason, HS_PROPOSAL_REASON, "%s",
                 utf8 ? "too little text or time to learn tokens: bytes need no vocabulary"
                      : "some files are not UTF-8, which bytes do not mind");
}

void hs_proposal_choose_tokenizer(HsProposal *proposal, double model)
{
    double bytes = 0, characters = 0, sample = 0;
    int distinct = 0;
    bool utf8 = true;
    for (int i = 0; i < proposal->request->text_count; i++) {
        const HsProposalText *const text = &proposal->texts[i];
        bytes += text->bytes;
        characters += text->characters;
        sample += text->sample_text;
        distinct = text->distinct > distinct ? text->distinct : distinct;
        utf8 &= text->utf8;
    }
    const HsRecipe recipe = hs_recipe_of_size(model, 0);
    const double by_text = bytes / BYTES_A_TOKEN, by_model = model / MODEL_AN_EMBEDDING / (double)recipe.width;
    const double most = fmin(fmin(by_text, by_model), MOST_VOCABULARY);
    proposal->tokenizer_path[0] = '\0';
    if (!utf8 || most < LEAST_VOCABULARY) {
        choose_small(proposal, utf8, characters, sample, distinct);
        return;
    }
    const char *const dot = strrchr(proposal->output, '.');
    const int length = dot && !strchr(dot, '/') ? (int)(dot - proposal->output) : (int)strlen(proposal->output);
    proposal->tokenizer = "bpe";
    proposal->vocabulary = (int64_t)exp2(floor(log2(most)));
    snprintf(proposal->tokenizer_path, sizeof proposal->tokenizer_path, "%.*s.tokenizer.json",
             length < 4000 ? length : 4000, proposal->output);
    snprintf(
        proposal->tokenizer_reason, HS_PROPOSAL_REASON,
        "learned from the text: %" PRId64 " tokens, with %.0f bytes of text each at least, and an embedding of at "
        "most 0.8 of the blocks' parameters (with as much arithmetic bytes ended at 1.94 bits a byte of Python, 512 "
        "tokens at 1.87, 2,048 tokens, 0.7 of the blocks, at 1.84)",
        proposal->vocabulary, BYTES_A_TOKEN);
}

HsStatus hs_proposal_make_tokenizer(HsProposal *proposal)
{
    HsConfig config;
    HsStringList files = { 0 }, exclude = { 0 };
    if (proposal->tokenizer_path[0] == '\0')
        return HS_OK;
    HS_TRY(hs_config_init(&config));
    HsStatus status = HS_OK;
    for (int i = 0; i < proposal->request->text_count && status == HS_OK; i++) {
        const HsProposalText *const text = &proposal->texts[i];
        const HsStringList *const from = text->sample.count > 0 ? &text->sample : &text->train;
        for (int k = 0; k < from->count && status == HS_OK; k++)
            status = hs_string_list_add(&files, "%s", from->items[k]);
        for (int k = 0; k < text->exclude.count && status == HS_OK; k++)
            status = hs_string_list_add(&exclude, "%s", text->exclude.items[k]);
    }
    HsTaskConfig task = config.tasks[0];
    task.train = files;
    task.exclude = exclude;
    hs_log_set_level(HS_LOG_ERROR);
    if (status == HS_OK)
        status = hs_tokenizer_train(&task, proposal->vocabulary, NULL, 0, proposal->tokenizer_path);
    hs_log_set_level(HS_LOG_INFO);
    hs_string_list_deinit(&files);
    hs_string_list_deinit(&exclude);
    hs_config_deinit(&config);
    if (status == HS_EFORMAT) {
        proposal->tokenizer = "byte";
        proposal->tokenizer_path[0] = '\0';
        snprintf(proposal->tokenizer_reason, HS_PROPOSAL_REASON, "bytes mind nothing; tokens cannot be learned: %.300s",
                 hs_error_message());
        return HS_OK;
    }
    proposal->made_tokenizer = status == HS_OK;
    return status;
}
