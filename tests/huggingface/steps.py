#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""steps.py FOLDER [NAME...]: STEPS steps of AdamW from each of make.py's models, by transformers and PyTorch.

    FOLDER/NAME/steps.txt   twice the largest distance of the losses in f32, with the plain and, where the model has no soft
                            caps, the fused attention, from those in float64; then these, one a line
    FOLDER/tokens16.bin     the tokens of make.py and the end of a document, as data of a run: a window of all

Weight decay on tensors of two dimensions alone, no clipping, a constant rate.
"""

import os
import sys

import numpy
import torch
import transformers

STEPS, RATE, BETAS, EPSILON, DECAY = 20, 1e-2, (0.9, 0.95), 1e-8, 0.1


def losses(place, tokens, dtype, attention):
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32,
                                                              attn_implementation=attention).eval().to(dtype)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays], "weight_decay": decay}
              for decays, decay in ((True, DECAY), (False, 0.0))]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON)
    row, found = torch.tensor([tokens]), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(row[:, :-1]).logits[0], row[0, 1:])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return numpy.array(found)


def main():
    folder = sys.argv[1]
    tokens = numpy.fromfile(os.path.join(folder, "tokens.bin"), dtype="<i4").tolist() + [0]
    numpy.array(tokens, dtype="<u2").tofile(os.path.join(folder, "tokens16.bin"))
    for name in sorted(os.listdir(folder)):
        place = os.path.join(folder, name)
        if not os.path.isdir(place) or (sys.argv[2:] and name not in sys.argv[2:]):
            continue
        exact = losses(place, tokens, torch.float64, "eager")
        ways = ["eager"] if name == "gemma2" else ["eager", "sdpa"]
        singles = [losses(place, tokens, torch.float32, way) for way in ways]
        with open(os.path.join(place, "steps.txt"), "w") as file:
            file.write("%.3g\n" % (2 * max(abs(single - exact).max() for single in singles)))
            file.writelines("%.12g\n" % loss for loss in exact)


main()
