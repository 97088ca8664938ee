# SPDX-License-Identifier: MIT
"""A model of a published shape with LoRA, this trainer and PEFT taking turns on the same cores.

    adapters.py [--trainer PATH] [--shape NAME] [--layers N] [--length N] [--rounds N] [--steps N] [--threads N] [--work DIR]
                [--modes fp32,bf16]

The weights are random, as speed and memory do not depend on them: transformers writes the folder that both begin with.
Rank 16 on every matrix of the blocks, AdamW, one sequence a step, no recomputation.  A process per turn: its median step
without the first, and its peak of resident memory.  PEFT computes in float32, and in bfloat16 with weights in bfloat16;
ours in the modes of the same names.  Python has to have torch, transformers and peft.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLIDES = ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(64)]
# NAME: model class, its layers and vocabulary, the rest of its configuration
SHAPES = {
    "gemma3-270m": ("Gemma3", "Gemma3TextConfig", 18, 262144, dict(
        hidden_size=640, intermediate_size=2048, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
        query_pre_attn_scalar=256, sliding_window=512)),
    "qwen3-0.6b": ("Qwen3", "Qwen3Config", 28, 151936, dict(
        hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        tie_word_embeddings=True)),
    "smollm2-135m": ("Llama", "LlamaConfig", 30, 49152, dict(
        hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)),
}
MODES = {"fp32": "float32", "bf16": "bfloat16"}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make(options, folder):
    """The folder, with a small tokenizer; its text has only that one's tokens, its logits are all the vocabulary's."""
    import torch
    import transformers
    torch.manual_seed(1)
    family, config, layers, vocabulary, more = SHAPES[options.shape]
    layers = options.layers or layers
    if family == "Gemma3":
        more = dict(more, layer_types=SLIDES[:layers])
    model = getattr(transformers, family + "ForCausalLM")(getattr(transformers, config)(
        num_hidden_layers=layers, vocab_size=vocabulary, max_position_embeddings=32768, bos_token_id=0, eos_token_id=0,
        pad_token_id=None, **more))
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_file=str(ROOT / "tests/huggingface/models/tokenizer.json"),
                                         bos_token="<|endoftext|>", eos_token="<|endoftext|>").save_pretrained(folder)


def peft(options, folder, mode):
    """A turn of PEFT: prints the median step in seconds."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model
    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, MODES[mode]))
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM"))
    rule = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    draw, seconds = random.Random(1), []
    for _ in range(options.steps + 1):
        ids = torch.tensor([[draw.randrange(1, 270) for _ in range(options.length)]])
        start = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        rule.step()
        rule.zero_grad()
        seconds.append(time.perf_counter() - start)
    print("step", statistics.median(seconds[1:]))


def turn(command, folder):
    """What a process printed, its peak of resident memory in bytes."""
    log = folder / "turn.txt"
    with open(log, "wb") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("adapters.py: " + log.read_text(errors="replace")[-2000:])
    return log.read_text(errors="replace"), usage.ru_maxrss * 1024


def own(options, folder, mode):
    text = folder / "text.txt"
    if not text.exists():
        draw = random.Random(1)
        text.write_text("".join(f"line {draw.randrange(10**6)} of the text, and another hour\n" for _ in range(40000)))
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "run.yaml").write_text(f"init_from: model\ntasks: [{{name: text, train: {text}}}]\n")
    _, peak = turn([options.trainer, "--config", "run.yaml", "adapter.kind=lora", "adapter.rank=16",
                    "adapter.alpha=32", "batch_size=1", f"max_length={options.length}",
                    f"max_steps={options.steps + 1}", "learning_rate=2e-4", f"precision.mode={mode}", "device=cpu",
                    f"threads={options.threads}", "resume=never", "checkpoint_freq=0", "evaluation.every=0",
                    "evaluation.batches=1", "evaluation.sample_tokens=0", "logging.every=1", "logging.progress=none",
                    "logging.tensorboard=false", f"out_dir={folder}/run"], folder)
    records = [json.loads(line) for line in open(folder / "run/metrics.jsonl", encoding="utf-8")]
    rates = [record["tokens_per_second"] for record in records if record["event"] == "step"][1:]
    return options.length / statistics.median(rates), peak


def main():
    parser = argparse.ArgumentParser(description="A published shape with LoRA, this trainer and PEFT taking turns.")
    parser.add_argument("--trainer", default=ROOT / "build/trainer", type=pathlib.Path)
    parser.add_argument("--shape", default="gemma3-270m", choices=SHAPES)
    parser.add_argument("--layers", default=0, type=int, help="fewer layers than the shape's")
    parser.add_argument("--length", default=1024, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=3, type=int)
    parser.add_argument("--threads", default=os.cpu_count(), type=int)
    parser.add_argument("--work", default="/tmp/adapters", type=pathlib.Path)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--turn", choices=[*MODES, "make"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.trainer, options.work = options.trainer.resolve(), options.work.resolve()
    folder = options.work / (f"{options.shape}-{options.layers}" if options.layers else options.shape)
    if options.turn == "make":
        return make(options, folder / "model")
    if options.turn:
        return peft(options, folder / "model", options.turn)
    folder.mkdir(parents=True, exist_ok=True)

    def own_process(task):
        return turn([sys.executable, __file__, "--turn", task, "--shape", options.shape, "--layers", options.layers,
                     "--work", options.work, "--length", options.length, "--steps", options.steps,
                     "--threads", options.threads], folder)

    if not (folder / "model/config.json").exists():
        own_process("make")  # a child's peak begins with its parent's, which is to stay small
    modes = options.modes.split(",")
    sides = [(side, mode) for mode in modes for side in ("ours", "PEFT")]
    taken = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, mode in sides:
            if side == "ours":
                taken[side, mode].append(own(options, folder, mode))
                continue
            said, peak = own_process(mode)
            taken[side, mode].append((float(re.findall(r"^step (.+)$", said, re.M)[-1]), peak))
    print("| mode | ours tokens/s | PEFT tokens/s | times | ours GiB | PEFT GiB |\n|---|---|---|---|---|---|")
    for mode in modes:
        (our_step, our_peak), (step, peak) = ([statistics.median(column) for column in zip(*taken[side, mode])]
                                             for side in ("ours", "PEFT"))
        print(f"| {mode} | {options.length / our_step:.1f} | {options.length / step:.1f} | {step / our_step:.2f} | "
              f"{our_peak / 2**30:.2f} | {peak / 2**30:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
