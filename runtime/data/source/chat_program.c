/* SPDX-License-Identifier: MIT
 *
 * A chat template as a program of Jinja: what hs_chat_render does, from the same row, for folders that others read.
 */
#include "runtime/data/source/chat_template.h"

#include "runtime/io/files.h"

/* A string of Jinja. */
static void put_string(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else {
            if (*text == '\'' || *text == '\\')
                fputc('\\', out);
            fputc(*text, out);
        }
    }
    fputc('\'', out);
}

/* A message of one role: its frame around `content`, which is put as it is. */
static void put_message(const HsChatTemplate *made_by, HsChatRole role, const char *content, FILE *out)
{
    fputs("{{ ", out);
    put_string(made_by->before[role], out);
    fprintf(out, " + %s + ", content);
    if (made_by->end[role])
        put_string(made_by->end[role], out);
    else
        fputs("eos_token", out);
    fputs(" + ", out);
    put_string(made_by->after[role], out);
    fputs(" }}", out);
}

/* {{ TEXT }}, where there is one. */
static void put_text(const char *text, FILE *out)
{
    if (!text[0])
        return;
    fputs("{{ ", out);
    put_string(text, out);
    fputs(" }}", out);
}

static void put_default_system(const HsChatTemplate *made_by, FILE *out)
{
    char *content = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&content, &length);
    if (stream) {
        fputs(made_by->tools ? "of.environment + " : "", stream);
        put_string(made_by->system_start, stream);
        fputs(made_by->tools ? " + of.before + " : " + ", stream);
        put_string(made_by->system, stream);
        fputs(made_by->tools ? " + of.after" : "", stream);
    }
    if (hs_close_text(stream, &content) == HS_OK) {
        fputs("{% if messages[0].role != 'system' %}", out);
        put_message(made_by, HS_CHAT_SYSTEM, content, out);
        fputs("{% endif %}", out);
    }
    free(content);
}

/* ---- tools: the form of chat_tools.h ---- */

/* of.NAME becomes the text of all tools. */
static void put_tools_text(const HsChatToolsText *around, int indent, const char *name, FILE *out)
{
    fprintf(out, "{%% set of.%s = ", name);
    put_string(around->head, out);
    fputs(" %}{% for tool in tools %}", out);
    fprintf(out, "{%% set of.%s = of.%s + ", name, name);
    put_string(around->before, out);
    fputs(" + tool | tojson", out);
    if (indent)
        fprintf(out, "(indent=%d)", indent);
    fputs(" + ", out);
    put_string(around->after, out);
    fprintf(out, " %%}{%% endfor %%}{%% set of.%s = of.%s + ", name, name);
    put_string(around->tail, out);
    fputs(" %}", out);
}

/* What stands in and behind the first system message, and in the first message behind it. */
static void put_offer(const HsChatToolForm *form, FILE *out)
{
    fputs("{% set of = namespace(environment='', before='', after='', first='') %}", out);
    fprintf(out, "{%% if tools%s %%}", form->puts_none ? " is defined and tools is not none" : "");
    if (form->environment) {
        fputs("{% set of.environment = ", out);
        put_string(form->environment, out);
        fputs(" %}", out);
    }
    if (form->system_end)
        put_tools_text(form->system_end, form->indent, "after", out);
    if (form->user_start) {
        fputs("{% if tools_in_user_message is defined and not tools_in_user_message %}", out);
        put_tools_text(form->system_start, form->indent, "before", out);
        fputs("{% else %}{% set behind = messages[1:] if messages[0].role == 'system' else messages %}"
              "{% if not behind or behind[0].role != 'user' %}"
              "{{ raise_exception('tools stand in the first message, which must be the user\\'s') }}{% endif %}",
              out);
        put_tools_text(form->user_start, form->indent, "first", out);
        fputs("{% endif %}", out);
    }
    fputs("{% endif %}", out);
}

static void put_result(const HsChatToolForm *form, FILE *out)
{
    fprintf(out, "{%% if message.role == 'tool'%s %%}", form->has_ipython ? " or message.role == 'ipython'" : "");
    if (form->joins_results)
        fputs("{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}", out);
    put_text(form->result_open, out);
    fputs(form->joins_results ? "{% endif %}" : "", out);
    put_text(form->result_before, out);
    fprintf(out, "{{ message.content%s }}", form->results_as_json ? " | tojson" : "");
    put_text(form->result_after, out);
    if (form->joins_results)
        fputs("{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}", out);
    put_text(form->result_close, out);
    put_text(form->result_behind, out);
    fputs(form->joins_results ? "{% endif %}" : "", out);
}

static void put_calls(const HsChatTemplate *made_by, FILE *out)
{
    const HsChatToolForm *const form = made_by->tools;
    fputs("{% elif message.tool_calls %}", out);
    put_text(made_by->before[HS_CHAT_ASSISTANT], out);
    if (form->calls_once)
        fputs("{% if message.tool_calls | length > 1 %}{{ raise_exception('one call a message') }}{% endif %}", out);
    if (form->keeps_content)
        fputs("{% if message.content %}{{ message.content }}{% endif %}", out);
    fprintf(out,
            "{%% for call in message.tool_calls %%}{%% if not loop.first%s %%}{{ '\\n' }}{%% endif %%}"
            "{%% set function = call.function if call.function is defined else call %%}{{ ",
            form->keeps_content ? " or message.content" : "");
    put_string(form->call_before, out);
    fputs(" + function.name + ", out);
    put_string(form->call_between, out);
    fputs(" + function.arguments | tojson + ", out);
    put_string(form->call_after, out);
    fputs(" }}{% endfor %}{{ ", out);
    put_string(made_by->end[HS_CHAT_ASSISTANT], out);
    fputs(" + ", out);
    put_string(made_by->after[HS_CHAT_ASSISTANT], out);
    fputs(" }}", out);
}

/* ---- the whole ---- */

/* `content`, with what its place adds to it. */
static void put_content(const HsChatTemplate *made_by, FILE *out)
{
    fprintf(out, "{%% set content = message.content%s %%}", made_by->trims ? " | trim" : "");
    if (made_by->tools)
        fputs("{% if loop.index0 == (1 if messages[0].role == 'system' else 0) %}"
              "{% set content = of.first + content %}{% endif %}"
              "{% if loop.first and message.role == 'system' %}{% set content = of.environment + ",
              out);
    else if (made_by->system_start[0])
        fputs("{% if loop.first and message.role == 'system' %}{% set content = ", out);
    else
        return;
    put_string(made_by->system_start, out);
    fputs(made_by->tools ? " + of.before + content + of.after" : " + content", out);
    fputs(" %}{% endif %}", out);
}

static void put_program(const HsChatTemplate *made_by, bool has_begin, FILE *out)
{
    static const char *const roles[HS_CHAT_ROLES] = { "system", "user", "assistant" };
    if (made_by->begin)
        put_text(made_by->begin, out);
    else if (has_begin)
        fputs("{{ bos_token }}", out);
    if (made_by->tools)
        put_offer(made_by->tools, out);
    if (made_by->system)
        put_default_system(made_by, out);
    fputs("{% for message in messages %}", out);
    if (made_by->tools) {
        put_result(made_by->tools, out);
        put_calls(made_by, out);
        fputs("{% else %}", out);
    }
    put_content(made_by, out);
    for (int role = 0; role < HS_CHAT_ROLES; role++) {
        fprintf(out, "{%% %sif message.role == '%s' %%}", role == 0 ? "" : "el", roles[role]);
        put_message(made_by, (HsChatRole)role, "content", out);
    }
    fprintf(out,
            "{%% else %%}{{ raise_exception('no role but system, user and assistant') }}{%% endif %%}%s{%% endfor %%}",
            made_by->tools ? "{% endif %}" : "");
    fputs("{% if add_generation_prompt %}", out);
    put_text(made_by->before[HS_CHAT_ASSISTANT], out);
    fputs("{% endif %}", out);
}

char *hs_chat_program(const HsChatTemplate *made_by, bool has_begin)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (stream)
        put_program(made_by, has_begin, stream);
    return hs_close_text(stream, &text) == HS_OK ? text : NULL;
}
