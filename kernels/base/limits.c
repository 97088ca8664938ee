/* SPDX-License-Identifier: MIT
 *
 * Two walks make everything else: over the mounts of control groups, and from the process's own group upward.
 *
 *     /proc/self/mountinfo   36 35 0:30 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
 *                                       root      mount point                              controllers
 *     /proc/self/cgroup      4:memory:/docker/a/job
 *     folders                /sys/fs/cgroup/memory/job, /sys/fs/cgroup/memory
 */
#include "kernels/base/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/log.h"

enum { PATH_BYTES = 4096 };

/* --- reading --- */

/* The file's first bytes as text; false where there is none. */
static bool read_text(const char *root, const char *path, char *text, size_t bytes)
{
    char whole[2 * PATH_BYTES];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = fopen(whole, "r");
    if (!file)
        return false;
    const size_t length = fread(text, 1, bytes - 1, file);
    fclose(file);
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* A whole number without a sign, and what follows it. */
static bool parse_number(const char *text, uint64_t *number, const char **end)
{
    char *after;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &after, 10);
    *end = after;
    return errno == 0;
}

/* The number behind "name " at the beginning of a line of root/path. */
static bool read_field(const char *root, const char *path, const char *name, uint64_t *number)
{
    char whole[2 * PATH_BYTES], line[256];
    const size_t length = strlen(name);
    const char *end;
    bool found = false;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    FILE *file = fopen(whole, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found =
            strncmp(line, name, length) == 0 && parse_number(line + length + strspn(line + length, " "), number, &end);
    if (file)
        fclose(file);
    return found;
}

/* The machine's own memory. */
static size_t physical_bytes(const char *root)
{
    uint64_t kibibytes;
    if (read_field(root, "/proc/meminfo", "MemTotal:", &kibibytes))
        return (size_t)kibibytes << 10;
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* --- the groups' folders --- */

typedef enum Controller { CPU, MEMORY } Controller;
static const char *const controller_names[] = { [CPU] = "cpu", [MEMORY] = "memory" };

/* What is done in each folder that may limit the process. */
typedef struct Visitor Visitor;
struct Visitor {
    void (*visit)(Visitor *visitor, const char *folder, int version);
    const char *root;
    HsLimits *limits;
    size_t available; /* hs_limits_available's */
};

/* One mount of a hierarchy. */
typedef struct Mount {
    int version;
    char root[PATH_BYTES], point[PATH_BYTES];
} Mount;

/* "a,b,c" has the word. */
static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* mountinfo writes blanks, tabs, line ends and backslashes as \040 and the like. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        int value = 0, digits = 0;
        while (from[0] == '\\' && digits < 3 && from[1 + digits] >= '0' && from[1 + digits] <= '7')
            value = 8 * value + (from[1 + digits++] - '0');
        *to = digits == 3 ? (char)value : *from;
        from += digits == 3 ? 4 : 1;
    }
    *to = '\0';
}

/* A line of mountinfo: true when it mounts the controller, or version 2, which may have every controller. */
static bool parse_mount(char *line, Controller controller, Mount *mount)
{
    char type[32], options[PATH_BYTES];
    char *tail = strstr(line, " - ");
    if (!tail || sscanf(tail, " - %31s %*s %4095s", type, options) != 2)
        return false;
    if (strcmp(type, "cgroup2") == 0)
        mount->version = 2;
    else if (strcmp(type, "cgroup") == 0 && lists(options, controller_names[controller]))
        mount->version = 1;
    else
        return false;
    if (sscanf(line, "%*s %*s %*s %4095s %4095s", mount->root, mount->point) != 2)
        return false;
    unescape(mount->root);
    unescape(mount->point);
    return true;
}

/* The process's own group in that hierarchy; false where /proc/self/cgroup has no line of it. */
static bool own_path(const char *root, int version, Controller controller, char path[PATH_BYTES])
{
    char name[2 * PATH_BYTES];
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "r");
    while (file && !found && getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        found = version == 2 ? strcmp(line, "0:") == 0 || (line[0] == '0' && *controllers == '\0')
                             : lists(controllers, controller_names[controller]);
        if (found)
            snprintf(path, PATH_BYTES, "%s", group);
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* The path has a component "..": it lies outside of this cgroup namespace, where names cannot be followed. */
static bool leaves_namespace(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")); at += 3)
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

/* How the own group is named from the mount's root on: "/job", "" for the root itself; NULL when the mount shows other
 * groups. */
static const char *below(const char *path, const char *root)
{
    const size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (leaves_namespace(path) || leaves_namespace(root))
        return "";
    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return strcmp(path + length, "/") == 0 ? "" : path + length;
}

/* From the own group up to the mount's root. */
static void climb(Visitor *visitor, const Mount *mount, const char *own)
{
    char folder[2 * PATH_BYTES];
    const size_t top = strlen(mount->point);
    snprintf(folder, sizeof folder, "%s%s", mount->point, own);
    for (;;) {
        visitor->visit(visitor, folder, mount->version);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash || (size_t)(slash - folder) < top)
            return;
        *slash = '\0';
    }
}

/* Every mount that shows the own group is climbed.  Where none of a version does, as for a process that was moved out
 * of its container's group, the first mount's root is the nearest that can be seen. */
static void visit_groups(Visitor *visitor, Controller controller)
{
    char name[2 * PATH_BYTES], path[PATH_BYTES];
    char *line = NULL;
    size_t capacity = 0;
    Mount mount, first[3] = { 0 };
    bool shown[3] = { false };
    snprintf(name, sizeof name, "%s/proc/self/mountinfo", visitor->root);
    FILE *file = fopen(name, "r");
    while (file && getline(&line, &capacity, file) > 0) {
        if (!parse_mount(line, controller, &mount) || !own_path(visitor->root, mount.version, controller, path))
            continue;
        const char *own = below(path, mount.root);
        if (own)
            climb(visitor, &mount, own);
        else if (first[mount.version].version == 0)
            first[mount.version] = mount;
        shown[mount.version] = shown[mount.version] || own;
    }
    free(line);
    if (file)
        fclose(file);
    for (int version = 1; version <= 2; version++)
        if (!shown[version] && first[version].version != 0)
            climb(visitor, &first[version], "");
}

/* --- limits --- */

static void warn_of(const char *path, const char *text)
{
    hs_warn("%s says `%.40s`, which is not a limit that this program can read: ignored", path, text);
}

static void limit_memory(Visitor *visitor, const char *path, uint64_t bytes)
{
    HsLimits *limits = visitor->limits;
    if (bytes == 0 || bytes >= limits->memory_bytes) /* version 1 writes a number near 2^63 for none */
        return;
    limits->memory_bytes = (size_t)bytes;
    snprintf(limits->memory_from, sizeof limits->memory_from, "%.*s", HS_LIMIT_PATH - 1, path);
}

/* The limit in a file: UINT64_MAX where there is none. */
static uint64_t read_limit(const char *root, const char *path, bool warns)
{
    char text[128];
    const char *end;
    uint64_t bytes;
    if (!read_text(root, path, text, sizeof text) || strcmp(text, "max") == 0)
        return UINT64_MAX;
    if (parse_number(text, &bytes, &end) && *end == '\0')
        return bytes;
    if (warns)
        warn_of(path, text);
    return UINT64_MAX;
}

/* By version: what limits, what is held, and how much of that is file cache which was not used lately. */
static const struct {
    const char *limits[2], *usage, *cache;
} memory_files[] = {
    [1] = { { "memory.limit_in_bytes" }, "memory.usage_in_bytes", "total_inactive_file" },
    [2] = { { "memory.max", "memory.high" }, "memory.current", "inactive_file" },
};

static void visit_memory(Visitor *visitor, const char *folder, int version)
{
    char path[3 * PATH_BYTES];
    uint64_t hierarchy;
    for (int i = 0; i < 2 && memory_files[version].limits[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, memory_files[version].limits[i]);
        limit_memory(visitor, path, read_limit(visitor->root, path, true));
    }
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (version == 1 && read_field(visitor->root, path, "hierarchical_memory_limit", &hierarchy))
        limit_memory(visitor, path, hierarchy);
}

/* Quota and period, microseconds; a period that is missing is the kernel's own 100 ms. */
static void limit_processors(Visitor *visitor, const char *path, uint64_t quota, uint64_t period)
{
    HsLimits *limits = visitor->limits;
    const double share = (double)quota / (double)period;
    if (limits->processors > 0 && share >= limits->processors)
        return;
    limits->processors = share;
    snprintf(limits->processors_from, sizeof limits->processors_from, "%.*s", HS_LIMIT_PATH - 1, path);
}

static void visit_processors(Visitor *visitor, const char *folder, int version)
{
    char path[3 * PATH_BYTES], period_path[3 * PATH_BYTES], text[128], period_text[128] = "100000";
    const char *end = "", *period_end = "";
    uint64_t quota, period = 100000;
    snprintf(path, sizeof path, "%s/%s", folder, version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_text(visitor->root, path, text, sizeof text))
        return;
    if (strcmp(text, "-1") == 0 || strcmp(text, "max") == 0 || strncmp(text, "max ", 4) == 0)
        return;
    bool known = parse_number(text, &quota, &end) && quota > 0;
    if (version == 2 && known && *end == ' ')
        known = parse_number(end + 1, &period, &end);
    snprintf(period_path, sizeof period_path, "%s/cpu.cfs_period_us", folder);
    if (version == 1 && read_text(visitor->root, period_path, period_text, sizeof period_text))
        known = known && parse_number(period_text, &period, &period_end);
    if (known && *end == '\0' && *period_end == '\0' && period > 0)
        limit_processors(visitor, path, quota, period);
    else
        warn_of(path, text);
}

void hs_limits_read(const char *root, HsLimits *limits)
{
    *limits = (HsLimits){ .memory_bytes = physical_bytes(root) };
    Visitor memory = { .visit = visit_memory, .root = root, .limits = limits };
    Visitor processors = { .visit = visit_processors, .root = root, .limits = limits };
    visit_groups(&memory, MEMORY);
    visit_groups(&processors, CPU);
}

int hs_limits_threads(const HsLimits *limits, int cores)
{
    const double quota = ceil(limits->processors);
    return limits->processors > 0 && quota < cores ? (int)fmax(quota, 1) : cores;
}

/* --- what is left --- */

static void visit_usage(Visitor *visitor, const char *folder, int version)
{
    char path[3 * PATH_BYTES];
    uint64_t limit = UINT64_MAX, cache = 0;
    for (int i = 0; i < 2 && memory_files[version].limits[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, memory_files[version].limits[i]);
        const uint64_t own = read_limit(visitor->root, path, false);
        limit = own > 0 && own < limit ? own : limit;
    }
    snprintf(path, sizeof path, "%s/%s", folder, memory_files[version].usage);
    uint64_t used = read_limit(visitor->root, path, false);
    if (limit >= visitor->limits->memory_bytes || used == UINT64_MAX)
        return; /* without a limit the group's usage counts the machine's file caches */
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_field(visitor->root, path, memory_files[version].cache, &cache))
        used -= cache < used ? cache : used;
    const uint64_t left = used < limit ? limit - used : 0;
    visitor->available = left < visitor->available ? (size_t)left : visitor->available;
}

size_t hs_limits_available(const char *root)
{
    HsLimits machine = { .memory_bytes = physical_bytes(root) };
    uint64_t kibibytes;
    Visitor visitor = { .visit = visit_usage, .root = root, .limits = &machine, .available = machine.memory_bytes };
    if (read_field(root, "/proc/meminfo", "MemAvailable:", &kibibytes) && kibibytes << 10 < visitor.available)
        visitor.available = (size_t)kibibytes << 10;
    visit_groups(&visitor, MEMORY);
    return visitor.available;
}

const char *hs_limits_describe(const HsLimits *limits, char text[HS_LIMITS_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    if (limits->processors > 0)
        used = (size_t)snprintf(text, HS_LIMITS_TEXT, "%.3g processor%s (%s)", limits->processors,
                                limits->processors == 1 ? "" : "s", limits->processors_from);
    if (limits->memory_from[0] != '\0')
        snprintf(text + used, HS_LIMITS_TEXT - used, "%s%.0f MiB (%s)", used > 0 ? ", " : "",
                 (double)limits->memory_bytes / 0x1p20, limits->memory_from);
    return text;
}
