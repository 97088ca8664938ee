/* SPDX-License-Identifier: MIT
 *
 * Accounts of device memory, and the device that does nothing but keep one.
 */
#include "kernels/base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* --- taking and giving back --- */

/* What processes exchange is left out: a plan knows it as it is at the start, and buffers grow with what passes. */
static HsStatus check_cap(const HsDevice *device, HsMemoryCategory category, size_t bytes)
{
    const size_t *const current = device->account.current;
    if (device->cap_bytes == 0 || category == HS_MEMORY_COMMUNICATION)
        return HS_OK;
    const size_t used =
        hs_memory_sum(current) - current[HS_MEMORY_COMMUNICATION] - hs_memory_elsewhere(device, current);
    if (used <= device->cap_bytes && bytes <= device->cap_bytes - used)
        return HS_OK;
    return hs_fail(HS_ENOMEM,
                   "%s: %zu bytes on %s: %zu are in use of the %zu that memory.limit allows; raise it, or see with "
                   "`trainer plan` what takes less",
                   rows[category].name, bytes, device->name, used, device->cap_bytes);
}

/* Hooks are never asked for nothing. */
static HsMemoryRequest make_request(const HsDevice *device, HsMemoryCategory category, size_t bytes, bool pinned)
{
    return (HsMemoryRequest){
        .device = device->name,
        .use = rows[category].name,
        .bytes = bytes > 0 ? bytes : 1,
        .alignment = pinned ? HS_MEMORY_PINNED_ALIGNMENT : HS_MEMORY_DEVICE_ALIGNMENT,
    };
}

static void give_to_hooks(const HsMemoryHooks *hooks, const HsMemoryRequest *request, bool pinned, void *pointer)
{
    (pinned ? hooks->pinned_release : hooks->release)(hooks->user, request, pointer);
}

static HsStatus ask_hooks(const HsMemoryHooks *hooks, const HsMemoryRequest *request, bool pinned, void **pointer)
{
    char why[256] = "";
    void *given = NULL;
    *pointer = NULL;
    const int result = (pinned ? hooks->pinned : hooks->alloc)(hooks->user, request, &given, why, sizeof why);
    const char *const place = pinned ? "pinned for" : "on";
    if (result == HS_MEMORY_SERVED && given && (uintptr_t)given % request->alignment != 0) {
        give_to_hooks(hooks, request, pinned, given);
        return hs_fail(HS_EDEVICE,
                       "%s: %zu bytes %s %s: the allocator %s gave address %p, which is not a multiple of %zu",
                       request->use, request->bytes, place, request->device, hooks->name, given, request->alignment);
    }
    if (result == HS_MEMORY_SERVED && given) {
        *pointer = given;
        return HS_OK;
    }
    why[sizeof why - 1] = '\0';
    why[strcspn(why, "\n")] = '\0';
    return hs_fail(result == HS_MEMORY_SERVED || result == HS_MEMORY_EXHAUSTED ? HS_ENOMEM : HS_EDEVICE,
                   "%s: %zu bytes %s %s: the allocator %s %s: %s", request->use, request->bytes, place, request->device,
                   hooks->name, result == HS_MEMORY_SERVED || result == HS_MEMORY_EXHAUSTED ? "has none" : "failed",
                   why[0] ? why : "it gives no reason");
}

/* device->alloc counts by itself. */
static HsStatus take_from_hooks(HsDevice *device, const HsMemoryRequest *request, size_t bytes, void **pointer)
{
    HS_TRY(ask_hooks(device->hooks, request, false, pointer));
    device->current_bytes += bytes;
    if (device->current_bytes > device->peak_bytes)
        device->peak_bytes = device->current_bytes;
    return HS_OK;
}

static HsStatus check_size(HsMemoryCategory category, size_t bytes)
{
    if (bytes <= HS_SIZE_MOST)
        return HS_OK;
    return hs_fail(HS_ENOMEM, "%s: %zu bytes or more, which no machine has", rows[category].name, bytes);
}

HsStatus hs_memory_alloc(HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer)
{
    HS_TRY(check_size(category, bytes));
    HS_TRY(check_cap(device, category, bytes));
    if (device->hooks && device->hooks->alloc) {
        const HsMemoryRequest request = make_request(device, category, bytes, false);
        HS_TRY(take_from_hooks(device, &request, bytes, pointer));
    } else {
        const HsStatus status = device->alloc(device, bytes, pointer);
        if (status != HS_OK)
            return hs_error_prefix(status, "%s", rows[category].name);
    }
    hs_memory_add(&device->account, category, bytes);
    return HS_OK;
}

void hs_memory_release(HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer)
{
    if (!pointer)
        return;
    if (device->hooks && device->hooks->alloc) {
        const HsMemoryRequest request = make_request(device, category, bytes, false);
        give_to_hooks(device->hooks, &request, false, pointer);
        device->current_bytes -= bytes;
    } else {
        device->release(device, pointer);
    }
    hs_memory_subtract(&device->account, category, bytes);
}

HsStatus hs_memory_host_alloc(HsDevice *device, HsMemoryCategory category, size_t bytes, void **pointer)
{
    HS_TRY(check_size(category, bytes));
    if (device->host_accessible) /* then it is the device's memory, too */
        HS_TRY(check_cap(device, category, bytes));
    if (device->hooks && device->hooks->pinned) {
        const HsMemoryRequest request = make_request(device, category, bytes, true);
        HS_TRY(ask_hooks(device->hooks, &request, true, pointer));
    } else {
        const HsStatus status = device->host_alloc(device, bytes, pointer);
        if (status != HS_OK)
            return hs_error_prefix(status, "%s, %zu bytes", rows[category].name, bytes);
    }
    hs_memory_add(&device->account, category, bytes);
    return HS_OK;
}

void hs_memory_host_release(HsDevice *device, HsMemoryCategory category, size_t bytes, void *pointer)
{
    if (!pointer)
        return;
    if (device->hooks && device->hooks->pinned) {
        const HsMemoryRequest request = make_request(device, category, bytes, true);
        give_to_hooks(device->hooks, &request, true, pointer);
    } else {
        device->host_release(device, pointer);
    }
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
    device->hooks = NULL;
    device->cap_bytes = 0; /* the plan reports better what is too much, and by how much */
    device->deinit = NULL;
}
