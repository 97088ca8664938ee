#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_nf4.py FILE: what bitsandbytes (0.50) makes of matrices in four bits, for tests/ops/test_nf4.c.

    for each of SHAPES, a matrix of bf16
    values         ROWS x 64 C u16, bits
    codes          half as many u8
    absmax         u8, a block of 64 each
    nested         f32, ceil(blocks / 256)
    offset         f32
    decoded        u16, bits of bf16

All little-endian, one after another.  The scales' quantizer for f32 on CPUs takes a code next to the nearest one now
and then; the one for other formats, which is used here, takes the nearest.
"""

import sys

import bitsandbytes.functional as functional
import numpy
import torch

SHAPES = [(48, 64), (24, 832), (30, 128)]


def nearest(values, blocksize):
    code = functional.create_dynamic_map()
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, blocksize)
    return codes, functional.QuantState(absmax=absmax.float(), code=code, blocksize=blocksize, dtype=values.dtype)


def bits(matrix):
    return matrix.contiguous().view(torch.int16).numpy().astype("<u2")


def main(path):
    functional.quantize_blockwise = nearest
    draw = torch.Generator().manual_seed(4)
    with open(path, "wb") as file:
        for rows, columns in SHAPES:
            sizes = torch.exp(torch.randn(rows, 1, generator=draw))  # rows of different sizes, as a model has them
            matrix = (0.02 * sizes * torch.randn(rows, columns, generator=draw)).bfloat16()
            matrix[3] = 0  # whole blocks of nothing
            codes, state = functional.quantize_4bit(matrix, blocksize=64, quant_type="nf4", compress_statistics=True)
            for piece, kind in ((bits(matrix), "<u2"), (codes.numpy(), "u1"), (state.absmax.numpy(), "u1"),
                                (state.state2.absmax.numpy(), "<f4"), (state.offset.numpy(), "<f4"),
                                (bits(functional.dequantize_4bit(codes, state)), "<u2")):
                file.write(numpy.ascontiguousarray(piece, dtype=kind).tobytes())


main(sys.argv[1])
