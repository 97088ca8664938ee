#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/forgetting.sh: a run for each strategy, a table and a chart that say what the runs' own records say.
. "$(dirname "$0")/lib.sh"
cat >tiny.yaml <<'YAML'
model: {layers: 1, heads: 2, width: 16}
batch_size: 4
max_length: 16
tasks:
  - {name: sums, train: "synthetic:arithmetic", synthetic_tokens: 20000, steps: 3}
  - {name: code, train: "synthetic:code", synthetic_tokens: 20000, steps: 3}
evaluation: {every: 0, batches: 1, items: 2}
YAML
forgetting() {
    BUILD=$(dirname "$trainer") "$root/bench/forgetting.sh" --config tiny.yaml --out runs "$@"
}
expect 0 forgetting --plot chart.svg none er
cp out first
retained() {
    grep '"event":"matrix"' "runs/$1/metrics.jsonl" | tail -n 1 | grep -oE '"retained":[0-9.e-]+' | head -n 1 | cut -d: -f2
}
for strategy in none er; do
    says out "| $strategy | $(printf %.2f "$(retained $strategy)") |"
done
[ "$(retained none)" != "$(retained er)" ] || fail "none and er are one run"
python3 - <<'PY' || fail "the chart does not show the losses of the matrices"
import json, xml.etree.ElementTree as tree
told = {title.text for title in tree.parse("chart.svg").iter("{http://www.w3.org/2000/svg}title")}
for strategy in ("none", "er"):
    with open(f"runs/{strategy}/metrics.jsonl") as lines:
        matrix = [record for record in map(json.loads, lines) if record["event"] == "matrix"][-1]
    for after, row in enumerate(matrix["losses"], 1):
        for task in range(after):
            want = f"{matrix['names'][task]}, after task {after}: {row[task]:.3f}"
            assert want in told, want
PY
# Started again: what is there is not trained again, and the page is the same.
checkpoints=$(ls -l --time-style=full-iso runs/*/checkpoints)
expect 0 forgetting --plot chart.svg none er
same out first
[ "$checkpoints" = "$(ls -l --time-style=full-iso runs/*/checkpoints)" ] || fail "a finished run was trained again"
expect 1 forgetting nothing
says err "continual.strategy must be"
expect 2 forgetting --plot
finish
