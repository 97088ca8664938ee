# SPDX-License-Identifier: MIT
"""Text for comparing tokenizers: translations that a Python package brings, and generated mixes."""
import pathlib
import random
import unicodedata

PIECE = 16384  # characters a text


def translations(folder, characters):
    """Every language's catalogues of the package, `characters` of each at most -> {language: text}."""
    languages = {}
    for path in sorted(pathlib.Path(folder).rglob("*.po")):
        language = path.parts[path.parts.index("locale") + 1]
        if len(languages.get(language, "")) < characters:
            languages[language] = languages.get(language, "") + path.read_text(encoding="utf-8")
    return {language: text[:characters] for language, text in languages.items()}


def pieces(text):
    return [text[at:at + PIECE] for at in range(0, len(text), PIECE)]


def every_character():
    """Each code point between letters, digits, spaces and signs, where expressions decide about it."""
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    plain = "".join(points)
    adjacent = "".join(f"a{c}b {c} 1{c}2.{c}" for c in points if unicodedata.category(c) not in ("Co", "Cn") or ord(c) < 0x20000 and ord(c) % 7 == 0)
    contractions = "".join(f"'{c} " for c in points[:0x3000])
    return pieces(plain) + pieces(adjacent) + pieces(contractions)


TRICKY = [
    " ", "  ", "   ", "\n", "\r\n", "\r", "\n\n", "\t", "\u00a0", "\u3000", "\u180e", "\u200b", "\u200d", "\u2028", "\u0085",
    "\ufeff", "\ufffd", "\u2581", "\u2581\u2581", "'s", "'S", "'\u017f", "'re", "'LL", "don't", "I'm", "0", "12", "1234567",
    "\u00b2", "\u0663", "\u2167", "\u00bd", "a", "B", "\u00e9", "e\u0301", "\u0130", "\u1e9e", "\u03a3", "\u00df", "\ufb01",
    "\u212b", "\u2126", "\uac00", "\u1100\u1161\u11a8", "\u0915\u093f", "\u0e01\u0e33", "\u65e5\u672c", "\U00020000", "\u30ac",
    "\u30ab\u3099", "\u0644\u0627", "\ufdfa", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\U00011f04", "\U0001e030", "\U00031350", "\U0001faf8",
    "\u0897", "\U00010d50", "\u1c89", ".", ",", "...", "-", "_", "$", "+", "<", ">", "<x>", "<s>", "</s>", "[INST]", "<unk>",
    "<0x0A>", "<|endoftext|>", "<|a|>", "word", "Word", "x1y", "\x00", "\x01", "\x7f", "(", ")", "\u0451", "\u0415\u0308", "http://a.b/c?d=e&f=%20",
]


def mixes(seed, count):
    draw = random.Random(seed)
    texts = ["", " ", "\u2581", "<s>", " <s> ", "a<s>", "  a", "\n"]
    marks = [chr(c) for c in range(0x300, 0x1E944) if unicodedata.combining(chr(c))]
    for number in range(count):
        length = draw.choice([1, 2, 3, 5, 20, 400])
        words = draw.choices(TRICKY, k=length)
        if number % 3 == 0:  # marks in any order
            words = [word + "".join(draw.choices(marks, k=draw.randrange(4))) for word in words]
        if number % 5 == 0:
            words += [chr(draw.choice([draw.randrange(1, 0xD800), draw.randrange(0xE000, 0x110000)])) for _ in range(length)]
            draw.shuffle(words)
        texts.append("".join(words))
    return texts + [" " * 3000, "\n" * 3000, "a" * 20000, "ab" * 20000 + " ", "\u0301\u0323" * 2000, "\u65e5" * 9000, " a" * 9000]
