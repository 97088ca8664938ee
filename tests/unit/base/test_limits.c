/* SPDX-License-Identifier: MIT
 *
 * Limits of control groups, read from made trees that look as the kernel's do: which group counts, which number wins,
 * and what is no limit.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/limits.h"
#include "kernels/base/log.h"
#include "tests/support/scratch.h"

enum { FILES = 24 };

/* A file of the tree, and what is in it. */
typedef struct MadeFile {
    const char *path, *text;
} MadeFile;

#define MACHINE                                                                                     \
    {                                                                                               \
        "proc/meminfo", "MemTotal:        1048576 kB\nMemFree: 1 kB\nMemAvailable:     786432 kB\n" \
    }
#define MOUNT_V2     "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_MEMORY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define MOUNT_CPU    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define UNLIMITED    "9223372036854771712\n"
static const double machine_mib = 1024;

typedef struct Case {
    const char *name;
    double processors, mib; /* expected; 0 and the machine's: no limit */
    int threads;            /* of 8 cores */
    const char *processors_from, *memory_from;
    MadeFile files[FILES];
} Case;

static const Case cases[] = {
    { "no control groups", 0, 1024, 8, "", "", { MACHINE } },
    { "version 2, nothing limited",
      0,
      1024,
      8,
      "",
      "",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/a\n" },
        { "sys/fs/cgroup/a/cpu.max", "max 100000\n" },
        { "sys/fs/cgroup/a/memory.max", "max\n" } } },
    { "version 2, in a separate namespace: 0::/",
      1.5,
      256,
      2,
      "/sys/fs/cgroup/cpu.max",
      "/sys/fs/cgroup/memory.max",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/\n" },
        { "sys/fs/cgroup/cpu.max", "150000 100000\n" },
        { "sys/fs/cgroup/memory.max", "268435456\n" } } },
    { "version 2, a parent allows less than the group",
      2,
      128,
      2,
      "/sys/fs/cgroup/a/cpu.max",
      "/sys/fs/cgroup/a/b/memory.high",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/a/b/c\n" },
        { "sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n" },
        { "sys/fs/cgroup/a/b/cpu.max", "max 100000\n" },
        { "sys/fs/cgroup/a/cpu.max", "20000 10000\n" },
        { "sys/fs/cgroup/a/b/c/memory.max", "536870912\n" },
        { "sys/fs/cgroup/a/b/memory.max", "max\n" },
        { "sys/fs/cgroup/a/b/memory.high", "134217728\n" },
        { "sys/fs/cgroup/a/memory.max", "268435456\n" },
        { "sys/fs/cgroup/other/memory.max", "4096\n" },
        { "sys/fs/cgroup/other/cpu.max", "1000 100000\n" } } },
    { "version 2, the own path is not below the mount",
      0.5,
      64,
      1,
      "/sys/fs/cgroup/cpu.max",
      "/sys/fs/cgroup/memory.max",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/kubepods.slice/pod7/job\n" },
        { "sys/fs/cgroup/cpu.max", "50000 100000\n" },
        { "sys/fs/cgroup/memory.max", "67108864\n" } } },
    { "version 2, a group outside of the namespace",
      3,
      64,
      3,
      "/sys/fs/cgroup/cpu.max",
      "/sys/fs/cgroup/memory.max",
      { MACHINE,
        { "proc/self/mountinfo", "30 23 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" },
        { "proc/self/cgroup", "0::/../../x\n" },
        { "sys/fs/cgroup/cpu.max", "300000 100000\n" },
        { "sys/fs/cgroup/memory.max", "67108864\n" } } },
    { "version 2, only a part of the hierarchy is mounted, and somewhere else",
      4,
      512,
      4,
      "/run/my groups/job/cpu.max",
      "/run/my groups/memory.max",
      { MACHINE,
        { "proc/self/mountinfo", "30 23 0:26 /docker/abc /run/my\\040groups rw - cgroup2 none rw\n" },
        { "proc/self/cgroup", "0::/docker/abc/job\n" },
        { "run/my groups/job/cpu.max", "400000\n" },
        { "run/my groups/memory.max", "536870912\n" },
        { "sys/fs/cgroup/memory.max", "4096\n" } } },
    { "version 1, controllers mounted together",
      2.5,
      256,
      3,
      "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us",
      "/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_CPU MOUNT_MEMORY },
        { "proc/self/cgroup", "9:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/other\n" },
        { "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n" },
        { "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n" },
        { "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n" },
        { "sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED } } },
    { "version 1, nothing limited",
      0,
      1024,
      8,
      "",
      "",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_CPU MOUNT_MEMORY },
        { "proc/self/cgroup", "9:memory:/\n4:cpu,cpuacct:/\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n" },
        { "sys/fs/cgroup/memory/memory.stat", "cache 1\nhierarchical_memory_limit 9223372036854771712\n" },
        { "sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED } } },
    { "version 1, a container with hidden parents, one of which allows less",
      1,
      96,
      1,
      "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us",
      "/sys/fs/cgroup/memory/memory.stat",
      { MACHINE,
        { "proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
                                 "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" },
        { "proc/self/cgroup", "9:memory:/docker/abc\n4:cpuacct,cpu:/docker/abc\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n" },
        { "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n" },
        { "sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n" },
        { "sys/fs/cgroup/memory/memory.stat", "cache 1\nhierarchical_memory_limit 100663296\n" } } },
    { "hybrid: version 2 without controllers, version 1 with them",
      2,
      256,
      2,
      "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us",
      "/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
      { MACHINE,
        { "proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                                 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                                 "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" MOUNT_MEMORY },
        { "proc/self/cgroup", "4:memory:/job\n1:cpu:/job\n0::/init.scope\n" },
        { "sys/fs/cgroup/unified/init.scope/cgroup.procs", "1\n" },
        { "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n" },
        { "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n" },
        { "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n" } } },
    { "a second mount shows another group: it does not count",
      0,
      512,
      8,
      "",
      "/sys/fs/cgroup/memory/mine/memory.limit_in_bytes",
      { MACHINE,
        { "proc/self/mountinfo", "40 31 0:32 /theirs /mnt/theirs rw - cgroup cgroup rw,memory\n" MOUNT_MEMORY },
        { "proc/self/cgroup", "4:memory:/mine\n" },
        { "mnt/theirs/memory.limit_in_bytes", "4096\n" },
        { "sys/fs/cgroup/memory/mine/memory.limit_in_bytes", "536870912\n" } } },
    { "numbers that make no sense are passed over",
      3,
      512,
      3,
      "/sys/fs/cgroup/cpu.max",
      "/sys/fs/cgroup/memory.max",
      { MACHINE,
        { "proc/self/mountinfo", "nonsense\n- cgroup2\n" MOUNT_V2 },
        { "proc/self/cgroup", "nonsense\n0:\n:\n0::/a/b/c/d/e/f\n" },
        { "sys/fs/cgroup/a/b/c/d/e/f/cpu.max", "100000 0\n" },
        { "sys/fs/cgroup/a/b/c/d/e/cpu.max", "0 100000\n" },
        { "sys/fs/cgroup/a/b/c/d/cpu.max", "-5 100000\n" },
        { "sys/fs/cgroup/a/b/c/cpu.max", "\n" },
        { "sys/fs/cgroup/a/b/cpu.max", "100000 100000 100000\n" },
        { "sys/fs/cgroup/a/cpu.max", "1e5 100000\n" },
        { "sys/fs/cgroup/cpu.max", "300000 100000\n" },
        { "sys/fs/cgroup/a/b/c/d/e/f/memory.max", "99999999999999999999999\n" },
        { "sys/fs/cgroup/a/b/c/d/e/memory.max", "12MB\n" },
        { "sys/fs/cgroup/a/b/c/d/memory.max", "-1\n" },
        { "sys/fs/cgroup/a/b/c/memory.max", "\n" },
        { "sys/fs/cgroup/a/b/memory.max", "0\n" },
        { "sys/fs/cgroup/a/memory.high", "0x100\n" },
        { "sys/fs/cgroup/memory.max", "536870912\n" } } },
    { "a quota of more than there are cores, and one of nearly nothing below it",
      0.01,
      1024,
      1,
      "/sys/fs/cgroup/a/cpu.max",
      "",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/a\n" },
        { "sys/fs/cgroup/cpu.max", "6400000 100000\n" },
        { "sys/fs/cgroup/a/cpu.max", "1000 100000\n" } } },
    { "a quota of more than there are cores",
      64,
      1024,
      8,
      "/sys/fs/cgroup/cpu.max",
      "",
      { MACHINE,
        { "proc/self/mountinfo", MOUNT_V2 },
        { "proc/self/cgroup", "0::/\n" },
        { "sys/fs/cgroup/cpu.max", "6400000 100000\n" } } },
};

static void make_file(const Scratch *scratch, const MadeFile *file)
{
    char path[768];
    snprintf(path, sizeof path, "%s/%s", scratch->folder, file->path);
    for (char *at = path + strlen(scratch->folder) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        cr_assert(mkdir(path, 0777) == 0 || errno == EEXIST, "%s", path);
        *at = '/';
    }
    scratch_write(path, file->text, strlen(file->text));
}

static Scratch make_tree(const MadeFile *files)
{
    const Scratch scratch = scratch_make();
    for (int i = 0; i < FILES && files[i].path; i++)
        make_file(&scratch, &files[i]);
    return scratch;
}

Test(limits, the_smallest_of_all_levels_counts)
{
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *made = &cases[i];
        const Scratch scratch = make_tree(made->files);
        HsLimits limits;
        hs_limits_read(scratch.folder, &limits);
        cr_expect_float_eq(limits.processors, made->processors, 1e-12, "%s: %g processors", made->name,
                           limits.processors);
        cr_expect_float_eq((double)limits.memory_bytes / 0x1p20, made->mib, 1e-12, "%s: %zu bytes", made->name,
                           limits.memory_bytes);
        cr_expect_eq(hs_limits_threads(&limits, 8), made->threads, "%s", made->name);
        cr_expect_str_eq(limits.processors_from, made->processors_from, "%s", made->name);
        cr_expect_str_eq(limits.memory_from, made->memory_from, "%s", made->name);
        char text[HS_LIMITS_TEXT];
        hs_limits_describe(&limits, text);
        cr_expect_eq(strstr(text, "processor") != NULL, made->processors > 0, "%s: %s", made->name, text);
        cr_expect_eq(strstr(text, "MiB") != NULL, made->mib < machine_mib, "%s: %s", made->name, text);
        scratch_remove(&scratch);
    }
}

/* 768 MiB are available in the machine; groups have less left, or more. */
Test(limits, available_memory_is_what_the_tightest_level_has_left)
{
    static const struct {
        const char *name;
        double mib;
        MadeFile files[FILES];
    } rows[] = {
        { "no groups", 768, { MACHINE } },
        { "version 2: the parent has less left, and part of what it holds is file cache",
          256 - 100 + 30,
          { MACHINE,
            { "proc/self/mountinfo", MOUNT_V2 },
            { "proc/self/cgroup", "0::/a/b\n" },
            { "sys/fs/cgroup/a/b/memory.max", "536870912\n" },
            { "sys/fs/cgroup/a/b/memory.current", "10485760\n" },
            { "sys/fs/cgroup/a/memory.max", "268435456\n" },
            { "sys/fs/cgroup/a/memory.current", "104857600\n" },
            { "sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 31457280\n" } } },
        { "version 1: over its limit",
          0,
          { MACHINE,
            { "proc/self/mountinfo", MOUNT_MEMORY },
            { "proc/self/cgroup", "4:memory:/\n" },
            { "sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n" },
            { "sys/fs/cgroup/memory/memory.usage_in_bytes", "268439552\n" } } },
        { "version 1: no limit, much of it file caches",
          768,
          { MACHINE,
            { "proc/self/mountinfo", MOUNT_MEMORY },
            { "proc/self/cgroup", "4:memory:/\n" },
            { "sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED },
            { "sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n" } } },
    };
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Scratch scratch = make_tree(rows[i].files);
        cr_expect_float_eq((double)hs_limits_available(scratch.folder) / 0x1p20, rows[i].mib, 1e-9, "%s: %zu bytes",
                           rows[i].name, hs_limits_available(scratch.folder));
        scratch_remove(&scratch);
    }
}
