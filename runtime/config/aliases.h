/* SPDX-License-Identifier: MIT
 *
 * What other programs call keys and their words: the one table of them, for "did you mean".  An alias is never taken for
 * what it means: its unit, its default or its scale may be others there, and the user decides.
 */
#ifndef HS_RUNTIME_CONFIG_ALIASES_H
#define HS_RUNTIME_CONFIG_ALIASES_H

typedef struct HsAlias {
    const char *key;   /* of a choice: its key, without a number in lists; "*": any.  NULL: `meant` is a key itself */
    const char *meant; /* a key, with its value where both are meant; or a choice, at the beginning of a phrase */
    const char *words; /* between spaces, in lower case and with underscores */
} HsAlias;
/* Each ends with a row without `meant`. */
extern const HsAlias hs_config_key_aliases[], hs_config_choice_aliases[];

/* Of a key that does not exist, dotted or not: the key that was probably meant, with its value where that is part of the
 * meaning ("precision.mode: fp16"); NULL: none is known.  Upper case and dashes count as lower case and underscores. */
const char *hs_config_alias_key(const char *unknown);

/* Of a word that is none of a key's choices ("a|b|c"): the choice that was probably meant, or a phrase that names it;
 * NULL.  key: dotted; "options" and "commands" are those of command lines */
const char *hs_config_alias_choice(const char *key, const char *choices, const char *word);

#endif
