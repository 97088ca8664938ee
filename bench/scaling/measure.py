# SPDX-License-Identifier: MIT
"""Step time against model size and number of threads: what bench/scaling.sh runs.

    measure.py [--build DIR] [--rounds N] [--seconds S] [--threads N,...] [--modes bf16,fp32] [--sizes N] [--json FILE]
               [--plot FILE.svg] TEXT

One family, GPT-2 on characters at T 256 with 4 sequences a step; the largest has GPT-2 124M's shape, vocabulary and
biases.  Of each size, modes and numbers of threads take turns, every round again; a turn is a run of some seconds,
without its first record, and the median of all records of a setting is its speed.  The peak of a mode on N threads is
the best that any of its runs measured.  --sizes N: the N smallest.

Arithmetic of a step, as the trainer counts it: 6 (12 L C^2 + V C) + 6 L C T a token.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

from plot import write_plot

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LENGTH, BATCH = 256, 4
TOKENS = LENGTH * BATCH

# Layers, width, heads.
SIZES = [(2, 64, 2), (3, 96, 3), (4, 128, 4), (5, 192, 6), (6, 256, 4), (6, 384, 6), (8, 512, 8), (10, 640, 10),
         (12, 768, 12)]
LARGEST = ["model.vocabulary=50304", "model.bias=true", "model.max_positions=1024"]
GUESSED_RATE = {"bf16": 60e9, "fp32": 40e9}  # GFLOP/s a thread, to choose the number of steps: a turn's length, no result
MOST_STEPS, LEAST_STEPS, RECORDS = 400, 4, 8


class Failure(Exception):
    pass


def flops_of(size, vocabulary):
    layers, width, _ = size
    return 6.0 * (12 * layers * width**2 + vocabulary * width) + 6.0 * layers * width * LENGTH


def train(options, size, mode, threads, steps, every, folder, trace=None):
    """A run: its tokens per second, one for each record but the first, and what its log says."""
    layers, width, heads = size
    command = [os.path.join(options.build, "trainer"), "--config", os.path.join(ROOT, "configs", "shakespeare-small.yaml"),
               f"tasks.0.train={options.text}", f"model.layers={layers}", f"model.width={width}", f"model.heads={heads}",
               f"max_length={LENGTH}", f"batch_size={BATCH}", f"precision.mode={mode}", f"threads={threads}",
               f"max_steps={steps}", f"logging.every={every}", "device=cpu", "resume=never", "checkpoint_freq=0",
               "evaluation.every=0", "evaluation.batches=1", "evaluation.sample_tokens=0", "logging.tensorboard=false",
               "logging.progress=none", f"out_dir={folder}", *(LARGEST if size == SIZES[-1] else []),
               *([f"logging.trace={trace}"] if trace else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    log = done.stderr + done.stdout
    if done.returncode:
        raise Failure(log.strip().splitlines()[-1] if log.strip() else "the trainer failed")
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [record["tokens_per_second"] for record in records if record["event"] == "step"][1:], log


def found(pattern, log):
    match = re.search(pattern, log)
    if not match:
        raise Failure(f"the trainer's log lacks '{pattern}'")
    return match


def measure(options, size):
    """By (mode, threads): tokens per second; and the size's parameters, vocabulary and the peaks its runs measured."""
    rates, peaks, parameters, vocabulary = {}, {}, 0.0, 0
    for _ in range(options.rounds):
        for mode in options.modes:
            for threads in options.threads:
                guess = flops_of(size, 50304 if size == SIZES[-1] else 100) * TOKENS / GUESSED_RATE[mode] / threads
                steps = max(LEAST_STEPS, min(MOST_STEPS, round(options.seconds / guess)))
                with tempfile.TemporaryDirectory() as folder:
                    turn, log = train(options, size, mode, threads, steps, max(1, steps // RECORDS), folder)
                rates.setdefault((mode, threads), []).extend(turn)
                model = found(r"vocabulary (\d+), ([\d.]+) (million|thousand|billion)? ?parameters", log)
                unit = {"thousand": 1e3, "million": 1e6, "billion": 1e9, None: 1.0}[model[3]]
                vocabulary, parameters = int(model[1]), float(model[2]) * unit
                peak = 1e9 * float(found(r"measured ([\d.]+) GFLOP/s", log)[1])
                peaks[mode, threads] = max(peaks.get((mode, threads), 0.0), peak)
    return {setting: statistics.median(values) for setting, values in rates.items()}, parameters, vocabulary, peaks


def gaps(options, mode, threads):
    """Of a traced step of the smallest model: milliseconds, those in no operation, and the number of operations."""
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.json")
        train(options, SIZES[0], mode, threads, 150, 50, os.path.join(folder, "run"), "51-150")
        done = subprocess.run([os.path.join(options.build, "bench", "profile"), "--threads", str(threads), "--json", page,
                               os.path.join(folder, "run", "trace.json")], capture_output=True, text=True)
        if done.returncode:
            raise Failure(done.stderr.strip())
        with open(page, encoding="utf-8") as file:
            profile = json.load(file)
    return profile["step"]["ms"], profile["classes"]["in no operation"]["ms"], profile["step"]["calls"]


def print_rows(rows, options, peaks):
    """The large table, a row for each size and mode."""
    threads = options.threads
    heads = [f"{n} thread{'s' if n > 1 else ''}: ms | tokens/s | of peak" for n in threads]
    more = [f"speedup, {n}" for n in threads[1:]]
    print("| parameters | layers | width | tokens a step | mode | " + " | ".join(heads + more) + " |")
    print("|---" * (5 + 3 * len(threads) + len(more)) + "|")
    for row in rows:
        for mode in options.modes:
            cells = [f"{row['parameters'] / 1e6:.3g} M", str(row["layers"]), str(row["width"]), str(TOKENS), mode]
            for n in threads:
                rate = row["rates"][mode, n]
                cells += [f"{1e3 * TOKENS / rate:.4g}", f"{rate:.0f}", f"{100 * rate * row['flops'] / peaks[mode, n]:.0f}%"]
            cells += [f"{row['rates'][mode, n] / row['rates'][mode, threads[0]]:.2f}" for n in threads[1:]]
            print("| " + " | ".join(cells) + " |")


def lines_of(rows, options, peaks):
    """The chart's lines: step times as measured, and as they would be at the peak."""
    lines = []
    for mode in options.modes:
        for n in options.threads:
            name = f"{mode}, {n} thread{'s' if n > 1 else ''}"
            measured = [(row["parameters"], 1e3 * TOKENS / row["rates"][mode, n]) for row in rows]
            at_peak = [(row["parameters"], 1e3 * TOKENS * row["flops"] / peaks[mode, n]) for row in rows]
            lines.append((name, measured, at_peak))
    return lines


def parse():
    parser = argparse.ArgumentParser(description="Step time against model size and threads.")
    cores = len(os.sched_getaffinity(0))
    counts = [2**i for i in range(int(math.log2(cores)) + 1)]
    counts += [cores] if counts[-1] != cores else []
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="about the length of a turn")
    parser.add_argument("--threads", type=lambda value: [int(n) for n in value.split(",")], default=counts)
    parser.add_argument("--modes", type=lambda value: value.split(","), default=["bf16", "fp32"])
    parser.add_argument("--sizes", type=int, default=len(SIZES))
    parser.add_argument("--json")
    parser.add_argument("--plot")
    parser.add_argument("text")
    options = parser.parse_args()
    options.text, options.build = os.path.abspath(options.text), os.path.abspath(options.build)
    if not set(options.modes) <= set(GUESSED_RATE) or not 1 <= options.sizes <= len(SIZES) or min(options.threads) < 1:
        parser.error(f"modes are bf16, fp32; 1 to {len(SIZES)} sizes")
    return options


def main():
    options = parse()
    rows, peaks = [], {}
    for size in SIZES[:options.sizes]:
        rates, parameters, vocabulary, measured = measure(options, size)
        for setting, peak in measured.items():
            peaks[setting] = max(peaks.get(setting, 0.0), peak)
        rows.append({"parameters": parameters, "layers": size[0], "width": size[1], "flops": flops_of(size, vocabulary),
                     "rates": rates})
    print("# Step time against model size and threads\n")
    print(f"GPT-2 on characters, {BATCH} x {LENGTH} tokens a step; the largest size has the shape, vocabulary and biases of "
          f"GPT-2 124M. Turns of a setting: {options.rounds}; medians.\n")
    for (mode, threads), peak in sorted(peaks.items()):
        print(f"- peak of products, {mode}, threads: {threads}: {peak * 1e-9:.0f} GFLOP/s (the best that these runs measured)")
    print()
    print_rows(rows, options, peaks)
    print("\nA traced step of the smallest model, and what of it is spent between operations, the noting of them included:\n")
    print("| mode | threads | step, ms | in no operation, ms | share | operations | microseconds an operation |\n" + "|---" * 7 + "|")
    outside = {}
    for mode in options.modes:
        for threads in options.threads:
            step, gap, calls = outside[mode, threads] = gaps(options, mode, threads)
            print(f"| {mode} | {threads} | {step:.4g} | {gap:.3g} | {100 * gap / step:.1f}% | {calls:.0f} | {1e3 * gap / calls:.2f} |")
    if options.plot:
        write_plot(options.plot, lines_of(rows, options, peaks), f"Step time against model size, {TOKENS} tokens a step")
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for row in rows:
                for (mode, threads), rate in row["rates"].items():
                    record = {key: row[key] for key in ("parameters", "layers", "width")}
                    file.write(json.dumps({"bench": "scaling", **record, "mode": mode, "threads": threads,
                                           "tokens_per_second": rate, "flops_per_token": row["flops"],
                                           "peak_flops": peaks[mode, threads]}) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"scaling: {failure}", file=sys.stderr)
        sys.exit(1)
