#!/bin/bash
# SPDX-License-Identifier: MIT
# examples/train_one_block.c, a training step without the trainer, has the trainer's losses to the bit: 20 steps in three
# precision modes.  It includes kernels/ and optim/ alone.
. "$(dirname "$0")/lib.sh"
example=$(dirname "$trainer")/examples/train_one_block
source=$root/examples/train_one_block.c

for i in $(seq 400); do echo "$i squared is $((i * i)), its cube $((i * i * i))"; done >text.txt
for mode in fp32 bf16 fp16; do
    expect 0 "$example" $mode text.txt
    cp out $mode.out
    rm -rf run
    expect 0 "$trainer" --config "$root/examples/train_one_block.yaml" device=cpu out_dir=run precision.mode=$mode tasks.0.train=text.txt \
        tasks.0.validation=text.txt
    python3 - $mode.out <<'PY' || fail "$mode: other losses"
import json, re, sys
own = [float(loss) for loss in re.findall(r"loss (\S+)  gradient", open(sys.argv[1]).read())]
trained = [row["loss"] for row in map(json.loads, open("run/metrics.jsonl")) if row.get("event") == "step"]
assert len(own) == 20 and own == trained, list(zip(own, trained))
assert own[-1] < own[0] - 0.1, own
PY
done
! cmp -s fp32.out bf16.out || fail "fp32 and bf16 have the same losses"
expect 2 "$example" fp64 text.txt
says err "usage: train_one_block fp32|bf16|fp16 TEXT"
expect 2 "$example" fp32 none.txt

[ "$(wc -l <"$source")" -lt 400 ] || fail "$(wc -l <"$source") lines"
! grep '#include "' "$source" | grep -vE '"(kernels|optim)/' || fail "it includes more than kernels/ and optim/"
finish
