/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: a folder that is either whole or not there.
 *
 *   out_dir/checkpoints/step-00000200/   model.safetensors optimizer.safetensors trainer.json
 *                                        tokenizer.json config.yaml
 *                                        checksums.json (file -> size, XXH3-64)
 *   out_dir/checkpoints/latest           a text file with the folder's name, replaced by rename
 *   out_dir/checkpoints/best             the same of the checkpoint with the lowest validation loss, where the run
 *                                        keeps one; best-1, best-2, ... of several tasks
 *   out_dir/checkpoints/held             the same of the one before an infinite schedule let the rate down
 *
 * save: write into ".tmp-step-N", fsync files and folder, rename, fsync parent, replace `best` where the save says so,
 * then `latest`, delete the oldest beyond keep that neither `best` nor `held` names, and stale .tmp-* folders.  A failure leaves the
 * earlier checkpoints as they were. One process saves into a run's folder at a time; any number may read.
 */
#ifndef HS_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define HS_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/nf4_tensors.h"
#include "runtime/io/json.h"

#define HS_CHECKPOINT_BEST "best"
#define HS_CHECKPOINT_HELD "held"

typedef struct HsCheckpointContent {
    int64_t step;
    const HsNamedTensor *model;
    int model_count;
    const HsNamedTensor *optimizer;
    int optimizer_count;
    const HsJson *state; /* trainer.json */
    /* Called with the temporary folder's path to add further files (tokenizer.json, config.yaml), each fsynced by the
     * checkpoint afterwards. */
    HsStatus (*write_extra)(void *user, const char *folder);
    void *user;
    const char *const *names; /* files next to `latest` that name it too: HS_CHECKPOINT_BEST, and what begins so */
    int name_count;
} HsCheckpointContent;

/* keep: how many whole checkpoints stay, this one included; of higher steps none is touched.
 * errors: HS_EIO naming the file (no space left, read-only folder), HS_ENOMEM, and what write_extra returns */
HsStatus hs_checkpoint_save(const char *out_dir, const HsCheckpointContent *content, int64_t keep);

/* Removes what killed saves left behind; every save does so too.  Only for the process that saves. */
HsStatus hs_checkpoint_clean(const char *out_dir);

/* Whether a run has ever saved there: a step folder, or `latest`, whole or not. */
HsStatus hs_checkpoint_exists(const char *out_dir, bool *exists);

/* The folder of the newest whole checkpoint: what `latest` names, else (with a warning) the highest step that verifies;
 * *folder is NULL (and HS_OK) when there is none at all.  Caller frees.  errors: HS_EFORMAT when there are some and
 * none can be used (a warning has named each and why), HS_EIO when the folder cannot be read, HS_ENOMEM */
HsStatus hs_checkpoint_latest(const char *out_dir, char **folder);

/* `latest` names what `held` does from now on, and `held` is gone; *done: there was one, and it is whole.  Only for the
 * process that saves. */
HsStatus hs_checkpoint_go_back(const char *out_dir, bool *done);

/* The path of what names a run's best checkpoint, for hs_checkpoint_open.  Caller frees.  errors: HS_EIO where the run
 * keeps none, HS_ENOMEM */
HsStatus hs_checkpoint_best(const char *out_dir, char **path);

/* A further name (best-1) for the checkpoint that `best` names; nothing where the run keeps none, or the name is taken.
 */
HsStatus hs_checkpoint_name_best(const char *out_dir, const char *name);

typedef struct HsCheckpoint {
    char *folder;
    HsSafetensors model;
    HsSafetensors optimizer; /* count 0 when not opened */
    HsJson *state;
} HsCheckpoint;

/* Opens `folder` (a step-N folder, a file that names one such as checkpoints/best, or a run folder: then its latest)
 * and verifies sizes and checksums. */
HsStatus hs_checkpoint_open(const char *folder, bool with_optimizer, HsCheckpoint *checkpoint);
void hs_checkpoint_close(HsCheckpoint *checkpoint);

/* One hash over every file of a checkpoint, in name order: equal runs have equal hashes. */
HsStatus hs_checkpoint_hash(const char *folder, uint64_t *hash);

/* Copies named tensors of `file` into the destinations: every destination must be there with the same shape;
 * f32, bf16, f16 convert to the destination's dtype.  Errors name tensor and shapes; NaN or Inf is an error. */
HsStatus hs_checkpoint_restore(const char *file_name, const HsSafetensors *file, const HsNamedTensor *destinations,
                               int count);
/* The same of one tensor, whatever its name in the file.  A quantized destination takes floats, which are quantized, and
 * one in floats takes a quantized matrix, with its companions from `files`. */
HsStatus hs_checkpoint_restore_tensor(const HsTensorSource *files, const char *file_name, const HsNamedTensor *source,
                                      const HsNamedTensor *destination);

#endif
