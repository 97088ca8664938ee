# SPDX-License-Identifier: MIT
"""compare.py BUILD FOLDER [NAME...]: token for token, this project's tokenizers against the `tokenizers` library.

NAME: only tokenizers with names that begin so.  FOLDER has packages with translations and with tokenizer.json files;
BUILD has the trainer and tests/tokenize.  Exit status 1 when anything differs.
"""
import array
import os
import pathlib
import struct
import subprocess
import sys

from tokenizers import Tokenizer

import corpus
import kinds


def frame(items):
    return b"".join(struct.pack("<q", len(item)) + data for item, data in items)


def unframe(data, size):
    at, items = 0, []
    while at < len(data):
        count, = struct.unpack_from("<q", data, at)
        at += 8
        items.append(None if count < 0 else data[at:at + count * size])
        at += max(count, 0) * size
    return items


class Ours:
    def __init__(self, build, folder):
        self.program, self.folder = build / "tests/tokenize", folder

    def run(self, verb, path, data, size):
        (self.folder / "in").write_bytes(data)
        done = subprocess.run([self.program, verb, path, self.folder / "in", self.folder / "out"], capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr.strip(), 0
        return unframe((self.folder / "out").read_bytes(), size), done.stderr.strip(), float(done.stdout)


def first_difference(ours, theirs):
    at = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    return at, list(ours[max(0, at - 3):at + 4]), list(theirs[max(0, at - 3):at + 4])


def encode(library, texts):
    """-> the texts, their tokens; without those on which the library panics (added tokens that overlap)."""
    standard, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)  # a panic prints much
    try:
        found = library.encode_batch(texts, add_special_tokens=False)
    except BaseException as error:
        os.dup2(standard, 2)
        if type(error).__name__ != "PanicException":
            raise
        if len(texts) == 1:
            return [], []
        left, right = encode(library, texts[:len(texts) // 2]), encode(library, texts[len(texts) // 2:])
        return left[0] + right[0], left[1] + right[1]
    finally:
        os.dup2(standard, 2)
        os.close(standard)
        os.close(nothing)
    return texts, [array.array("i", e.ids) for e in found]


def compare(name, ours, path, texts):
    """-> tokens compared, differing texts."""
    library = Tokenizer.from_file(str(path))
    given = len(texts)
    texts, encodings = encode(library, texts)
    if len(texts) < given:
        print(f"  {name}: the library panics on {given - len(texts)} texts")
    data = [text.encode() for text in texts]
    lists, message, seconds = ours.run("encode", path, frame(zip(data, data)), 4)
    if lists is None:
        print(f"{name:28} FAIL: {message}")
        return 0, len(texts)
    wrong = 0
    for text, mine, theirs in zip(texts, lists, encodings):
        mine = array.array("i", mine) if mine is not None else array.array("i", [-1])
        if mine == theirs:
            continue
        wrong += 1
        if wrong <= 3:
            at, a, b = first_difference(mine, theirs)
            print(f"  {name}: text {text[:60]!r} token {at}: {a} here, {b} there")
            print(f"     {[library.id_to_token(i) for i in a if i >= 0]} {[library.id_to_token(i) for i in b]} {message[:200]}")
    decoded, message, _ = ours.run("decode", path, frame((e, e.tobytes()) for e in encodings), 1)
    expected = library.decode_batch([list(e) for e in encodings], skip_special_tokens=False)
    for mine, theirs in zip(decoded or [None] * len(texts), expected):
        if mine is None or mine.decode("utf-8", "replace") != theirs:
            wrong += 1
            if wrong <= 3:
                print(f"  {name}: decoded {(mine or b'').decode('utf-8', 'replace')[:80]!r} here, {theirs[:80]!r} there {message[:200]}")
    tokens, size = sum(map(len, encodings)), sum(map(len, data))
    print(f"{name:28} {len(texts):6} texts {size / 1e6:6.2f} MB {tokens:9} tokens, {wrong} differences, "
          f"{size / 1e6 / max(seconds, 1e-9):5.1f} MB/s")
    return tokens, wrong


def main():
    build, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    only = sys.argv[3:]
    work = build / "tokenizers"
    languages = corpus.translations(folder, 60000)
    real = [piece for text in languages.values() for piece in corpus.pieces(text)]
    texts = real + corpus.every_character() + corpus.mixes(1, 3000)
    few = real[::7] + corpus.every_character() + corpus.mixes(2, 1500)
    print(f"{len(languages)} languages, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB")
    ours = Ours(build, work)
    sample = [languages[name][:20000] for name in sorted(languages)][::2]
    totals = [0, 0, 0]
    paths = [(path.parent.name, path) for path in sorted(folder.rglob("tokenizer.json"))]  # published ones
    (work / "sample.txt").write_text("\n".join(sample), encoding="utf-8")
    subprocess.run([build / "trainer", "tokenizer", "train", "--vocabulary", "4096", "--output", work / "ours.json",
                    work / "sample.txt"], check=True, capture_output=True)
    paths.append(("ours-4096", work / "ours.json"))
    for name, tokenizer in kinds.build(sample):
        path = work / f"{name}.json"
        tokenizer.save(str(path))
        paths.append((name, path))
    main_kinds = {"gpt2", "llama2", "llama3", "qwen2", "mistral", "pythia", "ours-4096"} | {p[0] for p in paths if folder in p[1].parents}
    for name, path in paths:
        if only and not any(name.startswith(word) for word in only):
            continue
        tokens, wrong = compare(name, ours, path, texts if name in main_kinds else few)
        totals = [totals[0] + 1, totals[1] + tokens, totals[2] + wrong]
    print(f"{totals[0]} tokenizers, {totals[1]} tokens compared, {totals[2]} differences")
    return 1 if totals[2] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
