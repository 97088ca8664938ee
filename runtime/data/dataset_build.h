/* SPDX-License-Identifier: MIT
 *
 * What dataset.c (order of the work), dataset_tokenizer.c, dataset_stream.c (encoding and splitting), dataset_rows.c,
 * dataset_items.c and dataset_apart.c share.  Internal to runtime/data.
 */
#ifndef HS_RUNTIME_DATA_DATASET_BUILD_H
#define HS_RUNTIME_DATA_DATASET_BUILD_H

#include "runtime/data/dataset.h"
#include "runtime/data/source/token_cache.h"

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

/* The documents of a stream while it is made, in memory or in parts of the cache.  `end` counts the stream's tokens. */
typedef struct HsDocuments {
    int64_t count;
    int64_t joined;       /* of files, not of conversations: they run together where no token ends them */
    int64_t pairs, chats; /* with a prompt and a completion; conversations */
    int64_t known;        /* of which a generator knows the information content */
    int64_t unrendered_contents, quoted_arguments; /* as in HsCorpus */
    HsEncodedDocument *items;                      /* [count], or a block of what the parts hold */
    size_t capacity;
    int64_t block_first, block_count;
    struct HsDocumentPart {
        HsTokenPart part;     /* borrowed from the stream's shards */
        int64_t first, token; /* document and token, as the list counts them */
        int source;           /* what its sources count from */
    } * parts;
    int part_count;
    HsStatus failure; /* of reading parts; its message stands */
} HsDocuments;

/* Document `index`; all zero after a failure. */
HsEncodedDocument hs_document(HsDocuments *documents, int64_t index);
int64_t hs_document_start(HsDocuments *documents, int64_t index);
/* What a unit brings, in memory: `before` tokens are in front of it.  errors: HS_ENOMEM */
HsStatus hs_documents_add_unit(HsDocuments *documents, const HsEncodedUnit *unit, int64_t before);
/* All of a part, of which `before` tokens are in front. */
HsStatus hs_documents_add_part(HsDocuments *documents, const HsTokenPart *part, int64_t before, int source);
void hs_documents_deinit(HsDocuments *documents);

/* Documents [first, last) of a list, which a stream has whole; the list may have more of them. */
typedef struct HsDocumentRange {
    HsDocuments *documents;
    int64_t first, last;
    int64_t offset; /* the stream's first token, as the list counts them */
} HsDocumentRange;

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
    HsTokenCache *cache; /* borrowed; NULL: text becomes tokens in memory */
    HsChatLengths chats;
    HsRowCounts rows;
} HsDatasetBuild;

/* Of generated text: what it is long. */
int64_t hs_dataset_synthetic_bytes(const HsDatasetBuild *building, int source);
/* HsEncoding.options: how a source is read.  user, here and in look: something that begins with a pointer to the
 * HsDatasetBuild. */
HsSourceOptions hs_dataset_source_options(const void *user, int source);

/* dataset.c: a task, and an empty dataset of it; all phases of several, which have one tokenizer (NULL: it is made). */
void hs_dataset_begin(const HsConfig *config, const HsTaskConfig *task, HsDatasetBuild *building, HsDataset *dataset);
HsStatus hs_dataset_build(HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer, HsDataset *datasets);
void hs_dataset_end(HsDatasetBuild *building);
/* Of these the first: its sources, listed; their bytes as they lie in files, or will be made; that memory could hold what
 * is made.  errors: the sources', HS_ECONFIG */
HsStatus hs_dataset_list_sources(HsDatasetBuild *building);
size_t hs_dataset_source_bytes(const HsDatasetBuild *building);
HsStatus hs_dataset_check_synthetic(const HsDatasetBuild *building);
/* Of the order of windows. */
uint64_t hs_dataset_window_seed(const HsDatasetBuild *building);

/* Takes files of validation out of the listed sources of training, before anything is read.  errors: HS_ENOMEM */
HsStatus hs_dataset_leave_out(HsDatasetBuild *building, HsDatasetApart *apart);
/* Before training's text is read: takes texts of validation that are to be looked for in it.  errors: the sources' */
HsStatus hs_dataset_open_needles(HsDatasetBuild *building);
/* HsEncoding.look */
void hs_dataset_look_for_needles(void *user, int source, const char *text, size_t length);
void hs_dataset_close_needles(HsDatasetBuild *building);
/* Of those that were found so far, what they are known by -> found[HS_PART_NEEDLES]; returns how many. */
int64_t hs_dataset_found_needles(const HsDatasetBuild *building, uint64_t *found);
/* A part of training's says which it holds. */
void hs_dataset_note_found(HsDatasetBuild *building, const uint64_t *found, int64_t count);
/* From the documents, once they are read.  errors: HS_ENOMEM */
HsStatus hs_dataset_count_shared(HsDatasetBuild *building, HsDatasetApart *apart);
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

/* Whether the task's text is kept in the cache (dataset_cache.c), and sources [first, last) as parts of it: as `shards`,
 * and their documents.  errors: the sources', HS_EIO, HS_ENOMEM */
bool hs_dataset_uses_cache(const HsDatasetBuild *building, const HsTokenCache *cache);
/* Whether all of its parts are there, as far as can be known without reading a source.  With its tokenizer. */
bool hs_dataset_is_cached(HsDatasetBuild *building);
HsStatus hs_dataset_encode_cached(HsDatasetBuild *building, int first, int last, HsDocuments *documents,
                                  HsTokenShards *shards);
/* The sources, with building->tokenizer, to dataset->train and dataset->validation; without any text nothing more.
 * errors: the sources', HS_ENOMEM, and the tokenizer's with the file's name */
HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset);
/* That some text is there.  errors: HS_ECONFIG */
HsStatus hs_dataset_require_text(const HsDatasetBuild *building, bool there);

/* dataset_mixture.c: the parts, which are the dataset's from then on, mixed as the task says.  errors: HS_ENOMEM */
HsStatus hs_dataset_mix(const HsConfig *config, const HsTaskConfig *task, HsDataset *parts, int count,
                        HsDataset *dataset);

/* dataset_shards.c: whether the task's tokens stay in their files, and its streams over these.
 * errors: those of hs_token_shards_add */
bool hs_dataset_stays_in_files(const HsDatasetBuild *building);
HsStatus hs_dataset_open_files(const HsDatasetBuild *building, HsDataset *dataset);

/* Where documents are kept apart, a token file is refused.  errors: HS_ECONFIG */
HsStatus hs_dataset_refuse_tokens(const HsDatasetBuild *building, const HsSource *source);
/* Documents are not cut in windows: data.packing is not stream. */
bool hs_dataset_keeps_documents(const HsConfig *config);
/* data.packing: none, documents: the rows of a stream; nothing otherwise.  errors: HS_ENOMEM (dataset_rows.c) */
HsStatus hs_dataset_make_rows(HsDatasetBuild *building, const HsDocumentRange *range, HsStreamTokens *stream);
/* Its rows, shortest first. */
void hs_stream_order_by_length(HsStreamTokens *stream);
/* Puts stream->rows together: makes stream->packs, of at most `most` tokens each, and brings the rows in their order.
 * errors: HS_ENOMEM (dataset_packs.c) */
HsStatus hs_dataset_pack(HsStreamTokens *stream, int64_t most);
/* The documents that are whole in either stream to dataset->items.  errors: HS_ENOMEM, the tokenizer's */
HsStatus hs_dataset_collect_items(HsDatasetBuild *building, HsDataset *dataset);
void hs_item_set_deinit(HsItemSet *set);

#endif
