# SPDX-License-Identifier: MIT
"""GPT-2 in PyTorch as its users train it: torch.compile, scaled-dot-product attention, autocast, fused AdamW.

    gpt2_torch.py --batch B --length T [--layers L --width C --heads H --vocabulary V]

The rival of bench/gpu.sh, which runs both trainers in turn, so this one stays alive between its turns.  It answers lines
on its standard input, MODE being bf16, fp16, tf32 or fp32:

    prepare MODE    ready MODE SECONDS | failed MODE REASON           what was prepared before is given up
    MODE STEPS      MODE TOKENS_PER_SECOND PEAK_MIB | failed MODE REASON    STEPS steps on random tokens
"""
import argparse
import gc
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, bias, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.qkv, self.projection = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.dropped(self.projection(attended.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropped(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))

    def dropped(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length, bias=True, dropout=0.0):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias, dropout) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(width, bias=bias), dropout
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        if self.dropout:
            x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


# Mode: what autocast computes in (None: off) and whether f32 products may use tf32.
MODES = {
    "bf16": (torch.bfloat16, True),
    "fp16": (torch.float16, True),
    "tf32": (None, True),
    "fp32": (None, False),
}


class Trainer:
    """One mode's model, optimizer and compiled step."""

    def __init__(self, options, mode, device):
        self.mode, self.device = mode, device
        self.dtype, self.tf32 = MODES[mode]
        torch.manual_seed(1)
        self.model = Gpt2(options.layers, options.width, options.heads, options.vocabulary, options.length).to(device)
        decayed = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=cuda)
        self.scaler = torch.amp.GradScaler(device.type, enabled=cuda and mode == "fp16")
        self.compiled = torch.compile(self.model) if cuda else self.model
        shape = (8, options.batch, options.length + 1)
        self.batches = torch.randint(options.vocabulary, shape, device=device)

    def step(self, index):
        batch = self.batches[index % len(self.batches)]
        enabled = self.dtype is not None
        with torch.autocast(self.device.type, dtype=self.dtype or torch.bfloat16, enabled=enabled):
            loss = self.compiled(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self, steps):
        """Tokens per second and the peak of allocated memory in MiB over `steps` steps."""
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        for index in range(3):
            self.step(index)
        synchronize(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for index in range(steps):
            self.step(index)
        synchronize(self.device)
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0
        tokens = self.batches.shape[1] * (self.batches.shape[2] - 1)
        return steps * tokens / seconds, peak / 2**20


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def give_back(device):
    """Memory that is cached but free would be missing to the rival, which is next."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def say(*words):
    print(*words, flush=True)


def fail(mode, error):
    say("failed", mode, str(error).splitlines()[0] if str(error) else type(error).__name__)


def prepare(options, mode, device):
    """A trainer that has compiled and run; None if that failed."""
    start = time.perf_counter()
    try:
        trainer = Trainer(options, mode, device)
        trainer.run(2)
    except Exception as error:  # out of memory, no compiler: the other modes may still work
        fail(mode, error)
        return None
    say("ready", mode, f"{time.perf_counter() - start:.1f}")
    return trainer


def turn(trainer, steps):
    try:
        rate, peak = trainer.run(steps)
        say(trainer.mode, f"{rate:.1f}", f"{peak:.0f}")
    except Exception as error:
        fail(trainer.mode, error)


def main():
    parser = argparse.ArgumentParser()
    for name, value in {"batch": 8, "length": 1024, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50304}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = None
    for line in sys.stdin:
        first, second = line.split()
        if first == "prepare":
            trainer = None
            give_back(device)
            trainer = prepare(options, second, device)
        elif trainer is None or trainer.mode != first:
            say("failed", first, "was not prepared")
        else:
            turn(trainer, int(second))
        give_back(device)


if __name__ == "__main__":
    main()
