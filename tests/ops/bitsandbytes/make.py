#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make.py FILE: what bitsandbytes (0.50) makes of AdamW with moments in 8 bits, for tests/ops/test_update_8bit.c.

    maps       2 x 256 f32: create_dynamic_map, signed and unsigned
    p          COUNT f32, the parameter before the first step
    then for each of STEPS steps
    gradient   COUNT f32
    p          COUNT f32, after the step
    m, v       COUNT u8 each: codes after the step
    absmax     2 x ceil(COUNT / 256) f32, of m and of v

All little-endian, one after another.  The steps are the library's own, on the CPU.  Its quantizer for f32 on CPUs takes
a code next to the nearest one for many elements; the one for other formats, which is used here, takes the nearest.
"""

import sys

import bitsandbytes.functional as functional
import numpy
import torch
from bitsandbytes.backends.cpu import ops

COUNT, STEPS, BLOCK = 1000, 6, 256
SETTINGS = dict(beta1=0.9, beta2=0.95, beta3=0.0, alpha=0.0, eps=1e-8, weight_decay=0.1, gnorm_scale=1.0)


def quantize(values, code, absmax_out, out, blocksize):
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, blocksize)
    out.copy_(codes)
    absmax_out.copy_(absmax)


def main(path):
    ops._quant_blockwise_fp32_direct = quantize
    maps = [functional.create_dynamic_map(signed) for signed in (True, False)]
    draw = torch.Generator().manual_seed(8)
    p = torch.randn(COUNT, generator=draw)
    sizes = torch.exp(2 * torch.randn(COUNT, generator=draw))  # gradients of very different sizes, as a model has them
    states = [torch.zeros(COUNT, dtype=torch.uint8) for _ in maps]
    absmax = [torch.zeros(-(-COUNT // BLOCK)) for _ in maps]
    tensors = [*maps, p.clone()]
    for step in range(1, STEPS + 1):
        gradient = sizes * torch.randn(COUNT, generator=draw)
        ops._optimizer_update_8bit_blockwise_cpu("adam", gradient, p, *states, step=step, lr=0.01, qmap1=maps[0],
                                                 qmap2=maps[1], absmax1=absmax[0], absmax2=absmax[1], **SETTINGS)
        tensors += [tensor.clone() for tensor in (gradient, p, *states, *absmax)]
    with open(path, "wb") as file:
        for tensor in tensors:
            kind = "u1" if tensor.dtype == torch.uint8 else "<f4"
            file.write(numpy.ascontiguousarray(tensor.numpy(), dtype=kind).tobytes())


main(sys.argv[1])
