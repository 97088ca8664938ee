#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pretrained.py make FOLDER: a small Llama of random numbers with a tokenizer of bytes, as transformers saves it.
pretrained.py check BASE ADAPTER MERGED RUN: base with adapters by peft, the merged model by transformers, and the run by
build/trainer continue prompts by the same tokens, the likeliest ones.

Both need transformers and torch, check also peft; without them nothing is done, and the exit code is 77.
"""

import json
import subprocess
import sys

PROMPTS, LENGTH = ["the ", "line 7", "a"], 16


def make(folder):
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(1)
    alphabet = ["<|endoftext|>"] + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=alphabet[0]).save_pretrained(folder)
    config = transformers.LlamaConfig(vocab_size=len(alphabet), hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                                      bos_token_id=0, eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def greedy(model, tokenizer, prompt):
    ids = tokenizer(prompt, return_tensors="pt")
    made = model.generate(**ids, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    return made[0, ids["input_ids"].shape[1]:].tolist()


def check(base, adapter, merged, run):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def load(folder):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    tokenizer = AutoTokenizer.from_pretrained(merged)
    models = [PeftModel.from_pretrained(load(base), adapter), load(merged)]
    for prompt in PROMPTS:
        made = [greedy(model, tokenizer, prompt) for model in models]
        own = subprocess.run(["build/trainer", "generate", "--checkpoint", run, "--prompt", prompt, "--tokens", str(LENGTH),
                              "--temperature", "0", "--json", "precision.mode=fp32"], check=True, capture_output=True)
        made.append(json.loads(own.stdout)["samples"][0]["tokens"])
        if any(tokens != made[0] for tokens in made):
            sys.exit(f"{prompt!r} is continued in different ways: {made}")
        print(repr(prompt), "->", repr(tokenizer.decode(made[0])))


def main():
    commands = {"make": (make, 1), "check": (check, 4)}
    name, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if name not in commands or len(arguments) != commands[name][1]:
        sys.exit(__doc__)
    try:
        commands[name][0](*arguments)
    except ImportError as missing:
        print(f"not done: {missing.name} is not installed", file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    main()
