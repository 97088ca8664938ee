/* SPDX-License-Identifier: MIT
 *
 * The safetensors format: u64 little-endian header length, JSON header, contiguous tensors without holes.
 */
#ifndef HS_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define HS_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "kernels/base/comm.h"
#include "kernels/ops/backend.h"

/* A change s B A to a matrix, added where it is read: B [rows, r], A [r, columns]. */
typedef struct HsLowRank {
    HsTensor a, b; /* rank 0: none */
    double scale;
} HsLowRank;

/* Elements of a tensor of `count` that process `rank` has: [*first, *first + returned). */
int64_t hs_tensor_share_of(const HsTensorShare *share, int64_t count, int rank, int64_t *first);

typedef struct HsNamedTensor {
    char name[96];
    HsTensor tensor;    /* data NULL: zeros, to be written */
    HsContext *context; /* of the device that holds the data; NULL: host memory */
    bool transposed;    /* the file holds this matrix's transpose */
    double shift;       /* what the file holds is larger by that; to be written: only of what is converted */
    bool converted;     /* the file holds it as `stored`, rounded to nearest even */
    HsDtype stored;
    HsLowRank change; /* only of what is converted, in host memory */
    /* The tensor, which has no data, is `quantized`'s from element `first` on; to be written: converted, in host memory. */
    const HsQuantized *quantized;
    int64_t first;
    HsTensorShare share;
    /* To be written: elements [first, first + count) of this process's, into host memory, by what the caller noted of
     * the tensor; NULL: as they lie.  Neither transposed nor converted. */
    HsStatus (*derive)(const struct HsNamedTensor *named, int64_t first, int64_t count, void *host);
    const void *user;
    int index;
    int64_t before;
} HsNamedTensor;

/* Writes to exactly `path` and fsyncs (atomic renaming is the checkpoint's business).  Of tensors that are shared every
 * process calls it, with the same names and shapes; those with path NULL write nothing.  metadata: NULL-terminated
 * key, value, key, value ... or NULL.  checksum (XXH3-64 of the file's bytes) may be NULL. */
HsStatus hs_safetensors_write(const char *path, const HsNamedTensor *tensors, int count, const char *const *metadata,
                              uint64_t *checksum);

typedef struct HsSafetensors {
    HsNamedTensor *tensors; /* sorted by offset; data points into the mapping: read-only, unaligned in some files */
    int count;
    void *mapping;
    size_t size;
} HsSafetensors;

/* Maps, and checks all that a reader relies on: lengths, overflow, dtype, holes, overlaps, duplicates, names. */
HsStatus hs_safetensors_open(const char *path, HsSafetensors *file);
/* The same over bytes in memory (borrowed): tests and fuzzing. */
HsStatus hs_safetensors_parse(const char *name, const void *bytes, size_t size, HsSafetensors *file);
/* Elements first, first + stride, ... of a tensor, `count` of them, as exact doubles; its data may lie unaligned. */
void hs_safetensors_load(const HsTensor *tensor, int64_t first, int64_t stride, int64_t count, double *values);
/* The same with the tensor's shift and low-rank change, in double; stride 1, or a changed matrix's columns. */
void hs_named_load(const HsNamedTensor *named, int64_t first, int64_t stride, int64_t count, double *values);
const HsNamedTensor *hs_safetensors_find(const HsSafetensors *file, const char *name);
void hs_safetensors_close(HsSafetensors *file);

#endif
