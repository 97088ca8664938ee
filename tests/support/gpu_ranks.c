/* SPDX-License-Identifier: MIT
 *
 * See gpu_ranks.h.  The parent does what a launcher does: it tells the others when a rank has died.
 */
#include "tests/support/gpu_ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"

static bool others_failed(void *host, char *message, size_t bytes)
{
    Shared *shared = host;
    if (atomic_load(&shared->failed) < 2)
        return false;
    snprintf(message, bytes, "%s", shared->reason);
    return true;
}

static void tell_others(void *host, const char *reason)
{
    Shared *shared = host;
    int none = 0;
    if (!atomic_compare_exchange_strong(&shared->failed, &none, 1))
        return;
    snprintf(shared->reason, sizeof shared->reason, "heard: %.200s", reason);
    atomic_store(&shared->failed, 2);
}

static HsStatus join(Rank *rank, const Scene *scene)
{
    const HsBackendPart *part;
    HsCommNcclOptions options = { .rank = rank->rank,
                                  .size = rank->size,
                                  .local_rank = rank->rank,
                                  .local_size = rank->size,
                                  .exact = scene->exact,
                                  .scratch_bytes = scene->scratch_bytes,
                                  .timeout_s = scene->timeout_s,
                                  .others_failed = others_failed,
                                  .tell_others = tell_others,
                                  .host = rank->shared };
    HS_TRY(hs_part_open("emu", &part));
    HS_TRY(part->device_init(&rank->device, &(HsCudaOptions){ .index = 0 }));
    HS_TRY(rank->device.stream_create(&rank->device, &rank->stream));
    if (rank->rank == 0) {
        HS_TRY(part->comm_id(rank->shared->id));
        atomic_store(&rank->shared->id_made, 1);
    }
    while (!atomic_load(&rank->shared->id_made))
        usleep(1000);
    memcpy(options.id, rank->shared->id, sizeof options.id);
    return part->comm_create(&rank->device, &options, &rank->comm);
}

static int live(const Scene *scene, Shared *shared, int number)
{
    char seed[16];
    Rank rank = { .rank = number, .size = scene->size, .shared = shared };
    snprintf(seed, sizeof seed, "%d", scene->seed > 0 ? scene->seed : 1);
    setenv("HALFSTEP_NCCL_SEED", seed, 1);
    setenv("HALFSTEP_EMU_SEED", seed, 1);
    setenv("HALFSTEP_EMU_THREADS", "1", 1);
    if (scene->fault)
        setenv("HALFSTEP_NCCL_FAULT", scene->fault, 1);
    if (join(&rank, scene) != HS_OK) {
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
    return right ? 0 : 1;
}

static void read_report(FILE *file, char report[REPORT_BYTES])
{
    rewind(file);
    report[fread(report, 1, REPORT_BYTES - 1, file)] = '\0';
    fclose(file);
}

/* One rank has ended: if not as it should, the others hear of it. */
static void note_end(Shared *shared, Outcome *outcome, int rank, int status)
{
    outcome->codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (outcome->codes[rank] == 0)
        return;
    char reason[64];
    if (WIFEXITED(status))
        snprintf(reason, sizeof reason, "rank %d ended with code %d", rank, WEXITSTATUS(status));
    else
        snprintf(reason, sizeof reason, "rank %d died of signal %d", rank, WTERMSIG(status));
    tell_others(shared, reason);
}

Outcome run_ranks(const Scene *scene)
{
    Outcome outcome = { .codes = { -1, -1, -1, -1 } };
    FILE *files[RANKS_MOST];
    pid_t children[RANKS_MOST];
    const double start = hs_clock_s();
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    for (int r = 0; r < scene->size; r++) {
        files[r] = tmpfile();
        cr_assert_not_null(files[r]);
        children[r] = fork();
        if (children[r] == 0) {
            dup2(fileno(files[r]), STDERR_FILENO);
            _exit(live(scene, shared, r));
        }
    }
    for (int left = scene->size; left > 0;) {
        for (int r = 0; r < scene->size; r++) {
            int status;
            if (outcome.codes[r] >= 0 || waitpid(children[r], &status, WNOHANG) != children[r])
                continue;
            note_end(shared, &outcome, r, status);
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
    munmap(shared, sizeof *shared);
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
