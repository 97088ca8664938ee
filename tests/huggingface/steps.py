#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""steps.py FOLDER [NAME...]: STEPS steps of AdamW from each of make.py's models, by transformers and PyTorch.

    FOLDER/NAME/steps.txt   twice the largest distance of f32's losses from float64's (exact.py), with the plain and,
                            where the model has no soft caps, the fused attention in turns; then float64's, one a line
    FOLDER/tokens16.bin     the tokens of make.py and the end of a document, as data of a run: a window of all

Weight decay on tensors of two dimensions alone, no clipping, a constant rate.
"""

import os
import sys

import numpy
import torch
import transformers

from exact import bound, doubled, in_double, nudge

STEPS, RATE, BETAS, EPSILON, DECAY = 20, 1e-2, (0.9, 0.95), 1e-8, 0.1


def load(place, attention):
    return transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32,
                                                             attn_implementation=attention).eval()


def losses(model, tokens, run=0):
    nudge(model.parameters(), run)
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
    return found


def main():
    folder = sys.argv[1]
    tokens = numpy.fromfile(os.path.join(folder, "tokens.bin"), dtype="<i4").tolist() + [0]
    numpy.array(tokens, dtype="<u2").tofile(os.path.join(folder, "tokens16.bin"))
    for name in sorted(os.listdir(folder)):
        place = os.path.join(folder, name)
        if not os.path.isdir(place) or (sys.argv[2:] and name not in sys.argv[2:]):
            continue
        model = load(place, "eager")
        with in_double():
            exact = losses(doubled(model), tokens)
        ways = ["eager"] if name == "gemma2" else ["eager", "sdpa"]
        spread = bound(exact, lambda run: losses(load(place, ways[run % len(ways)]), tokens, run))
        with open(os.path.join(place, "steps.txt"), "w") as file:
            file.write("%.3g\n" % spread)
            file.writelines("%.12g\n" % loss for loss in exact)


main()
