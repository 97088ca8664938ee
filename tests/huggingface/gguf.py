#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gguf.py FOLDER FILE: whether the GGUF holds the weights of the Hugging Face folder, and says its sizes and tokens.
gguf.py FILE: what it says besides tables and weights, as JSON.

Of the format itself (ggml's specification, version 3), with nothing but the standard library.
"""

import json
import math
import os
import struct
import sys

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_qkv": "self_attn.qkv_proj"}
# Where norms stand behind the branches, too, and where gate and up are one matrix.
BEHIND = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
          "post_ffw_norm": "post_feedforward_layernorm"}
PAIRS, ONE_MORE = ("llama", "smollm3", "granite"), ("gemma2", "gemma3")


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 9:
            inner, count = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(count)]
        return self.text() if kind == 8 else self.take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])


def read_gguf(path):
    data = open(path, "rb").read()
    reader = Reader(data)
    assert data[:4] == b"GGUF"
    reader.at = 4
    assert reader.take("I") == 3
    tensors, pairs = reader.take("Q"), reader.take("Q")
    keys = {}
    for _ in range(pairs):
        key = reader.text()
        assert key not in keys, key
        keys[key] = reader.value(reader.take("I"))
    infos = []
    for _ in range(tensors):
        name = reader.text()
        sizes = [reader.take("Q") for _ in range(reader.take("I"))]
        infos.append((name, sizes, reader.take("I"), reader.take("Q")))
    base = (reader.at + 31) // 32 * 32
    return keys, [(name, sizes, kind, data[base + offset:]) for name, sizes, kind, offset in infos]


def read_folder(folder):
    weights = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        data = open(os.path.join(folder, name), "rb").read()
        length = struct.unpack_from("<Q", data)[0]
        for key, entry in json.loads(data[8:8 + length]).items():
            if key == "__metadata__":
                continue
            first, last = (8 + length + offset for offset in entry["data_offsets"])
            if entry["dtype"] == "BF16":
                bits = struct.unpack("<%dH" % ((last - first) // 2), data[first:last])
                numbers = struct.unpack("<%df" % len(bits), struct.pack("<%dI" % len(bits), *(b << 16 for b in bits)))
            else:
                numbers = struct.unpack("<%d%s" % ((last - first) // (4 if entry["dtype"] == "F32" else 2),
                                                   "f" if entry["dtype"] == "F32" else "e"), data[first:last])
            weights[key] = (entry["shape"], numbers)
    return weights


def rows_in_pairs(shape, numbers, heads):
    """Halves of each head's rows, side by side."""
    rows, columns = shape
    size = rows // heads
    order = [h * size + j * (size // 2) + i for h in range(heads) for i in range(size // 2) for j in range(2)]
    return [numbers[row * columns + c] for row in order for c in range(columns)]


def check_tensor(name, kind, data, numbers):
    if kind == 0:
        found = struct.unpack_from("<%df" % len(numbers), data)
        assert list(found) == list(numbers), name
    elif kind == 1:
        found = struct.unpack_from("<%de" % len(numbers), data)
        assert all(abs(a - b) <= abs(b) * 2 ** -11 + 2 ** -25 for a, b in zip(found, numbers)), name
    else:
        assert kind == 8, kind
        for block in range(len(numbers) // 32):
            scale, *codes = struct.unpack_from("<e32b", data, block * 34)
            exact = numbers[block * 32:block * 32 + 32]
            # half a code, and the scale's own rounding, which all 127 codes multiply
            bound = max(map(abs, exact)) / 127 * (0.5 + 127 * 2 ** -11)
            assert all(abs(scale * c - x) <= bound * (1 + 1e-6) for c, x in zip(codes, exact)), (name, block)


def main():
    if len(sys.argv) == 2:
        keys, _ = read_gguf(sys.argv[1])
        print(json.dumps({key: value for key, value in keys.items() if not isinstance(value, list) or len(value) < 8}))
        return
    folder, path = sys.argv[1:]
    config = json.load(open(os.path.join(folder, "config.json")))
    keys, tensors = read_gguf(path)
    weights = read_folder(folder)
    architecture = keys["general.architecture"]
    heads = {"attn_q": config["num_attention_heads"],
             "attn_k": config.get("num_key_value_heads") or config["num_attention_heads"]}
    assert keys[architecture + ".block_count"] == config["num_hidden_layers"]
    assert keys[architecture + ".embedding_length"] == config["hidden_size"]
    assert keys[architecture + ".feed_forward_length"] == config["intermediate_size"]
    assert keys[architecture + ".context_length"] == config["max_position_embeddings"]
    assert keys[architecture + ".attention.head_count_kv"] == heads["attn_k"]
    assert math.isclose(keys[architecture + ".attention.layer_norm_rms_epsilon"], config["rms_norm_eps"], rel_tol=1e-6)
    tokenizer = json.load(open(os.path.join(folder, "tokenizer.json")))
    vocabulary = tokenizer["model"]["vocab"]
    assert len(keys["tokenizer.ggml.tokens"]) == config["vocab_size"]
    assert all(keys["tokenizer.ggml.tokens"][i] == text for text, i in vocabulary.items())
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    assert keys["tokenizer.ggml.merges"] == merges
    block = dict(BLOCK)
    if any("post_feedforward" in name for name in weights):
        block.update(BEHIND)
    if architecture == "phi3":
        block["ffn_up"] = "mlp.gate_up_proj"
    seen = set()
    for name, sizes, kind, data in tensors:
        part = name.split(".")
        if name.startswith("rope_f"):
            continue
        own = NAMES[part[0]] + "." + part[1] if part[0] in NAMES else "model.layers.%s.%s.%s" % (
            part[1], block[part[2]], part[3])
        shape, numbers = weights[own]
        assert list(reversed(sizes)) == shape, name
        if architecture in ONE_MORE and "norm" in name:
            numbers = [1 + number for number in numbers]
        if architecture in PAIRS and len(part) == 4 and part[2] in heads:
            numbers = rows_in_pairs(shape, numbers, heads[part[2]])
        check_tensor(name, kind, data, numbers)
        seen.add(own)
    left = set(weights) - seen
    assert not left, left
    print("%s: %d tensors" % (architecture, len(tensors)))


main()
