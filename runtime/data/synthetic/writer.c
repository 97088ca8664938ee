/* SPDX-License-Identifier: MIT
 *
 * What sources write with: draws with their entropy counted, and text that grows.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/synthetic/synthetic.h"

/* Four draws come from one Philox block. */
static uint32_t next_word(HsSyntheticWriter *writer)
{
    if (writer->draw % 4 == 0) {
        const uint32_t site = 0x53594e54; /* apart from the dataset's draws under the same seed */
        uint32_t counter[4] = { writer->draw / 4, (uint32_t)writer->document, (uint32_t)(writer->document >> 32),
                                site };
        writer->block = hs_philox(writer->seed, counter);
    }
    return writer->block.word[writer->draw++ % 4];
}

uint32_t hs_synthetic_choose(HsSyntheticWriter *writer, const uint32_t *weights, uint32_t count)
{
    uint32_t total = 0, chosen = 0;
    for (uint32_t i = 0; i < count; i++)
        total += weights[i];
    assert(total > 0);
    uint32_t point = (uint32_t)(((uint64_t)next_word(writer) * total) >> 32);
    while (point >= weights[chosen])
        point -= weights[chosen++];
    writer->nats += log((double)total / weights[chosen]);
    return chosen;
}

uint32_t hs_synthetic_uniform(HsSyntheticWriter *writer, uint32_t count)
{
    assert(count > 0);
    writer->nats += log((double)count);
    return (uint32_t)(((uint64_t)next_word(writer) * count) >> 32);
}

bool hs_synthetic_flip(HsSyntheticWriter *writer, uint32_t numerator, uint32_t denominator)
{
    const uint32_t weights[2] = { denominator - numerator, numerator };
    return hs_synthetic_choose(writer, weights, 2) == 1;
}

void hs_synthetic_put(HsSyntheticWriter *writer, const char *bytes)
{
    HsSyntheticText *text = writer->text;
    size_t length = strlen(bytes);
    if (hs_array_grow(&text->bytes, 1, text->length + length, &text->capacity) != HS_OK) {
        writer->out_of_memory = true;
        return;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

void hs_synthetic_put_integer(HsSyntheticWriter *writer, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    hs_synthetic_put(writer, digits);
}
