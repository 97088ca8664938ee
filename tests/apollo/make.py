# SPDX-License-Identifier: MIT
"""Writes tests/apollo/steps.h: steps of the authors' program (pip: apollo-torch 1.0.3) in double, with the projections of
optim/apollo.c in place of those that it draws, for tests/unit/optim/test_apollo.c.

    pip install torch numpy && pip install --no-deps apollo-torch && python3 tests/apollo/make.py

Biases: its norms are limited before the bias corrections, and optim/apollo.c limits behind them.  Where there is a limit,
the betas are 0, which has both at the same place.
"""
import importlib.util
import math
import os
import sys
import types

import torch

SEED, SITE, INTERVAL, STEPS, RATE = 5, 0, 2, 5, 0.125
MASK = 0xFFFFFFFF
BETAS = tuple(torch.tensor((0.9, 0.96), dtype=torch.float32).tolist())

# What the program asks of libraries that it does not use here.
versions = types.ModuleType("transformers.utils.versions")
versions.require_version = lambda requirement: None
sys.modules |= {"transformers": types.ModuleType("transformers"), "transformers.utils": types.ModuleType("utils"),
                "transformers.utils.versions": versions}


def load(name):
    folder = importlib.util.find_spec("apollo_torch").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("apollo." + name, os.path.join(folder, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["apollo." + name] = module
    spec.loader.exec_module(module)
    return module


def philox(counter, key):
    """Salmon et al. 2011, section 3.3."""
    (a, b, c, d), (k0, k1) = counter, (key & MASK, key >> 32 & MASK)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (p1 >> 32) ^ b ^ k0, p1 & MASK, (p0 >> 32) ^ d ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return a, b, c, d


def projection(rank, side, number):
    key = SEED ^ int.from_bytes(b"APOLLO\0\0", "big")
    values = [bin(philox((e // 4, 0, SITE, number), key)[e % 4]).count("1") - 16 for e in range(rank * side)]
    return torch.tensor(values, dtype=torch.float64).reshape(rank, side) / math.sqrt(8 * rank)


def gradient(rows, columns, step):
    return torch.tensor([((i * 7919 + step * 104729 + i * i * 31 + 11) % 8191 - 4095) / 4096
                         for i in range(rows * columns)], dtype=torch.float64).reshape(rows, columns)


def steps(program, rows, columns, rank, kind, betas, limited):
    p = torch.nn.Parameter(torch.tensor([(i % 17 - 8) / 128 for i in range(rows * columns)],
                                        dtype=torch.float64).reshape(rows, columns))
    group = {"params": [p], "rank": rank, "proj": "random", "update_proj_gap": INTERVAL, "scale": 4.0, "proj_type": "std",
             "scale_type": kind}
    optimizer = program.AdamW([group], lr=RATE, betas=betas, eps=1e-30, weight_decay=0.0, disable_nl=not limited)
    for step in range(STEPS):
        p.grad = gradient(rows, columns, step)
        optimizer.step()
    return p.detach().reshape(-1).tolist()


def main():
    package = types.ModuleType("apollo")
    package.__path__ = []
    sys.modules["apollo"] = package
    projector = load("random_projector").GradientProjector
    load("svd_projector")
    made = {}

    def ours(self, gradients, rank, type, seed):
        made[id(self)] = made.get(id(self), -1) + 1
        p = projection(rank, gradients.shape[0 if type == "left" else 1], made[id(self)])
        return p.t() if type == "left" else p

    projector.get_orthogonal_matrix = ours
    program = load("apollo")
    out = open(os.path.join(os.path.dirname(__file__), "steps.h"), "w")
    out.write("/* SPDX-License-Identifier: MIT\n *\n * Made by tests/apollo/make.py: parameters after five steps of the "
              "authors' program.\n */\nstatic const struct {\n    int64_t rows, columns, rank;\n"
              "    bool of_tensors, limited;\n    double p[48];\n} official[] = {\n    /* clang-format off */\n")
    for rows, columns, rank in ((6, 8, 2), (8, 6, 2), (6, 6, 3), (5, 9, 1), (9, 5, 1)):
        for kind in ("channel", "tensor"):
            for limited in (False, True):
                made.clear()
                values = steps(program, rows, columns, rank, kind, (0.0, 0.0) if limited else BETAS, limited)
                out.write(f"    {{ {rows}, {columns}, {rank}, {str(kind == 'tensor').lower()}, {str(limited).lower()},\n"
                          "      {")
                for i, value in enumerate(values):
                    out.write(("\n        " if i % 5 == 0 else " ") + f"{value:.16g},")
                out.write(" } },\n")
    out.write("    /* clang-format on */\n};\n")


main()
