#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""continued_texts.py BUILD FOLDER [NAME...]: llama.cpp continues prompts with the same text as `trainer generate`.

Of each of MODELS transformers makes a small folder, which is trained on a few sentences until it knows them, with windows
shorter than they are, and written as GGUF in each of FORMATS.  Logits in f32 agree as two programs in f32 do (of Gemma as
far as llama.cpp's GELU allows, a table of f16 numbers), and greedy continuations of PROMPTS pieces of the text are equal,
token by token, in every format.  Skipped, with exit status 0, where transformers or llama-cpp-python are not installed,
unless LLAMA_CPP=required.
"""

import json
import os
import pathlib
import shutil
import sys

try:
    import torch
    import transformers
    import llama_cpp  # noqa: F401
    import compare_exports
    import ggml
except ImportError as error:
    print(f"SKIPPED  llama.cpp: {error}; nothing was compared")
    sys.exit(1 if os.environ.get("LLAMA_CPP") == "required" else 0)

HERE = pathlib.Path(__file__).resolve().parent
FORMATS = ("f32", "bf16", "q8_0")
PROMPTS, GIVEN, ADDED = 6, 40, 60
TEXT = """The river that runs past the mill is slow in summer and quick in spring. A boy from the village counts the boats,
and on some days he counts none. In autumn the leaves fall on the water, and the miller's wife says that winter will be
hard; she has said so for thirty years, and now and then she was right. When the ice breaks up, every child of the village
comes to the bridge to hear it, because it sounds like carts on a road of stone, and no man sleeps until it has gone.
"""
SMALL = dict(vocab_size=272, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, bos_token_id=0, eos_token_id=0, pad_token_id=None)
WINDOW = 16


def slides(layers, period):
    return dict(num_hidden_layers=layers, sliding_window=WINDOW,
                layer_types=["full_attention" if (layer + 1) % period == 0 else "sliding_attention" for layer in range(layers)])


# name: model, its configuration over SMALL
MODELS = {
    "llama": ("Llama", dict(num_hidden_layers=2)),
    "llama3": ("Llama", dict(num_hidden_layers=2, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})),
    "mistral": ("Mistral", dict(num_hidden_layers=2, sliding_window=None)),
    "qwen2": ("Qwen2", dict(num_hidden_layers=2)),
    "qwen3": ("Qwen3", dict(num_hidden_layers=2, head_dim=32, tie_word_embeddings=True)),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=5, no_rope_layers=[1, 1, 1, 0, 1])),
    "olmo2": ("Olmo2", dict(num_hidden_layers=2, num_key_value_heads=4)),
    "olmo3": ("Olmo3", dict(num_key_value_heads=4, **slides(5, 4))),
    "exaone4": ("Exaone4", dict(num_hidden_layers=2, sliding_window=None, layer_types=["full_attention"] * 2)),
    "phi3": ("Phi3", dict(num_hidden_layers=2, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "phi3-longrope": ("Phi3", dict(num_hidden_layers=2, max_position_embeddings=512,
                                   original_max_position_embeddings=256, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0 + i / 8 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)], "original_max_position_embeddings": 256})),
    "granite": ("Granite", dict(num_hidden_layers=2, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                                attention_multiplier=0.125)),
    "gemma2": ("Gemma2", dict(head_dim=32, query_pre_attn_scalar=32, **slides(3, 2))),
    "gemma3": ("Gemma3", dict(head_dim=32, query_pre_attn_scalar=32, **slides(7, 6))),
}


def make(kind, settings, folder):
    torch.manual_seed(3)
    shutil.rmtree(folder, ignore_errors=True)
    config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))(**{**SMALL, **settings})
    getattr(transformers, kind + "ForCausalLM")(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_file=str(HERE.parent / "models/tokenizer.json"), bos_token="<|endoftext|>",
                                         eos_token="<|endoftext|>").save_pretrained(folder)


def check(ours, name, text):
    kind, settings = MODELS[name]
    make(kind, settings, ours.work / "folder")
    code, said = ours.train("folder", "run", text, "max_length=96", "batch_size=4", "max_steps=300", "learning_rate=3e-3",
                            "schedule.warmup_steps=10")
    if not compare_exports.count("trained", code == 0, f"{name}: {said[-500:]}"):
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(ours.work / "folder")
    prompts = [TEXT[at:at + GIVEN] for at in range(5, len(TEXT) - GIVEN - ADDED, (len(TEXT) - GIVEN - ADDED) // PROMPTS)]
    known = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    expected = []
    for prompt in prompts:
        code, said = ours.trainer("generate", "--checkpoint", "run", "--prompt", prompt, "--tokens", ADDED, "--temperature", 0,
                                  "--json", "precision.mode=fp32")
        expected.append(json.loads(said.splitlines()[-1])["samples"][0]["tokens"] if code == 0 else said)
    for dtype in FORMATS:
        code, said = ours.export("run", "model.gguf", "--dtype", dtype)
        if not compare_exports.count(f"GGUF in {dtype} written", code == 0, f"{name}: {said[-500:]}"):
            continue
        program = ggml.program(ours.work / "model.gguf", True)
        if dtype == "f32":
            ids = known[0] + list(expected[0])
            off = (torch.tensor(program.logits(ids)) - ours.logits("run", ids)).abs().max().item()
            bound = 1e-2 if name.startswith("gemma") else 1e-4
            compare_exports.count("logits of llama.cpp in f32", off < bound, f"{name}: off by {off:.3g}")
        found = [program.greedy(ids, ADDED, 0) for ids in known]
        same = sum(a == b for a, b in zip(found, expected))
        compare_exports.count(f"greedy texts in {dtype}", same == len(found), f"{name}: {same} of {len(found)}: "
                              f"{[(a, b) for a, b in zip(found, expected) if a != b][:1]}")
        if dtype == "f32":
            print(f"{name}: logits off by {off:.2g}; {tokenizer.decode(found[0])!r}", flush=True)


def main():
    build, work = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    work.mkdir(parents=True, exist_ok=True)
    ours, text = compare_exports.Ours(build, work), work / "text.txt"
    text.write_text(TEXT * 40)
    for name in MODELS:
        if not sys.argv[3:] or name in sys.argv[3:]:
            check(ours, name, text)
    for what, (right, wrong) in compare_exports.COUNTS.items():
        print(f"{what:44} {right:7} right {wrong:4} wrong")
    return 1 if compare_exports.FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
