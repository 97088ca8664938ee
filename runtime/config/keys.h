/* SPDX-License-Identifier: MIT
 *
 * The one table of configuration keys.  From it come the struct (config.h), the YAML parser and its checks with line
 * numbers, command-line overrides (section.key=value), --print-config, --help and docs: configs/REFERENCE.md.
 *
 * X(section, type, resume, key, default, minimum, maximum, choices, unit, doc); S hands a table the section it is read for
 *   INT    int64_t          bounds inclusive
 *   BYTES  int64_t          a size such as 12GiB (byte_size.h); bounds in bytes, inclusive
 *   REAL   double           bounds inclusive; with `choices` that word may stand instead, stored as NAN
 *   BOOL   bool
 *   STRING char *           "" when unset; `choices` is "a|b|c" for an enumeration, NULL for free text
 *   REALS2 double[2]        a list of two numbers, each within the bounds; default as text "[a, b]"
 *   STRINGS HsStringList    a string or a list of strings; default as one string.  With `choices`, a+b is [a, b]
 * `resume` says whether a run may continue with another value than it was begun with:
 *   FIXED   no: it decides what has been computed
 *   LENGTH  yes: how far the run goes
 *   FUTURE  with resume: changed, as it decides only what is to come
 *   FREE    yes: it does not touch what is computed
 * Keys of the section `training` stand at the file's top level.  A choice is looked up by name in the table of what it
 * names (precision modes, schedules, tokenizers): no enumeration is written twice.
 */
#ifndef HS_RUNTIME_CONFIG_KEYS_H
#define HS_RUNTIME_CONFIG_KEYS_H

#include "kernels/ops/rope_rule.h"
#include "optim/kinds.h"
#include "runtime/config/kinds.h"

#define HS_NO_BOUND 9.0e15
enum { HS_MOST_LAYERS = 1024 };
/* The unit of keys that name files and folders: a leading ~ is the home folder there (hs_path_expand). */
#define HS_UNIT_PATH "path"

#define HS_KEYS_TRAINING(X, S)                                                                                         \
    X(S, STRING, FIXED, device, "auto", 0, 0, "auto|cpu|cuda|cuda:N|emu|ref", "",                                      \
      "where to train; auto takes a GPU if there is one, else the CPU, and says why; cuda:1 is the second GPU; emu "   \
      "runs the CUDA kernels on the CPU, for tests")                                                                   \
    X(S, INT, FREE, threads, 0, 0, 1024, NULL, "threads",                                                              \
      "CPU worker threads; 0: one per core, within the control groups' CPU quota. Results do not depend on it")        \
    X(S, INT, FIXED, seed, 1337, 0, HS_NO_BOUND, NULL, "", "determines every random number of the run")                \
    X(S, STRING, FREE, out_dir, "runs/default", 0, 0, NULL, HS_UNIT_PATH, "where the run's files go")                  \
    X(S, STRING, FIXED, init_from, "", 0, 0, NULL, HS_UNIT_PATH,                                                       \
      "weights to start from: a Hugging Face folder (docs/models.md has the families), or a run's folder or a "        \
      "checkpoint of Halfstep. Section model and the tokenizer follow from it")                                        \
    X(S, STRING, FREE, resume, "auto", 0, 0, "auto|never|require|changed|held", "",                                    \
      "auto: continue from out_dir's latest checkpoint if there is one; never: refuse to start if there is one; "      \
      "require: refuse to start if there is none; changed: as auto, and learning_rate, weight_decay, schedule and "    \
      "precision.mode may differ from the checkpoint's; held: once, from before an infinite schedule let the "         \
      "learning "                                                                                                      \
      "rate down (checkpoints/held), so that appended tasks continue as if they had been listed from the start")       \
    X(S, INT, FIXED, batch_size, 8, 1, 1048576, NULL, "sequences",                                                     \
      "sequences of a batch; an optimizer step trains on gradient_accumulation_steps batches, its effective batch")    \
    X(S, INT, FIXED, gradient_accumulation_steps, 1, 1, 65536, NULL, "batches",                                        \
      "batches with gradients that add up to one optimizer step; under strategy mer with mer.group_steps: 0 (but not " \
      "in "                                                                                                            \
      "mode reptile) each batch is a separate optimizer step instead, and this many of them are a group")              \
    X(S, INT, FIXED, max_length, 256, 1, 1048576, NULL, "tokens", "sequence length T")                                 \
    X(S, BOOL, FIXED, use_amp, true, 0, 1, NULL, "",                                                                   \
      "precision.mode auto picks bf16 where the hardware multiplies it, else fp16 where it multiplies that, else "     \
      "fp32, which is faster there; false: fp32")                                                                      \
    X(S, BOOL, FREE, use_gradient_checkpointing, false, 0, 1, NULL, "", "short for memory.recompute: block")           \
    X(S, REAL, FREE, target_gpu_util, 0.8, 0.01, 1.0, NULL, "fraction",                                                \
      "share of the device's memory that the memory plan may use")                                                     \
    X(S, INT, FREE, checkpoint_freq, 200, 0, HS_NO_BOUND, NULL, "optimizer steps",                                     \
      "steps between saves; 0: only at the end")                                                                       \
    X(S, INT, FREE, keep_checkpoints, 2, 1, 100000, NULL, "checkpoints", "how many of the latest to keep")             \
    X(S, BOOL, FREE, keep_best, false, 0, 1, NULL, "",                                                                 \
      "also keep the checkpoint of the lowest validation loss, saved at the evaluation that found it; "                \
      "checkpoints/best names it, and with several tasks best-1, best-2, ... name one for each")                       \
    X(S, REAL, LENGTH, max_epochs, 1, 0, HS_NO_BOUND, NULL, "epochs",                                                  \
      "passes over the training data; ignored when max_steps is set")                                                  \
    X(S, INT, LENGTH, max_steps, 0, 0, HS_NO_BOUND, NULL, "optimizer steps",                                           \
      "stop after this many applied steps; 0: by max_epochs")                                                          \
    X(S, REAL, FUTURE, learning_rate, 3e-4, 0, 1000, NULL, "", "peak learning rate")                                   \
    X(S, REAL, FUTURE, weight_decay, 0.1, 0, 1000, NULL, "",                                                           \
      "decoupled weight decay, on tensors of two dimensions only")

#define HS_KEYS_MODEL(X, S)                                                                                           \
    X(S, STRING, FIXED, family, "gpt2", 0, 0, HS_WORDS(HS_FAMILIES), "",                                              \
      "gpt2, or llama (with the keys below also Qwen, SmolLM, Gemma, OLMo, Phi, Granite, nanochat)")                  \
    X(S, STRING, FIXED, shape, "none", 0, 0, HS_WORDS(HS_MODEL_SHAPES), "",                                           \
      "the dimensions of a published model, and what sets its family apart, as values of keys that are not given; "   \
      "weights and tokenizer are not")                                                                                \
    X(S, INT, FIXED, layers, 4, 1, HS_MOST_LAYERS, NULL, "blocks", "transformer blocks")                              \
    X(S, INT, FIXED, heads, 4, 1, 1024, NULL, "heads", "query heads")                                                 \
    X(S, INT, FIXED, kv_heads, 0, 0, 1024, NULL, "heads", "key/value heads (llama); 0: as many as heads")             \
    X(S, INT, FIXED, width, 128, 1, 1048576, NULL, "features", "embedding size C")                                    \
    X(S, INT, FIXED, head_dim, 0, 0, 256, NULL, "features", "size of a head (llama); 0: width / heads")               \
    X(S, INT, FIXED, mlp_width, 0, 0, 4194304, NULL, "features",                                                      \
      "hidden size F; 0: 4 C, with swiglu and geglu 8/3 C rounded up to 64")                                          \
    X(S, INT, FIXED, vocabulary, 0, 0, 16777216, NULL, "tokens",                                                      \
      "rows of the embedding; 0: the tokenizer's tokens. More add unused rows, fewer are refused")                    \
    X(S, INT, FIXED, max_positions, 0, 0, 16777216, NULL, "tokens",                                                   \
      "gpt2: learned positions; llama: length that an export declares; 0: max_length")                                \
    X(S, BOOL, FIXED, bias, false, 0, 1, NULL, "", "biases in linear layers and layer norms (gpt2)")                  \
    X(S, BOOL, FIXED, qkv_bias, false, 0, 1, NULL, "", "biases of the q, k and v projections (llama; Qwen2)")         \
    X(S, BOOL, FIXED, qk_norm, false, 0, 1, NULL, "", "RMS norm of queries and keys (llama; Qwen3)")                  \
    X(S, STRING, FIXED, qk_norm_span, "head", 0, 0, "head|projection", "",                                            \
      "what qk_norm takes together: each head, or all queries' features and all keys' (OLMo 2)")                      \
    X(S, BOOL, FIXED, qk_norm_rotated, false, 0, 1, NULL, "", "qk_norm comes after the rotary positions (nanochat)")  \
    X(S, STRING, FIXED, norms, "before", 0, 0, "before|after|around", "",                                             \
      "where a block's norms stand (llama): before each branch, behind it and before the sum (OLMo 2), or both "      \
      "(Gemma)")                                                                                                      \
    X(S, BOOL, FIXED, norm_weights, true, 0, 1, NULL, "", "norms have weights (llama; false: nanochat)")              \
    X(S, BOOL, FIXED, norm_offset, false, 0, 1, NULL, "",                                                             \
      "files of Hugging Face hold norms' weights less one (llama; Gemma)")                                            \
    X(S, BOOL, FIXED, fused_projections, false, 0, 1, NULL, "",                                                       \
      "q, k, v and gate, up are one matrix each, for files and adapters, too (llama; Phi-3)")                         \
    X(S, BOOL, FIXED, embedding_norm, false, 0, 1, NULL, "", "a norm behind the embedding (llama; nanochat)")         \
    X(S, INT, FIXED, smear, 0, 0, 4096, NULL, "features",                                                             \
      "behind the embedding the token before is mixed in, by a gate of that many first features (llama; nanochat: "   \
      "24); 0: not")                                                                                                  \
    X(S, BOOL, FIXED, input_blend, false, 0, 1, NULL, "",                                                             \
      "each block begins with a x + b x0, learned numbers of the layer; x0 is the stream behind the embedding "       \
      "(llama; nanochat)")                                                                                            \
    X(S, BOOL, FIXED, backout, false, 0, 1, NULL, "",                                                                 \
      "the stream behind the middle block is taken out before the final norm, times a learned number (llama; "        \
      "nanochat)")                                                                                                    \
    X(S, STRING, FIXED, activation, "auto", 0, 0, "auto|gelu|relu2|swiglu|geglu", "",                                 \
      "of the MLP: gelu and relu2, max(x, 0)^2, of one projection; swiglu and geglu, silu and gelu of one times the " \
      "other (llama). auto: gelu for gpt2, swiglu for llama")                                                         \
    X(S, REAL, FIXED, embedding_factor, 1, 0, 1e6, NULL, "",                                                          \
      "factor of the tokens' embeddings, in the weights' format; 0: square root of width (Gemma)")                    \
    X(S, REAL, FIXED, branch_factor, 1, 1e-6, 1e6, NULL, "",                                                          \
      "factor of each branch where it is added to the residual stream (llama; Granite)")                              \
    X(S, REAL, FIXED, logit_factor, 1, 1e-6, 1e6, NULL, "", "factor of logits (Granite)")                             \
    X(S, REAL, FIXED, logit_cap, 0, 0, 1e6, NULL, "",                                                                 \
      "soft cap of logits: c tanh(logit / c) (Gemma 2: 30, nanochat: 15); 0: none")                                   \
    X(S, BOOL, FIXED, tie_head, true, 0, 1, NULL, "", "the head shares the embedding's weights")                      \
    X(S, REAL, FIXED, dropout, 0.0, 0, 0.99, NULL, "probability",                                                     \
      "on embeddings, attention probabilities and both branches")                                                     \
    X(S, REAL, FIXED, norm_epsilon, 1e-5, 1e-12, 1, NULL, "", "added to the variance, under the square root")         \
    X(S, STRINGS, FIXED, attention, "", 0, 0, NULL, "",                                                               \
      "attention by layer, a pattern that is repeated and cut off: [5x window 512 theta 10000, full] sees 512 keys "  \
      "in five "                                                                                                      \
      "of six layers, which have another rope_theta (llama). Words: full, window N, nope (no positions), theta X, "   \
      "unscaled (no rope_scaling), sink (a learned logit of each head that only adds to the softmax's denominator), " \
      "values (a table's row for each token is added to its values, by a gate of value_gate); before them a count, "  \
      "or last: the last layer's, whatever the others are")                                                           \
    X(S, INT, FIXED, value_gate, 12, 1, 4096, NULL, "features",                                                       \
      "first features of a row from which the gates of values are computed (nanochat)")                               \
    X(S, REAL, FIXED, score_scale, 0, 0, 1e6, NULL, "", "factor of attention's scores; 0: 1 / sqrt(size of a head)")  \
    X(S, REAL, FIXED, score_cap, 0, 0, 1e6, NULL, "",                                                                 \
      "soft cap of attention's scores: c tanh(score / c) (Gemma 2: 50); 0: none")                                     \
    X(S, REAL, FIXED, rope_theta, 10000, 1, 1e15, NULL, "", "base of the rotary frequencies (llama)")                 \
    X(S, REAL, FIXED, rope_share, 1, 0, 1, NULL, "",                                                                  \
      "share of each head's features that is rotated, the first ones (llama; Phi-4-mini: 0.75)")                      \
    X(S, BOOL, FIXED, rope_reversed, false, 0, 1, NULL, "", "rotates the other way round (llama; nanochat)")          \
    X(S, STRING, FIXED, rope_scaling, "none", 0, 0, HS_WORDS(HS_ROPE_SCALINGS), "",                                   \
      "how the rotary frequencies of a model that was made longer were changed (llama): linear divides all by "       \
      "rope_factor; llama3 and yarn divide the slow ones, by bounds in turns within rope_original_positions; "        \
      "longrope "                                                                                                     \
      "divides each by rope_short_divisors, or rope_long_divisors where sequences are longer than that")              \
    X(S, REAL, FIXED, rope_factor, 1, 1, 1e6, NULL, "",                                                               \
      "how many times longer it was made; read where there is scaling")                                               \
    X(S, INT, FIXED, rope_original_positions, 0, 0, 16777216, NULL, "tokens",                                         \
      "length that it was first trained for; read by llama3, yarn and longrope")                                      \
    X(S, REAL, FIXED, rope_low_freq_factor, 1, 1e-6, 1e6, NULL, "turns", "llama3: frequencies below it are divided")  \
    X(S, REAL, FIXED, rope_high_freq_factor, 4, 1e-6, 1e6, NULL, "turns", "llama3: frequencies above it stay")        \
    X(S, REAL, FIXED, rope_beta_slow, 1, 1e-6, 1e6, NULL, "turns", "yarn: frequencies below it are divided")          \
    X(S, REAL, FIXED, rope_beta_fast, 32, 1e-6, 1e6, NULL, "turns", "yarn: frequencies above it stay")                \
    X(S, REAL, FIXED, rope_attention_factor, 0, 0, 1000, NULL, "",                                                    \
      "yarn, longrope: factor of cosines and sines; 0: 0.1 ln(rope_factor) + 1, sqrt(1 + ln(rope_factor) / "          \
      "ln(rope_original_positions))")                                                                                 \
    X(S, STRINGS, FIXED, rope_short_divisors, "", 0, 0, NULL, "",                                                     \
      "longrope: a number for each rotated pair of features")                                                         \
    X(S, STRINGS, FIXED, rope_long_divisors, "", 0, 0, NULL, "", "longrope: the same beyond rope_original_positions") \
    X(S, STRING, FIXED, init, "normal", 0, 0, "normal|nanochat", "",                                                  \
      "initial weights: normal: of init_std; nanochat: uniform with a deviation of 1 / sqrt(width), 0.4 of it into "  \
      "the MLP, projections back into the stream 0, embeddings N(0, 0.8), the head N(0, 0.001)")                      \
    X(S, REAL, FIXED, init_std, 0.02, 0, 10, NULL, "",                                                                \
      "standard deviation of initial weights; residual projections / sqrt(2 layers)")                                 \
    X(S, REAL, FIXED, z_loss, 0.0, 0, 1, NULL, "", "coefficient of log(Z)^2 added to the loss")

#define HS_KEYS_TOKENIZER(X, S)                                                                                 \
    X(S, STRING, FIXED, kind, "byte", 0, 0, "byte|char|bpe", "",                                                \
      "byte: 256 bytes + end-of-text; char: the training text's characters; bpe: the file in path")             \
    X(S, STRING, FIXED, path, "", 0, 0, NULL, HS_UNIT_PATH,                                                     \
      "bpe: a Hugging Face tokenizer.json, byte-level or with spaces as U+2581; refused with other kinds")      \
    X(S, STRING, FIXED, end_of_text, "", 0, 0, NULL, "",                                                        \
      "the token that ends a document, as its text, such as <|im_end|>; empty: found by its usual names "       \
      "(<|endoftext|>, <|end_of_text|>, </s>, <eos>)")                                                          \
    X(S, STRING, FIXED, chat_template, "auto", 0, 0,                                                            \
      "auto|chatml|qwen2|qwen2.5|llama3|llama3.1|alpaca|gemma|gemma2|smollm3|phi3|phi3.5|phi4-mini|granite|"    \
      "granite3.0|mistral-v3|mistral-nemo|ministral|mistral-v7-tekken",                                         \
      "",                                                                                                       \
      "how conversations become text, in training and for generate --chat; auto: by the chat template "         \
      "next to the tokenizer where that is one of these; llama3.1: with its fixed date, 26 Jul 2024; smollm3: " \
      "with 08 July 2025; granite and mistral-v7-tekken: only behind a system message")

/* One entry of the list `tasks`. */
#define HS_KEYS_TASK(X, S)                                                                                             \
    X(S, STRING, FIXED, name, "task", 0, 0, NULL, "", "appears in logs and metrics")                                   \
    X(S, STRINGS, FIXED, train, "synthetic:mixture", 0, 0, NULL, HS_UNIT_PATH,                                         \
      "files, folders, globs (.txt .md .jsonl .json .csv .parquet .bin ..., also with .gz or .zst) or "                \
      "synthetic:NAME; in globs **/ stands for folders of any depth, {a,b} and {1..9} for each of them; what is "      \
      "validation's is left out of folders and globs")                                                                 \
    X(S, STRINGS, FREE, exclude, "", 0, 0, NULL, HS_UNIT_PATH,                                                         \
      "what folders and globs of train and validation find, and is left out: names (*.log, node_modules) of files or " \
      "folders at any depth, or, with a slash, paths and globs")                                                       \
    X(S, STRING, FIXED, validation, "10%", 0, 0, NULL, HS_UNIT_PATH,                                                   \
      "a share such as 10% cut from the end, or files as in train, or synthetic:NAME")                                 \
    X(S, STRING, FIXED, format, "auto", 0, 0, "auto|text|jsonl|json|csv|tsv|parquet", "",                              \
      "how its files are read; auto: each by its name (.jsonl and .ndjson: an object a line; .json: a list of "        \
      "objects or strings; .csv: a header line, then rows; .tsv, .tab: the same with tabs; .parquet: rows; .bin: "     \
      "tokens; else text)")                                                                                            \
    X(S, STRING, FIXED, text_field, "text", 0, 0, NULL, "",                                                            \
      "JSONL, JSON, CSV, TSV, Parquet: the field (column) of a document")                                              \
    X(S, STRING, FIXED, prompt_field, "prompt", 0, 0, NULL, "",                                                        \
      "JSONL, JSON, CSV, TSV, Parquet: with completion_field: loss on the completion only")                            \
    X(S, STRING, FIXED, completion_field, "completion", 0, 0, NULL, "",                                                \
      "JSONL, JSON, CSV, TSV, Parquet: see prompt_field")                                                              \
    X(S, BYTES, FIXED, synthetic_tokens, 1000000, 1000, HS_NO_BOUND, NULL, "bytes",                                    \
      "how much text a synthetic source makes for training; a separate validation source makes one tenth of that")     \
    X(S, STRINGS, FIXED, weights, "", 0, 0, NULL, "",                                                                  \
      "a number for each entry of train, which are sources of a mixture then: shares of the tokens that are trained "  \
      "on. A list `sources` of {path, weight, name, validation} may be written in place of train and these")           \
    X(S, REAL, FIXED, temperature, 0, 0, 1000, NULL, "",                                                               \
      "in place of weights: sources are drawn in proportion to their tokens to the power of 1 / temperature; 1: as "   \
      "they are, above: small ones more often; 0: by weights, or as 1 where there are none")                           \
    X(S, STRINGS, FIXED, weight_changes, "", 0, 0, NULL, "",                                                           \
      "weights from an optimizer step of the task on: \"STEP: WEIGHT WEIGHT ...\", in ascending order")                \
    X(S, STRING, FIXED, exhausted, "repeat", 0, 0, "repeat|drop|stop", "",                                             \
      "a source of a mixture that has been read once: repeat: is read again, in another order; drop: the others are "  \
      "read until they are through too, then all again; stop: an epoch of the task ends with the first")               \
    X(S, STRINGS, FIXED, source_names, "", 0, 0, NULL, "", "names of the sources; none: their paths")                  \
    X(S, STRINGS, FIXED, source_validation, "", 0, 0, NULL, HS_UNIT_PATH,                                              \
      "validation of each source, as the task's; none: the task's share of each")                                      \
    X(S, INT, LENGTH, steps, 0, 0, HS_NO_BOUND, NULL, "optimizer steps",                                               \
      "length of this task; 0: by tokens or epochs")                                                                   \
    X(S, INT, LENGTH, tokens, 0, 0, HS_NO_BOUND, NULL, "tokens", "its length in new training tokens; 0: by epochs")    \
    X(S, REAL, LENGTH, epochs, 0, 0, HS_NO_BOUND, NULL, "epochs",                                                      \
      "its length in passes over its training data; 0: max_steps, else max_epochs")                                    \
    X(S, REAL, FIXED, learning_rate, 0, 0, 1000, NULL, "", "its peak learning rate; 0: the top level's")               \
    X(S, BOOL, FIXED, known, false, 0, 1, NULL, "",                                                                    \
      "true: the model of init_from has learned it already. Its text is replayed, its Fisher is measured and its "     \
      "loss followed, and no weight changes in it; its length by default: as many steps as fill the replay buffer. "   \
      "Such tasks come first; joint trains on them, too")                                                              \
    X(S, BOOL, FIXED, retain, true, 0, 1, NULL, "",                                                                    \
      "false: it is to be forgotten once it has ended: nothing of it is replayed, no penalty holds it, its adapter "   \
      "is dropped, and learned, retained and forgetting leave it out; the matrix says how much of it is left")

#define HS_KEYS_DATA(X, S)                                                                                             \
    X(S, STRING, FIXED, sampling, "epoch", 0, 0, "epoch|random", "",                                                   \
      "epoch: every window once, shuffled; random: windows at random offsets, as nanoGPT")                             \
    X(S, STRING, FIXED, packing, "stream", 0, 0, "stream|documents|none", "",                                          \
      "stream: documents one behind the other, cut into windows of max_length; documents: whole documents, as many "   \
      "as a row has room for; none attends to another, and positions start anew in each; none: each document in a "    \
      "separate row, and padding behind it; with both a longer document is cut at max_length, and the loss "           \
      "counts no padding")                                                                                             \
    X(S, BOOL, FIXED, group_by_length, false, 0, 1, NULL, "",                                                          \
      "packing: none with sampling: epoch: the sequences of an optimizer step are alike in length, in an order drawn " \
      "for each epoch. On a CPU a pass ends behind the last target of its sequences, so that less padding is "         \
      "computed")                                                                                                      \
    X(S, INT, FREE, prefetch, 4, 1, 1024, NULL, "batches", "effective batches prepared ahead")                         \
    X(S, INT, FREE, workers, 1, 1, 64, NULL, "threads", "prefetching threads")                                         \
    X(S, STRING, FIXED, token_file, "auto", 0, 0, "auto|raw16", "",                                                    \
      ".bin files: auto: llm.c header required; raw16: nanoGPT's headerless u16")                                      \
    X(S, STRING, FREE, cache, "auto", 0, 0, NULL, HS_UNIT_PATH,                                                        \
      "where text is kept as tokens for later runs: a folder; auto: .halfstep-tokens next to out_dir, for a task "     \
      "with "                                                                                                          \
      "32 MiB of text or more; off: nowhere. A second run reads no text, as long as files, tokenizer and reading are " \
      "the same; trainer cache lists and clears it")                                                                   \
    X(S, BYTES, FREE, cache_limit, 68719476736, 0, HS_NO_BOUND, NULL, "bytes",                                         \
      "the most that the cache keeps: what was used least lately is removed; 0: no limit")                             \
    X(S, STRING, FREE, verify, "quick", 0, 0, "quick|full", "",                                                        \
      "how files of data are known again when a run continues: quick: by size, times and samples, and by a checksum "  \
      "where one is known and a time differs; full: each file is read for its checksum at every start")

#define HS_KEYS_PRECISION(X, S)                                                                                        \
    X(S, STRING, FUTURE, mode, "auto", 0, 0, "auto" HS_WORDS_AFTER(HS_PRECISION_MODES), "",                            \
      "auto follows use_amp; tf32 is fp32 with products on a GPU's tensor cores; fp8 is bf16 with the blocks' "        \
      "products in codes below 16 bits (precision.fp8), with numbers that are the same on every device")               \
    X(S, BOOL, FIXED, master_weights, true, 0, 1, NULL, "",                                                            \
      "keep FP32 masters of 16-bit weights; false: bf16 only, stochastic rounding")                                    \
    X(S, STRING, FIXED, gradients, "fp32", 0, 0, "fp32|compute", "",                                                   \
      "weight gradients accumulate in fp32, or in the mode's 16-bit format")                                           \
    X(S, STRING, FIXED, logits, "f32", 0, 0, "f32|compute", "",                                                        \
      "training's logits as the head's product stores them; compute: in the mode's 16-bit format, so that 6 bytes "    \
      "of each move in place of 10 and its gradient takes its memory (2 bytes in place of 6); softmax and loss are "   \
      "computed in f32 from them. Evaluation and generation have f32 logits. Not with der++ and lwf, which compare "   \
      "logits")                                                                                                        \
    X(S, STRING, FIXED, residual, "f32", 0, 0, "f32|compute", "",                                                      \
      "the residual stream and its gradient; compute: in the mode's 16-bit format, half of their memory and traffic; " \
      "sums into the stream and norms are computed in f32 and rounded once")                                           \
    X(S, STRING, FIXED, loss_scale, "auto", 0, 0, "auto|dynamic|static|none", "",                                      \
      "auto: dynamic in fp16, none otherwise")                                                                         \
    X(S, REAL, FIXED, init_scale, 65536, 1e-30, 1e30, NULL, "", "first loss scale, and the static one")                \
    X(S, REAL, FIXED, growth_factor, 2.0, 1.0000001, 1e6, NULL, "",                                                    \
      "scale factor after growth_interval steps without overflow")                                                     \
    X(S, REAL, FIXED, backoff_factor, 0.5, 1e-6, 0.9999999, NULL, "", "scale factor after an overflow")                \
    X(S, INT, FIXED, growth_interval, 2000, 1, HS_NO_BOUND, NULL, "optimizer steps",                                   \
      "steps without overflow before it grows")                                                                        \
    X(S, INT, FIXED, hysteresis, 1, 1, 1000, NULL, "overflows",                                                        \
      "overflows before the scale falls; refilled when it grows")                                                      \
    X(S, REAL, FIXED, min_scale, 1.0, 1e-30, 1e30, NULL, "",                                                           \
      "lower bound of the scale; an overflow there stops the run")                                                     \
    X(S, REAL, FIXED, max_scale, 1e30, 1e-30, 3e38, NULL, "", "upper bound of the scale")

#define HS_KEYS_FP8(X, S)                                                                                             \
    X(S, STRING, FUTURE, recipe, "current", 0, 0, HS_WORDS(HS_FP8_RECIPES), "",                                       \
      "precision.mode fp8: how numbers are scaled before they are cast. current: a tensor by its own largest "        \
      "magnitude; delayed: by those of earlier steps; block: 128 neighbours, of weights 128 x 128; mxfp8: 32 "        \
      "neighbours; nvfp4: 4 bits, 16 neighbours and the tensor, gradients rounded stochastically")                    \
    X(S, STRING, FUTURE, format, "hybrid", 0, 0, "hybrid|e4m3", "",                                                   \
      "current, delayed: hybrid: gradients in E5M2, the rest in E4M3; e4m3: all in E4M3, as block and mxfp8 have it") \
    X(S, BOOL, FUTURE, power_of_two, false, 0, 1, NULL, "", "current: scales are powers of two")                      \
    X(S, INT, FUTURE, history, 1024, 1, 65536, NULL, "optimizer steps",                                               \
      "delayed: how many steps' largest magnitudes are kept")                                                         \
    X(S, STRING, FUTURE, amax, "max", 0, 0, "max|most_recent", "", "delayed: which of them a scale follows from")     \
    X(S, REAL, FUTURE, margin, 0, 0, 16, NULL, "powers of two",                                                       \
      "delayed: room above it: scales are divided by 2^margin")                                                       \
    X(S, STRINGS, FUTURE, keep, "auto", 0, 0, NULL, "",                                                               \
      "linear layers that keep products in 16 bits: first or last (all of that block), or patterns of the weights' "  \
      "names such as *.mlp.*; auto: of nvfp4 the first 2 and last 8 of 62 blocks, or such a share, else none; none. " \
      "Embedding, norms, attention and head always do")

#define HS_KEYS_TRAIN(X, S)                                                                                            \
    X(S, STRING, FIXED, size, "", 0, 0, NULL, "parameters",                                                            \
      "30M, say: parameters of the blocks' matrices, by which shape, length, batch, steps, rate and schedule are "     \
      "filled in where they are not given; --print-config shows each with its reason. Embeddings come on top")         \
    X(S, STRINGS, FIXED, freeze, "", 0, 0, NULL, "",                                                                   \
      "parameters that stay as they are, without gradient, moments or their memory: matrix, vector, embedding, head, " \
      "norm, bias, or patterns of names such as transformer.h.[0-3].*")

#define HS_KEYS_ADAPTER(X, S)                                                                                        \
    X(S, STRING, FIXED, kind, "none", 0, 0, "none|lora", "",                                                         \
      "lora: the model stays as it is, and low-rank changes to its matrices are trained (Hu et al. 2021)")           \
    X(S, INT, FIXED, rank, 16, 1, 4096, NULL, "", "r: columns of A^T and B")                                         \
    X(S, REAL, FIXED, alpha, 32, 1e-6, 1e6, NULL, "", "the change is alpha/rank B A")                                \
    X(S, BOOL, FIXED, rank_stabilized, false, 0, 1, NULL, "", "alpha/sqrt(rank) instead (Kalajdzievski 2023)")       \
    X(S, REAL, FIXED, dropout, 0, 0, 0.99, NULL, "probability", "on the input of A")                                 \
    X(S, STRINGS, FIXED, targets, "all-linear", 0, 0, NULL, "",                                                      \
      "matrices that are adapted: attention, mlp, all-linear (of the blocks), names such as q_proj or c_attn, or "   \
      "patterns of whole names")                                                                                     \
    X(S, STRINGS, FIXED, also_train, "", 0, 0, NULL, "",                                                             \
      "parameters that are also trained, whole, by roles or patterns as in train.freeze")                            \
    X(S, STRING, FIXED, base, "unchanged", 0, 0, "unchanged|nf4", "",                                                \
      "how the blocks' frozen matrices are kept; nf4: in 4.13 bits an element, as bitsandbytes quantizes them with " \
      "blocks of 64 and double quantization, decoded inside each product (QLoRA, Dettmers et al. 2023)")             \
    X(S, STRING, FIXED, init_from, "", 0, 0, NULL, HS_UNIT_PATH,                                                     \
      "a folder of PEFT's format with adapters to train further")

#define HS_KEYS_OPTIMIZER(X, S)                                                                                        \
    X(S, STRING, FIXED, kind, "adamw", 0, 0, HS_WORDS(HS_OPTIMIZERS), "",                                              \
      "update rule; adamw8bit: AdamW with moments of 2.03 bytes a parameter in place of 8 (codes of 8 bits, one "      \
      "absmax for 256 of them), those of embeddings and of parameters under 4096 elements in f32; adamwfp8: the "      \
      "same with fp8 numbers as codes, rounded stochastically, m in E4M3 and v in E5M2, coarser near a block's "       \
      "largest; muon: matrices of the blocks by Muon (section muon), all else by AdamW; its step has the size "        \
      "of AdamW's, 0.2 sqrt(max(rows, columns)) times the orthogonal matrix, so that AdamW's learning rate serves; "   \
      "apollo: matrices of the blocks by gradients whose channels are scaled as Adam would, from moments of a random " \
      "projection of few rows (section apollo), all else by AdamW; "                                                   \
      "schedule-free: AdamW that needs no falling rate (Defazio et al. 2024), for schedule.kind: constant after a "    \
      "warm-up; what is evaluated, sampled, saved as the model and exported is a mean over all steps")                 \
    X(S, STRING, FIXED, moments, "f32", 0, 0, "f32|bf16", "",                                                          \
      "format of AdamW's two moments; bf16: 4 bytes a parameter in place of 8, rounded stochastically; it serves "     \
      "what adamw updates; with adamw8bit, adamwfp8 and muon, what those leave to it; with schedule-free, both of "    \
      "what it keeps; APOLLO's moments; SGD's and Muon's momentum stay f32")                                           \
    X(S, REALS2, FIXED, betas, "[0.9, 0.95]", 0, 0.9999999, NULL, "",                                                  \
      "AdamW's decay rates of the two moments; schedule-free: the first is the mean's part of where gradients are "    \
      "taken, the newest weights have the rest")                                                                       \
    X(S, REAL, FIXED, epsilon, 1e-8, 1e-30, 1, NULL, "", "AdamW: added after the bias correction")                     \
    X(S, REAL, FIXED, momentum, 0.9, 0, 0.9999999, NULL, "", "SGD")                                                    \
    X(S, BOOL, FIXED, nesterov, false, 0, 1, NULL, "", "SGD")                                                          \
    X(S, REAL, FIXED, clip_norm, 1.0, 0, HS_NO_BOUND, NULL, "", "largest global gradient norm; 0: no clipping")

/* Jordan et al. 2024 (kellerjordan.github.io/posts/muon); the step's size: Liu et al. 2025, "Muon is scalable for LLM
 * training", eq. 4. */
#define HS_KEYS_MUON(X, S)                                                                                             \
    X(S, REAL, FIXED, momentum, 0.95, 0, 0.9999999, NULL, "", "of the gradients' running mean")                        \
    X(S, BOOL, FIXED, nesterov, true, 0, 1, NULL, "", "mix the newest gradient in once more")                          \
    X(S, STRING, FIXED, polynomial, "newton-schulz", 0, 0, HS_WORDS(HS_MUON_POLYNOMIALS), "",                          \
      "what makes the momentum orthogonal; newton-schulz: singular values from 0.01 of the norm on end between 0.68 "  \
      "and 1.13; polar-express: those from 0.001 on between 0.84 and 1.15, at the same cost")                          \
    X(S, INT, FIXED, steps, 5, 1, 50, NULL, "iterations", "of the polynomial")                                         \
    X(S, INT, FIXED, momentum_warmup_steps, 0, 0, HS_NO_BOUND, NULL, "optimizer steps",                                \
      "over which momentum rises from momentum_start")                                                                 \
    X(S, REAL, FIXED, momentum_start, 0.85, 0, 0.9999999, NULL, "", "momentum of the first step of its warm-up")       \
    X(S, REAL, FIXED, momentum_end, -1, -1, 0.9999999, NULL, "",                                                       \
      "what momentum falls to as the schedule's rate decays; -1: it stays")                                            \
    X(S, BOOL, FIXED, equilibrate, false, 0, 1, NULL, "",                                                              \
      "rows get one length before they are made orthogonal (MuonEq, arXiv 2603.28254)")                                \
    X(S, REAL, FIXED, beta2, 0, 0, 0.9999999, NULL, "",                                                                \
      "each neuron's part of a step, a row, divided by the root of its running mean square with this decay rate, and " \
      "the whole brought back to its size (NorMuon, arXiv 2510.05491); 0: not")                                        \
    X(S, BOOL, FIXED, cautious_decay, false, 0, 1, NULL, "",                                                           \
      "only elements that the step moves towards 0 decay (arXiv 2510.12402)")                                          \
    X(S, INT, FIXED, head_group, 0, 0, 1024, NULL, "heads",                                                            \
      "queries, and keys, are made orthogonal by groups of this many heads; 0: all heads together")

/* Zhu et al. 2024, "APOLLO: SGD-like memory, AdamW-level performance" (arXiv 2412.05270). */
#define HS_KEYS_APOLLO(X, S)                                                                                         \
    X(S, INT, FIXED, rank, 256, 1, 65536, NULL, "rows",                                                              \
      "of the random projection that Adam's moments are kept of, 8 bytes for each row and element of a matrix's "    \
      "longer side; the paper has a quarter of the width. Matrices with a side of no more are AdamW's. 1, with "     \
      "granularity: tensor, is APOLLO-Mini")                                                                         \
    X(S, REAL, FIXED, scale, 0, 0, 1e6, NULL, "",                                                                    \
      "alpha, a factor of every step; 0: the paper's, 1, and sqrt(128) with granularity: tensor. The authors' "      \
      "program takes the root of its scale: its 128 is 11.3 here")                                                   \
    X(S, INT, FIXED, interval, 200, 1, 1000000000, NULL, "applied steps", "after which the projection is another")   \
    X(S, STRING, FIXED, granularity, "channel", 0, 0, HS_WORDS(HS_APOLLO_GRANULARITIES), "",                         \
      "what one factor scales; channel: a row of a matrix, or a column where it is wider than high; tensor: all of " \
      "it")                                                                                                          \
    X(S, REAL, FIXED, growth_limit, 1.01, 0, 1e6, NULL, "",                                                          \
      "the most that a matrix's scaled gradient may grow from one step to the next, in norm; 0: as it likes")

/* One entry of optimizer.groups. */
#define HS_KEYS_GROUP(X, S)                                                                                        \
    X(S, STRINGS, FIXED, match, "", 0, 0, NULL, "",                                                                \
      "its parameters, by roles or patterns as in train.freeze; of several groups the first that matches")         \
    X(S, REAL, FIXED, learning_rate, 0, 0, 1000, NULL, "",                                                         \
      "its own peak: its rate is this over the top level's learning_rate times the schedule's, warm-up and decay " \
      "alike; 0: the top level's")                                                                                 \
    X(S, REAL, FIXED, weight_decay, -1, -1, 1000, NULL, "", "its own weight decay; -1: the top level's")           \
    X(S, STRING, FIXED, kind, "inherit", 0, 0, "inherit" HS_WORDS_AFTER(HS_OPTIMIZERS), "",                        \
      "its own update rule; inherit: optimizer.kind")

#define HS_KEYS_SCHEDULE(X, S)                                                                                         \
    X(S, STRING, FUTURE, kind, "cosine", 0, 0, HS_WORDS(HS_SCHEDULES), "", "shape after the warm-up")                  \
    X(S, INT, FUTURE, warmup_steps, 0, 0, HS_NO_BOUND, NULL, "optimizer steps", "linear from 0")                       \
    X(S, INT, FUTURE, decay_steps, 0, 0, HS_NO_BOUND, NULL, "optimizer steps",                                         \
      "where the decay ends; 0: at the last step")                                                                     \
    X(S, REAL, FUTURE, min_learning_rate, 0, 0, 1000, NULL, "", "where the decay ends")                                \
    X(S, REAL, FUTURE, wsd_decay_fraction, 0.2, 0, 1, NULL, "fraction", "wsd: the last part, in which the rate falls") \
    X(S, STRING, FUTURE, wsd_shape, "sqrt", 0, 0, HS_WORDS(HS_DECAY_SHAPES), "",                                       \
      "how wsd's rate falls, x going from 0 to 1; sqrt: as 1 - sqrt(x); linear: as 1 - x; cosine: as half a wave")

#define HS_KEYS_AVERAGE(X, S)                                                                                        \
    X(S, REAL, FIXED, decay, 0, 0, 0.9999999, NULL, "",                                                              \
      "of an exponential moving average of every parameter, such as 0.999, at first a plain mean; it is evaluated, " \
      "sampled, saved as the model and exported in place of what is trained, which a checkpoint has with the "       \
      "optimizer's states; 4 bytes a parameter. 0: none")

#define HS_KEYS_MEMORY(X, S)                                                                                           \
    X(S, STRING, FREE, recompute, "none", 0, 0, HS_WORDS(HS_RECOMPUTE_POLICIES), "",                                   \
      "which activations backward computes again instead of keeping them")                                             \
    X(S, INT, FREE, recompute_every, 1, 1, 1024, NULL, "blocks", "apply the policy to every N-th block")               \
    X(S, INT, FIXED, head_chunk, 0, 0, 1048576, NULL, "tokens",                                                        \
      "rows of logits that are in memory at a time; 0: 256 on the CPU, as its caches hold them, and on a GPU as many " \
      "as a thirty-second of its memory holds, from 256 to 8192 (each chunk reads and writes the head's gradient)")    \
    X(S, INT, FREE, micro_batch, 0, 0, 1048576, NULL, "sequences",                                                     \
      "how many of the batch_size sequences go through the model at a time, a divisor of it; 0: all. Fewer need "      \
      "less memory for activations and change roundings only: optimizer steps and the order of the data stay")         \
    X(S, STRING, FREE, offload, "none", 0, 0, HS_WORDS(HS_OFFLOAD_LEVELS), "",                                         \
      "what lies in the host's pinned memory, with the bits that it has on the device; for devices with separate "     \
      "memory. optimizer: masters, moments and what strategies keep, which the host updates; gradients: also "         \
      "their sums, block by block; weights: also what forward and backward read, which comes block by block")          \
    X(S, BYTES, FREE, limit, 0, 0, HS_NO_BOUND, NULL, "bytes",                                                         \
      "device memory that this run may count on, such as 10GiB; 0: all. target_gpu_util is a share of this, and no "   \
      "allocation goes beyond it")                                                                                     \
    X(S, STRING, FREE, allocator, "", 0, 0, NULL, HS_UNIT_PATH,                                                        \
      "a shared object with an allocator for the device's and pinned memory (kernels/base/memory_hooks.h); empty: "    \
      "the device's own. A checkpoint's is not taken for eval and generate: name it again")                            \
    X(S, BOOL, FREE, auto_fit, false, 0, 1, NULL, "",                                                                  \
      "if the plan exceeds target_gpu_util, take the fastest micro_batch, recompute and gradients that fit")           \
    X(S, REAL, FREE, pressure, 0.97, 0, 1, NULL, "fraction",                                                           \
      "when all processes together use this share of the device's memory, micro_batch is halved at the next step; "    \
      "0: never")

#define HS_KEYS_MEMORY_PLACE(X, S)                                                                                   \
    X(S, BYTES, FREE, gpu, 0, 0, HS_NO_BOUND, NULL, "bytes",                                                         \
      "device memory that a process may count on, like memory.limit; and if the plan exceeds it, memory.offload "    \
      "moves "                                                                                                       \
      "on to the first level that fits; 0: nothing of both. A CPU has no such place")                                \
    X(S, BYTES, FREE, cpu, 0, 0, HS_NO_BOUND, NULL, "bytes",                                                         \
      "the host's memory that a process may take for what is offloaded, on a CPU for all; 0: what can be had. What " \
      "exceeds it goes to disk")                                                                                     \
    X(S, STRING, FREE, disk, "", 0, 0, NULL, HS_UNIT_PATH,                                                           \
      "a folder on a fast drive. Files without a name hold the moments there, and then the masters, for which "      \
      "place.cpu has no room. Same bits; each step reads and writes them")

#define HS_KEYS_DISTRIBUTED(X, S)                                                                                    \
    X(S, INT, FREE, processes, 0, 0, 1024, NULL, "processes",                                                        \
      "start this many processes on this host, which train one model together; --processes N wins; 0: this process " \
      "alone, or those that a launcher (mpirun, torchrun, srun) started")                                            \
    X(S, STRING, FREE, launch, "auto", 0, 0, "auto|none|mpi|torchrun|slurm", "",                                     \
      "environment that says which of several processes this is: auto: mpirun's, or torchrun's; slurm: srun's "      \
      "(batch shells have the same variables, so it has to be asked for); none: this process trains alone")          \
    X(S, STRING, FREE, address, "", 0, 0, NULL, "host:port",                                                         \
      "torchrun, slurm: where process 0 waits for the others, on this port or one of the 15 after it; default: "     \
      "MASTER_ADDR, and MASTER_PORT plus 1 where torchrun's own store is there; under Slurm without those the "      \
      "job's first host, port 20000 plus the job's number modulo 20000")                                             \
    X(S, STRING, FREE, transport, "auto", 0, 0, "auto|shared|mpi|tcp", "",                                           \
      "auto: shared memory where all processes run on one host, else MPI where mpirun started them, else tcp: "      \
      "through process 0, slow for gradients")                                                                       \
    X(S, REAL, FREE, join, 120, 1, 1e6, NULL, "seconds", "how long processes wait for each other at the start")      \
    X(S, REAL, FREE, timeout, 1800, 0, 1e6, NULL, "seconds",                                                         \
      "a process with a heartbeat, for which the others have waited this long, ends the run; 0: they wait "          \
      "for ever. One that died, was stopped or has no heartbeat ends it within seconds")                             \
    X(S, INT, FUTURE, virtual_ranks, 0, 0, 65536, NULL, "parts",                                                     \
      "parts of an effective batch; gradients are summed within each, then along one tree: with the same "           \
      "number, any number of processes that divides it into powers of two gives the same bits, one process included" \
      "; 0: one a process. A resumed run keeps its own")                                                             \
    X(S, INT, FREE, zero, 0, 0, 3, NULL, "",                                                                         \
      "what processes share instead of each having all of it (ZeRO): 0: nothing; 1: masters, moments and the "       \
      "strategies' tensors; 2: gradients, too; 3: weights, too. Same bits")                                          \
    X(S, BOOL, FUTURE, exact, true, 0, 1, NULL, "",                                                                  \
      "sum along that tree; false: each process adds up its part in one, and processes in the order of the "         \
      "communication library, which may depend on their number and place")

#define HS_KEYS_KERNELS(X, S)                                                                                          \
    X(S, STRING, FIXED, matmul, "native", 0, 0, "native|cublaslt", "",                                                 \
      "matrix products: this project's, or (cuda) those of cuBLASLt, for comparison")                                  \
    X(S, STRING, FREE, tuning, "", 0, 0, NULL, HS_UNIT_PATH,                                                           \
      "table of the fastest kernel of each product, measured on this GPU by trainer selftest --tune (cuda, emu); "     \
      "empty: a model of the GPU chooses. Another table rounds differently")                                           \
    X(S, STRING, FIXED, hopper, "all", 0, 0, "all|products|attention|none", "",                                        \
      "which operations use the kernels for compute capability 9.0 (wgmma, tensor copies) on such a GPU; the "         \
      "others use the kernels for all GPUs (cuda, emu). They round differently")                                       \
    X(S, BOOL, FREE, overlap, true, 0, 1, NULL, "",                                                                    \
      "on GPUs of compute capability 9.0 and later a kernel begins before the one before it has ended, and waits for " \
      "that before it touches memory (cuda, emu); same bits: false tells a fault of that apart from others")           \
    X(S, BOOL, FUTURE, deterministic, true, 0, 1, NULL, "",                                                            \
      "every sum in one order, so that a run has the same bits again; false: on GPUs of compute capability 9.0 "       \
      "attention's backward adds its parts of dQ as they come (cuda, emu), and waits for none")                        \
    X(S, BOOL, FREE, sync_launch, false, 0, 1, NULL, "", "wait after every kernel, so that an error names the kernel") \
    X(S, STRING, FREE, cuda_graph, "auto", 0, 0, "auto|true|false", "",                                                \
      "record optimizer steps, then replay them (cuda, emu), which costs the host one launch; same bits. auto: "       \
      "where it can be: one process, and no host that works in the middle of a step")

#define HS_KEYS_LOGGING(X, S)                                                                                      \
    X(S, INT, FREE, every, 10, 1, HS_NO_BOUND, NULL, "optimizer steps", "print and record a step line this often") \
    X(S, BOOL, FREE, tensorboard, true, 0, 1, NULL, "", "write TensorBoard event files")                           \
    X(S, STRING, FREE, progress, "auto", 0, 0, "auto|bar|lines|none", "",                                          \
      "auto: a bar on a terminal, lines elsewhere")                                                                \
    X(S, STRING, FREE, memory, "line", 0, 0, "line|table", "",                                                     \
      "what a run's end says of memory; table: planned, current and peak of each use")                             \
    X(S, STRING, FREE, trace, "", 0, 0, NULL, "optimizer steps",                                                   \
      "10-12: write operations and memory of these steps (counted as they start, from 1 on, skipped ones too) to " \
      "trace.json, which chrome://tracing and Perfetto show")                                                      \
    X(S, REAL, FREE, device_seconds, 1, 0, 86400, NULL, "seconds",                                                 \
      "sample the device's and the process's memory, utilisation, power and temperature this often, for "          \
      "device.jsonl and memory.pressure; 0: never")

#define HS_KEYS_EVALUATION(X, S)                                                                                    \
    X(S, INT, FREE, every, 200, 0, HS_NO_BOUND, NULL, "optimizer steps", "evaluate this often; 0: only at the end") \
    X(S, INT, FREE, batches, 20, 0, HS_NO_BOUND, NULL, "batches", "validation batches per evaluation; 0: all")      \
    X(S, INT, FREE, items, 200, 0, 1000000, NULL, "items",                                                          \
      "of each task with prompts and completions: exact-match accuracy of greedy completions, on this many "        \
      "prompts of the training text and as many that are not in it; 0: none")                                       \
    X(S, STRING, FREE, matrix, "all", 0, 0, "all|own", "",                                                          \
      "what is evaluated when a task has ended; all: every task; own: that task alone, and every task at the "      \
      "end of the last one, which is what a hundred tasks have time for")                                           \
    X(S, INT, FREE, all_tasks_every, 0, 0, HS_NO_BOUND, NULL, "optimizer steps",                                    \
      "evaluate every task this often, for curves of what is forgotten; 0: at the boundaries only")                 \
    X(S, BOOL, FREE, watch, true, 0, 1, NULL, "",                                                                   \
      "runs of several tasks: name in the log an earlier task that has lost a tenth of what it had learned "        \
      "while another is trained, and again when twice as much is lost; seen when all_tasks_every measures, "        \
      "else on a few batches, as often as costs 1% of a task's passes (in short tasks not at all)")                 \
    X(S, INT, FREE, show, -1, -1, 1000, NULL, "prompts",                                                            \
      "of each task, continued greedily at the end, in the log and report.html; -1: 3 in runs of several "          \
      "tasks, else none")                                                                                           \
    X(S, INT, FREE, sample_tokens, 0, 0, 1048576, NULL, "tokens", "generate a sample of this length at the end")    \
    X(S, STRING, FREE, sample_prompt, "", 0, 0, NULL, "", "text that the sample continues")

#define HS_KEYS_EARLY_STOP(X, S)                                                                          \
    X(S, INT, FREE, patience, 0, 0, HS_NO_BOUND, NULL, "evaluations",                                     \
      "end a task after this many evaluations in a row without a gain, and start the next one; 0: never") \
    X(S, REAL, FREE, min_delta, 0, 0, HS_NO_BOUND, NULL, "nats a token",                                  \
      "a gain is a validation loss below that of the latest gain by more than this")

#define HS_KEYS_CONTINUAL(X, S)                                                                                       \
    X(S, STRINGS, FIXED, strategy, "auto", 0, 0, "auto" HS_WORDS_AFTER(HS_STRATEGIES), "",                            \
      "against forgetting; a list, or names joined by + (ewc+er), combines one of l2, ewc, si, inc-lora, "            \
      "o-lora, one of er, mer, a-gem, der++, generative, lwf, and merge; auto: those with sections that the "         \
      "configuration has, "                                                                                           \
      "else none")                                                                                                    \
    X(S, STRING, FIXED, boundaries, "tasks", 0, 0, "tasks|none", "",                                                  \
      "none: all tasks are one stream in their order, and strategies do not know where one ends: one schedule, a "    \
      "reservoir without marks, a penalty that consolidates every consolidate_every steps. Evaluation still knows")   \
    X(S, INT, FIXED, consolidate_every, 500, 1, HS_NO_BOUND, NULL, "optimizer steps",                                 \
      "boundaries: none: l2, ewc and si move their anchor this often, and measure importance; ewc on the latest "     \
      "ewc.fisher_samples new sequences")                                                                             \
    X(S, STRING, FIXED, schedule, "auto", 0, 0, "auto|fresh|rewarm|single|infinite", "",                              \
      "learning rate over tasks: fresh: the schedule starts again; rewarm: later tasks warm up over rewarm_fraction " \
      "and "                                                                                                          \
      "decay again; single: one schedule over all tasks; infinite: held through the ends of tasks, so that no task "  \
      "is "                                                                                                           \
      "forgotten while a rate rises again, and let down in the last half of the last one (1 - sqrt, to "              \
      "schedule.min_learning_rate; schedule.kind has no part in it). auto: infinite under er, mer and der++ where "   \
      "schedule.kind decays and schedule.decay_steps is 0, else fresh")                                               \
    X(S, REAL, FIXED, rewarm_fraction, 0.01, 0, 1, NULL, "fraction",                                                  \
      "rewarm: the part of a later task that warms up; infinite: of a task that follows on a rate that was let down") \
    X(S, STRING, FIXED, optimizer_state, "auto", 0, 0, "auto|reset|keep", "",                                         \
      "moments at the start of a later task; auto: kept under an infinite schedule, else reset")                      \
    X(S, STRING, FREE, joint_run, "", 0, 0, NULL, HS_UNIT_PATH,                                                       \
      "out_dir of a finished run with strategy joint, to compute the excess loss over joint training")

#define HS_KEYS_REPLAY(X, S)                                                                                           \
    X(S, INT, FIXED, buffer_size, 0, 0, HS_NO_BOUND, NULL, "sequences",                                                \
      "reservoir of er, der++, mer and a-gem (Vitter 1985, algorithm R), and generative's rehearsal, on the host; 0: " \
      "mer.buffer_size")                                                                                               \
    X(S, REAL, FIXED, fraction, 0.25, 0, 0.99, NULL, "fraction",                                                       \
      "er, der++, generative, mer: share of replayed sequences, the mean over a task; exact over all steps, and in "   \
      "each step "                                                                                                     \
      "within one sequence. They are of earlier tasks; in the first task mer replays its own, the others nothing")     \
    X(S, STRING, FIXED, draw, "auto", 0, 0, "auto|any", "",                                                            \
      "auto: sequences of earlier tasks; any: of the task in training, too")                                           \
    X(S, REAL, FIXED, late_part, 0.2, 0, 0.9, NULL, "fraction",                                                        \
      "the last part of each later task, in which another share is replayed, late_fraction; before it less, so that "  \
      "fraction "                                                                                                      \
      "is the mean. 0: fraction throughout")                                                                           \
    X(S, REAL, FIXED, late_fraction, "auto", 0, 0.99, "auto", "fraction",                                              \
      "the share in the last part, as far as fraction allows; auto: every task so far has the same, 1/2 in the "       \
      "second, 2/3 in the third")

#define HS_KEYS_L2(X, S)                                   \
    X(S, REAL, FIXED, lambda, "auto", 0, 1e12, "auto", "", \
      "penalty (lambda/2) |theta - theta*|^2 towards the latest task's end; auto: from the Fisher information's mean")

#define HS_KEYS_EWC(X, S)                                                                                              \
    X(S, REAL, FIXED, lambda, "auto", 0, 1e12, "auto", "",                                                             \
      "penalty strength (Kirkpatrick et al. 2017, eq. 3, with its 1/2; libraries without the 1/2 mean twice as "       \
      "much); "                                                                                                        \
      "auto: chosen, and logged with its reason, in units of the Fisher information itself")                           \
    X(S, STRING, FIXED, normalize, "auto", 0, 0, "auto|true|false|max|mean|l2|none", "",                               \
      "divide each task's Fisher by its maximum (true, max), its mean, or each tensor's by its norm (l2); auto: none " \
      "with lambda: auto, else max")                                                                                   \
    X(S, STRING, FIXED, mode, "online", 0, 0, "online|separate", "",                                                   \
      "online: one decaying Fisher, anchored at the latest task's end (Schwarz et al. 2018); separate: every task "    \
      "keeps its own anchor, merged exactly into one quadratic")                                                       \
    X(S, REAL, FIXED, gamma, 1.0, 0, 1, NULL, "", "online: decay of the earlier tasks' Fisher")                        \
    X(S, STRING, FIXED, curvature, "auto", 0, 0, "auto|diagonal|kronecker", "",                                        \
      "diagonal: each parameter by itself; kronecker: each matrix by two factors (Martens & Grosse 2015; Ritter et "   \
      "al. 2018), which know how its parameters act together: forgets less, for two products a matrix and step; "      \
      "auto: kronecker with lambda: auto and no replay, where the other keys allow it, else diagonal")                 \
    X(S, INT, FIXED, block_size, 256, 2, 65536, NULL, "",                                                              \
      "kronecker: factors are kept in diagonal blocks of at most this many rows")                                      \
    X(S, STRING, FIXED, estimator, "sampled", 0, 0, "sampled|exact|empirical|batched", "",                             \
      "sampled: labels drawn from the model; exact: sum over labels, tiny models only; empirical: true labels, a "     \
      "sequence at a time; batched: square of the batch mean, biased low")                                             \
    X(S, INT, FIXED, fisher_samples, 256, 1, HS_NO_BOUND, NULL, "sequences",                                           \
      "training sequences that a Fisher is computed from")                                                             \
    X(S, STRING, FIXED, step, "auto", 0, 0, "auto|gradient|proximal", "",                                              \
      "gradient: added to the clipped gradient; proximal: a separate step after the update, stable for any lambda; "   \
      "auto: proximal under sgd, as nothing bounds its steps, else gradient")                                          \
    X(S, STRINGS, FIXED, exclude, "", 0, 0, NULL, "",                                                                  \
      "parameters excluded from the penalty: matrix, vector, embedding, head, norm, bias, or patterns of names such "  \
      "as "                                                                                                            \
      "*.mlp.*")

#define HS_KEYS_SI(X, S)                                                                                              \
    X(S, REAL, FIXED, strength, "auto", 0, 1e12, "auto", "", "c of synaptic intelligence (Zenke et al. 2017, eq. 4)") \
    X(S, REAL, FIXED, damping, 0.001, 1e-30, 1e12, NULL, "", "xi of its eq. 5")

#define HS_KEYS_MER(X, S)                                                                                              \
    X(S, INT, FIXED, buffer_size, 5120, 1, HS_NO_BOUND, NULL, "sequences", "replay buffer")                            \
    X(S, REAL, FIXED, beta, "auto", 0, 1, "auto", "",                                                                  \
      "within-batch interpolation (Riemer et al. 2019, algorithm 1); auto: 1, what a group moved stays")               \
    X(S, REAL, FIXED, gamma, "auto", 0, 1, "auto", "", "across-batch interpolation; auto: 0.7 / beta, at most 1")      \
    X(S, STRING, FIXED, mode, "algorithm1", 0, 0, "algorithm1|algorithm6|algorithm7|reptile", "",                      \
      "algorithm of Riemer et al. 2019: 1: beta and gamma; 6: one big batch, current sequences last, gamma only; 7: "  \
      "as "                                                                                                            \
      "6, current sequences' rate times groups; reptile: replay in every step, interpolation every interval steps")    \
    X(S, INT, FIXED, groups, 1, 1, 1000, NULL, "groups",                                                               \
      "s: algorithm1: groups with the same current sequences; algorithm7: the current sequences' rate times this")     \
    X(S, INT, FIXED, group_steps, 0, 0, 65536, NULL, "optimizer steps",                                                \
      "steps of a group, each on the effective batch; 0: gradient_accumulation_steps steps of one batch each, where "  \
      "that is 1 four steps (algorithm1)")                                                                             \
    X(S, REAL, FIXED, epsilon, 0.3, 0, 1, NULL, "", "reptile: interpolation rate")                                     \
    X(S, INT, FIXED, interval, 100, 1, HS_NO_BOUND, NULL, "optimizer steps", "reptile: steps between interpolations")  \
    X(S, STRING, FIXED, compensate_learning_rate, "auto", 0, 0, "auto|true|false", "",                                 \
      "what makes up for interpolation rates that leave little of a window's displacement, s beta gamma, gamma or "    \
      "epsilon. "                                                                                                      \
      "auto: below 0.7 the learning rate is divided by it; below 0.3 it is 0.3 instead, and the rate is the best of "  \
      "a short "                                                                                                       \
      "trial before the first step. true: the rate is divided by it, and at most ten times as large. false: nothing, " \
      "both mean what they say")

#define HS_KEYS_AGEM(X, S)                                            \
    X(S, INT, FIXED, reference_batches, 1, 1, 65536, NULL, "batches", \
      "replayed batches for the reference gradient (Chaudhry et al. 2019)")

#define HS_KEYS_DER(X, S)                                                                                             \
    X(S, REAL, FIXED, alpha, 0.2, 0, 1e6, NULL, "",                                                                   \
      "weight of the squared distance to the logits that were kept, the mean over them (Buzzega et al. 2020, eq. 6)") \
    X(S, REAL, FIXED, beta, 1.0, 0, 1e6, NULL, "", "weight of the loss on replayed targets")                          \
    X(S, INT, FIXED, top_k, 16, 1, 256, NULL, "logits",                                                               \
      "the largest logits that are kept for each token of the replay buffer, 4 bytes each (6 where the "              \
      "vocabulary is above 65534)")

#define HS_KEYS_LWF(X, S)                                                                                              \
    X(S, REAL, FIXED, alpha, 3.0, 0, 1e6, NULL, "",                                                                    \
      "weight of the cross-entropy with what the model before the task says of the new text (Li & Hoiem 2016, eq. 2; " \
      "their lambda_o, 1)")                                                                                            \
    X(S, REAL, FIXED, temperature, 2.0, 0.01, 1000, NULL, "", "T of its eq. 3: both sides' logits are divided by it")

#define HS_KEYS_OLORA(X, S)                                                                                           \
    X(S, REAL, FIXED, lambda, 0.5, 0, 1e9, NULL, "",                                                                  \
      "weight of the squared overlaps of an adapter's directions with those of earlier tasks (Wang et al. 2023, eq. " \
      "8)")

#define HS_KEYS_MERGE(X, S)                                                                                        \
    X(S, REAL, FIXED, share, 0.5, 0, 1, NULL, "",                                                                  \
      "how much of a task's change stays when it ends: 0 nothing, 1 all of it (alpha of WiSE-FT, Wortsman et al. " \
      "2022). A run that begins untrained keeps all of its first task's")

#define HS_KEYS_GENERATIVE(X, S)                                                                                    \
    X(S, REAL, FIXED, fraction, 0.2, 1e-6, 1000, NULL, "fraction",                                                  \
      "sequences that the model writes before a later task, as a share of that task's (gamma of LAMOL, Sun et al. " \
      "2020); at most replay.buffer_size. How much of a batch they are is replay.fraction")                         \
    X(S, REAL, FIXED, temperature, 1.0, 0.01, 100, NULL, "", "logits are divided by it before a token is drawn")    \
    X(S, INT, FIXED, top_k, 0, 0, HS_NO_BOUND, NULL, "tokens",                                                      \
      "how many of the likeliest tokens are drawn from; 0: all")                                                    \
    X(S, REAL, FIXED, alpha, 1.0, 0, 1e6, NULL, "",                                                                 \
      "weight of the cross-entropy with what the model that wrote a rehearsal says of it, all of the distribution " \
      "and not "                                                                                                    \
      "the token that was drawn; 0: nothing teaches, and no copy of the model is kept")                             \
    X(S, REAL, FIXED, beta, 0.0, 0, 1e6, NULL, "",                                                                  \
      "weight of the loss on the tokens that were drawn; with alpha: 0 it is 1")

/* section, its key table, doc */
#define HS_CONFIG_SECTIONS(S)                                           \
    S(training, HS_KEYS_TRAINING, "top-level keys")                     \
    S(model, HS_KEYS_MODEL, "the network")                              \
    S(tokenizer, HS_KEYS_TOKENIZER, "text to tokens")                   \
    S(data, HS_KEYS_DATA, "how batches are made")                       \
    S(precision, HS_KEYS_PRECISION, "number formats and loss scaling")  \
    S(train, HS_KEYS_TRAIN, "which parameters are trained")             \
    S(adapter, HS_KEYS_ADAPTER, "low-rank changes to a frozen model")   \
    S(optimizer, HS_KEYS_OPTIMIZER, "update rule")                      \
    S(muon, HS_KEYS_MUON, "optimizer.kind: muon")                       \
    S(apollo, HS_KEYS_APOLLO, "optimizer.kind: apollo")                 \
    S(schedule, HS_KEYS_SCHEDULE, "learning rate over applied steps")   \
    S(average, HS_KEYS_AVERAGE, "moving averages of the parameters")    \
    S(memory, HS_KEYS_MEMORY, "activations kept, and limits")           \
    S(distributed, HS_KEYS_DISTRIBUTED, "several processes")            \
    S(kernels, HS_KEYS_KERNELS, "how operations run on a device")       \
    S(logging, HS_KEYS_LOGGING, "what is reported")                     \
    S(evaluation, HS_KEYS_EVALUATION, "validation during training")     \
    S(early_stop, HS_KEYS_EARLY_STOP, "ending tasks that gain nothing") \
    S(continual, HS_KEYS_CONTINUAL, "one task after another")           \
    S(replay, HS_KEYS_REPLAY, "the replay buffer")                      \
    S(l2, HS_KEYS_L2, "L2 towards the latest task's end")               \
    S(ewc, HS_KEYS_EWC, "elastic weight consolidation")                 \
    S(si, HS_KEYS_SI, "synaptic intelligence")                          \
    S(mer, HS_KEYS_MER, "meta-experience replay")                       \
    S(agem, HS_KEYS_AGEM, "averaged gradient episodic memory")          \
    S(der, HS_KEYS_DER, "dark experience replay, strategy der++")       \
    S(lwf, HS_KEYS_LWF, "learning without forgetting")                  \
    S(olora, HS_KEYS_OLORA, "orthogonal adapters, strategy o-lora")     \
    S(generative, HS_KEYS_GENERATIVE, "generative replay")              \
    S(merge, HS_KEYS_MERGE, "the model before a task and the one after it")

/* Sections within sections: their member of HsConfig, their name, key table, doc */
#define HS_CONFIG_INNER_SECTIONS(S)                                                            \
    S(precision_fp8, "precision.fp8", HS_KEYS_FP8, "scales and formats of precision.mode fp8") \
    S(memory_place, "memory.place", HS_KEYS_MEMORY_PLACE, "how much of a run lies where")

#endif
