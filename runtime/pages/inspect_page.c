/* SPDX-License-Identifier: MIT
 *
 * What was found in a checkpoint, as a page: what 16-bit formats would make of each kind of tensor and codes of each
 * matrix, exponent charts with the formats' ranges, and every tensor's figures.
 */
#include <inttypes.h>
#include <math.h>

#include "runtime/pages/inspect_internal.h"
#include "runtime/pages/page.h"

static void add_share(HsPage *page, int64_t part, int64_t whole)
{
    char text[HS_INSPECT_TEXT_BYTES];
    hs_page_cell(page, "%s", hs_inspect_share(part, whole, text));
}

static void add_facts(const HsInspection *inspection, HsPage *page)
{
    char text[HS_INSPECT_TEXT_BYTES];
    hs_page_section(page, "The checkpoint", "Its hash covers every file: equal runs have equal hashes.");
    hs_page_facts(page);
    hs_page_fact(page, "hash", "%016" PRIx64, inspection->hash);
    const HsJson *state = inspection->checkpoint.state;
    for (const HsJson *member = hs_json_first(state); member; member = hs_json_next(member))
        hs_page_fact(page, hs_json_key(member), "%s", hs_inspect_state(member, text));
}

/* ---- formats and exponents ---- */

static void add_losses(const HsInspection *inspection, HsPage *page)
{
    static const char *const titles[] = { "kind", "elements", "zero already" };
    static const char *const of_formats[] = { "to zero", "subnormal", "overflow" };
    hs_page_section(page, "What 16 bits would make of it",
                    "Shares of the elements, had they been stored in the format as they are. Zero: at most half of the "
                    "smallest number, rounds to zero. Subnormal: below the smallest normal number, keeps fewer bits. "
                    "Overflow: past the largest number, or not finite already.");
    hs_page_table(page, "losses by kind");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        hs_page_column_group(page, hs_page_print(page, "in %s", hs_dtype_name(hs_inspect_formats[i])), 3);
        hs_page_columns(page, of_formats, sizeof of_formats / sizeof *of_formats);
    }
    for (int row = 0; row < inspection->histogram_count; row++) {
        const HsHistogram *histogram = &inspection->histograms[row].histogram;
        const double all = (double)histogram->elements;
        hs_page_row(page, inspection->histograms[row].name);
        hs_page_cell(page, "%" PRId64, histogram->elements);
        add_share(page, histogram->zeros, histogram->elements);
        for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
            const HsFormatLoss loss = hs_histogram_loss(histogram, hs_inspect_formats[i], 0);
            add_share(page, llround(loss.vanished * all), histogram->elements);
            add_share(page, llround(loss.subnormal * all), histogram->elements);
            add_share(page, llround(loss.overflow * all), histogram->elements);
        }
    }
}

static void add_codes(const HsInspection *inspection, HsPage *page)
{
    char text[HS_INSPECT_TEXT_BYTES];
    if (inspection->code_count == 0)
        return;
    hs_page_section(page, "What codes below 16 bits would make of it",
                    "Relative error of the cast, the root of its squares over the matrix's, and in brackets the share "
                    "of the elements that it makes zero. One scale for the tensor; one for 128 x 128 elements; one for "
                    "32 neighbours of a row (MXFP8); one for 16 x 16 and one for the tensor (NVFP4).");
    hs_page_table(page, "casts by matrix");
    hs_page_columns(page, (const char *const[]){ "name" }, 1);
    for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
        hs_page_columns(page, &hs_inspect_rules[rule].name, 1);
    for (int i = 0; i < inspection->code_count; i++) {
        hs_page_row(page, inspection->codes[i].name);
        for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
            hs_page_cell(page, "%s", hs_inspect_cast(&inspection->codes[i].losses[rule], text));
    }
}

static void add_exponents(const HsInspection *inspection, HsPage *page)
{
    hs_page_section(page, "Exponents",
                    "How the magnitudes spread over binades, from each power of two to the next, and which of them the "
                    "narrower formats hold.");
    for (int i = 0; i < inspection->histogram_count; i++) {
        const HsExponentSeries series = { .name = inspection->histograms[i].name,
                                          .histogram = &inspection->histograms[i].histogram };
        hs_page_exponents(page, &(HsExponentChart){ hs_page_print(page, "Exponents of %s", series.name), &series, 1 });
    }
}

/* ---- tensors ---- */

static void add_tensor(HsPage *page, const char *name, const char *dtype, const char *shape,
                       const HsInspectedTensor *found)
{
    const double finite = (double)(found->elements - found->nonfinite);
    const double figures[] = { found->min, found->max, found->sum / finite, sqrt(found->sum_squares / finite) };
    hs_page_row(page, name);
    hs_page_cell(page, "%s", dtype);
    hs_page_cell(page, "%s", shape);
    hs_page_cell(page, "%" PRId64, found->elements);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        hs_page_real(page, "%.3e", finite > 0 ? figures[i] : NAN);
    add_share(page, found->zeros, found->elements);
    hs_page_cell(page, "%" PRId64, found->nonfinite);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        add_share(page, found->underflow[i], found->elements);
        add_share(page, found->overflow[i], found->elements);
    }
}

static void add_file(const HsInspectedFile *found, HsPage *page)
{
    static const char *const titles[] = { "name", "dtype", "shape", "elements", "min",
                                          "max",  "mean",  "rms",   "zeros",    "not finite" };
    char text[HS_INSPECT_TEXT_BYTES];
    if (found->file->count == 0)
        return;
    hs_page_section(page, found->title,
                    "Below normal: not zero and below the format's smallest normal number. Above max: beyond its "
                    "largest finite one.");
    hs_page_table(page, found->title);
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        const char *const format = hs_dtype_name(hs_inspect_formats[i]);
        hs_page_columns(page,
                        (const char *const[]){ hs_page_print(page, "%s below normal", format),
                                               hs_page_print(page, "%s above max", format) },
                        2);
    }
    for (int i = 0; i < found->file->count; i++) {
        const HsNamedTensor *named = &found->file->tensors[i];
        add_tensor(page, named->name, hs_dtype_name(named->tensor.dtype), hs_inspect_shape(&named->tensor, text),
                   &found->tensors[i]);
    }
    add_tensor(page, "all", "", "", &found->total);
}

static HsStatus fill(HsPage *page, const void *user)
{
    const HsInspection *inspection = user;
    hs_page_heading(page, "What a checkpoint holds", "%s", inspection->checkpoint.folder);
    add_facts(inspection, page);
    add_losses(inspection, page);
    add_codes(inspection, page);
    add_exponents(inspection, page);
    for (int i = 0; i < inspection->file_count; i++)
        add_file(&inspection->files[i], page);
    return HS_OK;
}

HsStatus hs_inspection_write_html(const HsInspection *inspection, const char *path)
{
    return hs_page_write(path, "What a checkpoint holds", fill, inspection);
}
