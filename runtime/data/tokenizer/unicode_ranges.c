/* SPDX-License-Identifier: MIT
 *
 * Characters that one table of Unicode has and another has not; see unicode.h.  Ascending, found by bisection.
 */
#include "runtime/data/tokenizer/unicode.h"

typedef struct Range {
    uint32_t first, last;
    uint32_t stand_in; /* of the same category and number of bytes; older than Unicode 15 */
} Range;

/* One stand-in a category and number of bytes: Han is category Lo of script Han. */
enum {
    SO3 = 0x2600,
    LU3 = 0x2C00,
    LL3 = 0x2C30,
    PO3 = 0x2E2A,
    MN3 = 0x1DC0,
    MC3 = 0xA823,
    LO4 = 0x10380,
    SO4 = 0x1F300,
    ND4 = 0x104A0,
    LM4 = 0x16B40,
    MN4 = 0x1D167,
    PO4 = 0x10A50,
    LL4 = 0x10428,
    LU4 = 0x10400,
    MC4 = 0x11002,
    NO4 = 0x10107,
    CF4 = 0xE0001,
    SM4 = 0x1D6C1,
    PD4 = 0x10EAD,
    HAN4 = 0x20000,
};

/* Assigned by Unicode 15, 15.1 and 16. */
static const Range newer[] = {
    { 0x897, 0x897, MN3 },      { 0xCF3, 0xCF3, MC3 },      { 0xECE, 0xECE, MN3 },      { 0x1B4E, 0x1B4F, PO3 },
    { 0x1B7F, 0x1B7F, PO3 },    { 0x1C89, 0x1C89, LU3 },    { 0x1C8A, 0x1C8A, LL3 },    { 0x2427, 0x2429, SO3 },
    { 0x2FFC, 0x2FFF, SO3 },    { 0x31E4, 0x31E5, SO3 },    { 0x31EF, 0x31EF, SO3 },    { 0xA7CB, 0xA7CC, LU3 },
    { 0xA7CD, 0xA7CD, LL3 },    { 0xA7DA, 0xA7DA, LU3 },    { 0xA7DB, 0xA7DB, LL3 },    { 0xA7DC, 0xA7DC, LU3 },
    { 0x105C0, 0x105F3, LO4 },  { 0x10D40, 0x10D49, ND4 },  { 0x10D4A, 0x10D4D, LO4 },  { 0x10D4E, 0x10D4E, LM4 },
    { 0x10D4F, 0x10D4F, LO4 },  { 0x10D50, 0x10D65, LU4 },  { 0x10D69, 0x10D6D, MN4 },  { 0x10D6E, 0x10D6E, PD4 },
    { 0x10D6F, 0x10D6F, LM4 },  { 0x10D70, 0x10D85, LL4 },  { 0x10D8E, 0x10D8F, SM4 },  { 0x10EC2, 0x10EC4, LO4 },
    { 0x10EFC, 0x10EFF, MN4 },  { 0x1123F, 0x11240, LO4 },  { 0x11241, 0x11241, MN4 },  { 0x11380, 0x11389, LO4 },
    { 0x1138B, 0x1138B, LO4 },  { 0x1138E, 0x1138E, LO4 },  { 0x11390, 0x113B5, LO4 },  { 0x113B7, 0x113B7, LO4 },
    { 0x113B8, 0x113BA, MC4 },  { 0x113BB, 0x113C0, MN4 },  { 0x113C2, 0x113C2, MC4 },  { 0x113C5, 0x113C5, MC4 },
    { 0x113C7, 0x113CA, MC4 },  { 0x113CC, 0x113CD, MC4 },  { 0x113CE, 0x113CE, MN4 },  { 0x113CF, 0x113CF, MC4 },
    { 0x113D0, 0x113D0, MN4 },  { 0x113D1, 0x113D1, LO4 },  { 0x113D2, 0x113D2, MN4 },  { 0x113D3, 0x113D3, LO4 },
    { 0x113D4, 0x113D5, PO4 },  { 0x113D7, 0x113D8, PO4 },  { 0x113E1, 0x113E2, MN4 },  { 0x116D0, 0x116E3, ND4 },
    { 0x1171E, 0x1171E, MC4 },  { 0x11B00, 0x11B09, PO4 },  { 0x11BC0, 0x11BE0, LO4 },  { 0x11BE1, 0x11BE1, PO4 },
    { 0x11BF0, 0x11BF9, ND4 },  { 0x11F00, 0x11F01, MN4 },  { 0x11F02, 0x11F02, LO4 },  { 0x11F03, 0x11F03, MC4 },
    { 0x11F04, 0x11F10, LO4 },  { 0x11F12, 0x11F33, LO4 },  { 0x11F34, 0x11F35, MC4 },  { 0x11F36, 0x11F3A, MN4 },
    { 0x11F3E, 0x11F3F, MC4 },  { 0x11F40, 0x11F40, MN4 },  { 0x11F41, 0x11F41, MC4 },  { 0x11F42, 0x11F42, MN4 },
    { 0x11F43, 0x11F4F, PO4 },  { 0x11F50, 0x11F59, ND4 },  { 0x11F5A, 0x11F5A, MN4 },  { 0x1342F, 0x1342F, LO4 },
    { 0x13439, 0x1343F, CF4 },  { 0x13440, 0x13440, MN4 },  { 0x13441, 0x13446, LO4 },  { 0x13447, 0x13455, MN4 },
    { 0x13460, 0x143FA, LO4 },  { 0x16100, 0x1611D, LO4 },  { 0x1611E, 0x16129, MN4 },  { 0x1612A, 0x1612C, MC4 },
    { 0x1612D, 0x1612F, MN4 },  { 0x16130, 0x16139, ND4 },  { 0x16D40, 0x16D42, LM4 },  { 0x16D43, 0x16D6A, LO4 },
    { 0x16D6B, 0x16D6C, LM4 },  { 0x16D6D, 0x16D6F, PO4 },  { 0x16D70, 0x16D79, ND4 },  { 0x18CFF, 0x18CFF, LO4 },
    { 0x1B132, 0x1B132, LO4 },  { 0x1B155, 0x1B155, LO4 },  { 0x1CC00, 0x1CCEF, SO4 },  { 0x1CCF0, 0x1CCF9, ND4 },
    { 0x1CD00, 0x1CEB3, SO4 },  { 0x1D2C0, 0x1D2D3, NO4 },  { 0x1DF25, 0x1DF2A, LL4 },  { 0x1E030, 0x1E06D, LM4 },
    { 0x1E08F, 0x1E08F, MN4 },  { 0x1E4D0, 0x1E4EA, LO4 },  { 0x1E4EB, 0x1E4EB, LM4 },  { 0x1E4EC, 0x1E4EF, MN4 },
    { 0x1E4F0, 0x1E4F9, ND4 },  { 0x1E5D0, 0x1E5ED, LO4 },  { 0x1E5EE, 0x1E5EF, MN4 },  { 0x1E5F0, 0x1E5F0, LO4 },
    { 0x1E5F1, 0x1E5FA, ND4 },  { 0x1E5FF, 0x1E5FF, PO4 },  { 0x1F6DC, 0x1F6DC, SO4 },  { 0x1F774, 0x1F776, SO4 },
    { 0x1F77B, 0x1F77F, SO4 },  { 0x1F7D9, 0x1F7D9, SO4 },  { 0x1F8B2, 0x1F8BB, SO4 },  { 0x1F8C0, 0x1F8C1, SO4 },
    { 0x1FA75, 0x1FA77, SO4 },  { 0x1FA87, 0x1FA89, SO4 },  { 0x1FA8F, 0x1FA8F, SO4 },  { 0x1FAAD, 0x1FAAF, SO4 },
    { 0x1FABB, 0x1FABF, SO4 },  { 0x1FAC6, 0x1FAC6, SO4 },  { 0x1FACE, 0x1FACF, SO4 },  { 0x1FADA, 0x1FADC, SO4 },
    { 0x1FADF, 0x1FADF, SO4 },  { 0x1FAE8, 0x1FAE9, SO4 },  { 0x1FAF7, 0x1FAF8, SO4 },  { 0x1FBCB, 0x1FBEF, SO4 },
    { 0x2B739, 0x2B739, HAN4 }, { 0x2EBF0, 0x2EE5D, HAN4 }, { 0x31350, 0x323AF, HAN4 },
};

/* Assigned after Unicode 9, with a combining class, a decomposition or a part in a composition; characters between them
 * that Unicode 9 has not either are left in. */
static const Range young[] = {
    { 0x5C8, 0x5C9, 0 },     { 0x7FD, 0x7FD, 0 },     { 0x897, 0x89F, 0 },     { 0x8CA, 0x8D3, 0 },
    { 0x9FE, 0x9FE, 0 },     { 0xC3C, 0xC3C, 0 },     { 0xD3B, 0xD3C, 0 },     { 0xEBA, 0xEBA, 0 },
    { 0x1715, 0x1715, 0 },   { 0x1ABF, 0x1AF0, 0 },   { 0x1DF6, 0x1DFA, 0 },   { 0x32FF, 0x32FF, 0 },
    { 0xA7F1, 0xA7F4, 0 },   { 0xA82C, 0xA82C, 0 },   { 0xAB69, 0xAB69, 0 },   { 0x105C9, 0x105E4, 0 },
    { 0x10781, 0x107BA, 0 }, { 0x10D24, 0x10D27, 0 }, { 0x10D69, 0x10D6D, 0 }, { 0x10EAB, 0x10EFF, 0 },
    { 0x10F46, 0x10F85, 0 }, { 0x11070, 0x11070, 0 }, { 0x1133B, 0x1133B, 0 }, { 0x11382, 0x113D0, 0 },
    { 0x1145E, 0x1145E, 0 }, { 0x11839, 0x1183A, 0 }, { 0x11930, 0x11943, 0 }, { 0x119E0, 0x119E0, 0 },
    { 0x11A34, 0x11A47, 0 }, { 0x11A99, 0x11A99, 0 }, { 0x11D42, 0x11D45, 0 }, { 0x11D97, 0x11D97, 0 },
    { 0x11F41, 0x11F42, 0 }, { 0x1611E, 0x1612F, 0 }, { 0x16D63, 0x16D6A, 0 }, { 0x16FF0, 0x16FF1, 0 },
    { 0x1CCD6, 0x1CCF9, 0 }, { 0x1D127, 0x1D128, 0 }, { 0x1D250, 0x1D281, 0 }, { 0x1E030, 0x1E08F, 0 },
    { 0x1E130, 0x1E136, 0 }, { 0x1E2AE, 0x1E2EF, 0 }, { 0x1E4EC, 0x1E4EF, 0 }, { 0x1E5EE, 0x1E5EF, 0 },
    { 0x1E6E3, 0x1E6F5, 0 }, { 0x1F16C, 0x1F16C, 0 }, { 0x1FBF0, 0x1FBF9, 0 },
};

const char hs_not_punctuation[] =
    "\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B4E}\\x{1B4F}\\x{1B7D}-\\x{1B7F}\\x{2E43}-\\x{2E4F}\\x{2E52}-\\x{"
    "2E5D}"
    "\\x{10D6E}\\x{10EAD}\\x{10F55}-\\x{10F59}\\x{10F86}-\\x{10F89}\\x{113D4}\\x{113D5}\\x{113D7}\\x{113D8}"
    "\\x{1144B}-\\x{1144F}\\x{1145A}\\x{1145B}\\x{1145D}\\x{11660}-\\x{1166C}\\x{116B9}\\x{1183B}\\x{11944}-\\x{11946}"
    "\\x{119E2}\\x{11A3F}-\\x{11A46}\\x{11A9A}-\\x{11A9C}\\x{11A9E}-\\x{11AA2}\\x{11B00}-\\x{11B09}\\x{11BE1}"
    "\\x{11C41}-\\x{11C45}\\x{11C70}\\x{11C71}\\x{11EF7}\\x{11EF8}\\x{11F43}-\\x{11F4F}\\x{11FFF}\\x{12FF1}\\x{12FF2}"
    "\\x{16D6D}-\\x{16D6F}\\x{16E97}-\\x{16E9A}\\x{16FE2}\\x{1E5FF}\\x{1E95E}\\x{1E95F}";

static const Range *find(const Range *ranges, size_t count, uint32_t character)
{
    size_t low = 0, high = count; /* the range, if any, is in [low, high) */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (character < ranges[middle].first)
            high = middle;
        else if (character > ranges[middle].last)
            low = middle + 1;
        else
            return &ranges[middle];
    }
    return NULL;
}

uint32_t hs_unicode_stand_in(uint32_t character)
{
    /* Most text: nothing in between is new, above all not the ideographs. */
    if (character < 0x897 || (character > 0x31EF && character < 0xA7CB) || (character > 0xA7DC && character < 0x10000))
        return character;
    const Range *range = find(newer, sizeof newer / sizeof newer[0], character);
    return range ? range->stand_in : character;
}

bool hs_unicode_is_young(uint32_t character)
{
    if (character < 0x5C8 || (character > 0x32FF && character < 0xA7F1))
        return false;
    return find(young, sizeof young / sizeof young[0], character) != NULL;
}

HsStatus hs_unicode_stand_ins(const char *text, size_t length, char **copy)
{
    *copy = NULL;
    for (size_t at = 0, size; at < length; at += size) {
        uint32_t character = 0;
        uint64_t word; /* most text is ASCII: eight bytes in one go */
        size = 1;
        if (length - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            size = word & UINT64_C(0x8080808080808080) ? 1 : sizeof word;
        }
        if ((unsigned char)text[at] < 0xE0) /* below U+0800 nothing is new */
            continue;
        size = hs_utf8_decode(text + at, length - at, &character);
        uint32_t stand_in = hs_unicode_stand_in(character);
        if (stand_in == character)
            continue;
        if (!*copy) {
            *copy = malloc(length);
            if (!*copy)
                return hs_fail(HS_ENOMEM, "out of memory: a text of %zu bytes", length);
            memcpy(*copy, text, length);
        }
        hs_utf8_encode(stand_in, *copy + at);
    }
    return HS_OK;
}
