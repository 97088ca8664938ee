# SPDX-License-Identifier: MIT
"""The CPU recipes in PyTorch, eager and compiled, with autocast for bf16 and fused AdamW: the rival of bench/peers.sh.

    cpu_torch.py RECIPE MODE THREADS TEXT [VARIANT...]

It prepares the variants (eager, compile) of one recipe in one mode (fp32, bf16) and says "ready VARIANT SECONDS" or
"failed VARIANT REASON" for each, then "prepared".  It stays alive between its turns, and answers lines of its input:

    VARIANT turn STEPS     ->  VARIANT TOKENS_PER_SECOND        STEPS steps after one that warms caches up
    VARIANT fit STEPS      ->  VARIANT SECONDS VALIDATION_LOSS  training from the start (what is compiled stays so)

Model, initial deviations, optimizer and schedule are those of configs/shakespeare-*.yaml and configs/gpt2-124m.yaml; the
order of data is its own.  The validation loss is the mean over all windows of the text's last tenth.
"""
import math
import sys
import time

import torch
from torch import nn

from gpt2_torch import Gpt2, say

CHARACTERS = {"betas": (0.9, 0.99), "rate": 1e-3, "least_rate": 1e-4, "warmup": 100, "bias": False}
GPT2 = {
    "layers": 12, "heads": 12, "width": 768, "dropout": 0.0, "bias": True, "vocabulary": 50304, "positions": 1024,
    "betas": (0.9, 0.95), "rate": 6e-4, "least_rate": 0.0, "warmup": 2, "steps": 18865,
}
RECIPES = {
    "small": {"layers": 4, "heads": 4, "width": 128, "dropout": 0.0, "batch": 12, "length": 64, "steps": 2000, **CHARACTERS},
    "full": {"layers": 6, "heads": 6, "width": 384, "dropout": 0.2, "batch": 64, "length": 256, "steps": 5000, **CHARACTERS},
    "gpt2-256": {"batch": 4, "length": 256, **GPT2},
    "gpt2-1024": {"batch": 1, "length": 1024, **GPT2},
}


def split(rows):
    """What the model reads, and what it should say."""
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Text:
    """Characters as whole numbers: nine tenths to train on, the last one for validation."""

    def __init__(self, path):
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        codes = {character: code for code, character in enumerate(sorted(set(text)))}
        self.vocabulary = len(codes)
        tokens = torch.tensor([codes[character] for character in text])
        cut = len(text) * 9 // 10
        self.train, self.validation = tokens[:cut], tokens[cut:]

    def batch(self, recipe, generator):
        length = recipe["length"]
        starts = torch.randint(len(self.train) - length, (recipe["batch"],), generator=generator)
        rows = torch.stack([self.train[start : start + length + 1] for start in starts.tolist()])
        return split(rows)


class Noise:
    """Random bytes: speed does not depend on which tokens come."""

    def __init__(self, recipe):
        self.vocabulary = recipe["vocabulary"]

    def batch(self, recipe, generator):
        rows = torch.randint(256, (recipe["batch"], recipe["length"] + 1), generator=generator)
        return split(rows)


def initialize(model, layers):
    """Deviations of 0.02, branches that end in the residual stream divided by sqrt(2 layers); norms as at the start."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            branch = name.endswith(("projection.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if branch else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.ones_(parameter)


class Trainer:
    def __init__(self, recipe, mode, data, compiled):
        self.recipe, self.data, self.bf16 = recipe, data, mode == "bf16"
        positions = recipe.get("positions", recipe["length"])
        self.plain = Gpt2(recipe["layers"], recipe["width"], recipe["heads"], data.vocabulary, positions, recipe["bias"],
                          recipe["dropout"])
        self.model = torch.compile(self.plain) if compiled else self.plain
        self.reset()

    def reset(self):
        torch.manual_seed(1)
        self.generator = torch.Generator().manual_seed(1)
        initialize(self.plain, self.recipe["layers"])
        self.plain.train()
        decayed = [p for p in self.plain.parameters() if p.dim() == 2]
        others = [p for p in self.plain.parameters() if p.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.recipe["rate"], betas=self.recipe["betas"], fused=True)
        self.index = 0

    def rate(self):
        recipe = self.recipe
        if self.index < recipe["warmup"]:
            return recipe["rate"] * (self.index + 1) / recipe["warmup"]
        progress = min(1.0, (self.index - recipe["warmup"]) / (recipe["steps"] - recipe["warmup"]))
        least = recipe["least_rate"]
        return least + 0.5 * (1.0 + math.cos(math.pi * progress)) * (recipe["rate"] - least)

    def loss(self, model, inputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            return model(inputs, targets)

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        loss = self.loss(self.model, *self.data.batch(self.recipe, self.generator))
        loss.backward()
        nn.utils.clip_grad_norm_(self.plain.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.index += 1

    def seconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - start

    @torch.no_grad()
    def validate(self):
        self.plain.eval()
        tokens, length = self.data.validation, self.recipe["length"]
        windows = (len(tokens) - 1) // length
        inputs = tokens[: windows * length].view(windows, length)
        targets = tokens[1 : windows * length + 1].view(windows, length)
        total = 0.0
        for begin in range(0, windows, 64):
            rows = slice(begin, begin + 64)
            total += self.loss(self.plain, inputs[rows], targets[rows]).item() * len(inputs[rows])
        self.plain.train()
        return total / windows


def prepare(recipe, mode, data, variant):
    start = time.perf_counter()
    try:
        trainer = Trainer(recipe, mode, data, variant == "compile")
        trainer.seconds(2)
    except Exception as error:  # no compiler, no memory: the other variant may still work
        say("failed", variant, str(error).splitlines()[0] if str(error) else type(error).__name__)
        return None
    say("ready", variant, f"{time.perf_counter() - start:.1f}")
    return trainer


def answer(trainer, task, steps):
    if task == "fit":
        trainer.reset()
        seconds = trainer.seconds(steps)
        return f"{seconds:.2f} {trainer.validate():.4f}"
    trainer.seconds(1)
    tokens = steps * trainer.recipe["batch"] * trainer.recipe["length"]
    return f"{tokens / trainer.seconds(steps):.1f}"


def main():
    name, mode, threads, text = sys.argv[1:5]
    torch.set_num_threads(int(threads))
    torch.set_num_interop_threads(1)
    recipe = RECIPES[name]
    data = Noise(recipe) if "vocabulary" in recipe else Text(text)
    trainers = {variant: prepare(recipe, mode, data, variant) for variant in sys.argv[5:] or ["eager", "compile"]}
    say("prepared")
    for line in sys.stdin:
        variant, task, steps = line.split()
        say(variant, answer(trainers[variant], task, int(steps)))


if __name__ == "__main__":
    main()
