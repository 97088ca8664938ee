/* SPDX-License-Identifier: MIT
 *
 * libnccl.so.2 as it is opened at run time: the functions that are used, with their types written out from NVIDIA's
 * documentation of the interface, so that no header of NCCL's need be there.  The values have not changed since 2.14.
 */
#ifndef HS_KERNELS_CUDA_COMM_LIBRARY_CUH
#define HS_KERNELS_CUDA_COMM_LIBRARY_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

typedef struct NcclRecord *NcclHandle;

struct NcclId { /* by value in calls, as the interface has it */
    char bytes[128];
};

/* The first version of the structure that has `blocking`; later versions fill in what follows it. */
struct NcclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
};

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_U8 = 1, NCCL_I64 = 4, NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9 };
enum { NCCL_SUM = 0, NCCL_MAX = 2 };
constexpr unsigned NCCL_MAGIC = 0xcafebeef;
constexpr int NCCL_OLDEST = 21400;

struct Nccl {
    int (*version)(int *version);
    int (*unique_id)(NcclId *id);
    int (*init)(NcclHandle *made, int size, NcclId id, int rank, NcclConfig *config);
    int (*async_error)(NcclHandle handle, int *result);
    int (*abort)(NcclHandle handle);
    int (*finalize)(NcclHandle handle);
    int (*destroy)(NcclHandle handle);
    int (*group_start)();
    int (*group_end)();
    int (*all_reduce)(const void *send, void *receive, size_t count, int type, int op, NcclHandle, cudaStream_t);
    int (*reduce_scatter)(const void *send, void *receive, size_t count, int type, int op, NcclHandle, cudaStream_t);
    int (*reduce)(const void *send, void *receive, size_t count, int type, int op, int root, NcclHandle, cudaStream_t);
    int (*all_gather)(const void *send, void *receive, size_t count, int type, NcclHandle, cudaStream_t);
    int (*broadcast)(const void *send, void *receive, size_t count, int type, int root, NcclHandle, cudaStream_t);
    int (*send)(const void *send, size_t count, int type, int peer, NcclHandle, cudaStream_t);
    int (*receive)(void *receive, size_t count, int type, int peer, NcclHandle, cudaStream_t);
    const char *(*error_string)(int result);
    const char *(*last_error)(NcclHandle handle);
};

/* Opens the library once a process: HALFSTEP_NCCL, or libnccl.so.2; on the emulator its stand-in, which lies next to
 * the part.
 * errors: HS_EUNSUPPORTED when it is not there, lacks a function, or is older than 2.14 */
HsStatus open_nccl(const Nccl **library);

} // namespace HS_CUDA_NAMESPACE

#endif
