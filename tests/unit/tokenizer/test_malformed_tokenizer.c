/* SPDX-License-Identifier: MIT
 *
 * Tokenizer files that are wrong, or ask for what is not done here: the exact message each gets.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_json.h"

typedef struct FileCase {
    const char *text;
    HsStatus status;
    const char *message;
} FileCase;

static const FileCase files[] = {
    { "[]", HS_EFORMAT, "t.json: a tokenizer must be a JSON object" },
    { "{}", HS_EFORMAT,
      "t.json: neither a Hugging Face tokenizer.json (member `model`) nor one of ours (member `halfstep_tokenizer`)" },
    { "{\"halfstep_tokenizer\": 1}", HS_EFORMAT, "t.json: member `kind` is missing" },
    { "{\"halfstep_tokenizer\": 2, \"kind\": \"byte\"}", HS_EUNSUPPORTED,
      "t.json: tokenizer format 2; this version reads format 1" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"word\"}", HS_EFORMAT, "t.json: there is no tokenizer of kind word" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"bpe\"}", HS_EFORMAT, "t.json: there is no tokenizer of kind bpe" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\"}", HS_EFORMAT,
      "t.json: member `characters` must be a list of code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": []}", HS_EFORMAT,
      "t.json: member `characters` must be a list of code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [97, 97]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [97.5]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [-1]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [55296]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [1114112]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"halfstep_tokenizer\": 1, \"kind\": \"char\", \"characters\": [\"a\"]}", HS_EFORMAT,
      "t.json: `characters` must hold ascending code points" },
    { "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", HS_EUNSUPPORTED,
      "t.json: model.type Unigram is not supported, only BPE" },
    { "{\"model\": {\"vocab\": {\"a\": 0}}}", HS_EUNSUPPORTED, "t.json: model.type (none) is not supported, only BPE" },
    { "{\"model\": {\"type\": \"BPE\"}}", HS_EFORMAT, "t.json: model.vocab must be an object of token: id" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}", HS_EFORMAT,
      "t.json: model.vocab must be an object of token: id" },
    { "{\"model\": 7}", HS_EFORMAT, "t.json: model must be an object" },
    { "{\"model\": {\"type\": 7}}", HS_EFORMAT, "t.json: model.type must be a string" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", HS_EFORMAT, "t.json: model.merges must be a list" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}}}", HS_EFORMAT,
      "t.json: the id of token \"a\" must be a whole number below 16777216" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 16777216}}}", HS_EFORMAT,
      "t.json: the id of token \"a\" must be a whole number below 16777216" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0.5}}}", HS_EFORMAT,
      "t.json: the id of token \"a\" must be a whole number below 16777216" },
    { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}}}", HS_EFORMAT,
      "t.json: id 0 belongs to two tokens" },
};

/* Parts of tokenizer_json's; NULL stands for nothing, or GPT-2's pre-tokenizer. */
typedef struct BpeCase {
    const char *vocab, *merges, *model, *pre, *root;
    HsStatus status;
    const char *message;
} BpeCase;

#define ADDED(token) ",\"added_tokens\":[" token "]"
#define SPLIT(settings) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"," settings "},{\"type\":\"ByteLevel\"}]}"
#define REGEX(regex)  SPLIT("\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"")
#define REFUSED(what) "t.json: pre_tokenizer Split: " what " in an expression is not supported"

static const BpeCase parts[] = {
    { .merges = "1", .status = HS_EFORMAT, .message = "t.json: model.merges[0] must be \"a b\" or [\"a\", \"b\"]" },
    { .merges = "\"ab\"",
      .status = HS_EFORMAT,
      .message = "t.json: model.merges[0] must be \"a b\" or [\"a\", \"b\"]" },
    { .merges = "\"a b c\"",
      .status = HS_EFORMAT,
      .message = "t.json: model.merges[0] must be \"a b\" or [\"a\", \"b\"]" },
    { .merges = "[\"a\"]",
      .status = HS_EFORMAT,
      .message = "t.json: model.merges[0] must be \"a b\" or [\"a\", \"b\"]" },
    { .merges = "[\"a\",1]",
      .status = HS_EFORMAT,
      .message = "t.json: model.merges[0] must be \"a b\" or [\"a\", \"b\"]" },
    { .merges = "\"a b\"",
      .status = HS_EFORMAT,
      .message = "t.json: model.merges[0]: \"a\", \"b\" or what they become is not in model.vocab" },
    { .vocab = ",\"a\":300", .status = HS_EFORMAT, .message = "t.json: token \"a\" is in model.vocab twice" },
    { .model = ",\"dropout\":0.1",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: model.dropout is not supported: set it to null" },
    { .model = ",\"continuing_subword_prefix\":\"##\"",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: model.continuing_subword_prefix is not supported" },
    { .model = ",\"end_of_word_suffix\":\"</w>\"",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: model.end_of_word_suffix is not supported" },
    /* What a caller's last batch had is no part of the tokenizer: objects of these are passed over. */
    { .root = ",\"padding\":[]", .status = HS_EFORMAT, .message = "t.json: padding must be an object or null" },
    { .root = ",\"added_tokens\":{}", .status = HS_EFORMAT, .message = "t.json: added_tokens must be a list" },
    { .root = ADDED("{\"id\":300}"), .status = HS_EFORMAT, .message = "t.json: member `content` is missing" },
    { .root = ADDED("{\"id\":300,\"content\":\"\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: an added token has no content" },
    { .root = ADDED("{\"content\":\"<x>\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: the id of token \"<x>\" must be a whole number below 16777216" },
    { .root = ADDED("{\"id\":97,\"content\":\"<x>\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: added token \"<x>\" has id 97, but the one that follows the vocabulary and the added tokens "
                 "before it is 256" },
    { .root = ADDED("{\"id\":300,\"content\":\"a\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: added token \"a\" has id 300, but 97 in model.vocab" },
    { .root = ADDED("{\"id\":233,\"content\":\"\\u00e9\"}"),
      .status = HS_EUNSUPPORTED,
      .message = "t.json: added token \"\xC3\xA9\" is in model.vocab too, where it stands for other bytes" },
    { .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"}]}",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: pre_tokenizer ByteLevel: ByteLevel must come once, and last" },
    { .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{}]}",
      .status = HS_EFORMAT,
      .message = "t.json: pre_tokenizer: member `type` is missing" },
    { .pre = REGEX("\\\\b+"), .status = HS_EUNSUPPORTED, .message = REFUSED("\\b") },
    { .pre = REGEX("[\\\\W]"), .status = HS_EUNSUPPORTED, .message = REFUSED("\\W") },
    { .pre = REGEX("\\\\p{Thai}+"), .status = HS_EUNSUPPORTED, .message = REFUSED("\\p{Thai}") },
    { .pre = REGEX("\\\\p{^L}"), .status = HS_EUNSUPPORTED, .message = REFUSED("\\p{^L}") },
    { .pre = REGEX("[a[b]]"), .status = HS_EUNSUPPORTED, .message = REFUSED("[") },
    { .pre = REGEX("[a&&b]"), .status = HS_EUNSUPPORTED, .message = REFUSED("&&") },
    { .pre = REGEX("a{1,3}+"), .status = HS_EUNSUPPORTED, .message = REFUSED("}+") },
    { .pre = REGEX("(?m:a)"), .status = HS_EUNSUPPORTED, .message = REFUSED("(?m") },
    { .pre = REGEX("(*COMMIT)a"), .status = HS_EUNSUPPORTED, .message = REFUSED("(*") },
    { .pre = REGEX("a\\\\"), .status = HS_EUNSUPPORTED, .message = REFUSED("\\") },
    { .pre = REGEX("a*"),
      .status = HS_EUNSUPPORTED,
      .message = "t.json: pre_tokenizer Split: an expression that can match nothing is not supported" },
    { .pre = REGEX("(a"),
      .status = HS_EUNSUPPORTED,
      .message = "t.json: pre_tokenizer Split: missing closing parenthesis at character 2 of the expression" },
};

#define ROOT(text, kind, what)                                       \
    {                                                                \
        .root = "," text, .status = kind, .message = "t.json: " what \
    }
#define PRE(text, kind, what)                                                \
    {                                                                        \
        .pre = text, .status = kind, .message = "t.json: pre_tokenizer" what \
    }
#define TOKEN(flags) ADDED("{\"id\":256,\"content\":\"<x>\"," flags "}")

/* Every member of the file, wrong and unknown. */
static const BpeCase members[] = {
    ROOT("\"version\":1", HS_EUNSUPPORTED, "only version \"1.0\" is supported"),
    ROOT("\"version\":\"2.0\"", HS_EUNSUPPORTED, "only version \"1.0\" is supported"),
    ROOT("\"extra\":1", HS_EUNSUPPORTED, "member `extra` is not supported"),
    ROOT("\"decoder\":null,\"decoder\":null", HS_EFORMAT, "member `decoder` is there twice"),
    ROOT("\"normalizer\":{\"type\":\"NFC\",\"type\":\"NFD\"}", HS_EFORMAT,
         "normalizer NFD: member `type` is there twice"),
    ROOT("\"truncation\":7", HS_EFORMAT, "truncation must be an object or null"),
    ROOT("\"truncation\":false", HS_EFORMAT, "truncation must be an object or null"),
    ROOT("\"post_processor\":7", HS_EFORMAT, "post_processor must be an object or null"),
    ROOT("\"post_processor\":{\"type\":\"X\"}", HS_EUNSUPPORTED, "post_processor X is not supported"),
    ROOT("\"normalizer\":7", HS_EFORMAT, "normalizer must be an object or null"),
    ROOT("\"normalizer\":\"NFC\"", HS_EFORMAT, "normalizer must be an object or null"),
    ROOT("\"normalizer\":{}", HS_EFORMAT, "normalizer: member `type` is missing"),
    ROOT("\"normalizer\":{\"type\":\"NFC\",\"x\":1}", HS_EUNSUPPORTED, "normalizer NFC: member `x` is not supported"),
    ROOT("\"normalizer\":{\"type\":\"Prepend\"}", HS_EFORMAT, "normalizer Prepend: member `prepend` is missing"),
    ROOT("\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":\"a\"}", HS_EFORMAT,
         "normalizer Replace: member `pattern` must be {\"Regex\": \"...\"} or {\"String\": \"...\"}"),
    ROOT("\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"\"}}", HS_EUNSUPPORTED,
         "normalizer Replace: an empty String matches nothing"),
    ROOT("\"normalizer\":{\"type\":\"Sequence\"}", HS_EFORMAT,
         "normalizer Sequence: member `normalizers` must be a list"),
    ROOT("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[3]}", HS_EFORMAT,
         "normalizer must be an object or null"),
    ROOT("\"normalizer\":{\"type\":\"Precompiled\"}", HS_EUNSUPPORTED,
         "normalizer Precompiled is not supported; NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace and Sequence are"),
    ROOT("\"decoder\":7", HS_EFORMAT, "decoder must be an object or null"),
    ROOT("\"decoder\":{\"type\":\"WordPiece\"}", HS_EUNSUPPORTED,
         "decoder WordPiece is not supported; ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence "
         "are"),
    ROOT("\"decoder\":{\"type\":\"Fuse\",\"x\":1}", HS_EUNSUPPORTED, "decoder Fuse: member `x` is not supported"),
    ROOT("\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}", HS_EFORMAT,
         "decoder Strip: member `content` must be one character"),
    ROOT("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}", HS_EFORMAT,
         "decoder Strip: member `start` must not be negative"),
    ROOT("\"decoder\":{\"type\":\"Sequence\",\"decoders\":{}}", HS_EFORMAT,
         "decoder Sequence: member `decoders` must be a list"),
    { .model = ",\"extra\":1", .status = HS_EUNSUPPORTED, .message = "t.json: model: member `extra` is not supported" },
    { .model = ",\"byte_fallback\":1",
      .status = HS_EFORMAT,
      .message = "t.json: model: member `byte_fallback` must be true or false" },
    { .model = ",\"fuse_unk\":\"no\"",
      .status = HS_EFORMAT,
      .message = "t.json: model: member `fuse_unk` must be true or false" },
    { .model = ",\"ignore_merges\":1",
      .status = HS_EFORMAT,
      .message = "t.json: model: member `ignore_merges` must be true or false" },
    { .model = ",\"unk_token\":3",
      .status = HS_EFORMAT,
      .message = "t.json: model.unk_token must be a string or null" },
    { .model = ",\"unk_token\":\"<q>\"",
      .status = HS_EFORMAT,
      .message = "t.json: model.unk_token \"<q>\" is not in model.vocab" },
    { .model = ",\"dropout\":\"x\"",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: model.dropout is not supported: set it to null" },
    { .model = ",\"continuing_subword_prefix\":0",
      .status = HS_EUNSUPPORTED,
      .message = "t.json: model.continuing_subword_prefix is not supported" },
    { .root = TOKEN("\"lstrip\":1"),
      .status = HS_EFORMAT,
      .message = "t.json: added token \"<x>\": member `lstrip` must be true or false" },
    { .root = TOKEN("\"x\":1"),
      .status = HS_EUNSUPPORTED,
      .message = "t.json: added_tokens: member `x` is not supported" },
    { .root = ADDED("{\"id\":300,\"content\":\"<x>\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: added token \"<x>\" has id 300, but the one that follows the vocabulary and the added tokens "
                 "before it is 256" },
    { .root = ADDED("{\"id\":256,\"content\":\"<x>\"},{\"id\":256,\"content\":\"<x>\"}"),
      .status = HS_EFORMAT,
      .message = "t.json: added token \"<x>\" is there twice" },
    PRE("7", HS_EFORMAT, " must be an object or null"),
    PRE("{\"type\":\"BertPreTokenizer\"}", HS_EUNSUPPORTED,
        " BertPreTokenizer is not supported; ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, "
        "CharDelimiterSplit, Metaspace and Sequence are"),
    PRE("{\"type\":\"ByteLevel\",\"add_prefix_space\":null}", HS_EFORMAT,
        " ByteLevel: member `add_prefix_space` must be true or false"),
    PRE("{\"type\":\"Sequence\",\"pretokenizers\":7}", HS_EFORMAT, " Sequence: member `pretokenizers` must be a list"),
    PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}", HS_EUNSUPPORTED,
        " Digits: ByteLevel must come once, and last"),
    PRE("{\"type\":\"Digits\",\"individual_digits\":\"yes\"}", HS_EFORMAT,
        " Digits: member `individual_digits` must be true or false"),
    PRE("{\"type\":\"Metaspace\"}", HS_EFORMAT, " Metaspace: member `replacement` must be one character"),
    PRE("{\"type\":\"Metaspace\",\"replacement\":\"__\"}", HS_EFORMAT,
        " Metaspace: member `replacement` must be one character"),
    PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}", HS_EFORMAT,
        " Metaspace: member `prepend_scheme` must be always, first or never"),
    PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false}",
        HS_EFORMAT, " Metaspace: add_prefix_space is false, so prepend_scheme must be never or left out, but is first"),
    PRE(SPLIT("\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"removed\""), HS_EFORMAT,
        " Split: there is no behavior removed; there are Isolated, Removed, MergedWithPrevious, MergedWithNext and "
        "Contiguous"),
    PRE(SPLIT("\"pattern\":\"a\",\"behavior\":\"Isolated\""), HS_EFORMAT,
        " Split: member `pattern` must be {\"Regex\": \"...\"} or {\"String\": \"...\"}"),
    PRE(REGEX("[\xF0\x91\xBC\x84]"), HS_EUNSUPPORTED,
        " Split: a character that came after Unicode 14 in an expression is not supported"),
};

static void expect_refused(const BpeCase *c)
{
    char *json = tokenizer_json(c->vocab ? c->vocab : "", c->merges ? c->merges : "", c->model ? c->model : "",
                                c->pre ? c->pre : PRE_GPT2, c->root ? c->root : "");
    HsTokenizer *tokenizer;
    HsStatus status = hs_tokenizer_parse("t.json", json, strlen(json), &tokenizer);
    cr_expect_eq(status, c->status, "%s: %s", hs_status_name(status), c->message);
    cr_expect_str_eq(hs_error_message(), c->message);
    cr_expect_null(tokenizer);
    free(json);
}

Test(malformed_tokenizer, files_are_refused_with_the_reason)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        HsTokenizer *tokenizer;
        HsStatus status = hs_tokenizer_parse("t.json", files[i].text, strlen(files[i].text), &tokenizer);
        cr_expect_eq(status, files[i].status, "%s: %s", hs_status_name(status), files[i].text);
        cr_expect_str_eq(hs_error_message(), files[i].message);
        cr_expect_null(tokenizer);
    }
}

Test(malformed_tokenizer, parts_are_refused_by_name)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        expect_refused(&parts[i]);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        expect_refused(&members[i]);
}

Test(malformed_tokenizer, text_that_is_no_json_is_refused)
{
    static const char *const texts[] = {
        "", "{", "{\"model\":", "\xFF", "{\"model\": {}} x", "{\"model\": \"\\u0000\"}"
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        HsTokenizer *tokenizer;
        cr_expect_eq(hs_tokenizer_parse("t.json", texts[i], strlen(texts[i]), &tokenizer), HS_EFORMAT, "%s", texts[i]);
        cr_expect_eq(strncmp(hs_error_message(), "t.json: ", 8), 0, "%s", hs_error_message());
    }
}

Test(malformed_tokenizer, missing_files_are_named)
{
    HsTokenizer *tokenizer;
    cr_expect_eq(hs_tokenizer_create("bpe", "no/such.json", NULL, 0, &tokenizer), HS_EIO);
    cr_expect_not_null(strstr(hs_error_message(), "no/such.json"));
    cr_expect_eq(hs_tokenizer_create("bpe", NULL, NULL, 0, &tokenizer), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "tokenizer.kind: bpe needs tokenizer.path, a Hugging Face tokenizer.json");
}
