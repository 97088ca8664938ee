/* SPDX-License-Identifier: MIT
 *
 * A group of calls under way on a stream.  It starts when the stream comes to it: what is sent is taken away, and what
 * will be received is poisoned with 0xff, NaN in every format, so that a use before the end shows.  Then messages go
 * through the mailboxes, and after a random delay the results are written.
 */
#ifndef HS_TESTS_NCCL_WORK_H
#define HS_TESTS_NCCL_WORK_H

#include <atomic>
#include <chrono>
#include <deque>
#include <vector>

#include "kernels/emu/attach.h"
#include "tests/nccl/mailbox.h"

namespace standin
{

struct Call {
    Description description;
    const void *send;
    void *receive;
    size_t send_bytes, receive_bytes;
    int to, from; /* of point to point; -1: none */
    hs_emu::cudaStream_t stream;
};

enum class Trouble { NONE, ERROR, ASYNC, HANG, DIE };

struct Communicator {
    Segment *segment;
    int rank, size;
    char name[64];
    int result;             /* what ncclCommGetAsyncError says */
    int unasked;            /* questions until it says that what was begun has settled */
    bool attached, aborted; /* by ncclCommAbort */
    uint64_t groups;        /* begun, from 1 */
    uint64_t collectives;
    int under_way; /* works that have not ended */
    hs_emu::cudaStream_t stream;
    bool used; /* `stream` is the last one */
    uint64_t random;
};

uint64_t draw(Communicator &communicator, uint64_t below);
size_t bytes_of(int dtype);
/* "ncclAllReduce of 5 float32, sum" */
void describe(const Description &description, char *text, size_t room);

class Work
{
  public:
    Work(Communicator &communicator, std::vector<Call> calls, Trouble trouble);
    /* Continues; true: it has ended. */
    bool advance(bool wait);
    hs_emu::cudaStream_t stream; /* that it was called on */

  private:
    struct Message {
        Description description;
        size_t call;
        std::vector<unsigned char> bytes;
        size_t moved;
        bool begun;
    };
    void start();
    void start_call(size_t index);
    void send(size_t call, int to, size_t first, size_t bytes);
    void expect(size_t call, int from, size_t bytes);
    bool move();
    bool push(int to);
    bool pull(int from);
    void compare(const Description &mine, const Description &other, int from) const;
    bool is_moved() const;
    bool is_rested(bool wait);
    void finish();
    void finish_call(size_t index);
    void add_up(const Call &call, const std::vector<const unsigned char *> &parts) const;

    Communicator &communicator;
    std::vector<Call> calls;
    Trouble trouble;
    bool started = false, resting = false;
    std::chrono::steady_clock::time_point due;
    std::vector<std::vector<unsigned char>> inputs; /* of each call */
    std::deque<Message> outgoing[RANKS_MOST], incoming[RANKS_MOST];
    std::vector<Message> received;
    std::vector<int> received_from;
};

} // namespace standin

#endif
