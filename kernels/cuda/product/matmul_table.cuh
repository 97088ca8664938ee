/* SPDX-License-Identifier: MIT
 *
 * A device's table of measured choices (kernels/tuning/tuning.h), its kernels' names looked up once.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_TABLE_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_TABLE_CUH

#include "kernels/cuda/product/matmul.cuh"

namespace HS_CUDA_NAMESPACE
{

struct MatmulTable {
    HsTuningTable rows;
    MatmulChoice *choices; /* one a row */
};

/* NULL: nothing was measured for this product. */
const MatmulChoice *find_choice(const MatmulTable &table, const HsProductKey &key);
/* Safe on NULL. */
void destroy_table(MatmulTable *table);

/* Makes and uses tables, for the program. */
extern const HsTuner matmul_tuner;

} // namespace HS_CUDA_NAMESPACE

#endif
