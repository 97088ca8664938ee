/* SPDX-License-Identifier: MIT
 *
 * The backend's table.  It has no operation of any other backend to fall back on: each row is a kernel of this folder.
 */
#include "kernels/cuda/peak.cuh"

namespace HS_CUDA_NAMESPACE
{

static HsBackend make_backend(const char *name)
{
    HsBackend backend = {};
    backend.name = name;
#define HS_CUDA_ROW(op_name, Args, formula) \
    backend.op_name = op::op_name;          \
    backend.workspace.op_name = workspace::op_name;
    HS_OPS(HS_CUDA_ROW)
#undef HS_CUDA_ROW
    backend.peak_flops = peak_flops;
    backend.peak_bytes = peak_bytes;
    return backend;
}

} // namespace HS_CUDA_NAMESPACE

#ifdef HS_EMU
const HsBackend *hs_backend_emu(void)
{
    static const HsBackend backend = hs_emu::make_backend("emu");
    return &backend;
}
#else
const HsBackend *hs_backend_cuda(void)
{
    static const HsBackend backend = hs_cuda::make_backend("cuda");
    return &backend;
}
#endif
