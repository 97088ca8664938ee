#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mistakes planted over all rooms, and how many of them a tier of the tests finds.

    mutants.py list [--seed N] [--each N]             the mistakes, a line each: number, place, what becomes what
    mutants.py run COMMAND [--seed N] [--each N] [--work DIR]
                                                      plants them one at a time into a copy of the tree (DIR) and runs
                                                      COMMAND there with a shell; one that fails has found the mistake

The mistakes follow from the seed and the sources alone: --each of them for every group of rooms below, at lines drawn
uniformly among those that an operator fits.  What does not compile is drawn again.  Results are appended to
DIR/results.txt; those that are there are not run again, so that a run can be stopped and repeated.  A mistake that no test
can find, because the program does the same with it, counts as missed: look at what is missed.
"""
import argparse
import hashlib
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Groups of rooms that count alike, whatever their size.
GROUPS = {
    "operations": ["kernels/ops", "kernels/checks", "kernels/base"],
    "kernels of the CPU": ["kernels/cpu"],
    "kernels for GPUs": ["kernels/cuda"],
    "optimizer and schedule": ["optim"],
    "strategies": ["optim/continual"],
    "model and engine": ["runtime/model", "runtime/engine"],
    "training, resume, processes": ["runtime/train", "runtime/exchange", "runtime/launch"],
    "checkpoints and files": ["runtime/checkpoint", "runtime/io"],
    "data and text": ["runtime/data"],
    "configuration": ["runtime/config"],
    "records, pages, studies, commands": ["runtime/record", "runtime/pages", "runtime/study", "runtime/commands"],
}

# An operator: what it is called, where it fits, what it puts there.
OPERATORS = [
    ("bound", re.compile(r" (<|>) (?![^(]*\binclude\b)"), {"<": "<=", ">": ">="}),
    ("bound", re.compile(r" (<=|>=) "), {"<=": "<", ">=": ">"}),
    ("equality", re.compile(r" (==|!=) "), {"==": "!=", "!=": "=="}),
    ("sum", re.compile(r"(?<=[\w)\]]) (\+|-) (?=[\w(])"), {"+": "-", "-": "+"}),
    ("product", re.compile(r"(?<=[\w)\]]) (\*|/) (?=[\w(])"), {"*": "/", "/": "*"}),
    ("logic", re.compile(r" (&&|\|\|) "), {"&&": "||", "||": "&&"}),
    ("constant", re.compile(r"(?<=[=(,] )(0|1)(?=[;,)])"), {"0": "1", "1": "0"}),
    ("truth", re.compile(r"(?<=[=(,] )(true|false)(?=[;,)])"), {"true": "false", "false": "true"}),
    ("omission", re.compile(r"^\s+(\w[\w.>\[\]-]* [-+*]?= .*;)$"), None),
    ("omission", re.compile(r"^\s+(hs_\w+\(.*\);)$"), None),
]
SKIPPED = re.compile(r"^\s*(//|/\*|\*|#|assert|case |static const|const |for .*;.*;|HS_TRY|return hs_fail)|hs_fail|hs_warn|hs_info|fprintf|snprintf|\"")


def sources(folders, others):
    """Files under the folders that no other group has by a longer name."""
    longer = [other for other in others if any(other.startswith(folder + "/") for folder in folders)]
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".c", ".cu", ".cuh") and not any(name.startswith(other + "/") for other in longer):
                yield name


def places(folders, others):
    for name in sources(folders, others):
        body = False
        for number, line in enumerate((ROOT / name).read_text().split("\n"), 1):
            body = True if line.startswith("{") else False if line.startswith("}") else body
            if not body or SKIPPED.search(line):
                continue
            for kind, pattern, words in OPERATORS:
                for found in pattern.finditer(line):
                    new = words[found[1]] if words else ";"
                    yield name, number, kind, line, line[: found.start(1)] + new + line[found.end(1):]


def draw(seed, each):
    """For every group its places in the order in which they are tried."""
    groups = {}
    for group, folders in GROUPS.items():
        others = [folder for other in GROUPS.values() if other is not folders for folder in other]
        found = list(places(folders, others))
        digest = hashlib.sha256(f"{seed} {group}".encode()).digest()
        random.Random(digest).shuffle(found)
        groups[group] = found[: 4 * each]
    return groups


def build(work):
    return subprocess.run(["make", "-s", "build/trainer", "build/libhalfstep-emu.so"], cwd=work, capture_output=True,
                          check=False).returncode == 0


def run(options):
    work = pathlib.Path(options.work)
    copy, results = work / "tree", work / "results.txt"
    if not copy.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    done = dict(line.split(" ", 1) for line in results.read_text().splitlines()) if results.exists() else {}
    if not build(copy):
        sys.exit(f"{copy} does not build without a mistake")
    for index, (group, candidates) in enumerate(draw(options.seed, options.each).items()):
        planted = 0
        for attempt, (name, number, kind, old, new) in enumerate(candidates):
            key = f"{index}.{attempt}"
            if planted == options.each:
                break
            if key in done:
                planted += not done[key].startswith("invalid")
                continue
            path = copy / name
            text = path.read_text()
            lines = text.split("\n")
            if lines[number - 1] != old:
                sys.exit(f"{path}:{number} is another line: the copy is of other sources; remove {work}")
            lines[number - 1] = new
            path.write_text("\n".join(lines))
            start = time.monotonic()
            try:
                if build(copy):
                    code = subprocess.run(options.command, cwd=copy, shell=True, capture_output=True, check=False).returncode
                    verdict = "missed" if code == 0 else "found"
                    planted += 1
                else:
                    verdict = "invalid"
            finally:
                path.write_text(text)
            said = f"{key} {verdict} {time.monotonic() - start:.0f}s {group}: {name}:{number}: {kind}: {old.strip()} -> {new.strip()}"
            print(said, flush=True)
            with results.open("a") as file:
                file.write(said + "\n")
    count = {verdict: 0 for verdict in ("found", "missed")}
    for line in results.read_text().splitlines():
        if line.split(" ")[1] in count:
            count[line.split(" ")[1]] += 1
    print(f"{count['found']} of {count['found'] + count['missed']} found")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("action", choices=["list", "run"])
    parser.add_argument("command", nargs="?", help="of run: what has to fail, such as 'make test'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=4, help="mistakes for each group of rooms")
    parser.add_argument("--work", default="build/mutants")
    options = parser.parse_args()
    if options.action == "run":
        if not options.command:
            parser.error("run needs a command")
        run(options)
        return
    for index, (group, candidates) in enumerate(draw(options.seed, options.each).items()):
        for attempt, (name, number, kind, old, new) in enumerate(candidates[: options.each]):
            print(f"{index}.{attempt} {group}: {name}:{number}: {kind}: {old.strip()} -> {new.strip()}")


main()
