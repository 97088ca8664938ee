#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make.py FOLDER [NAME...]: small models that transformers made, with what it computes from them in float64.

    FOLDER/NAME/     config.json, model.safetensors (or shards), tokenizer.json: as save_pretrained writes them
    FOLDER/NAME/expected.bin   after each of TOKENS the logits in float64, rounded to f32, one row a token
    FOLDER/NAME/bound.txt      twice the largest distance of transformers' own f32 logits from them, of the whole text at
                               once and token by token, and the greedy continuation of the first PROMPT tokens
                               and its shares of right answers to choices.jsonl: by likelihood, a token, a byte
    FOLDER/tokens.bin          the tokens, i32
    FOLDER/choices.jsonl       questions of drawn words
"""

import json
import os
import random
import sys

import numpy
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY, TOKENS, PROMPT, CONTINUATION, QUESTIONS = 272, 48, 12, 16, 40
BASE = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
# Of later families: a padding token would be one of a larger vocabulary.
LATER = dict(BASE, num_key_value_heads=2, pad_token_id=None)
GEMMA = dict(LATER, hidden_size=24, head_dim=8, sliding_window=8)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.25, 2.0], "long_factor": [1.0, 3.0, 9.0], "original_max_position_embeddings": 48}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

# name, model, its configuration, dtype, largest file
MODELS = [
    ("gpt2", "GPT2", GPT2, torch.float32, None),
    ("gpt2-untied", "GPT2", dict(GPT2, tie_word_embeddings=False, n_inner=40), torch.float16, None),
    ("llama", "Llama", BASE, torch.bfloat16, None),
    ("llama-tied", "Llama", dict(BASE, num_key_value_heads=2, tie_word_embeddings=True), torch.float32, None),
    ("llama3", "Llama", dict(BASE, num_key_value_heads=1, rope_parameters=LLAMA3), torch.bfloat16, None),
    ("llama-yarn", "Llama", dict(BASE, rope_parameters=YARN), torch.bfloat16, None),
    ("llama-linear", "Llama", dict(BASE, rope_parameters=LINEAR), torch.bfloat16, None),
    ("mistral", "Mistral", dict(BASE, num_key_value_heads=2, sliding_window=None), torch.bfloat16, None),
    ("qwen2", "Qwen2", dict(BASE, num_key_value_heads=2), torch.bfloat16, "8KB"),
    ("qwen3", "Qwen3", dict(BASE, num_key_value_heads=2, head_dim=8), torch.bfloat16, None),
    ("mistral-window", "Mistral", dict(BASE, num_key_value_heads=2, sliding_window=8), torch.bfloat16, None),
    ("ministral", "Ministral", dict(LATER, head_dim=4, num_hidden_layers=3, sliding_window=8, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"]), torch.bfloat16, None),
    ("smollm3", "SmolLM3", dict(LATER, num_hidden_layers=5), torch.bfloat16, None),
    ("olmo2", "Olmo2", LATER, torch.bfloat16, None),
    ("olmo3", "Olmo3", dict(LATER, num_hidden_layers=5, sliding_window=8, rope_parameters={
        "full_attention": YARN, "sliding_attention": PLAIN}), torch.bfloat16, None),
    ("exaone4", "Exaone4", dict(LATER, num_hidden_layers=5, sliding_window=8, rope_parameters=LLAMA3), torch.bfloat16, None),
    ("phi3", "Phi3", dict(LATER, num_attention_heads=2, num_key_value_heads=1, rope_parameters=LONGROPE,
                          original_max_position_embeddings=48), torch.bfloat16, None),
    ("granite", "Granite", dict(LATER, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
                                attention_multiplier=0.25), torch.bfloat16, None),
    ("gemma2", "Gemma2", dict(GEMMA, num_hidden_layers=3, query_pre_attn_scalar=16, attn_logit_softcapping=5.0,
                              final_logit_softcapping=10.0), torch.bfloat16, None),
    ("gemma3", "Gemma3", dict(GEMMA, num_hidden_layers=7, num_key_value_heads=1, query_pre_attn_scalar=8,
                              rope_parameters={"full_attention": dict(LINEAR, rope_theta=1e6, factor=8.0),
                                               "sliding_attention": PLAIN}), torch.bfloat16, None),
    ("nanochat", "NanoChat", LATER, torch.bfloat16, None),
]


def tokenizer():
    """Bytes and fifteen merges, the end of a document first."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("o", "u"), ("e", "r"), ("an", "d"), ("h", "a"),
              ("Ġ", "the"), ("Ġ", "a"), ("Ġ", "and"), ("in", "g"), ("o", "n"), ("r", "e"), ("e", "n")]
    tokens = ["<|endoftext|>"] + alphabet + [a + b for a, b in merges]
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|endoftext|>",
                                                eos_token="<|endoftext|>")


def spread(model):
    """Weights that matter: everything away from its neutral value."""
    with torch.no_grad():
        for parameter in model.parameters():
            wide = 0.1 if parameter.dim() == 1 else 0.4
            parameter.add_(wide * torch.randn_like(parameter))


def token_by_token(model, tokens):
    rows, cache = [], None
    for token in tokens:
        result = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        rows.append(result.logits[0, -1].numpy())
    return numpy.stack(rows)


def greedy(model, prompt):
    tokens = list(prompt)
    while len(tokens) < len(prompt) + CONTINUATION:
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt):]


def write_questions(path, chooser):
    words = "the and that in hour another on there when of a were hand ring then".split()
    questions = []
    for number in range(QUESTIONS):
        count = chooser.choice([2, 3, 4])
        endings = [" ".join(chooser.choices(words, k=chooser.randrange(1, 5))) for _ in range(count)]
        label = chooser.randrange(count)
        questions.append({"ctx": " ".join(chooser.choices(words, k=chooser.randrange(1, 7))), "endings": endings,
                          "label": label if number % 3 else str(label)})
    with open(path, "w") as file:
        file.writelines(json.dumps(question) + "\n" for question in questions)
    return questions


def right_answers(model, words, questions):
    right = [0, 0, 0]
    for question in questions:
        context = words(question["ctx"])["input_ids"]
        scores = []
        for ending in question["endings"]:
            tokens = words(" " + ending)["input_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([context + tokens])).logits[0].log_softmax(-1)
            total = sum(logits[len(context) + i - 1, token].item() for i, token in enumerate(tokens))
            scores.append((total, total / len(tokens), total / len(ending)))
        for k in range(3):
            right[k] += max(range(len(scores)), key=lambda i: scores[i][k]) == int(question["label"])
    return [count / len(questions) for count in right]


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    chooser = random.Random(20)
    tokens = [chooser.randrange(1, VOCABULARY) for _ in range(TOKENS)]
    numpy.array(tokens, dtype="<i4").tofile(os.path.join(folder, "tokens.bin"))
    questions = write_questions(os.path.join(folder, "choices.jsonl"), chooser)
    for seed, (name, kind, settings, dtype, shard) in enumerate(MODELS):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(seed)
        model = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM"))(
            getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))(**settings)).eval()
        spread(model)
        model = model.to(dtype)
        place = os.path.join(folder, name)
        model.save_pretrained(place, **({"max_shard_size": shard} if shard else {}))
        tokenizer().save_pretrained(place)
        for extra in ("tokenizer_config.json", "generation_config.json"):
            os.remove(os.path.join(place, extra))
        if kind.startswith("Gemma"):  # whose own class takes no tokenizer of bytes
            with open(os.path.join(place, "tokenizer_config.json"), "w") as file:
                file.write('{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}\n')
        # Read back: converting a model would round its rotary frequencies, too.  Fused attention leaves soft caps out.
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
        with torch.no_grad():
            single = [model(torch.tensor([tokens])).logits[0].numpy(), token_by_token(model, tokens)]
            exact = model.double()(torch.tensor([tokens])).logits[0].numpy()
        exact.astype("<f4").tofile(os.path.join(place, "expected.bin"))
        with open(os.path.join(place, "bound.txt"), "w") as file:
            file.write("%.3g\n" % (2 * max(abs(way - exact).max() for way in single)))
            file.write(" ".join(map(str, greedy(model, tokens[:PROMPT]))) + "\n")
            file.write(" ".join("%.4f" % share for share in right_answers(model, tokenizer(), questions)) + "\n")


main()
