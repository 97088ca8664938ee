/* SPDX-License-Identifier: MIT
 *
 * What dataset.c (reading) and dataset_stream.c (encoding and splitting) share.  Internal to runtime/data.
 */
#ifndef HS_RUNTIME_DATA_DATASET_BUILD_H
#define HS_RUNTIME_DATA_DATASET_BUILD_H

#include "runtime/data/dataset.h"
#include "runtime/data/source.h"

/* Everything that exists only while the streams are made. */
typedef struct HsDatasetBuild {
    const HsConfig *config;
    const HsTaskConfig *task;
    HsTokenizer *tokenizer;
    HsSourceList sources;
    int train_sources; /* sources[0 .. train_sources) train, the rest validates */
    double share;      /* percent cut off for validation; 0: validation has its own sources */
    HsCorpus corpus;
    int64_t train_pieces;
    int64_t *starts; /* [pieces + 1] first token of every piece within its stream; scratch of encode */
} HsDatasetBuild;

/* Puts the piece's file, and line where it has one, before the message; returns `status`. */
HsStatus hs_dataset_blame(const HsDatasetBuild *building, const HsPiece *piece, HsStatus status);

/* The corpus, with building->tokenizer, to dataset->train and dataset->validation.
 * errors: HS_ENOMEM, and the tokenizer's with the file's name */
HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset);

#endif
