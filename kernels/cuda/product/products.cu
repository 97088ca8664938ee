/* SPDX-License-Identifier: MIT
 *
 * Making and giving back what products keep on a device.
 */
#include "kernels/cuda/product/products.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/cublaslt.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

void release(Products *products)
{
    destroy_table(products->table);
    free(products);
}

} // namespace

HsStatus open_products(HsDevice *device)
{
    Products *products = static_cast<Products *>(calloc(1, sizeof *products));
    if (products == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a device's products, %zu bytes", sizeof *products);
    hang_products(device, products, release);
    return device_options(device).cublaslt ? cublaslt_open() : HS_OK;
}

void forget_choices(Products *products)
{
    memset(&products->cache, 0, sizeof products->cache);
}

} // namespace HS_CUDA_NAMESPACE
