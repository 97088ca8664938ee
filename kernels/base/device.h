/* SPDX-License-Identifier: MIT
 *
 * The device interface: memory, copies, streams and events, as a table of functions.
 * `host` (device_host.c) serves the ref and cpu backends: copies are memcpy, streams run in order at once.
 * A GPU device fills the same table; runtime/ and optim/ never see which.
 */
#ifndef HS_KERNELS_BASE_DEVICE_H
#define HS_KERNELS_BASE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/limits.h"
#include "kernels/base/memory.h"
#include "kernels/base/memory_hooks.h"
#include "kernels/base/status.h"

typedef struct HsStream HsStream; /* opaque; NULL is the device's default stream */
typedef struct HsEvent HsEvent;
typedef struct HsGraph HsGraph; /* a recorded sequence of launches */
typedef struct HsDevice HsDevice;

struct HsDevice {
    const char *name;      /* "host", "cuda:0" */
    char description[192]; /* for people: processor name, vector extensions, cores */
    char bus_id[32];       /* PCI address "domain:bus:device.function", by which other libraries know it; "": none */
    size_t memory_bytes;   /* total memory of the device */
    HsLimits limits;       /* of the host: what control groups leave of it; zero on devices with their own memory */
    int host_accessible;   /* 1 when the CPU may dereference device pointers */
    bool counts;           /* it only keeps an account: hs_device_counting_init */

    /* 64-byte aligned, zero-filled on request only.  HS_ENOMEM names the bytes asked for. */
    HsStatus (*alloc)(HsDevice *device, size_t bytes, void **pointer);
    void (*release)(HsDevice *device, void *pointer);
    /* Copies in stream order; source and destination may be host or device.  Pageable host memory may be changed or
     * freed as soon as the call returns; memory of host_alloc only after the stream went past the copy. */
    HsStatus (*copy)(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes);
    HsStatus (*fill_zero)(HsDevice *device, HsStream *stream, void *pointer, size_t bytes);
    HsStatus (*stream_create)(HsDevice *device, HsStream **stream);
    void (*stream_destroy)(HsDevice *device, HsStream *stream);
    HsStatus (*stream_sync)(HsDevice *device, HsStream *stream);
    HsStatus (*event_create)(HsDevice *device, HsEvent **event);
    void (*event_destroy)(HsDevice *device, HsEvent *event);
    HsStatus (*event_record)(HsDevice *device, HsEvent *event, HsStream *stream);
    HsStatus (*event_elapsed_ms)(HsDevice *device, HsEvent *start, HsEvent *stop, double *milliseconds);
    HsStatus (*event_sync)(HsDevice *device, HsEvent *event); /* the host waits until it was reached */
    HsStatus (*stream_wait)(HsDevice *device, HsStream *stream, HsEvent *event); /* the stream waits */
    /* Host memory that copies run from and to while the host continues: pinned, for a GPU.  64-byte aligned. */
    HsStatus (*host_alloc)(HsDevice *device, size_t bytes, void **pointer);
    void (*host_release)(HsDevice *device, void *pointer);
    /* Between begin and end, work on the stream is recorded and not run; NULL where the device has no graphs. */
    HsStatus (*graph_begin)(HsDevice *device, HsStream *stream);
    HsStatus (*graph_end)(HsDevice *device, HsStream *stream, HsGraph **graph);
    HsStatus (*graph_launch)(HsDevice *device, HsGraph *graph, HsStream *stream);
    void (*graph_destroy)(HsDevice *device, HsGraph *graph);
    /* Named ranges for profilers, nested; NULL: none. */
    void (*range_push)(HsDevice *device, const char *name);
    void (*range_pop)(HsDevice *device);
    void (*deinit)(HsDevice *device); /* NULL: nothing to give back */
    /* What is free now for this process.  Asks the system: not for inner loops. */
    HsStatus (*free_memory)(const HsDevice *device, size_t *free_bytes);
    /* Bytes held through alloc now and at most; of those by hs_memory_alloc, what for. */
    size_t current_bytes;
    size_t peak_bytes;
    HsMemoryAccount account;
    /* They serve hs_memory_alloc and hs_memory_host_alloc; NULL: alloc and host_alloc above.  Borrowed, and set before
     * anything is allocated. */
    const HsMemoryHooks *hooks;
    size_t cap_bytes;     /* hs_memory_alloc refuses what goes beyond it; 0: none */
    void *implementation; /* the device's own */
};

/* The machine's memory and processors.  The caller owns the storage. */
HsStatus hs_device_host_init(HsDevice *device);
/* Gives back what init took; safe on a zeroed device. */
void hs_device_deinit(HsDevice *device);

#endif
