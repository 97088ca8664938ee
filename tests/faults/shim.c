/* SPDX-License-Identifier: MIT
 *
 * Faults for the campaigns of tests/faults: a shared object that LD_PRELOAD puts before the C library.  It counts the
 * calls of chosen kinds that the program and its libraries make once main has begun, and lets chosen ones fail.
 *
 *   FAULT_KINDS    which calls count: names of `kinds` below, "memory", "calls" (all others), with commas between
 *   FAULT_AT       number of the first call that fails, from 1; absent: none does
 *   FAULT_COUNT    how many calls fail in a row (1); 0: all from there on
 *   FAULT_ERROR    the errno that they fail with, by name (ENOMEM)
 *   FAULT_HOW      fail; short: reads and writes move half of their bytes; kill: SIGKILL before the call
 *   FAULT_RANK     of the processes of one run (--processes N) that one alone, by its rank
 *   FAULT_SECONDS  SIGALRM after so long: what waits for ever counts as a crash
 *   FAULT_REPORT   a file for the counts of a run that came to its end: "kind count" a line
 *   FAULT_TRACE    1: the first failure's call stack on standard error
 *
 * The first failure is reported on standard error: "fault: KIND, call N".  Standard error itself never fails: what the
 * program has to say about its failure is what is looked at.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KINDS(X) \
    X(malloc)    \
    X(calloc)    \
    X(realloc)   \
    X(aligned)   \
    X(map)       \
    X(open)      \
    X(read)      \
    X(write)     \
    X(sync)      \
    X(rename)    \
    X(unlink)    \
    X(mkdir)     \
    X(truncate)  \
    X(close)     \
    X(stat)      \
    X(list)      \
    X(lock)      \
    X(thread)

#define KIND_ENUM(name) KIND_##name,
#define KIND_NAME(name) #name,
typedef enum Kind { KINDS(KIND_ENUM) KIND_TOTAL } Kind;
static const char *const kinds[] = { KINDS(KIND_NAME) };
static const unsigned memory_kinds =
    1u << KIND_malloc | 1u << KIND_calloc | 1u << KIND_realloc | 1u << KIND_aligned | 1u << KIND_map;
static const unsigned call_kinds = (1u << KIND_TOTAL) - (1u << KIND_open) + (1u << KIND_map);

static const struct {
    const char *name;
    int number;
} errors[] = {
    { "ENOMEM", ENOMEM }, { "ENOSPC", ENOSPC }, { "EIO", EIO },       { "EMFILE", EMFILE }, { "EACCES", EACCES },
    { "EINTR", EINTR },   { "EDQUOT", EDQUOT }, { "EAGAIN", EAGAIN }, { "EFBIG", EFBIG },   { "EROFS", EROFS },
};

typedef enum How { FAIL, SHORT, KILL } How;

static bool armed, traced;
static unsigned chosen;
static long first_failing, failing_count;
static int failing_errno;
static How how;
static _Atomic long chosen_calls, calls_of[KIND_TOTAL];
static _Thread_local bool inside; /* calls made on behalf of a call, or of the shim, do not count */

static void say(const char *text)
{
    (void)!syscall(SYS_write, STDERR_FILENO, text, strlen(text));
}

static void tell(Kind kind, long number)
{
    char line[80];
    void *frames[32];
    const int saved = errno;
    inside = true;
    snprintf(line, sizeof line, "fault: %s, call %ld\n", kinds[kind], number);
    say(line);
    if (traced)
        backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    inside = false;
    errno = saved;
}

/* Count a call; whether it is one of those that fail. */
static bool strikes(Kind kind)
{
    if (!armed || inside || !(chosen & 1u << kind))
        return false;
    atomic_fetch_add(&calls_of[kind], 1);
    const long number = atomic_fetch_add(&chosen_calls, 1) + 1;
    if (first_failing == 0 || number < first_failing || (failing_count > 0 && number >= first_failing + failing_count))
        return false;
    if (how == KILL)
        kill(getpid(), SIGKILL);
    if (number == first_failing)
        tell(kind, number);
    return true;
}

/* Whether the call is to fail, with errno set. */
static bool fails(Kind kind)
{
    if (!strikes(kind) || how == SHORT)
        return false;
    errno = failing_errno;
    return true;
}

/* Not standard error, and nothing that writes to memory. */
static bool can_fail(FILE *file)
{
    const int saved = errno, descriptor = fileno(file);
    errno = saved;
    return descriptor >= 0 && descriptor != STDERR_FILENO;
}

/* As the C library leaves a stream after a system call that failed. */
static void mark(FILE *file)
{
    enum { ERROR_SEEN = 0x20 }; /* glibc's _IO_ERR_SEEN */
    file->_flags |= ERROR_SEEN;
}

/* --- set-up --- */

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static unsigned kinds_of(const char *list)
{
    unsigned mask = 0;
    for (const char *rest = list; *rest;) {
        const size_t length = strcspn(rest, ",");
        if (strncmp(rest, "memory", length) == 0)
            mask |= memory_kinds;
        else if (strncmp(rest, "calls", length) == 0)
            mask |= call_kinds;
        for (int i = 0; i < KIND_TOTAL; i++)
            if (strlen(kinds[i]) == length && strncmp(rest, kinds[i], length) == 0)
                mask |= 1u << i;
        rest += length + (rest[length] == ',');
    }
    return mask;
}

__attribute__((constructor)) static void prepare(void)
{
    const char *list = getenv("FAULT_KINDS"), *error = getenv("FAULT_ERROR"), *way = getenv("FAULT_HOW");
    void *frame;
    chosen = kinds_of(list ? list : "");
    const char *rank = getenv("FAULT_RANK"), *own_rank = getenv("HALFSTEP_RANK");
    first_failing = rank && !(own_rank && strcmp(rank, own_rank) == 0) ? 0 : number_of("FAULT_AT", 0);
    failing_count = number_of("FAULT_COUNT", 1);
    traced = number_of("FAULT_TRACE", 0) > 0;
    how = way && strcmp(way, "short") == 0 ? SHORT : way && strcmp(way, "kill") == 0 ? KILL : FAIL;
    failing_errno = ENOMEM;
    for (size_t i = 0; error && i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, error) == 0)
            failing_errno = errors[i].number;
    (void)backtrace(&frame, 1); /* loads what it needs, now */
    if (number_of("FAULT_SECONDS", 0) > 0)
        alarm((unsigned)number_of("FAULT_SECONDS", 0));
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAULT_REPORT");
    armed = false;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    for (int i = 0; i < KIND_TOTAL; i++)
        if (calls_of[i] > 0)
            fprintf(file, "%s %ld\n", kinds[i], (long)calls_of[i]);
    fprintf(file, "all %ld\n", (long)chosen_calls);
    fclose(file);
}

/* The function of that name that this one stands before. */
static void *next(const char *name)
{
    const bool was_inside = inside;
    inside = true;
    void *function = dlsym(RTLD_NEXT, name);
    inside = was_inside;
    if (!function) {
        say("fault: the C library lacks a function that the shim stands before\n");
        _exit(99);
    }
    return function;
}

static int (*program_main)(int, char **, char **);

static int begin(int argc, char **argv, char **environment)
{
    armed = true;
    return program_main(argc, argv, environment);
}

typedef int Start(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
Start __libc_start_main;

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    static Start *start;
    *(void **)&start = next("__libc_start_main");
    program_main = main;
    return start(begin, argc, argv, init, fini, rtld_fini, stack_end);
}

/* --- calls.  CALL: a function that gives `wrong` when it fails, as most do --- */

#define CALL(kind, type, wrong, name, parameters, ...) \
    type name parameters                               \
    {                                                  \
        static type(*function) parameters;             \
        if (fails(KIND_##kind))                        \
            return wrong;                              \
        if (!function)                                 \
            *(void **)&function = next(#name);         \
        return function(__VA_ARGS__);                  \
    }

CALL(malloc, void *, NULL, malloc, (size_t size), size)
CALL(calloc, void *, NULL, calloc, (size_t count, size_t size), count, size)
CALL(realloc, void *, NULL, realloc, (void *old, size_t size), old, size)
CALL(aligned, void *, NULL, aligned_alloc, (size_t alignment, size_t size), alignment, size)
CALL(aligned, int, failing_errno, posix_memalign, (void **place, size_t alignment, size_t size), place, alignment, size)
CALL(sync, int, -1, fsync, (int descriptor), descriptor)
CALL(sync, int, -1, fdatasync, (int descriptor), descriptor)
CALL(rename, int, -1, rename, (const char *from, const char *to), from, to)
CALL(rename, int, -1, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), a, from, b, to,
     flags)
CALL(unlink, int, -1, unlink, (const char *path), path)
CALL(unlink, int, -1, remove, (const char *path), path)
CALL(unlink, int, -1, rmdir, (const char *path), path)
CALL(mkdir, int, -1, mkdir, (const char *path, mode_t mode), path, mode)
CALL(truncate, int, -1, ftruncate, (int descriptor, off_t length), descriptor, length)
CALL(stat, int, -1, stat, (const char *path, struct stat *info), path, info)
CALL(stat, int, -1, lstat, (const char *path, struct stat *info), path, info)
CALL(stat, int, -1, fstat, (int descriptor, struct stat *info), descriptor, info)
CALL(stat, int, -1, access, (const char *path, int mode), path, mode)
CALL(list, DIR *, NULL, opendir, (const char *path), path)
CALL(list, struct dirent *, NULL, readdir, (DIR * stream), stream)
CALL(lock, int, -1, flock, (int descriptor, int operation), descriptor, operation)
CALL(map, void *, MAP_FAILED, mmap, (void *at, size_t size, int guard, int flags, int descriptor, off_t offset), at,
     size, guard, flags, descriptor, offset)
CALL(thread, int, failing_errno, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*begin_at)(void *), void *argument), thread,
     attributes, begin_at, argument)
CALL(open, FILE *, NULL, fopen, (const char *path, const char *mode), path, mode)

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails(KIND_open) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What fails when it is closed is closed all the same. */
int close(int descriptor)
{
    const bool failing = descriptor != STDERR_FILENO && fails(KIND_close);
    const int result = (int)syscall(SYS_close, descriptor);
    if (failing)
        errno = failing_errno;
    return failing ? -1 : result;
}

/* --- bytes: may also move by half --- */

static size_t moved(bool struck, size_t size)
{
    return struck && how == SHORT && size > 1 ? size / 2 : size;
}

#define MOVE(kind, name, number, pointer)                                            \
    ssize_t name(int descriptor, pointer bytes, size_t size)                         \
    {                                                                                \
        const bool struck = descriptor != STDERR_FILENO && strikes(KIND_##kind);     \
        if (struck && how == FAIL) {                                                 \
            errno = failing_errno;                                                   \
            return -1;                                                               \
        }                                                                            \
        return syscall(number, descriptor, bytes, moved(struck, size));              \
    }                                                                                \
    ssize_t p##name(int descriptor, pointer bytes, size_t size, off_t offset)        \
    {                                                                                \
        const bool struck = strikes(KIND_##kind);                                    \
        if (struck && how == FAIL) {                                                 \
            errno = failing_errno;                                                   \
            return -1;                                                               \
        }                                                                            \
        return syscall(number##_AT, descriptor, bytes, moved(struck, size), offset); \
    }
#define NUMBER_READ     SYS_read
#define NUMBER_READ_AT  SYS_pread64
#define NUMBER_WRITE    SYS_write
#define NUMBER_WRITE_AT SYS_pwrite64
MOVE(read, read, NUMBER_READ, void *)
MOVE(write, write, NUMBER_WRITE, const void *)

/* --- streams: the C library makes their system calls by itself, so the streams' functions fail instead --- */

#define STREAM(kind, type, wrong, name, file, parameters, ...) \
    type name parameters                                       \
    {                                                          \
        static type(*function) parameters;                     \
        if (file && can_fail(file) && fails(KIND_##kind)) {    \
            mark(file);                                        \
            return wrong;                                      \
        }                                                      \
        if (!function)                                         \
            *(void **)&function = next(#name);                 \
        return function(__VA_ARGS__);                          \
    }

STREAM(read, size_t, 0, fread, file, (void *bytes, size_t size, size_t count, FILE *file), bytes, size, count, file)
STREAM(read, char *, NULL, fgets, file, (char *text, int size, FILE *file), text, size, file)
STREAM(write, size_t, 0, fwrite, file, (const void *bytes, size_t size, size_t count, FILE *file), bytes, size, count,
       file)
STREAM(write, int, EOF, fputs, file, (const char *text, FILE *file), text, file)
STREAM(write, int, EOF, fputc, file, (int character, FILE *file), character, file)
STREAM(write, int, EOF, fflush, file, (FILE * file), file)

int fclose(FILE *file)
{
    static int (*function)(FILE *);
    const bool failing = can_fail(file) && fails(KIND_close);
    if (!function)
        *(void **)&function = next("fclose");
    const int result = function(file);
    if (failing)
        errno = failing_errno;
    return failing ? EOF : result;
}
