/* SPDX-License-Identifier: MIT
 *
 * What dataset.c (reading), dataset_tokenizer.c, dataset_stream.c (encoding and splitting) and dataset_items.c share.  Internal to
 * runtime/data.
 */
#ifndef HS_RUNTIME_DATA_DATASET_BUILD_H
#define HS_RUNTIME_DATA_DATASET_BUILD_H

#include "runtime/data/dataset.h"
#include "runtime/data/source/source.h"

/* Conversations, in tokens. */
typedef struct HsChatLengths {
    int64_t count, longer, longest; /* longer: than max_length */
    int64_t answers_beyond;         /* tokens of answers behind the first max_length of theirs */
} HsChatLengths;

/* data.packing: none, documents. */
typedef struct HsRowCounts {
    int64_t documents, cut, without_target;
    int64_t packs, kept;        /* rows that documents share, and the tokens in them */
    int64_t lost, lost_targets; /* tokens behind max_length */
} HsRowCounts;

/* Everything that exists only while the streams are made. */
typedef struct HsDatasetBuild {
    const HsConfig *config;
    const HsTaskConfig *task;
    uint32_t task_index;    /* keeps the seeds of tasks apart */
    HsTokenizer *tokenizer; /* borrowed; NULL until it is made */
    HsSourceList sources;
    int train_sources;     /* sources[0 .. train_sources) train, the rest validates */
    bool keeps_validation; /* files of validation stay in training too, where it has them */
    double share;          /* percent cut off for validation; 0: validation has its own sources */
    HsCorpus corpus;
    int64_t train_pieces;
    int64_t joined;  /* documents of files in one stream, the most; they run together where no token ends them */
    int64_t *starts; /* [pieces + 1] first token of every piece within its stream; scratch of encode */
    HsChatLengths chats;
    HsRowCounts rows;
} HsDatasetBuild;

/* Takes files of validation out of the listed sources of training, before anything is read.  errors: HS_ENOMEM */
HsStatus hs_dataset_leave_out(HsDatasetBuild *building, HsDatasetApart *apart);
/* From the corpus, with its tokenizer.  errors: HS_ENOMEM */
HsStatus hs_dataset_count_shared(const HsDatasetBuild *building, HsDatasetApart *apart);
void hs_dataset_apart_deinit(HsDatasetApart *apart);

/* Puts the piece's file, and line where it has one, before the message; returns `status`. */
HsStatus hs_dataset_blame(const HsDatasetBuild *building, const HsPiece *piece, HsStatus status);

/* Puts the task before the message where there are several tasks; returns `status`. */
HsStatus hs_dataset_blame_task(const HsDatasetBuild *building, HsStatus status);

/* Before any text is read: the tokenizer, unless it is made from text (kind char), which leaves NULL.
 * errors: HS_ECONFIG when it is to be made from token files, and the tokenizer's */
HsStatus hs_dataset_tokenizer_early(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer);
/* Kind char, from what was read: the union of every corpus's characters.  errors: the tokenizer's */
HsStatus hs_dataset_tokenizer_from_text(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer);

/* `failed`, encoding's status; kind char: with all characters of the task that the tokenizer has not, and the mend. */
HsStatus hs_dataset_explain_characters(const HsDatasetBuild *building, HsStatus failed);

/* The corpus, with building->tokenizer, to dataset->train and dataset->validation.
 * errors: HS_ENOMEM, and the tokenizer's with the file's name */
HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset);

/* dataset_shards.c: whether the task's tokens stay in their files, and its streams over these.
 * errors: those of hs_token_shards_add */
bool hs_dataset_stays_in_files(const HsDatasetBuild *building);
HsStatus hs_dataset_open_files(const HsDatasetBuild *building, HsDataset *dataset);

/* Documents are not cut in windows: data.packing is not stream. */
bool hs_dataset_keeps_documents(const HsConfig *config);
/* data.packing: none, documents: the rows of a stream, which begins `offset` tokens behind where `starts` counts from; nothing
 * otherwise.  errors: HS_ENOMEM, HS_ECONFIG for token files (dataset_rows.c) */
HsStatus hs_dataset_make_rows(HsDatasetBuild *building, const HsPiece *pieces, int64_t count, const int64_t *starts,
                              int64_t offset, HsStreamTokens *stream);
/* Puts stream->rows together: makes stream->packs, of at most `most` tokens each, and brings the rows in their order.
 * errors: HS_ENOMEM (dataset_packs.c) */
HsStatus hs_dataset_pack(HsStreamTokens *stream, int64_t most);
/* Pieces [0, train_end) and [validation_begin, pieces) to dataset->items.  errors: HS_ENOMEM, the tokenizer's */
HsStatus hs_dataset_collect_items(const HsDatasetBuild *building, int64_t train_end, int64_t validation_begin,
                                  HsDataset *dataset);
void hs_item_set_deinit(HsItemSet *set);

#endif
