#!/bin/bash
# SPDX-License-Identifier: MIT
# Every command that README.md, configs/*.yaml, examples/*.c and docs/*.md show in a separate line runs, in the order of
# the page; shortened by keys for a small model and two steps, by another device, or to one operation.  Files that a
# command needs are made first.  Not run: `make` and its targets, some of which install packages; examples/lessons has
# another test.  What README shows of the first command's output is what the trainer prints, but for the numbers.
. "$(dirname "$0")/lib.sh"
ln -s "$root/configs" configs
ln -s "$(dirname "$trainer")" build
mkdir models
cp -rL "$root/tests/huggingface/models/gpt2" models/base
cp -rL "$root/tests/huggingface/models/gemma3" models/gemma-3-270m
mkdir -p data/first data/second data/third data/gpt2 data/machine WHERE_YOU_HAVE_IT
for i in $(seq 400); do
    echo "line $i of a text with some words, and more of them"
done | tee WHERE_YOU_HAVE_IT/input.txt data/mine.txt data/first/a.txt data/second/b.md | sed 's/.*/{"text": "&"}/' | gzip >data/third/c.jsonl.gz
cp "$root/tests/chat/conversations.jsonl" data/talks.jsonl
for part in train validation; do # what bench/machine_text.sh leaves
    zcat data/third/c.jsonl.gz >data/machine/$part.jsonl
done
"$trainer" tokenizer train --vocabulary 300 --output data/gpt2/tokenizer.json data/first 2>/dev/null >/dev/null || fail "no tokenizer"

small="model.layers=1 model.heads=2 model.width=32 batch_size=4 max_length=32"
quick="$small max_steps=2 checkpoint_freq=0 evaluation.every=0 evaluation.batches=1 evaluation.sample_tokens=4"

# keys FILE: what makes a run with this configuration short.
keys() {
    local task tasks
    tasks=$(grep -cE '^  - [{]?name:' "$1")
    ! grep -qE '^(  )?[^#]*ewc' "$1" || printf 'ewc.fisher_samples=4 ' # a section turns its strategy on
    # A model that exists has its own shape.
    if grep -q '^init_from:' "$1"; then
        printf '%s ' "$(sed -E 's/model\.[a-z]+=[0-9]+//g' <<<"$quick")"
    else
        printf '%s ' "$quick"
    fi
    for ((task = 0; task < tasks; task++)); do
        printf 'tasks.%s.%s ' "$task" tokens=0 "$task" steps=2 "$task" synthetic_tokens=20000
    done
}

# shorten COMMAND: the same with less to do; what the page says comes later, and wins.
shorten() {
    local config
    config=$(grep -oE 'configs/[a-z0-9-]+\.yaml' <<<"$1")
    case $1 in
    "build/trainer plan "* | *" --print-config"*) echo "$1" ;;
    "build/trainer new "*) sed -E 's/--hours [0-9.]+/--hours 0.005/' <<<"$1" ;;
    *"selftest --tune "*) echo "${1/ --tune/ --device emu --tune}" | sed "s|$config|& $small model.vocabulary=300|" ;;
    *"selftest --device cpu"*) echo "${1/--device cpu/--device cpu --op $operation}" ;;
    *" --config "*) echo "$1" | sed -E "s|$config|& $(keys "$config")|; s/--steps [0-9]+/--steps 2/; s/--seeds [0-9]+/--seeds 1/" ;;
    *) echo "$1" ;;
    esac
}

# Launchers that are not here are imitated: that many processes, with what they set.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mkdir launchers
cat >launchers/torchrun <<'LAUNCHER'
#!/bin/bash
# LAUNCHER [OPTION...] --nproc-per-node|--ntasks N COMMAND...
until [[ $1 == --n[pt]* ]]; do shift; done
export WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) code=0
[ "${0##*/}" = torchrun ] || export SLURM_NTASKS=$2
shift 2
for ((rank = WORLD_SIZE - 1; rank >= 0; rank--)); do
    if [ "${0##*/}" = torchrun ]; then RANK=$rank "$@" & else WORLD_SIZE= SLURM_PROCID=$rank "$@" & fi
done
for job in $(jobs -p); do wait "$job" || code=$?; done
exit $code
LAUNCHER
cp launchers/torchrun launchers/srun
chmod +x launchers/*
PATH=$PWD/launchers:$PATH

operation=convert # the whole takes a minute
count=0
# run FILE PATTERN: its commands are the lines that the pattern takes its prefix off.
run() {
    local line
    while IFS= read -r line; do
        case $line in
        make\ *) continue ;;
        cc\ *) line=${CC:-cc}${line#cc} ;;
        mpirun\ *) [ -e build/libhalfstep-mpi.so ] && command -v mpirun >/dev/null || continue ;;
        esac
        count=$((count + 1))
        expect 0 bash -c "$(shorten "$line")" </dev/null
        [ "$line" != "build/trainer --config configs/cl.yaml" ] || [ -e cl.out ] || cat out err >cl.out
    done < <(sed -nE "s@^$2((build/|mkdir |make |cc |mpirun |torchrun |srun ).*)@\1@p" "$root/$1")
}
for config in configs/*.yaml; do
    run "$config" '#     '
done
run README.md '    '
masked() { # a processor without products in bf16 trains in fp32
    sed -E 's/(bf16|fp32)$/FORMAT/; s/[0-9]+(\.[0-9]+)?/N/g; s/  +/ /g; s/ $//'
}
masked <cl.out >cl.masked
sed -n '/^```$/,/^```$/{/^```/!p}' "$root/README.md" | masked >shown.masked
[ "$(wc -l <shown.masked)" -ge 10 ] || fail "README shows no output"
while IFS= read -r line; do
    grep -qxF -- "$line" cl.masked || fail "README shows a line that the trainer does not print: $line"
done <shown.masked
for example in "$root"/examples/*.c; do run "examples/$(basename "$example")" ' \*     '; done
# The page of models has a model that needs transformers; where it is missing, one that it made stands for it.
python3 "$root/examples/howto/pretrained.py" make models/story >out 2>err || cp -rL "$root/tests/huggingface/models/llama" models/story
ln -s "$root/kernels" kernels # a header
sed -n '/^```c$/,/^```$/{/^```/!p}' "$root/docs/memory.md" >pages.c
for page in "$root"/docs/*.md; do
    run "docs/$(basename "$page")" '    '
    [ "${page##*/}" != memory.md ] || says err "MiB for weights of host"
done
for other in one two four zero restart mpi torchrun slurm; do
    [ $other != mpi ] || [ -d runs/cl-mpi ] || continue
    tensors runs/cl-$other | grep -v trainer.json >$other.sums
    [ "$(wc -l <$other.sums)" = 3 ] && cmp -s one.sums $other.sums || fail "docs/distributed.md: $other ends otherwise"
done
python3 "$root/examples/howto/pretrained.py" check models/story models/story-adapter models/story-merged runs/story >out 2>err
code=$?
[ $code = 0 ] || [ $code = 77 ] || fail "examples/howto/pretrained.py: $(tail -n 2 err)"
says runs/cl/metrics.jsonl '"keys":"tasks: mine appended"'
[ "$count" -ge 34 ] || fail "only $count commands were found"
[ -f runs/cl/report.html ] || fail "no report"
[ -f runs/bpe/checkpoints/latest ] || fail "no run with a tokenizer of the text"
finish
