/* SPDX-License-Identifier: MIT
 *
 * trainer inspect: one pass over every tensor of a checkpoint, statistics in double.
 *
 * Histograms count the binary exponent floor(log2 |x|) in groups of two binades that start at even exponents.  fp16's
 * limits (2^-24, 2^-14, 2^16) and bf16's (2^-126) are even, so that no group lies on both sides of a limit.
 */
#include "runtime/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint.h"
#include "runtime/checkpoint_storage.h"

enum {
    CHUNK = 1024,
    LOWEST_EXPONENT = -150, /* f32's smallest subnormal is 2^-149 */
    HIGHEST_EXPONENT = 129,
    BINADES_PER_GROUP = 2,
    GROUP_COUNT = (HIGHEST_EXPONENT - LOWEST_EXPONENT + 1) / BINADES_PER_GROUP,
    BAR_WIDTH = 40,
    MAX_HISTOGRAMS = 8
};

/* The formats whose losses are shown. */
static const HsDtype narrow[] = { HS_F16, HS_BF16 };
enum { NARROW_COUNT = sizeof narrow / sizeof *narrow };

typedef struct Statistics {
    int64_t elements, zeros, nonfinite;
    int64_t underflow[NARROW_COUNT], overflow[NARROW_COUNT];
    double min, max, sum, sum_squares; /* of the finite ones */
} Statistics;

typedef struct Histogram {
    char name[32];
    int64_t total;
    int64_t groups[GROUP_COUNT];
} Histogram;

static int group_of(double magnitude)
{
    int exponent = ilogb(magnitude);
    if (exponent < LOWEST_EXPONENT) /* only f64 goes there: the ends gather it */
        exponent = LOWEST_EXPONENT;
    if (exponent > HIGHEST_EXPONENT)
        exponent = HIGHEST_EXPONENT;
    return (exponent - LOWEST_EXPONENT) / BINADES_PER_GROUP;
}

static void count_value(double value, Statistics *statistics, Histogram *histogram)
{
    statistics->elements++;
    double magnitude = fabs(value);
    if (!isfinite(value)) {
        statistics->nonfinite++;
        return;
    }
    statistics->min = fmin(statistics->min, value);
    statistics->max = fmax(statistics->max, value);
    statistics->sum += value;
    statistics->sum_squares += value * value;
    if (magnitude == 0) {
        statistics->zeros++;
        return;
    }
    if (!histogram) /* integers: no formats to fit into */
        return;
    for (int i = 0; i < NARROW_COUNT; i++) {
        statistics->underflow[i] += magnitude < hs_dtype_info(narrow[i])->smallest_normal;
        statistics->overflow[i] += magnitude > hs_dtype_info(narrow[i])->max;
    }
    histogram->groups[group_of(magnitude)]++;
    histogram->total++;
}

static void count_tensor(const HsTensor *tensor, Statistics *statistics, Histogram *histogram)
{
    double values[CHUNK];
    *statistics = (Statistics){ .min = INFINITY, .max = -INFINITY };
    int64_t count = hs_tensor_count(tensor);
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t here = count - first < CHUNK ? count - first : CHUNK;
        hs_safetensors_load(tensor, first, here, values);
        for (int64_t i = 0; i < here; i++)
            count_value(values[i], statistics, histogram);
    }
}

static void add_statistics(Statistics *total, const Statistics *part)
{
    total->elements += part->elements;
    total->zeros += part->zeros;
    total->nonfinite += part->nonfinite;
    for (int i = 0; i < NARROW_COUNT; i++) {
        total->underflow[i] += part->underflow[i];
        total->overflow[i] += part->overflow[i];
    }
    total->min = fmin(total->min, part->min);
    total->max = fmax(total->max, part->max);
    total->sum += part->sum;
    total->sum_squares += part->sum_squares;
}

/* "0", "<0.01%", "12.34%": a share that is not zero never reads as zero. */
static void format_share(int64_t part, int64_t whole, char *text, size_t size)
{
    double percent = whole > 0 ? 100.0 * (double)part / (double)whole : 0;
    if (part == 0)
        snprintf(text, size, "0");
    else if (percent < 0.01)
        snprintf(text, size, "<0.01%%");
    else
        snprintf(text, size, "%.2f%%", percent);
}

static void format_shape(const HsTensor *tensor, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int axis = 0; axis < tensor->rank; axis++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, axis ? "," : "", tensor->shape[axis]);
    snprintf(text + used, size - used, "]");
}

static void print_heading(FILE *out, int name_width)
{
    fprintf(out, "  %-*s  %-5s %-14s %12s %11s %11s %11s %11s %9s %9s", name_width, "name", "dtype", "shape",
            "elements", "min", "max", "mean", "rms", "zeros", "nonfinite");
    for (int i = 0; i < NARROW_COUNT; i++)
        fprintf(out, " %5s<norm %5s>max", hs_dtype_name(narrow[i]), hs_dtype_name(narrow[i]));
    fputc('\n', out);
}

static void print_row(FILE *out, int name_width, const char *name, const char *dtype, const char *shape,
                      const Statistics *statistics)
{
    int64_t finite = statistics->elements - statistics->nonfinite;
    char share[32];
    fprintf(out, "  %-*s  %-5s %-14s %12" PRId64, name_width, name, dtype, shape, statistics->elements);
    if (finite > 0)
        fprintf(out, " %11.3e %11.3e %11.3e %11.3e", statistics->min, statistics->max, statistics->sum / (double)finite,
                sqrt(statistics->sum_squares / (double)finite));
    else
        fprintf(out, " %11s %11s %11s %11s", "-", "-", "-", "-");
    format_share(statistics->zeros, statistics->elements, share, sizeof share);
    fprintf(out, " %9s %9" PRId64, share, statistics->nonfinite);
    for (int i = 0; i < NARROW_COUNT; i++) {
        format_share(statistics->underflow[i], statistics->elements, share, sizeof share);
        fprintf(out, " %10s", share);
        format_share(statistics->overflow[i], statistics->elements, share, sizeof share);
        fprintf(out, " %9s", share);
    }
    fputc('\n', out);
}

/* The histogram that a tensor's values go to: one for all weights, one for each kind of moment (".m", ".v"). */
static Histogram *histogram_for(Histogram *histograms, int *count, const char *name)
{
    for (int i = 0; i < *count; i++) {
        if (strcmp(histograms[i].name, name) == 0)
            return &histograms[i];
    }
    if (*count == MAX_HISTOGRAMS) /* foreign names: the last one gathers what is left */
        return &histograms[*count - 1];
    Histogram *fresh = &histograms[(*count)++];
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    return fresh;
}

/* "model" for all weights; ".m" and ".v" apart; strategies by family: "ewc.importance/...". */
static void kind_of(const char *title, const char *tensor, bool by_kind, char kind[32])
{
    const char *slash = strchr(tensor, '/'), *dot = strrchr(tensor, '.');
    if (!by_kind)
        snprintf(kind, 32, "%s", title);
    else if (slash)
        snprintf(kind, 32, "%.*s", (int)(slash - tensor < 31 ? slash - tensor : 31), tensor);
    else
        snprintf(kind, 32, "%.31s", dot ? dot + 1 : tensor);
}

static void print_file(FILE *out, const char *title, const HsSafetensors *file, bool by_kind, Histogram *histograms,
                       int *histogram_count)
{
    Statistics total = { .min = INFINITY, .max = -INFINITY };
    char shape[96];
    int name_width = 8;
    for (int i = 0; i < file->count; i++) {
        int length = (int)strlen(file->tensors[i].name);
        name_width = length > name_width ? length : name_width;
    }
    fprintf(out, "\n%s: %d tensors\n", title, file->count);
    if (file->count == 0)
        return;
    print_heading(out, name_width);
    for (int i = 0; i < file->count; i++) {
        const HsNamedTensor *named = &file->tensors[i];
        char kind[32];
        kind_of(title, named->name, by_kind, kind);
        /* Tokens are no magnitudes. */
        bool is_float = hs_dtype_info(named->tensor.dtype)->is_float;
        Histogram *histogram = is_float ? histogram_for(histograms, histogram_count, kind) : NULL;
        Statistics statistics;
        count_tensor(&named->tensor, &statistics, histogram);
        add_statistics(&total, &statistics);
        format_shape(&named->tensor, shape, sizeof shape);
        print_row(out, name_width, named->name, hs_dtype_name(named->tensor.dtype), shape, &statistics);
    }
    print_row(out, name_width, "all", "", "", &total);
}

/* What becomes of 2^exponent and its neighbour in fp16: most checkpoints are read with that question. */
static const char *fate_in_f16(int exponent)
{
    const HsDtypeInfo *info = hs_dtype_info(HS_F16);
    if (exponent > ilogb(info->max))
        return "  overflows fp16";
    if (exponent < ilogb(info->smallest_subnormal))
        return "  below fp16";
    return exponent < ilogb(info->smallest_normal) ? "  subnormal in fp16" : "";
}

static void print_histogram(FILE *out, const Histogram *histogram)
{
    int lowest = -1, highest = -1;
    int64_t largest = 0;
    for (int i = 0; i < GROUP_COUNT; i++) {
        if (histogram->groups[i] == 0)
            continue;
        lowest = lowest < 0 ? i : lowest;
        highest = i;
        largest = histogram->groups[i] > largest ? histogram->groups[i] : largest;
    }
    fprintf(out, "\nexponents of %s: %" PRId64 " values that are finite and not zero\n", histogram->name,
            histogram->total);
    for (int i = highest; i >= lowest && lowest >= 0; i--) {
        if (histogram->groups[i] == 0) { /* a gap takes one line, however wide */
            if (histogram->groups[i + 1] != 0)
                fprintf(out, "  ...\n");
            continue;
        }
        char bar[BAR_WIDTH + 1], share[32];
        int exponent = LOWEST_EXPONENT + i * BINADES_PER_GROUP;
        int cells = (int)((histogram->groups[i] * BAR_WIDTH + largest - 1) / largest); /* any value shows */
        memset(bar, '#', (size_t)cells);
        bar[cells] = '\0';
        const char *fate = fate_in_f16(exponent);
        format_share(histogram->groups[i], histogram->total, share, sizeof share);
        fprintf(out, "  2^%-4d to 2^%-4d %7s  %-*s%s\n", exponent, exponent + BINADES_PER_GROUP, share,
                fate[0] ? BAR_WIDTH : 0, bar, fate);
    }
}

static void print_state(FILE *out, const HsJson *state)
{
    fprintf(out, "\ntrainer state\n");
    for (const HsJson *member = hs_json_first(state); member; member = hs_json_next(member)) {
        char number[HS_JSON_NUMBER_BYTES];
        const char *text = hs_json_string(member);
        if (hs_json_is_number(member)) {
            hs_json_format_real(hs_json_number(member), number);
            text = number;
        } else if (!text) {
            text = hs_json_is_object(member) || hs_json_is_array(member) ? "(nested)" : "(none)";
        }
        fprintf(out, "  %-20s %s\n", hs_json_key(member), text);
    }
}

/* The strategies' tensors and the replay buffer, where a run has them. */
static HsStatus print_continual(FILE *out, const char *folder, Histogram *histograms, int *histogram_count)
{
    char *path;
    HsSafetensors file;
    HS_TRY(hs_storage_join(folder, "continual.safetensors", &path));
    HsStatus status = HS_OK;
    if (access(path, F_OK) != 0)
        goto done;
    HS_TRY_GOTO(status, hs_safetensors_open(path, &file), done);
    print_file(out, "continual", &file, true, histograms, histogram_count);
    hs_safetensors_close(&file);
done:
    free(path);
    return status;
}

HsStatus hs_inspect_checkpoint(const char *folder, FILE *out)
{
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, true, &checkpoint));
    HsStatus status = HS_OK;
    uint64_t hash = 0;
    int histogram_count = 0;
    Histogram *histograms = calloc(MAX_HISTOGRAMS, sizeof *histograms);
    if (!histograms) {
        status = hs_fail(HS_ENOMEM, "no memory to inspect %s", folder);
        goto done;
    }
    HS_TRY_GOTO(status, hs_checkpoint_hash(checkpoint.folder, &hash), done);
    fprintf(out, "checkpoint %s\nhash %016" PRIx64 "\n", checkpoint.folder, hash);
    print_state(out, checkpoint.state);
    print_file(out, "model", &checkpoint.model, false, histograms, &histogram_count);
    print_file(out, "optimizer", &checkpoint.optimizer, true, histograms, &histogram_count);
    HS_TRY_GOTO(status, print_continual(out, checkpoint.folder, histograms, &histogram_count), done);
    for (int i = 0; i < histogram_count; i++)
        print_histogram(out, &histograms[i]);
    if (fflush(out) != 0 || ferror(out))
        status = hs_fail(HS_EIO, "cannot write what was found in %s", folder);
done:
    free(histograms);
    hs_checkpoint_close(&checkpoint);
    return status;
}
