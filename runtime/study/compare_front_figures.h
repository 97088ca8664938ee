/* SPDX-License-Identifier: MIT
 *
 * A front's points with all that is shown of them.  Private to compare_front*.c and its tests.
 *
 *     closed       (none - point) / (none - joint) of the retained losses, where there are rows of these names: 1 is
 *                  joint training
 *     sequences    of earlier text in the sample, at most; text_share: their tokens over those of all training text
 *     numbers      what a strategy keeps of earlier tasks in numbers, 4 bytes each, over the parameters that are trained:
 *                  importance, anchors, snapshots, a reference gradient, a teacher's copy.  Logits that are kept with a
 *                  sample are in the memory alone
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_FRONT_FIGURES_H
#define HS_RUNTIME_STUDY_COMPARE_FRONT_FIGURES_H

#include "runtime/study/compare_front.h"
#include "runtime/study/compare_page.h"

enum { HS_FRONT_NAME_BYTES = 96, HS_FRONT_STRATEGY_BYTES = 64, HS_FRONT_LINE_BYTES = 512 };

/* What a variant asks for, before it runs: by its configuration, and by a plan of it. */
typedef struct HsFrontPrice {
    char strategy[HS_FRONT_STRATEGY_BYTES]; /* "ewc + er" */
    bool keeps_text, all_text;              /* a sample of it; all of it at once: joint */
    int64_t buffer;                         /* sequences of the sample, at most */
    int64_t length;                         /* tokens of a sequence */
    int64_t rows;                           /* sequences of a step */
    int64_t trainable;                      /* parameters; 0: not known */
    double planned_s;                       /* at least, of a run; 0: not known */
} HsFrontPrice;

/* Training text of all tasks; NAN: not known. */
typedef struct HsFrontText {
    double tokens, bytes;
} HsFrontText;

typedef struct HsFrontRow {
    const HsCompareFigures *figures;
    HsFrontPrice price;
    char name[HS_FRONT_NAME_BYTES]; /* short: "er 0.1" */
    int colour;                     /* one a strategy, counted from 0 */
    double sequences, text_share, numbers, closed;
    double learned_spread, forgotten_spread;
} HsFrontRow;

typedef struct HsFront {
    const char *title;
    const HsCompareRow *compared; /* borrowed */
    HsCompareFigures *figures;    /* [count] each */
    HsFrontPoint *points;
    HsFrontRow *rows;
    int count;
    double none, joint; /* retained; NAN: there is no such row */
} HsFront;

/* errors: HS_ENOMEM; those of hs_compare_figures.  Deinit after a failure, too. */
HsStatus hs_front_init(HsFront *front, const char *title, const HsCompareRow *rows, const HsFrontPrice *prices,
                       const HsFrontText *text, int count);
void hs_front_deinit(HsFront *front);

/* "er 0.1" for er:replay.fraction=0.1: names [count], unlike one another. */
void hs_front_names(const char *const *labels, int count, char (*names)[HS_FRONT_NAME_BYTES]);

/* Why point `index` is dominated, or what keeping text would bring: a sentence of figures; "": neither. */
const char *hs_front_sentence(const HsFront *front, int index, char text[HS_FRONT_LINE_BYTES]);
/* Where a point belongs: "front", "front without text", "dominated by er 0.1", "reference", "diverged", "no figures". */
const char *hs_front_place(const HsFront *front, int index, char text[HS_FRONT_LINE_BYTES]);
/* "none", "all", or "512, 4.2%": sequences of the sample and their share of the text. */
const char *hs_front_text_kept(const HsFrontRow *row, char text[HS_FRONT_LINE_BYTES]);

HsStatus hs_front_write_json(const char *path, const HsFront *front);
HsStatus hs_front_write_html(const char *path, const HsFront *front);
HsStatus hs_front_print(const HsFront *front, FILE *stream);

#endif
