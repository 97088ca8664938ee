/* SPDX-License-Identifier: MIT
 *
 * The backend's table, and the part that it is.  It has no operation of any other backend to fall back on: each row is a
 * kernel of this folder.
 */
#include "kernels/cuda/comm/nccl.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/peak.cuh"
#include "kernels/cuda/product/matmul_fp8.cuh"
#include "kernels/cuda/product/predicted.cuh"
#include "kernels/cuda/product/predicted_operations.cuh"
#include "kernels/cuda/product/products.cuh"
#include "kernels/cuda/toolbox/launch.cuh"

extern "C" {
#include "kernels/parts/part.h"
}

namespace HS_CUDA_NAMESPACE
{

#ifdef HS_EMU
static const char backend_name[] = "emu";
#else
static const char backend_name[] = "cuda";
#endif

static HsBackend make_backend()
{
    HsBackend backend = {};
    backend.name = backend_name;
#define HS_CUDA_ROW(op_name, Args, formula) \
    backend.op_name = op::op_name;          \
    backend.workspace.op_name = workspace::op_name;
    HS_OPS(HS_CUDA_ROW)
#undef HS_CUDA_ROW
    backend.refuse.matmul = refuse_matmul;
    backend.turns_codes = turns_codes;
    backend.seconds.matmul = predicted::matmul;
    backend.seconds.attention_forward = predicted::attention_forward;
    backend.seconds.attention_backward = predicted::attention_backward;
    backend.peak_flops = peak_flops;
    backend.peak_bytes = peak_bytes;
    return backend;
}

#ifdef HS_EMU
static void observe_launches(HsLaunchObserver *observer)
{
    hs_emu_launch_observer = observer;
}
#endif

static HsStatus init_device(HsDevice *device, const HsCudaOptions *options)
{
    HS_TRY(open_device(device, options, backend_name));
    const HsStatus status = open_products(device);
    if (status != HS_OK)
        hs_device_deinit(device);
    return status;
}

/* What this part exports. */
static HsBackendPart make_part()
{
    static const HsBackend backend = make_backend();
    HsBackendPart part = {};
    part.layout = hs_part_layout();
    part.name = backend_name;
    part.device_init = init_device;
    part.backend = &backend;
    part.tuner = &matmul_tuner;
    part.write_predictions = write_predicted;
#ifdef HS_EMU
    part.observe_launches = observe_launches;
#endif
    part.comm_id = make_comm_id;
    part.comm_create = make_comm;
    return part;
}

} // namespace HS_CUDA_NAMESPACE

extern "C" __attribute__((visibility("default"))) const HsBackendPart *hs_backend_part(void)
{
    static const HsBackendPart part = HS_CUDA_NAMESPACE::make_part();
    return &part;
}
