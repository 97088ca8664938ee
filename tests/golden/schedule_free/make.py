#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes steps.txt: what the program of the method's authors makes of known gradients, in double.

    pip install torch schedulefree==1.4.1        # whose class of the paper's form is the only one up to 1.2.7, to the bit
    python3 tests/golden/schedule_free/make.py > tests/golden/schedule_free/steps.txt

A row: step, element, y, x, both as hexadecimal doubles.  tests/unit/optim/test_schedule_free.c has the same settings;
they are exact in binary, so that f32 arguments mean the same numbers.
"""
import torch
from schedulefree import AdamWScheduleFreePaper

COUNT, STEPS, WARMUP = 8, 400, 32


def start(i):
    return ((i * 7) % 11 - 5) / 8


def gradient(step, i):
    return ((i * 13 + step * 17 + step * step * 5) % 101 - 50 + 8 * (i % 3)) / 64


weights = torch.nn.Parameter(torch.tensor([start(i) for i in range(COUNT)], dtype=torch.float64))
rule = AdamWScheduleFreePaper([weights], lr=0.03125, betas=(0.875, 0.96875), eps=2**-20, weight_decay=0.25,
                              warmup_steps=WARMUP)
rule.train()
for step in range(1, STEPS + 1):
    weights.grad = torch.tensor([gradient(step, i) for i in range(COUNT)], dtype=torch.float64)
    rule.step()
    if step in (1, 2, 3, 10, WARMUP, WARMUP + 1, 100, 200, STEPS):
        y = weights.detach().clone()
        z = rule.state[weights]["z"]
        x = y.lerp(z, 1 - 1 / 0.875)
        for i in range(COUNT):
            print(step, i, float(y[i]).hex(), float(x[i]).hex())
