/* SPDX-License-Identifier: MIT
 *
 * One rank's communicator as the library knows it: calls that never block, what polls their results, and what happens
 * when they fail.
 *
 *     call -> settle: asked until the library has taken it up -> ... -> look: asked while the host waits for a stream
 *                                    |                                    |
 *                                    +------- fail: abort, tell the others, an error for every later call
 */
#ifndef HS_KERNELS_CUDA_COMM_GROUP_CUH
#define HS_KERNELS_CUDA_COMM_GROUP_CUH

#include <mutex>

#include "kernels/cuda/comm/library.cuh"
#include "kernels/cuda/comm/nccl.cuh"

namespace HS_CUDA_NAMESPACE
{

struct Group {
    HsComm comm; /* first: an HsComm is its Group */
    const Nccl *nccl;
    NcclHandle handle; /* null once aborted */
    HsDevice *device;
    HsCommNcclOptions options;

    /* Held inside of the library, which must not be aborted while another thread is in it. */
    std::mutex inside;
    std::mutex failing; /* of the two below */
    bool failed;
    char reason[512];
    double last_look;

    cudaStream_t stream; /* of barriers */
    cudaStream_t last;   /* that the last operation is on */
    bool used;
    cudaEvent_t done; /* the last operation's end */
    void *scratch;    /* [scratch_bytes] of the device */
    /* What host buffers go through: [bounce_bytes] pinned and of the device. */
    void *pinned, *bounce;
    size_t bounce_bytes;
};

/* Brings the library to the communicator; waits until all ranks have come. */
HsStatus group_join(Group *group);
/* Between these two come the library's calls of one operation on `stream`, after all earlier ones' work. */
HsStatus group_begin(Group *group, cudaStream_t stream);
/* `result`: of the calls.  Waits until the library has taken them up. */
HsStatus group_settle(Group *group, int result);
HsStatus group_end(Group *group, cudaStream_t stream);
/* A Watch: whether something failed meanwhile. */
HsStatus group_look(void *group, double waited_s);
/* Gives up; the reason goes to the others if it is this rank's own.  Callable from any thread. */
void group_abort(Group *group, const char *reason, bool own);
/* Whether no rank failed so far, by what this process knows; never waits itself. */
HsStatus group_is_well(Group *group, double waited_s);
/* The error of a communicator that was aborted. */
HsStatus group_failure(Group *group);
void group_leave(Group *group);
HsStatus group_check(cudaError_t error, const char *what);

} // namespace HS_CUDA_NAMESPACE

#endif
