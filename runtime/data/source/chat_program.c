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

static void put_default_system(const HsChatTemplate *made_by, FILE *out)
{
    char *content = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&content, &length);
    if (stream) {
        put_string(made_by->system_start, stream);
        fputs(" + ", stream);
        put_string(made_by->system, stream);
    }
    if (hs_close_text(stream, &content) == HS_OK) {
        fputs("{% if messages[0].role != 'system' %}", out);
        put_message(made_by, HS_CHAT_SYSTEM, content, out);
        fputs("{% endif %}", out);
    }
    free(content);
}

static void put_program(const HsChatTemplate *made_by, bool has_begin, FILE *out)
{
    static const char *const roles[HS_CHAT_ROLES] = { "system", "user", "assistant" };
    if (made_by->begin && made_by->begin[0]) {
        fputs("{{ ", out);
        put_string(made_by->begin, out);
        fputs(" }}", out);
    } else if (!made_by->begin && has_begin)
        fputs("{{ bos_token }}", out);
    if (made_by->system)
        put_default_system(made_by, out);
    fprintf(out, "{%% for message in messages %%}{%% set content = message.content%s %%}",
            made_by->trims ? " | trim" : "");
    if (made_by->system_start[0]) {
        fputs("{% if loop.first and message.role == 'system' %}{% set content = ", out);
        put_string(made_by->system_start, out);
        fputs(" + content %}{% endif %}", out);
    }
    for (int role = 0; role < HS_CHAT_ROLES; role++) {
        fprintf(out, "{%% %sif message.role == '%s' %%}", role == 0 ? "" : "el", roles[role]);
        put_message(made_by, (HsChatRole)role, "content", out);
    }
    fputs("{% else %}{{ raise_exception('no role but system, user and assistant') }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ ",
          out);
    put_string(made_by->before[HS_CHAT_ASSISTANT], out);
    fputs(" }}{% endif %}", out);
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
