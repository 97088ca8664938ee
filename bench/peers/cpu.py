# SPDX-License-Identifier: MIT
"""The CPU recipes, this trainer and PyTorch taking turns on the same cores: what bench/peers.sh runs.

    cpu.py [--trainer PATH] [--rounds N] [--steps N] [--threads N,...] [--recipes small,full,gpt2-256,gpt2-1024]
           [--modes bf16,fp32] [--variants eager,compile] [--json FILE] TEXT

For each recipe, number of threads and mode: turns of a few steps, each contender once a round, and the median of the
rounds' tokens per second.  PyTorch's process stays alive between its turns, and is asleep while the trainer has its own;
ours starts anew, and its first step is not counted, nor is PyTorch's first of a turn.  The small recipe is then trained
for --steps steps (2,000, the whole of it; 0: not at all), for seconds and validation loss: training alone is timed, and
the loss is the mean over all windows of the last tenth of the text.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VARIANTS = ("eager", "compile")

# Steps of a turn, and the overrides of the recipe's configuration.
GPT2 = ["tokenizer.kind=byte", "tokenizer.path=", "tasks.0.train=synthetic:mixture", "model.vocabulary=50304",
        "model.max_positions=1024", "gradient_accumulation_steps=1", "schedule.warmup_steps=2", "schedule.decay_steps=18865"]
RECIPES = {
    "small": ("shakespeare-small", 100, []),
    "full": ("shakespeare-full", 2, []),
    "gpt2-256": ("gpt2-124m", 3, [*GPT2, "batch_size=4", "max_length=256"]),
    "gpt2-1024": ("gpt2-124m", 3, [*GPT2, "batch_size=1", "max_length=1024"]),
}


class Failure(Exception):
    pass


def train(options, recipe, threads, mode, steps, overrides):
    """The records of a run of the trainer, and the tokens of one of its steps."""
    config, _, own = RECIPES[recipe]
    with tempfile.TemporaryDirectory() as folder:
        data = [] if recipe.startswith("gpt2") else [f"tasks.0.train={options.text}"]
        command = [options.trainer, "--config", os.path.join(ROOT, "configs", config + ".yaml"), *own, *data,
                   "tasks.0.validation=10%", f"threads={threads}", f"precision.mode={mode}", f"max_steps={steps}",
                   "device=cpu", "resume=never", "checkpoint_freq=0", "evaluation.every=0", "evaluation.sample_tokens=0",
                   "logging.tensorboard=false", "logging.progress=none", f"out_dir={folder}/run", *overrides]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise Failure(lines[-1] if lines else "the trainer failed")
        with open(f"{folder}/run/metrics.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def own_turn(options, recipe, threads, mode):
    """Tokens per second of a turn; the first step starts threads and touches memory."""
    steps = RECIPES[recipe][1] + 1
    records = train(options, recipe, threads, mode, steps, ["logging.every=1", "evaluation.batches=1"])
    rates = [record["tokens_per_second"] for record in records if record["event"] == "step"][1:]
    return statistics.harmonic_mean(rates)  # steps of equal length: tokens of all / time of all


def own_fit(options, threads, mode, steps):
    """Seconds of training (evaluation aside) and the validation loss."""
    every = max(1, steps // 40)
    overrides = [f"logging.every={every}", "evaluation.batches=0"]
    records = train(options, "small", threads, mode, steps, overrides)
    rates = [record["tokens_per_second"] for record in records if record["event"] == "step"]
    losses = [record["val_loss"] for record in records if record["event"] == "eval"]
    return steps * 12 * 64 / statistics.harmonic_mean(rates), losses[-1]


class Peer:
    """PyTorch's process: one recipe, mode and number of threads."""

    def __init__(self, options, recipe, threads, mode):
        command = [sys.executable, os.path.join(HERE, "cpu_torch.py"), recipe, mode, str(threads), options.text,
                   *options.variants]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), CUDA_VISIBLE_DEVICES="")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                        stderr=subprocess.DEVNULL)
        self.ready, self.failed = {}, {}
        while (words := self.read()) != ["prepared"]:
            if words[0] == "ready":
                self.ready[words[1]] = float(words[2])
            elif words[0] == "failed":
                self.failed[words[1]] = " ".join(words[2:])

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"PyTorch ended with {self.process.wait()}")
        return line.split()

    def ask(self, variant, task, steps):
        self.process.stdin.write(f"{variant} {task} {steps}\n")
        self.process.stdin.flush()
        return [float(word) for word in self.read()[1:]]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def write(options, **record):
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def speed(options, peer, recipe, threads, mode):
    """A row of the table of speeds."""
    rates = {side: [] for side in ("own", *peer.ready)}
    for _ in range(options.rounds):
        rates["own"].append(own_turn(options, recipe, threads, mode))
        for variant in peer.ready:
            rates[variant] += peer.ask(variant, "turn", RECIPES[recipe][1])
    medians = {side: statistics.median(values) for side, values in rates.items()}
    write(options, bench="peer", recipe=recipe, threads=threads, mode=mode, tokens_per_second=rates, prepared_s=peer.ready)
    cells = [recipe, mode, str(threads), f"{medians['own']:.0f}"]
    for variant in VARIANTS:
        if variant in medians:
            cells += [f"{medians[variant]:.0f}", f"{medians['own'] / medians[variant]:.2f}"]
        else:
            cells += [f"failed: {peer.failed[variant]}" if variant in peer.failed else "", ""]
    cells.append(f"{peer.ready['compile']:.0f}" if "compile" in peer.ready else "")
    print("| " + " | ".join(cells) + " |", flush=True)


def fit(options, peer, threads, mode):
    """A row of the table of whole trainings."""
    results = {"own": own_fit(options, threads, mode, options.steps)}
    for variant in peer.ready:
        results[variant] = peer.ask(variant, "fit", options.steps)
    write(options, bench="peer_fit", threads=threads, mode=mode, steps=options.steps,
          seconds={side: seconds for side, (seconds, _) in results.items()},
          val_loss={side: loss for side, (_, loss) in results.items()})
    cells = [mode, str(threads)]
    for side in ("own", *VARIANTS):
        seconds, loss = results.get(side, (None, None))
        cells += ["", ""] if seconds is None else [f"{seconds:.1f}", f"{loss:.4f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description="This trainer and PyTorch on the CPU, taking turns.")
    parser.add_argument("--trainer", default=os.path.join(ROOT, "build", "trainer"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    for name, default in {"threads": f"1,{os.cpu_count()}", "recipes": ",".join(RECIPES), "modes": "bf16,fp32",
                          "variants": ",".join(VARIANTS)}.items():
        parser.add_argument(f"--{name}", type=lambda value: value.split(","), default=default)
    parser.add_argument("--json")
    parser.add_argument("text")
    options = parser.parse_args()
    options.text, options.trainer = os.path.abspath(options.text), os.path.abspath(options.trainer)
    unknown = [name for name in options.recipes if name not in RECIPES]
    if unknown or not set(options.modes) <= {"bf16", "fp32"} or not set(options.variants) <= set(VARIANTS):
        parser.error(f"recipes are {', '.join(RECIPES)}; modes bf16, fp32; variants {', '.join(VARIANTS)}")
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    print(f"# The CPU recipes here and in PyTorch {version.stdout.strip()}\n")
    print(f"Tokens per second, medians of {options.rounds} turns. The last column: seconds until the compiled one had taken "
          "its first two steps.\n")
    print("| recipe | mode | threads | own | PyTorch, eager | ratio | PyTorch, compiled | ratio | compiling, s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    fits, failures = [], []
    for recipe in options.recipes:
        for threads in map(int, dict.fromkeys(options.threads)):
            for mode in options.modes:
                try:
                    peer = Peer(options, recipe, threads, mode)
                    speed(options, peer, recipe, threads, mode)
                    if recipe == "small" and options.steps:
                        fits.append(fit(options, peer, threads, mode))
                    peer.close()
                except Failure as failure:
                    failures.append(f"{recipe}, {mode}, threads {threads}: {failure}")
    if fits:
        print(f"\nThe small recipe trained for {options.steps} steps: seconds, and the loss over the whole validation text.\n")
        print("| mode | threads | own, s | loss | PyTorch eager, s | loss | compiled, s | loss |\n|---|---|---|---|---|---|---|---|")
        print("\n".join(fits))
    for failure in failures:
        print(f"\nFailed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
