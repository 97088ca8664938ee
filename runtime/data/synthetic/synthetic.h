/* SPDX-License-Identifier: MIT
 *
 * Text from generators of known entropy, and the writer that they share.
 *
 * A document is the result of a sequence of explicit random choices; each adds -log p to `nats`.  That sum is the
 * document's information content under the generator's own distribution if, and only if, no two sequences of choices
 * write the same text: each generator's comment argues why a reader that knows the text so far sees from the next
 * characters what was chosen.  Then no model's expected loss is below the sum, and it is a floor.
 */
#ifndef HS_RUNTIME_DATA_SYNTHETIC_SYNTHETIC_H
#define HS_RUNTIME_DATA_SYNTHETIC_SYNTHETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/rng.h"
#include "kernels/base/status.h"

#define HS_SYNTHETIC_PREFIX "synthetic:"

/* Built-in sources with a known entropy: "arithmetic", "english", "brackets", "code", "mixture" (the four in random
 * order), and for one task after another "addition", "facts", "words", "reversal" and "permuted0" to "permuted9".  Text
 * of at least `bytes` bytes, every document followed by a blank line.  entropy_nats: of the whole text, the sum of
 * -log p over the generator's choices; divided by the token count it is the floor.  The caller frees. */
typedef struct HsSyntheticWriter HsSyntheticWriter;
typedef struct HsSynthetic {
    const char *name, *doc;
    void (*write)(HsSyntheticWriter *writer); /* one document */
    uint32_t variant;                         /* which one of several sources that share `write` */
    char separator; /* up to it a line is a prompt, and the rest follows from that; 0: its lines are not made so */
} HsSynthetic;
extern const HsSynthetic hs_synthetic_table[];
extern const int hs_synthetic_count;
HsStatus hs_synthetic_generate(const char *name, uint64_t seed, int64_t bytes, char **text, size_t *length,
                               int64_t *documents, double *entropy_nats);

typedef struct HsSyntheticDocument {
    size_t end;  /* one past its last byte */
    double nats; /* of this document alone */
} HsSyntheticDocument;

typedef struct HsSyntheticText {
    char *bytes;
    size_t length, capacity;
    HsSyntheticDocument *documents;
    int64_t document_count;
    size_t document_capacity;
} HsSyntheticText;

struct HsSyntheticWriter {
    HsSyntheticText *text;
    uint64_t seed, document; /* draws are Philox of (seed, document, draw number) */
    uint32_t draw;
    uint32_t variant; /* of the table's row */
    HsPhilox block;
    double nats;
    bool out_of_memory; /* sticky: generators need not look */
};

/* A choice among `count` with the given weights.  p = weight / sum; the 32 random bits behind it leave each p exact to
 * sum * 2^-32, far below what a loss can show.  Weight 0 is never chosen; a choice without alternative costs 0 nats. */
uint32_t hs_synthetic_choose(HsSyntheticWriter *writer, const uint32_t *weights, uint32_t count);
/* The same with equal weights. */
uint32_t hs_synthetic_uniform(HsSyntheticWriter *writer, uint32_t count);
/* True with probability numerator / denominator. */
bool hs_synthetic_flip(HsSyntheticWriter *writer, uint32_t numerator, uint32_t denominator);
void hs_synthetic_put(HsSyntheticWriter *writer, const char *text);
void hs_synthetic_put_integer(HsSyntheticWriter *writer, int64_t value);

/* The row of a name, NULL when there is none. */
const HsSynthetic *hs_synthetic_find(const char *name);

/* Whole documents until there are at least `bytes` bytes.  errors: HS_ECONFIG unknown name, HS_ENOMEM */
HsStatus hs_synthetic_write(const char *name, uint64_t seed, int64_t bytes, HsSyntheticText *text);
void hs_synthetic_text_deinit(HsSyntheticText *text);

/* The generators: one document each, ending with a blank line. */
void hs_synthetic_arithmetic(HsSyntheticWriter *writer);
void hs_synthetic_english(HsSyntheticWriter *writer);
void hs_synthetic_brackets(HsSyntheticWriter *writer);
void hs_synthetic_code(HsSyntheticWriter *writer);
void hs_synthetic_addition(HsSyntheticWriter *writer);
void hs_synthetic_facts(HsSyntheticWriter *writer);
void hs_synthetic_words(HsSyntheticWriter *writer);
void hs_synthetic_reversal(HsSyntheticWriter *writer);
void hs_synthetic_permuted(HsSyntheticWriter *writer);

#endif
