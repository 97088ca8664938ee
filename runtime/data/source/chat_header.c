/* SPDX-License-Identifier: MIT
 *
 * SmolLM3's header: when the model's knowledge ends, a day, whether answers begin with thoughts, and instructions.  The
 * published program writes the day on which it renders; here it is always the one on which the model was published, so
 * that a run can be repeated.
 */
#include "runtime/data/source/chat_template.h"

const HsChatHeader hs_chat_smollm_header = {
    .head = "## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 08 July 2025\nReasoning Mode: ",
    .between = "\n\n## Custom Instructions\n\n",
    .tail = "\n\n",
    .mode = "/think",
    .quiet_mode = "/no_think",
    .instructions =
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an assistant involves "
        "thoroughly exploring questions through a systematic thinking process before providing the final precise and "
        "accurate solutions. This requires engaging in a comprehensive cycle of analysis, summarizing, exploration, "
        "reassessment, reflection, backtracking, and iteration to develop well-considered thinking process. Please "
        "structure your response into two main sections: Thought and Solution using the specified format: <think> "
        "Thought section </think> Solution section. In the Thought section, detail your reasoning process in steps. "
        "Each step should include detailed considerations such as analysing questions, summarizing relevant findings, "
        "brainstorming new ideas, verifying the accuracy of the current steps, refining any errors, and revisiting "
        "previous steps. In the Solution section, based on various attempts, explorations, and reflections from the "
        "Thought section, systematically present the final solution that you deem correct. The Solution section should "
        "be logical, accurate, and concise and detail necessary steps needed to reach the conclusion.",
    .quiet_instructions = "You are a helpful AI assistant named SmolLM, trained by Hugging Face.",
    .quiet_start = "<think>\n\n</think>\n",
    .override = "/system_override",
};

/* Where the word begins; NULL: it is not there. */
static const char *find(const char *text, size_t length, const char *word)
{
    return memmem(text, length, word, strlen(word));
}

/* As Python's replace(word, ""): a word that the parts around another one become stays. */
static void take_out(HsBytes *text, const char *word)
{
    size_t kept = 0;
    const char *at = text->items, *const end = text->items + text->count;
    for (const char *next; at < end; at = next + strlen(word)) {
        next = find(at, (size_t)(end - at), word);
        const size_t length = (size_t)((next ? next : end) - at);
        memmove(text->items + kept, at, length);
        kept += length;
        if (!next)
            break;
    }
    text->count = kept;
}

bool hs_chat_header_is_quiet(const HsChatHeader *header, const HsChatMessage *system)
{
    return system && find(system->text, system->length, header->quiet_mode);
}

static HsStatus put(HsBytes *out, const char *text)
{
    return hs_bytes_append(out, text, strlen(text));
}

static HsStatus put_modes(const HsChatHeader *header, bool quiet, const HsBytes *instructions, HsBytes *out)
{
    HS_TRY(put(out, header->head));
    HS_TRY(put(out, quiet ? header->quiet_mode : header->mode));
    HS_TRY(put(out, header->between));
    if (instructions->count > 0)
        HS_TRY(hs_bytes_append(out, instructions->items, instructions->count));
    else
        HS_TRY(put(out, quiet ? header->quiet_instructions : header->instructions));
    return put(out, header->tail);
}

HsStatus hs_chat_put_header(const HsChatHeader *header, const HsChatMessage *system, HsBytes *out, bool *overridden)
{
    HsBytes instructions = { 0 };
    *overridden = system && find(system->text, system->length, header->override);
    HsStatus status = system ? hs_bytes_append(&instructions, system->text, system->length) : HS_OK;
    if (status == HS_OK && system) {
        take_out(&instructions, header->quiet_mode);
        take_out(&instructions, header->mode);
        hs_chat_strip_end(instructions.items, &instructions.count);
    }
    if (status == HS_OK && *overridden) {
        take_out(&instructions, header->override);
        hs_chat_strip_end(instructions.items, &instructions.count);
        status = hs_bytes_append(out, instructions.items, instructions.count);
    } else if (status == HS_OK)
        status = put_modes(header, hs_chat_header_is_quiet(header, system), &instructions, out);
    hs_bytes_deinit(&instructions);
    return status;
}
