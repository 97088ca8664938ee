/* SPDX-License-Identifier: MIT
 *
 * trainer: the one place that turns a status into an exit code.
 *   0 done, 1 failed, 2 bad usage or configuration, 128 + N stopped by signal N as it was asked to.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/commands/command.h"
#include "runtime/config/aliases.h"
#include "runtime/config/table.h"
#include "runtime/launch/launch.h"
#include "runtime/train/run.h"

static int exit_code(HsStatus status)
{
    if (status == HS_OK)
        return 0;
    const int stopped_by = hs_launch_stop_signal() > 0 ? hs_launch_stop_signal() : hs_run_stop_signal();
    if (status == HS_EINTERRUPTED && stopped_by > 0)
        return 128 + stopped_by;
    return status == HS_ECONFIG ? 2 : 1;
}

/* Without a word the keys, 230 lines, are left out. */
static HsStatus help(bool with_keys)
{
    printf("Halfstep " HS_VERSION ": trains small language models in mixed precision.\n\n");
    for (int i = 0; i < hs_command_count; i++) {
        /* train is what happens without a command's name */
        const char *name = i == 0 ? "" : hs_commands[i].name;
        printf("  trainer %s%s%s\n      %s\n", name, *name ? " " : "", hs_commands[i].usage, hs_commands[i].doc);
    }
    printf("\n`trainer COMMAND --help` lists a command's options; `trainer --config FILE --print-config` prints the "
           "resolved\nconfiguration.\n\nExit codes:\n");
#define EXIT_CODE_LINE(code, doc) printf("  %-4d %s\n", code, doc);
    HS_EXIT_CODES(EXIT_CODE_LINE)
    if (!with_keys) {
        printf("\n`trainer --help` lists the configuration's keys, too.\n");
        return HS_OK;
    }
    printf("\nConfiguration keys:\n");
    return hs_config_write_help(stdout);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* What was probably meant. */
static HsStatus unknown_command(const char *word)
{
    char list[512] = "", near[HS_DOTTED_BYTES];
    if (ends_with(word, ".yaml") || ends_with(word, ".yml"))
        return hs_fail(HS_ECONFIG, "%s is not a command; to train by it: trainer --config %s", word, word);
    if (strchr(word, '='))
        return hs_fail(HS_ECONFIG, "%s changes a configuration, and none is named: trainer --config FILE %s", word,
                       word);
    for (int i = 0; i < hs_command_count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? "|" : "", hs_commands[i].name);
    const char *const alias = hs_config_alias_choice("commands", list, word);
    if (alias)
        snprintf(near, sizeof near, "%s", alias);
    if (alias || hs_config_choice_suggest(list, word, near))
        return hs_fail(HS_ECONFIG, "%s is not a command; did you mean %s? `trainer --help` lists them", word, near);
    return hs_fail(HS_ECONFIG, "%s is not a command: `trainer --help` lists them", word);
}

static HsStatus run(int argc, char **argv)
{
    if (argc < 2)
        return help(false);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return help(true);
    if (strcmp(argv[1], "--version") == 0) {
        printf("trainer " HS_VERSION "\n");
        return HS_OK;
    }
    for (int i = 0; i < hs_command_count; i++)
        if (strcmp(argv[1], hs_commands[i].name) == 0)
            return hs_commands[i].run(argc - 1, argv + 1);
    if (argv[1][0] != '-')
        return unknown_command(argv[1]);
    return hs_commands[0].run(argc, argv);
}

/* OpenMP's threads meet at the end of every parallel loop, hundreds of times a step.  By default they spin there for
 * milliseconds, which is right on an idle machine and ruins a busy one: while one thread spins, the one that it waits
 * for may not be running.  A short spin costs nothing measurable when idle.  libgomp reads its setting before main,
 * hence the second start.  Where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, nothing is changed, nor where threads are
 * bound to cores: this thread is bound already, and the second start would find no other core. */
static void shorten_spinning(char **argv)
{
    static const char *const left_alone[] = { "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND",
                                              "GOMP_CPU_AFFINITY" };
    for (size_t i = 0; i < sizeof left_alone / sizeof *left_alone; i++)
        if (getenv(left_alone[i]))
            return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) != 0)
        return;
    char path[4096]; /* the name itself, so that process lists do not show "exe" */
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    execv(path, argv); /* only returns when it cannot be: then the default serves */
}

/* A closed standard stream would lend its number to the next file that is opened, and log lines would land in it. */
static void open_standard_streams(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
            (void)!open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY); /* the lowest number is taken */
}

int main(int argc, char **argv)
{
    open_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow any more is a write error, reported as such */
    shorten_spinning(argv);
    argp_err_exit_status = 2;
    HsStatus status = run(argc, argv);
    /* An earlier write may have failed, and the last one not: its reason is forgotten by now. */
    const bool lost = ferror(stdout) != 0;
    if (status == HS_OK && fflush(stdout) != 0)
        status = hs_fail(HS_EIO, "standard output cannot be written: %s", strerror(errno));
    else if (status == HS_OK && lost)
        status = hs_fail(HS_EIO, "standard output is incomplete: some of it could not be written");
    if (status == HS_EINTERRUPTED)
        hs_info("%s", hs_error_message());
    else if (status != HS_OK)
        hs_error("%s", hs_error_message());
    return exit_code(status);
}
