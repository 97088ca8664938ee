/* SPDX-License-Identifier: MIT
 *
 * Tensor maps: what the tensor memory accelerator has to know of a tensor and of the tiles that are copied.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_TENSOR_MAP_CUH
#define HS_KERNELS_CUDA_TOOLBOX_TENSOR_MAP_CUH

#include "kernels/cuda/toolbox/platform.cuh"

#ifdef HS_EMU
#include "kernels/emu/tensor_map.h"
#else
#include <cuda.h>
#endif

namespace HS_CUDA_NAMESPACE
{

#ifndef HS_EMU
typedef CUtensorMap TensorMap;
#endif

/* A tensor of `rank` dimensions (1 to 5), the contiguous one first. */
struct TensorMapShape {
    void *data; /* 16-byte aligned */
    HsDtype dtype;
    int rank;
    int64_t extents[5]; /* elements */
    int64_t strides[5]; /* bytes between neighbours, multiples of 16; the first is not read */
    int box[5];         /* elements of a tile, at most 256 each */
    int swizzle_bytes;  /* 0, 32, 64, 128: the bytes of a tile's contiguous dimension; 0: any multiple of 16 */
};

/* HS_EINVAL where a shape cannot be encoded, HS_EUNSUPPORTED where the driver has no tensor maps. */
HsStatus encode_tensor_map(const TensorMapShape &shape, TensorMap *map);

} // namespace HS_CUDA_NAMESPACE

#endif
