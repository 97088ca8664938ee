/* SPDX-License-Identifier: MIT
 *
 * The key table for people: configs/REFERENCE.md (Markdown) and the key part of --help.
 */
#include "runtime/config/environment.h"
#include "runtime/config/table.h"

#include <errno.h>
#include <string.h>

const char *hs_config_type_name(HsKeyType type)
{
    static const char *const names[HS_KEY_TYPE_COUNT] = {
        [HS_KEY_INT] = "whole number",     [HS_KEY_BYTES] = "size",  [HS_KEY_REAL] = "number",
        [HS_KEY_BOOL] = "true or false",   [HS_KEY_STRING] = "text", [HS_KEY_REALS2] = "two numbers",
        [HS_KEY_STRINGS] = "text or list",
    };
    return names[type];
}

/* The default as the user would write it: without our quotes, unless that leaves nothing. */
static void write_fallback(const HsConfigKey *key, FILE *stream)
{
    size_t length = strlen(key->fallback);
    bool quoted = key->fallback[0] == '"' && length > 2;
    fprintf(stream, "%.*s", (int)(quoted ? length - 2 : length), key->fallback + (quoted ? 1 : 0));
}

/* "1 to 1048576", "0 or more", "a, b, c", "auto, 0 to 1", or nothing where anything goes. */
static void write_range(const HsConfigKey *key, FILE *stream)
{
    char low[32], high[32];
    if (key->choices) {
        for (const char *c = key->choices; *c; c++)
            fputs(*c == '|' ? ", " : (char[]){ *c, '\0' }, stream);
        if (key->type != HS_KEY_REAL)
            return;
        fputs(", ", stream);
    }
    if (key->type == HS_KEY_BOOL || key->type == HS_KEY_STRING || key->type == HS_KEY_STRINGS)
        return;
    hs_config_real_text(key->low, low);
    if (key->high >= HS_NO_BOUND)
        fprintf(stream, "%s or more", low);
    else
        fprintf(stream, "%s to %s", low, hs_config_real_text(key->high, high));
}

/* A table's cell must not be ended by the text in it. */
static void write_cell(const char *text, FILE *stream)
{
    for (; *text; text++)
        fprintf(stream, "%s%c", *text == '|' ? "\\" : "", *text);
}

HsStatus hs_config_write_reference(FILE *stream)
{
    fputs("# Configuration keys\n\n"
          "Generated from `runtime/config/keys.h`; do not edit.\n\n"
          "Every key can be set on the command line as `section.key=value`; top-level keys as `key=value`,\n"
          "keys of a task as `tasks.0.key=value` (counting from 0); `tasks.N.name=NAME` behind a list of N\n"
          "tasks appends one. Relative paths are relative to the working directory.\n"
          "A size is in bytes, or has a unit, as in `12GiB`, `1.5 GiB`, `500MB`: KiB, MiB, GiB, TiB (also K, M, G, T)\n"
          "are powers of 1024; kB, MB, GB, TB are powers of 1000.\n"
          "A resumed run (`resume`) may have other values of the keys marked *free*, and with\n"
          "`resume: changed` of those marked *changed*; all other keys are what they were.\n",
          stream);
    for (int s = 0; s < hs_config_section_count; s++) {
        const HsConfigSection *section = &hs_config_section_table[s];
        bool top = strcmp(section->name, "training") == 0;
        fprintf(stream, "\n## %s%s%s\n\n", top ? "Top level" : "`", top ? "" : section->name, top ? "" : "`");
        if (!top)
            fprintf(stream, "%c%s.\n\n", section->doc[0] - ('a' <= section->doc[0] && section->doc[0] <= 'z' ? 32 : 0),
                    section->doc + 1);
        fputs("| key | type | default | values | unit | resumed | meaning |\n|---|---|---|---|---|---|---|\n", stream);
        for (int i = 0; i < hs_config_key_count; i++) {
            const HsConfigKey *key = &hs_config_key_table[i];
            if (strcmp(key->section, section->name) != 0)
                continue;
            fprintf(stream, "| `%s` | %s | `", key->name, hs_config_type_name(key->type));
            write_fallback(key, stream);
            fputs("` | ", stream);
            write_range(key, stream);
            fprintf(stream, " | %s | %s | ", key->unit,
                    key->resume == HS_RESUME_FIXED    ? ""
                    : key->resume == HS_RESUME_FUTURE ? "changed"
                                                      : "free");
            write_cell(key->doc, stream);
            fputs(" |\n", stream);
        }
    }
    fputs("\n## Environment\n\n"
          "Variables for tests and measurements; a run needs none of them.\n\n"
          "| variable | values | default | meaning |\n|---|---|---|---|\n",
          stream);
#define ENVIRONMENT_ROW(name, values, fallback, doc) \
    fputs("| `" #name "` | " values " | " fallback " | " doc " |\n", stream);
    HS_ENVIRONMENT(ENVIRONMENT_ROW)
#undef ENVIRONMENT_ROW
    return ferror(stream) ? hs_fail(HS_EIO, "the reference cannot be written: %s", strerror(errno)) : HS_OK;
}

HsStatus hs_config_write_help(FILE *stream)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        char dotted[HS_DOTTED_BYTES];
        if (i == 0 || strcmp(key->section, key[-1].section) != 0)
            fputs(i == 0 ? "" : "\n", stream);
        fprintf(stream, "  %-34s %s (", hs_config_key_dotted(key, dotted), key->doc);
        write_fallback(key, stream);
        fputs(")\n", stream);
    }
    return ferror(stream) ? hs_fail(HS_EIO, "the help cannot be written: %s", strerror(errno)) : HS_OK;
}
