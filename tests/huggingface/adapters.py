#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""adapters.py MODELS FOLDER [NAME...]: adapters that PEFT made for small models (make.py), and how it trains them on.

    FOLDER/NAME/     adapter_config.json, adapter_model.safetensors: as save_pretrained writes them, B = 0
    FOLDER/NAME/text.txt     what is trained on: one sequence of LENGTH tokens
    FOLDER/NAME/losses.txt   twice the largest distance of PEFT's f32 losses (exact.py) from its f64 ones; then those, a
                             line a step
"""

import os
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from exact import bound, doubled, in_double, nudge

LENGTH, STEPS, RATE = 48, 20, 1e-2
TEXT = "the hand and the ring in the house, another hour on there: " * 4

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# name, model, settings
ADAPTERS = [
    ("llama", "llama", dict(r=4, lora_alpha=8, use_rslora=True,
                            target_modules=ALL)),
    ("gpt2", "gpt2", dict(r=2, lora_alpha=8, target_modules=["c_attn", "mlp.c_proj"])),
    ("qwen2", "qwen2", dict(r=3, lora_alpha=5, target_modules=["v_proj", "up_proj"], modules_to_save=["lm_head"])),
    ("smollm3", "smollm3", dict(r=2, lora_alpha=4, target_modules=["k_proj", "gate_proj", "down_proj"])),
    ("olmo2", "olmo2", dict(r=2, lora_alpha=8, target_modules=ALL)),
    ("phi3", "phi3", dict(r=3, lora_alpha=6, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    ("granite", "granite", dict(r=4, lora_alpha=8, target_modules=ALL)),
    ("gemma2", "gemma2", dict(r=4, lora_alpha=8, target_modules=ALL)),
    ("gemma3", "gemma3", dict(r=2, lora_alpha=4, target_modules=ALL)),
    ("nanochat", "nanochat", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj", "fc1", "fc2"])),
]


def base(models, name):
    # Fused attention leaves soft caps out.
    return AutoModelForCausalLM.from_pretrained(os.path.join(models, name), dtype=torch.float32,
                                                attn_implementation="eager")


def prepared(model, folder, run=0):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    dtype = next(model.parameters()).dtype
    model = PeftModel.from_pretrained(model, folder, is_trainable=True).to(dtype)
    nudge(model.parameters(), run)
    return model


def train(model, ids):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
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
    for name, model, settings in ADAPTERS:
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        folder = os.path.join(out, name)
        torch.manual_seed(3)
        tokenizer = AutoTokenizer.from_pretrained(os.path.join(models, model))
        ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"][:LENGTH]
        text = tokenizer.decode(ids)
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        adapted = get_peft_model(base(models, model), LoraConfig(task_type="CAUSAL_LM", **settings))
        adapted.peft_config["default"].base_model_name_or_path = model
        adapted.save_pretrained(folder)
        os.remove(os.path.join(folder, "README.md"))
        with open(os.path.join(folder, "text.txt"), "w") as file:
            file.write(text)
        plain = base(models, model)
        with in_double():
            double = doubled(plain)
        double = prepared(double, folder) # the file of weights is read by names of dtypes
        with in_double():
            exact = train(double, ids)
        spread = bound(exact, lambda run: train(prepared(base(models, model), folder, run), ids))
        with open(os.path.join(folder, "losses.txt"), "w") as file:
            print(*[f"{spread:.3e}"] + [f"{loss:.10f}" for loss in exact], sep="\n", file=file)


if __name__ == "__main__":
    main()
