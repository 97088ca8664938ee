#!/bin/bash
# SPDX-License-Identifier: MIT
# One, two, three and four processes, and every stage of distributed.zero: the same bits of weights, moments, strategies'
# tensors, counters and record.  Parameters are cut (shards.c: above 65,536 elements), two tasks have ewc and mer.  Then
# runs that continue with other processes than they were saved by, and what is refused.
. "$(dirname "$0")/lib.sh"
ulimit -c 0
export HALFSTEP_EMU_GUARD=off # test_emu.sh has it
base_config
echo "precision: {mode: bf16}" >>base.yaml # whatever the processor multiplies
masked_data

# counter FOLDER NAME: of the latest checkpoint's trainer.json.
counter() {
    grep -oE "\"$2\": ?[0-9]+" "$1/checkpoints/$(cat "$1/checkpoints/latest")/trainer.json" | grep -oE '[0-9]+$'
}

# Processes:stage.  All pairs once, in the others two of each.
all="1:3 2:0 2:1 2:2 2:3 4:0 4:1 4:2 4:3"
some=$all
in_tier 1 2 || some="1:3 2:0 2:2 4:1 4:3"
# shellcheck disable=SC2086
{
    equal fp32 $some -- precision.mode=fp32
    equal bf16 $all -- precision.mode=bf16
    # Gradients overflow in the few sequences that have targets, and so on few processes.
    equal fp16 1:3 2:1 2:3 4:0 4:2 4:3 -- precision.mode=fp16 precision.init_scale=1e6 ewc.fisher_samples=32 distributed.virtual_ranks=8 $masked
    # Scales: each micro-batch's own; what all processes have seen, in the history too.
    equal fp8 2:0 4:1 -- precision.mode=fp8 precision.fp8.keep=none
    equal delayed 2:0 2:2 4:1 -- precision.mode=fp8 precision.fp8.recipe=delayed precision.fp8.keep=none
    equal three 3:0 3:1 3:2 3:3 -- distributed.virtual_ranks=3 batch_size=6
    equal accumulated 2:0 2:1 4:0 4:1 -- continual.strategy=ewc ewc.curvature=diagonal memory.micro_batch=2
    equal documents 2:3 4:1 -- $masked data.packing=none max_length=160 max_steps=2
}
skipped=$(counter fp16 skipped_steps)
[ "$skipped" -gt 0 ] && [ "$skipped" -lt 8 ] || fail "fp16: $skipped of 8 steps were skipped: some should be"
[ "$(counter fp16 tokens_seen)" -lt 64 ] || fail "8 steps of 8 virtual ranks have $(counter fp16 tokens_seen) targets: each may have one"

# By another launcher, and over MPI itself.
if command -v mpirun >/dev/null && [ -e "$(dirname "$trainer")/libhalfstep-mpi.so" ]; then
    turn=0
    for row in 2:1:auto 4:3:auto 4:1:mpi 2:3:mpi; do
        in_tier $((turn++)) 2 || continue
        IFS=: read -r processes zero transport <<<"$row"
        expect 0 env ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n "$processes" \
            "$trainer" --config base.yaml precision.mode=bf16 distributed.zero="$zero" distributed.transport="$transport"
        same_as bf16 "mpirun, $row"
    done
else
    echo "skipped: no mpirun, or no MPI part"
fi

# Emulated GPUs, through the stand-in for NCCL.
if [ -e "$(dirname "$trainer")/libhalfstep-nccl-standin.so" ]; then
    equal emu 2:0 4:3 -- device=emu ewc.curvature=diagonal precision.mode=bf16 model.layers=1 max_steps=2 ewc.fisher_samples=4 \
        evaluation.batches=1 checkpoint_freq=0
fi

# Saved by four that share states, gone on from by others, and back: in the midst of a task, and between two.
expect 0 "$trainer" --config base.yaml out_dir=whole --processes 4 distributed.zero=1
bits whole >whole.bits
same bf16.bits whole.bits
for row in 3:1:0 3:1:3 3:2:3 3:4:2 4:2:0 4:1:1 4:4:3; do
    IFS=: read -r step processes zero <<<"$row"
    goes_on_from "whole/checkpoints/step-0000000$step" "$trainer" --config base.yaml --processes "$processes" distributed.zero="$zero"
done
rm -rf run
for row in 4:1:5 2:3:7 4:0:8; do # dies in that step
    IFS=: read -r processes zero step <<<"$row"
    HALFSTEP_FAULT="rank=1,step=$step,do=kill" expect 1 "$trainer" --config base.yaml --processes "$processes" distributed.zero="$zero"
done
expect 0 "$trainer" --config base.yaml
same_as whole "four kinds of processes"

# Parts are unequal: where one process has no room, all do as it does.
fits=(--config base.yaml ewc.curvature=diagonal target_gpu_util=1)
expect 0 "$trainer" plan "${fits[@]}" distributed.processes=4
between=$(awk '$1 == 1 { low = high = $NF; for (i = NF - 3; i < NF; i++) { if ($i < low) low = $i; if ($i > high) high = $i } }
    END { printf "%d", (low + high) * 512 }' out)
rm -rf run
expect 0 "$trainer" "${fits[@]}" --processes 4 distributed.zero=1 memory.limit="${between}KiB" memory.auto_fit=true
grep -qE "has the least room|memory.auto_fit: the plan needs" err || fail "nothing was fitted into $between KiB: $(cat out)"
micro_batch=$(sed -n 's/^ *micro_batch: //p' run/config.yaml) gradients=$(sed -n 's/^ *gradients: //p' run/config.yaml)
expect 0 "$trainer" "${fits[@]}" out_dir=fitted memory.micro_batch="$micro_batch" precision.gradients="$gradients"
bits fitted >fitted.bits
same_as fitted "four processes, one of which had no room"

# What is refused says what to do.
refused() { # MESSAGE COMMAND...
    local message=$1
    shift
    expect 2 "$trainer" --config base.yaml out_dir=refused "$@"
    says err "$message"
    [ ! -e refused/checkpoints ] || fail "refused, and there is a checkpoint: $*"
}
refused "set distributed.virtual_ranks to 8, or distributed.exact to false" --processes 2 distributed.zero=2 continual.strategy=ewc ewc.curvature=diagonal memory.micro_batch=2
refused "ewc.curvature" --processes 2 distributed.zero=1 ewc.curvature=kronecker
refused "parts of a batch cannot be divided among 3 processes" --processes 3
refused "cannot be cut into 4 equal parts" --processes 2 batch_size=6
refused "distributed.virtual_ranks: 4 needs distributed.exact: true, which is set to false" --processes 2 distributed.exact=false
expect 0 "$trainer" --config base.yaml out_dir=piece distributed.virtual_ranks=0
expect 2 "$trainer" --config base.yaml out_dir=piece distributed.virtual_ranks=0 max_steps=8 --processes 2
says err "was made by one process with undivided batches"
expect 2 "$trainer" --config base.yaml out_dir=piece distributed.virtual_ranks=4 max_steps=8 --processes 2
says err "differing: distributed.virtual_ranks"
finish
