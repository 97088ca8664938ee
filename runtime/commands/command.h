/* SPDX-License-Identifier: MIT
 *
 * The table of commands, and of what they exit with.  main looks the first word up; without a match it is `train`.
 * Each command's options are its argp's: the parser, --help, the manual page and completion come from the same rows.
 */
#ifndef HS_RUNTIME_COMMANDS_COMMAND_H
#define HS_RUNTIME_COMMANDS_COMMAND_H

#include <argp.h>
#include <stdio.h>

#include "kernels/base/status.h"

#define HS_VERSION "0.2.0"

/* name, usage, what it does */
#define HS_COMMANDS(X)                                                                                                 \
    X(train, "--config FILE [section.key=value ...]",                                                                  \
      "train; continues from the run's latest checkpoint if there is one")                                             \
    X(new, "--text PATH [--text PATH ...] --hours H [--checkpoint DIR] [--output FILE] [section.key=value ...]",       \
      "write a configuration for a text and a time, by what this machine is measured to do; a reason for each value")  \
    X(plan, "--config FILE [--layers] [--fit] [--table] [--device-memory 12GiB]",                                      \
      "memory and time of a run, before anything is allocated; what would fit instead")                                \
    X(compare, "--config FILE [--strategies none,ewc,er+ewc] [--grid learning_rate=1e-3,3e-4] [--seeds 3]",            \
      "continual-learning strategies side by side, or a search for the best values of keys: table and page")           \
    X(bench, "--config FILE --modes fp32,bf16,+recompute",                                                             \
      "precision and memory modes side by side: speed, memory, losses, gradients")                                     \
    X(report, "--run DIR [--serve [--port PORT]]", "write a run's report.html again, or show it while the run trains") \
    X(eval, "--checkpoint DIR [--best] [--file FILE | --choices FILE] [--json] [section.key=value ...]",               \
      "validation loss of a checkpoint on each task, or on a file; or its right answers to multiple choice")           \
    X(generate,                                                                                                        \
      "--checkpoint DIR [--best] [--chat] [--prompt TEXT | --prompt-file FILE] [--samples N] [--json] "                \
      "[section.key=value ...]",                                                                                       \
      "sample text from a checkpoint, or talk with it")                                                                \
    X(export, "--checkpoint DIR [--best] --output PATH [--format hf|gguf] [--dtype f32|bf16|f16|q8_0]",                \
      "a trained model as others read it: a folder for Hugging Face's transformers, a file for llama.cpp")             \
    X(inspect, "--checkpoint DIR [--best] [--html FILE]",                                                              \
      "tensors, number ranges, underflow and overflow of a checkpoint")                                                \
    X(selftest, "[--device cpu|cuda|emu] [--op NAME [--force-tile NAME]] [--tune FILE [--config FILE]]",               \
      "every kernel against the reference, with error and speed; or measure which of a GPU's kernels suit products")   \
    X(tokenizer, "train|encode|decode|count ... FILE|-",                                                               \
      "learn a byte-level BPE tokenizer; text to tokens, or to a token file that trains; back to text; count")         \
    X(cache, "[clear] [--config FILE | --folder DIR] [--unused DAYS] [section.key=value ...]",                         \
      "list text that is kept as tokens for later runs (data.cache), or remove it")                                    \
    X(reference, "[--predicted | --man | --completion bash]",                                                          \
      "print the configuration reference or the GPU kernels' predicted times as Markdown, the manual page, or what "   \
      "makes a shell complete command lines")

#define HS_COMMAND_PROTOTYPE(name, usage, doc)         \
    HsStatus hs_command_##name(int argc, char **argv); \
    extern const struct argp hs_argp_##name;
HS_COMMANDS(HS_COMMAND_PROTOTYPE)

/* code, what it says */
#define HS_EXIT_CODES(X)                  \
    X(0, "done")                          \
    X(1, "failed")                        \
    X(2, "bad usage or configuration")    \
    X(130, "stopped by SIGINT (128 + 2)") \
    X(143, "stopped by SIGTERM (128 + 15)")

typedef struct HsCommand {
    const char *name, *usage, *doc;
    HsStatus (*run)(int argc, char **argv);
    const struct argp *argp;
} HsCommand;

/* In the table's order: train first. */
extern const HsCommand hs_commands[];
extern const int hs_command_count;

/* The manual page of the program (roff, section 1).  errors: HS_EIO */
HsStatus hs_manual_write(FILE *out);
/* What makes a shell ("bash") complete command lines.  errors: HS_ECONFIG for another shell, HS_EIO */
HsStatus hs_completion_write(const char *shell, FILE *out);

#endif
