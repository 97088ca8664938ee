/* SPDX-License-Identifier: MIT
 *
 * What dataset.c (order of the work), dataset_tokenizer.c, dataset_stream.c (encoding and splitting), dataset_rows.c,
 * dataset_items.c and dataset_apart.c share.  Internal to runtime/data.
 */
#ifndef HS_RUNTIME_DATA_DATASET_BUILD_H
#define HS_RUNTIME_DATA_DATASET_BUILD_H

#include "runtime/data/dataset.h"
#include "runtime/data/source/encode.h"

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

/* The documents of a stream while it is made.  `end` counts the stream's tokens. */
typedef struct HsDocuments {
    HsEncodedDocument *items;
    int64_t count;
    size_t capacity;
    int64_t joined; /* of files, not of conversations: they run together where no token ends them */
    /* Of calls of tools: as in HsCorpus */
    int64_t unrendered_contents, quoted_arguments;
} HsDocuments;

/* Documents [first, last) of a list, which a stream has whole; the list may have more of them. */
typedef struct HsDocumentRange {
    const HsDocuments *documents;
    int64_t first, last;
    int64_t offset; /* the stream's first token, as the list counts them */
} HsDocumentRange;

static inline int64_t hs_document_start(const HsDocuments *documents, int64_t index)
{
    return index > 0 ? documents->items[index - 1].end : 0;
}

/* A text of validation that is looked for in texts of training while they are read. */
typedef struct HsNeedle HsNeedle;

/* Everything that exists only while the streams are made. */
typedef struct HsDatasetBuild {
    const HsConfig *config;
    const HsTaskConfig *task;
    uint32_t task_index;    /* keeps the seeds of tasks apart */
    HsTokenizer *tokenizer; /* borrowed; NULL until it is made */
    HsSourceList sources;
    int train_sources;                  /* sources[0 .. train_sources) train, the rest validates */
    bool keeps_validation;              /* files of validation stay in training too, where it has them */
    double share;                       /* percent cut off for validation; 0: validation has its own sources */
    HsDocuments train, validation;      /* validation: nothing where it is a share */
    HsDocumentRange trained, validated; /* what of them is whole in which stream */
    HsNeedle *needles;
    int needle_count;
    HsChatLengths chats;
    HsRowCounts rows;
} HsDatasetBuild;

/* Of generated text: what it is long. */
int64_t hs_dataset_synthetic_bytes(const HsDatasetBuild *building, int source);
/* How a source is read; user: the HsDatasetBuild. */
HsSourceOptions hs_dataset_source_options(const void *user, int source);

/* Takes files of validation out of the listed sources of training, before anything is read.  errors: HS_ENOMEM */
HsStatus hs_dataset_leave_out(HsDatasetBuild *building, HsDatasetApart *apart);
/* Before training's text is read: takes texts of validation that are to be looked for in it.  errors: the sources' */
HsStatus hs_dataset_open_needles(HsDatasetBuild *building);
/* HsEncoding.look */
void hs_dataset_look_for_needles(void *user, int source, const char *text, size_t length);
void hs_dataset_close_needles(HsDatasetBuild *building);
/* From the documents, once they are read.  errors: HS_ENOMEM */
HsStatus hs_dataset_count_shared(const HsDatasetBuild *building, HsDatasetApart *apart);
void hs_dataset_apart_deinit(HsDatasetApart *apart);

/* Puts the task before the message where there are several tasks; returns `status`. */
HsStatus hs_dataset_blame_task(const HsDatasetBuild *building, HsStatus status);

/* Before any text is read: the tokenizer, unless it is made from text (kind char), which leaves NULL.
 * errors: HS_ECONFIG when it is to be made from token files, and the tokenizer's */
HsStatus hs_dataset_tokenizer_early(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer);
/* Kind char: the characters of all tasks' text, which is read for it.  errors: the sources', the tokenizer's */
HsStatus hs_dataset_tokenizer_from_text(const HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer);

/* `failed`, encoding's status; kind char: with all characters of the task that the tokenizer has not, and the mend. */
HsStatus hs_dataset_explain_characters(const HsDatasetBuild *building, HsStatus failed);

/* The sources, with building->tokenizer, to dataset->train and dataset->validation; without any text nothing more.
 * errors: the sources', HS_ENOMEM, and the tokenizer's with the file's name */
HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset);
/* That some text is there.  errors: HS_ECONFIG */
HsStatus hs_dataset_require_text(const HsDatasetBuild *building, bool there);

/* dataset_shards.c: whether the task's tokens stay in their files, and its streams over these.
 * errors: those of hs_token_shards_add */
bool hs_dataset_stays_in_files(const HsDatasetBuild *building);
HsStatus hs_dataset_open_files(const HsDatasetBuild *building, HsDataset *dataset);

/* Documents are not cut in windows: data.packing is not stream. */
bool hs_dataset_keeps_documents(const HsConfig *config);
/* data.packing: none, documents: the rows of a stream; nothing otherwise.  errors: HS_ENOMEM (dataset_rows.c) */
HsStatus hs_dataset_make_rows(HsDatasetBuild *building, const HsDocumentRange *range, HsStreamTokens *stream);
/* Puts stream->rows together: makes stream->packs, of at most `most` tokens each, and brings the rows in their order.
 * errors: HS_ENOMEM (dataset_packs.c) */
HsStatus hs_dataset_pack(HsStreamTokens *stream, int64_t most);
/* The documents that are whole in either stream to dataset->items.  errors: HS_ENOMEM, the tokenizer's */
HsStatus hs_dataset_collect_items(const HsDatasetBuild *building, HsDataset *dataset);
void hs_item_set_deinit(HsItemSet *set);

#endif
