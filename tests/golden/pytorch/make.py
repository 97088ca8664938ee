#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make.py: write the fixtures of tests/golden/test_pytorch_step.c anew: one training step by PyTorch.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch safetensors numpy
    /tmp/torch/bin/python tests/golden/pytorch/make.py

For GPT-2, Llama and Qwen3, written out by hand over torch's functions, with two micro-batches:
    FAMILY.yaml         the configuration; the test trains by this very file
    FAMILY.safetensors  initial.*; fp32.gradient.*, fp32.after.*; bf16.gradient.*, bf16.after.*
    FAMILY.json         losses, norms of the gradients, distances, and which PyTorch it was
    data.jsonl          the text, prompts and completions: a prompt's characters are no targets
gradient: of the mean loss over all targets of the step.  after: the weights after one step of torch.optim.AdamW behind
clip_grad_norm_, decay on matrices only.  It is the optimizer's second step: its moments were m = w / 32 and v = m^2 of
the initial weights w, so that betas and bias corrections count.

    fp32  torch's own layers and autograd in float32.  The same in float64 says how large float32's error is
          (`distances`: the largest error of a row, see distance).
    bf16  the same layers in float64, with a rounding at each place where the mode stores a number: bfloat16 for
          weights, activations and their gradients, float32 for the residual stream, the statistics of norms and
          attention, and the logits.  Sums are exact in float64: what remains is what the mode defines.
          torch.autocast, which rounds in other places, must come near (`autocast`).
Packed products are stored as the project stores them: rows of q, k, v; rows of gate, up.
"""
import json
import math
import os

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FOLDER = os.path.dirname(os.path.abspath(__file__))
LENGTH, MICRO_BATCH, MICRO_BATCHES = 16, 2, 2
DOCUMENTS = [
    ("Say 2+2: ", "it is 4.\n"),
    ("wax ", "& jumps over\n"),
    ("Who? ", "Zoe, by quartz\n"),
    ("k=", "3/7; d>5\n"),
    ("Two dim vats ", "\n"),
]
# seed: the second step's windows begin at the first token (tests/golden/test_pytorch_step.c looks at them).
TRAINING = {"seed": 20, "batch_size": MICRO_BATCH, "gradient_accumulation_steps": MICRO_BATCHES, "max_length": LENGTH,
            "learning_rate": 0.01, "weight_decay": 0.5}
OPTIMIZER = {"kind": "adamw", "betas": [0.9, 0.95], "epsilon": 0.002, "clip_norm": 0.5}
COMMON = {"layers": 2, "width": 24, "vocabulary": 44}
FAMILIES = {
    "gpt2": {**COMMON, "family": "gpt2", "heads": 3, "mlp_width": 40, "bias": True, "tie_head": True,
             "norm_epsilon": 1e-5},
    "llama": {**COMMON, "family": "llama", "heads": 3, "kv_heads": 1, "mlp_width": 32, "tie_head": False,
              "norm_epsilon": 1e-5, "rope_theta": 10000},
    "qwen3": {**COMMON, "family": "llama", "heads": 4, "kv_heads": 2, "head_dim": 8, "mlp_width": 24, "tie_head": True,
              "qk_norm": True, "norm_epsilon": 1e-6, "rope_theta": 1000000},
}

# --- roundings -------------------------------------------------------------------------------------------------------


def rounded(x, dtype):
    """To the nearest number of the format, ties to even.  By way of the mantissa: Tensor.to goes from float64 to
    bfloat16 over float32, which rounds twice."""
    if dtype is None:
        return x
    bits = {torch.bfloat16: 8, torch.float32: 24}[dtype]
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(torch.ldexp(mantissa, torch.tensor(bits))), exponent - bits)


class Round(torch.autograd.Function):
    """The value is stored in one format, its gradient in another; None: not stored."""

    @staticmethod
    def forward(ctx, x, value, gradient):
        ctx.gradient = gradient
        return rounded(x, value)

    @staticmethod
    def backward(ctx, dy):
        return rounded(dy, ctx.gradient), None, None


class Norm(torch.autograd.Function):
    """Layer norm (centred) or root-mean-square norm with a backward that reads statistics stored in float32."""

    @staticmethod
    def forward(ctx, x, weight, bias, epsilon, centred):
        mean = x.mean(-1, keepdim=True) if centred else torch.zeros_like(x[..., :1])
        rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, rounded(mean, torch.float32), rounded(rstd, torch.float32))
        ctx.centred, ctx.biased = centred, bias is not None
        y = (x - mean) * rstd * weight
        return y + bias if bias is not None else y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        xhat, g = (x - mean) * rstd, dy * weight
        dx = g - xhat * (g * xhat).mean(-1, keepdim=True)
        if ctx.centred:
            dx = dx - g.mean(-1, keepdim=True)
        rows = tuple(range(dy.dim() - 1))
        return dx * rstd, (dy * xhat).sum(rows), dy.sum(rows) if ctx.biased else None, None, None


class Attention(torch.autograd.Function):
    """Causal attention that keeps its output in bfloat16 and the log of each row's sum in float32 for backward."""

    @staticmethod
    def forward(ctx, q, k, v, keep_out, keep_lse):
        scale = float(numpy.float32(1 / math.sqrt(q.shape[-1])))
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = (scale * q @ k.transpose(-1, -2)).masked_fill(hidden, -math.inf)
        lse = scores.logsumexp(-1, keepdim=True)
        out = rounded((scores - lse).exp() @ v, keep_out)
        ctx.save_for_backward(q, k, v, out, (scores - rounded(lse, keep_lse)).exp())
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, p = ctx.saved_tensors
        delta = (dout * out).sum(-1, keepdim=True)
        ds = p * (dout @ v.transpose(-1, -2) - delta) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ dout, None, None


# --- layers ----------------------------------------------------------------------------------------------------------


class Plain:
    """torch's own layers, no rounding but the tensors'."""

    def weight(self, w):
        return w

    stored = active = logits = stream = weight

    def linear(self, x, w, bias):
        return F.linear(x, w, bias)

    def linear_residual(self, x, w, bias, residual):
        return residual + F.linear(x, w, bias)

    def layer_norm(self, x, w, b, epsilon):
        return F.layer_norm(x, w.shape, w, b, epsilon)

    def rms_norm(self, x, w, epsilon):
        return F.rms_norm(x, w.shape, w, epsilon)

    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Mixed(Plain):
    """The bf16 mode: float64 tensors, rounded where the mode stores."""

    half, single = torch.bfloat16, torch.float32

    def weight(self, w):  # its gradient is summed in float32
        return Round.apply(w, self.half, None)

    def stored(self, x):  # an activation
        return Round.apply(x, self.half, self.half)

    def active(self, x):  # behind an activation function with a fused backward: the gradient is not stored
        return Round.apply(x, self.half, None)

    def logits(self, x):
        return Round.apply(x, self.single, self.half)

    def stream(self, x):
        return Round.apply(x, self.single, self.single)

    def linear(self, x, w, bias):
        return self.stored(F.linear(x, self.weight(w), bias))

    def linear_residual(self, x, w, bias, residual):  # the bias sums the stream's gradient, the products a rounded copy
        product = Round.apply(F.linear(x, self.weight(w)), None, self.half)
        return self.stream(residual + (product if bias is None else product + bias))

    def layer_norm(self, x, w, b, epsilon):
        return self.stored(Norm.apply(x, w, b, epsilon, True))

    def rms_norm(self, x, w, epsilon):
        return self.stored(Norm.apply(x, w, None, epsilon, False))

    def attention(self, q, k, v):
        return self.stored(Attention.apply(q, k, v, self.half, self.single))


def split_heads(x, heads):  # [B, T, heads D] -> [B, heads, T, D]
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def rope(x, theta):
    """Halves: element i turns with element i + D/2 (Su et al. 2021)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


def gpt2(p, model, layers, tokens):
    epsilon, heads = model["norm_epsilon"], model["heads"]
    table, positions = layers.weight(p["transformer.wte.weight"]), layers.weight(p["transformer.wpe.weight"])
    x = layers.stream(table[tokens] + positions)
    for i in range(model["layers"]):
        def at(name, block=f"transformer.h.{i}."):
            return p[f"{block}{name}.weight"], p[f"{block}{name}.bias"]
        y = layers.layer_norm(x, *at("ln_1"), epsilon)
        q, k, v = (split_heads(part, heads) for part in layers.linear(y, *at("attn.c_attn")).chunk(3, -1))
        x = layers.linear_residual(merge_heads(layers.attention(q, k, v)), *at("attn.c_proj"), x)
        y = layers.layer_norm(x, *at("ln_2"), epsilon)
        y = layers.active(F.gelu(layers.linear(y, *at("mlp.c_fc")), approximate="tanh"))
        x = layers.linear_residual(y, *at("mlp.c_proj"), x)
    x = layers.layer_norm(x, p["transformer.ln_f.weight"], p["transformer.ln_f.bias"], epsilon)
    return layers.logits(F.linear(x, table))


def llama(p, model, layers, tokens):
    epsilon, heads, kv_heads, theta = (model[key] for key in ("norm_epsilon", "heads", "kv_heads", "rope_theta"))
    dim = model.get("head_dim", model["width"] // heads)
    table = layers.weight(p["model.embed_tokens.weight"])
    x = layers.stream(table[tokens])
    for i in range(model["layers"]):
        def at(name, block=f"model.layers.{i}."):
            return p[f"{block}{name}.weight"]
        y = layers.rms_norm(x, at("input_layernorm"), epsilon)
        qkv = layers.linear(y, at("self_attn.qkv_proj"), None)
        q, k, v = (split_heads(part, part.shape[-1] // dim)
                   for part in qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], -1))
        if model.get("qk_norm"):
            q = layers.rms_norm(q, at("self_attn.q_norm"), epsilon)
            k = layers.rms_norm(k, at("self_attn.k_norm"), epsilon)
        q, k = layers.stored(rope(q, theta)), layers.stored(rope(k, theta))
        # Each key head serves heads / kv_heads query heads side by side; its gradient is their sum.
        k, v = (layers.stored(part).repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        x = layers.linear_residual(merge_heads(layers.attention(q, k, v)), at("self_attn.o_proj"), None, x)
        y = layers.rms_norm(x, at("post_attention_layernorm"), epsilon)
        gate, up = layers.linear(y, at("mlp.gate_up_proj"), None).chunk(2, -1)
        x = layers.linear_residual(layers.active(F.silu(gate) * up), at("mlp.down_proj"), None, x)
    x = layers.rms_norm(x, p["model.norm.weight"], epsilon)
    return layers.logits(F.linear(x, table if model["tie_head"] else layers.weight(p["lm_head.weight"])))


# --- a step ----------------------------------------------------------------------------------------------------------


def shapes(model):
    width, layers, mlp, vocabulary = (model[key] for key in ("width", "layers", "mlp_width", "vocabulary"))
    if model["family"] == "gpt2":
        yield "transformer.wte.weight", (vocabulary, width)
        yield "transformer.wpe.weight", (LENGTH, width)
        for i in range(layers):
            block = f"transformer.h.{i}."
            for name, shape in (("ln_1", (width,)), ("attn.c_attn", (3 * width, width)),
                                ("attn.c_proj", (width, width)), ("ln_2", (width,)), ("mlp.c_fc", (mlp, width)),
                                ("mlp.c_proj", (width, mlp))):
                yield f"{block}{name}.weight", shape
                yield f"{block}{name}.bias", shape[:1]
        yield "transformer.ln_f.weight", (width,)
        yield "transformer.ln_f.bias", (width,)
        return
    dim = model.get("head_dim", width // model["heads"])
    mixed, kv = model["heads"] * dim, model["kv_heads"] * dim
    yield "model.embed_tokens.weight", (vocabulary, width)
    for i in range(layers):
        block = f"model.layers.{i}."
        yield block + "input_layernorm.weight", (width,)
        yield block + "self_attn.qkv_proj.weight", (mixed + 2 * kv, width)
        if model.get("qk_norm"):
            yield block + "self_attn.q_norm.weight", (dim,)
            yield block + "self_attn.k_norm.weight", (dim,)
        yield block + "self_attn.o_proj.weight", (width, mixed)
        yield block + "post_attention_layernorm.weight", (width,)
        yield block + "mlp.gate_up_proj.weight", (2 * mlp, width)
        yield block + "mlp.down_proj.weight", (width, mlp)
    yield "model.norm.weight", (width,)
    if not model["tie_head"]:
        yield "lm_head.weight", (vocabulary, width)


def initial_weights(model):
    """Activations of about 1; tables small, so that the epsilon of the first norm counts; no gain is 1, no bias 0."""
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for name, shape in shapes(model):
        draw = torch.randn(shape, generator=generator, dtype=torch.float64)
        table = any(part in name for part in ("wte", "wpe", "embed_tokens"))
        if len(shape) == 2:
            draw *= 0.1 if table else shape[1] ** -0.5
        else:
            draw = 0.1 * draw + (0 if name.endswith("bias") else 1)
        weights[name] = draw.to(torch.float32)
    return weights


def batch():
    text = [(c, counted) for prompt, completion in DOCUMENTS
            for part, counted in ((prompt, False), (completion, True)) for c in part]
    characters = sorted({c for c, _ in text})
    assert len(text) == 5 * LENGTH and len(characters) <= COMMON["vocabulary"], (len(text), len(characters))
    tokens = torch.tensor([characters.index(c) for c, _ in text])
    targets = torch.tensor([characters.index(c) if counted else -1 for c, counted in text])
    rows = MICRO_BATCH * MICRO_BATCHES
    return tokens[:rows * LENGTH].view(rows, LENGTH), targets[1:rows * LENGTH + 1].view(rows, LENGTH)


def gradients(model, layers, dtype, weights, tokens, targets):
    """Loss and gradients of the mean over all targets, micro-batch after micro-batch."""
    p = {name: w.detach().clone().to(dtype).requires_grad_() for name, w in weights.items()}
    forward = gpt2 if model["family"] == "gpt2" else llama
    # What multiplies the gradients is one float32, in every mode.
    scale, loss = float(numpy.float32(1) / numpy.float32((targets >= 0).sum())), 0.0
    for first in range(0, tokens.shape[0], MICRO_BATCH):
        logits = forward(p, model, layers, tokens[first:first + MICRO_BATCH])
        part = F.cross_entropy(logits.flatten(0, 1), targets[first:first + MICRO_BATCH].flatten(), ignore_index=-1,
                               reduction="sum")
        (part * scale).backward()
        loss += part.item()
    return loss / (targets >= 0).sum().item(), {name: w.grad for name, w in p.items()}


def adamw(weights, grads):
    """The norm before clipping, and the weights after the step, all in float32."""
    parameters = {name: torch.nn.Parameter(w.clone()) for name, w in weights.items()}
    for name, w in parameters.items():
        w.grad = grads[name].to(torch.float32).clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters.values(), OPTIMIZER["clip_norm"])
    groups = [{"params": [w for w in parameters.values() if w.dim() == 2], "weight_decay": TRAINING["weight_decay"]},
              {"params": [w for w in parameters.values() if w.dim() != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=TRAINING["learning_rate"], betas=tuple(OPTIMIZER["betas"]),
                                  eps=OPTIMIZER["epsilon"], foreach=False)
    for name, w in parameters.items():
        m = weights[name] / 32
        optimizer.state[w] = {"step": torch.tensor(1.0), "exp_avg": m, "exp_avg_sq": m * m}
    optimizer.step()
    return norm.item(), {name: w.detach() for name, w in parameters.items()}


def distance(computed, exact):
    """The largest error of a row, over the row's length or the rows' root mean square, whichever is larger."""
    a, b = (x.to(torch.float64).view(x.shape[0] if x.dim() == 2 else 1, -1) for x in (computed, exact))
    scale = b.norm(dim=1).clamp(min=(b.norm() / math.sqrt(b.shape[0])).item())
    return ((a - b).norm(dim=1) / scale).max().item()


# --- checks of this script's own functions, and files ---------------------------------------------------------------


def check_functions():
    """Without roundings, what is written by hand is what torch differentiates."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    x, w, b, q, k, v = draw(3, 5, 8), draw(8), draw(8), draw(2, 3, 7, 4), draw(2, 3, 7, 4), draw(2, 3, 7, 4)
    single = 2.0 ** -22  # statistics and the scale of scores are float32
    for mine, torchs, inputs, bound in (
            (Norm.apply(x, w, b, 1e-5, True), F.layer_norm(x, w.shape, w, b, 1e-5), (x, w, b), single),
            (Norm.apply(x, w, None, 1e-6, False), F.rms_norm(x, w.shape, w, 1e-6), (x, w), single),
            (Attention.apply(q, k, v, None, None), F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v),
             single)):
        dy = torch.randn(mine.shape, generator=generator, dtype=torch.float64)
        for a, e in zip(torch.autograd.grad(mine, inputs, dy), torch.autograd.grad(torchs, inputs, dy)):
            assert (a - e).norm() <= bound * e.norm()
        assert (mine - torchs).norm() <= bound * torchs.norm()


def text_of(value):
    return str(value).lower() if isinstance(value, bool) else repr(value)


def write_yaml(family, model):
    with open(os.path.join(FOLDER, f"{family}.yaml"), "w", encoding="utf-8") as file:
        file.write("# Made by make.py.  One training step that PyTorch computed too.\n")
        for key, value in TRAINING.items():
            file.write(f"{key}: {text_of(value)}\n")
        for section, keys in (("model", model), ("optimizer", OPTIMIZER), ("schedule", {"kind": "constant"}),
                              ("tokenizer", {"kind": "char"})):
            file.write(f"{section}:\n")
            for key, value in keys.items():
                file.write(f"  {key}: {value if isinstance(value, str) else text_of(value)}\n")
        file.write("tasks:\n  - name: text\n    train: tests/golden/pytorch/data.jsonl\n"
                   "    validation: tests/golden/pytorch/data.jsonl\n")


def make(family, model):
    tokens, targets = batch()
    weights = initial_weights(model)
    tensors = {f"initial.{name}": w for name, w in weights.items()}
    tensors["tokens"], tensors["targets"] = tokens.to(torch.int32), targets.to(torch.int32)
    results = {"torch": torch.__version__, "parameters": len(weights)}
    exact_loss, exact = gradients(model, Plain(), torch.float64, weights, tokens, targets)
    for mode, layers, dtype in (("fp32", Plain(), torch.float32), ("bf16", Mixed(), torch.float64)):
        loss, grads = gradients(model, layers, dtype, weights, tokens, targets)
        norm, after = adamw(weights, grads)
        for name in weights:
            tensors[f"{mode}.gradient.{name}"] = grads[name].to(torch.float32)
            tensors[f"{mode}.after.{name}"] = after[name]
        results[mode] = {"loss": loss, "grad_norm": norm}
        far = {name: distance(grads[name], exact[name]) for name in weights}
        print(f"{family} {mode}: loss {loss:.9g} (float64 {exact_loss:.9g}), gradient norm {norm:.6g}, largest "
              f"distance from float64 {max(far.values()):.3g}")
        if mode == "fp32":
            results[mode]["loss_distance"] = abs(loss - exact_loss) / exact_loss
            results[mode]["distances"] = far
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, cast = gradients(model, Plain(), torch.float32, weights, tokens, targets)
    results["bf16"]["autocast"] = max(distance(cast[name], tensors[f"bf16.gradient.{name}"]) for name in weights)
    print(f"{family}: torch.autocast's largest distance {results['bf16']['autocast']:.3g}")
    assert results["bf16"]["autocast"] < 0.2
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              os.path.join(FOLDER, f"{family}.safetensors"))
    with open(os.path.join(FOLDER, f"{family}.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    write_yaml(family, model)


def main():
    torch.set_num_threads(1)
    check_functions()
    with open(os.path.join(FOLDER, "data.jsonl"), "w", encoding="utf-8") as file:
        for prompt, completion in DOCUMENTS:
            file.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
    for family, model in FAMILIES.items():
        make(family, model)


main()
