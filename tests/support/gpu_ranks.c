/* SPDX-License-Identifier: MIT
 *
 * See gpu_ranks.h.  The parent does what a launcher does: it informs the others when a rank has died.
 */
#include "tests/support/gpu_ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_shared.h"

static HsStatus join(Rank *rank, const Scene *scene, int descriptor)
{
    const HsBackendPart *part;
    const HsCommSharedOptions shared = { .join_s = 20 };
    const HsPartCommOptions options = { .exact = scene->exact,
                                        .scratch_bytes = scene->scratch_bytes,
                                        .timeout_s = scene->timeout_s };
    HS_TRY(hs_comm_shared_join(descriptor, rank->rank, &shared, &rank->host));
    HS_TRY(hs_part_open("emu", &part));
    HS_TRY(part->device_init(&rank->device, &(HsCudaOptions){ .index = 0 }));
    HS_TRY(rank->device.stream_create(&rank->device, &rank->stream));
    return hs_part_comm_create(part, &rank->device, rank->host, &options, &rank->comm);
}

static int live(const Scene *scene, int descriptor, int number)
{
    char seed[16];
    Rank rank = { .rank = number, .size = scene->size };
    snprintf(seed, sizeof seed, "%d", scene->seed > 0 ? scene->seed : 1);
    setenv("HALFSTEP_NCCL_SEED", seed, 1);
    setenv("HALFSTEP_EMU_SEED", seed, 1);
    setenv("HALFSTEP_EMU_THREADS", "1", 1);
    if (scene->fault)
        setenv("HALFSTEP_NCCL_FAULT", scene->fault, 1);
    if (join(&rank, scene, descriptor) != HS_OK) {
        fprintf(stderr, "rank %d: %s\n", number, hs_error_message());
        return 2;
    }
    const bool right = scene->body(&rank);
    hs_comm_destroy(rank.comm);
    rank.device.stream_destroy(&rank.device, rank.stream);
    if (right && rank.device.account.current[HS_MEMORY_COMMUNICATION] != 0) {
        fprintf(stderr, "rank %d: its communicator kept memory\n", number);
        return 1;
    }
    hs_device_deinit(&rank.device);
    hs_comm_destroy(rank.host);
    return right ? 0 : 1;
}

static void read_report(FILE *file, char report[REPORT_BYTES])
{
    rewind(file);
    report[fread(report, 1, REPORT_BYTES - 1, file)] = '\0';
    fclose(file);
}

/* One rank has ended: if not as it should, the others hear of it. */
static void note_end(int descriptor, Outcome *outcome, int rank, int status)
{
    outcome->codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (outcome->codes[rank] == 0)
        return;
    char reason[64];
    if (WIFEXITED(status))
        snprintf(reason, sizeof reason, "ended with code %d", WEXITSTATUS(status));
    else
        snprintf(reason, sizeof reason, "died of signal %d", WTERMSIG(status));
    cr_expect_eq(hs_comm_shared_report(descriptor, rank, reason), HS_OK);
}

Outcome run_ranks(const Scene *scene)
{
    Outcome outcome = { .codes = { -1, -1, -1, -1 } };
    FILE *files[RANKS_MOST];
    pid_t children[RANKS_MOST];
    const double start = hs_clock_s();
    int descriptor;
    cr_assert_eq(hs_comm_shared_make(scene->size, &(HsCommSharedOptions){ .join_s = 20 }, &descriptor), HS_OK);
    for (int r = 0; r < scene->size; r++) {
        files[r] = tmpfile();
        cr_assert_not_null(files[r]);
        children[r] = fork();
        if (children[r] == 0) {
            dup2(fileno(files[r]), STDERR_FILENO);
            _exit(live(scene, descriptor, r));
        }
    }
    for (int left = scene->size; left > 0;) {
        for (int r = 0; r < scene->size; r++) {
            int status;
            if (outcome.codes[r] >= 0 || waitpid(children[r], &status, WNOHANG) != children[r])
                continue;
            note_end(descriptor, &outcome, r, status);
            left--;
        }
        if (hs_clock_s() - start > 20.0)
            for (int r = 0; r < scene->size; r++)
                if (outcome.codes[r] < 0)
                    kill(children[r], SIGKILL);
        usleep(2000);
    }
    for (int r = 0; r < scene->size; r++)
        read_report(files[r], outcome.reports[r]);
    close(descriptor);
    outcome.seconds = hs_clock_s() - start;
    return outcome;
}

void expect_all_right(const Scene *scene, const char *name)
{
    const Outcome outcome = run_ranks(scene);
    for (int r = 0; r < scene->size; r++)
        cr_expect_eq(outcome.codes[r], 0, "%s: rank %d of %d: code %d, after %.1f s: %s", name, r, scene->size,
                     outcome.codes[r], outcome.seconds, outcome.reports[r]);
}

static void must(HsStatus status)
{
    if (status == HS_OK)
        return;
    fprintf(stderr, "%s\n", hs_error_message());
    _exit(3);
}

void to_device(Rank *rank, void *device, const void *host, size_t bytes)
{
    must(rank->device.copy(&rank->device, rank->stream, device, host, bytes));
}

void to_host(Rank *rank, void *host, const void *device, size_t bytes)
{
    must(rank->device.copy(&rank->device, rank->stream, host, device, bytes));
    must(rank->device.stream_sync(&rank->device, rank->stream));
}

void *device_memory(Rank *rank, size_t bytes)
{
    void *memory;
    must(rank->device.alloc(&rank->device, bytes, &memory));
    return memory;
}
