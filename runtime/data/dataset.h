/* SPDX-License-Identifier: MIT
 *
 * Token streams and the batches cut from them.
 *
 *   documents -> [doc end doc end ...] one stream -> windows of T+1 tokens -> (tokens, targets) rows
 *
 * Where a row may hold several documents (data.packing: documents), the first token of each but the row's first is
 * marked: it stands in the row as its complement, which is negative (hs_op_document_starts).
 *
 * Which window is sample `index` is a pure function of (seed, index): a resumed run continues at the same sample.
 *   epoch:  epoch e = index / n, window = permute(seed, e, index mod n); windows start at shift(e) + i*T, with a shift
 *           in [0,T) per epoch, so that boundaries move (less where the stream is too short for it)
 *   epoch, rows (data.packing: none, documents): each row once, in an order drawn for the epoch; with
 *           data.group_by_length rows of a step are alike in length (length_groups.h)
 *   random: start uniform in [0, tokens - T), by Philox of (seed, index)
 */
#ifndef HS_RUNTIME_DATA_DATASET_H
#define HS_RUNTIME_DATA_DATASET_H

#include <stdbool.h>

#include "runtime/config/config.h"
#include "runtime/data/source/token_shards.h"
#include "runtime/data/tokenizer/tokenizer.h"

/* A document with its own row (data.packing: none), or part of one. */
typedef struct HsRow {
    int64_t start, count; /* tokens, at least 2 and at most T + 1 */
} HsRow;

/* Documents [first, first + count) of a list, which share a row; their tokens are at most T + 1. */
typedef struct HsPack {
    int64_t first, count;
} HsPack;

typedef struct HsStreamTokens {
    int64_t count;
    int32_t *tokens;             /* NULL: they stay in their files */
    const HsTokenShards *shards; /* these, of which the stream's first token is number shard_start */
    int64_t shard_start;
    uint8_t *loss_mask; /* 1: counts as a target; NULL: all do */
    HsRow *rows;        /* documents; NULL: windows are cut from the whole */
    int64_t row_count;
    HsPack *packs; /* data.packing: documents: which rows share one; NULL: none do */
    int64_t pack_count;
    int64_t documents;
    double entropy_floor; /* nats a token that no model can beat; NAN when unknown */
} HsStreamTokens;

/* What has one right continuation: a prompt and its completion, tokenized apart. */
typedef struct HsItem {
    int64_t start, prompt, completion; /* tokens: the completion's follow the prompt's; both at least 1 */
} HsItem;

typedef struct HsItemSet {
    HsTokens tokens;
    HsItem *items;
    int64_t count;
} HsItemSet;

/* Two sets: of the training text, and of validation text with prompts that do not occur in the training text. */
#define HS_ITEM_SETS(X) \
    X(SEEN, seen)       \
    X(UNSEEN, unseen)
#define HS_ITEM_SET_ENUM(NAME, name) HS_ITEMS_##NAME,
enum { HS_ITEM_SETS(HS_ITEM_SET_ENUM) HS_ITEM_SET_COUNT };

/* How far validation is apart from training (dataset_apart.c). */
typedef struct HsDatasetApart {
    int left_out, twice; /* files of train: some task's validation, and not read; read more than once */
    char *first_left_out, *first_twice;
    int64_t documents, bytes;               /* of validation's files; nothing where validation is a share */
    int64_t shared_documents, shared_bytes; /* of these, what is also training text */
} HsDatasetApart;

typedef struct HsDataset {
    HsStreamTokens train, validation;
    /* Documents of prompt and completion, and the lines of synthetic sources that have both (HsSynthetic's separator):
     * each prompt once, at most evaluation.items, spread evenly over the text, none longer than T + 1 tokens. */
    HsItemSet items[HS_ITEM_SET_COUNT];
    HsDatasetApart apart;
    HsTokenShards shards[2]; /* train's; validation's, where it has its own files */
    HsTokenizer *tokenizer;
    bool owns_tokenizer; /* false: HsTaskData's */
    int64_t sequence_length;
    bool random_windows;
    int64_t group; /* samples of a step, which are alike in length: train.rows are, shortest first; 0: they are not */
    uint64_t seed;
    /* Sources that are mixed (tasks.N.weights): train and validation have their sums, and no tokens. */
    struct HsDataset *parts; /* NULL: none are */
    int part_count;
    int64_t train_windows; /* of an epoch of the mixture */
    struct HsMixture *mixture;
} HsDataset;

/* Of a mixture: what share of the first `samples` samples each source had, and how often they went through it. */
typedef struct HsSourceUse {
    double share, epochs;
} HsSourceUse;
/* How many of the dataset's samples an optimizer step takes: what a mixture's weights change by, and a group of rows of
 * similar lengths has.  errors: HS_ENOMEM */
HsStatus hs_dataset_set_rows(HsDataset *dataset, double rows);
HsStatus hs_dataset_source_use(const HsDataset *dataset, int64_t samples, HsSourceUse *use);

/* Reads the task's sources, makes or loads the tokenizer, encodes, splits.  An existing tokenizer (from a checkpoint)
 * may be given and is owned from then on, also when this fails; NULL otherwise.  A share cut off for validation begins
 * at the nearest document where the text is synthetic, so that its floor is exact.  Where `task` is an entry of
 * config->tasks, its text and windows are those that hs_task_data_create makes.  errors: HS_ECONFIG, HS_EIO,
 * HS_EFORMAT with file and line or offset, and with the task where there are several. */
HsStatus hs_dataset_create(const HsConfig *config, const HsTaskConfig *task, HsTokenizer *tokenizer,
                           HsDataset *dataset);
void hs_dataset_deinit(HsDataset *dataset);

/* Windows, or documents' rows, in an epoch (for random windows: tokens / T). */
int64_t hs_dataset_windows(const HsDataset *dataset);
/* The share of the places where a training window can begin at which it holds no target that counts; 0 without a mask.
 * errors: those of hs_stream_read_mask */
HsStatus hs_dataset_empty_share(const HsDataset *dataset, double *share);
/* Row `index`: tokens [T], targets [T] (-1 where ignored).  Padding is end-of-text, or token 0 where there is none; in a
 * row of several documents each token of it is marked as a separate document, so that it costs no attention. */
HsStatus hs_dataset_sample(const HsDataset *dataset, int64_t index, int32_t *tokens, int32_t *targets);
/* Validation row `index` of `of` in the fixed order: `of` windows spread evenly over the validation stream.
 * `of` is at least 1 and at most hs_dataset_validation_windows. */
int64_t hs_dataset_validation_windows(const HsDataset *dataset);
HsStatus hs_dataset_validation_sample(const HsDataset *dataset, int64_t index, int64_t of, int32_t *tokens,
                                      int32_t *targets);
/* Tokens [start, start + count) of a stream.  errors: those of hs_token_shards_read */
HsStatus hs_stream_read(const HsStreamTokens *stream, int64_t start, int64_t count, int32_t *tokens);
/* Which of them count as targets (1), of a stream that is masked: some do not. */
bool hs_stream_is_masked(const HsStreamTokens *stream);
bool hs_dataset_is_masked(const HsDataset *dataset); /* its training stream, or a source's, is */
HsStatus hs_stream_read_mask(const HsStreamTokens *stream, int64_t start, int64_t count, uint8_t *mask);
/* How many of tokens [first, last) count, added to *targets. */
HsStatus hs_stream_count_targets(const HsStreamTokens *stream, int64_t first, int64_t last, int64_t *targets);

/* The datasets of all tasks under one tokenizer.  A char tokenizer is made from every task's text; synthetic sources of
 * the same name in different tasks hold different text.  An existing tokenizer is owned from then on, also on failure.
 */
typedef struct HsTaskData {
    HsDataset *tasks; /* [count], in the order of the list; each borrows the tokenizer */
    int count;
    HsTokenizer *tokenizer;
    struct HsTokenCache *cache; /* where text is kept as tokens; NULL: it is not (data.cache) */
} HsTaskData;
HsStatus hs_task_data_create(const HsConfig *config, HsTokenizer *tokenizer, HsTaskData *data);
void hs_task_data_deinit(HsTaskData *data);
/* The same for a run that began before files of validation were left out of training: it keeps them. */
HsStatus hs_task_data_create_whole(const HsConfig *config, HsTokenizer *tokenizer, HsTaskData *data);
/* One warning for each way in which a task's validation is not apart from training, or a file is read twice. */
void hs_task_data_warn_shared(const HsConfig *config, const HsTaskData *data);
/* Bytes of the sources that are read as they lie in files, or will be made: known without reading them.  Token files and
 * what is in the cache are none of them.
 * errors: those of hs_task_data_create that need no reading */
HsStatus hs_task_data_bytes(const HsConfig *config, size_t *bytes);
/* The folder's name where data.cache is auto; it lies next to out_dir. */
#define HS_TOKENS_FOLDER ".halfstep-tokens"
/* The folder where text is kept as tokens, for the caller to free; NULL: nowhere (data.cache: off).  errors: HS_ENOMEM */
HsStatus hs_task_data_cache_folder(const HsConfig *config, char **folder);
/* Bytes of tokens, masks and rows that the process holds; what stays in files is none of them. */
size_t hs_task_data_memory(const HsTaskData *data);
bool hs_task_data_masked(const HsTaskData *data); /* some task's training data has a loss mask */

/* Where rows come from: a pure function of the index. */
typedef struct HsSampler {
    HsStatus (*sample)(const void *user, int64_t index, int32_t *tokens, int32_t *targets);
    const void *user;
    int64_t sequence_length;
} HsSampler;
HsSampler hs_dataset_sampler(const HsDataset *dataset);

/* A prefetching loader of batches: batch k holds the rows first_index + k * rows + [0, rows).  Its content
 * does not depend on the number of workers, nor on how far ahead they are. */
typedef struct HsBatch {
    int64_t rows;     /* sequences: batch_size * gradient_accumulation_steps */
    int32_t *tokens;  /* [rows, T] */
    int32_t *targets; /* [rows, T] */
    int64_t counted;  /* targets that are not -1 */
    int64_t first_index;
} HsBatch;

typedef struct HsLoader HsLoader;
HsStatus hs_loader_create(const HsSampler *sampler, int64_t rows, int64_t first_index, int64_t prefetch,
                          int64_t workers, HsLoader **loader);
/* Blocks until the next batch is there; valid until the next call.  Never allocates.  errors: the sampler's */
HsStatus hs_loader_next(HsLoader *loader, const HsBatch **batch);
void hs_loader_destroy(HsLoader *loader);

#endif
