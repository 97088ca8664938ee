/* SPDX-License-Identifier: MIT
 *
 * See chat_tools.h.
 */
#include "runtime/data/source/chat_tools.h"

#include "runtime/data/source/chat_json.h"

static const HsChatToolsText qwen_text = {
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function "
    "signatures within <tools></tools> XML tags:\n<tools>",
    "\n", "",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>"
};

#define LLAMA_FORMAT                                                                                              \
    "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}." \
    "Do not use variables.\n\n"

static const HsChatToolsText llama_system_text = {
    "You have access to the following functions. To call a function, please respond with JSON for a function "
    "call." LLAMA_FORMAT,
    "", "\n\n", ""
};

static const HsChatToolsText llama_user_text = {
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    "answers the given prompt.\n\n" LLAMA_FORMAT,
    "", "\n\n", ""
};

const HsChatToolForm hs_chat_qwen_tools = {
    .system_end = &qwen_text,
    .keeps_content = true,
    .call_before = "<tool_call>\n{\"name\": \"",
    .call_between = "\", \"arguments\": ",
    .call_after = "}\n</tool_call>",
    .result_open = "<|im_start|>user",
    .result_before = "\n<tool_response>\n",
    .result_after = "\n</tool_response>",
    .result_close = "<|im_end|>",
    .result_behind = "\n",
    .joins_results = true,
};

const HsChatToolForm hs_chat_llama_tools = {
    .environment = "Environment: ipython\n",
    .system_start = &llama_system_text,
    .user_start = &llama_user_text,
    .indent = 4,
    .puts_none = true,
    .calls_once = true,
    .needs_function = true,
    .call_before = "{\"name\": \"",
    .call_between = "\", \"parameters\": ",
    .call_after = "}",
    .result_open = "<|start_header_id|>ipython<|end_header_id|>\n\n",
    .result_before = "",
    .result_after = "",
    .result_close = "<|eot_id|>",
    .result_behind = "",
    .results_as_json = true,
    .has_ipython = true,
};

static HsStatus put(HsBytes *out, const char *text)
{
    return hs_bytes_append(out, text, strlen(text));
}

HsStatus hs_chat_put_tools(const HsChatToolsText *around, int indent, const HsJson *list, HsBytes *out)
{
    HS_TRY(put(out, around->head));
    for (const HsJson *tool = hs_json_first(list); tool; tool = hs_json_next(tool)) {
        HS_TRY(put(out, around->before));
        HS_TRY(hs_chat_put_json(tool, indent, out));
        HS_TRY(put(out, around->after));
    }
    return put(out, around->tail);
}

/* Each call of a list, or the one that is none. */
static const HsJson *first_call(const HsJson *calls)
{
    return hs_json_is_array(calls) ? hs_json_first(calls) : calls;
}

static const HsJson *next_call(const HsJson *calls, const HsJson *call)
{
    return hs_json_is_array(calls) ? hs_json_next(call) : NULL;
}

static const HsJson *function_of(const HsJson *call)
{
    const HsJson *const function = hs_json_get(call, "function");
    return function ? function : call;
}

int64_t hs_chat_quoted_arguments(const HsChatMessage *message)
{
    int64_t count = 0;
    for (const HsJson *call = first_call(message->calls); call; call = next_call(message->calls, call))
        count += hs_json_is_string(hs_json_get(function_of(call), "arguments"));
    return count;
}

/* The name is put as it is: the templates escape nothing in it. */
static HsStatus put_call(const HsChatToolForm *form, const HsJson *function, HsBytes *out)
{
    HS_TRY(put(out, form->call_before));
    HS_TRY(put(out, hs_json_string(hs_json_get(function, "name"))));
    HS_TRY(put(out, form->call_between));
    HS_TRY(hs_chat_put_json(hs_json_get(function, "arguments"), 0, out));
    return put(out, form->call_after);
}

HsStatus hs_chat_put_calls(const HsChatToolForm *form, const HsChatMessage *message, HsBytes *out)
{
    bool follows = form->keeps_content && message->length > 0;
    if (follows)
        HS_TRY(hs_bytes_append(out, message->text, message->length));
    for (const HsJson *call = first_call(message->calls); call; call = next_call(message->calls, call)) {
        HS_TRY(put(out, follows ? "\n" : ""));
        HS_TRY(put_call(form, function_of(call), out));
        follows = true;
    }
    return HS_OK;
}

HsStatus hs_chat_put_result(const HsChatToolForm *form, const HsChatMessage *message, HsBytes *out)
{
    if (message->value)
        return hs_chat_put_json(message->value, 0, out);
    return form->results_as_json ? hs_chat_put_json_string(message->text, message->length, out)
                                 : hs_bytes_append(out, message->text, message->length);
}
