/* SPDX-License-Identifier: MIT
 *
 * trainer new: from texts, a time and this machine to a configuration with a reason for each value.
 *
 *     texts -> which of their files are text, bytes, characters -> tokenizer
 *     sizes -> a short training of one each -> tokens a second -> the size and the tokens that fill the time
 *     both  -> lines of YAML, which `trainer --config` reads, and which the trainings above were made from
 *
 * The rules are runtime/config/recipe.c's.
 *
 *   proposal.c            the course of it: checks, choice of size and length
 *   proposal_files.c      which files of a folder are text
 *   proposal_text.c       what a text holds
 *   proposal_tokenizer.c  how it becomes tokens
 *   proposal_speed.c      a short training
 *   proposal_write.c      the file
 */
#ifndef HS_RUNTIME_STUDY_PROPOSAL_H
#define HS_RUNTIME_STUDY_PROPOSAL_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/config/config.h"
#include "runtime/config/recipe.h"

enum { HS_PROPOSAL_TEXTS = 64, HS_PROPOSAL_REASON = 512 };

/* Bounds of the time that is asked for. */
#define HS_PROPOSAL_LEAST_HOURS 0.005
#define HS_PROPOSAL_MOST_HOURS  8760.0

typedef struct HsProposalRequest {
    const char *texts[HS_PROPOSAL_TEXTS]; /* files, folders, patterns: one task each, in this order */
    int text_count;
    double hours;
    const char *checkpoint; /* a folder of weights to start from; NULL: none */
    const char *output;     /* NULL: named by the first text */
    int override_count;     /* "section.key=value", which the printed command repeats */
    const char *const *overrides;
} HsProposalRequest;

typedef struct HsProposalText {
    char name[64];        /* of the task */
    HsStringList train;   /* what tasks.N.train says */
    HsStringList exclude; /* and tasks.N.exclude */
    HsStringList sample;  /* files of it that are read for measuring; empty: all */
    char left_out[160];   /* kinds of files that are no text, with their number; empty: none */
    int files;
    double bytes, sample_bytes;     /* of the files; of those in the sample */
    double characters, sample_text; /* of the first bytes of its files, where they are UTF-8: characters and bytes */
    int distinct;                   /* how many different characters these have */
    bool utf8;
    bool cut;      /* the sample is a temporary file */
    double tokens; /* to train on in one pass, by the sample */
    double given;  /* tokens that the proposal trains on */
} HsProposalText;

/* What a short training has shown. */
typedef struct HsProposalSpeed {
    double tokens_per_second;
    double start_s;                   /* before the first step */
    double untrained_loss;            /* NAN: not asked */
    double parameters;                /* all that the model has, */
    double trained;                   /* and those that are trained */
    double tokens[HS_PROPOSAL_TEXTS]; /* of the sample, to train on */
    char device[256];
} HsProposalSpeed;

typedef struct HsProposal {
    const HsProposalRequest *request;
    HsProposalText texts[HS_PROPOSAL_TEXTS];
    char output[4096], out_dir[4096], tokenizer_path[4096]; /* the last "": none is made */
    const char *tokenizer;
    char tokenizer_reason[HS_PROPOSAL_REASON];
    int64_t vocabulary; /* of bpe */
    bool made_tokenizer;
    HsRecipe recipe;
    const char *weights; /* with a checkpoint: "full", "lora", "nf4" */
    char weights_reason[HS_PROPOSAL_REASON];
    HsProposalSpeed speed;
    int64_t evaluation_every, evaluation_batches;
    double seconds;     /* that the run is to take */
    double most_epochs; /* passes over a text that are worth their time */
    bool short_of_text; /* the time would be longer than the text is worth */
} HsProposal;

/* Writes the configuration, and on `out` what it is and the command that runs it.
 * errors: HS_ECONFIG for what is asked for wrongly or is there already; those of the texts, the training and the file */
HsStatus hs_propose(const HsProposalRequest *request, FILE *out);

/* --- proposal_files.c --- */

/* What a name ends with, ".py" or ".jsonl.gz"; "" where there is nothing, or no room. */
void hs_proposal_end_of(const char *name, char *end, size_t room);
/* text->train, exclude and left_out of a folder that is read as the task says.  errors: HS_ECONFIG where none of its files is text, HS_ENOMEM */
HsStatus hs_proposal_choose_files(const char *folder, const HsTaskConfig *task, HsProposalText *text);

/* --- proposal_text.c --- */

/* errors: HS_ECONFIG where nothing is there, or none of it is text */
HsStatus hs_proposal_look(const HsProposalRequest *request, int index, HsProposalText *text);
void hs_proposal_text_deinit(HsProposalText *text);

/* --- proposal_tokenizer.c --- */

/* Chooses it; `model`: parameters of the blocks that there is time for. */
void hs_proposal_choose_tokenizer(HsProposal *proposal, double model);
/* Learns it into tokenizer_path, where it is bpe; bytes take its place where the text cannot be read so. */
HsStatus hs_proposal_make_tokenizer(HsProposal *proposal);

/* --- proposal_speed.c --- */

/* Trains what hs_proposal_write says for about two seconds.  rows: sequences of a step at most.
 * errors: HS_ENOMEM where it has no room, and those of a training */
HsStatus hs_proposal_measure(const HsProposal *proposal, int64_t rows, bool evaluate, HsProposalSpeed *speed);
/* The device memory that training of `weights` would take, and what it may. */
HsStatus hs_proposal_plan(const HsProposal *proposal, double *bytes, double *limit);

/* --- proposal_write.c --- */

/* A string as YAML has it, in double quotes; without control characters. */
void hs_proposal_quote(const char *text, FILE *out);
/* errors: HS_EIO */
HsStatus hs_proposal_write(const HsProposal *proposal, FILE *out);
/* The same in memory, for the caller to free, also where it fails. */
HsStatus hs_proposal_text(const HsProposal *proposal, char **text);

#endif
