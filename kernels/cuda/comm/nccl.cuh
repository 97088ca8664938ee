/* SPDX-License-Identifier: MIT
 *
 * Communicators over NCCL, see kernels/base/comm_nccl.h.
 */
#ifndef HS_KERNELS_CUDA_COMM_NCCL_CUH
#define HS_KERNELS_CUDA_COMM_NCCL_CUH

#include "kernels/cuda/toolbox/platform.cuh"

extern "C" {
#include "kernels/base/comm_nccl.h"
}

namespace HS_CUDA_NAMESPACE
{

HsStatus make_comm_id(unsigned char id[HS_COMM_NCCL_ID_BYTES]);
HsStatus make_comm(HsDevice *device, const HsCommNcclOptions *options, HsComm **comm);

} // namespace HS_CUDA_NAMESPACE

#endif
