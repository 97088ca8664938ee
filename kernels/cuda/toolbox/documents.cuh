/* SPDX-License-Identifier: MIT
 *
 * Kernels that take several documents in a sequence (HsDocumentStartsArgs) are compiled twice, so that the one for whole
 * sequences pays nothing for the other.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_DOCUMENTS_CUH
#define HS_KERNELS_CUDA_TOOLBOX_DOCUMENTS_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

struct WholeSequences {
    static constexpr bool documents = false;
};
struct SeveralDocuments {
    static constexpr bool documents = true;
};

/* Calls body(kind); `documents` of kind's type is known when compiling. */
template <typename Body> HsStatus dispatch_documents(bool documents, Body &&body)
{
    return documents ? body(SeveralDocuments{}) : body(WholeSequences{});
}

} // namespace HS_CUDA_NAMESPACE

#endif
