/* SPDX-License-Identifier: MIT
 *
 * The device interface: memory, copies, streams and events, as a table of functions.
 * `host` (device_host.c) serves the ref and cpu backends: copies are memcpy, streams run in order at once.
 * A GPU device fills the same table; runtime/ and optim/ never see which.
 */
#ifndef HS_KERNELS_BASE_DEVICE_H
#define HS_KERNELS_BASE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsStream HsStream; /* opaque; NULL is the device's default stream */
typedef struct HsEvent HsEvent;
typedef struct HsDevice HsDevice;

struct HsDevice {
    const char *name;      /* "host", "cuda:0" */
    char description[128]; /* for people: processor name, vector extensions, cores */
    size_t memory_bytes;   /* total memory of the device */
    int host_accessible;   /* 1 when the CPU may dereference device pointers */

    /* 64-byte aligned, zero-filled on request only.  HS_ENOMEM names the bytes asked for. */
    HsStatus (*alloc)(HsDevice *device, size_t bytes, void **pointer);
    void (*release)(HsDevice *device, void *pointer);
    /* Copies in stream order; source and destination may be host or device. */
    HsStatus (*copy)(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes);
    HsStatus (*fill_zero)(HsDevice *device, HsStream *stream, void *pointer, size_t bytes);
    HsStatus (*stream_create)(HsDevice *device, HsStream **stream);
    void (*stream_destroy)(HsDevice *device, HsStream *stream);
    HsStatus (*stream_sync)(HsDevice *device, HsStream *stream);
    HsStatus (*event_create)(HsDevice *device, HsEvent **event);
    void (*event_destroy)(HsDevice *device, HsEvent *event);
    HsStatus (*event_record)(HsDevice *device, HsEvent *event, HsStream *stream);
    HsStatus (*event_elapsed_ms)(HsDevice *device, HsEvent *start, HsEvent *stop, double *milliseconds);
    /* Bytes held through alloc now and at most. */
    size_t current_bytes;
    size_t peak_bytes;
};

/* The machine's memory and processors.  The caller owns the storage. */
HsStatus hs_device_host_init(HsDevice *device);

#endif
