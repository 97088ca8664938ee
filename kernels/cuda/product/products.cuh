/* SPDX-License-Identifier: MIT
 *
 * What products keep on a device: the table of measured choices, what tests prescribe, and the choices made so far.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_PRODUCTS_CUH
#define HS_KERNELS_CUDA_PRODUCT_PRODUCTS_CUH

#include "kernels/cuda/product/matmul_choice.cuh"
#include "kernels/cuda/product/matmul_model.cuh"
#include "kernels/cuda/product/matmul_table.cuh"

namespace HS_CUDA_NAMESPACE
{

/* A choice costs the model some hundred evaluations, and a training step asks for the same few products again and
 * again, for their workspace and for their launch.  A key has one place; another key takes it over. */
struct ChoiceCache {
    enum { PLACES = 256 };
    struct Place {
        bool taken, quantized, joint;
        HsProductKey key;
        MatmulWork work;
        MatmulChoice choice;
    };
    Place places[PLACES];
};

struct Products {
    MatmulTable *table; /* NULL: nothing was measured */
    MatmulForce force;  /* empty: nothing is prescribed */
    ChoiceCache cache;  /* of this table, this force and this device */
    /* On the GPU, by cudaMalloc, 16 KiB: the turns of joint tiles (matmul_hopper_work.cuh), which are zeros whenever no
     * product is under way; NULL: no kernel has such tiles. */
    unsigned *turns;
    bool turns_taken;
    cudaStream_t stream; /* of the last product that took turns */
};

/* The turns, for a product in the context's stream: one at a time.  Another stream than before waits for the GPU first,
 * and so cannot be one that is recorded. */
HsStatus take_turns(const HsContext *context, unsigned **turns);

/* Hangs them on an open device, and opens cuBLASLt where the device's options ask for it: now, and not at the first
 * product.  On failure the device is left to its own deinit. */
HsStatus open_products(HsDevice *device);
/* Table or force have changed. */
void forget_choices(Products *products);
/* Products that this backend does not compute (HsBackend.refuse). */
HsStatus refuse_matmul(const HsContext *context, const HsMatmulArgs *args);

} // namespace HS_CUDA_NAMESPACE

#endif
