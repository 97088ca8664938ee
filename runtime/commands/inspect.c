/* SPDX-License-Identifier: MIT
 *
 * trainer inspect --checkpoint DIR [--html FILE]: what a checkpoint holds.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/pages/inspect.h"

typedef struct Arguments {
    HsCheckpointArgument checkpoint;
    const char *html;
} Arguments;

enum { OPTION_HTML = 256 }; /* no short form */

static const struct argp_option options[] = {
    HS_CHECKPOINT_OPTIONS,
    { "html", OPTION_HTML, "FILE", 0, "write the same as a page with charts of the exponents", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (hs_argument_checkpoint(state, key, argument, &arguments->checkpoint))
        return 0;
    if (key != OPTION_HTML)
        return ARGP_ERR_UNKNOWN;
    arguments->html = argument;
    return 0;
}

const struct argp hs_argp_inspect = { options, parse, NULL, "What a checkpoint holds.", NULL, NULL, NULL };

/* The page replaces what is at its path: no file that the checkpoint, or the run around it, consists of. */
static HsStatus check_page(const char *page, const char *folder)
{
    HsFolderListing listing = { 0 };
    char start[64];
    const size_t length = hs_read_start(page, start, sizeof start);
    HS_TRY(hs_check_output(page));
    if (length > 0 && start[0] != '<')
        return hs_fail(HS_ECONFIG, "%s is there already and is not an HTML page: name another file, or remove it",
                       page);
    if (hs_storage_list(folder, &listing) != HS_OK)
        return HS_OK; /* reading it will say what is wrong */
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < listing.count; i++) {
        char *path;
        status = hs_storage_join(folder, listing.names[i], &path);
        if (status == HS_OK && hs_same_file(path, page))
            status = hs_fail(HS_ECONFIG, "%s is a file of %s, and would be replaced: write the page to another file",
                             page, folder);
        free(path);
    }
    hs_storage_list_free(&listing);
    return status;
}

HsStatus hs_command_inspect(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_inspect, argc, argv, &arguments));
    char *path;
    HS_TRY(hs_argument_checkpoint_path(&arguments.checkpoint, &path));
    HsStatus status = arguments.html ? check_page(arguments.html, path) : HS_OK;
    if (status == HS_OK)
        status = hs_inspect_checkpoint_page(path, stdout, arguments.html);
    free(path);
    return status;
}
