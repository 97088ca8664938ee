/* SPDX-License-Identifier: MIT
 *
 * The trainer and the programs of bench/gpu.sh as one: a package for a machine with a GPU holds the kernels once.
 *
 *     halfstep-gpu PROGRAM [ARGUMENT ...]          or by a link named PROGRAM
 *
 * Each program is its own source, compiled with another name for main (Makefile: PACKAGE_PROGRAMS).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DECLARE(name) int hs_main_##name(int argc, char **argv);
HS_PACKAGE_PROGRAMS(DECLARE)

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} programs[] = {
#define ROW(name) { #name, hs_main_##name },
    HS_PACKAGE_PROGRAMS(ROW)
};

/* Returns from the program that `name` is, if it is one. */
static bool run(const char *name, int argc, char **argv, int *code)
{
    const size_t count = sizeof programs / sizeof *programs;
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, programs[i].name) == 0) {
            *code = programs[i].main(argc, argv);
            return true;
        }
    return false;
}

/* The trainer starts itself anew, by its own name (runtime/commands/main.c): so the name it was started under counts,
 * too. */
int main(int argc, char **argv)
{
    int code = 2;
    const char *slash = strrchr(argv[0], '/');
    if (run(slash ? slash + 1 : argv[0], argc, argv, &code) || (argc > 1 && run(argv[1], argc - 1, argv + 1, &code)))
        return code;
    fprintf(stderr, "usage: halfstep-gpu PROGRAM [ARGUMENT ...], PROGRAM one of");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        fprintf(stderr, " %s", programs[i].name);
    fprintf(stderr, "\n");
    return code;
}
