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

/* What more is added to. */
static void put_sum(const char *text, FILE *out)
{
    put_string(text, out);
    fputs(" + ", out);
}

static void put_before(const HsChatTemplate *made_by, HsChatRole role, FILE *out)
{
    put_string(made_by->before[role], out);
    if (role == HS_CHAT_ASSISTANT && made_by->header) {
        fputs(" + (", out);
        put_string(made_by->header->quiet_start, out);
        fputs(" if of.quiet else '')", out);
    }
}

/* The first system message in front of the content of another, which has no frame. */
static void put_carried(const HsChatTemplate *made_by, FILE *out)
{
    fputs("(messages[0].content + ", out);
    put_string(made_by->system_behind, out);
    fprintf(out, " if messages[0].role == 'system' and %s else '') + ",
            made_by->system_place == HS_CHAT_SYSTEM_FIRST ? "loop.index0 == 1" : "loop.last");
}

/* A message of one role: its frame around `content`, which is put as it is. */
static void put_message(const HsChatTemplate *made_by, HsChatRole role, const char *content, FILE *out)
{
    const bool unframed = made_by->system_place == HS_CHAT_SYSTEM_FIRST || made_by->system_place == HS_CHAT_SYSTEM_LAST;
    fputs("{{ ", out);
    put_before(made_by, role, out);
    fputs(" + ", out);
    if (role == HS_CHAT_USER && unframed)
        put_carried(made_by, out);
    if (role == HS_CHAT_ASSISTANT && made_by->answer_start)
        put_sum(made_by->answer_start, out);
    fprintf(out, "%s + ", content);
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
        put_string(made_by->system_start ? made_by->system_start : "", stream);
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

/* ---- headers: HsChatHeader ---- */

static void put_header(const HsChatTemplate *made_by, FILE *out)
{
    const HsChatHeader *const header = made_by->header;
    fprintf(out,
            "{%% set of = namespace(said='', quiet=false, whole=false) %%}{%% if messages[0].role == 'system' %%}"
            "{%% set of.quiet = '%s' in messages[0].content %%}{%% set of.whole = '%s' in messages[0].content %%}"
            "{%% set of.said = messages[0].content.replace('%s', '').replace('%s', '').rstrip() %%}{%% endif %%}{{ ",
            header->quiet_mode, header->override, header->quiet_mode, header->mode);
    put_string(made_by->before[HS_CHAT_SYSTEM], out);
    fprintf(out, " }}{%% if of.whole %%}{{ of.said.replace('%s', '').rstrip() + ", header->override);
    put_sum(made_by->end[HS_CHAT_SYSTEM], out);
    put_string(made_by->after[HS_CHAT_SYSTEM], out);
    fputs(" }}{% else %}{{ ", out);
    put_string(header->head, out);
    fprintf(out, " + ('%s' if of.quiet else '%s') + ", header->quiet_mode, header->mode);
    put_sum(header->between, out);
    fputs("(of.said if of.said else ", out);
    put_string(header->quiet_instructions, out);
    fputs(" if of.quiet else ", out);
    put_string(header->instructions, out);
    fputs(") + ", out);
    put_string(header->tail, out);
    fputs(" }}{% endif %}", out);
}

/* ---- the whole ---- */

/* Off all contents; what differs by role is taken off in each one's place. */
static HsChatTrim common_trim(const HsChatTemplate *made_by)
{
    for (int role = 1; role < HS_CHAT_ROLES; role++)
        if (made_by->trims[role] != made_by->trims[0])
            return HS_CHAT_TRIM_NONE;
    return made_by->trims[0];
}

static const char *trimmed(HsChatTrim trim)
{
    return trim == HS_CHAT_TRIM_BLANKS ? " | trim" : trim == HS_CHAT_TRIM_LINES ? ".lstrip('\\n')" : "";
}

/* `content`, with what its place adds to it. */
static void put_content(const HsChatTemplate *made_by, FILE *out)
{
    fprintf(out, "{%% set content = message.content%s %%}", trimmed(common_trim(made_by)));
    if (made_by->tools)
        fputs("{% if loop.index0 == (1 if messages[0].role == 'system' else 0) %}"
              "{% set content = of.first + content %}{% endif %}"
              "{% if loop.first and message.role == 'system' %}{% set content = of.environment + ",
              out);
    else if (made_by->system_start)
        fputs("{% if loop.first and message.role == 'system' %}{% set content = ", out);
    else
        return;
    put_string(made_by->system_start ? made_by->system_start : "", out);
    fputs(made_by->tools ? " + of.before + content + of.after" : " + content", out);
    fputs(" %}{% endif %}", out);
}

/* One branch of the loop over messages. */
static void put_role(const HsChatTemplate *made_by, HsChatRole role, FILE *out)
{
    static const char *const names[HS_CHAT_ROLES] = { "system", "user", "assistant" };
    const HsChatTrim trim = made_by->trims[role] != common_trim(made_by) ? made_by->trims[role] : HS_CHAT_TRIM_NONE;
    const bool framed = role != HS_CHAT_SYSTEM || made_by->system_place == HS_CHAT_SYSTEM_FRAMED;
    const bool is_omitted = role == HS_CHAT_SYSTEM && made_by->omits_empty_system;
    char content[64];
    snprintf(content, sizeof content, "content%s", trimmed(trim));
    fprintf(out, "{%% %sif message.role == '%s'%s %%}", role == 0 ? "" : "el", names[role],
            framed                                            ? ""
            : made_by->system_place == HS_CHAT_SYSTEM_REFUSED ? " and false"
                                                              : " and loop.first");
    fputs(is_omitted ? "{% if content %}" : "", out);
    if (framed)
        put_message(made_by, role, content, out);
    fputs(is_omitted ? "{% endif %}" : "", out);
}

static void put_ending(const HsChatTemplate *made_by, FILE *out)
{
    fputs("{% if add_generation_prompt %}", out);
    if (made_by->header) {
        fputs("{{ ", out);
        put_before(made_by, HS_CHAT_ASSISTANT, out);
        fputs(" }}", out);
    } else
        put_text(made_by->before[HS_CHAT_ASSISTANT], out);
    if (made_by->close) {
        fputs("{% else %}", out);
        put_text(made_by->close, out);
    }
    fputs("{% endif %}", out);
}

static void put_program(const HsChatTemplate *made_by, bool has_begin, FILE *out)
{
    if (made_by->is_dated)
        fputs("{% if messages[0].role != 'system' %}{{ raise_exception('begin with a system message') }}{% endif %}",
              out);
    if (made_by->begin)
        put_text(made_by->begin, out);
    else if (has_begin)
        fputs("{{ bos_token }}", out);
    if (made_by->tools)
        put_offer(made_by->tools, out);
    if (made_by->system)
        put_default_system(made_by, out);
    if (made_by->header)
        put_header(made_by, out);
    fputs("{% for message in messages %}", out);
    if (made_by->tools) {
        put_result(made_by->tools, out);
        put_calls(made_by, out);
        fputs("{% else %}", out);
    }
    put_content(made_by, out);
    for (int role = 0; role < HS_CHAT_ROLES; role++)
        put_role(made_by, (HsChatRole)role, out);
    fprintf(out,
            "{%% else %%}{{ raise_exception('no role but system, user and assistant') }}{%% endif %%}%s{%% endfor %%}",
            made_by->tools ? "{% endif %}" : "");
    put_ending(made_by, out);
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
