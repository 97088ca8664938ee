/* SPDX-License-Identifier: MIT
 *
 * Lists of words, each written once as a macro LIST(X) of X(identifier, word): enumerations, tables and the
 * configuration's choices are made from it.
 */
#ifndef HS_KERNELS_BASE_WORDS_H
#define HS_KERNELS_BASE_WORDS_H

#define HS_WORD(identifier, word)        word,
#define HS_WORD_PIPED(identifier, word)  "|" word
#define HS_WORD_LISTED(identifier, word) ", " word

/* The words as the elements of an array, as "a|b|c", as "|a|b|c", to follow another word, and as "a, b, c", for
 * messages. */
#define HS_WORD_ARRAY(LIST) \
    {                       \
        LIST(HS_WORD)       \
    }
#define HS_WORDS(LIST)        (&(LIST(HS_WORD_PIPED))[1])
#define HS_WORDS_AFTER(LIST)  LIST(HS_WORD_PIPED)
#define HS_WORDS_LISTED(LIST) (&(LIST(HS_WORD_LISTED))[2])

#endif
