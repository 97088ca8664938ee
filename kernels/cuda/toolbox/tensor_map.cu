/* SPDX-License-Identifier: MIT
 *
 * Encoding of tensor maps: by the driver, or in the emulator's own form.
 */
#include "kernels/cuda/toolbox/tensor_map.cuh"

namespace HS_CUDA_NAMESPACE
{

/* CUDA Driver API, cuTensorMapEncodeTiled: the limits. */
static HsStatus check_shape(const TensorMapShape &shape)
{
    const int64_t size = (int64_t)hs_dtype_bytes(shape.dtype), most = (int64_t)1 << 40;
    if (shape.rank < 1 || shape.rank > 5 || reinterpret_cast<uintptr_t>(shape.data) % 16 != 0)
        return hs_fail(HS_EINVAL, "tensor map: rank %d at %p; 1 to 5, at a multiple of 16", shape.rank, shape.data);
    for (int d = 0; d < shape.rank; d++) {
        if (shape.extents[d] < 1 || shape.extents[d] > (int64_t)1 << 32 || shape.box[d] < 1 || shape.box[d] > 256)
            return hs_fail(HS_EINVAL, "tensor map: dimension %d has %lld elements in tiles of %d", d,
                           (long long)shape.extents[d], shape.box[d]);
        if (d > 0 && (shape.strides[d] <= 0 || shape.strides[d] % 16 != 0 || shape.strides[d] >= most))
            return hs_fail(HS_EINVAL, "tensor map: dimension %d has a stride of %lld bytes; a multiple of 16 is needed",
                           d, (long long)shape.strides[d]);
    }
    const int64_t line = shape.box[0] * size;
    if (shape.swizzle_bytes == 0 ? line % 16 != 0 : line != shape.swizzle_bytes)
        return hs_fail(HS_EINVAL, "tensor map: tiles have lines of %lld bytes, the swizzle %d", (long long)line,
                       shape.swizzle_bytes);
    return HS_OK;
}

#ifdef HS_EMU
HsStatus encode_tensor_map(const TensorMapShape &shape, TensorMap *map)
{
    HS_TRY(check_shape(shape));
    *map = TensorMap{};
    map->data = static_cast<char *>(shape.data);
    map->rank = (uint8_t)shape.rank;
    map->element_bytes = (uint8_t)hs_dtype_bytes(shape.dtype);
    map->swizzle_bytes = (uint8_t)shape.swizzle_bytes;
    for (int d = 0; d < shape.rank; d++) {
        map->extents[d] = (uint64_t)shape.extents[d];
        map->strides[d] = d == 0 ? map->element_bytes : (uint64_t)shape.strides[d];
        map->box[d] = (uint16_t)shape.box[d];
    }
    return HS_OK;
}
#else
typedef decltype(&cuTensorMapEncodeTiled) EncodeTiled;

/* From the driver that is loaded already: no library is linked for it.  NULL: the driver is older than sm_90. */
static EncodeTiled encode_of_driver()
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    return reinterpret_cast<EncodeTiled>(function);
}

HsStatus encode_tensor_map(const TensorMapShape &shape, TensorMap *map)
{
    static const EncodeTiled encode = encode_of_driver();
    HS_TRY(check_shape(shape));
    if (encode == NULL)
        return hs_fail(HS_EUNSUPPORTED, "tensor map: the driver has no cuTensorMapEncodeTiled; it is older than 525");
    const CUtensorMapDataType type = shape.dtype == HS_F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : shape.dtype == HS_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const CUtensorMapSwizzle swizzle = shape.swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : shape.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : shape.swizzle_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                                   : CU_TENSOR_MAP_SWIZZLE_NONE;
    cuuint64_t extents[5], strides[5];
    cuuint32_t box[5], steps[5] = { 1, 1, 1, 1, 1 };
    for (int d = 0; d < shape.rank; d++) {
        extents[d] = (cuuint64_t)shape.extents[d];
        box[d] = (cuuint32_t)shape.box[d];
        if (d > 0)
            strides[d - 1] = (cuuint64_t)shape.strides[d];
    }
    const CUresult result = encode(map, type, (cuuint32_t)shape.rank, shape.data, extents, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return hs_fail(HS_EINVAL, "tensor map: the driver refuses the shape (error %d)", (int)result);
    return HS_OK;
}
#endif

} // namespace HS_CUDA_NAMESPACE
