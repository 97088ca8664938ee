/* SPDX-License-Identifier: MIT
 *
 * See chat_calls.h.
 */
#include "runtime/data/source/chat_calls.h"

#include <stdio.h>
#include <string.h>

#include "runtime/data/source/chat_marks.h"
#include "runtime/data/source/chat_template.h"

#define SETTING "tools_in_user_message"

static bool has_json(const HsJson *message)
{
    const HsJson *const content = hs_json_get(message, "content");
    return hs_json_get(message, "tool_calls") || hs_json_is_object(content) || hs_json_is_array(content);
}

bool hs_chat_has_json(const HsJson *row)
{
    bool found = hs_json_get(row, "tools") != NULL;
    for (const HsJson *message = hs_json_first(hs_json_get(row, "messages")); message && !found;
         message = hs_json_next(message))
        found = has_json(message);
    for (const HsJson *message = hs_json_first(hs_json_get(row, "conversations")); message && !found;
         message = hs_json_next(message))
        found = has_json(message);
    return found;
}

static HsStatus refuse_template(const char *place, const char *what, const HsChatTemplate *made_by)
{
    return hs_fail(HS_EFORMAT,
                   "%s: %s: the template %s does not render tools: name qwen2.5 or llama3.1 as tokenizer.chat_template "
                   "if the model is one of these, else write what tools are and what they say into the texts, or leave "
                   "it out",
                   place, what, made_by->name);
}

/* JSON that is written as a string; numbers keep their spelling. */
static HsStatus parse_text(const char *place, const char *key, const char *text, HsJson **parsed)
{
    char where[700];
    snprintf(where, sizeof where, "%s: `%s`", place, key);
    HS_TRY(hs_json_parse_python(where, text, strlen(text), parsed));
    HsStatus status = hs_json_keep_spelling(*parsed, text, strlen(text));
    if (status != HS_OK) {
        hs_json_destroy(*parsed);
        *parsed = NULL;
    }
    return status;
}

static HsStatus read_list(const char *place, const HsJson *list)
{
    int index = 0;
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: `tools` must be a list of objects, or that list written as a string", place);
    for (const HsJson *tool = hs_json_first(list); tool; tool = hs_json_next(tool), index++)
        if (!hs_json_is_object(tool))
            return hs_fail(HS_EFORMAT,
                           "%s: tools[%d]: must be an object such as {\"type\": \"function\", \"function\": {\"name\": "
                           "\"...\", \"description\": \"...\", \"parameters\": {...}}}",
                           place, index);
    return HS_OK;
}

static HsStatus read_settings(const char *place, const HsJson *row, const HsChatTemplate *made_by, HsChatTools *tools)
{
    const HsJson *const settings = hs_json_get(row, "chat_template_kwargs");
    if (hs_chat_is_nothing(settings))
        return HS_OK;
    for (const HsJson *setting = hs_json_first(settings); setting; setting = hs_json_next(setting))
        if (!hs_json_is_object(settings) || strcmp(hs_json_key(setting), SETTING) != 0)
            return hs_fail(HS_EFORMAT,
                           "%s: `chat_template_kwargs`: templates take no settings here but " SETTING
                           ", true or false: leave the others out",
                           place);
    const HsJson *const value = hs_json_get(settings, SETTING);
    if (!hs_json_is_bool(value))
        return hs_fail(HS_EFORMAT, "%s: `chat_template_kwargs`: " SETTING " must be true or false", place);
    if (made_by && !(made_by->tools && made_by->tools->user_start))
        return hs_fail(HS_EFORMAT, "%s: `chat_template_kwargs`: the template %s has no " SETTING ": leave it out",
                       place, made_by->name);
    tools->in_system = !hs_json_is_true(value);
    return HS_OK;
}

HsStatus hs_chat_read_tools(const char *place, const HsJson *row, const HsChatTemplate *made_by, HsJson **parsed,
                            HsChatTools *tools)
{
    const HsJson *node = hs_json_get(row, "tools");
    const char *const text = hs_json_string(node);
    *parsed = NULL;
    *tools = (HsChatTools){ 0 };
    HS_TRY(read_settings(place, row, made_by, tools));
    if (!hs_chat_is_there(node) || (text && text[0] == '\0'))
        return HS_OK;
    if (text) {
        HS_TRY(parse_text(place, "tools", text, parsed));
        node = *parsed;
    }
    HsStatus status = read_list(place, node);
    if (status == HS_OK && made_by && !made_by->tools && hs_json_count(node) > 0)
        status = refuse_template(place, "`tools`", made_by);
    if (status == HS_OK)
        tools->list = node;
    return status;
}

/* The templates write a name as it is, and have no use of what is not there. */
static HsStatus read_call(const char *where, const HsJson *call, bool needs_function)
{
    const HsJson *const wrapped = hs_json_get(call, "function"), *const type = hs_json_get(call, "type");
    const HsJson *const function = wrapped || needs_function ? wrapped : call;
    const char *const kind = hs_json_string(type);
    if (!hs_json_is_object(function))
        return hs_fail(HS_EFORMAT,
                       "%s: must be an object such as {\"type\": \"function\", \"function\": {\"name\": \"...\", "
                       "\"arguments\": {...}}}",
                       where);
    if (hs_chat_is_there(type) && (!kind || strcmp(kind, "function") != 0))
        return hs_fail(HS_EFORMAT, "%s: a call of type `%.40s` is not supported: only function is", where,
                       kind ? kind : "?");
    if (!hs_json_string(hs_json_get(function, "name")))
        return hs_fail(HS_EFORMAT, "%s: `name` must be a string", where);
    if (!hs_json_get(function, "arguments"))
        return hs_fail(HS_EFORMAT, "%s: `arguments` is missing: write {} where there are none", where);
    return HS_OK;
}

HsStatus hs_chat_read_calls(const char *place, const HsJson *calls, const HsChatTemplate *made_by)
{
    const HsChatToolForm *const form = made_by ? made_by->tools : NULL;
    char where[700];
    int index = 0;
    if (made_by && !form)
        return refuse_template(place, "`tool_calls`", made_by);
    if (!hs_json_is_array(calls))
        return hs_fail(HS_EFORMAT, "%s: `tool_calls` must be a list", place);
    if (form && form->calls_once && hs_json_count(calls) > 1)
        return hs_fail(
            HS_EFORMAT,
            "%s: `tool_calls` has %d calls: the template %s renders one a message: write a message for each, "
            "with its result behind it",
            place, hs_json_count(calls), made_by->name);
    for (const HsJson *call = hs_json_first(calls); call; call = hs_json_next(call), index++) {
        snprintf(where, sizeof where, "%s: tool_calls[%d]", place, index);
        HS_TRY(read_call(where, call, form && form->needs_function));
    }
    return HS_OK;
}

HsStatus hs_chat_parse_calls(const char *place, const char *text, const HsChatTemplate *made_by, HsJson **parsed)
{
    const HsChatToolForm *const form = made_by ? made_by->tools : NULL;
    char where[700];
    *parsed = NULL;
    if (made_by && !form)
        return refuse_template(place, "`function_call`", made_by);
    HS_TRY(parse_text(place, "function_call", text, parsed));
    const bool several = hs_json_is_array(*parsed);
    if (several && hs_json_count(*parsed) == 0)
        return hs_fail(HS_EFORMAT, "%s: `function_call` is an empty list: leave it out", place);
    if (several && form && form->calls_once && hs_json_count(*parsed) > 1)
        return hs_fail(
            HS_EFORMAT,
            "%s: `function_call` has %d calls: the template %s renders one a message: write a message for each", place,
            hs_json_count(*parsed), made_by->name);
    snprintf(where, sizeof where, "%s: `function_call`", place);
    for (const HsJson *call = several ? hs_json_first(*parsed) : *parsed; call;
         call = several ? hs_json_next(call) : NULL)
        HS_TRY(read_call(where, call, false));
    return HS_OK;
}

HsStatus hs_chat_check_result(const char *place, const char *role, const HsChatTemplate *made_by)
{
    char what[64];
    snprintf(what, sizeof what, "role `%s`", role);
    if (made_by && !made_by->tools)
        return refuse_template(place, what, made_by);
    if (made_by && !made_by->tools->has_ipython && strcmp(role, "ipython") == 0)
        return hs_fail(HS_EFORMAT, "%s: the template %s has no role `ipython`: write `tool`", place, made_by->name);
    return HS_OK;
}

bool hs_chat_takes_value(const HsJson *content, const HsChatTemplate *made_by)
{
    return (hs_json_is_object(content) || hs_json_is_array(content)) &&
           (!made_by || (made_by->tools && made_by->tools->results_as_json));
}
