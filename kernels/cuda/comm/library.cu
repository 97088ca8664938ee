/* SPDX-License-Identifier: MIT
 *
 * Opening libnccl.so.2, or the emulator's stand-in for it.  The stand-in has a function that the library lacks and gets
 * the emulator's streams by it; so neither can be taken for the other.
 */
#include "kernels/cuda/comm/library.cuh"

#include <dlfcn.h>
#include <mutex>
#include <stdlib.h>

#ifdef HS_EMU
#include "kernels/emu/attach.h"
#endif

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* member, name in the library */
#define NCCL_FUNCTIONS(X)                 \
    X(version, ncclGetVersion)            \
    X(unique_id, ncclGetUniqueId)         \
    X(init, ncclCommInitRankConfig)       \
    X(async_error, ncclCommGetAsyncError) \
    X(abort, ncclCommAbort)               \
    X(finalize, ncclCommFinalize)         \
    X(destroy, ncclCommDestroy)           \
    X(group_start, ncclGroupStart)        \
    X(group_end, ncclGroupEnd)            \
    X(all_reduce, ncclAllReduce)          \
    X(reduce_scatter, ncclReduceScatter)  \
    X(reduce, ncclReduce)                 \
    X(all_gather, ncclAllGather)          \
    X(broadcast, ncclBroadcast)           \
    X(send, ncclSend)                     \
    X(receive, ncclRecv)                  \
    X(error_string, ncclGetErrorString)   \
    X(last_error, ncclGetLastError)

#ifdef HS_EMU
const char default_name[] = "libhalfstep-nccl-standin.so";
const char advice[] = "make emu builds it in the build folder, for tests";
#else
const char default_name[] = "libnccl.so.2";
const char advice[] = "install NCCL 2.14 or later (package libnccl2, or nvidia-nccl-cu12 by pip), and set "
                      "LD_LIBRARY_PATH, or HALFSTEP_NCCL to the file";
#endif

HsStatus connect(void *file, const char *name)
{
    void *const attach = dlsym(file, "hs_emu_attach");
#ifdef HS_EMU
    if (attach == nullptr)
        return hs_fail(HS_EUNSUPPORTED, "%s is not the stand-in for NCCL that the emulator needs: %s", name, advice);
    reinterpret_cast<HsEmuAttach *>(attach)(stream_access());
#else
    if (attach != nullptr)
        return hs_fail(HS_EUNSUPPORTED, "%s is the emulator's stand-in for NCCL, which knows no GPU: %s", name, advice);
#endif
    return HS_OK;
}

HsStatus check_version(const Nccl &nccl, const char *name)
{
    int version = 0;
    if (nccl.version(&version) != NCCL_SUCCESS)
        return hs_fail(HS_EUNSUPPORTED, "%s does not say its version: %s", name, advice);
    if (version < NCCL_OLDEST)
        return hs_fail(HS_EUNSUPPORTED, "%s is NCCL version %d, older than 2.14 (%d): %s", name, version, NCCL_OLDEST,
                       advice);
    return HS_OK;
}

HsStatus open_file(Nccl *nccl)
{
    const char *const wanted = getenv("HALFSTEP_NCCL");
    const char *const name = wanted != nullptr && wanted[0] != '\0' ? wanted : default_name;
    void *const file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr)
        return hs_fail(HS_EUNSUPPORTED, "NCCL cannot be opened: %s: %s", dlerror(), advice);
    HS_TRY(connect(file, name));
#define NCCL_RESOLVE(member, function)                                               \
    nccl->member = reinterpret_cast<decltype(nccl->member)>(dlsym(file, #function)); \
    if (nccl->member == nullptr)                                                     \
        return hs_fail(HS_EUNSUPPORTED, "%s has no " #function ": %s", name, advice);
    NCCL_FUNCTIONS(NCCL_RESOLVE)
#undef NCCL_RESOLVE
    return check_version(*nccl, name);
}

} // namespace

HsStatus open_nccl(const Nccl **library)
{
    static std::mutex mutex;
    static Nccl opened;
    static bool is_open;
    std::lock_guard<std::mutex> hold(mutex);
    if (!is_open)
        HS_TRY(open_file(&opened));
    is_open = true;
    *library = &opened;
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE
