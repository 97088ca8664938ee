/* SPDX-License-Identifier: MIT
 *
 * The table of chat templates.
 */
#include <string.h>

#include "runtime/data/source/chat_template.h"

/* clang-format off */
#define ALL(X) { X, X, X }
#define CHATML_FRAMES                                                                           \
    .tokens = { "<|im_start|>", "<|im_end|>" }, .begin = "",                                    \
    .before = { "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n" },      \
    .end = ALL("<|im_end|>"), .after = ALL("\n")
#define LLAMA3_FRAMES                                                                           \
    .tokens = { "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" }, \
    .begin = "<|begin_of_text|>",                                                               \
    .before = { "<|start_header_id|>system<|end_header_id|>\n\n",                               \
                "<|start_header_id|>user<|end_header_id|>\n\n",                                 \
                "<|start_header_id|>assistant<|end_header_id|>\n\n" },                          \
    .end = ALL("<|eot_id|>"), .after = ALL(""), .trims = ALL(HS_CHAT_TRIM_BLANKS)
#define GEMMA_FRAMES                                                                            \
    .tokens = { "<bos>", "<start_of_turn>", "<end_of_turn>" }, .begin = "<bos>",                \
    .before = { "", "<start_of_turn>user\n", "<start_of_turn>model\n" },                        \
    .end = ALL("<end_of_turn>"), .after = ALL("\n"), .in_turns = true,                          \
    .trims = { HS_CHAT_TRIM_NONE, HS_CHAT_TRIM_BLANKS, HS_CHAT_TRIM_BLANKS }
#define PHI_TOKENS { "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>" }
#define PHI3_FRAMES                                                                             \
    .tokens = PHI_TOKENS, .begin = "", .close = "<|endoftext|>",                                \
    .before = { "<|system|>\n", "<|user|>\n", "<|assistant|>\n" },                              \
    .end = ALL("<|end|>"), .after = ALL("\n")
#define GRANITE_FRAMES                                                                          \
    .tokens = { "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>" }, .begin = "",       \
    .before = { "<|start_of_role|>system<|end_of_role|>", "<|start_of_role|>user<|end_of_role|>", \
                "<|start_of_role|>assistant<|end_of_role|>" },                                  \
    .end = ALL("<|end_of_text|>"), .after = ALL("\n")
#define MISTRAL_FRAMES(INST)                                                                    \
    .begin = "<s>", .before = { "", INST, "" }, .end = { "", "[/INST]", "</s>" }, .after = ALL("")
#define MISTRAL3_FRAMES(INST)                                                                   \
    MISTRAL_FRAMES(INST), .tokens = { "<s>", "</s>", "[INST]", "[/INST]" },                     \
    .system_place = HS_CHAT_SYSTEM_LAST, .system_behind = "\n\n", .in_turns = true
#define SPACED_ANSWERS                                                                          \
    .answer_start = " ", .trims = { HS_CHAT_TRIM_NONE, HS_CHAT_TRIM_NONE, HS_CHAT_TRIM_BLANKS }

static const HsChatTemplate templates[] = {
    { .name = "chatml", CHATML_FRAMES },
    { .name = "qwen2", CHATML_FRAMES, .system = "You are a helpful assistant." },
    { .name = "qwen2.5", CHATML_FRAMES,
      .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
      .tools = &hs_chat_qwen_tools },
    { .name = "llama3", LLAMA3_FRAMES },
    { .name = "llama3.1", LLAMA3_FRAMES, .system = "",
      .system_start = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
      .tools = &hs_chat_llama_tools },
    { .name = "alpaca",
      .before = { "", "### Instruction:\n", "### Response:\n" }, .end = { "", "", NULL }, .after = ALL("\n\n"),
      .trims = ALL(HS_CHAT_TRIM_BLANKS), .in_turns = true },
    { .name = "gemma", GEMMA_FRAMES, .system_place = HS_CHAT_SYSTEM_FIRST, .system_behind = "\n\n" },
    { .name = "gemma2", GEMMA_FRAMES, .system_place = HS_CHAT_SYSTEM_REFUSED },
    { .name = "smollm3", CHATML_FRAMES,
      .system_place = HS_CHAT_SYSTEM_HAS_HEADER, .header = &hs_chat_smollm_header,
      .trims = { HS_CHAT_TRIM_NONE, HS_CHAT_TRIM_NONE, HS_CHAT_TRIM_LINES } },
    { .name = "phi3", PHI3_FRAMES },
    { .name = "phi3.5", PHI3_FRAMES, .omits_empty_system = true },
    { .name = "phi4-mini",
      .tokens = PHI_TOKENS, .begin = "", .close = "<|endoftext|>",
      .before = { "<|system|>", "<|user|>", "<|assistant|>" }, .end = ALL("<|end|>"), .after = ALL("") },
    { .name = "granite3.0", GRANITE_FRAMES },
    { .name = "granite", GRANITE_FRAMES, .is_dated = true },
    { .name = "mistral-v3", MISTRAL3_FRAMES("[INST] "), SPACED_ANSWERS },
    { .name = "mistral-nemo", MISTRAL3_FRAMES("[INST]") },
    { .name = "ministral", MISTRAL3_FRAMES("[INST]"), SPACED_ANSWERS },
    { .name = "mistral-v7-tekken",
      .tokens = { "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]" }, .begin = "<s>",
      .before = { "[SYSTEM_PROMPT]", "[INST]", "" }, .end = { "[/SYSTEM_PROMPT]", "[/INST]", "</s>" },
      .after = ALL(""), .is_dated = true },
};
/* clang-format on */

const HsChatTemplate *hs_chat_template_get(const char *name)
{
    for (size_t i = 0; name && i < sizeof templates / sizeof *templates; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}
