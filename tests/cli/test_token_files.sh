#!/bin/bash
# SPDX-License-Identifier: MIT
# Token files stay in their files: a run over them is to the bit the run that has all tokens in memory, which compressed
# ones are read into, in every order of windows, by several processes and after a kill; what the process holds does not
# grow with them; they are known again without being read; a file that is cut while the run reads it ends it with its
# place, and put back the run continues.
. "$(dirname "$0")/lib.sh"
for i in $(seq 3000); do echo "line $i of a text, and another number: $((i * 7919 % 1000))"; done >text.txt
expect 0 "$trainer" tokenizer train --vocabulary 400 --output tok.json text.txt
split -n l/5 text.txt part.
mkdir files packed
for part in part.*; do
    expect 0 "$trainer" tokenizer encode --tokenizer tok.json --output "files/$part.bin" "$part"
    gzip -c "files/$part.bin" >"packed/$part.bin.gz"
done
cat >tokens.yaml <<'YAML'
seed: 5
batch_size: 4
max_length: 32
max_steps: 24
checkpoint_freq: 12
learning_rate: 1e-3
model: {family: llama, layers: 1, heads: 2, width: 32}
tokenizer: {kind: bpe, path: tok.json}
tasks: [{name: a, train: files, validation: 10%}]
evaluation: {every: 12, batches: 4}
logging: {every: 1, progress: none}
YAML

# alike [OPTION...]: with `files` in the options, and the same with `packed`.
alike() {
    rm -rf stay read
    expect 0 "$trainer" --config tokens.yaml out_dir=stay "$@"
    local options=("${@//files/packed}")
    expect 0 "$trainer" --config tokens.yaml out_dir=read tasks.0.train=packed "${options[@]/%.bin/.bin.gz}"
    losses stay >stay.losses
    losses read >read.losses
    same stay.losses read.losses
    bits stay | grep safetensors >stay.bits
    bits read | grep safetensors >read.bits
    same stay.bits read.bits
}
alike
alike data.sampling=random
alike --processes 2 distributed.virtual_ranks=2
alike tasks.1.name=b tasks.1.train=files/part.ae.bin tasks.0.steps=12 tasks.1.steps=12 \
    'continual.strategy=[ewc,er]' ewc.fisher_samples=8
alike tasks.1.name=b tasks.1.train=files/part.ae.bin continual.strategy=joint

# Killed after a checkpoint, continued.
expect 0 "$trainer" --config tokens.yaml out_dir=whole
bits whole >whole.bits
goes_on_from whole/checkpoints/step-00000012 "$trainer" --config tokens.yaml out_dir=run

# Of 64 million tokens the process holds as much as of 30 thousand, within 4 MiB; read into memory they would take 256.
python3 - <<'PY'
import os, random, struct

random.seed(3)

os.mkdir("large")
count = 1 << 24
for shard in range(4):
    with open(f"large/{shard}.bin", "wb") as file:
        file.write(struct.pack("<3i", 20240520, 1, count) + bytes(1012))
        for piece in range(16):
            file.write(bytes(0 if i % 2 else value for i, value in enumerate(random.randbytes(1 << 12))) * (count // (1 << 15)))
PY
resident() { sed -nE 's/.*the process ([0-9]+)\..*/\1/p' err | tail -n 1; }
expect 0 "$trainer" --config tokens.yaml out_dir=small tasks.0.train=large/0.bin max_steps=4
small=$(resident)
expect 0 "$trainer" --config tokens.yaml out_dir=large-run tasks.0.train=large max_steps=4
[ "$(resident)" -le $((small + 4)) ] || fail "four files take $(resident) MiB, one takes $small"

# A plan opens them, too, and reads no more than a run does.
expect 0 "$trainer" plan --no-training --config tokens.yaml tasks.0.train=large
! grep -q "planned without the tasks' data" err || fail "a plan does not open token files: $(cat err)"

# Files that are not read at the start are known again by size, times and samples.
continued() { expect "$1" "$trainer" --config tokens.yaml out_dir=large-run tasks.0.train=large "max_steps=$2" "${@:3}"; }
poke() { printf '\1' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
continued 0 5
! grep -q "another time" err || fail "files that nothing touched have another time"
touch large/1.bin
continued 0 6
says err "warning: large/1.bin: has another time than when the run began, and no checksum of all its bytes was taken then"
continued 0 7
! grep -q "another time" err || fail "the new time was not kept"
# One byte between the samples, with the time put back: the time of the last change is another.
cp -p large/2.bin kept.bin
poke large/2.bin 9000002
touch -r kept.bin large/2.bin
continued 0 8
says err "warning: large/2.bin: has another time"
poke large/3.bin 1500
continued 2 9
says err "large/3.bin: has other bytes, 33555456 as before since large-run"
# Where all bytes were asked for, all of them count.
rm -r large-run
continued 0 4 data.verify=full
touch large/1.bin
continued 0 5
! grep -q "another time" err || fail "a checksum that is known does not settle a time"
poke large/2.bin 9000002
continued 0 6 # the byte has that value already
poke large/2.bin 9000004
continued 2 7
says err "large/2.bin: has other bytes, 33555456 as before since large-run"

# Cut while it is read.
cp -r files cut
expect 0 "$trainer" --config tokens.yaml out_dir=undisturbed tasks.0.train=cut max_steps=4000 schedule.decay_steps=4000 evaluation.every=0
"$trainer" --config tokens.yaml out_dir=disturbed tasks.0.train=cut max_steps=4000 schedule.decay_steps=4000 evaluation.every=0 >out 2>err &
pid=$!
until [ -s disturbed/checkpoints/latest ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
cp cut/part.ac.bin kept.bin
truncate -s 2000 cut/part.ac.bin
wait $pid
[ $? = 1 ] || fail "a file that was cut did not end the run with exit code 1"
grep -q "^error: cut/part.ac.bin: ends before byte [0-9]*, and was longer when the run began" err || fail "cut: $(tail -n 2 err)"
cp kept.bin cut/part.ac.bin
expect 0 "$trainer" --config tokens.yaml out_dir=disturbed tasks.0.train=cut max_steps=4000 schedule.decay_steps=4000 evaluation.every=0
tensors undisturbed | grep safetensors >undisturbed.sums
tensors disturbed | grep safetensors >disturbed.sums
same undisturbed.sums disturbed.sums
finish
