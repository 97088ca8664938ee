/* SPDX-License-Identifier: MIT
 *
 * Accounts of device memory, and the device that does nothing but keep one.
 */
#include "kernels/base/memory.h"

#include <assert.h>
#include <stdint.h>

#include "kernels/base/device.h"
#include "kernels/base/file_memory.h"
#include "kernels/base/size.h"

static const HsMemoryRow rows[HS_MEMORY_COUNT] = {
#define HS_MEMORY_TABLE_ROW(enumerator, name, doc) [HS_MEMORY_##enumerator] = { name, doc },
    HS_MEMORY_CATEGORIES(HS_MEMORY_TABLE_ROW)
};

const HsMemoryRow *hs_memory_row(HsMemoryCategory category)
{
    return &rows[category];
}

void hs_memory_add(HsMemoryAccount *account, HsMemoryCategory category, size_t bytes)
{
    account->current[category] = hs_size_add(account->current[category], bytes);
    if (account->current[category] > account->peak[category])
        account->peak[category] = account->current[category];
}

void hs_memory_subtract(HsMemoryAccount *account, HsMemoryCategory category, size_t bytes)
{
    assert(account->current[category] >= bytes);
    account->current[category] -= bytes;
}

size_t hs_memory_sum(const size_t bytes[HS_MEMORY_COUNT])
{
    size_t sum = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        sum = hs_size_add(sum, bytes[i]);
    return sum;
}

HsStatus hs_memory_alloc(HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer)
{
    if (bytes > HS_SIZE_MOST)
        return hs_fail(HS_ENOMEM, "%s: %zu bytes or more, which no machine has", rows[category].name, bytes);
    HsStatus status = device->alloc(device, bytes, pointer);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s", rows[category].name);
    hs_memory_add(&device->account, category, bytes);
    return HS_OK;
}

void hs_memory_release(HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer)
{
    if (!pointer)
        return;
    device->release(device, pointer);
    hs_memory_subtract(&device->account, category, bytes);
}

HsStatus hs_memory_host_alloc(HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer)
{
    if (bytes > HS_SIZE_MOST)
        return hs_fail(HS_ENOMEM, "%s: %zu bytes or more, which no machine has", rows[category].name, bytes);
    HsStatus status = device->host_alloc(device, bytes, pointer);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s, %zu bytes", rows[category].name, bytes);
    hs_memory_add(&device->account, category, bytes);
    return HS_OK;
}

void hs_memory_host_release(HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer)
{
    if (!pointer)
        return;
    device->host_release(device, pointer);
    hs_memory_subtract(&device->account, category, bytes);
}

HsStatus hs_memory_file_alloc(HsDevice *device, HsMemoryCategory category, const char *folder, size_t bytes,
                              void **pointer)
{
    if (bytes > HS_SIZE_MOST)
        return hs_fail(HS_ENOMEM, "%s: %zu bytes or more, which no drive has", rows[category].name, bytes);
    const HsStatus status =
        device->counts ? device->alloc(device, bytes, pointer) : hs_file_memory_map(folder, bytes, pointer);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s", rows[category].name);
    hs_memory_add(&device->account, category, bytes);
    return HS_OK;
}

void hs_memory_file_release(HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer)
{
    if (!pointer)
        return;
    if (!device->counts)
        hs_file_memory_unmap(pointer, bytes);
    hs_memory_subtract(&device->account, category, bytes);
}

size_t hs_memory_elsewhere(const HsDevice *device, const size_t bytes[HS_MEMORY_COUNT])
{
    const size_t host = device->host_accessible ? 0 : hs_size_add(bytes[HS_MEMORY_REPLAY], bytes[HS_MEMORY_OFFLOADED]);
    return hs_size_add(bytes[HS_MEMORY_ON_DISK], host);
}

/* --- the counting device --- */

/* Where no machine has memory: an access to it faults. */
static const uintptr_t nowhere = (uintptr_t)1 << 60;

/* One block behind the other, for code that asks whether two of them overlap: peak_bytes is where the next begins. */
static HsStatus count_alloc(HsDevice *device, size_t bytes, void **pointer)
{
    const size_t aligned = (bytes + 63) / 64 * 64;
    *pointer = (void *)(nowhere + device->peak_bytes);
    device->peak_bytes += aligned > 0 ? aligned : 64;
    return HS_OK;
}

static void count_release(HsDevice *device, void *pointer)
{
    (void)device;
    (void)pointer;
}

static HsStatus count_copy(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes)
{
    (void)device;
    (void)stream;
    (void)destination;
    (void)source;
    (void)bytes;
    return HS_OK;
}

static HsStatus count_fill_zero(HsDevice *device, HsStream *stream, void *pointer, size_t bytes)
{
    (void)device;
    (void)stream;
    (void)pointer;
    (void)bytes;
    return HS_OK;
}

void hs_device_counting_init(HsDevice *device, const HsDevice *real)
{
    *device = *real;
    device->counts = true;
    device->account = (HsMemoryAccount){ 0 };
    device->current_bytes = device->peak_bytes = 0;
    device->alloc = count_alloc;
    device->release = count_release;
    device->copy = count_copy;
    device->fill_zero = count_fill_zero;
    device->host_alloc = count_alloc;
    device->host_release = count_release;
    device->deinit = NULL;
}
