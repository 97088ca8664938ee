#!/bin/bash
# SPDX-License-Identifier: MIT
# What a run leaves, what a second call does, and the other commands on its checkpoint.
. "$(dirname "$0")/lib.sh"
tiny_config
expect 0 "$trainer" --config tiny.yaml
says err "device: cpu"
says err "precision: "
for file in run/config.yaml run/metrics.jsonl run/checkpoints/latest run/checkpoints/step-00000024/model.safetensors \
    run/checkpoints/step-00000024/optimizer.safetensors run/checkpoints/step-00000024/trainer.json \
    run/checkpoints/step-00000024/tokenizer.json run/checkpoints/step-00000024/config.yaml \
    run/checkpoints/step-00000024/checksums.json; do
    [ -s "$file" ] || fail "$file is missing"
done
[ "$(ls -d run/checkpoints/step-* | wc -l)" = 2 ] || fail "keep_checkpoints: 2 kept $(ls run/checkpoints)"
ls run/events.out.tfevents* >/dev/null || fail "no TensorBoard events"
[ "$(grep -c '"event":"step"' run/metrics.jsonl)" = 12 ] || fail "12 step records expected"
[ "$(grep -c '"event":"eval"' run/metrics.jsonl)" = 3 ] || fail "3 evaluations expected"
[ "$(grep -c '"event":"end"' run/metrics.jsonl)" = 1 ] || fail "one end record expected"
# A finished run resumes, finds nothing to do, and leaves the same record.
record run >first.record
expect 0 "$trainer" --config tiny.yaml
record run >second.record
same first.record second.record
# Shares are of what HALFSTEP_CPU_PEAK says, else of a measurement, which the portable kernels do not have.
expect 0 env HALFSTEP_CPU_PEAK=2.5e11 "$trainer" --config tiny.yaml out_dir=given
says err "of this device's 250 GFLOP/s in"
expect 0 env -u HALFSTEP_CPU_PEAK "$trainer" --config tiny.yaml out_dir=measured
[ "$(uname -m)" != x86_64 ] || grep -q "of this device's [0-9]* GFLOP/s in" err || fail "nothing was measured"
for peak in fast 0 -1e9 inf 1e9x; do
    expect 2 env HALFSTEP_CPU_PEAK=$peak "$trainer" --config tiny.yaml device=cpu out_dir=no
    says err "HALFSTEP_CPU_PEAK=$peak: give operations a second"
done
# Another configuration in the same folder is refused by name.
expect 2 "$trainer" --config tiny.yaml learning_rate=2e-3 model.dropout=0
says err "learning_rate"
says err "model.dropout"
expect 2 "$trainer" --config tiny.yaml resume=never
expect 2 "$trainer" --config tiny.yaml out_dir=empty resume=require
# Extending a run is allowed.
expect 0 "$trainer" --config tiny.yaml max_steps=30
[ "$(cat run/checkpoints/latest)" = step-00000030 ] || fail "the extended run stopped at $(cat run/checkpoints/latest)"
# The resolved configuration loads back to itself.
expect 0 "$trainer" --config tiny.yaml --print-config
cp out printed.yaml
expect 0 "$trainer" --config printed.yaml --print-config
same printed.yaml out
# Commands on the checkpoint.
expect 0 "$trainer" eval --checkpoint run
says out "validation loss"
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt "a" --seed 3
cp out sample
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt "a" --seed 3
same sample out
# As JSON, and nothing else.
expect 0 "$trainer" eval --checkpoint run --json
[ "$(wc -l <out)" = 1 ] || fail "eval --json wrote $(wc -l <out) lines"
for member in '"step":30' '"name":"t"' '"val_loss":' '"perplexity":' '"entropy_floor":' '"mean_val_loss":'; do says out "$member"; done
# Prompts from a file and from the standard input, byte for byte.
printf 'a' >prompt
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt-file prompt --seed 3
same sample out
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt-file - --seed 3 <prompt
same sample out
expect 2 "$trainer" generate --checkpoint run --prompt a --prompt-file prompt
says err "both say how the text begins"
expect 1 "$trainer" generate --checkpoint run --prompt-file nowhere
says err "nowhere"
# Several samples: the first is the one alone, each can be had alone by its seed, and JSON holds the same tokens.
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt a --seed 3 --samples 3
cp out three
sed -n '2,/^--- sample 2/p' three | sed '$d' | sed '$d' >first
same sample first
[ "$(grep -c '^--- sample [1-3] of 3, seed [0-9]* ---$' three)" = 3 ] || fail "three samples expected"
seed=$(sed -nE 's/^--- sample 3 of 3, seed ([0-9]+) ---$/\1/p' three)
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt a --seed "$seed"
sed '1,/^--- sample 3/d' three >third
same third out
expect 0 "$trainer" generate --checkpoint run --tokens 20 --prompt a --seed 3 --samples 3 --json
[ "$(wc -l <out)" = 1 ] || fail "generate --json wrote $(wc -l <out) lines"
says out "{\"seed\":$seed,"
if command -v python3 >/dev/null; then
    python3 - out third <<'PY' || fail "the third sample's tokens are not its text"
import json, sys
sample = json.load(open(sys.argv[1]))["samples"][2]
text = b"a" + bytes(sample["tokens"]) + b"\n"
sys.exit(text != open(sys.argv[2], "rb").read())
PY
fi
# No prompt at all, and more tokens than the model has positions.
expect 0 timeout 60 "$trainer" generate --checkpoint run --tokens 20
expect 0 timeout 60 "$trainer" generate --checkpoint run --tokens 300 --prompt "a"
[ "$(wc -c <out)" -gt 128 ] || fail "a model of 32 positions wrote only $(wc -c <out) bytes" # may end at end-of-text
expect 0 "$trainer" inspect --checkpoint run
cp out inspected
expect 0 "$trainer" inspect --checkpoint run --html page.html
same inspected out
says page.html "Exponents of model"
# A damaged checkpoint is refused, not trusted.
printf 'x' | dd of=run/checkpoints/step-00000030/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
expect 1 "$trainer" generate --checkpoint run/checkpoints/step-00000030 --tokens 5
says err "model.safetensors"
finish
