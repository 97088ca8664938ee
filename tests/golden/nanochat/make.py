#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make.py CHECKOUT FOLDER: a small model by nanochat's own code (a checkout of its repository), in float64.

    FOLDER/model.safetensors      its weights, each away from its first value, with the names of a Halfstep checkpoint
    FOLDER/gradients.safetensors  of the mean loss, the same names, rounded to f32
    FOLDER/tokens.bin             i32: tokens [2, 9], then targets
    FOLDER/expected.bin           f64: the loss, then the logits [2, 9, 64]

Two things are changed in the code that is run: queries and keys are multiplied by 1.25 in place of 1.2, so that the scale
of scores is a float, and logits stay in float64.  Windows are 3 keys, as sequences are 9 tokens.
"""

import os
import re
import sys
import types

import numpy
import torch
from safetensors.torch import save_file

LAYERS, WIDTH, HEADS, KV_HEADS, VOCABULARY, ROWS, LENGTH, WINDOW = 3, 32, 2, 1, 64, 2, 9, 3


def load(checkout):
    sys.path.insert(0, checkout)
    with open(os.path.join(checkout, "nanochat", "gpt.py")) as file:
        source = file.read()
    changes = [("q = q * 1.2", "q = q * 1.25"), ("k = k * 1.2", "k = k * 1.25"), ("logits = logits.float()", "")]
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    module = types.ModuleType("gpt")
    sys.modules["gpt"] = module
    exec(compile(source, "gpt.py", "exec"), module.__dict__)
    module.COMPUTE_DTYPE = torch.float64
    return module


def our_names(model):
    """nanochat's name -> ours.  Queries and keys are rotated the other way round by both."""
    names = {"transformer.wte.weight": "model.embed_tokens.weight", "lm_head.weight": "lm_head.weight",
             "resid_lambdas": "model.resid_lambdas", "x0_lambdas": "model.x0_lambdas",
             "smear_gate.weight": "model.smear_gate.weight", "smear_lambda": "model.smear_lambda",
             "backout_lambda": "model.backout_lambda"}
    parts = {"attn.c_q": "self_attn.q_proj", "attn.c_k": "self_attn.k_proj", "attn.c_v": "self_attn.v_proj",
             "attn.c_proj": "self_attn.o_proj", "attn.ve_gate": "self_attn.ve_gate", "mlp.c_fc": "mlp.fc1",
             "mlp.c_proj": "mlp.fc2"}
    for name, _ in model.named_parameters():
        layer = re.match(r"transformer\.h\.(\d+)\.(.*)\.weight", name)
        if layer:
            names[name] = "model.layers.%s.%s.weight" % (layer[1], parts[layer[2]])
        elif name.startswith("value_embeds."):
            names[name] = "model." + name
    return names


def main():
    module, folder = load(sys.argv[1]), sys.argv[2]
    torch.manual_seed(1)
    config = module.GPTConfig(sequence_len=LENGTH, vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS,
                              n_kv_head=KV_HEADS, n_embd=WIDTH, window_pattern="L")
    model = module.GPT(config)
    model.init_weights()
    model.double()
    model.cos, model.sin = model._precompute_rotary_embeddings(LENGTH, WIDTH // HEADS)
    angles = torch.outer(torch.arange(LENGTH, dtype=torch.float64),
                         100000.0 ** (-torch.arange(0, WIDTH // HEADS, 2, dtype=torch.float64) / (WIDTH // HEADS)))
    model.cos, model.sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
    # A query sees one key more than the number says.
    model.window_sizes = [(WINDOW - 1, 0), (-1, 0), (WINDOW - 1, 0)]
    with torch.no_grad():
        for parameter in model.parameters():
            wide = 0.3 if parameter.dim() == 1 else 0.4
            parameter.add_(wide * torch.randn_like(parameter))
            parameter.copy_(parameter.float().double())
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH))
    targets = torch.randint(VOCABULARY, (ROWS, LENGTH))
    logits = model(tokens)
    loss = model(tokens, targets)
    loss.backward()
    names = our_names(model)
    os.makedirs(folder, exist_ok=True)
    save_file({names[n]: p.detach().float().contiguous() for n, p in model.named_parameters()},
              os.path.join(folder, "model.safetensors"))
    save_file({names[n]: p.grad.float().contiguous() for n, p in model.named_parameters()},
              os.path.join(folder, "gradients.safetensors"))
    numpy.concatenate([tokens.numpy(), targets.numpy()]).astype("<i4").tofile(os.path.join(folder, "tokens.bin"))
    numpy.concatenate([[loss.item()], logits.detach().numpy().ravel()]).astype("<f8").tofile(
        os.path.join(folder, "expected.bin"))


main()
