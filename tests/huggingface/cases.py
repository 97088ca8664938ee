#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Folders of which it matters what stands where: for each property the file and the key that counts.

    cases.py list              the names
    cases.py make NAME FOLDER  that folder, from tests/huggingface/models and the standard library alone
    cases.py make-all FOLDER   all of them, each in a folder of its name there
    cases.py expect            cases.txt: of each folder what transformers makes of it (needs transformers)

A line of cases.txt: the name, the loss of TEXT in float32, the tokens of a greedy continuation of its first 24 bytes up to
the one that ends it; or `refused`.  A case that has a message is refused by the trainer with it, whatever transformers
does.  docs/huggingface-folders.md has the table of properties; each row names its cases here.
"""

import json
import os
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "The other 1234 <|user|>Hour and<|bot|> in an<x> hand</s> e\u0301"
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 31232\n"


# ---- files ----

def read(folder, name):
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def write(folder, name, text):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write(text if isinstance(text, str) else json.dumps(text, indent=1, ensure_ascii=False))


def keys(name, **values):
    """Keys of a JSON file; None stands for null, ... for a key that is taken out."""
    def change(folder):
        about = read(folder, name)
        for key, value in values.items():
            about.pop(key, None)
            if value is not ...:
                about[key] = value
        write(folder, name, about)
    return change


def config(**values):
    return keys("config.json", **values)


def tokenizer_config(**values):
    return keys("tokenizer_config.json", **values)


def tokenizer(**values):
    return keys("tokenizer.json", **values)


def doubled(name, key, first, last):
    def change(folder):
        about = read(folder, name)
        about.pop(key, None)
        write(folder, name, f'{{"{key}": {json.dumps(first)}, ' + json.dumps(about)[1:-1] + f', "{key}": {json.dumps(last)}}}')
    return change


def file(name, text):
    return lambda folder: write(folder, name, text)


def without(*names):
    return lambda folder: [os.remove(f"{folder}/{name}") for name in names]


def special(content, **flags):
    return dict({"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": True}, **flags)


# ---- weights, with the standard library ----

def load(path):
    with open(path, "rb") as file_:
        length = struct.unpack("<Q", file_.read(8))[0]
        header = json.loads(file_.read(length))
        data = file_.read()
    header.pop("__metadata__", None)
    return {name: (about["dtype"], about["shape"], data[slice(*about["data_offsets"])]) for name, about in header.items()}


def save(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, bytes_) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file_:
        file_.write(struct.pack("<Q", len(text)) + text + data)


def other(tensors):
    """Other weights of the same shapes: rows turned by one place."""
    return {name: (dtype, shape, bytes_[2:] + bytes_[:2]) for name, (dtype, shape, bytes_) in tensors.items()}


def sharded(changed=None, keep_single=False, also=None, unlisted=None):
    """Two shards and their index of the folder's weights, or of others.  also: a tensor that the second shard has too,
    with other numbers; unlisted: one that the index does not name."""
    def change(folder):
        tensors = load(f"{folder}/model.safetensors")
        tensors = changed(tensors) if changed else tensors
        names = sorted(tensors)
        parts = (names[: len(names) // 2], names[len(names) // 2:])
        where = {}
        for i, part in enumerate(parts):
            name = f"model-0000{i + 1}-of-00002.safetensors"
            held = {n: tensors[n] for n in part}
            if also and i == 1:
                held[also] = other(tensors)[also]
            save(f"{folder}/{name}", held)
            where.update({n: name for n in part if n != unlisted})
        write(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": where})
        if not keep_single:
            os.remove(f"{folder}/model.safetensors")
    return change


def renamed(old, new):
    return lambda folder: os.rename(f"{folder}/{old}", f"{folder}/{new}")


def rows(count):
    """The embedding and the head with the first `count` rows."""
    def change(folder):
        tensors = load(f"{folder}/model.safetensors")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            dtype, shape, bytes_ = tensors[name]
            tensors[name] = (dtype, [count, shape[1]], bytes_[: len(bytes_) // shape[0] * count])
        save(f"{folder}/model.safetensors", tensors)
        keys("config.json", vocab_size=count)(folder)
    return change


def more_rows(count):
    """Rows for tokens that are added: copies of the first ones."""
    def change(folder):
        tensors = load(f"{folder}/model.safetensors")
        for name in tensors:
            dtype, shape, bytes_ = tensors[name]
            if name in ("model.embed_tokens.weight", "lm_head.weight", "transformer.wte.weight"):
                row = len(bytes_) // shape[0]
                tensors[name] = (dtype, [shape[0] + count, shape[1]], bytes_ + bytes_[row * 5: row * (5 + count)])
        save(f"{folder}/model.safetensors", tensors)
        keys("config.json", vocab_size=read(folder, "config.json")["vocab_size"] + count)(folder)
    return change


PLAIN = tokenizer_config(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>")
ROWS = more_rows(6)
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10.0}
LINEAR = {"rope_type": "linear", "factor": 2.0}

# name, model, message with which the trainer refuses it (None: it does not), changes
CASES = [
    ("plain", "llama", None, [PLAIN]),
    ("plain-gpt2", "gpt2", None, [PLAIN]),
    # weights: which file
    ("weights-single-before-index", "llama", None, [PLAIN, sharded(other, keep_single=True)]),
    ("weights-index", "llama", None, [PLAIN, sharded()]),
    ("weights-index-other-name", "llama", "no weights that can be read: model.safetensors is not there, old.safetensors",
     [PLAIN, renamed("model.safetensors", "old.safetensors")]),
    ("weights-last-shard-wins", "llama", None, [PLAIN, sharded(also="model.embed_tokens.weight")]),
    ("weights-not-in-index", "llama", None, [PLAIN, sharded(unlisted="model.embed_tokens.weight")]),
    ("weights-pointer", "llama", "model.safetensors: is a Git LFS pointer, which stands for a file that was not fetched: `git lfs pull`",
     [PLAIN, file("model.safetensors", POINTER)]),
    ("weights-shard-pointer", "llama", "model-00002-of-00002.safetensors: is a Git LFS pointer",
     [PLAIN, sharded(), file("model-00002-of-00002.safetensors", POINTER)]),
    ("weights-pytorch-alone", "llama", "model.safetensors is not there, pytorch_model.bin is PyTorch's own format",
     [PLAIN, without("model.safetensors"), file("pytorch_model.bin", "")]),
    ("weights-pytorch-too", "llama", None, [PLAIN, file("pytorch_model.bin", "")]),
    ("weights-named-elsewhere", "llama", "transformers_weights is \"other.safetensors\"",
     [PLAIN, config(transformers_weights="other.safetensors")]),
    ("weights-none", "llama", "no weights: neither model.safetensors nor model.safetensors.index.json is there; download them into the folder",
     [PLAIN, without("model.safetensors")]),
    # config.json: keys
    ("key-doubled", "llama", None, [PLAIN, doubled("config.json", "rms_norm_eps", 1e-6, 0.5)]),
    ("key-doubled-section", "llama", None,
     [PLAIN, doubled("config.json", "rope_parameters", LINEAR, {"rope_type": "default", "rope_theta": 300.0})]),
    ("key-nan-unread", "llama", None, [PLAIN, config(note=float("nan"), other=float("-inf"))]),
    ("key-nan-read", "llama", "rms_norm_eps must be a number", [PLAIN, config(rms_norm_eps=float("nan"))]),
    ("key-null", "llama", "hidden_size is null: give its value, or leave the key out", [PLAIN, config(hidden_size=None)]),
    ("key-byte-order-mark", "llama", "byte 0: not JSON: a byte order mark in front",
     [PLAIN, lambda folder: write(folder, "config.json", "\ufeff" + json.dumps(read(folder, "config.json")))]),
    ("config-pointer", "llama", "config.json: is a Git LFS pointer", [PLAIN, file("config.json", POINTER)]),
    ("alias-gpt2", "gpt2", None, [PLAIN, config(n_head=1, num_attention_heads=2)]),
    ("activation-swish", "llama", None, [PLAIN, config(hidden_act="swish")]),
    ("activation-fast", "gpt2", None, [PLAIN, config(activation_function="gelu_fast")]),
    ("activation-erf", "gpt2", "activation_function is \"gelu\", which is not supported; supported: gelu_new",
     [PLAIN, config(activation_function="gelu")]),
    ("bias-unread", "mistral", None, [PLAIN, config(attention_bias=True, mlp_bias=True)]),
    ("code-of-its-own", "llama", None, [PLAIN, config(auto_map={"AutoModelForCausalLM": "modeling.Own"})]),
    # positions
    ("rope-scaling-first", "llama", None,
     [PLAIN, config(rope_scaling=LINEAR, rope_parameters={"rope_type": "default", "rope_theta": 300.0})]),
    ("rope-scaling-empty", "llama", None, [PLAIN, config(rope_scaling={}, rope_parameters=dict(LINEAR, rope_theta=300.0))]),
    ("rope-scaling-null", "llama", None,
     [PLAIN, config(rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 300.0})]),
    ("rope-theta-section-first", "llama", None,
     [PLAIN, config(rope_theta=20.0, rope_parameters={"rope_type": "default", "rope_theta": 300.0})]),
    ("rope-theta-top", "llama", None, [PLAIN, config(rope_theta=300.0, rope_parameters=...)]),
    ("rope-theta-large", "llama", None, [PLAIN, config(rope_theta=4e10, rope_parameters=...)]),
    ("rope-theta-null", "llama", "rope_theta is null", [PLAIN, config(rope_theta=None, rope_parameters=...)]),
    ("rope-type-older-name", "llama", None, [PLAIN, config(rope_parameters=..., rope_scaling={"type": "linear", "factor": 4})]),
    ("rope-type-newer-first", "llama", None,
     [PLAIN, config(rope_parameters=..., rope_scaling={"type": "linear", "rope_type": "default", "factor": 4})]),
    ("yarn-length-top-first", "llama", None,
     [PLAIN, config(original_max_position_embeddings=16, rope_parameters=dict(YARN, original_max_position_embeddings=32))]),
    ("yarn-length-top", "llama", None, [PLAIN, config(original_max_position_embeddings=16, rope_parameters=YARN)]),
    ("yarn-length-section", "llama", None, [PLAIN, config(rope_parameters=dict(YARN, original_max_position_embeddings=32))]),
    ("yarn-length-all", "llama", None, [PLAIN, config(rope_parameters=YARN)]),
    ("yarn-factor-null", "llama", None,
     [PLAIN, config(original_max_position_embeddings=16, rope_parameters=dict(YARN, factor=None))]),
    ("yarn-mscale", "llama", None, [PLAIN, config(rope_parameters=dict(YARN, original_max_position_embeddings=16, mscale=1.0,
                                                                       mscale_all_dim=0.5))]),
    ("yarn-mscale-alone", "llama", None,
     [PLAIN, config(rope_parameters=dict(YARN, original_max_position_embeddings=16, mscale=0.7))]),
    ("llama3-length-all", "llama", None, [PLAIN, config(rope_parameters=dict(LLAMA3, rope_theta=10000.0))]),
    ("llama3-length-top-first", "llama", None,
     [PLAIN, config(original_max_position_embeddings=16,
                    rope_parameters=dict(LLAMA3, rope_theta=10000.0, original_max_position_embeddings=32))]),
    ("rotary-share-default", "llama", None, [PLAIN, config(partial_rotary_factor=0.5)]),
    ("rotary-share-scaled", "llama", "partial_rotary_factor is 0.5",
     [PLAIN, config(partial_rotary_factor=0.5, rope_scaling=LINEAR, rope_parameters=...)]),
    # windows
    ("window-in-no-layer", "qwen3", None,
     [PLAIN, config(use_sliding_window=True, sliding_window=4, max_window_layers=2, layer_types=...)]),
    ("window-not-asked-for", "qwen3", None,
     [PLAIN, config(use_sliding_window=False, sliding_window=4, max_window_layers=0, layer_types=...)]),
    ("window-layers-first", "qwen3", None,
     [PLAIN, config(use_sliding_window=True, sliding_window=4, max_window_layers=0, layer_types=["full_attention"] * 2)]),
    ("window-in-a-layer", "qwen3", None,
     [PLAIN, config(use_sliding_window=True, sliding_window=4, max_window_layers=1, layer_types=...)]),
    ("window-of-another-type", "llama", "sliding_window is 4, which is not supported; supported: none for this model_type",
     [PLAIN, config(sliding_window=4)]),
    ("window-of-types", "qwen3", None,
     [PLAIN, config(use_sliding_window=True, sliding_window=4, max_window_layers=2,
                    layer_types=["sliding_attention", "full_attention"])]),
    ("window-everywhere", "mistral", None, [PLAIN, config(sliding_window=4)]),
    ("window-as-long", "mistral", None, [PLAIN, config(sliding_window=64)]),
    # adapters
    ("adapter-there", "llama", None, [PLAIN, lambda folder: adapter(folder)]),
    # tokenizer: files next to tokenizer.json
    ("tokens-decoder", "llama", None, [PLAIN, ROWS, tokenizer_config(added_tokens_decoder={
        "0": special("<|endoftext|>"), "272": special("<|user|>"), "273": special("<|bot|>")})]),
    ("tokens-decoder-numbers-order-alone", "llama", None, [PLAIN, ROWS, tokenizer_config(added_tokens_decoder={
        "301": special("<|user|>"), "300": special("<|bot|>", lstrip=True)})]),
    ("tokens-decoder-before-map", "llama", None, [PLAIN, ROWS, tokenizer_config(added_tokens_decoder={
        "272": special("<|user|>")}), file("special_tokens_map.json", {"pad_token": "<|bot|>", "eos_token": "<x>"})]),
    ("tokens-map", "llama", None, [PLAIN, ROWS, file("special_tokens_map.json", {
        "pad_token": special("<|bot|>", rstrip=True), "additional_special_tokens": ["<|user|>"]})]),
    ("tokens-added-file", "llama", None, [PLAIN, ROWS, file("added_tokens.json", {"<|bot|>": 273, "<|user|>": 272})]),
    ("tokens-extra", "llama", None, [PLAIN, ROWS, tokenizer_config(extra_special_tokens=["<|user|>", "<x>"])]),
    ("tokens-additional", "llama", None, [PLAIN, ROWS, tokenizer_config(additional_special_tokens=["<|user|>", "<x>"])]),
    ("tokens-roles", "llama", None, [PLAIN, ROWS, tokenizer_config(pad_token="<x>", bos_token="<|user|>")]),
    ("tokens-role-of-a-model", "llama", None, [PLAIN, ROWS, tokenizer_config(image_token="<|user|>")]),
    ("tokens-of-padding", "llama", None, [PLAIN, ROWS, tokenizer(padding={
        "strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 5, "pad_type_id": 0,
        "pad_token": "<x>"})]),
    ("tokens-without-rows", "llama", None, [PLAIN, tokenizer_config(pad_token="[PAD]")]),
    ("tokens-without-rows-in-text", "llama", "the text makes token 272 (`<|user|>`), but the model has 272 rows",
     [PLAIN, tokenizer_config(pad_token="<|user|>")]),
    ("truncation", "llama", None, [PLAIN, tokenizer(truncation={
        "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0})]),
    ("class-gpt2", "gpt2", None, [ROWS, tokenizer_config(tokenizer_class="GPT2Tokenizer", add_prefix_space=True)]),
    ("class-of-the-type", "gpt2", None, [tokenizer(normalizer={"type": "Lowercase"})]),
    ("class-as-written", "gpt2", None, [PLAIN, tokenizer_config(add_prefix_space=True), tokenizer(normalizer={"type": "Lowercase"})]),
    ("class-qwen2-always", "qwen2", None, [PLAIN]),
    ("class-of-config", "llama", None, [config(tokenizer_class="Qwen2Tokenizer")]),
    ("class-llama-of-bytes", "llama", None, [tokenizer_config(tokenizer_class="LlamaTokenizer", eos_token="<|endoftext|>")]),
    ("class-mistral-never", "mistral", None,
     [tokenizer_config(tokenizer_class="GPT2Tokenizer", eos_token="<|endoftext|>", add_prefix_space=True)]),
    ("class-unknown", "llama", "tokenizer_class is OwnTokenizer, which makes its tokenizer in a way that is not known here",
     [tokenizer_config(tokenizer_class="OwnTokenizer")]),
    ("begin-flag-unread", "llama", None, [PLAIN, tokenizer_config(add_bos_token=True, bos_token="<|endoftext|>")]),
    ("special-tokens-split", "llama", "split_special_tokens is true", [PLAIN, tokenizer_config(split_special_tokens=True)]),
    ("tokenizer-pointer", "llama", "tokenizer.json: is a Git LFS pointer", [PLAIN, file("tokenizer.json", POINTER)]),
    # where a text ends
    ("end-generation-first", "llama", None, [PLAIN, config(eos_token_id=[200, 201]),
                                             file("generation_config.json", {"eos_token_id": list(range(100, 272))})]),
    ("end-config", "llama", None, [PLAIN, config(eos_token_id=list(range(100, 272)))]),
    ("end-generation-without", "llama", None, [PLAIN, config(eos_token_id=list(range(272))),
                                               file("generation_config.json", {"bos_token_id": 0})]),
    ("end-generation-broken", "llama", None, [PLAIN, config(eos_token_id=list(range(100, 272))),
                                              file("generation_config.json", "")]),
    ("end-generation-doubled", "llama", None,
     [PLAIN, file("generation_config.json", '{"eos_token_id": 5, "eos_token_id": ' + json.dumps(list(range(100, 272))) + "}")]),
]


def adapter(folder):
    """LoRA of rank 1 on q_proj of the first layer: A all 1/4, B all 1/2, in bf16's bits."""
    width = read(folder, "config.json")["hidden_size"]
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    tensors = {}
    for layer in range(read(folder, "config.json")["num_hidden_layers"]):
        tensors[name.format(layer, "A")] = ("F32", [1, width], struct.pack("<f", 0.25) * width)
        tensors[name.format(layer, "B")] = ("F32", [width, 1], struct.pack("<f", 0.5 * (layer == 0)) * width)
    save(f"{folder}/adapter_model.safetensors", tensors)
    write(folder, "adapter_config.json", {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"],
                                          "task_type": "CAUSAL_LM", "base_model_name_or_path": None})


def make(name, folder):
    _, model, _, changes = next(row for row in CASES if row[0] == name)
    os.makedirs(folder)
    for entry in os.listdir(f"{HERE}/models/{model}"):
        if entry not in ("bound.txt", "expected.bin"):
            shutil.copy(f"{HERE}/models/{model}/{entry}", f"{folder}/{entry}")
    for change in changes:
        change(folder)


def expect(path):
    import tempfile
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    import torch
    import transformers
    transformers.logging.disable_progress_bar()
    lines = []
    for name, _, _, _ in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = f"{scratch}/folder"
            make(name, folder)
            try:
                tokenizer_ = transformers.AutoTokenizer.from_pretrained(folder)
                model, about = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                                 dtype=torch.float32)
                if about["missing_keys"] or about["mismatched_keys"]:
                    raise ValueError("weights would be random")
                tokens = torch.tensor([tokenizer_(TEXT, add_special_tokens=False)["input_ids"]])
                prompt = tokenizer_(TEXT[:24], return_tensors="pt")["input_ids"]
                with torch.no_grad():
                    loss = torch.nn.functional.cross_entropy(model(tokens).logits[0, :-1].double(), tokens[0, 1:]).item()
                    made = model.generate(prompt, max_new_tokens=8, do_sample=False, attention_mask=torch.ones_like(prompt))
                lines.append(f"{name} {tokens.shape[1]} {loss:.6f} " + " ".join(map(str, made[0, prompt.shape[1]:].tolist())))
            except Exception as error:
                print(name, type(error).__name__, str(error)[:90].replace("\n", " "), file=sys.stderr)
                lines.append(f"{name} refused")
    with open(path, "w", encoding="utf-8") as file_:
        file_.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["list"]:
        for row in CASES:
            print(f"{row[0]}\t{row[2] or ''}")
    elif sys.argv[1:] == ["text"]:
        sys.stdout.buffer.write(TEXT.encode())
    elif sys.argv[1:2] == ["make"] and len(sys.argv) == 4:
        make(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["make-all"] and len(sys.argv) == 3:
        for row in CASES:
            make(row[0], f"{sys.argv[2]}/{row[0]}")
    elif sys.argv[1:] == ["expect"]:
        expect(f"{HERE}/cases.txt")
    else:
        sys.exit(__doc__)
