/* SPDX-License-Identifier: MIT
 *
 * What inspect.c finds and inspect_print.c and inspect_page.c show; private to them.
 */
#ifndef HS_RUNTIME_PAGES_INSPECT_INTERNAL_H
#define HS_RUNTIME_PAGES_INSPECT_INTERNAL_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/engine/cast_loss.h"
#include "runtime/engine/histogram.h"
#include "runtime/pages/inspect.h"

enum { HS_INSPECT_FILES = 3, HS_INSPECT_HISTOGRAMS = 8, HS_INSPECT_FORMATS = 2, HS_INSPECT_TEXT_BYTES = 96 };

/* The formats for which losses are shown. */
static const HsDtype hs_inspect_formats[HS_INSPECT_FORMATS] = { HS_F16, HS_BF16 };

typedef struct HsInspectedTensor {
    int64_t elements, zeros, nonfinite;
    int64_t underflow[HS_INSPECT_FORMATS], overflow[HS_INSPECT_FORMATS];
    double min, max, sum, sum_squares; /* of the finite ones */
} HsInspectedTensor;

typedef struct HsInspectedFile {
    const char *title;
    const HsSafetensors *file;
    HsInspectedTensor *tensors; /* [file->count] */
    HsInspectedTensor total;
} HsInspectedFile;

/* Of all weights, or of one kind of what the optimizer and the strategies keep. */
typedef struct HsInspectedHistogram {
    char name[32];
    HsHistogram histogram;
} HsInspectedHistogram;

/* Casts into codes that are tried on every matrix of the model. */
enum { HS_INSPECT_RULES = 4 };
typedef struct HsInspectedRule {
    const char *name;
    HsCastRule rule;
} HsInspectedRule;
extern const HsInspectedRule hs_inspect_rules[HS_INSPECT_RULES];

typedef struct HsInspectedCodes {
    const char *name; /* of the matrix; borrowed */
    HsCastLoss losses[HS_INSPECT_RULES];
} HsInspectedCodes;

typedef struct HsInspection {
    HsCheckpoint checkpoint;
    HsSafetensors continual; /* count 0: the run has none */
    uint64_t hash;
    HsInspectedFile files[HS_INSPECT_FILES];
    int file_count;
    HsInspectedHistogram histograms[HS_INSPECT_HISTOGRAMS];
    int histogram_count;
    HsInspectedCodes *codes; /* [code_count]: the model's matrices in which all is finite */
    int code_count;
} HsInspection;

/* inspect_codes.c; file: the model's, after its tensors were looked at.  errors: HS_ENOMEM */
HsStatus hs_inspect_codes(HsInspection *inspection, const HsInspectedFile *file);
/* "2.31% (0.01%)": relative error, and the share of elements that the cast makes 0. */
const char *hs_inspect_cast(const HsCastLoss *loss, char text[HS_INSPECT_TEXT_BYTES]);

/* inspect_print.c */
HsStatus hs_inspection_print(const HsInspection *inspection, FILE *out);
/* inspect_page.c; errors: those of hs_page_write */
HsStatus hs_inspection_write_html(const HsInspection *inspection, const char *path);

/* Texts that both show. */
/* "0", "<0.01%", "12.34%": a share that is not zero never reads as zero. */
const char *hs_inspect_share(int64_t part, int64_t whole, char text[HS_INSPECT_TEXT_BYTES]);
const char *hs_inspect_shape(const HsTensor *tensor, char text[HS_INSPECT_TEXT_BYTES]);
/* A member of the trainer's state. */
const char *hs_inspect_state(const HsJson *member, char text[HS_INSPECT_TEXT_BYTES]);

#endif
