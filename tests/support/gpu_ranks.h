/* SPDX-License-Identifier: MIT
 *
 * Ranks as processes on the emulator, which talk through the stand-in for NCCL: each runs a test's body and says by its
 * exit code and on stderr how it went.
 */
#ifndef HS_TESTS_SUPPORT_GPU_RANKS_H
#define HS_TESTS_SUPPORT_GPU_RANKS_H

#include "kernels/parts/comm.h"

enum { RANKS_MOST = 4, REPORT_BYTES = 4096 };

typedef struct Rank {
    int rank, size;
    HsDevice device;
    HsStream *stream;
    HsComm *host, *comm; /* of the processes, and of their devices */
} Rank;

typedef struct Scene {
    int size;
    bool exact;
    size_t scratch_bytes;
    double timeout_s;
    const char *fault;        /* HALFSTEP_NCCL_FAULT; NULL: none */
    int seed;                 /* 0: 1 */
    bool (*body)(Rank *rank); /* false: not as it should be, and it said on stderr what */
} Scene;

typedef struct Outcome {
    int codes[RANKS_MOST]; /* 0: the body returned true; 1: false; 2: no communicator, 3: a copy failed; 128 + signal */
    char reports[RANKS_MOST][REPORT_BYTES];
    double seconds;
} Outcome;

/* Runs all ranks; those that do not end within 20 seconds are killed. */
Outcome run_ranks(const Scene *scene);
/* Fails the test, with the ranks' reports, unless all bodies returned true. */
void expect_all_right(const Scene *scene, const char *name);

/* Copies that wait. */
void to_device(Rank *rank, void *device, const void *host, size_t bytes);
void to_host(Rank *rank, void *host, const void *device, size_t bytes);
void *device_memory(Rank *rank, size_t bytes);

#endif
