/* SPDX-License-Identifier: MIT
 *
 * Making and giving back what products keep on a device.
 */
#include "kernels/cuda/product/products.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/cublaslt.cuh"
#include "kernels/cuda/product/matmul_hopper_work.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

void release(Products *products)
{
    cudaFree(products->turns);
    destroy_table(products->table);
    free(products);
}

/* The counter of clusters stands behind the last cluster's. */
const size_t TURNS_BYTES = (MATMUL_MOST_CLUSTERS + 1) * HOPPER_TURNS * sizeof(unsigned);

HsStatus make_turns(unsigned **turns)
{
    void *made = nullptr;
    cudaError_t error = cudaMalloc(&made, TURNS_BYTES);
    if (error == cudaSuccess)
        error = cudaMemset(made, 0, TURNS_BYTES);
    /* It may return before the bytes are zero, and streams that do not wait for the default one would not see them. */
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    *turns = static_cast<unsigned *>(made);
    return error == cudaSuccess
               ? HS_OK
               : hs_fail(HS_EDEVICE, "%zu bytes for the turns of products: %s", TURNS_BYTES, cudaGetErrorString(error));
}

} // namespace

HsStatus open_products(HsDevice *device)
{
    Products *products = static_cast<Products *>(calloc(1, sizeof *products));
    if (products == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a device's products, %zu bytes", sizeof *products);
    hang_products(device, products, release);
    if (device_limits(device).hopper_products)
        HS_TRY(make_turns(&products->turns));
    return device_options(device).cublaslt ? cublaslt_open() : HS_OK;
}

HsStatus take_turns(const HsContext *context, unsigned **turns)
{
    Products &products = *device_products(context->device);
    const cudaStream_t stream = stream_of(context);
    if (products.turns_taken && products.stream != stream) {
        cudaStreamCaptureStatus capture;
        cudaError_t error = cudaStreamIsCapturing(stream, &capture);
        if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)
            return hs_fail(HS_EDEVICE, "a product is recorded in a stream other than that of the products before it: "
                                       "run one there first");
        if (error == cudaSuccess)
            error = cudaDeviceSynchronize();
        if (error != cudaSuccess)
            return hs_fail(HS_EDEVICE, "waiting for products of another stream: %s", cudaGetErrorString(error));
    }
    products.turns_taken = true;
    products.stream = stream;
    *turns = products.turns;
    return HS_OK;
}

void forget_choices(Products *products)
{
    memset(&products->cache, 0, sizeof products->cache);
}

} // namespace HS_CUDA_NAMESPACE
