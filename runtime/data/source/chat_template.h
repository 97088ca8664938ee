/* SPDX-License-Identifier: MIT
 *
 * A row of the table of chat templates.  Private to chat_table.c, which has the rows, chat.c, which renders,
 * chat_document.c, which asks what it can, and chat_program.c, which writes it for others.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_TEMPLATE_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_TEMPLATE_H

#include "runtime/data/source/chat_tools.h"

enum { TEMPLATE_TOKENS = 6 };

/* What is taken off a content. */
typedef enum HsChatTrim {
    HS_CHAT_TRIM_NONE,
    HS_CHAT_TRIM_BLANKS, /* white space around it, as Python's strip() */
    HS_CHAT_TRIM_LINES   /* newlines in front of it */
} HsChatTrim;

/* Where a system message that comes first is put. */
typedef enum HsChatSystemPlace {
    HS_CHAT_SYSTEM_FRAMED,     /* into a frame, as others wherever they stand */
    HS_CHAT_SYSTEM_FIRST,      /* in front of the content of the first message of the user */
    HS_CHAT_SYSTEM_LAST,       /* of the last message, where that is the user's, and nowhere else */
    HS_CHAT_SYSTEM_HAS_HEADER, /* into a header, which is there without one too */
    HS_CHAT_SYSTEM_REFUSED
} HsChatSystemPlace;

/* A header in place of the first system message, in two modes of which the message may name one:
 *
 *     HEAD MODE BETWEEN INSTRUCTIONS TAIL          the message without names of modes, or the mode's own instructions
 *     INSTRUCTIONS, then the frame's end           where the message has the word `override`, which is taken out */
typedef struct HsChatHeader {
    const char *head, *between, *tail;
    const char *mode, *quiet_mode; /* with thoughts and without, as the header and a system message name them */
    const char *instructions, *quiet_instructions;
    const char *quiet_start; /* what an answer comes after, behind its frame */
    const char *override;
} HsChatHeader;
extern const HsChatHeader hs_chat_smollm_header;

struct HsChatTemplate {
    const char *name;
    const char *tokens[TEMPLATE_TOKENS + 1]; /* special ones in its text, added to the tokenizer's; NULL-terminated */
    const char *begin;                       /* in front of everything; NULL: the tokenizer's begin-of-text */
    const char *before[HS_CHAT_ROLES];       /* a message's content */
    const char *end[HS_CHAT_ROLES];          /* behind it; NULL: the tokenizer's end-of-text */
    const char *after[HS_CHAT_ROLES];        /* behind that; not counted */
    const char *answer_start;                /* of an answer's content, and counted: no frame has it.  NULL: nothing */
    const char *close;                       /* behind the last message where no answer is to come.  NULL: nothing */
    const char *system;                      /* its content where none comes first; NULL: there is none then */
    const char *system_start;                /* how the first one's content begins; NULL: with itself */
    const char *system_behind;               /* what is between it and the content that it is put in front of */
    const HsChatHeader *header;              /* of HS_CHAT_SYSTEM_HAS_HEADER */
    HsChatSystemPlace system_place;
    HsChatTrim trims[HS_CHAT_ROLES];
    bool in_turns;               /* one system message at most, first; then user and assistant in turns */
    bool is_dated;               /* published with a system message of the day where none comes first: one must */
    bool omits_empty_system;     /* has no frame for it */
    const HsChatToolForm *tools; /* NULL: it renders none */
};

void hs_chat_trim(HsChatTrim trim, const char **text, size_t *length);
void hs_chat_strip_end(const char *text, size_t *length);

/* The header (chat_header.c).  system NULL: no message comes first.  *overridden: the frame's end follows.
 * errors: HS_ENOMEM */
bool hs_chat_header_is_quiet(const HsChatHeader *header, const HsChatMessage *system);
HsStatus hs_chat_put_header(const HsChatHeader *header, const HsChatMessage *system, HsBytes *out, bool *overridden);

#endif
