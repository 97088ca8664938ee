#!/bin/bash
# SPDX-License-Identifier: MIT
# config.yaml as PyYAML reads it (YAML 1.1): what it loads, written as JSON and given back, is the same configuration to
# the last bit, so every number was a number there and every text a text.
. "$(dirname "$0")/lib.sh"
if ! python3 -c 'import yaml' 2>/dev/null; then
    echo "skipped: python3 has no yaml module"
    finish
fi
cat >words.yaml <<'YAML'
learning_rate: 1e-5
weight_decay: 0.000123
seed: 12
out_dir: "1:20"
memory: {limit: 1.5 GiB}
tokenizer: {end_of_text: "~"}
tasks:
  - {name: "yes", train: ["012", "1_000", "2001-12-14", "no", "1e-5"], learning_rate: 1.0e-4}
  - {name: "n", train: "0x1F", text_field: "null", prompt_field: "on", validation: "1:20:30"}
  - {name: "1.5", train: ".inf", text_field: "=", prompt_field: "é \\ \" \t", validation: "- a"}
YAML
again() {
    python3 - "$1" <<'PY' >"$2"
import json, sys, yaml
print(json.dumps(yaml.safe_load(open(sys.argv[1])), ensure_ascii=False))
PY
}
mkdir models # what configs/finetune.yaml, lora.yaml, cl-adapters.yaml and gemma-270m.yaml begin with
cp -rL "$root/tests/huggingface/models/gpt2" models/base
cp -rL "$root/tests/huggingface/models/gemma3" models/gemma-3-270m
for config in "$root"/configs/*.yaml words.yaml; do
    expect 0 "$trainer" --config "$config" --print-config
    cp out first.yaml
    again first.yaml second.yaml || fail "PyYAML does not read what $config resolves to"
    expect 0 "$trainer" --config second.yaml --print-config
    same first.yaml out
done
says first.yaml "learning_rate: 1.0e-5"
says first.yaml "limit: 1610612736"
# The copy that a run leaves is the same text without comments.
tiny_config
expect 0 "$trainer" --config tiny.yaml max_steps=1 model.norm_epsilon=1e-7
again run/config.yaml second.yaml
expect 0 "$trainer" --config second.yaml --print-config
grep -v '^ *#\|^$' out >printed
same printed run/config.yaml
says run/config.yaml "norm_epsilon: 1.0e-7"
finish
