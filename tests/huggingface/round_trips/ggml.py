# SPDX-License-Identifier: MIT
"""What a GGUF says, as llama.cpp takes it: tokens of texts by the tables of the file alone, with the `tokenizers` library.

llama.cpp cuts a text at the tokens that are control or user-defined, the longest first, each all over the text; what is
left is cut by the expressions that the name `tokenizer.ggml.pre` stands for (src/llama-vocab.cpp), one after another, and
merged; a word that is a token is taken whole where the name says so. With llama-cpp-python installed the program itself
runs, too.
"""
import pathlib

from gguf import GGUFReader
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
CUTS = {"gpt-2": [GPT2], "qwen2": [QWEN2], "llama-bpe": [LLAMA3], "smaug-bpe": [LLAMA3], "smollm": [r"\p{N}", GPT2]}
CONTROL, USER = 3, 4


def read(path):
    return {name: field.contents() for name, field in GGUFReader(str(path)).fields.items()}


class Reader:
    def __init__(self, path):
        self.keys = read(path)
        tokens, types = self.keys["tokenizer.ggml.tokens"], self.keys["tokenizer.ggml.token_type"]
        vocabulary = {text: i for i, text in enumerate(tokens)}
        merges = [tuple(merge.split(" ")) for merge in self.keys["tokenizer.ggml.merges"]]
        name = self.keys["tokenizer.ggml.pre"]
        self.pieces = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe"))
        stages = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in CUTS[name]]
        self.pieces.pre_tokenizer = pre_tokenizers.Sequence(stages + [pre_tokenizers.ByteLevel(False, use_regex=False)])
        self.special = sorted(((text, i) for i, text in enumerate(tokens) if types[i] in (CONTROL, USER)),
                              key=lambda entry: -len(entry[0]))

    def cut(self, text):
        """-> pieces of text and ids of tokens, in order."""
        parts = [text]
        for token, number in self.special:
            if token not in text:
                continue
            cut = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                for index, piece in enumerate(part.split(token)):
                    cut += ([number] if index else []) + ([piece] if piece else [])
            parts = cut
        return parts

    def encode_all(self, texts):
        cuts = [self.cut(text) for text in texts]
        plain = [part for cut in cuts for part in cut if isinstance(part, str)]
        found = iter(self.pieces.encode_batch(plain))
        return [[i for part in cut for i in ([part] if isinstance(part, int) else next(found).ids)] for cut in cuts]


class Program:
    """llama.cpp itself, by llama-cpp-python; None where it is not installed."""

    def __init__(self, path, logits):
        import llama_cpp
        self.llama = llama_cpp.Llama(str(path), vocab_only=not logits, n_ctx=256, logits_all=True, verbose=False,
                                     type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, n_threads=1)

    def encode(self, text):
        return self.llama.tokenize(text.encode(), add_bos=False, special=True)

    def logits(self, ids):
        self.llama.reset()
        self.llama.eval(ids)
        return self.llama.scores[:len(ids)]

    def greedy(self, ids, count, end):
        """What it adds to the tokens, the likeliest each time: at most `count`, or until `end`."""
        self.llama.reset()
        self.llama.eval(ids)
        added = []
        while len(added) < count and (token := int(self.llama.scores[self.llama.n_tokens - 1].argmax())) != end:
            added.append(token)
            self.llama.eval([token])
        return added


def program(path, logits):
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        return None
    return Program(pathlib.Path(path), logits)
