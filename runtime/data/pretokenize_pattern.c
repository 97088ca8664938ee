/* SPDX-License-Identifier: MIT
 *
 * From Oniguruma's expressions to PCRE2's, and the expression that finds text not surely in form C.
 *
 * Only constructs that both read alike pass: alternatives, groups ( (?: (?i: and looks, classes without classes or
 * intersections inside, the quantifiers, general categories \p{L}, and the escapes below.
 */
#include "runtime/data/pretokenize_pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters whose canonical combining class is not 0: in a row, they might stand in another order. */
#define ORDERED_MARKS                                                                                              \
    "\\x{300}-\\x{34E}\\x{350}-\\x{36F}\\x{483}-\\x{487}\\x{591}-\\x{5BD}\\x{5BF}\\x{5C1}\\x{5C2}\\x{5C4}\\x{5C5}" \
    "\\x{5C7}\\x{610}-\\x{61A}\\x{64B}-\\x{65F}\\x{670}\\x{6D6}-\\x{6DC}\\x{6DF}-\\x{6E4}\\x{6E7}\\x{6E8}"         \
    "\\x{6EA}-\\x{6ED}\\x{711}\\x{730}-\\x{74A}\\x{7EB}-\\x{7F3}\\x{7FD}\\x{816}-\\x{819}\\x{81B}-\\x{823}"        \
    "\\x{825}-\\x{827}\\x{829}-\\x{82D}\\x{859}-\\x{85B}\\x{898}-\\x{89F}\\x{8CA}-\\x{8E1}\\x{8E3}-\\x{8FF}"       \
    "\\x{93C}\\x{94D}\\x{951}-\\x{954}\\x{9BC}\\x{9CD}\\x{9FE}\\x{A3C}\\x{A4D}\\x{ABC}\\x{ACD}\\x{B3C}\\x{B4D}"    \
    "\\x{BCD}\\x{C3C}\\x{C4D}\\x{C55}\\x{C56}\\x{CBC}\\x{CCD}\\x{D3B}\\x{D3C}\\x{D4D}\\x{DCA}\\x{E38}-\\x{E3A}"    \
    "\\x{E48}-\\x{E4B}\\x{EB8}-\\x{EBA}\\x{EC8}-\\x{ECB}\\x{F18}\\x{F19}\\x{F35}\\x{F37}\\x{F39}\\x{F71}\\x{F72}"  \
    "\\x{F74}\\x{F7A}-\\x{F7D}\\x{F80}\\x{F82}-\\x{F84}\\x{F86}\\x{F87}\\x{FC6}\\x{1037}\\x{1039}\\x{103A}"        \
    "\\x{108D}\\x{135D}-\\x{135F}\\x{1714}\\x{1715}\\x{1734}\\x{17D2}\\x{17DD}\\x{18A9}\\x{1939}-\\x{193B}"        \
    "\\x{1A17}\\x{1A18}\\x{1A60}\\x{1A75}-\\x{1A7C}\\x{1A7F}\\x{1AB0}-\\x{1ABD}\\x{1ABF}-\\x{1ACE}\\x{1B34}"       \
    "\\x{1B44}\\x{1B6B}-\\x{1B73}\\x{1BAA}\\x{1BAB}\\x{1BE6}\\x{1BF2}\\x{1BF3}\\x{1C37}\\x{1CD0}-\\x{1CD2}"        \
    "\\x{1CD4}-\\x{1CE0}\\x{1CE2}-\\x{1CE8}\\x{1CED}\\x{1CF4}\\x{1CF8}\\x{1CF9}\\x{1DC0}-\\x{1DFF}"                \
    "\\x{20D0}-\\x{20DC}\\x{20E1}\\x{20E5}-\\x{20F0}\\x{2CEF}-\\x{2CF1}\\x{2D7F}\\x{2DE0}-\\x{2DFF}"               \
    "\\x{302A}-\\x{302F}\\x{3099}\\x{309A}\\x{A66F}\\x{A674}-\\x{A67D}\\x{A69E}\\x{A69F}\\x{A6F0}\\x{A6F1}"        \
    "\\x{A806}\\x{A82C}\\x{A8C4}\\x{A8E0}-\\x{A8F1}\\x{A92B}-\\x{A92D}\\x{A953}\\x{A9B3}\\x{A9C0}\\x{AAB0}"        \
    "\\x{AAB2}-\\x{AAB4}\\x{AAB7}\\x{AAB8}\\x{AABE}\\x{AABF}\\x{AAC1}\\x{AAF6}\\x{ABED}\\x{FB1E}"                  \
    "\\x{FE20}-\\x{FE2F}\\x{101FD}\\x{102E0}\\x{10376}-\\x{1037A}\\x{10A0D}\\x{10A0F}\\x{10A38}-\\x{10A3A}"        \
    "\\x{10A3F}\\x{10AE5}\\x{10AE6}\\x{10D24}-\\x{10D27}\\x{10EAB}\\x{10EAC}\\x{10F46}-\\x{10F50}"                 \
    "\\x{10F82}-\\x{10F85}\\x{11046}\\x{11070}\\x{1107F}\\x{110B9}\\x{110BA}\\x{11100}-\\x{11102}"                 \
    "\\x{11133}\\x{11134}\\x{11173}\\x{111C0}\\x{111CA}\\x{11235}\\x{11236}\\x{112E9}\\x{112EA}"                   \
    "\\x{1133B}\\x{1133C}\\x{1134D}\\x{11366}-\\x{1136C}\\x{11370}-\\x{11374}\\x{11442}\\x{11446}\\x{1145E}"       \
    "\\x{114C2}\\x{114C3}\\x{115BF}\\x{115C0}\\x{1163F}\\x{116B6}\\x{116B7}\\x{1172B}\\x{11839}\\x{1183A}"         \
    "\\x{1193D}\\x{1193E}\\x{11943}\\x{119E0}\\x{11A34}\\x{11A47}\\x{11A99}\\x{11C3F}\\x{11D42}"                   \
    "\\x{11D44}\\x{11D45}\\x{11D97}\\x{16AF0}-\\x{16AF4}\\x{16B30}-\\x{16B36}\\x{16FF0}\\x{16FF1}\\x{1BC9E}"       \
    "\\x{1D165}-\\x{1D169}\\x{1D16D}-\\x{1D172}\\x{1D17B}-\\x{1D182}\\x{1D185}-\\x{1D18B}\\x{1D1AA}-\\x{1D1AD}"    \
    "\\x{1D242}-\\x{1D244}\\x{1E000}-\\x{1E006}\\x{1E008}-\\x{1E018}\\x{1E01B}-\\x{1E021}\\x{1E023}\\x{1E024}"     \
    "\\x{1E026}-\\x{1E02A}\\x{1E130}-\\x{1E136}\\x{1E2AE}\\x{1E2EC}-\\x{1E2EF}\\x{1E8D0}-\\x{1E8D6}"               \
    "\\x{1E944}-\\x{1E94A}"

const char hs_pattern_not_nfc[] =
    "[" ORDERED_MARKS "]{2}|["
    "\\x{300}-\\x{304}\\x{306}-\\x{30C}\\x{30F}\\x{311}\\x{313}\\x{314}\\x{31B}\\x{323}-\\x{328}\\x{32D}\\x{32E}"
    "\\x{330}\\x{331}\\x{338}\\x{340}-\\x{345}\\x{374}\\x{37E}\\x{387}\\x{653}-\\x{655}\\x{93C}\\x{958}-\\x{95F}"
    "\\x{9BE}\\x{9D7}\\x{9DC}\\x{9DD}\\x{9DF}\\x{A33}\\x{A36}\\x{A59}-\\x{A5B}\\x{A5E}\\x{B3E}\\x{B56}\\x{B57}"
    "\\x{B5C}\\x{B5D}\\x{BBE}\\x{BD7}\\x{C56}\\x{CC2}\\x{CD5}\\x{CD6}\\x{D3E}\\x{D57}\\x{DCA}\\x{DCF}\\x{DDF}"
    "\\x{F43}\\x{F4D}\\x{F52}\\x{F57}\\x{F5C}\\x{F69}\\x{F73}\\x{F75}\\x{F76}\\x{F78}\\x{F81}\\x{F93}\\x{F9D}"
    "\\x{FA2}\\x{FA7}\\x{FAC}\\x{FB9}\\x{102E}\\x{1161}-\\x{1175}\\x{11A8}-\\x{11C2}\\x{1B35}\\x{1F71}\\x{1F73}"
    "\\x{1F75}\\x{1F77}\\x{1F79}\\x{1F7B}\\x{1F7D}\\x{1FBB}\\x{1FBE}\\x{1FC9}\\x{1FCB}\\x{1FD3}\\x{1FDB}\\x{1FE3}"
    "\\x{1FEB}\\x{1FEE}\\x{1FEF}\\x{1FF9}\\x{1FFB}\\x{1FFD}\\x{2000}\\x{2001}\\x{2126}\\x{212A}\\x{212B}"
    "\\x{2329}\\x{232A}\\x{2ADC}\\x{3099}\\x{309A}\\x{F900}-\\x{FA0D}\\x{FA10}\\x{FA12}\\x{FA15}-\\x{FA1E}\\x{FA20}"
    "\\x{FA22}\\x{FA25}\\x{FA26}\\x{FA2A}-\\x{FA6D}\\x{FA70}-\\x{FAD9}\\x{FB1D}\\x{FB1F}\\x{FB2A}-\\x{FB36}"
    "\\x{FB38}-\\x{FB3C}\\x{FB3E}\\x{FB40}\\x{FB41}\\x{FB43}\\x{FB44}\\x{FB46}-\\x{FB4E}\\x{110BA}\\x{11127}"
    "\\x{1133E}\\x{11357}\\x{114B0}\\x{114BA}\\x{114BD}\\x{115AF}\\x{11930}\\x{1D15E}-\\x{1D164}"
    "\\x{1D1BB}-\\x{1D1C0}\\x{2F800}-\\x{2FA1D}"
    "]";

typedef struct Translation {
    const char *name;
    const char *at; /* not yet read */
    char *out;      /* not yet written */
    bool in_class;
} Translation;

static HsStatus refuse(const Translation *translation, const char *what, size_t length)
{
    return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer Split: %.*s in an expression is not supported",
                   translation->name, (int)length, what);
}

static void copy(Translation *translation, size_t length)
{
    memcpy(translation->out, translation->at, length);
    translation->out += length;
    translation->at += length;
}

/* White-space classes become the property; a property must be a general category (scripts are counted differently);
 * word characters differ. */
static HsStatus translate_escape(Translation *translation)
{
    const char *at = translation->at;
    unsigned char letter = (unsigned char)at[1];
    if (letter == 's' || letter == 'S') {
        const char *property = letter == 's' ? HS_SPACE : HS_NOT_SPACE;
        translation->out = stpcpy(translation->out, property);
        translation->at += 2;
        return HS_OK;
    }
    if (letter == 'p' || letter == 'P') {
        const char *close = at[2] == '{' ? strchr(at, '}') : NULL;
        size_t name_length = close ? (size_t)(close - at) - 3 : 0;
        bool category = (name_length == 1 || name_length == 2) && strchr("LMNPSZC", at[3]) &&
                        (name_length == 1 || islower((unsigned char)at[4]));
        if (!category)
            return refuse(translation, at, close ? (size_t)(close - at) + 1 : 2);
        copy(translation, name_length + 4);
        return HS_OK;
    }
    if (letter == '\0' || letter >= 0x80 || (isalnum(letter) && !strchr("rntfd", letter)))
        return refuse(translation, at, letter == '\0' ? 1 : 2);
    copy(translation, 2);
    return HS_OK;
}

/* After "(?" only groups, looks and case-insensitive groups mean the same to both. */
static HsStatus translate_group(Translation *translation)
{
    static const char *const openings[] = { "(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>" };
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        size_t length = strlen(openings[i]);
        if (strncmp(translation->at, openings[i], length) == 0) {
            copy(translation, length);
            return HS_OK;
        }
    }
    return refuse(translation, translation->at, 3);
}

static HsStatus translate_one(Translation *translation)
{
    const char *at = translation->at;
    if (*at == '\\')
        return translate_escape(translation);
    if (translation->in_class) {
        if (*at == '[' || strncmp(at, "&&", 2) == 0) /* a class within, an intersection */
            return refuse(translation, at, *at == '[' ? 1 : 2);
        translation->in_class = *at != ']';
        copy(translation, 1);
        return HS_OK;
    }
    if (strncmp(at, "(?", 2) == 0)
        return translate_group(translation);
    /* Verbs; a quantified quantifier, possessive or lazy to one and repeated to the other; an open lower bound. */
    static const char *const ambiguous[] = { "(*", "}+", "}?", "{," };
    for (size_t i = 0; i < sizeof ambiguous / sizeof ambiguous[0]; i++)
        if (strncmp(at, ambiguous[i], 2) == 0)
            return refuse(translation, at, 2);
    if (*at == '[') {
        translation->in_class = true;
        size_t opening = at[1] == '^' ? 2 : 1;
        if (at[opening] == ']')
            return refuse(translation, at, opening + 1);
        copy(translation, opening);
        return HS_OK;
    }
    copy(translation, 1);
    return HS_OK;
}

HsStatus hs_pattern_translate(const char *name, const char *pattern, char **translated)
{
    /* The longest replacement, for two characters. */
    *translated = malloc(strlen(pattern) / 2 * sizeof HS_SPACE + 2);
    if (!*translated)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    Translation translation = { name, pattern, *translated, false };
    HsStatus status = HS_OK;
    while (*translation.at && status == HS_OK)
        status = translate_one(&translation);
    *translation.out = '\0';
    if (status != HS_OK) {
        free(*translated);
        *translated = NULL;
    }
    return status;
}
