/* SPDX-License-Identifier: MIT
 *
 * Text to tokens and back, for people and for files.  Sources are encoded as they are read (encode.h); numbers as text
 * are decoded as they come, of whatever length.
 */
#include "runtime/commands/tokenizer_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/commands/arguments.h"
#include "runtime/data/source/encode.h"
#include "runtime/data/source/token_file.h"

typedef struct Sink {
    const HsTokenizer *tokenizer;
    const HsSourceOptions *options;
    FILE *out;
    bool inside; /* of a line */
    HsTokenWriter writer;
    int64_t documents, bytes, tokens;
    int64_t ends, masked; /* documents that want an end-of-text token; that have a prompt */
} Sink;

static HsSourceOptions options_of(const void *user, int source)
{
    (void)source;
    return *((const Sink *)user)->options;
}

static HsStatus encode(Sink *sink, const HsSourceList *sources, bool with_ends,
                       HsStatus (*take)(void *user, const HsEncodedUnit *unit))
{
    const HsEncoding encoding = { .sources = sources,
                                  .last = sources->count,
                                  .tokenizer = sink->tokenizer,
                                  .options = options_of,
                                  .with_ends = with_ends,
                                  .take = take,
                                  .user = sink,
                                  .what = "tokenizing" };
    return hs_sources_encode(&encoding);
}

static void add_up(Sink *sink, const HsEncodedUnit *unit)
{
    sink->documents += unit->document_count;
    sink->bytes += unit->bytes;
    sink->tokens += unit->count;
    for (int64_t i = 0; i < unit->document_count; i++) {
        sink->ends += unit->documents[i].ends;
        sink->masked += unit->documents[i].masked;
    }
}

static HsStatus count_unit(void *user, const HsEncodedUnit *unit)
{
    add_up(user, unit);
    return HS_OK;
}

static HsStatus out_failed(void)
{
    return hs_fail(HS_EIO, "the output cannot be written: %s", strerror(errno));
}

static void print_tokens(Sink *sink, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        fprintf(sink->out, "%s%" PRId32, sink->inside ? " " : "", tokens[i]);
        sink->inside = true;
    }
}

static HsStatus print_unit(void *user, const HsEncodedUnit *unit)
{
    Sink *sink = user;
    int64_t at = 0;
    for (int64_t i = 0; i < unit->document_count; i++) {
        print_tokens(sink, unit->tokens + at, unit->documents[i].end - at);
        putc('\n', sink->out);
        sink->inside = false;
        at = unit->documents[i].end;
    }
    print_tokens(sink, unit->tokens + at, unit->count - at);
    return ferror(sink->out) ? out_failed() : HS_OK;
}

HsStatus hs_tokenizer_print_ids(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                const HsSourceOptions *options, FILE *out)
{
    Sink sink = { .tokenizer = tokenizer, .options = options, .out = out };
    return encode(&sink, sources, false, print_unit);
}

static HsStatus write_unit(void *user, const HsEncodedUnit *unit)
{
    Sink *sink = user;
    add_up(sink, unit);
    return hs_token_writer_add(&sink->writer, unit->tokens, unit->count);
}

HsStatus hs_tokenizer_write_ids(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                const HsSourceOptions *options, const char *path)
{
    Sink sink = { .tokenizer = tokenizer, .options = options };
    HsStatus status = hs_token_writer_open(&sink.writer, path, hs_tokenizer_vocabulary(tokenizer));
    if (status == HS_OK)
        status = encode(&sink, sources, true, write_unit);
    const int64_t count = sink.writer.count;
    const size_t width = sink.writer.layout->token_bytes;
    if (status == HS_OK)
        status = hs_token_writer_finish(&sink.writer);
    hs_token_writer_abandon(&sink.writer);
    HS_TRY(status);
    if (sink.masked > 0)
        hs_warn("%s: %" PRId64 " documents have a prompt: a token file holds no loss mask, so training on it also "
                "counts the prompts' tokens, which training on the text does not",
                path, sink.masked);
    if (sink.ends > 1 && hs_tokenizer_end_of_text(tokenizer) < 0)
        hs_warn("%s: no end-of-text token is known: its %" PRId64 " documents run together without a border; name the "
                "token with --end-of-text",
                path, sink.ends);
    printf("wrote %s: %" PRId64 " tokens of %zu bytes, %" PRId64 " documents\n", path, count, width, sink.documents);
    return HS_OK;
}

HsStatus hs_tokenizer_print_count(const HsTokenizer *tokenizer, const HsSourceList *sources,
                                  const HsSourceOptions *options, bool json, FILE *out)
{
    Sink sink = { .tokenizer = tokenizer, .options = options };
    HS_TRY(encode(&sink, sources, false, count_unit));
    const bool has_end = hs_tokenizer_end_of_text(tokenizer) >= 0;
    const int64_t with_ends = sink.tokens + (has_end ? sink.ends : 0);
    const double rate = sink.tokens > 0 ? (double)sink.bytes / (double)sink.tokens : 0;
    if (json) {
        HsJson *root = hs_json_object();
        hs_json_set_integer(root, "documents", sink.documents);
        hs_json_set_integer(root, "bytes", sink.bytes);
        hs_json_set_integer(root, "tokens", sink.tokens);
        hs_json_set_integer(root, "tokens_with_end_of_text", with_ends);
        hs_json_set_real(root, "bytes_per_token", sink.tokens > 0 ? rate : NAN);
        hs_json_set_integer(root, "vocabulary", hs_tokenizer_vocabulary(tokenizer));
        return hs_argument_print_json(root);
    }
    fprintf(out,
            "documents        %" PRId64 "\nbytes            %" PRId64 "\ntokens           %" PRId64 " (%" PRId64
            " with end-of-text)\nbytes per token  %.4f\n",
            sink.documents, sink.bytes, sink.tokens, with_ends, rate);
    return HS_OK;
}

/* --- back to text --- */

static HsStatus write_token(const HsTokenizer *tokenizer, int64_t token, FILE *out)
{
    size_t length;
    const char *bytes = hs_tokenizer_bytes(tokenizer, (int32_t)token, &length);
    return fwrite(bytes, 1, length, out) == length ? HS_OK : out_failed();
}

/* One text, whole: a tokenizer's decoder may treat its start in another way. */
static HsStatus write_text(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, FILE *out)
{
    char *text;
    size_t length;
    HS_TRY(hs_tokenizer_decode(tokenizer, tokens, count, &text, &length));
    const bool written = fwrite(text, 1, length, out) == length;
    free(text);
    return written ? HS_OK : out_failed();
}

/* Where the reader of numbers stands. */
typedef struct Numbers {
    HsTokens text; /* of this line */
    const char *title;
    int64_t line, column; /* of the character read last */
    int64_t value, value_column;
    bool inside; /* a number */
} Numbers;

static HsStatus end_number(Numbers *numbers, const HsTokenizer *tokenizer)
{
    if (!numbers->inside)
        return HS_OK;
    numbers->inside = false;
    if (numbers->value >= hs_tokenizer_vocabulary(tokenizer))
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ":%" PRId64 ": token %" PRId64 " is not below the tokenizer's vocabulary of "
                       "%" PRId64 "; decode with the tokenizer that made the numbers",
                       numbers->title, numbers->line, numbers->value_column, numbers->value,
                       hs_tokenizer_vocabulary(tokenizer));
    HS_TRY(hs_tokens_reserve(&numbers->text, 1));
    numbers->text.items[numbers->text.count++] = (int32_t)numbers->value;
    return HS_OK;
}

/* encode writes a document as a line. */
static HsStatus end_line(Numbers *numbers, const HsTokenizer *tokenizer, FILE *out)
{
    HS_TRY(end_number(numbers, tokenizer));
    HsStatus status = write_text(tokenizer, numbers->text.items, numbers->text.count, out);
    numbers->text.count = 0;
    return status;
}

static HsStatus take_character(Numbers *numbers, int character, const HsTokenizer *tokenizer, FILE *out)
{
    const int64_t most = INT32_MAX;
    if (character == '\n' || character == ' ' || character == '\t' || character == '\r' || character == ',') {
        HS_TRY(character == '\n' ? end_line(numbers, tokenizer, out) : end_number(numbers, tokenizer));
        numbers->column = character == '\n' ? 0 : numbers->column + 1;
        numbers->line += character == '\n';
        return HS_OK;
    }
    numbers->column++;
    if (character < '0' || character > '9') {
        char shown[16];
        snprintf(shown, sizeof shown, character > ' ' && character < 127 ? "`%c`" : "byte 0x%02X", character);
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ":%" PRId64
                       ": %s is not part of a token number; decode reads numbers with blanks, "
                       "commas or line ends between them, or a token file named .bin",
                       numbers->title, numbers->line, numbers->column, shown);
    }
    if (!numbers->inside) {
        numbers->inside = true;
        numbers->value = 0;
        numbers->value_column = numbers->column;
    }
    numbers->value = 10 * numbers->value + (character - '0');
    numbers->value = numbers->value < most ? numbers->value : most; /* above any vocabulary */
    return HS_OK;
}

/* Past a byte order mark, which no number begins with. */
static void skip_mark(FILE *file)
{
    const int first = getc(file);
    if (first != 0xEF)
        ungetc(first, file);
    else if (getc(file) != 0xBB || getc(file) != 0xBF)
        ungetc(first, file); /* is refused */
}

static HsStatus decode_text(const HsTokenizer *tokenizer, const char *path, FILE *out)
{
    const bool input = strcmp(path, HS_SOURCE_INPUT) == 0;
    Numbers numbers = { .title = input ? "the standard input" : path, .line = 1 };
    FILE *file = input ? stdin : fopen(path, "rb");
    if (!file)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    HsStatus status = HS_OK;
    skip_mark(file);
    for (int character; status == HS_OK && (character = getc_unlocked(file)) != EOF;)
        status = take_character(&numbers, character, tokenizer, out);
    if (status == HS_OK && ferror(file))
        status = hs_fail(HS_EIO, "%s: cannot be read: %s", numbers.title, strerror(errno));
    if (status == HS_OK)
        status = end_line(&numbers, tokenizer, out);
    hs_tokens_deinit(&numbers.text);
    if (!input)
        fclose(file);
    return status;
}

static HsStatus decode_tokens(const HsTokenizer *tokenizer, const HsSourceList *sources, const HsSourceOptions *options,
                              bool skip_end, FILE *out)
{
    HsCorpus corpus = { 0 };
    const int32_t end = hs_tokenizer_end_of_text(tokenizer);
    HsStatus status = hs_source_read(&sources->items[0], options, &corpus);
    const HsTokens *tokens = &corpus.tokens;
    for (int64_t first = 0, next; status == HS_OK && first < tokens->count; first = next + 1) {
        for (next = first; next < tokens->count && tokens->items[next] != end; next++)
            ;
        status = write_text(tokenizer, tokens->items + first, next - first, out);
        if (status == HS_OK && next + 1 < tokens->count && !skip_end)
            status = write_token(tokenizer, end, out);
    }
    hs_corpus_deinit(&corpus);
    return status;
}

HsStatus hs_tokenizer_decode_file(const HsTokenizer *tokenizer, const char *path, const HsSourceOptions *options,
                                  bool skip_end, FILE *out)
{
    const HsSourceKind *kind;
    HsSourceList sources = { 0 };
    HS_TRY(hs_source_kind_choose(path, "auto", &kind));
    if (!kind->makes_tokens)
        return decode_text(tokenizer, path, out);
    HsStatus status = hs_source_list_add(&sources, path, "auto");
    if (status == HS_OK)
        status = decode_tokens(tokenizer, &sources, options, skip_end, out);
    hs_source_list_deinit(&sources);
    return status;
}

HsStatus hs_tokenizer_print_split(const HsTokenizer *tokenizer, const char *text, FILE *out)
{
    HsTokens tokens = { 0 };
    HsStatus status = hs_tokenizer_encode(tokenizer, text, strlen(text), &tokens);
    for (int64_t i = 0; status == HS_OK && i < tokens.count; i++) {
        fprintf(out, "%" PRId32 "\t", tokens.items[i]);
        status = write_token(tokenizer, tokens.items[i], out);
        putc('\n', out);
    }
    hs_tokens_deinit(&tokens);
    return status;
}
