# SPDX-License-Identifier: MIT
"""Vocabularies built like known models', trained by the `tokenizers` library, and one for each other part."""
import itertools
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LINE = "\u2581"


def train(pre, texts, special, alphabet=(), normalizer=None, size=6000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                             initial_alphabet=list(alphabet), limit_alphabet=2500))
    return tokenizer


def byte_level(texts, pre, **rest):
    tokenizer = train(pre, texts, ["<|endoftext|>", "<s>"], pre_tokenizers.ByteLevel.alphabet(), **rest)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def changed(tokenizer, **parts):
    """The tokenizer with parts of its file replaced; model is merged into what is there."""
    file = json.loads(tokenizer.to_str())
    file["model"].update(parts.pop("model", {}))
    file.update(parts)
    return Tokenizer.from_str(json.dumps(file))


def without_bytes(tokenizer):
    """BYTES are tokens of the model, not added ones."""
    file = json.loads(tokenizer.to_str())
    return changed(tokenizer, added_tokens=[token for token in file["added_tokens"] if token["content"] not in BYTES])


def sentence_pieces(texts):
    """{name: tokenizer} of the families that write spaces as U+2581 and fall back to bytes."""
    base = without_bytes(train(pre_tokenizers.Metaspace(), texts, ["<unk>", "<s>", "</s>"] + BYTES))
    fallback = {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    strip = decoders.Sequence([decoders.Replace(LINE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made = {}
    for name in ("llama2", "mistral", "gemma", "no-fallback", "always"):
        made[name] = changed(base, model=fallback, pre_tokenizer=None)
        made[name].decoder = strip
    made["llama2"].normalizer = normalizers.Sequence([normalizers.Prepend(LINE), normalizers.Replace(" ", LINE)])
    made["mistral"].pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made["gemma"].normalizer = normalizers.Replace(" ", LINE)
    made["gemma"].pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made["gemma"].decoder = decoders.Sequence([decoders.Replace(LINE, " "), decoders.ByteFallback(), decoders.Fuse()])
    made["no-fallback"] = changed(made["mistral"], model={"byte_fallback": False})
    made["always"].pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made["always"].decoder = decoders.Metaspace(prepend_scheme="always")
    made["never"] = changed(made["always"], model={"fuse_unk": False, "byte_fallback": False})
    made["never"].pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    made["never"].decoder = decoders.Metaspace(prepend_scheme="never")
    return made


def added(texts):
    """Every combination of an added token's flags, normalized and not, under a normalizer that changes them."""
    tokenizer = byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=True), size=1000,
                           normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    names = ["<x>", "Word", "\u0451", "...", "[INST]", "a", "1234567", "\u65e5\u672c", "don't", "</s>", "x1y", "\u2460",
             "$", "  ", "\n", "\U0001f600", "Wor", "<0x0A>", "e\u0301", "HTTP"]
    flags = itertools.cycle(itertools.product([False, True], repeat=4))
    for name in names:
        single_word, lstrip, rstrip, normalized = next(flags)
        tokenizer.add_tokens([AddedToken(name, single_word=single_word, lstrip=lstrip, rstrip=rstrip, normalized=normalized)])
    return tokenizer


def stages(texts):
    """Pre-tokenizers of all kinds over one vocabulary with an unknown token."""
    base = changed(train(pre_tokenizers.Whitespace(), texts, ["<unk>"], size=3000), model={"unk_token": "<unk>"})
    base.decoder = decoders.Fuse()
    made = {}
    behaviors = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
    for behavior in behaviors:
        made[f"punctuation-{behavior}"] = pre_tokenizers.Punctuation(behavior)
        for invert in (False, True):
            made[f"split-{behavior}-{invert}"] = pre_tokenizers.Split(Regex(r"\w+|\s"), behavior, invert)
            made[f"string-{behavior}-{invert}"] = pre_tokenizers.Split("a", behavior, invert)
    made["digits"] = pre_tokenizers.Digits(individual_digits=False)
    made["single-digits"] = pre_tokenizers.Digits(individual_digits=True)
    made["whitespace"] = pre_tokenizers.Whitespace()
    made["whitespace-split"] = pre_tokenizers.WhitespaceSplit()
    made["delimiter"] = pre_tokenizers.CharDelimiterSplit("e")
    made["sequence"] = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
                                                pre_tokenizers.Digits(True)])
    for name, pre in made.items():
        tokenizer = changed(base)
        tokenizer.pre_tokenizer = pre
        yield name, tokenizer
    forms = {form: getattr(normalizers, form.upper())() for form in ("nfc", "nfd", "nfkc", "nfkd")}
    forms["lowercase"] = normalizers.Lowercase()
    forms["replace"] = normalizers.Sequence([normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("a", "bb")])
    for name, normalizer in forms.items():
        tokenizer = byte_level(texts[:3], pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizer, size=700)
        yield name, tokenizer


def build(texts):
    """Yields name, tokenizer."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt2", byte_level(texts, plain)
    yield "llama3", changed(byte_level(texts, split(LLAMA3)), model={"ignore_merges": True})
    yield "qwen2", byte_level(texts, split(QWEN2), normalizer=normalizers.NFC())
    yield "o200k", byte_level(texts, split(O200K))
    yield "han", byte_level(texts, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{Han}+"), "isolated"), plain]))
    pythia = byte_level(texts, plain, normalizer=normalizers.NFC())
    pythia.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    yield "pythia", pythia
    yield from sentence_pieces(texts).items()
    yield "added", added(texts)
    yield from stages(texts)
