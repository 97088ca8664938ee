#!/bin/bash
# SPDX-License-Identifier: MIT
# data.packing: documents from the command line: rows as an oracle packs them, losses of the same documents in padded
# rows, threads, a killed run with replay, every strategy, evaluation, and what is refused.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/chat
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }
cp "$golden/conversations.jsonl" talks.jsonl
head -n 20 talks.jsonl >few.jsonl
cat >chat.yaml <<YAML
seed: 7
out_dir: run
batch_size: 4
max_length: 64
max_steps: 6
checkpoint_freq: 3
keep_checkpoints: 9
learning_rate: 1e-3
use_amp: false
model: {family: llama, layers: 2, heads: 2, width: 32}
tokenizer: {kind: bpe, path: $golden/tokenizer.json, chat_template: chatml}
tasks: [{name: t, train: talks.jsonl, validation: few.jsonl}]
data: {packing: documents}
evaluation: {every: 3, batches: 2}
logging: {every: 1, memory: table}
YAML

# First fit, and documents that are kept, by an oracle that has their tokens.
read -r documents rows padding kept train_rows <<<"$(python3 - "$golden/chatml.jsonl" <<'PYTHON'
import json, sys
most = 65
def pack(lines):
    rows, kept = [], 0
    for line in lines:
        mask = line["mask"][:most]
        if len(mask) < 2 or "1" not in mask[1:]:
            continue
        kept += 1
        for row in rows:
            if sum(row) + len(mask) <= most:
                row.append(len(mask))
                break
        else:
            rows.append([len(mask)])
    return rows, kept
lines = [json.loads(line) for line in open(sys.argv[1])]
train, kept = pack(lines)
few, more = pack(lines[:20])
rows = train + few
print(kept + more, len(rows), "%.1f" % (100 - 100 * sum(map(sum, rows)) / (len(rows) * most)), kept, len(train))
PYTHON
)"
expect 0 "$trainer" --config chat.yaml
says err "$documents documents share $rows rows, $padding% of which is padding"

# The same documents in the same step, packed and in separate rows: the same losses but for roundings.  With
# learned positions and with RoPE.  One step is an epoch.
for family in llama gpt2; do
    epochs=(--config chat.yaml model.family=$family max_steps=20 evaluation.every=0 checkpoint_freq=1000 memory.micro_batch=1)
    expect 0 "$trainer" "${epochs[@]}" out_dir=packed batch_size="$train_rows"
    expect 0 "$trainer" "${epochs[@]}" out_dir=plain batch_size="$kept" data.packing=none
    near packed plain fp32
    rm -rf packed plain
done

# Threads change nothing, nor do workers, micro-batches of recomputation, or a kill with sequences that are replayed.
sed '/^tasks:/d' chat.yaml >two.yaml
cat >>two.yaml <<'YAML'
tasks:
  - {name: a, train: talks.jsonl, validation: few.jsonl, steps: 4}
  - {name: b, train: few.jsonl, validation: few.jsonl, steps: 4}
YAML
two=(--config two.yaml max_steps=0)
replay=(continual.strategy=er replay.buffer_size=16)
expect 0 "$trainer" "${two[@]}" "${replay[@]}" out_dir=whole
bits whole >whole.bits
expect 0 "$trainer" "${two[@]}" "${replay[@]}" out_dir=single threads=1 data.workers=3 memory.recompute=block
record single >single.record
record whole >whole.record
same whole.record single.record
for step in 00000003 00000006; do
    goes_on_from whole/checkpoints/step-$step "$trainer" "${two[@]}" "${replay[@]}"
done

# Every strategy that reads sequences takes them; what was planned is what was taken.
for strategy in a-gem mer 'der++' lwf ewc 'ewc ewc.curvature=kronecker' generative joint; do
    # shellcheck disable=SC2086
    expect 0 "$trainer" "${two[@]}" out_dir=strategies replay.buffer_size=16 continual.strategy=$strategy
    awk '/planned +current +peak/ { table = 1; next } table && /total/ { exit $3 == $5 ? 0 : 1 }' err ||
        fail "$strategy: planned and peak differ: $(grep total err)"
    rm -rf strategies
done

# Evaluation of a checkpoint packs as the run did.
expect 0 "$trainer" --config chat.yaml out_dir=measured evaluation.batches=0
expect 0 "$trainer" eval --checkpoint measured
last=$(grep -oE '"val_loss":[0-9.]+' measured/metrics.jsonl | tail -n 1)
python3 -c 'import sys; sys.exit(abs(float(sys.argv[1]) - float(sys.argv[2])) > 1e-6 * float(sys.argv[1]))' \
    "$(awk '/validation loss/ { print $3 }' out)" "${last#*:}" || fail "eval found $(grep loss out), the run $last"

# On the emulated GPU too, with the losses of the CPU but for roundings.
if [ -f "$(dirname "$trainer")/libhalfstep-emu.so" ]; then
    small=(--config chat.yaml max_length=16 max_steps=20 evaluation.every=0 checkpoint_freq=1000 memory.micro_batch=4)
    expect 0 "$trainer" "${small[@]}" out_dir=on-cpu device=cpu
    expect 0 "$trainer" "${small[@]}" out_dir=on-emu device=emu
    near on-cpu on-emu fp32
fi

# What is refused names the key.
expect 2 "$trainer" --config chat.yaml out_dir=x data.packing=document
says err "data.packing must be stream, documents or none (got document); did you mean documents?"
expect 2 "$trainer" --config chat.yaml out_dir=x max_length=4
says err "has a token that the loss counts among its first 5 (data.packing: documents): raise max_length"
expect 2 "$trainer" --config chat.yaml out_dir=measured data.packing=none max_steps=8
says err "differing: data.packing"
expect 0 "$trainer" tokenizer encode --tokenizer "$golden/tokenizer.json" --chat-template chatml --output talks.bin talks.jsonl
expect 2 "$trainer" --config chat.yaml out_dir=x tasks.0.train=talks.bin
says err "data.packing: documents keeps them apart"

finish
