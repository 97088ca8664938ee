/* SPDX-License-Identifier: MIT
 *
 * What device memory is for: the one table of categories, and the account that a device keeps of them.
 * Plans predict these figures, training fills them, and the two are compared (runtime/train/memory_plan.h).
 */
#ifndef HS_KERNELS_BASE_MEMORY_H
#define HS_KERNELS_BASE_MEMORY_H

#include <stddef.h>

#include "kernels/base/status.h"

/* X(enumerator, name, what it holds) */
#define HS_MEMORY_CATEGORIES(X)                                                                                      \
    X(WEIGHTS, "weights", "parameters as forward and backward read them")                                            \
    X(MASTERS, "master weights", "f32 copies of 16-bit weights, which updates are added to")                         \
    X(PACKED, "packed weights", "matrices in the order in which this device's products read them")                   \
    X(GRADIENTS, "gradients", "of every parameter, accumulated over the micro-batches of a step")                    \
    X(MOMENTS, "optimizer moments",                                                                                  \
      "AdamW's two moments, in f32, bf16 or 8 bits; a momentum of SGD or Muon; averages")                            \
    X(OFFLOADED, "offloaded states", "in the host's memory: masters, moments, and buffers to exchange them through") \
    X(ON_DISK, "states on disk",                                                                                     \
      "in files that memory.place.disk holds: moments, and masters where they have no room")                         \
    X(ACTIVATIONS, "activations", "values and their gradients of one micro-batch, placed by their lifetimes")        \
    X(WORKSPACE, "workspace", "scratch of single operations: attention, split products, reductions")                 \
    X(PENALTY, "importance and anchor", "EWC's Fisher and anchor, SI's path, L2's anchor: f32 a parameter")          \
    X(SNAPSHOTS, "MER snapshots", "f32 copies of the parameters that interpolation goes back towards")               \
    X(REFERENCE, "reference gradient", "the f32 gradient on earlier tasks")                                          \
    X(TEACHER, "teacher", "LwF's copy of the model before the task: its weights and what it leaves of a text")       \
    X(REPLAY, "replay buffer", "the reservoir's tokens, and the logits kept of them, in the host's memory")          \
    X(BATCHES, "batches", "tokens, targets and losses of the steps under way")                                       \
    X(STATISTICS, "statistics", "loss scale, norms, sums: what decides a step")                                      \
    X(COMMUNICATION, "communication", "what processes exchange; nothing in a run of one")                            \
    X(CACHES, "key and value caches", "of generated text")

typedef enum HsMemoryCategory {
#define HS_MEMORY_ENUMERATOR(enumerator, name, doc) HS_MEMORY_##enumerator,
    HS_MEMORY_CATEGORIES(HS_MEMORY_ENUMERATOR)
#undef HS_MEMORY_ENUMERATOR
        HS_MEMORY_COUNT
} HsMemoryCategory;

typedef struct HsMemoryRow {
    const char *name, *doc;
} HsMemoryRow;
const HsMemoryRow *hs_memory_row(HsMemoryCategory category);

/* Bytes held now and at most, by category. */
typedef struct HsMemoryAccount {
    size_t current[HS_MEMORY_COUNT], peak[HS_MEMORY_COUNT];
} HsMemoryAccount;

void hs_memory_add(HsMemoryAccount *account, HsMemoryCategory category, size_t bytes);
void hs_memory_subtract(HsMemoryAccount *account, HsMemoryCategory category, size_t bytes);
size_t hs_memory_sum(const size_t bytes[HS_MEMORY_COUNT]);

struct HsDevice;

/* Memory of the device, entered in device->account: device->alloc's, or that of device->hooks (memory_hooks.h), which
 * device->current_bytes then counts, too.  What is in use for all uses but communication stays within device->cap_bytes,
 * where that is not 0; memory of the host counts on devices alone that have no other.
 * `bytes` of a release: what was asked for.
 * errors: HS_ENOMEM beyond the cap, with what is in use and the key; those of alloc, with the category's name in front;
 * of hooks HS_ENOMEM for no memory or NULL, HS_EDEVICE for a failure or an address that is not aligned, with the
 * allocator's name, the category's and the bytes */
HsStatus hs_memory_alloc(struct HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer);
void hs_memory_release(struct HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer);
/* The same of device->host_alloc or the hooks' pinned: memory of the host that the device's account names, too, but
 * not device->current_bytes. */
HsStatus hs_memory_host_alloc(struct HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer);
void hs_memory_host_release(struct HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer);
/* Zeros in a file of `folder` (file_memory.h), which the device's account names, too. */
HsStatus hs_memory_file_alloc(struct HsDevice *device, HsMemoryCategory category, const char *folder, size_t bytes,
                              void **pointer);
void hs_memory_file_release(struct HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer);
/* What is not in a device's memory, where that is its own: the replay buffer, offloaded states, states on disk.  Where
 * it is the host's, only the last. */
size_t hs_memory_elsewhere(const struct HsDevice *device, const size_t bytes[HS_MEMORY_COUNT]);

/* A device that counts: everything `real` has, but allocations only enter the account (their pointers are not to be
 * touched), and copies and fills do nothing.  What a run would allocate is what the same code allocates here, in a dry
 * context.  Has neither hooks nor a cap.  Borrows `real`'s implementation; needs no deinit. */
void hs_device_counting_init(struct HsDevice *device, const struct HsDevice *real);

#endif
