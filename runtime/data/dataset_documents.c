/* SPDX-License-Identifier: MIT
 *
 * The documents of a stream while it is made: a list in memory, or blocks of what the parts of a cache say.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/base/array.h"
#include "runtime/data/dataset_build.h"

enum { BLOCK = 4096 };

HsStatus hs_documents_add_unit(HsDocuments *documents, const HsEncodedUnit *unit, int64_t before)
{
    HS_TRY(hs_array_grow(&documents->items, sizeof *documents->items,
                         (size_t)(documents->count + unit->document_count + 1), &documents->capacity));
    for (int64_t i = 0; i < unit->document_count; i++) {
        HsEncodedDocument *document = &documents->items[documents->count++];
        *document = unit->documents[i];
        document->end += before;
        documents->joined += document->ends && unit->from->kind;
        documents->pairs += document->prompt_hash != 0;
        documents->chats += document->is_chat;
        documents->known += !isnan(document->nats);
    }
    documents->unrendered_contents += unit->unrendered_contents;
    documents->quoted_arguments += unit->quoted_arguments;
    return HS_OK;
}

HsStatus hs_documents_add_part(HsDocuments *documents, const HsTokenPart *part, int64_t before, int source)
{
    const HsPartAbout *about = &part->about;
    const size_t count = (size_t)documents->part_count;
    struct HsDocumentPart *parts = realloc(documents->parts, (count + 1) * sizeof *parts);
    if (!parts)
        return hs_fail(HS_ENOMEM, "no memory to list documents");
    documents->parts = parts;
    parts[documents->part_count++] = (struct HsDocumentPart){ *part, documents->count, before, source };
    documents->count += about->documents;
    documents->joined += about->joined;
    documents->pairs += about->pairs;
    documents->chats += about->chats;
    documents->known += about->known;
    documents->unrendered_contents += about->unrendered_contents;
    documents->quoted_arguments += about->quoted_arguments;
    return HS_OK;
}

/* The block that has document `index`. */
static HsStatus read_block(HsDocuments *documents, int64_t index)
{
    int which = documents->part_count - 1;
    while (which > 0 && documents->parts[which].first > index)
        which--;
    const struct HsDocumentPart *from = &documents->parts[which];
    const int64_t first = (index - from->first) / BLOCK * BLOCK, left = from->part.about.documents - first;
    const int64_t count = left < BLOCK ? left : BLOCK;
    HS_TRY(hs_array_grow(&documents->items, sizeof *documents->items, BLOCK, &documents->capacity));
    documents->block_count = 0;
    HS_TRY(hs_token_part_documents(&from->part, first, count, documents->items));
    for (int64_t i = 0; i < count; i++) {
        documents->items[i].end += from->token;
        documents->items[i].source += from->source;
    }
    documents->block_first = from->first + first;
    documents->block_count = count;
    return HS_OK;
}

HsEncodedDocument hs_document(HsDocuments *documents, int64_t index)
{
    if (documents->part_count == 0)
        return documents->items[index];
    const bool there = index >= documents->block_first && index < documents->block_first + documents->block_count;
    if (!there && documents->failure == HS_OK)
        documents->failure = read_block(documents, index);
    return documents->failure == HS_OK ? documents->items[index - documents->block_first] : (HsEncodedDocument){ 0 };
}

int64_t hs_document_start(HsDocuments *documents, int64_t index)
{
    return index > 0 ? hs_document(documents, index - 1).end : 0;
}

void hs_documents_deinit(HsDocuments *documents)
{
    free(documents->items);
    free(documents->parts);
    documents->items = NULL;
    documents->parts = NULL;
    documents->part_count = 0;
}
