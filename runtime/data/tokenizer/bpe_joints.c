/* SPDX-License-Identifier: MIT
 *
 * Parts of texts for tokenizers that do not cut them (Llama 2's, Gemma's, Mistral's): a part may end where two characters
 * that both have tokens stand side by side in no merged token: no merge reaches across, as within long pieces (bpe.c).
 * Spaces stand for what takes their place.  Such a border lies inside of a text between two added tokens, so that the part
 * behind it begins in the middle of one, and nothing is put in front of it.
 */
#include <string.h>

#include "runtime/data/tokenizer/bpe_encoder.h"

bool hs_bpe_cuts_at_joints(const HsBpe *bpe)
{
    const HsNormalizer *normalizer = bpe->normalizer;
    size_t space = 1;
    if (bpe->byte_level || bpe->ignore_merges || bpe->tries[true].count > 0 ||
        (normalizer && !hs_normalizer_is_by_character(normalizer)))
        return false;
    const bool spaces = !normalizer || hs_normalizer_character(normalizer, " ", &space)[0] == ' ';
    return hs_pretokenizer_only_rewrites(bpe->pretokenizer, spaces);
}

typedef struct Joining {
    HsBpeEncoder *encoder;
    const HsTextPart *part;
    size_t limit, used;
} Joining;

/* What becomes of the character at `text`: its text, and its length in the given one. */
static const char *become(const HsBpe *bpe, const char *text, size_t length, size_t *given, size_t *made)
{
    const char *space = hs_pretokenizer_space(bpe->pretokenizer);
    const size_t size = hs_utf8_decode(text, length, NULL);
    *given = *made = size > 0 ? size : 1;
    const char *character = bpe->normalizer ? hs_normalizer_character(bpe->normalizer, text, made) : text;
    if (space && *made == 1 && *character == ' ') {
        *made = strlen(space);
        return space;
    }
    return character;
}

/* The first and the last unit of what a character becomes; false: there is none, or one has no token. */
static bool units_of(const HsBpe *bpe, const char *text, size_t length, uint32_t *first, uint32_t *last)
{
    bool known = length > 0;
    for (size_t at = 0; at < length;) {
        const bool begins = at == 0;
        at += hs_bpe_unit(bpe, text + at, length - at, last);
        known = known && hs_bpe_unit_token(bpe, *last) >= 0;
        *first = begins ? *last : *first;
    }
    return known;
}

/* The first border from `from` on that lies within (begin, end); 0: there is none. */
static size_t find_border(const HsBpe *bpe, const char *text, size_t begin, size_t end, size_t from)
{
    size_t at = from > begin ? from : begin + 1;
    while (at < end && ((unsigned char)text[at] & 0xC0) == 0x80)
        at++;
    size_t before = at - 1; /* of the character in front */
    while (before > begin && ((unsigned char)text[before] & 0xC0) == 0x80)
        before--;
    for (size_t given, made; at < end; at += given) {
        uint32_t first, left = 0, right = 0, last;
        const char *character = become(bpe, text + before, end - before, &given, &made);
        const bool left_known = units_of(bpe, character, made, &first, &left);
        character = become(bpe, text + at, end - at, &given, &made);
        const bool right_known = units_of(bpe, character, made, &right, &last);
        const size_t joint = hs_bpe_joint(left, right);
        if (left_known && right_known && !(bpe->joints[joint / 8] >> joint % 8 & 1))
            return at;
        before = at;
    }
    return 0;
}

/* HsBpePartFunction on the text as given. */
static HsStatus take(void *context, const HsBpeAdded *added, size_t begin, size_t end)
{
    Joining *joining = context;
    const HsTextPart *part = joining->part;
    HsBpeEncoder *encoder = joining->encoder;
    if (joining->used > 0)
        return HS_OK;
    if (added)
        return encoder->tokens ? hs_bpe_emit(encoder, added) : HS_OK;
    const size_t border = end > part->least ? find_border(encoder->bpe, part->text, begin, end, part->least) : 0;
    const bool open = !part->last && end == joining->limit;
    joining->used = border;
    if (!encoder->tokens || (open && border == 0))
        return HS_OK;
    const bool rest = begin == 0 && !part->first; /* of what the part in front ended in */
    return hs_bpe_encode_run(encoder, part->text + begin, (border > 0 ? border : end) - begin,
                             part->first && begin == 0, !rest);
}

HsStatus hs_bpe_encode_joint_part(HsBpeEncoder *encoder, const HsTextPart *part, size_t *used)
{
    const HsBpe *bpe = encoder->bpe;
    Joining joining = { .encoder = encoder,
                        .part = part,
                        .limit = hs_bpe_limit(&bpe->tries[false], part->text, part->length, !part->last) };
    const HsStatus status =
        hs_bpe_cut_added(bpe, false, encoder->matcher, part->text, part->length, joining.limit, take, &joining);
    *used = joining.used;
    return status;
}
