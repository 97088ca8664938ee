/* SPDX-License-Identifier: MIT
 *
 * A matrix in four bits as files hold it: bitsandbytes' tensors (0.43 and later, quant_type nf4, double quantization).
 *
 *     W                                     U8 [n/2, 1]  codes, the first element of two in the upper half
 *     W.absmax                              U8 [n/64]    codes of the blocks' absmaxes
 *     W.nested_absmax                       F32 [ceil(n / 16384)]
 *     W.quant_map, W.nested_quant_map       F32 [16], F32 [256]: the values of codes
 *     W.quant_state.bitsandbytes__nf4       U8           JSON: block sizes, shape, dtype, nested_offset
 */
#ifndef HS_RUNTIME_CHECKPOINT_NF4_TENSORS_H
#define HS_RUNTIME_CHECKPOINT_NF4_TENSORS_H

#include "runtime/checkpoint/safetensors.h"

/* A tensor of some files by name, or NULL; *path: its file. */
typedef struct HsTensorSource {
    const HsNamedTensor *(*find)(const void *files, const char *name, const char **path);
    const void *files;
} HsTensorSource;

/* Whether the tensor `name` of the files is the codes of such a matrix. */
bool hs_nf4_is_stored(const HsTensorSource *source, const char *name);
/* Whether `name` is one of the tensors that belong to the codes of `matrix`. */
bool hs_nf4_is_companion(const char *name, const char *matrix);

/* A view of the matrix [rows, columns]; its scales are separate memory, which the caller frees.  *dtype: the format
 * that it was quantized from, and is decoded to where nothing else says.
 * errors: HS_EFORMAT, HS_ESHAPE naming file, tensor and what is supported; HS_ENOMEM */
HsStatus hs_nf4_open(const HsTensorSource *source, const char *name, int64_t rows, int64_t columns, HsQuantized *view,
                     HsDtype *dtype);

enum { HS_NF4_TENSORS = 6 };

/* The tensors of one matrix to be written: elements first .. of `quantized`, [rows, columns], decoded to `dtype`.
 * *owned: memory of the small ones, freed by the caller after writing. */
HsStatus hs_nf4_tensors(const char *name, const HsQuantized *quantized, int64_t first, const HsTensor *matrix,
                        HsContext *context, HsNamedTensor tensors[HS_NF4_TENSORS], void **owned);

#endif
