/* SPDX-License-Identifier: MIT
 *
 * What was found in a checkpoint, as text.  Histograms show pairs of binades that start at even exponents: fp16's
 * limits (2^-24, 2^-14, 2^16) and bf16's (2^-126) are even, so that no pair lies on both sides of one.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/pages/inspect_internal.h"

enum { BAR_WIDTH = 40, PAIRS = HS_HISTOGRAM_GROUPS / 2 };
_Static_assert(HS_HISTOGRAM_BINADES == 1 && HS_HISTOGRAM_LOWEST % 2 == 0 && HS_HISTOGRAM_GROUPS % 2 == 0,
               "pairs of binades start at even exponents");

const char *hs_inspect_shape(const HsTensor *tensor, char text[HS_INSPECT_TEXT_BYTES])
{
    const size_t size = HS_INSPECT_TEXT_BYTES;
    size_t used = (size_t)snprintf(text, size, "[");
    for (int axis = 0; axis < tensor->rank; axis++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, axis ? "," : "", tensor->shape[axis]);
    snprintf(text + used, size - used, "]");
    return text;
}

const char *hs_inspect_state(const HsJson *member, char text[HS_INSPECT_TEXT_BYTES])
{
    const char *string = hs_json_string(member);
    if (hs_json_is_number(member)) {
        char number[HS_JSON_NUMBER_BYTES];
        hs_json_format_real(hs_json_number(member), number);
        snprintf(text, HS_INSPECT_TEXT_BYTES, "%s", number);
    } else if (string) {
        snprintf(text, HS_INSPECT_TEXT_BYTES, "%s", string);
    } else {
        bool nested = hs_json_is_object(member) || hs_json_is_array(member);
        snprintf(text, HS_INSPECT_TEXT_BYTES, "%s", nested ? "(nested)" : "(none)");
    }
    return text;
}

static void print_heading(FILE *out, int name_width)
{
    fprintf(out, "  %-*s  %-5s %-14s %12s %11s %11s %11s %11s %9s %9s", name_width, "name", "dtype", "shape",
            "elements", "min", "max", "mean", "rms", "zeros", "nonfinite");
    for (int i = 0; i < HS_INSPECT_FORMATS; i++)
        fprintf(out, " %5s<norm %5s>max", hs_dtype_name(hs_inspect_formats[i]), hs_dtype_name(hs_inspect_formats[i]));
    fputc('\n', out);
}

static void print_row(FILE *out, int name_width, const char *name, const char *dtype, const char *shape,
                      const HsInspectedTensor *found)
{
    int64_t finite = found->elements - found->nonfinite;
    char share[HS_INSPECT_TEXT_BYTES];
    fprintf(out, "  %-*s  %-5s %-14s %12" PRId64, name_width, name, dtype, shape, found->elements);
    if (finite > 0)
        fprintf(out, " %11.3e %11.3e %11.3e %11.3e", found->min, found->max, found->sum / (double)finite,
                sqrt(found->sum_squares / (double)finite));
    else
        fprintf(out, " %11s %11s %11s %11s", "-", "-", "-", "-");
    fprintf(out, " %9s %9" PRId64, hs_inspect_share(found->zeros, found->elements, share), found->nonfinite);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        fprintf(out, " %10s", hs_inspect_share(found->underflow[i], found->elements, share));
        fprintf(out, " %9s", hs_inspect_share(found->overflow[i], found->elements, share));
    }
    fputc('\n', out);
}

static void print_file(FILE *out, const HsInspectedFile *found)
{
    const HsSafetensors *file = found->file;
    char shape[HS_INSPECT_TEXT_BYTES];
    int name_width = 8;
    for (int i = 0; i < file->count; i++) {
        int length = (int)strlen(file->tensors[i].name);
        name_width = length > name_width ? length : name_width;
    }
    fprintf(out, "\n%s: %d tensors\n", found->title, file->count);
    if (file->count == 0)
        return;
    print_heading(out, name_width);
    for (int i = 0; i < file->count; i++) {
        const HsTensor *tensor = &file->tensors[i].tensor;
        print_row(out, name_width, file->tensors[i].name, hs_dtype_name(tensor->dtype), hs_inspect_shape(tensor, shape),
                  &found->tensors[i]);
    }
    print_row(out, name_width, "all", "", "", &found->total);
}

/* What becomes of 2^exponent and the binade above in fp16: most checkpoints are read with that question. */
static const char *fate_in_f16(int exponent)
{
    const HsDtypeInfo *info = hs_dtype_info(HS_F16);
    if (exponent > ilogb(info->max))
        return "  overflows fp16";
    if (exponent < ilogb(info->smallest_subnormal))
        return "  below fp16";
    return exponent < ilogb(info->smallest_normal) ? "  subnormal in fp16" : "";
}

static int64_t in_pair(const HsHistogram *histogram, int pair)
{
    return histogram->groups[2 * pair] + histogram->groups[2 * pair + 1];
}

static void print_histogram(FILE *out, const HsInspectedHistogram *named)
{
    const HsHistogram *histogram = &named->histogram;
    int lowest = -1, highest = -1;
    int64_t largest = 0, total = histogram->elements - histogram->zeros - histogram->nonfinite;
    for (int i = 0; i < PAIRS; i++) {
        int64_t count = in_pair(histogram, i);
        if (count == 0)
            continue;
        lowest = lowest < 0 ? i : lowest;
        highest = i;
        largest = count > largest ? count : largest;
    }
    fprintf(out, "\nexponents of %s: %" PRId64 " values that are finite and not zero\n", named->name, total);
    for (int i = highest; i >= lowest && lowest >= 0; i--) {
        int64_t count = in_pair(histogram, i);
        if (count == 0) { /* a gap takes one line, however wide */
            if (in_pair(histogram, i + 1) != 0)
                fprintf(out, "  ...\n");
            continue;
        }
        char bar[BAR_WIDTH + 1], share[HS_INSPECT_TEXT_BYTES];
        int exponent = hs_histogram_exponent(2 * i);
        int cells = (int)((count * BAR_WIDTH + largest - 1) / largest); /* any value shows */
        memset(bar, '#', (size_t)cells);
        bar[cells] = '\0';
        const char *fate = fate_in_f16(exponent);
        fprintf(out, "  2^%-4d to 2^%-4d %7s  %-*s%s\n", exponent, exponent + 2, hs_inspect_share(count, total, share),
                fate[0] ? BAR_WIDTH : 0, bar, fate);
    }
}

static void print_codes(const HsInspection *inspection, FILE *out)
{
    char text[HS_INSPECT_TEXT_BYTES];
    int width = 8;
    for (int i = 0; i < inspection->code_count; i++) {
        const int length = (int)strlen(inspection->codes[i].name);
        width = length > width ? length : width;
    }
    if (inspection->code_count == 0)
        return;
    fprintf(out, "\nmatrices in codes below 16 bits: relative error of the cast (share that it makes zero)\n  %-*s",
            width, "name");
    for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
        fprintf(out, " %18s", hs_inspect_rules[rule].name);
    fputc('\n', out);
    for (int i = 0; i < inspection->code_count; i++) {
        fprintf(out, "  %-*s", width, inspection->codes[i].name);
        for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
            fprintf(out, " %18s", hs_inspect_cast(&inspection->codes[i].losses[rule], text));
        fputc('\n', out);
    }
}

static void print_state(FILE *out, const HsJson *state)
{
    char text[HS_INSPECT_TEXT_BYTES];
    fprintf(out, "\ntrainer state\n");
    for (const HsJson *member = hs_json_first(state); member; member = hs_json_next(member))
        fprintf(out, "  %-20s %s\n", hs_json_key(member), hs_inspect_state(member, text));
}

HsStatus hs_inspection_print(const HsInspection *inspection, FILE *out)
{
    const char *folder = inspection->checkpoint.folder;
    fprintf(out, "checkpoint %s\nhash %016" PRIx64 "\n", folder, inspection->hash);
    print_state(out, inspection->checkpoint.state);
    for (int i = 0; i < inspection->file_count; i++)
        print_file(out, &inspection->files[i]);
    print_codes(inspection, out);
    for (int i = 0; i < inspection->histogram_count; i++)
        print_histogram(out, &inspection->histograms[i]);
    if (fflush(out) != 0 || ferror(out))
        return hs_fail(HS_EIO, "the report on %s cannot be written: %s", folder, strerror(errno));
    return HS_OK;
}
