#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""widths.py BUILD FOLDER [NAME...]: two layers of published models' widths, as transformers writes them, against its logits.

Of each of SHAPES a model of random weights is saved in bf16 under FOLDER, two layers deep (one with a window, one without,
where the family has both) and with VOCABULARY tokens; over TOKENS tokens, more than its window, the largest distance of
our f32 logits from transformers' in float64 (exact.py) may be twice as far as its f32 is.  Skipped, with exit status 0,
where torch or transformers are not installed, unless WIDTHS=required.
"""

import array
import os
import pathlib
import shutil
import subprocess
import sys

try:
    import torch
    import transformers
    from transformers import PreTrainedTokenizerFast

    from exact import doubled, in_double
except ImportError as error:
    print(f"SKIPPED  widths: {error}; nothing was compared")
    sys.exit(1 if os.environ.get("WIDTHS") == "required" else 0)

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
VOCABULARY, TOKENS = 8192, 600
HERE = pathlib.Path(__file__).resolve().parent
SLIDES = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=512)
YARN = {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 8192}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0 + i / 48 for i in range(48)], "long_factor": [1.0 + i for i in range(48)],
            "original_max_position_embeddings": 4096}


def shape(width, hidden, heads, shared, head=None, **more):
    return dict(hidden_size=width, intermediate_size=hidden, num_attention_heads=heads, num_key_value_heads=shared,
                **({"head_dim": head} if head else {}), **more)


# name, model, its configuration
SHAPES = [
    ("smollm3-3b", "SmolLM3", shape(2048, 11008, 16, 4, no_rope_layers=[1, 0])),
    ("olmo2-1b", "Olmo2", shape(2048, 8192, 16, 16)),
    ("olmo3-7b", "Olmo3", shape(4096, 11008, 32, 32, rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}, **SLIDES)),
    ("exaone4-1.2b", "Exaone4", shape(2048, 4096, 32, 8, 64, tie_word_embeddings=True, **SLIDES)),
    ("phi4-mini", "Phi3", shape(3072, 8192, 24, 8, rope_parameters=LONGROPE, original_max_position_embeddings=4096,
                                tie_word_embeddings=True)),
    ("granite-3.3-2b", "Granite", shape(2048, 8192, 32, 8, embedding_multiplier=12.0, logits_scaling=8.0,
                                        residual_multiplier=0.22, attention_multiplier=0.015625, tie_word_embeddings=True)),
    ("gemma2-2b", "Gemma2", shape(2304, 9216, 8, 4, 256, query_pre_attn_scalar=256, **SLIDES)),
    ("gemma3-270m", "Gemma3", shape(640, 2048, 4, 1, 256, query_pre_attn_scalar=256, **SLIDES)),
    ("gemma3-1b", "Gemma3", shape(1152, 6912, 4, 1, 256, query_pre_attn_scalar=256, **SLIDES)),
    ("mistral-7b", "Mistral", shape(4096, 14336, 32, 8, sliding_window=512)),
    ("ministral-8b", "Ministral", shape(4096, 12288, 32, 8, 128, **SLIDES)),
    ("nanochat-d20", "NanoChat", shape(1280, 5120, 10, 10)),
]


def make(kind, settings, folder):
    torch.manual_seed(1)
    config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))(
        vocab_size=VOCABULARY, num_hidden_layers=2, max_position_embeddings=131072, bos_token_id=0, eos_token_id=0,
        pad_token_id=None, **settings)
    model = getattr(transformers, kind + "ForCausalLM")(config)
    with torch.no_grad():  # norms away from 1, or 0
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_file=str(HERE / "models" / "tokenizer.json"), eos_token="<|endoftext|>",
                            bos_token="<|endoftext|>").save_pretrained(folder)


def ours(build, folder, ids):
    (folder / "ids.bin").write_bytes(array.array("i", ids).tobytes())
    done = subprocess.run([build / "tests/huggingface/logits", folder, folder / "ids.bin", "precision.mode=fp32"],
                          capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).view(len(ids), -1).double()


def main():
    build, work, failed = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), 0
    ids = torch.randint(1, VOCABULARY, (TOKENS,), generator=torch.Generator().manual_seed(2)).tolist()
    for name, kind, settings in SHAPES:
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        folder = work / name
        make(kind, settings, folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
        with torch.no_grad():
            single = model(torch.tensor([ids])).logits[0].double()
        with torch.no_grad(), in_double():
            double = doubled(model)
            exact = double(torch.tensor([ids])).logits[0]
        del model, double
        found = ours(build, folder, ids)[:, :VOCABULARY]
        theirs, off = (single - exact).abs().max().item(), (found - exact).abs().max().item()
        good = off <= 2 * theirs
        failed += not good
        print(f"{'ok   ' if good else 'FAIL '} {name}: logits up to {exact.abs().max():.3g}, ours off by {off:.3g}, transformers' "
              f"f32 by {theirs:.3g}", flush=True)
        shutil.rmtree(folder)
    return failed > 0


sys.exit(main())
