#!/bin/bash
# SPDX-License-Identifier: MIT
# ladder.sh CONFIG [section.key=value ...]: each rung of `trainer plan --ladder` that fits is trained a few steps, and the bytes that it
# took are compared with those that were planned, category by category; a Markdown table.  Exit code 1 where they differ.
# Rungs that differ in computed scores alone are one run.  DEVICE (cpu): where; LIMIT (16GiB): what a run may take; STEPS (4; 3 or more
# are timed): optimizer steps; BUILD (build): the trainer's folder.
set -euo pipefail
config=$(realpath "${1:?usage: bench/ladder.sh CONFIG [section.key=value ...]}")
shift
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trainer=${BUILD:-build}/trainer
common=("$@" device="${DEVICE:-cpu}" memory.limit="${LIMIT:-16GiB}" target_gpu_util=1)
"$trainer" plan --ladder --json --config "$config" "${common[@]}" >"$out/ladder.json"

# rungs: a line for each that has a plan: its index, yes or no for whether it fits, its overrides.
rungs() {
    python3 - "$out/ladder.json" <<'PY'
import json, sys
ladder, seen = json.load(open(sys.argv[1])), {}
for index, rung in enumerate(ladder["rungs"]):
    if "refused" not in rung:
        keys = tuple(sorted(rung["overrides"]))
        fits = rung["planned_bytes"] <= ladder["limit_bytes"]
        print(index, "yes" if fits and keys not in seen else "no", *rung["overrides"], sep="\t")
        seen[keys] = index
PY
}

rungs >"$out/rungs"
while IFS=$'\t' read -r index fits overrides; do
    [ "$fits" = yes ] || continue
    IFS=$'\t' read -ra keys <<<"$overrides"
    mode=$(printf '%s\n' "${keys[@]}" | sed -n 's/^precision.mode=//p')
    "$trainer" bench --config "$config" --modes "$mode" --steps "${STEPS:-4}" --out "$out/$index" "${common[@]}" "${keys[@]}" \
        >"$out/$index.log" 2>&1 </dev/null || { cat "$out/$index.log" >&2; exit 1; }
    cp "$out/$index/bench.json" "$out/$index.json"
    rm -rf "${out:?}/$index"
done <"$out/rungs"

python3 - "$out" <<'PY'
import json, math, os, sys

folder = sys.argv[1]
ladder = json.load(open(f"{folder}/ladder.json"))
MIB, wrong, taken_by = 2 ** 20, [], {}
print(f"device: {ladder['device']}; {ladder['parameters'] / 1e6:.1f} million parameters, "
      f"{ladder['micro_batch']} x {ladder['max_length']} tokens at a time; runs of {ladder['limit_bytes'] / 2 ** 30:.1f} GiB at most\n")
print("| rung | planned MiB | taken MiB | planned = taken | with computed scores, MiB | saved of the first | at least s a step | "
      "measured s | losses |\n|---|---|---|---|---|---|---|---|---|")
for index, rung in enumerate(ladder["rungs"]):
    if "refused" in rung:
        print(f"| {rung['name']} | not here: {rung['refused']} | | | | | | | |")
        continue
    keys = tuple(sorted(rung["overrides"]))
    path = f"{folder}/{index}.json"
    if os.path.exists(path):
        taken_by[keys] = json.load(open(path))["modes"][0]
    run, taken, same, seconds, losses = taken_by.get(keys), "", "not run", "", ""
    if run:
        peak = {name: count for name, count in run["memory_bytes"]["peak"].items() if name != "total"}
        same = "yes" if peak == rung["planned"] else "NO"
        taken = f"{run['memory_bytes']['peak']['total'] / MIB:.1f}"
        if same == "NO" or run["failure"]:
            wrong.append(f"{rung['name']}: planned {rung['planned']}, taken {peak}, {run['failure'] or 'finished'}")
        timed = [second for second in run["seconds"] if second]
        seconds = f"{sum(timed) / len(timed):.3g}" if timed else ""
        losses = f"{run['losses'][0]:.4f} to {run['losses'][-1]:.4f}"
    least = rung["step_seconds"]
    print(f"| {rung['name']} | {rung['planned_bytes'] / MIB:.1f} | {taken} | {same} | {rung['bytes'] / MIB:.1f} | "
          f"{100 * rung['saved_of_the_first']:.1f}% | {'' if least is None else f'{least:.3g}'} | {seconds} | {losses} |")
for line in wrong:
    print(line, file=sys.stderr)
sys.exit(1 if wrong else 0)
PY
