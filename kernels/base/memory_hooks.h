/* SPDX-License-Identifier: MIT
 *
 * Memory from an external allocator: the table that a shared object fills, and the one function that it exports.
 * `memory.allocator: PATH` opens it.  This header needs no other of this project's; `make install` puts it into
 * include/halfstep.
 *
 *     run --> hs_memory_alloc --> cap, account --> hooks->alloc    memory of the device
 *             hs_memory_host_alloc ------------->  hooks->pinned   memory of the host that the device copies from and to
 *                                                  NULL: the device's own, as without hooks
 *
 * Every allocation that a memory plan counts goes through the table, but for the replay buffer, which is the host's
 * own; so does what eval and generate take.  Staging buffers, measurements at the start and libraries do not.  A plan is
 * the same with every allocator.
 *
 * Where device memory may come from depends on the device:
 *   "host"      any memory of this process
 *   "cuda:N"    memory of GPU N: cudaMalloc, cudaMallocAsync and a wait, cuMemCreate with read and write access for N.
 *               Kernels use the address, and cudaMemcpyDefault must know its device.  The calling thread has done
 *               cudaSetDevice(N).  Pinned: cudaMallocHost, or cudaHostRegister on other memory
 *   "emu:N"     the emulator knows only its own device memory: a table for it has no alloc, or is refused.  Pinned: any
 *               memory of this process
 *
 * Threads: calls for one device come one at a time.  A process that has several devices may make calls for them at once.
 * Ownership: the table, what it points to and the shared object stay until the process ends; nothing frees or closes
 * them.  A block belongs to the run from alloc to release, which comes once for each, unless the process
 * is killed.
 */
#ifndef HS_KERNELS_BASE_MEMORY_HOOKS_H
#define HS_KERNELS_BASE_MEMORY_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this header that a compiled table would notice. */
enum { HS_MEMORY_HOOKS_VERSION = 1 };

/* Bytes: what pointers have to be multiples of. */
enum { HS_MEMORY_DEVICE_ALIGNMENT = 256, HS_MEMORY_PINNED_ALIGNMENT = 64 };

/* What alloc and pinned return. */
enum {
    HS_MEMORY_SERVED = 0,
    HS_MEMORY_EXHAUSTED = 1, /* there is no more: the run explains what it holds and what would fit */
    HS_MEMORY_FAILED = 2     /* the allocator or the device is broken */
};

typedef struct HsMemoryRequest {
    const char *device; /* "host", "cuda:0", "emu:0"; stays as long as the device */
    const char *use;    /* the name of a category, as plans print it: "weights", "optimizer moments"; stays */
    size_t bytes;       /* at least 1; a run asks few times, mostly for much */
    size_t alignment;   /* bytes, of the pointer: one of the two above */
} HsMemoryRequest;

typedef struct HsMemoryHooks {
    uint64_t version; /* HS_MEMORY_HOOKS_VERSION as it was compiled; it stays the first member */
    const char *name; /* for people: in the line at the start, and in errors */
    void *user;       /* handed to every call */

    /* Memory of request->device.  Sets *pointer, a multiple of request->alignment, to request->bytes bytes of any content;
     * the request may be read during the call only.  Else leaves *pointer NULL and puts one line without its end into
     * why (why_bytes bytes with the final 0; empty already).
     * returns HS_MEMORY_SERVED, HS_MEMORY_EXHAUSTED or HS_MEMORY_FAILED.  NULL or a pointer that is no such multiple is an
     * error; the latter goes to release first */
    int (*alloc)(void *user, const HsMemoryRequest *request, void **pointer, char *why, size_t why_bytes);
    /* The request that the block was made for, and its pointer, never NULL.  Work that uses the block may still be under
     * way on any stream of the device: wait for it, as cudaFree does, before the memory is used for anything else. */
    void (*release)(void *user, const HsMemoryRequest *request, void *pointer);
    /* The same of pinned memory of the host.  A pair of functions may be missing, not one of a pair. */
    int (*pinned)(void *user, const HsMemoryRequest *request, void **pointer, char *why, size_t why_bytes);
    void (*pinned_release)(void *user, const HsMemoryRequest *request, void *pointer);
} HsMemoryHooks;

/* What the shared object exports, under this name.  Called once for every device that is opened, before anything is
 * allocated on it; `device` as in requests.
 * returns the table for it, which devices may share; NULL: this allocator has none for it, which ends the run */
const HsMemoryHooks *hs_memory_hooks(const char *device);

#ifdef __cplusplus
}
#endif

#endif
