#!/bin/bash
# SPDX-License-Identifier: MIT
# Sources that are mixed (tasks.N.sources, weights): shares of the samples, epochs and validation of each; what happens
# when one has been read, weights that change; the same after a kill, by several processes and by other ways of writing
# it; and what makes no sense is refused.
. "$(dirname "$0")/lib.sh"
mkdir books
for i in $(seq 900); do echo "a line of a book, number $i, with $((i * 7919 % 1000)) words"; done >books/one.txt
for i in $(seq 300); do echo "int value_$i = $((i * 31 % 97)); /* code */"; done >code.txt
for i in $(seq 200); do echo "{\"prompt\": \"$((i % 90)) + $((i % 17)) =\", \"completion\": \" $((i % 90 + i % 17))\"}"; done >sums.jsonl
cat >mix.yaml <<'YAML'
seed: 5
batch_size: 4
max_length: 32
max_steps: 40
checkpoint_freq: 20
learning_rate: 1e-3
model: {family: llama, layers: 1, heads: 2, width: 32}
tokenizer: {kind: byte}
tasks:
  - name: all
    sources:
      - {path: books, weight: 2}
      - {path: code.txt, weight: 1, name: code}
      - {path: sums.jsonl, weight: 1}
evaluation: {every: 20, batches: 2}
logging: {every: 1, progress: none}
YAML
# The last record of sources: share and epochs of each.
sources() { grep '"event":"sources"' "$1/metrics.jsonl" | tail -n 1; }
figure() { sources "$1" | python3 -c "import json,sys; print(*(round(s['$2'], 4) for s in json.load(sys.stdin)['sources']))"; }

expect 0 "$trainer" --config mix.yaml out_dir=whole logging.progress=lines
says err "info:   source books: "
says out "  source code: 25.0% of the samples, "
[ "$(figure whole share)" = "0.5 0.25 0.25" ] || fail "shares: $(figure whole share)"
[ "$(grep -c '"event":"sources"' whole/metrics.jsonl)" = 2 ] || fail "not every evaluation says what the sources are"
bits whole >whole.bits
grep -q "sources of the mixture" whole/report.html || fail "the page has no table of sources"

# Another way to write it, and the run's own copy of the configuration.
expect 0 "$trainer" --config mix.yaml --print-config
cp out printed.yaml
says printed.yaml 'weights: ["2", "1", "1"]'
expect 0 "$trainer" --config printed.yaml out_dir=again
bits again >again.bits
same whole.bits again.bits
sed -e '/sources:/,/sums.jsonl/d' -e 's/- name: all/- {name: all, train: [books, code.txt, sums.jsonl], weights: [2, 1, 1]}/' mix.yaml >flat.yaml
expect 0 "$trainer" --config flat.yaml out_dir=flat
losses whole >whole.losses
losses flat >flat.losses
same whole.losses flat.losses

# Killed after a checkpoint, and by several processes.
goes_on_from whole/checkpoints/step-00000020 "$trainer" --config mix.yaml out_dir=run
expect 0 "$trainer" --config mix.yaml out_dir=virtual distributed.virtual_ranks=4
bits virtual | grep safetensors >virtual.bits
for processes in 2 4; do
    expect 0 "$trainer" --config mix.yaml out_dir=by$processes --processes $processes distributed.virtual_ranks=4
    bits by$processes | grep safetensors >by.bits
    same virtual.bits by.bits
    [ "$(figure by$processes share)" = "0.5 0.25 0.25" ] || fail "shares by $processes processes: $(figure by$processes share)"
done

# By size, all as they are; small ones more often.
for temperature in 1 4; do
    expect 0 "$trainer" --config flat.yaml out_dir=warm$temperature 'tasks.0.weights=[]' tasks.0.temperature=$temperature
done
python3 - "$(figure warm1 share)" "$(figure warm4 share)" <<'PY' || fail "temperature: $(figure warm1 share), $(figure warm4 share)"
import sys
one, four = ([float(x) for x in arg.split()] for arg in sys.argv[1:])
roots = [share ** 0.25 for share in one]
assert one[0] > 0.7 and all(abs(x - root / sum(roots)) < 0.02 for x, root in zip(four, roots)), (one, four)
PY

# What has been read: again, not before the others have been too, or the end of an epoch.
mixed() { expect 0 "$trainer" --config mix.yaml out_dir=$1 max_steps=0 max_epochs=1 "${@:2}"; }
mixed dropped tasks.0.exhausted=drop
python3 - "$(figure dropped epochs)" <<'PY' || fail "drop: $(figure dropped epochs)"
import sys
assert all(abs(float(x) - 1) < 0.06 for x in sys.argv[1].split())
PY
mixed stopped tasks.0.exhausted=stop
python3 - "$(figure stopped epochs)" <<'PY' || fail "stop: $(figure stopped epochs)"
import sys
epochs = [float(x) for x in sys.argv[1].split()]
assert 0.9 < max(epochs) <= 1, epochs
PY
expect 0 "$trainer" --config mix.yaml out_dir=changed 'tasks.0.weight_changes=["20: 0 1 3"]'
[ "$(figure changed share)" = "0.25 0.25 0.5" ] || fail "weights that change: $(figure changed share)"

# Validation of each source's own, conversations and rows of documents, a continual run.
expect 0 "$trainer" --config mix.yaml out_dir=own 'tasks.0.source_validation=[code.txt,books,10%]'
head -n 60 sums.jsonl | sed 's/completion": "/completion": " it is the number/' >long.jsonl
expect 0 "$trainer" --config flat.yaml out_dir=rows data.packing=documents 'tasks.0.train=[sums.jsonl,long.jsonl]' 'tasks.0.weights=[1,1]'
expect 0 "$trainer" --config mix.yaml out_dir=tasks tasks.1.name=b tasks.1.train=synthetic:facts tasks.1.synthetic_tokens=20000 \
    tasks.0.steps=10 tasks.1.steps=10 'continual.strategy=[ewc,er]' ewc.fisher_samples=8
expect 0 "$trainer" --config mix.yaml out_dir=characters tokenizer.kind=char

# What is validation of one source is left out of another's folder.
cp code.txt books/held-out.txt
expect 0 "$trainer" --config mix.yaml out_dir=apart 'tasks.0.source_validation=[10%,books/held-out.txt,10%]'
says err "warning: task all/books: books/held-out.txt: read for validation, and left out of training"
rm books/held-out.txt

# refused TEXT OVERRIDE...
refused() {
    expect 2 "$trainer" --config mix.yaml out_dir=none max_steps=1 "${@:2}"
    says err "$1"
}
refused "tasks.0.weights: has 2 entries, and train has 3: give one for each" 'tasks.0.weights=[1,2]'
refused "tasks.0.weights: \`much\` must be a number of 0 or more" 'tasks.0.weights=[1,2,much]'
refused "tasks.0.weights: must have one above 0" 'tasks.0.weights=[0,0,0]'
refused "tasks.0.temperature: takes the place of weights" tasks.0.temperature=2
refused "tasks.0.validation: of a mixture is a share of each source" tasks.0.validation=code.txt
refused "tasks.0.weight_changes: \`0: 1 1 1\` must be" 'tasks.0.weight_changes=["0: 1 1 1"]'
refused "tasks.0.weight_changes: must be in ascending order" 'tasks.0.weight_changes=["5: 1 1 1", "5: 1 1 1"]'
expect 2 "$trainer" --config tiny.yaml
tiny_config
expect 2 "$trainer" --config tiny.yaml tasks.0.exhausted=drop
says err "tasks.0.exhausted: is for sources that are mixed"
sed 's/path: code.txt, //' mix.yaml >wrong.yaml
expect 2 "$trainer" --config wrong.yaml
says err "wrong.yaml:13:9: a source must be a map with a path"
# A run does not continue with other weights.
expect 2 "$trainer" --config mix.yaml out_dir=whole 'tasks.0.weights=[1,1,1]' max_steps=60
finish
