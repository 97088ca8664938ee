#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""quantized.py MODELS FOLDER: small models (make.py) in four bits by bitsandbytes, and how PEFT trains adapters on them.

    FOLDER/NAME/             as save_pretrained writes it: nf4, double quantization
    FOLDER/NAME/adapter/     PEFT's adapters, B = 0
    FOLDER/NAME/text.txt     what is trained on: one sequence of LENGTH tokens
    FOLDER/NAME/losses.txt   twice the largest distance of the f32 losses from the f64 ones; then those, a line a step:
                             with PEFT's adapters next to the decoded matrices

Two functions of bitsandbytes 0.50 for CPUs are not used: its quantizer of scales may take a code next to the nearest
one (its kernels for GPUs do not), and its decoder reads another block's scales where rows are no multiple of 64.
"""

import os
import shutil
import sys

import bitsandbytes
import bitsandbytes.functional as functional
import torch
from adapters import TEXT
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

LENGTH, STEPS, RATE = 48, 50, 1e-3
FOUR_BITS = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                               bnb_4bit_compute_dtype=torch.float32)
MODELS = [
    ("llama", dict(r=4, lora_alpha=8,
                   target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])),
    ("gpt2", dict(r=2, lora_alpha=8, target_modules=["c_attn", "mlp.c_proj"])),
]


def nearest(values, blocksize):
    code = functional.create_dynamic_map()
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, blocksize)
    return codes, functional.QuantState(absmax=absmax.float(), code=code, blocksize=blocksize, dtype=values.dtype)


def decode(codes, state, *_, **__):
    scales = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    pairs = torch.stack([codes.flatten() >> 4, codes.flatten() & 15], 1).flatten()
    return (state.code[pairs.long()].view(-1, 64) * scales.view(-1, 1)).reshape(state.shape).to(state.dtype)


def quantized(folder, **more):
    return AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=torch.float32, **more)


def decoded(folder, plain, dtype):
    """The model with the values that the four bits stand for."""
    source = quantized(folder)
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=dtype)
    for name, module in source.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            matrix = decode(module.weight.data, module.weight.quant_state)
            target = model.get_submodule(name)
            shape = target.weight.shape  # GPT-2's are transposed
            target.weight.data = (matrix if matrix.shape == shape and "Conv1D" not in type(target).__name__
                                  else matrix.t()).contiguous().to(dtype)
    return model


def train(model, adapter, ids, dtype):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data = parameter.data.to(dtype)
    rule = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    tokens, losses = torch.tensor([ids + [0]]), []
    for _ in range(STEPS):
        rule.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits[0], tokens[0, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        rule.step()
        losses.append(loss.item())
    return losses


def main():
    models, out = sys.argv[1:3]
    functional.quantize_blockwise = nearest
    for name, settings in MODELS:
        plain, folder = os.path.join(models, name), os.path.join(out, name)
        adapter = os.path.join(folder, "adapter")
        quantized(plain, quantization_config=FOUR_BITS).save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(plain)
        tokenizer.save_pretrained(folder)
        ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"][:LENGTH]
        text = tokenizer.decode(ids)
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        torch.manual_seed(3)
        get_peft_model(quantized(folder), LoraConfig(task_type="CAUSAL_LM", **settings)).save_pretrained(adapter)
        os.remove(os.path.join(adapter, "README.md"))
        with open(os.path.join(folder, "text.txt"), "w") as file:
            file.write(text)
        exact, single = (train(decoded(folder, plain, dtype), adapter, ids, dtype)
                         for dtype in (torch.float64, torch.float32))
        bound = 2 * max(abs(a - b) for a, b in zip(exact, single))
        with open(os.path.join(folder, "losses.txt"), "w") as file:
            print(*[f"{bound:.3e}"] + [f"{loss:.10f}" for loss in exact], sep="\n", file=file)
        shutil.rmtree(os.path.join(folder, ".cache"), ignore_errors=True)


if __name__ == "__main__":
    main()
