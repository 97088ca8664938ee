# SPDX-License-Identifier: MIT
# Sourced by the command-line tests: a scratch folder, a tiny configuration, and checks that say what differed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case ${BUILD:-build} in
/*) trainer=$BUILD/trainer ;;
*) trainer=$root/${BUILD:-build}/trainer ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
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
evaluation: {every: 8, batches: 2}
logging: {every: 2}
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
evaluation: {every: 8, batches: 2}
logging: {every: 4}
YAML
}

finish() {
    [ "$failures" = 0 ] || exit 1
    exit 0
}
