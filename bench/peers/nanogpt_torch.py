# SPDX-License-Identifier: MIT
"""nanoGPT's recipe in PyTorch, on the tokens that this trainer makes of a text: what bench/time_to_loss.sh and
bench/speedrun.sh run.

    nanogpt_torch.py TRAIN [--validation FILE] [--tokenizer char|byte|TOKENIZER.json] [--recipe small|full] [OPTION...]

GPT-2's block without biases, the head tied to the embedding, AdamW with the decay on matrices, warm-up and a cosine
down to a tenth of the rate, clipped at a norm of 1, crops at random offsets.  Without --validation the last tenth is
held out.  With --steps the cosine ends with them; with --seconds of training (evaluations and compiling aside) its
course follows the clock, so that it ends with the time, whatever a step takes.  Loss is of --batches batches of
held-out windows, those which the trainer takes.  A line of JSON an evaluation: step, seconds, train_loss, val_loss
and bits_per_byte.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from torch import nn

from cpu_torch import RECIPES, initialize, split
from gpt2_torch import Gpt2, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAGICS = {20240520: numpy.uint16, 20240801: numpy.uint32}  # of token files, and what a token is there


def encode(options, source, folder):
    """The stream of tokens that training makes of a source, end-of-text tokens included."""
    path = os.path.join(folder, "tokens.bin")
    if options.tokenizer in ("char", "byte"):
        tokenizer = ["--config", os.devnull, f"tokenizer.kind={options.tokenizer}", f"tasks.0.train={options.train}"]
    else:
        tokenizer = ["--tokenizer", options.tokenizer]
    command = [options.trainer, "tokenizer", "encode", *tokenizer, "--output", path, source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nanogpt_torch.py: {' '.join(command)}: {done.stderr.strip()}")
    header = numpy.fromfile(path, dtype=numpy.int32, count=256)
    tokens = numpy.fromfile(path, dtype=MAGICS[int(header[0])], offset=1024)
    assert len(tokens) == header[2]
    os.remove(path)
    return torch.from_numpy(tokens.astype(numpy.int32))


def token_bytes(options):
    """How many bytes of text each token stands for; end-of-text is none of it."""
    if options.tokenizer == "byte":
        return torch.tensor([1] * 256 + [0])
    if options.tokenizer == "char":
        with open(options.train, encoding="utf-8", newline="") as file:
            return torch.tensor([len(character.encode()) for character in sorted(set(file.read()))])
    with open(options.tokenizer, encoding="utf-8") as file:
        data = json.load(file)
    sizes = torch.zeros(1 + max(data["model"]["vocab"].values()), dtype=torch.int64)
    for text, token in data["model"]["vocab"].items():
        sizes[token] = len(text)  # byte-level: a character stands for a byte
    for special in data["added_tokens"]:
        sizes[special["id"]] = 0
    return sizes


class Tokens:
    def __init__(self, options):
        with tempfile.TemporaryDirectory() as folder:
            self.train = encode(options, options.train, folder)
            self.validation = encode(options, options.validation, folder) if options.validation else None
        if self.validation is None:
            cut = len(self.train) * 9 // 10
            self.train, self.validation = self.train[:cut], self.train[cut:]
        self.bytes = token_bytes(options)
        self.length, self.batch = options.length, options.batch
        if min(len(self.train), len(self.validation)) <= options.length:
            sys.exit("nanogpt_torch.py: the text has no window of --length tokens to train on and another to hold out")

    def rows(self, tokens, starts):
        return split(torch.stack([tokens[start : start + self.length + 1] for start in starts]).long())

    def crops(self, generator):
        starts = torch.randint(len(self.train) - self.length, (self.batch,), generator=generator)
        return self.rows(self.train, starts.tolist())

    def held_out(self, batches):
        """Batches of windows that are spread evenly over the held-out stream."""
        available = (len(self.validation) - 1) // self.length
        windows = min(batches * self.batch, available) if batches else available
        starts = [index * available // windows * self.length for index in range(windows)]
        for first in range(0, windows, self.batch):
            yield self.rows(self.validation, starts[first : first + self.batch])


class Run:
    def __init__(self, options):
        self.options, self.data = options, Tokens(options)
        torch.manual_seed(options.seed)
        self.generator = torch.Generator().manual_seed(options.seed)
        self.plain = Gpt2(options.layers, options.width, options.heads, len(self.data.bytes), options.length, False,
                          options.dropout)
        initialize(self.plain, options.layers)
        self.model = torch.compile(self.plain) if options.compile else self.plain
        decayed = [p for p in self.plain.parameters() if p.dim() == 2]
        others = [p for p in self.plain.parameters() if p.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.rate, betas=options.betas, fused=True)
        self.index, self.seconds = 0, 0.0

    def done(self):
        return self.seconds >= self.options.seconds if self.options.seconds else self.index >= self.options.steps

    def rate(self):
        options = self.options
        if self.index < options.warmup:
            return options.rate * (self.index + 1) / (options.warmup + 1)
        if options.seconds:
            progress = self.seconds / options.seconds
        else:
            progress = (self.index - options.warmup) / max(1, options.steps - options.warmup)
        return options.rate * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress))))

    def loss(self, model, inputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.options.dtype == "bf16"):
            return model(inputs, targets)

    def gradients(self):
        loss = self.loss(self.model, *self.data.crops(self.generator))
        loss.backward()
        return loss

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        loss = self.gradients()
        nn.utils.clip_grad_norm_(self.plain.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.index += 1
        return loss

    def prepare(self):
        """Compiles, and touches memory, before time counts; the order of data stays."""
        state = self.generator.get_state()
        self.gradients()
        self.optimizer.zero_grad(set_to_none=True)
        self.generator.set_state(state)
        torch.manual_seed(self.options.seed)  # of dropout

    @torch.no_grad()
    def evaluate(self, train_loss, batches):
        self.plain.eval()
        total, count, size = 0.0, 0, 0
        for inputs, targets in self.data.held_out(batches):
            total += self.loss(self.plain, inputs, targets).item() * targets.numel()
            count, size = count + targets.numel(), size + int(self.data.bytes[targets].sum())
        self.plain.train()
        say(json.dumps({"step": self.index, "seconds": round(self.seconds, 3), "train_loss": train_loss,
                        "val_loss": total / count, "bits_per_byte": total / (size * math.log(2))}))

    def train(self):
        self.prepare()
        self.evaluate(None, self.options.batches)
        while not self.done():
            start = time.perf_counter()
            loss = self.step()
            self.seconds += time.perf_counter() - start
            if self.done():
                self.evaluate(loss.item(), self.options.last_batches)
            elif self.index % self.options.every == 0:
                self.evaluate(loss.item(), self.options.batches)


def main():
    parser = argparse.ArgumentParser(description="nanoGPT's recipe in PyTorch.")
    parser.add_argument("train")
    parser.add_argument("--recipe", choices=("small", "full"), default="small", help="what the options start from")
    parser.add_argument("--validation")
    parser.add_argument("--tokenizer", default="char")
    parser.add_argument("--trainer", default=os.path.join(ROOT, "build", "trainer"))
    for name in ("layers", "heads", "width", "batch", "length", "steps", "warmup"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("dropout", "rate"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--betas", type=float, nargs=2)
    parser.add_argument("--seconds", type=float, default=0, help="train this long instead of --steps")
    parser.add_argument("--every", type=int, default=250, help="steps between evaluations")
    parser.add_argument("--batches", type=int, default=20, help="of an evaluation; 0: all that is held out")
    parser.add_argument("--last-batches", type=int, help="of the last evaluation (--batches)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    for name, value in RECIPES[options.recipe].items():
        if getattr(options, name, value) is None:
            setattr(options, name, value)
    if options.last_batches is None:
        options.last_batches = options.batches
    torch.set_num_threads(options.threads)
    Run(options).train()


if __name__ == "__main__":
    main()
