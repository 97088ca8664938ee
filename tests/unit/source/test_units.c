/* SPDX-License-Identifier: MIT
 *
 * Sources of several megabytes, read in units by any number of threads, are what they are read whole: the same documents
 * with the same tokens, masks and places.
 */
#include <math.h>
#include <stdint.h>

#include "kernels/base/rng.h"
#include "runtime/data/source/encode.h"
#include "runtime/data/source/units.h"
#include "tests/support/scratch.h"

enum { TEXT_BYTES = 3500000 };

typedef struct Text {
    char *bytes;
    size_t length, room;
} Text;

static void put(Text *text, const char *more)
{
    const size_t length = strlen(more);
    cr_assert_lt(text->length + length, text->room);
    memcpy(text->bytes + text->length, more, length);
    text->length += length;
}

static uint32_t draw(uint32_t i, uint32_t sides)
{
    const uint32_t counter[4] = { i, 0, 0, 3 };
    return hs_philox(1, counter).word[0] % sides;
}

/* Words with lines of any length, one of which is longer than a unit. */
static void put_words(Text *text, uint32_t seed, size_t bytes)
{
    static const char *const words[] = { " the", " of", " number", " 1234", " it's", ".", ",", " \xC3\xA9t\xC3\xA9",
                                         "  ",   " x" };
    const size_t end = text->length + bytes;
    for (uint32_t i = 0; text->length < end; i++)
        put(text, words[draw(seed * 1000003 + i, 10)]);
}

static void put_lines(Text *text, const char *line_end)
{
    for (uint32_t i = 0; text->length < TEXT_BYTES; i++) {
        put_words(text, i, i == 20 ? 1300000 : draw(i, 4000));
        put(text, line_end);
    }
}

static void put_jsonl(Text *text)
{
    for (uint32_t i = 0; text->length < TEXT_BYTES; i++) {
        put(text, i % 3 ? "{\"text\": \"" : "{\"prompt\": \"what");
        put_words(text, i, i == 20 ? 1300000 : draw(i, 3000));
        put(text, i % 3 ? "\"}\n" : "\", \"completion\": \" that\"}\n");
        put(text, i % 7 ? "" : " \n");
    }
}

static void put_json(Text *text)
{
    put(text, " [\n");
    for (uint32_t i = 0; text->length < TEXT_BYTES; i++) {
        put(text, i > 0 ? ",\n{\"text\": \"" : "{\"text\": \"");
        put_words(text, i, i == 20 ? 1300000 : draw(i, 3000));
        put(text, "[ ] {, \\\" \"}");
    }
    put(text, "\n]\n");
}

static void put_csv(Text *text)
{
    put(text, "\nid,text\r\n");
    for (uint32_t i = 0; text->length < TEXT_BYTES; i++) {
        put(text, i % 2 ? "1,\"a \"\"quote\"\",\r\n" : "\n2,\"");
        put_words(text, i, i == 20 ? 1300000 : draw(i, 3000));
        put(text, i % 5 ? "\"\r\n" : "\"\n");
    }
}

/* Everything that came out, put together. */
typedef struct All {
    const HsSourceOptions *options;
    HsTokens tokens;
    uint8_t *mask;
    HsEncodedDocument *documents;
    int64_t document_count, units;
} All;

static HsSourceOptions options_of(const void *user, int source)
{
    (void)source;
    return *((const All *)user)->options;
}

static HsStatus take(void *user, const HsEncodedUnit *unit)
{
    All *all = user;
    const int64_t before = all->tokens.count;
    cr_assert_eq(hs_tokens_reserve(&all->tokens, unit->count), HS_OK);
    all->mask = realloc(all->mask, (size_t)(before + unit->count) + 1);
    all->documents =
        realloc(all->documents, (size_t)(all->document_count + unit->document_count + 1) * sizeof *all->documents);
    cr_assert(all->mask && all->documents);
    for (int64_t i = 0; i < unit->count; i++) {
        all->tokens.items[before + i] = unit->tokens[i];
        all->mask[before + i] = unit->mask ? unit->mask[i] : 1;
    }
    all->tokens.count += unit->count;
    for (int64_t i = 0; i < unit->document_count; i++) {
        all->documents[all->document_count] = unit->documents[i];
        all->documents[all->document_count++].end += before;
    }
    all->units++;
    return HS_OK;
}

static All read_in_units(const HsSourceList *list, const HsSourceOptions *options, const HsTokenizer *tokenizer,
                         int threads)
{
    All all = { .options = options };
    const HsEncoding encoding = { .sources = list,
                                  .last = list->count,
                                  .tokenizer = tokenizer,
                                  .options = options_of,
                                  .with_ends = true,
                                  .threads = threads,
                                  .take = take,
                                  .user = &all };
    cr_assert_eq(hs_sources_encode(&encoding), HS_OK, "%s", hs_error_message());
    return all;
}

/* One unit at a time, each from where the one before it ended. */
static All read_in_pieces(const HsSourceList *list, const HsSourceOptions *options, const HsTokenizer *tokenizer)
{
    All all = { .options = options };
    HsEncodingPlace place = { 0 };
    int pieces = 0;
    while (place.unit.source < list->count) {
        const HsEncodingPlace from = place;
        const HsEncoding encoding = { .sources = list,
                                      .last = list->count,
                                      .from = &from,
                                      .most = 1,
                                      .reached = &place,
                                      .tokenizer = tokenizer,
                                      .options = options_of,
                                      .with_ends = true,
                                      .threads = 2,
                                      .take = take,
                                      .user = &all };
        cr_assert_eq(hs_sources_encode(&encoding), HS_OK, "%s", hs_error_message());
        pieces++;
    }
    cr_expect(pieces == all.units || pieces == 1, "%d pieces, %d units", pieces, (int)all.units); /* CSV is not cut */
    return all;
}

static void free_all(All *all)
{
    hs_tokens_deinit(&all->tokens);
    free(all->mask);
    free(all->documents);
}

/* The truth: the source whole, its pieces encoded one by one. */
static void compare(const HsSourceList *list, const HsSourceOptions *options, const HsTokenizer *tokenizer,
                    const All *all)
{
    HsCorpus corpus = { 0 };
    HsTokens tokens = { 0 };
    int64_t documents = 0;
    const int32_t end = hs_tokenizer_end_of_text(tokenizer);
    cr_assert_eq(hs_source_read(&list->items[0], options, &corpus), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < corpus.piece_count; i++) {
        const HsPiece *piece = &corpus.pieces[i];
        const int64_t before = tokens.count;
        cr_assert_eq(hs_tokenizer_encode(tokenizer, corpus.text + piece->start, piece->length, &tokens), HS_OK);
        if (piece->ends_document && end >= 0) {
            cr_assert_eq(hs_tokens_reserve(&tokens, 1), HS_OK);
            tokens.items[tokens.count++] = end;
        }
        cr_assert_leq(tokens.count, all->tokens.count);
        for (int64_t t = before; t < tokens.count; t++)
            cr_assert(all->tokens.items[t] == tokens.items[t] && all->mask[t] == piece->counted, "token %lld",
                      (long long)t);
        if (!piece->ends_document) {
            cr_expect_eq(all->documents[documents].prompt, tokens.count - before);
            continue;
        }
        cr_assert_lt(documents, all->document_count);
        cr_expect_eq(all->documents[documents].end, tokens.count, "document %lld", (long long)documents);
        documents++;
    }
    cr_expect_eq(tokens.count, all->tokens.count);
    cr_expect_eq(documents, all->document_count);
    hs_corpus_deinit(&corpus);
    hs_tokens_deinit(&tokens);
}

static void expect_equal(const All *one, const All *other)
{
    cr_expect_eq(one->document_count, other->document_count);
    cr_expect(one->tokens.count == other->tokens.count &&
              memcmp(one->tokens.items, other->tokens.items, (size_t)one->tokens.count * sizeof(int32_t)) == 0 &&
              memcmp(one->mask, other->mask, (size_t)one->tokens.count) == 0);
    for (int64_t i = 0; i < one->document_count && i < other->document_count; i++)
        cr_expect(one->documents[i].hash == other->documents[i].hash &&
                  one->documents[i].bytes == other->documents[i].bytes &&
                  one->documents[i].prompt_hash == other->documents[i].prompt_hash);
}

static void check(const char *name, const Text *text, const HsTokenizer *tokenizer)
{
    const Scratch scratch = scratch_make();
    const HsSourceOptions options = {
        .text_field = "text", .prompt_field = "prompt", .completion_field = "completion", .needs_utf8 = true
    };
    HsSourceList list = { 0 };
    scratch_write(scratch_path(&scratch, name), text->bytes, text->length);
    cr_assert_eq(hs_source_list_add(&list, scratch_path(&scratch, name), "auto"), HS_OK, "%s", hs_error_message());
    All one = read_in_units(&list, &options, tokenizer, 1), four = read_in_units(&list, &options, tokenizer, 4);
    cr_expect_gt(one.units, 2, "%s is one unit", name);
    compare(&list, &options, tokenizer, &one);
    All pieces = read_in_pieces(&list, &options, tokenizer);
    expect_equal(&one, &four);
    expect_equal(&one, &pieces);
    free_all(&pieces);
    free_all(&one);
    free_all(&four);
    hs_source_list_deinit(&list);
    scratch_remove(&scratch);
}

static void check_all(const HsTokenizer *tokenizer, const char *name, void (*fill)(Text *text))
{
    Text text = { .bytes = malloc(TEXT_BYTES + (2 << 20)), .room = TEXT_BYTES + (2 << 20) };
    cr_assert_not_null(text.bytes);
    fill(&text);
    check(name, &text, tokenizer);
    free(text.bytes);
}

static void put_text(Text *text)
{
    put(text, "\xEF\xBB\xBF");
    put_lines(text, "\n");
}

static void put_old_lines(Text *text)
{
    put_jsonl(text);
    for (size_t i = 0; i < text->length; i++)
        if (text->bytes[i] == '\n')
            text->bytes[i] = '\r';
}

Test(units, of_every_format_are_the_whole)
{
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_load("tests/huggingface/models/gpt2/tokenizer.json", &tokenizer), HS_OK);
    check_all(tokenizer, "x.txt", put_text);
    check_all(tokenizer, "x.jsonl", put_jsonl);
    check_all(tokenizer, "x.json", put_json);
    check_all(tokenizer, "x.csv", put_csv);
    hs_tokenizer_destroy(tokenizer);
    cr_assert_eq(hs_tokenizer_create("byte", NULL, NULL, 0, &tokenizer), HS_OK);
    check_all(tokenizer, "x.txt", put_text);
    hs_tokenizer_destroy(tokenizer);
}

/* Lines that end in CR alone, and a text whose tokenizer needs it whole, are one unit. */
Test(units, may_be_all_of_a_source)
{
    HsTokenizer *tokenizer;
    const HsSourceOptions options = {
        .text_field = "text", .prompt_field = "prompt", .completion_field = "completion", .needs_utf8 = true
    };
    Text text = { .bytes = malloc(TEXT_BYTES + (2 << 20)), .room = TEXT_BYTES + (2 << 20) };
    const Scratch scratch = scratch_make();
    HsSourceList list = { 0 };
    cr_assert_not_null(text.bytes);
    put_old_lines(&text);
    scratch_write(scratch_path(&scratch, "x.jsonl"), text.bytes, text.length);
    cr_assert_eq(hs_source_list_add(&list, scratch_path(&scratch, "x.jsonl"), "auto"), HS_OK);
    cr_assert_eq(hs_tokenizer_load("tests/unit/tokenizer/golden/llama2.json", &tokenizer), HS_OK);
    All all = read_in_units(&list, &options, tokenizer, 2);
    cr_expect_eq(all.units, 1);
    compare(&list, &options, tokenizer, &all);
    free_all(&all);
    hs_tokenizer_destroy(tokenizer);
    hs_source_list_deinit(&list);
    scratch_remove(&scratch);
    free(text.bytes);
}

/* What `work` says of a border is right, whatever the reader found: one that is wrong each time. */
typedef struct Wrong {
    HsTokenizerSession *sessions[3];
    HsTokens tokens;
    int64_t taken;
} Wrong;

static HsStatus wrong_border(void *user, const HsTextPart *part, size_t *at)
{
    (void)user;
    *at = part->least + 1 + part->length % 3; /* in the middle of a word, perhaps */
    return HS_OK;
}

static HsStatus encode_unit(void *user, int worker, HsUnit *unit)
{
    Wrong *wrong = user;
    const HsSourceOptions options = { .needs_utf8 = true };
    HsTokens *tokens = unit->result;
    HsTextPart part;
    size_t mark;
    tokens->count = 0;
    HS_TRY(hs_unit_open_text(unit, &options, &part, &mark));
    return hs_tokenizer_session_encode_part(wrong->sessions[worker], &part, tokens, &unit->used);
}

static HsStatus take_unit(void *user, const HsUnit *unit)
{
    Wrong *wrong = user;
    const HsTokens *tokens = unit->result;
    wrong->taken++;
    HS_TRY(hs_tokens_reserve(&wrong->tokens, tokens->count));
    memcpy(wrong->tokens.items + wrong->tokens.count, tokens->items, (size_t)tokens->count * sizeof(int32_t));
    wrong->tokens.count += tokens->count;
    return HS_OK;
}

static void clear_tokens(void *result)
{
    hs_tokens_deinit(result);
}

Test(units, are_mended_where_a_border_was_wrong)
{
    HsTokenizer *tokenizer;
    Wrong wrong = { 0 };
    Text text = { .bytes = malloc(TEXT_BYTES + (2 << 20)), .room = TEXT_BYTES + (2 << 20) };
    const Scratch scratch = scratch_make();
    HsSourceList list = { 0 };
    HsTokens whole = { 0 };
    cr_assert_not_null(text.bytes);
    for (uint32_t i = 0; text.length < TEXT_BYTES; i++)
        put_words(&text, i, 1000);
    scratch_write(scratch_path(&scratch, "x.txt"), text.bytes, text.length);
    cr_assert_eq(hs_source_list_add(&list, scratch_path(&scratch, "x.txt"), "auto"), HS_OK);
    cr_assert_eq(hs_tokenizer_load("tests/huggingface/models/gpt2/tokenizer.json", &tokenizer), HS_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(hs_tokenizer_session_create(tokenizer, &wrong.sessions[i]), HS_OK);
    const HsUnitWork units = { .sources = &list,
                               .last = 1,
                               .threads = 3,
                               .border = wrong_border,
                               .work = encode_unit,
                               .take = take_unit,
                               .clear = clear_tokens,
                               .user = &wrong,
                               .result_bytes = sizeof(HsTokens) };
    cr_assert_eq(hs_units_run(&units), HS_OK, "%s", hs_error_message());
    cr_expect_gt(wrong.taken, 2);
    cr_assert_eq(hs_tokenizer_encode(tokenizer, text.bytes, text.length, &whole), HS_OK);
    cr_expect(whole.count == wrong.tokens.count &&
              memcmp(whole.items, wrong.tokens.items, (size_t)whole.count * sizeof(int32_t)) == 0);
    for (int i = 0; i < 3; i++)
        hs_tokenizer_session_destroy(wrong.sessions[i]);
    hs_tokens_deinit(&whole);
    hs_tokens_deinit(&wrong.tokens);
    hs_tokenizer_destroy(tokenizer);
    hs_source_list_deinit(&list);
    scratch_remove(&scratch);
    free(text.bytes);
}
