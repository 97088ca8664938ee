/* SPDX-License-Identifier: MIT
 *
 * cp.async (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy"): copies from device to shared
 * memory that a thread issues, closes into groups, and later waits for.
 *
 * Between issue and wait hardware may copy at any moment.  The two extremes are emulated: at once, and at the wait.
 * The late one spoils the destination at the issue, so that a read without a wait (or before a barrier, when another
 * thread issued it) finds NaN, and reads the source at the end, so that an early overwrite is found too.
 */
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

void copies_start(Thread &thread)
{
    thread.copies.clear();
    thread.copy_group = 0;
}

static void perform(const AsyncCopy &copy)
{
    memcpy(copy.destination, copy.source, (size_t)copy.valid);
    memset(copy.destination + copy.valid, 0, (size_t)(copy.bytes - copy.valid));
}

} // namespace emulator

using namespace emulator;

void emulated_copy_async(uint32_t destination, const void *source, int bytes, int valid, Site site)
{
    Worker &self = *worker;
    Thread &thread = *self.current;
    check_open("cp.async", site);
    if (valid < 0 || valid > bytes)
        fault("cp.async (%s:%d): %d of %d bytes are valid", site.file, site.line, valid, bytes);
    if ((uintptr_t)source % (uintptr_t)bytes != 0)
        fault("cp.async (%s:%d): source %p is not a multiple of %d", site.file, site.line, source, bytes);
    if (valid > 0 && !device_range(source, (size_t)valid)) {
        char text[512] = "not device memory";
        memory_describe(static_cast<const char *>(source) + valid - 1, text, sizeof text);
        fault("cp.async (%s:%d): reads %d bytes at %p: %s", site.file, site.line, valid, source, text);
    }
    const AsyncCopy copy = { shared_pointer(destination, bytes, bytes, "cp.async"), static_cast<const char *>(source),
                             bytes, valid, thread.copy_group };
    if (self.launch->settings.late_copies) {
        memset(copy.destination, 0xff, (size_t)bytes);
        thread.copies.push_back(copy);
    } else {
        perform(copy);
    }
}

void emulated_copy_async_commit()
{
    worker->current->copy_group++;
}

void emulated_copy_async_wait(int pending, Site)
{
    Thread &thread = *worker->current;
    /* Groups 0 .. copy_group - 1 are closed; all but the last `pending` of them have to be done. */
    size_t done = 0;
    while (done < thread.copies.size() && thread.copies[done].group < thread.copy_group - pending)
        perform(thread.copies[done++]);
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + (long)done);
    preemption_point();
}

} // namespace hs_emu
