/* SPDX-License-Identifier: MIT
 *
 * What an exported model says of its use: tokens with a meaning, where a text ends, chat templates, sampling defaults.
 *
 * Three sources: the tokenizer and the template that the run trained with, the files that it carries from the folder it
 * began with (runtime/config/carried.h), and, where there are none of these, names that are usual.
 *
 *     eos_token           the folder's; the run's, where tokenizer.end_of_text names a token that the folder does not
 *     ends of a text      the end of the template's answers, the folder's, and of a run its end-of-text
 *     template            that which the run was given by name; else the folder's own text
 *     all else            the folder's
 */
#ifndef HS_RUNTIME_COMMANDS_EXPORT_ABOUT_H
#define HS_RUNTIME_COMMANDS_EXPORT_ABOUT_H

#include "runtime/commands/export_source.h"

typedef struct HsExportAbout {
    const HsExportSource *source;
    HsJson *published; /* tokenizer.json */
    /* Carried: tokenizer_config.json with special_tokens_map.json in it, generation_config.json, config.json; NULL: none. */
    HsJson *tokenizer, *generation, *config;
    int32_t begin, end; /* bos and eos, -1: none */
    bool own_end;       /* eos is the run's, not the folder's */
    int32_t answered;   /* ends an answer of the template that has a name; -1: none */
    HsTokens ends;      /* all of a generated text */
    char *program;      /* of the template that has a name; NULL: the carried ones, if any */
} HsExportAbout;

/* errors: HS_EFORMAT naming the file that is not what it must be; deinit also after them */
HsStatus hs_export_about_init(const HsExportSource *source, HsExportAbout *about);
void hs_export_about_deinit(HsExportAbout *about);

/* The files of a folder; the caller destroys them. */
HsJson *hs_export_tokenizer_config(const HsExportAbout *about);
HsJson *hs_export_generation_config(const HsExportAbout *about);
/* What config.json says of tokens. */
void hs_export_set_tokens(const HsExportAbout *about, HsJson *config);
/* The carried templates that are files. */
HsStatus hs_export_write_templates(const HsExportAbout *about, const char *folder);

/* The id of a special token by its kind ("pad", "unk"); -1: none. */
int32_t hs_export_special(const HsExportAbout *about, const char *kind);
/* The template that serves where none is asked for by name; NULL: none. */
const char *hs_export_template(const HsExportAbout *about);

#endif
