# SPDX-License-Identifier: MIT
"""PyTorch's scaled-dot-product attention (flash kernels) at the sizes of bench/attention.c.

    attention_torch.py [SECONDS]

Prints a line "BATCH LENGTH HEADS HEAD_DIM FORWARD BACKWARD" for each size: medians in TFLOP/s, causal, bf16, GPT-2
124M's 32 x 1,024 with 12 heads, then 16,384 tokens with a width of 2,048; 2 N T H D operations forward, 2.5 times that
backward.
"""
import statistics
import sys

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, WIDTH = 16384, 2048


def milliseconds(work, budget_ms):
    """Median over samples of a few calls, by events."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample(repeats):
        start.record()
        for _ in range(repeats):
            work()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / repeats

    sample(3)
    repeats = max(1, min(200, int(2.0 / max(sample(1), 1e-3)) + 1))
    times = []
    while len(times) < 5 or sum(times) * repeats < budget_ms and len(times) < 101:
        times.append(sample(repeats))
    return statistics.median(times)


def measure(batch, length, heads, head_dim, seconds):
    shape = (batch, length, heads, head_dim)
    q, k, v, dout = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4))
    for tensor in (q, k, v):
        tensor.requires_grad_()

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        forward_ms = milliseconds(forward, 500 * seconds)
        out = forward()
        backward_ms = milliseconds(
            lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), 500 * seconds)
    operations = 2.0 * batch * length * length * heads * head_dim
    return operations / forward_ms * 1e-9, 2.5 * operations / backward_ms * 1e-9


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.25
    # As bench/attention.c has them; what matters most first, as the caller's time may end.
    sizes = [(32, 1024, 12, 64)]
    rest = [(d, t) for d in (32, 64, 96, 128, 256) for t in (512, 1024, 2048, 4096, 8192, 16384)]
    for head_dim, length in sorted(rest, key=lambda size: size not in ((64, 1024), (128, 8192))):
        sizes.append((TOKENS // length, length, WIDTH // head_dim, head_dim))
    for size in sizes:
        forward, backward = measure(*size, seconds)
        print(*size, f"{forward:.1f} {backward:.1f}", flush=True)


if __name__ == "__main__":
    main()
