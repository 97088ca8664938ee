/* SPDX-License-Identifier: MIT
 *
 * The traces that `logging.trace` writes, read back as a list of parts of a step's time for bench/profile.
 *
 *     step     |--------------------------------------------------|   every moment belongs to the innermost of a
 *     phase      |---- forward ----|   |------- update -------|       step, a phase and an operation: what is left of
 *     operation  |-matmul-| |-norm-|   |-grad_stats-| |-adamw-|       the first two is time in no operation
 *
 * So a step's parts add up to the step.  Parts of the same phase, kind of layer and operation are one group; layers
 * are of one kind when only the block's number differs.
 */
#ifndef HS_BENCH_PROFILE_TRACE_H
#define HS_BENCH_PROFILE_TRACE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/dtype.h"
#include "kernels/ops/product_policy.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"

/* What the summary sums up. */
#define PROFILE_CLASSES(X)                   \
    X(FORWARD, "products, forward")          \
    X(DGRAD, "products, dgrad")              \
    X(WGRAD, "products, wgrad")              \
    X(ATTENTION, "attention")                \
    X(ELEMENTWISE, "norms and element-wise") \
    X(HEAD, "head and loss")                 \
    X(RECOMPUTE, "recompute")                \
    X(UPDATE, "update")                      \
    X(PACKING, "packing")                    \
    X(STRATEGIES, "strategies")              \
    X(GAPS, "in no operation")
#define PROFILE_CLASS_ENUMERATOR(enumerator, name) CLASS_##enumerator,
typedef enum ProfileClass { PROFILE_CLASSES(PROFILE_CLASS_ENUMERATOR) CLASSES } ProfileClass;

/* Formats of products with separate peaks; a part without products has PROFILE_NONE. */
enum { PROFILE_NONE = -1 };
typedef struct ProfileFormat {
    const char *name;
    HsDtype dtype;
    HsProductPolicy policy;
} ProfileFormat;
static const ProfileFormat profile_formats[] = {
    { "bf16", HS_BF16, HS_POLICY_AS_IS },
    { "f16", HS_F16, HS_POLICY_AS_IS },
    { "f32", HS_F32, HS_POLICY_AS_IS },
    { "tf32", HS_F32, HS_POLICY_TF32 },
};
enum { PROFILE_FORMATS = sizeof profile_formats / sizeof *profile_formats };

typedef struct ProfileGroup {
    char phase[32], layer[64], operation[64]; /* operation "": time in none */
    ProfileClass class;
} ProfileGroup;

/* An operation of a step, or what its phase or the step itself has left. */
typedef struct ProfilePart {
    int step, group, format;
    double ms, flops, bytes;
} ProfilePart;

typedef struct ProfileTrace {
    char title[256]; /* what the viewer shows for the run */
    ProfilePart *parts;
    int count, capacity;
    double *step_ms;
    int steps, step_capacity;
    bool costs; /* every operation says what it costs */
} ProfileTrace;

/* The groups of all traces that are compared. */
typedef struct ProfileGroups {
    ProfileGroup *rows;
    int count, capacity;
} ProfileGroups;

/* A span that the next one may lie in; layers have no part. */
typedef struct ProfileSpan {
    int64_t end_ns;
    const char *category, *name;
    int part;
} ProfileSpan;

enum { PROFILE_DEPTH = 16 };
typedef struct ProfileReader {
    const char *path;
    ProfileTrace *trace;
    ProfileGroups *groups;
    ProfileSpan open[PROFILE_DEPTH];
    int depth, step;
} ProfileReader;

static inline HsStatus profile_grow(void *array, int *capacity, int count, size_t size)
{
    void *old, *moved;
    if (count < *capacity)
        return HS_OK;
    const int larger = *capacity > 0 ? 2 * *capacity : 256;
    memcpy(&old, array, sizeof old);
    moved = realloc(old, (size_t)larger * size);
    if (!moved)
        return hs_fail(HS_ENOMEM, "no memory for %d parts of a trace", larger);
    memcpy(array, &moved, sizeof moved);
    *capacity = larger;
    return HS_OK;
}

static inline bool profile_starts(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static inline ProfileClass profile_class(const char *phase, const char *operation)
{
    if (operation[0] == '\0')
        return CLASS_GAPS;
    if (strcmp(phase, "head and loss") == 0)
        return CLASS_HEAD;
    if (strcmp(phase, "recompute") == 0)
        return CLASS_RECOMPUTE;
    if (strcmp(phase, "packing") == 0) /* of builds with an update that did not pack weights itself */
        return CLASS_PACKING;
    if (profile_starts(phase, "strategies"))
        return CLASS_STRATEGIES;
    if (strcmp(phase, "forward") != 0 && strcmp(phase, "backward") != 0)
        return CLASS_UPDATE; /* and the step's own rules, in no phase */
    if (profile_starts(operation, "matmul"))
        return strstr(operation, "dgrad") ? CLASS_DGRAD : strstr(operation, "wgrad") ? CLASS_WGRAD : CLASS_FORWARD;
    return profile_starts(operation, "attention") ? CLASS_ATTENTION : CLASS_ELEMENTWISE;
}

static inline HsStatus profile_group(ProfileGroups *groups, const char *phase, const char *layer, const char *operation,
                                     int *index)
{
    for (*index = 0; *index < groups->count; ++*index) {
        const ProfileGroup *row = &groups->rows[*index];
        if (strcmp(row->operation, operation) == 0 && strcmp(row->layer, layer) == 0 && strcmp(row->phase, phase) == 0)
            return HS_OK;
    }
    HS_TRY(profile_grow(&groups->rows, &groups->capacity, groups->count, sizeof *groups->rows));
    ProfileGroup *made = &groups->rows[groups->count++];
    snprintf(made->phase, sizeof made->phase, "%s", phase);
    snprintf(made->layer, sizeof made->layer, "%s", layer);
    snprintf(made->operation, sizeof made->operation, "%s", operation);
    made->class = profile_class(phase, operation);
    return HS_OK;
}

/* "block.3.mlp.up" is of the kind "mlp.up". */
static inline const char *profile_layer_kind(const char *name)
{
    if (!profile_starts(name, "block."))
        return name;
    const char *rest = name + strlen("block.");
    rest += strspn(rest, "0123456789");
    return *rest == '.' ? rest + 1 : name;
}

/* Which of a layer's products this is. */
static inline const char *profile_product(const HsJson *args)
{
    const char *transposes = hs_json_string(hs_json_get(args, "transposes"));
    return !transposes                     ? "matmul"
           : strcmp(transposes, "nt") == 0 ? "matmul forward"
           : strcmp(transposes, "nn") == 0 ? "matmul dgrad"
           : strcmp(transposes, "tn") == 0 ? "matmul wgrad"
                                           : "matmul";
}

static inline int profile_format(const char *name)
{
    for (int i = 0; name && i < PROFILE_FORMATS; i++)
        if (strcmp(profile_formats[i].name, name) == 0)
            return i;
    return PROFILE_NONE;
}

/* The name of the innermost open span of a category; "" where there is none. */
static inline const char *profile_around(const ProfileReader *reader, const char *category)
{
    for (int i = reader->depth - 1; i >= 0; i--)
        if (strcmp(reader->open[i].category, category) == 0)
            return reader->open[i].name;
    return "";
}

static inline HsStatus profile_begin_step(ProfileReader *reader, double ms)
{
    ProfileTrace *trace = reader->trace;
    HS_TRY(profile_grow(&trace->step_ms, &trace->step_capacity, trace->steps, sizeof *trace->step_ms));
    trace->step_ms[trace->steps] = ms;
    reader->step = trace->steps++;
    return HS_OK;
}

/* The part that a span is; its time is taken from that of the one around it. */
static inline HsStatus profile_add_part(ProfileReader *reader, const char *category, const char *name,
                                        const HsJson *args, double ms, int *index)
{
    ProfileTrace *trace = reader->trace;
    const bool operation = strcmp(category, "operation") == 0;
    const char *phase = strcmp(category, "phase") == 0 ? name : profile_around(reader, "phase"), *layer = "";
    HS_TRY(profile_grow(&trace->parts, &trace->capacity, trace->count, sizeof *trace->parts));
    ProfilePart part = { .step = reader->step, .format = PROFILE_NONE, .ms = ms };
    if (operation) {
        layer = profile_layer_kind(profile_around(reader, "layer"));
        name = strcmp(name, "matmul") == 0 ? profile_product(args) : name;
        part.flops = hs_json_number(hs_json_get(args, "flops"));
        part.bytes = hs_json_number(hs_json_get(args, "bytes"));
        part.format = profile_format(hs_json_string(hs_json_get(args, "format")));
        trace->costs = trace->costs && isfinite(part.flops) && isfinite(part.bytes) &&
                       (part.flops == 0.0 || part.format != PROFILE_NONE);
    }
    HS_TRY(profile_group(reader->groups, phase[0] ? phase : "step", layer, operation ? name : "", &part.group));
    for (int i = reader->depth - 1; i >= 0; i--) {
        if (reader->open[i].part == PROFILE_NONE)
            continue;
        trace->parts[reader->open[i].part].ms -= ms;
        break;
    }
    *index = trace->count++;
    trace->parts[*index] = part;
    return HS_OK;
}

/* Spans of the device's track come in the order of their beginning. */
static inline HsStatus profile_read_span(ProfileReader *reader, const HsJson *event)
{
    const char *category = hs_json_string(hs_json_get(event, "cat")), *name;
    double ts, duration;
    HS_TRY(hs_json_need_string(reader->path, event, "name", &name));
    HS_TRY(hs_json_need_real(reader->path, event, "ts", &ts));
    HS_TRY(hs_json_need_real(reader->path, event, "dur", &duration));
    const int64_t begin_ns = llround(1e3 * ts), end_ns = begin_ns + llround(1e3 * duration);
    while (reader->depth > 0 && reader->open[reader->depth - 1].end_ns <= begin_ns)
        reader->depth--;
    if (strcmp(category, "step") == 0)
        HS_TRY(profile_begin_step(reader, 1e-3 * duration));
    else if (reader->depth == 0)
        return HS_OK; /* outside of the steps */
    if (reader->depth == PROFILE_DEPTH)
        return hs_fail(HS_EFORMAT, "%s: spans lie more than %d deep in each other", reader->path, PROFILE_DEPTH);
    int part = PROFILE_NONE;
    if (strcmp(category, "layer") != 0)
        HS_TRY(profile_add_part(reader, category, name, hs_json_get(event, "args"), 1e-3 * duration, &part));
    reader->open[reader->depth++] = (ProfileSpan){ end_ns, category, name, part };
    return HS_OK;
}

static inline void profile_read_name(ProfileTrace *trace, const HsJson *event)
{
    const char *what = hs_json_string(hs_json_get(event, "name"));
    const char *name = hs_json_string(hs_json_get(hs_json_get(event, "args"), "name"));
    if (what && name && strcmp(what, "process_name") == 0)
        snprintf(trace->title, sizeof trace->title, "%s", name);
}

/* Adds a file's steps to the trace, which begins as { .costs = true }.  errors: HS_EIO, HS_ENOMEM, HS_EFORMAT */
static inline HsStatus profile_read(const char *path, ProfileTrace *trace, ProfileGroups *groups)
{
    ProfileReader reader = { .path = path, .trace = trace, .groups = groups };
    const int before = trace->steps;
    char *text;
    size_t length;
    HsJson *root = NULL;
    HS_TRY(hs_read_file(path, 0, &text, &length));
    HsStatus status = hs_json_parse(path, text, length, &root);
    free(text);
    const HsJson *event = status == HS_OK ? hs_json_first(hs_json_get(root, "traceEvents")) : NULL;
    for (; event && status == HS_OK; event = hs_json_next(event)) {
        const char *kind = hs_json_string(hs_json_get(event, "ph"));
        const char *category = hs_json_string(hs_json_get(event, "cat"));
        if (kind && strcmp(kind, "M") == 0)
            profile_read_name(trace, event);
        else if (kind && strcmp(kind, "X") == 0 && category && strcmp(category, "data") != 0)
            status = profile_read_span(&reader, event);
    }
    hs_json_destroy(root);
    if (status == HS_OK && trace->steps == before)
        status = hs_fail(HS_EFORMAT, "%s: no optimizer step is in it", path);
    return status;
}

static inline void profile_free(ProfileTrace *trace)
{
    free(trace->parts);
    free(trace->step_ms);
}

#endif
