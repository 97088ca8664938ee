# SPDX-License-Identifier: MIT
"""What transformers computes in float64, and how far from it f32 may lie.

A model that is asked for in float64 still computes rotary frequencies, angles, norms and softmax in float32, which
rounds otherwise on another processor: so float32 is named float64 while the exact one is made and used.

Steps of training amplify what the first one rounds, so that the distance of a single f32 run is a draw.  The bound is
therefore taken over RUNS: of the weights as they are, and of weights that differ from them by at most half a unit in the
last place.
"""

import contextlib

import torch

RUNS = 10


@contextlib.contextmanager
def in_double():
    """What transformers casts to float32 by name, it casts to float64 inside."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def doubled(model):
    """The same model with float64 weights, made and to be used within in_double()."""
    weights, config = model.double().state_dict(), model.config
    config._attn_implementation = "eager"
    double = type(model)(config).double().eval()
    double.load_state_dict(weights)
    return double


def nudge(parameters, run):
    """Moves f32 parameters by at most half a unit in the last place, each by a draw of `run`; run 0 leaves them."""
    generator = torch.Generator().manual_seed(run)
    for parameter in parameters if run else ():
        draws = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 0.5
        with torch.no_grad():
            parameter.copy_(parameter.double() * (1 + draws * 2**-23))


def bound(exact, single):
    """Twice the largest distance of the losses single(run), run < RUNS, from `exact`."""
    return 2 * max(abs(a - b) for run in range(RUNS) for a, b in zip(exact, single(run)))
