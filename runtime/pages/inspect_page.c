/* SPDX-License-Identifier: MIT
 *
 * What was found in a checkpoint, as a page: what 16-bit formats would make of each kind of tensor and codes of each
 * matrix, exponent charts with the formats' ranges, and every tensor's figures.
 */
#include <inttypes.h>
#include <math.h>

#include "runtime/pages/html.h"
#include "runtime/pages/html_exponents.h"
#include "runtime/pages/inspect_internal.h"

static void begin_section(FILE *stream, const char *title, const char *text)
{
    fputs("<section>\n<h2>", stream);
    hs_html_text(stream, title);
    fprintf(stream, "</h2>\n<p class=\"soft\">%s</p>\n", text);
}

static void begin_table(FILE *stream, const char *label)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"", stream);
    hs_html_text(stream, label);
    fputs("\">\n<table>\n<thead><tr>", stream);
}

static void end_table(FILE *stream)
{
    fputs("</tbody>\n</table>\n</div>\n", stream);
}

static void write_heading(FILE *stream, const char *text)
{
    fputs("<th scope=\"col\">", stream);
    hs_html_text(stream, text);
    fputs("</th>", stream);
}

static void write_name(FILE *stream, const char *text)
{
    fputs("<tr><th scope=\"row\">", stream);
    hs_html_text(stream, text);
    fputs("</th>", stream);
}

static void write_cell(FILE *stream, const char *text)
{
    fputs("<td>", stream);
    hs_html_text(stream, text);
    fputs("</td>", stream);
}

static void write_count(FILE *stream, int64_t count)
{
    fprintf(stream, "<td>%" PRId64 "</td>", count);
}

static void write_share(FILE *stream, int64_t part, int64_t whole)
{
    char text[HS_INSPECT_TEXT_BYTES];
    write_cell(stream, hs_inspect_share(part, whole, text));
}

static void write_fact(FILE *stream, const char *name, const char *text)
{
    fputs("<div><dt>", stream);
    hs_html_text(stream, name);
    fputs("</dt><dd>", stream);
    hs_html_text(stream, text);
    fputs("</dd></div>\n", stream);
}

static void write_facts(const HsInspection *inspection, FILE *stream)
{
    char text[HS_INSPECT_TEXT_BYTES];
    begin_section(stream, "The checkpoint", "Its hash covers every file: equal runs have equal hashes.");
    fputs("<dl class=\"facts\">\n", stream);
    snprintf(text, sizeof text, "%016" PRIx64, inspection->hash);
    write_fact(stream, "hash", text);
    const HsJson *state = inspection->checkpoint.state;
    for (const HsJson *member = hs_json_first(state); member; member = hs_json_next(member))
        write_fact(stream, hs_json_key(member), hs_inspect_state(member, text));
    fputs("</dl>\n</section>\n", stream);
}

/* ---- formats and exponents ---- */

static void write_losses(const HsInspection *inspection, FILE *stream)
{
    begin_section(stream, "What 16 bits would make of it",
                  "Shares of the elements, had they been stored in the format as they are. Zero: at most half of the "
                  "smallest number, rounds to zero. Subnormal: below the smallest normal number, keeps fewer bits. "
                  "Overflow: past the largest number, or not finite already.");
    begin_table(stream, "losses by kind");
    fputs("<th scope=\"col\" rowspan=\"2\">kind</th><th scope=\"col\" rowspan=\"2\">elements</th>"
          "<th scope=\"col\" rowspan=\"2\">zero already</th>",
          stream);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++)
        fprintf(stream, "<th scope=\"colgroup\" colspan=\"3\">in %s</th>", hs_dtype_name(hs_inspect_formats[i]));
    fputs("</tr>\n<tr>", stream);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        write_heading(stream, "to zero");
        write_heading(stream, "subnormal");
        write_heading(stream, "overflow");
    }
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int row = 0; row < inspection->histogram_count; row++) {
        const HsHistogram *histogram = &inspection->histograms[row].histogram;
        const double all = (double)histogram->elements;
        write_name(stream, inspection->histograms[row].name);
        write_count(stream, histogram->elements);
        write_share(stream, histogram->zeros, histogram->elements);
        for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
            HsFormatLoss loss = hs_histogram_loss(histogram, hs_inspect_formats[i], 0);
            write_share(stream, llround(loss.vanished * all), histogram->elements);
            write_share(stream, llround(loss.subnormal * all), histogram->elements);
            write_share(stream, llround(loss.overflow * all), histogram->elements);
        }
        fputs("</tr>\n", stream);
    }
    end_table(stream);
    fputs("</section>\n", stream);
}

static void write_codes(const HsInspection *inspection, FILE *stream)
{
    char text[HS_INSPECT_TEXT_BYTES];
    if (inspection->code_count == 0)
        return;
    begin_section(stream, "What codes below 16 bits would make of it",
                  "Relative error of the cast, the root of its squares over the matrix's, and in brackets the share of "
                  "the elements that it makes zero. One scale for the tensor; one for 128 x 128 elements; one for 32 "
                  "neighbours of a row (MXFP8); one for 16 x 16 and one for the tensor (NVFP4).");
    begin_table(stream, "casts by matrix");
    write_heading(stream, "name");
    for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
        write_heading(stream, hs_inspect_rules[rule].name);
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int i = 0; i < inspection->code_count; i++) {
        write_name(stream, inspection->codes[i].name);
        for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
            write_cell(stream, hs_inspect_cast(&inspection->codes[i].losses[rule], text));
        fputs("</tr>\n", stream);
    }
    end_table(stream);
    fputs("</section>\n", stream);
}

static void write_exponents(const HsInspection *inspection, FILE *stream)
{
    begin_section(stream, "Exponents",
                  "How the magnitudes spread over binades, from each power of two to the next, and which of them the "
                  "narrower formats hold.");
    for (int i = 0; i < inspection->histogram_count; i++) {
        const HsInspectedHistogram *named = &inspection->histograms[i];
        char title[64];
        snprintf(title, sizeof title, "Exponents of %s", named->name);
        hs_html_exponent_chart(stream, title,
                               &(HsExponentSeries){ .name = named->name, .histogram = &named->histogram }, 1);
    }
    fputs("</section>\n", stream);
}

/* ---- tensors ---- */

static void write_tensor(FILE *stream, const char *name, const char *dtype, const char *shape,
                         const HsInspectedTensor *found)
{
    const double finite = (double)(found->elements - found->nonfinite);
    const double figures[] = { found->min, found->max, found->sum / finite, sqrt(found->sum_squares / finite) };
    char text[HS_INSPECT_TEXT_BYTES];
    write_name(stream, name);
    write_cell(stream, dtype);
    write_cell(stream, shape);
    write_count(stream, found->elements);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        snprintf(text, sizeof text, finite > 0 ? "%.3e" : "\u2013", figures[i]);
        write_cell(stream, text);
    }
    write_share(stream, found->zeros, found->elements);
    write_count(stream, found->nonfinite);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        write_share(stream, found->underflow[i], found->elements);
        write_share(stream, found->overflow[i], found->elements);
    }
    fputs("</tr>\n", stream);
}

static void write_file(const HsInspectedFile *found, FILE *stream)
{
    static const char *const headings[] = { "name", "dtype", "shape", "elements", "min",
                                            "max",  "mean",  "rms",   "zeros",    "not finite" };
    char text[HS_INSPECT_TEXT_BYTES];
    if (found->file->count == 0)
        return;
    begin_section(stream, found->title,
                  "Below normal: not zero and below the format's smallest normal number. Above max: beyond its largest "
                  "finite one.");
    begin_table(stream, found->title);
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        write_heading(stream, headings[i]);
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        snprintf(text, sizeof text, "%s below normal", hs_dtype_name(hs_inspect_formats[i]));
        write_heading(stream, text);
        snprintf(text, sizeof text, "%s above max", hs_dtype_name(hs_inspect_formats[i]));
        write_heading(stream, text);
    }
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int i = 0; i < found->file->count; i++) {
        const HsNamedTensor *named = &found->file->tensors[i];
        write_tensor(stream, named->name, hs_dtype_name(named->tensor.dtype), hs_inspect_shape(&named->tensor, text),
                     &found->tensors[i]);
    }
    write_tensor(stream, "all", "", "", &found->total);
    end_table(stream);
    fputs("</section>\n", stream);
}

static HsStatus write_body(FILE *stream, const void *user)
{
    const HsInspection *inspection = user;
    fputs("<h1>What a checkpoint holds</h1>\n<p class=\"soft\">", stream);
    hs_html_text(stream, inspection->checkpoint.folder);
    fputs("</p>\n", stream);
    write_facts(inspection, stream);
    write_losses(inspection, stream);
    write_codes(inspection, stream);
    write_exponents(inspection, stream);
    for (int i = 0; i < inspection->file_count; i++)
        write_file(&inspection->files[i], stream);
    return HS_OK;
}

HsStatus hs_inspection_write_html(const HsInspection *inspection, const char *path)
{
    return hs_html_write(path, "What a checkpoint holds", write_body, inspection);
}
