/* SPDX-License-Identifier: MIT
 *
 * Conversations as text, by named templates that render to the byte what transformers renders from the published ones.
 *
 *     messages -> [frame] [answer + end token] [frame] [answer + end token] ...      the loss counts answers alone,
 *                                                                     or what the messages' own marks say to count
 *
 *     chatml     <|im_start|>ROLE\nCONTENT<|im_end|>\n                                 content as it is
 *     qwen2      the same, after "You are a helpful assistant." where no system message comes first
 *     qwen2.5    the same, after "You are Qwen, ..." there
 *     llama3     <|begin_of_text|>, then <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>   content trimmed
 *     llama3.1   the same, with a system message first whatever comes, which begins with two fixed dates
 *     alpaca     SYSTEM\n\n### Instruction:\nUSER\n\n### Response:\nASSISTANT</s>\n\n  content trimmed, roles in turns
 *     gemma      <bos>, then <start_of_turn>ROLE\nCONTENT<end_of_turn>\n, the assistant as model   content trimmed, roles
 *                in turns, SYSTEM\n\n in front of the first CONTENT (Gemma 3);  gemma2 (and 1): no system message
 *     smollm3    as chatml, behind a header with a fixed date that has the system message (chat_header.c)
 *     phi3       <|ROLE|>\nCONTENT<|end|>\n, and <|endoftext|> at the end;  phi3.5: no frame for an empty system message
 *     phi4-mini  the same without newlines
 *     granite    <|start_of_role|>ROLE<|end_of_role|>CONTENT<|end_of_text|>\n   granite (3.1 to 3.3): a system message
 *                comes first, since published ones are dated without;  granite3.0: none need
 *     mistral-v3 <s>, then [INST] USER[/INST] ANSWER</s>    answer trimmed, roles in turns, SYSTEM\n\n in front of USER
 *                where USER is last, and else nowhere;  ministral: the same without the space behind [INST];
 *                mistral-nemo: nor the one before ANSWER, which is not trimmed
 *     mistral-v7-tekken   <s>, then [SYSTEM_PROMPT]SYSTEM[/SYSTEM_PROMPT], which comes first, [INST]USER[/INST]ANSWER</s>
 *
 * qwen2.5 and llama3.1 render tools, calls of them and their results too: chat_tools.h.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_H

#include "runtime/data/source/source.h"
#include "runtime/data/tokenizer/bytes.h"

/* Those of every template, and a tool's: its results stand in frames that the template's form of tools has. */
typedef enum HsChatRole {
    HS_CHAT_SYSTEM,
    HS_CHAT_USER,
    HS_CHAT_ASSISTANT,
    HS_CHAT_ROLES,
    HS_CHAT_TOOL = HS_CHAT_ROLES
} HsChatRole;

typedef struct HsChatMessage {
    HsChatRole role;
    const char *text;
    size_t length;
    bool counted; /* by the loss */
    /* Of an assistant: one {"name": ..., "arguments": ...} or a list, each also as {"function": it}.  NULL: no calls */
    const HsJson *calls;
    const HsJson *value; /* of a tool: a result that is no text; NULL: it is one */
} HsChatMessage;

/* Tools that a conversation offers. */
typedef struct HsChatTools {
    const HsJson *list; /* of objects; NULL: none are given, which an empty list is not */
    bool in_system; /* where the template would put them into the first message of the user: tools_in_user_message */
} HsChatTools;

typedef struct HsChatTemplate HsChatTemplate;
enum { HS_CHAT_TOKEN_BYTES = 128 };
/* NULL: there is none of that name (auto is none). */
const HsChatTemplate *hs_chat_template_get(const char *name);

/* Texts of the tokenizer's own tokens, which some templates write; "" where it has none. */
typedef struct HsChatTokens {
    char begin[HS_CHAT_TOKEN_BYTES], end[HS_CHAT_TOKEN_BYTES];
} HsChatTokens;

typedef struct HsChatText {
    HsBytes text;
    struct HsChatSpan {
        size_t begin, end;
    } * counted; /* messages, with their end tokens */
    size_t counted_count, counted_capacity;
} HsChatText;
void hs_chat_text_deinit(HsChatText *text);

/* Appends to an empty *text.  tools NULL: none.  answer_next: with the frame that an answer comes after
 * (add_generation_prompt).  Tools, calls and results only where the template has a form of them (hs_chat_has_tools).
 * errors: HS_EFORMAT where the template has no such order of roles, HS_ENOMEM */
HsStatus hs_chat_render(const HsChatTemplate *made_by, const HsChatTokens *tokens, const HsChatTools *tools,
                        const HsChatMessage *messages, int64_t count, bool answer_next, HsChatText *text);

/* Of which messages the template leaves contents out, for a warning; "": of none. */
const char *hs_chat_left_out(const HsChatTemplate *made_by);
/* Whether it leaves out the system message of this conversation. */
bool hs_chat_leaves_out_system(const HsChatTemplate *made_by, const HsChatMessage *messages, int64_t count);

/* The token that ends an answer.  errors: HS_ECONFIG naming the template's tokens that the tokenizer lacks, and the
 * mend */
HsStatus hs_chat_end_token(const HsChatTemplate *made_by, const HsTokenizer *tokenizer, int32_t *end);
/* The template as a program of Jinja, for others to render with (chat_program.c); bos_token stands for begin-of-text,
 * where the tokenizer has one, and eos_token for end-of-text.  NULL without memory; the caller frees. */
char *hs_chat_program(const HsChatTemplate *made_by, bool has_begin);
/* What hs_chat_render takes. */
void hs_chat_tokens_read(const HsTokenizer *tokenizer, HsChatTokens *tokens);

/* A JSON object that holds a conversation.  NULL: it has none of the fields. */
const char *hs_chat_form(const HsJson *object);
/* Its pieces.  errors: HS_EFORMAT, HS_ECONFIG beginning with the place */
HsStatus hs_chat_document_add(const char *place, const HsJson *object, int64_t line, const HsSourceOptions *options,
                              HsCorpus *corpus);

/* Pieces [0, count) of a corpus, one conversation, tokenized as one text -> appended.  starts[i]: piece i's first
 * token; a token across a border belongs to the answer.  errors: the tokenizer's */
HsStatus hs_chat_encode(HsTokenizerSession *session, const char *corpus_text, const HsPiece *pieces, int64_t count,
                        HsTokens *tokens, int64_t *starts);
/* How many pieces the conversation has that begins with pieces[0]. */
int64_t hs_chat_piece_count(const HsPiece *pieces, int64_t most);

#endif
