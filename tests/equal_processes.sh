#!/bin/bash
# SPDX-License-Identifier: MIT
# equal_processes.sh: what tests/cli/test_equal_processes.sh compares, for every strategy and update rule and for what
# changes the order in which weights are read and gradients are made: one process, and 2 and 4 in each stage.  Then two to
# four over MPI, and as emulated GPUs over the stand-in for NCCL, in each stage and mode.
. "$(dirname "$0")/cli/lib.sh"
base_config
every="2:0 4:0 2:1 4:1 2:2 4:2 2:3 4:3"
shown=0

# matrix NAME STAGES [OPTION...]
matrix() {
    local name=$1 stages=$2 start=$SECONDS
    shift 2
    # shellcheck disable=SC2086
    equal alone $stages -- "$@"
    echo "$name: $((failures - shown)) differences ($((SECONDS - start)) s)"
    shown=$failures
    rm -rf alone
}

for strategy in none er l2 ewc si mer der++ lwf generative merge joint "[ewc, er]" "[si, er]" "[lwf, er]"; do
    matrix "$strategy" "$every" "continual.strategy=$strategy" ewc.curvature=diagonal replay.buffer_size=16
done
matrix "ewc, separate" "$every" continual.strategy=ewc ewc.curvature=diagonal ewc.mode=separate
matrix "ewc, proximal" "$every" continual.strategy=ewc ewc.curvature=diagonal ewc.step=proximal
matrix "ewc, kronecker" "2:0 4:0" continual.strategy=ewc ewc.curvature=kronecker
matrix "mer, groups" "$every" mer.group_steps=2 mer.groups=2 mer.beta=0.5
matrix "mer, a trial" "$every" continual.strategy=mer mer.beta=0.1 mer.gamma=0.1
matrix "generative, lwf" "$every" "continual.strategy=[lwf, generative]" replay.buffer_size=16
matrix "a-gem" "$every" continual.strategy=a-gem replay.buffer_size=16 gradient_accumulation_steps=1
matrix "a-gem, accumulated" "2:0 4:0 2:1 4:1" continual.strategy=a-gem replay.buffer_size=16 memory.micro_batch=2
for rule in sgd adamw8bit adamwfp8 muon schedule-free; do
    matrix "$rule" "$every" optimizer.kind=$rule
    matrix "$rule, fp16" "$every" optimizer.kind=$rule precision.mode=fp16 precision.init_scale=1e8
done
for precision in fp32 fp16 bf16; do
    matrix "$precision, no strategy" "$every" continual.strategy=none precision.mode=$precision
done
for recipe in current delayed block mxfp8 nvfp4; do
    matrix "fp8, $recipe" "2:0 2:1 2:2 4:0 4:1 4:2" precision.mode=fp8 precision.fp8.recipe=$recipe precision.fp8.keep=none
done
matrix "muon of today" "$every" optimizer.kind=muon muon.beta2=0.95 muon.equilibrate=true muon.cautious_decay=true \
    muon.head_group=1 muon.momentum_warmup_steps=8
for precision in fp32 fp16 bf16; do
    matrix "apollo, $precision" "$every" optimizer.kind=apollo apollo.rank=4 apollo.interval=3 precision.mode=$precision
done
matrix "apollo-mini, no masters" "$every" optimizer.kind=apollo apollo.rank=1 apollo.granularity=tensor \
    optimizer.moments=bf16 precision.master_weights=false
matrix "averages" "$every" average.decay=0.9
matrix "averages, no masters" "$every" average.decay=0.9 precision.master_weights=false
matrix "schedule-free, no masters" "$every" optimizer.kind=schedule-free precision.master_weights=false
matrix "schedule-free, bf16 states" "$every" optimizer.kind=schedule-free optimizer.moments=bf16 continual.strategy=none
matrix "moments in bf16" "$every" optimizer.moments=bf16
matrix "16-bit gradients" "$every" precision.gradients=compute
matrix "no masters" "$every" precision.master_weights=false
for policy in attention mlp block; do
    matrix "recomputed: $policy" "$every" memory.recompute=$policy
done
matrix "every second block" "$every" memory.recompute=block memory.recompute_every=2 model.layers=4
matrix "gpt2" "$every" model.family=gpt2
matrix "untied, chunks" "$every" model.tie_head=false memory.head_chunk=24
matrix "frozen" "$every" 'train.freeze=[embedding, "*.0.*"]'
matrix "adapters" "$every" adapter.kind=lora adapter.rank=4 continual.strategy=none
matrix "documents" "$every" data.packing=documents
matrix "two threads" "2:3 4:1" threads=2
matrix "best" "2:3 4:1" keep_best=true
three="3:0 3:1 3:2 3:3"
overflow="precision.mode=fp16 precision.init_scale=1e6 distributed.virtual_ranks=8"
masked_data

# over_mpi NAME PROCESSES... -- [OPTION...]: in each stage.
over_mpi() {
    local name=$1 processes=() count zero start=$SECONDS
    shift
    while [ "$1" != -- ]; do
        processes+=("$1")
        shift
    done
    shift
    expect 0 "$trainer" --config base.yaml out_dir=alone "$@"
    bits alone >alone.bits
    for count in "${processes[@]}"; do
        for zero in 0 1 2 3; do
            expect 0 env ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n "$count" \
                "$trainer" --config base.yaml distributed.transport=mpi distributed.zero=$zero "$@"
            says err "by MPI"
            same_as alone "MPI, $name, $count processes, zero $zero"
            planned || fail "MPI, $name, $count processes, zero $zero: other memory than planned"
        done
    done
    echo "MPI, $name: $((failures - shown)) differences ($((SECONDS - start)) s)"
    shown=$failures
    rm -rf alone
}
if command -v mpirun >/dev/null && [ -e "$(dirname "$trainer")/libhalfstep-mpi.so" ]; then
    # shellcheck disable=SC2086
    {
        over_mpi bf16 2 4 -- precision.mode=bf16
        over_mpi fp32 2 4 -- precision.mode=fp32
        over_mpi "fp16, overflow on some" 2 4 -- $overflow $masked ewc.fisher_samples=32
        over_mpi three 3 -- distributed.virtual_ranks=3 batch_size=6
    }
else
    echo "MPI: skipped, no mpirun or no MPI part"
fi

emulated="device=emu ewc.curvature=diagonal model.layers=1 max_steps=2 ewc.fisher_samples=8 evaluation.batches=1 checkpoint_freq=0"
export HALFSTEP_EMU_GUARD=off
# shellcheck disable=SC2086
{
    for precision in bf16 fp32 fp16; do
        matrix "emu, $precision" "$every" $emulated precision.mode=$precision
    done
    matrix "emu, fp8, delayed" "2:0 2:1 2:2 4:0 4:1 4:2" $emulated max_steps=3 precision.mode=fp8 precision.fp8.recipe=delayed precision.fp8.keep=none
    matrix "emu, fp16, overflow on some" "$every" $emulated $overflow $masked max_steps=4
    matrix "emu, accumulated" "2:0 2:1 4:0 4:1" $emulated continual.strategy=ewc memory.micro_batch=2
    matrix "emu, three" "$three" $emulated distributed.virtual_ranks=3 batch_size=6
    matrix "emu, apollo" "$every" $emulated optimizer.kind=apollo apollo.rank=4 apollo.interval=1
    matrix "emu, offload" "$every" $emulated memory.offload=optimizer
    matrix "emu, offload, schedule-free" "$every" $emulated memory.offload=optimizer optimizer.kind=schedule-free
    matrix "emu, gradients on the host" "2:2 4:2" $emulated distributed.zero=2 memory.offload=gradients
    matrix "emu, weights on the host" "2:3 4:3" $emulated distributed.zero=3 memory.offload=weights
    matrix "emu, the same, schedule-free" "2:3 4:3" $emulated distributed.zero=3 memory.offload=weights optimizer.kind=schedule-free
}
echo "processes: $failures differences"
finish
