/* SPDX-License-Identifier: MIT
 *
 * Operands in codes of less than 16 bits, as products that multiply bf16 read them: the numerics of every format on every
 * GPU.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_CODES_CUH
#define HS_KERNELS_CUDA_PRODUCT_CODES_CUH

#include "kernels/cuda/toolbox/platform.cuh"
#include "kernels/ops/code_rule.h"

namespace HS_CUDA_NAMESPACE
{

/* out [rows, depth] bf16 = number times block scale, exactly; device memory. */
HsStatus launch_decode_codes(HsContext *context, const HsCodes &codes, void *out);

} // namespace HS_CUDA_NAMESPACE

#endif
