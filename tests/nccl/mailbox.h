/* SPDX-License-Identifier: MIT
 *
 * What the ranks of the stand-in share: for each pair of them a mailbox, through which messages go in pieces and in
 * order.  Each message says of which call it is, so that its receiver can compare that with its own.
 */
#ifndef HS_TESTS_NCCL_MAILBOX_H
#define HS_TESTS_NCCL_MAILBOX_H

#include <atomic>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace standin
{

enum { RANKS_MOST = 8 };

enum class Kind : int32_t { ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, POINT_TO_POINT };

/* What both ends of a message have to agree on. */
struct Description {
    Kind kind;
    int32_t dtype, op, root; /* as NCCL numbers them; -1: has none */
    uint64_t count;
    uint64_t number;  /* of the communicator's collectives, from 1; 0: send and receive */
    uint32_t grouped; /* collectives of its group */
};

/* The writer fills it when `written` equals `read`, the reader empties it when they differ. */
struct Mailbox {
    static constexpr size_t ROOM = 32 * 1024;
    std::atomic<uint32_t> written, read;
    Description description;
    uint64_t bytes;
    unsigned char data[ROOM];
};

struct Segment {
    std::atomic<uint32_t> ready;   /* rank 0 has made it */
    std::atomic<uint32_t> here;    /* a bit for each rank that has come */
    std::atomic<uint32_t> changed; /* a futex, raised with every mailbox */
    int32_t size;
    pid_t processes[RANKS_MOST];
    Mailbox boxes[RANKS_MOST][RANKS_MOST]; /* [from][to] */
};

/* Maps the segment of a communicator; nullptr: rank 0 has not made it yet. */
Segment *segment_attach(const char *name, int rank, int size);
void segment_forget(const char *name);
/* Wakes all sleepers; sleeps until `changed` is no longer `seen`, or for 20 ms. */
void segment_wake(Segment *segment);
void segment_sleep(Segment *segment, uint32_t seen);

/* "nccl stand-in: rank 1: ..." on stderr, and abort(). */
[[noreturn]] void fault(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

} // namespace standin

#endif
