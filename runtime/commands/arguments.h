/* SPDX-License-Identifier: MIT
 *
 * What several commands' argument parsers share.  A bad value ends the process through argp_error (exit code 2).
 */
#ifndef HS_RUNTIME_COMMANDS_ARGUMENTS_H
#define HS_RUNTIME_COMMANDS_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"
#include "runtime/commands/loaded_model.h"
#include "runtime/io/json.h"

enum { HS_MAX_OVERRIDES = 2048 };

/* Configuration overrides in the order given. */
typedef struct HsOverrides {
    const char *items[HS_MAX_OVERRIDES];
    int count;
} HsOverrides;

/* Fills `input` by `argp`'s parser; argv[0] is the command.  Wrong usage ends the process (exit code 2).  errors:
 * HS_ENOMEM, HS_ECONFIG: nothing may be done with the input then, which holds the defaults at best. */
HsStatus hs_arguments_parse(const struct argp *argp, int argc, char **argv, void *input);

/* --checkpoint DIR [--best], of the commands that open one: rows for their tables of options. */
enum { HS_OPTION_BEST = 0x400 };
#define HS_CHECKPOINT_OPTIONS                                                                        \
    { "checkpoint", 'd', "DIR", 0, "a checkpoint's folder, or a run's (its latest checkpoint)", 0 }, \
    {                                                                                                \
        "best", HS_OPTION_BEST, NULL, 0, "of the run DIR the checkpoint that keep_best kept", 0      \
    }
typedef struct HsCheckpointArgument {
    const char *folder; /* NULL: not given */
    bool best;
} HsCheckpointArgument;
/* Takes one of those two options; false for another key.  At the end (ARGP_KEY_END) --checkpoint must have come. */
bool hs_argument_checkpoint(struct argp_state *state, int key, char *text, HsCheckpointArgument *checkpoint);
/* What to open; the caller frees.  errors: HS_EIO where no best checkpoint is kept, HS_ENOMEM */
HsStatus hs_argument_checkpoint_path(const HsCheckpointArgument *checkpoint, char **path);
/* Its model, its configuration changed by `overrides`.  errors: those of hs_loaded_model_init besides */
HsStatus hs_argument_load_model(const HsCheckpointArgument *checkpoint, const HsOverrides *overrides,
                                HsLoadedModel *loaded);

/* One line on the standard output; destroys `root`.  errors: HS_ENOMEM */
HsStatus hs_argument_print_json(HsJson *root);

/* Take a word of the form section.key=value. */
void hs_argument_override(struct argp_state *state, HsOverrides *overrides, const char *word);
int64_t hs_argument_integer(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high);
/* A size of a device's memory. */
int64_t hs_argument_bytes(struct argp_state *state, const char *option, const char *text);
double hs_argument_real(struct argp_state *state, const char *option, const char *text, double low, double high);

#endif
