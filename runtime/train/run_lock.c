/* SPDX-License-Identifier: MIT
 *
 * The lock of a run's folder, by flock: it belongs to the open file, so that it ends with the process, and also works
 * over NFS (Linux turns it into a lock of the whole file there).  The file holds the owner's number, for the message.
 */
#include "runtime/train/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/io/files.h"

struct HsRunLock {
    int descriptor;
};

/* The number in the file, as text; "?" where there is none. */
static void read_owner(int descriptor, char *text, size_t bytes)
{
    const ssize_t length = pread(descriptor, text, bytes - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    text[strspn(text, "0123456789")] = '\0';
    if (text[0] == '\0')
        snprintf(text, bytes, "?");
}

/* A message is all that the number serves: a full disk does not keep a run from training. */
static void write_owner(int descriptor)
{
    char text[32];
    const int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(descriptor, 0) == 0)
        (void)!pwrite(descriptor, text, (size_t)length, 0);
}

static HsStatus lock_file(const char *out_dir, const char *path, int descriptor)
{
    char owner[32];
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        write_owner(descriptor);
        return HS_OK;
    }
    if (errno == EWOULDBLOCK) {
        read_owner(descriptor, owner, sizeof owner);
        return hs_fail(HS_EIO,
                       "%s: process %s is training there, and two would destroy each other's checkpoints: wait for it, "
                       "stop it (kill %s), or choose another out_dir",
                       out_dir, owner, owner);
    }
    return hs_fail(HS_EUNSUPPORTED, "%s: cannot be locked: %s", path, strerror(errno));
}

HsStatus hs_run_lock_take(const char *out_dir, HsRunLock **lock)
{
    char path[4096];
    *lock = NULL;
    bool exists;
    HS_TRY(hs_path_exists(out_dir, &exists));
    if (!exists)
        return HS_OK;
    snprintf(path, sizeof path, "%s/.lock", out_dir);
    const int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    HsStatus status = lock_file(out_dir, path, descriptor);
    if (status == HS_EUNSUPPORTED) {
        hs_warn("%s; do not let two processes train in %s at the same time", hs_error_message(), out_dir);
        close(descriptor);
        return HS_OK;
    }
    if (status == HS_OK && (*lock = malloc(sizeof **lock)) == NULL)
        status = hs_fail(HS_ENOMEM, "no memory for the lock of %s", out_dir);
    if (status != HS_OK) {
        close(descriptor);
        return status;
    }
    (*lock)->descriptor = descriptor;
    return HS_OK;
}

bool hs_run_lock_held(const char *out_dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/.lock", out_dir);
    const int descriptor = open(path, O_RDWR | O_CLOEXEC);
    const bool held = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (descriptor >= 0)
        close(descriptor);
    return held;
}

void hs_run_lock_release(HsRunLock *lock)
{
    if (!lock)
        return;
    close(lock->descriptor);
    free(lock);
}
