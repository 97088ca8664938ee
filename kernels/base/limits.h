/* SPDX-License-Identifier: MIT
 *
 * What this process may use of the machine: its control groups' limits of processor time and memory (Linux, Control
 * Group v2 and the v1 controllers cpu and memory; proc(5), cgroups(7)).
 *
 * A limit binds every group below it, so each level is read from the process's own group up to the mount's root, and
 * the smallest wins:
 *
 *     version 2   cpu.max "quota period" or "max"           memory.max, memory.high
 *     version 1   cpu.cfs_quota_us / cpu.cfs_period_us      memory.limit_in_bytes; memory.stat's hierarchical limit,
 *                 (-1: none)                                which also covers parents that are not mounted here
 *
 * Where a hierarchy is mounted, and which of its folders is the mount's root, /proc/self/mountinfo says; which group is
 * the process's own, /proc/self/cgroup.  In a container the own path may not exist below the mount: then the levels
 * that do exist are read, at least the mount's root.
 */
#ifndef HS_KERNELS_BASE_LIMITS_H
#define HS_KERNELS_BASE_LIMITS_H

#include <stddef.h>

enum { HS_LIMIT_PATH = 256 };

typedef struct HsLimits {
    double processors;   /* processor seconds a second; 0: no quota */
    size_t memory_bytes; /* the machine's, or less where a group allows less */
    /* The file that says so, without `root`; "" where no group limits it. */
    char processors_from[HS_LIMIT_PATH], memory_from[HS_LIMIT_PATH];
} HsLimits;

/* Reads the files below `root`, "" for the system's own.  A number that makes no sense is warned of, and is no limit.
 */
void hs_limits_read(const char *root, HsLimits *limits);

/* Threads that `cores` usable cores and the quota are enough for: the quota rounded up, at least 1. */
int hs_limits_threads(const HsLimits *limits, int cores);

/* Memory that can be had now without swapping, bytes: the machine's, or what a group has left.  A group's file cache
 * that was not used lately can be dropped and counts as free. */
size_t hs_limits_available(const char *root);

/* "1.5 processors (/sys/fs/cgroup/a/cpu.max), 512 MiB (/sys/fs/cgroup/memory.max)", or "" where nothing is limited. */
enum { HS_LIMITS_TEXT = 2 * HS_LIMIT_PATH + 96 };
const char *hs_limits_describe(const HsLimits *limits, char text[HS_LIMITS_TEXT]);

#endif
