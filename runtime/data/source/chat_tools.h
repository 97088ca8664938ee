/* SPDX-License-Identifier: MIT
 *
 * Tools in conversations, as the published templates of Qwen2.5 and Llama 3.1 render them: what is offered, calls by the
 * assistant, results.
 *
 *     qwen2.5    SYSTEM\n\n# Tools ... <tools>\nTOOL ...\n</tools> ...     behind the system message's content
 *                CONTENT\n<tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>      any number of calls
 *                <|im_start|>user\n<tool_response>\nRESULT\n</tool_response><|im_end|>\n   one frame for several results
 *     llama3.1   Environment: ipython\n in front of the dates; Given the following functions ... TOOL\n\n ... in front of
 *                the first message of the user, TOOL over several lines
 *                {"name": "NAME", "parameters": ARGUMENTS}      one call; the content of its message is not rendered
 *                <|start_header_id|>ipython<|end_header_id|>\n\nRESULT<|eot_id|>        a result as JSON, a text quoted
 *
 * Private to the chat_*.c files.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_TOOLS_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_TOOLS_H

#include "runtime/data/source/chat.h"

/* Text around the tools that are offered, each between `before` and `after`. */
typedef struct HsChatToolsText {
    const char *head, *before, *after, *tail;
} HsChatToolsText;

typedef struct HsChatToolForm {
    const char *environment;             /* what the system message begins with; NULL: nothing */
    const HsChatToolsText *system_start; /* where the tools stand: behind that, in the place of user_start; */
    const HsChatToolsText *system_end;   /* behind the system message's content; */
    const HsChatToolsText *user_start;   /* in front of the first message of the user.  NULL: not there */
    int indent;                          /* of a tool's JSON; 0: on one line */
    bool puts_none;                      /* an empty list of tools gets this text too */

    bool keeps_content;  /* of a message with calls */
    bool calls_once;     /* one call a message at most */
    bool needs_function; /* a call is {"function": {...}}; false: what is in it may stand alone */
    const char *call_before, *call_between, *call_after; /* NAME stands before, ARGUMENTS behind `between` */

    const char *result_open, *result_before, *result_after, *result_close, *result_behind; /* the last is not counted */
    bool joins_results; /* several that follow one another are opened and closed once */
    bool results_as_json;
    bool has_ipython; /* the role `ipython` is `tool`'s other name */
} HsChatToolForm;
extern const HsChatToolForm hs_chat_qwen_tools, hs_chat_llama_tools;

/* How many calls of a message have a string as their arguments. */
int64_t hs_chat_quoted_arguments(const HsChatMessage *message);

/* What is put was read by chat_calls.h.  errors: HS_ENOMEM */
HsStatus hs_chat_put_tools(const HsChatToolsText *around, int indent, const HsJson *list, HsBytes *out);
HsStatus hs_chat_put_calls(const HsChatToolForm *form, const HsChatMessage *message, HsBytes *out);
HsStatus hs_chat_put_result(const HsChatToolForm *form, const HsChatMessage *message, HsBytes *out);

#endif
