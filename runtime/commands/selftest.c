/* SPDX-License-Identifier: MIT
 *
 * trainer selftest --device cpu|cuda|emu|ref: every kernel against the reference.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/engine.h"
#include "runtime/selftest/selftest.h"

enum { OPTION_NO_SPEED = 1000, OPTION_CUBLASLT };

typedef struct Arguments {
    const char *device, *op;
    int64_t threads;
    bool with_speed, cublaslt;
} Arguments;

static const struct argp_option options[] = {
    { "device", 'd', "NAME", 0, "auto, cpu, cuda, cuda:N, emu or ref (cpu)", 0 },
    { "op", 'o', "NAME", 0, "this operation only", 0 },
    { "threads", 't', "N", 0, "worker threads; 0: one a core (0)", 0 },
    { "cublaslt", OPTION_CUBLASLT, NULL, 0, "matrix products by cuBLASLt (cuda)", 0 },
    { "no-speed", OPTION_NO_SPEED, NULL, 0, "check errors only; so it is on emu", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'd':
        arguments->device = argument;
        return 0;
    case 'o':
        arguments->op = argument;
        return 0;
    case 't':
        arguments->threads = hs_argument_integer(state, "--threads", argument, 0, 1024);
        return 0;
    case OPTION_CUBLASLT:
        arguments->cublaslt = true;
        return 0;
    case OPTION_NO_SPEED:
        arguments->with_speed = false;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

HsStatus hs_command_selftest(int argc, char **argv)
{
    static const struct argp argp = { options, parse, NULL, "Every kernel against the reference.", NULL, NULL, NULL };
    Arguments arguments = { .device = "cpu", .with_speed = true };
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    HsEngine engine;
    const HsEngineOptions chosen = { .device = arguments.device,
                                     .threads = arguments.threads,
                                     .cublaslt = arguments.cublaslt };
    HS_TRY(hs_engine_init(&engine, &chosen));
    printf("device: %s\n", engine.why);
    int failures = 0;
    HsStatus status =
        hs_selftest_run(&engine.context, arguments.op, arguments.with_speed && !engine.emulated, stdout, &failures);
    hs_engine_deinit(&engine);
    if (status == HS_OK && failures > 0)
        status = hs_fail(HS_ENUMERIC, "%d case%s outside tolerance", failures, failures == 1 ? "" : "s");
    return status;
}
