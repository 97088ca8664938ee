#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""folders.py TRAINER COUNT [SEED [KEEP]]: models' folders, changed at random, read by transformers and by the trainer.

Each folder is one of a few small models that transformers made, with one to three changes: files that are missing,
doubled, emptied or stale, keys that are doubled, moved, removed or contradict each other, tokens that one file names and
another does not.  Both read it and compute the loss of one text (its markers are special tokens) and a greedy
continuation.  One of:

    equal       the same loss and the same tokens up to the same end
    refused     both refuse; transformers also where it would fill weights in with random numbers
    ours        the trainer refuses what transformers takes, counted by the reason
    theirs      the trainer takes what transformers refuses
    different   both take it, with another result

The last line has the counts.  Exit code 1 where anything is in the last two kinds, or over 2% of what transformers takes
is refused.  KEEP: a folder for copies of those.
"""

import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
try:
    import numpy
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

TEXT = "the quick <|user|>brown fox</s> Hour in \u00e9 <|bot|> and [PAD]another  the  <x>hand<|endoftext|>then the <s>ring"
TOLERANCE = 2e-4
BASE = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128)
GPT2 = dict(n_embd=16, n_layer=2, n_head=2, n_positions=128)
MERGES = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("o", "u"), ("e", "r"), ("an", "d"), ("h", "a"), ("SP", "the"),
          ("SP", "a"), ("SP", "and"), ("in", "g"), ("o", "n"), ("r", "e"), ("e", "n")]
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")


# ---- the folders that changes begin from ----

def merges_with(space):
    return [(a.replace("SP", space), b) for a, b in MERGES]


def byte_level(first, split=None, normalizer=None):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = merges_with("\u0120")
    vocabulary = first + alphabet + [a + b for a, b in merges]
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=merges))
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    made.pre_tokenizer = cut if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), cut])
    if normalizer:
        made.normalizer = normalizer
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in first])
    return made


def metaspace():
    merges = merges_with("\u2581")
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    pieces += sorted(set("\u2581abcdefghijklmnopqrstuvwxyz")) + [a + b for a, b in merges]
    made = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges, byte_fallback=True,
                                fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return made


def spread(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_((0.1 if parameter.dim() == 1 else 0.5) * torch.randn_like(parameter))


def make_bases(folder):
    fast = transformers.PreTrainedTokenizerFast
    end = ["<|endoftext|>"]
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    ends = dict(bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    plain = fast(tokenizer_object=byte_level(end), **ends)
    qwen = byte_level(end, transformers.models.qwen2.tokenization_qwen2.PRETOKENIZE_REGEX, normalizers.NFC())
    older = fast(tokenizer_object=metaspace(), bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    three = fast(tokenizer_object=byte_level(["<|begin_of_text|>", "<|end_of_text|>"], LLAMA3_SPLIT),
                 bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")
    rows = [
        ("gpt2", "GPT2", GPT2, plain, 0), ("gpt2-untied", "GPT2", dict(GPT2, tie_word_embeddings=False), plain, 0),
        ("llama", "Llama", dict(BASE, num_key_value_heads=2), plain, 0),
        ("llama2", "Llama", dict(BASE, tie_word_embeddings=True), older, 0),
        ("llama3", "Llama", dict(BASE, rope_parameters=llama3), three, 0),
        ("llama-yarn", "Llama", dict(BASE, rope_parameters=yarn), plain, 0),
        ("mistral", "Mistral", dict(BASE, num_key_value_heads=2, sliding_window=None), older, 0),
        ("qwen2", "Qwen2", dict(BASE, num_key_value_heads=2), fast(tokenizer_object=qwen, **ends), 1),
        ("qwen3", "Qwen3", dict(BASE, num_key_value_heads=2, head_dim=8), fast(tokenizer_object=qwen, **ends), 0),
    ]
    for name, kind, shape, tokenizer, shards in rows:
        config = getattr(transformers, kind + "Config")(**shape, vocab_size=len(tokenizer) + 8, bos_token_id=0,
                                                        eos_token_id=tokenizer.eos_token_id)
        torch.manual_seed(len(name))
        model = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, kind + "ForCausalLM"))(config)
        spread(model)
        model.save_pretrained(f"{folder}/{name}", **({"max_shard_size": "12KB"} if shards else {}))
        tokenizer.save_pretrained(f"{folder}/{name}")
    return [name for name, *_ in rows]


# ---- changes: each takes a folder and a source of randomness, and says what it did, or None ----

def read_json(folder, name):
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            value = json.load(file)
        return value if isinstance(value, dict) else None
    except (OSError, ValueError):
        return None


def write_json(folder, name, value):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)


def weights_of(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors") and not name.startswith("adapter"):
            try:
                tensors.update(load_file(f"{folder}/{name}"))
            except Exception:  # an earlier change broke it
                return None
    return tensors or None


def shard(folder, tensors, draw, stem="model"):
    names = sorted(tensors)
    draw.shuffle(names)
    cut = draw.randrange(1, len(names)) if len(names) > 1 else 1
    where = {}
    for i, part in enumerate((names[:cut], names[cut:])):
        file = f"{stem}-0000{i + 1}-of-00002.safetensors"
        save_file({n: tensors[n].contiguous() for n in part}, f"{folder}/{file}", metadata={"format": "pt"})
        where.update({n: file for n in part})
    write_json(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def noisy(tensors):
    return {n: t + 0.3 * torch.randn(t.shape).to(t.dtype) for n, t in tensors.items()}


def files_change(folder, draw):
    names = sorted(name for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}"))
    if not names:
        return None
    kind = draw.choice(["remove", "empty", "lfs", "stale index", "single next to shards", "shard", "rename", "bin", "junk",
                        "doubled tensor", "stray shard", "map less", "map wrong", "folder", "bytes"])
    name = draw.choice(names)
    if kind == "remove":
        os.remove(f"{folder}/{name}")
    elif kind == "empty":
        open(f"{folder}/{name}", "w").close()
    elif kind == "lfs":
        with open(f"{folder}/{name}", "w") as file:
            file.write("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n")
    elif kind == "bytes":
        with open(f"{folder}/{name}", "rb") as file:
            bytes_ = bytearray(file.read())
        if not bytes_:
            return None
        at = draw.randrange(min(len(bytes_), 2000))
        bytes_[at:at + draw.choice([0, 1])] = draw.choice([b"", b"{", b"}", b",", b'"', b"\xff", b"0"])
        with open(f"{folder}/{name}", "wb") as file:
            file.write(bytes_)
    elif kind == "rename":
        os.rename(f"{folder}/{name}", f"{folder}/{draw.choice(['old-', 'x'])}{name}")
    elif kind == "bin":
        open(f"{folder}/pytorch_model.bin", "w").write("not a pickle")
    elif kind == "junk":
        open(f"{folder}/{draw.choice(['README.md', 'consolidated.safetensors', 'training_args.bin', 'vocab.json'])}",
             "w").write("{}")
    elif kind == "folder":
        os.makedirs(f"{folder}/{draw.choice(['checkpoint-5', 'onnx', '.git'])}", exist_ok=True)
    else:
        tensors = weights_of(folder)
        if not tensors:
            return None
        single = os.path.isfile(f"{folder}/model.safetensors")
        if kind == "stale index":
            if not single:
                return None
            shard(folder, noisy(tensors), draw)
        elif kind == "single next to shards":
            save_file(noisy(tensors), f"{folder}/model.safetensors", metadata={"format": "pt"})
        elif kind == "shard":
            if single:
                os.remove(f"{folder}/model.safetensors")
            shard(folder, tensors, draw)
        else:
            if single:
                os.remove(f"{folder}/model.safetensors")
                shard(folder, tensors, draw)
            index = read_json(folder, "model.safetensors.index.json")
            if not index or not index.get("weight_map"):
                return None
            where = index["weight_map"]
            tensor, file = draw.choice(sorted(where)), draw.choice(sorted(set(where.values())))
            if kind == "doubled tensor":
                part = load_file(f"{folder}/{file}")
                part[tensor] = noisy(tensors)[tensor]
                save_file(part, f"{folder}/{file}", metadata={"format": "pt"})
            elif kind == "stray shard":
                save_file(noisy({tensor: tensors[tensor]}), f"{folder}/model-00003-of-00002.safetensors",
                          metadata={"format": "pt"})
            elif kind == "map less":
                del where[tensor]
                write_json(folder, "model.safetensors.index.json", index)
            else:
                where[tensor] = file
                write_json(folder, "model.safetensors.index.json", index)
    return f"files: {kind} {name}"


UNREAD = {"attention_dropout_extra": 0.1, "note": "a note", "use_cache": True, "pretraining_tp": 1, "_name_or_path": "x",
          "torch_dtype": "float32", "initializer_range": 0.02, "bos_token_id": 1, "pad_token_id": 0, "unsloth_version": "1",
          "quantization_config": None, "auto_map": None, "head_type": None, "num_experts": None}
VALUES = {
    "rope_theta": [10000, 10000.0, 500000.0, 4e10, 2], "rms_norm_eps": [1e-5, 1e-6, 1e-3],
    "layer_norm_epsilon": [1e-5, 1e-3], "tie_word_embeddings": [True, False], "hidden_act": ["silu", "silu", "swish", "gelu"],
    "activation_function": ["gelu_new", "gelu_pytorch_tanh", "gelu", "gelu_fast"],
    "num_attention_heads": [2, 4, 8, 3], "n_head": [2, 4, 8], "num_key_value_heads": [1, 2, 4, None],
    "head_dim": [4, 8, None], "num_hidden_layers": [1, 2, 3], "n_layer": [1, 2], "intermediate_size": [24, 32],
    "vocab_size": [280, 282, 290], "max_position_embeddings": [64, 128, 256], "n_positions": [128, 64],
    "n_inner": [64, None], "sliding_window": [4, 64, 4096, None], "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2, 28], "layer_types": [["full_attention"] * 2, ["full_attention", "sliding_attention"]],
    "attention_bias": [True, False], "mlp_bias": [True, False], "eos_token_id": [0, 2, [0, 2], [3], None],
    "partial_rotary_factor": [1.0, 0.5], "original_max_position_embeddings": [16, 32, 64],
    "model_type": ["llama", "mistral", "qwen2", "qwen3", "gpt2", "phi", "gemma"],
    "architectures": [["LlamaForCausalLM"], ["LlamaModel"], None], "dtype": ["float32", "bfloat16", "float16"],
    "hidden_size": [16, 32], "n_embd": [16, 32], "scale_attn_weights": [True, False],
    "scale_attn_by_inverse_layer_idx": [False, False, True], "tokenizer_class": ["LlamaTokenizer", "GPT2Tokenizer"],
    "rope_scaling": [None, {}, {"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 4.0},
                     {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
                     {"rope_type": "yarn", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0},
                     {"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5},
                     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}],
    "rope_parameters": [None, {}, {"rope_type": "default", "rope_theta": 300.0},
                        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
                        {"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0,
                                                   "original_max_position_embeddings": 16, "beta_fast": None}],
}


def config_change(folder, draw):
    config = read_json(folder, "config.json")
    if config is None:
        return None
    kind = draw.choice(["set", "set", "set", "set", "remove", "null", "double", "double", "unread", "nan", "move"])
    key = draw.choice(sorted(VALUES) if kind in ("set", "double") else sorted(config))
    if kind == "set":
        value = config[key] = draw.choice(VALUES[key])
        write_json(folder, "config.json", config)
        return f"config.json: {key} = {value}"
    if kind == "double":
        text = json.dumps(config)
        value = json.dumps(draw.choice(VALUES[key]))
        first = draw.random() < 0.5
        text = "{" + (f'"{key}": {value}, ' if first else "") + text[1:-1] + ("" if first else f', "{key}": {value}') + "}"
        open(f"{folder}/config.json", "w").write(text)
        return f"config.json: {key} also {value}, {'first' if first else 'last'}"
    if kind == "remove":
        del config[key]
    elif kind == "null":
        config[key] = None
    elif kind == "unread":
        key = draw.choice(sorted(UNREAD))
        config[key] = UNREAD[key]
    elif kind == "nan":
        key = draw.choice(["attention_note", "summary_first_dropout", "note"])
        config[key] = draw.choice([float("nan"), float("inf"), float("-inf")])
    else:
        rope = config.pop("rope_parameters", None)
        if not rope:
            return None
        key = draw.choice(["rope_scaling", "flat", "half", "type"])
        if key == "rope_scaling":
            config["rope_scaling"] = rope
        elif key == "flat":
            config["rope_theta"] = rope.get("rope_theta", 10000.0)
            config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
        elif key == "half":
            config["rope_theta"] = rope.pop("rope_theta", 10000.0) * draw.choice([1, 2])
            config["rope_parameters"] = rope
            if "original_max_position_embeddings" in rope and draw.random() < 0.5:
                config["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")
        else:
            rope["type"] = rope.pop("rope_type", "default")
            config["rope_scaling"] = rope
    write_json(folder, "config.json", config)
    return f"config.json: {kind} {key}"


MARKERS = ["<|user|>", "<|bot|>", "[PAD]", "<x>", "</s>", "<|endoftext|>", "<s>", "the", "and"]


def added(content, draw, number=None):
    token = {"content": content, "single_word": draw.random() < 0.1, "lstrip": draw.random() < 0.2,
             "rstrip": draw.random() < 0.2, "normalized": draw.random() < 0.2, "special": draw.random() < 0.7}
    return token if number is None else dict(id=number, **token)


def tokenizer_config_change(folder, draw):
    config = read_json(folder, "tokenizer_config.json")
    if config is None:
        config = {}
    kind = draw.choice(["class", "class", "role", "role", "decoder", "extra", "prefix", "begin", "template", "remove", "legacy",
                        "nan", "double", "length", "split"])
    if kind == "class":
        config["tokenizer_class"] = draw.choice(["GPT2Tokenizer", "GPT2TokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast",
                                                 "Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast",
                                                 "TokenizersBackend"])
    elif kind == "role":
        role = draw.choice(["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "eos_token", "image_token"])
        content = draw.choice(MARKERS)
        config[role] = draw.choice([content, None, dict(added(content, draw), __type="AddedToken")])
    elif kind == "decoder":
        size = draw.choice([272, 273, 274, 300, 305])
        tokens = draw.sample(MARKERS, draw.randrange(1, 4))
        config["added_tokens_decoder"] = {str(size + i): added(token, draw) for i, token in enumerate(tokens)}
    elif kind == "extra":
        config[draw.choice(["extra_special_tokens", "additional_special_tokens"])] = draw.sample(MARKERS, 2)
    elif kind == "prefix":
        config["add_prefix_space"] = draw.choice([True, False, None])
    elif kind == "begin":
        config[draw.choice(["add_bos_token", "add_eos_token"])] = draw.choice([True, False])
    elif kind == "template":
        config["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    elif kind == "legacy":
        config["legacy"] = draw.choice([True, False, None])
    elif kind == "nan":
        config["model_max_length"] = float("inf")
    elif kind == "length":
        config["model_max_length"] = draw.choice([512, 1000000000000000019884624838656])
    elif kind == "split":
        config["clean_up_tokenization_spaces"] = draw.choice([True, False])
    elif kind == "remove":
        if not config:
            return None
        del config[draw.choice(sorted(config))]
    else:
        value = json.dumps(draw.choice(MARKERS))
        text = json.dumps(config)
        open(f"{folder}/tokenizer_config.json", "w").write(
            "{" + text[1:-1] + (", " if config else "") + f'"eos_token": {value}' + "}")
        return "tokenizer_config.json: doubled"
    write_json(folder, "tokenizer_config.json", config)
    return f"tokenizer_config.json: {kind}"


def older_files_change(folder, draw):
    if draw.random() < 0.5:
        write_json(folder, "special_tokens_map.json", draw.choice([
            {"eos_token": draw.choice(MARKERS)}, {"pad_token": added("[PAD]", draw), "eos_token": "</s>"},
            {"additional_special_tokens": draw.sample(MARKERS, 2)}, {"extra_special_tokens": draw.sample(MARKERS, 2)}]))
        return "special_tokens_map.json"
    size = draw.choice([272, 273, 274, 301])
    write_json(folder, "added_tokens.json", {token: size + i for i, token in enumerate(draw.sample(MARKERS, 2))})
    return "added_tokens.json"


def tokenizer_change(folder, draw):
    made = read_json(folder, "tokenizer.json")
    if made is None or "model" not in made:
        return None
    kind = draw.choice(["truncation", "padding", "added", "post", "normalizer", "ignore_merges", "prefix", "older merges",
                        "decoder", "drop"])
    size = len(made["model"]["vocab"])
    if kind == "truncation":
        made["truncation"] = {"direction": "Right", "max_length": 12, "strategy": "LongestFirst", "stride": 0}
    elif kind == "padding":
        made["padding"] = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                           "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    elif kind == "added":
        present = [token["content"] for token in made.get("added_tokens", [])]
        fresh = [token for token in MARKERS if token not in present and token not in made["model"]["vocab"]]
        for token in draw.sample(fresh, min(len(fresh), draw.randrange(1, 3))):
            last = max([token["id"] for token in made["added_tokens"]] + [size - 1])
            made["added_tokens"].append(added(token, draw, max(last + 1, size)))
    elif kind == "post":
        first = made["added_tokens"][0]["content"] if made.get("added_tokens") else None
        if not first:
            return None
        made["post_processor"] = {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": first, "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {first: {"id": first, "ids": [made["added_tokens"][0]["id"]], "tokens": [first]}}}
    elif kind == "normalizer":
        made["normalizer"] = draw.choice([None, {"type": "Lowercase"}, {"type": "NFC"},
                                          {"type": "Replace", "pattern": {"String": "e"}, "content": "a"}])
    elif kind == "ignore_merges":
        made["model"]["ignore_merges"] = not made["model"].get("ignore_merges")
    elif kind == "prefix":
        cut = made.get("pre_tokenizer")
        if not cut or cut["type"] != "ByteLevel":
            return None
        cut["add_prefix_space"] = True
    elif kind == "older merges":
        made["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in made["model"]["merges"]]
    elif kind == "decoder":
        made["decoder"] = None
    else:
        made.pop(draw.choice(["version", "truncation", "padding", "normalizer", "post_processor"]), None)
    write_json(folder, "tokenizer.json", made)
    return f"tokenizer.json: {kind}"


def generation_change(folder, draw):
    kind = draw.choice(["remove", "eos", "double", "other"])
    if kind == "remove":
        if not os.path.exists(f"{folder}/generation_config.json"):
            return None
        os.remove(f"{folder}/generation_config.json")
        return "generation_config.json: removed"
    about = read_json(folder, "generation_config.json") or {}
    if kind == "double":
        open(f"{folder}/generation_config.json", "w").write(
            '{"eos_token_id": %d, "eos_token_id": %d}' % (draw.randrange(280), draw.randrange(280)))
        return "generation_config.json: doubled"
    if kind == "eos":
        about["eos_token_id"] = draw.choice([None, draw.randrange(280), [draw.randrange(280) for _ in range(60)], [0, 2]])
    else:
        about.update(draw.choice([{"temperature": 0.6, "do_sample": True}, {"top_p": 0.9}, {"max_length": 64}]))
    write_json(folder, "generation_config.json", about)
    return f"generation_config.json: {kind}"


CHANGES = [files_change, config_change, config_change, config_change, tokenizer_config_change, tokenizer_config_change,
           older_files_change, tokenizer_change, generation_change]


# ---- what both make of it ----

def theirs_of(folder):
    """Loss and continuation, or why not."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.device("meta"):  # the defaults of a key that is missing are those of large models
            shape = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
        if sum(parameter.numel() for parameter in shape.parameters()) > 10 ** 6:
            return "a model of another size"
        model, about = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                         dtype=torch.float32)
        if about["missing_keys"] or about["mismatched_keys"]:
            return "weights would be random"
        ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        prompt = tokenizer(TEXT[:40], return_tensors="pt")["input_ids"]
        if max(ids + prompt[0].tolist()) >= model.get_input_embeddings().weight.shape[0]:
            return "a token without a row"
        with torch.no_grad():
            tokens = torch.tensor([ids])
            loss = torch.nn.functional.cross_entropy(model(tokens).logits[0, :-1].double(), tokens[0, 1:]).item()
            made = model.generate(prompt, max_new_tokens=5, max_length=None, do_sample=False,
                                  attention_mask=torch.ones_like(prompt))
        return loss, made[0, prompt.shape[1]:].tolist(), len(ids), len(tokenizer)
    except BaseException as error:  # whatever the library raises is a refusal
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"


def ours_of(trainer, folder, text, prompt, length):
    """The same of the trainer.  length: of their tokens, so that one window holds the text."""
    def call(*arguments):
        return subprocess.run([trainer, *arguments, "precision.mode=fp32", "threads=1", "device=cpu"], capture_output=True)
    evaluated = call("eval", "--checkpoint", folder, "--file", text, "--json", f"max_length={length - 1}", "batch_size=1")
    if evaluated.returncode != 0:
        return (evaluated.stderr.decode(errors="replace").strip().splitlines() or [f"exit {evaluated.returncode}"])[-1], \
            evaluated.returncode
    generated = call("generate", "--checkpoint", folder, "--prompt-file", prompt, "--tokens", "5", "--temperature", "0",
                     "--json")
    if generated.returncode != 0:
        return (generated.stderr.decode(errors="replace").strip().splitlines() or [f"exit {generated.returncode}"])[-1], \
            generated.returncode
    sample = json.loads(generated.stdout)["samples"][0]
    tokens = sample["tokens"] + ([sample["ended_by"]] if sample["ended_by"] is not None else [])
    return (json.loads(evaluated.stdout)["tasks"][0]["val_loss"], tokens), 0


def reason_of(message, folder):
    message = message.replace(folder, "")
    message = re.sub(r"\"[^\"]*\"|`[^`]*`|\d+(\.\d+)?(e[+-]?\d+)?", "_", message)
    return message[:110]


def main():
    trainer, count = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    keep = sys.argv[4] if len(sys.argv) > 4 else None
    counts, reasons = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        bases = make_bases(f"{scratch}/bases")
        text, prompt, folder = f"{scratch}/text.txt", f"{scratch}/prompt.txt", f"{scratch}/folder"
        open(text, "w", encoding="utf-8").write(TEXT)
        open(prompt, "w", encoding="utf-8").write(TEXT[:40])
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            torch.manual_seed(number)
            base = draw.choice(bases)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(f"{scratch}/bases/{base}", folder)
            done = []
            if number >= len(bases):
                while len(done) < draw.choice([1, 1, 1, 2, 3]):
                    said = draw.choice(CHANGES)(folder, draw)
                    if said:
                        done.append(said)
            else:  # the bases themselves are equal, or nothing else means anything
                base = bases[number]
                shutil.rmtree(folder)
                shutil.copytree(f"{scratch}/bases/{base}", folder)
            theirs = theirs_of(folder)
            taken = isinstance(theirs, tuple)
            ours, code = ours_of(trainer, folder, text, prompt, theirs[2] if taken else 60)
            if code < 0 or code > 2:
                kind = "different"  # it crashed
            elif not taken:
                kind = "theirs" if code == 0 else "refused"
            elif code != 0:
                kind = "ours"
                reasons[reason_of(ours, folder)] += 1
            else:
                near = abs(ours[0] - theirs[0]) <= TOLERANCE * max(1, abs(theirs[0])) or (
                    numpy.isnan(ours[0]) and numpy.isnan(theirs[0]))
                # Rows that no token has are never drawn here.
                last = next((i for i, token in enumerate(theirs[1]) if token >= theirs[3]), None)
                kind = "equal" if near and ours[1][:last] == theirs[1][:last] else "different"
            counts[kind] += 1
            if kind in ("theirs", "different", "ours"):
                print(f"{number} {kind}: {base}; {'; '.join(done)}\n    theirs: {theirs}\n    ours:   {ours}", flush=True)
                if keep and kind != "ours":
                    shutil.copytree(folder, f"{keep}/{seed}-{number}", dirs_exist_ok=True)
    for reason, times in reasons.most_common():
        print(f"{times:6d}  {reason}")
    taken = counts["equal"] + counts["ours"] + counts["different"]
    share = counts["ours"] / taken if taken else 0
    print(f"{count} folders: {counts['equal']} equal, {counts['refused']} refused by both, {counts['ours']} by us alone "
          f"({100 * share:.2f}% of what transformers takes), {counts['theirs']} taken that transformers refuses, "
          f"{counts['different']} different")
    sys.exit(1 if counts["theirs"] or counts["different"] or share > 0.02 else 0)


if __name__ == "__main__":
    main()
