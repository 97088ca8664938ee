# SPDX-License-Identifier: MIT
# Sourced by the command-line tests: a scratch folder, a tiny configuration, and checks that say what differed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
exact=$(cd "$(dirname "$0")" && pwd)/$(basename "$0" .sh).exact
case ${BUILD:-build} in
/*) trainer=$BUILD/trainer ;;
*) trainer=$root/${BUILD:-build}/trainer ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
# Open MPI's sessions of tests that run at the same time do not share a folder (versions 4 and 5).
export OMPI_MCA_orte_tmpdir_base=$scratch PRTE_MCA_prte_tmpdir_base=$scratch
# Measuring the processor takes most of a tiny run.
export HALFSTEP_CPU_PEAK=${HALFSTEP_CPU_PEAK:-1e11}
failures=0

# Ends a script that has failed in eight places: where nothing works, each may wait for its time limit.
fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
    [ "$failures" != 8 ] || finish
}

# expect CODE COMMAND...: run it with output in ./out and ./err, complain about another exit code.
expect() {
    local code=$1 got
    shift
    "$@" >out 2>err
    got=$?
    if [ "$got" != "$code" ]; then
        fail "exit code $got instead of $code: $*"
        tail -n 5 err
    fi
}

# in_tier SUM MODULUS: whether a combination of a product is run.  `make nightly` runs all, other tests those with
# indices that add up to a multiple of MODULUS: of two loops each turn remains with one of the other's, any two of three
# loops keep all pairs, where the third has at least MODULUS turns.
in_tier() {
    [ "${TIER:-test}" = nightly ] || [ $(($1 % $2)) = 0 ]
}
# Of the selftest: `make nightly` runs all cases, other tests a pairwise covering.
pairs=()
[ "${TIER:-test}" = nightly ] || pairs=(--pairs)

# shows CODE ARGUMENT...: what a user sees of `trainer ARGUMENT...`, which ends with that code: the line, its output, its
# errors behind `! `.  `finish` compares all of a test's with TEST.exact next to it; `make accept` writes that file anew.
# What depends on the machine and the clock is taken out by `steady`, a filter.
steady() {
    cat
}
shows() {
    local code=$1
    shift
    expect "$code" "$trainer" "$@"
    {
        echo "\$ trainer $*"
        steady <out
        steady <err | sed 's/^/! /'
        [ "$code" = 0 ] || echo "[exit code $code]"
        echo
    } >>.shown
}

# says FILE TEXT: the file holds the text.
says() {
    grep -qF -- "$2" "$1" || { fail "$1 does not say: $2"; tail -n 5 "$1"; }
}

same() {
    cmp -s "$1" "$2" || { fail "$1 and $2 differ"; diff "$1" "$2" | head -n 5; }
}

# record DIR: its metrics without what depends on the clock.
record() {
    sed -E 's/,"(tokens_per_second|time_s)":[^,}]*//g' "$1/metrics.jsonl"
}

# tensors DIR: one line per file of the latest checkpoint that training computed.
tensors() {
    (
        cd "$1/checkpoints/$(cat "$1/checkpoints/latest")" || exit
        sha256sum model.safetensors optimizer.safetensors trainer.json
        [ ! -f continual.safetensors ] || sha256sum continual.safetensors
    )
}

# bits DIR: all that was computed.
bits() {
    record "$1"
    tensors "$1"
}

# goes_on_from CHECKPOINT COMMAND...: from that checkpoint of `whole` alone, with the record of a run that was killed just
# before its next save, the command ends with whole.bits.
goes_on_from() {
    local checkpoint=$1
    shift
    rm -rf run
    mkdir -p run/checkpoints
    cp -r "$checkpoint" run/checkpoints
    basename "$checkpoint" >run/checkpoints/latest
    cp whole/metrics.jsonl whole/events.* run
    expect 0 "$@"
    bits run >run.bits
    same whole.bits run.bits
}

# losses DIR: every training and validation loss, in order.
losses() {
    grep -oE '"(loss|val_loss)":[0-9.e-]+' "$1/metrics.jsonl"
}

# as_listed DIR FILE: as many training losses as FILE has behind its first line, none off by more than that line says.
as_listed() {
    grep -oE '"loss":[0-9.e-]+' "$1/metrics.jsonl" | cut -d: -f2 | awk '
        NR == FNR { if (FNR == 1) bound = $1; else wanted[FNR - 1] = $1; listed = FNR - 1; next }
        { off = $1 - wanted[FNR]; if (off < 0) off = -off; if (off > largest) largest = off; count++ }
        END { if (count != listed || largest > bound) { print count " losses, off by " largest ", " bound " bound"; exit 1 } }
    ' "$2" -
}

# near A B MODE [ROWS]: losses of a model of 2 layers, width 32 and length 16 differ by no more than roundings explain;
# each of the losses is a mean over ROWS tokens (32 when not given).
#
# A relative error of rho in every gradient changes what a run's steps take off the loss by rho times that, to first
# order, and one of rho in the values forward changes the loss by rho times its size: together rho L0, with L0 the first
# loss.  n roundings of relative size u, of random signs, add up to lambda sqrt(n) u with a probability of
# 1 - 2 exp(-lambda^2 / 2) (Higham & Mary 2019, theorem 2.4); two devices differ by sqrt(2) of that, lambda is 4.  A
# loss is the mean over 32 tokens at least, each with its own roundings: sqrt(32) less.
#   bf16, fp16: u = 2^-9, 2^-11; 8 values a block and 2 in the head are rounded on the longest path, forward and back
#   fp32:       u = 2^-24; a product over K rounds K times: per block width (qkv), head size, length, width, width,
#               4 width; in the head width and vocabulary (at most 128 characters); forward and back
near() {
    paste -d' ' <(losses "$1") <(losses "$2") | awk -v mode="$3" -v names="$1 $2" -v layers=2 -v width=32 -v length_=16 -v rows="${4:-32}" '
        BEGIN {
            head = width / 2; vocabulary = 128
            n = mode == "fp32" ? layers * (7 * width + head + length_) + width + vocabulary : 8 * layers + 2
            u = mode == "fp32" ? 2 ^ -24 : mode == "fp16" ? 2 ^ -11 : 2 ^ -9
            rho = 4 * sqrt(2 * 2 * n) * u / sqrt(rows)
        }
        {
            split($1, a, ":"); split($2, b, ":")
            if (a[1] != b[1]) { print names ": other records"; bad = 1; exit }
            if (NR == 1) first = a[2]
            difference = a[2] - b[2]; if (difference < 0) difference = -difference
            if (difference > largest) largest = difference
        }
        END {
            if (bad) exit 1
            if (NR < 20) { print names ": " NR " losses only"; exit 1 }
            if (largest > rho * first) { print names ", " mode ": losses differ by " largest ", bound " rho * first; exit 1 }
        }' || fail "$1 and $2 are not near each other"
}

tiny_config() {
    cat >tiny.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 4
max_length: 32
max_steps: 24
learning_rate: 1e-3
checkpoint_freq: 6
model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}
tasks: [{name: t, train: "synthetic:mixture", synthetic_tokens: 20000}]
precision: {mode: bf16}
schedule: {warmup_steps: 4}
evaluation: {every: 8, batches: 2, items: 8}
logging: {every: 2, memory: table}
YAML
}

# Three tasks that have little in common, a dozen steps each.
tiny_tasks() {
    cat >tasks.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 4
max_length: 32
max_steps: 12
learning_rate: 3e-3
checkpoint_freq: 5
model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}
tokenizer: {kind: char}
tasks:
  - {name: addition, train: "synthetic:addition", synthetic_tokens: 8000}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000}
  - {name: reversal, train: "synthetic:reversal", synthetic_tokens: 8000}
continual: {strategy: none}
precision: {mode: fp32}
schedule: {warmup_steps: 2}
replay: {buffer_size: 24}
ewc: {fisher_samples: 16}
mer: {beta: 1.0, gamma: 0.5}
evaluation: {every: 8, batches: 2, items: 8}
logging: {every: 4, memory: table}
YAML
}

# What several processes have to agree on: two tasks, parameters that are cut (above 65,536 elements).
base_config() {
    cat >base.yaml <<'YAML'
seed: 3
out_dir: run
device: cpu
threads: 1
batch_size: 8
gradient_accumulation_steps: 2
max_length: 16
max_steps: 4
checkpoint_freq: 3
keep_checkpoints: 9
learning_rate: 2e-3
model: {family: llama, layers: 2, heads: 2, width: 144, dropout: 0.1}
tokenizer: {kind: byte}
tasks:
  - {name: a, train: "synthetic:arithmetic", synthetic_tokens: 4000}
  - {name: b, train: "synthetic:english", synthetic_tokens: 4000}
evaluation: {every: 4, batches: 2, items: 0, sample_tokens: 0}
logging: {every: 1, progress: lines, memory: table}
continual: {strategy: [ewc, mer]}
ewc: {fisher_samples: 8}
mer: {buffer_size: 16}
distributed: {virtual_ranks: 4}
YAML
}

# masked_data: the loss counts a letter or two of a hundred, most sequences have no target; $masked are the options.
masked_data() {
    local i
    for ((i = 0; i < 150; i++)); do
        printf '{"prompt": "%0*d?", "completion": "%d"}\n' $((110 + i * 7 % 40)) $i $((i % 10))
    done >masked.jsonl
    masked="tasks.0.train=masked.jsonl tasks.1.train=masked.jsonl"
}

# planned: process 0 had the planned memory, category by category, but for what copies host memory to other devices.
planned() {
    awk '$2 == "memory" && $NF == "peak" { table = 1; next }
         $2 == "total" { table = 0 }
         table && $2 != "communication" { rows++; if ($(NF - 2) != $NF) { bad = 1; print } }
         END { exit rows < 5 || bad }' err
}

# same_as FOLDER WHAT: what `run` has is what one process left.
same_as() {
    bits run >run.bits
    cmp -s "$1.bits" run.bits || { fail "$2: another end"; diff "$1.bits" run.bits | head -n 5; }
    rm -rf run
}

# equal NAME PROCESSES:ZERO... -- [OPTION...]: each ends as one process does, which leaves the folder NAME and NAME.bits.
equal() {
    local name=$1 pairs=() pair
    shift
    while [ "$1" != -- ]; do
        pairs+=("$1")
        shift
    done
    shift
    expect 0 "$trainer" --config base.yaml out_dir="$name" "$@"
    bits "$name" >"$name.bits"
    for pair in "${pairs[@]}"; do
        expect 0 "$trainer" --config base.yaml --processes "${pair%:*}" distributed.zero="${pair#*:}" "$@"
        same_as "$name" "$name, processes:zero $pair"
        planned || fail "$name, processes:zero $pair: other memory than planned"
    done
}

finish() {
    if [ -f .shown ] && [ "${ACCEPT:-no}" = yes ]; then
        cp .shown "$exact"
    elif [ -f .shown ]; then
        diff "$exact" .shown || fail "users see something else than ${exact##*/} says; to accept it: make accept"
    fi
    [ "$failures" = 0 ] || exit 1
    exit 0
}
