# SPDX-License-Identifier: MIT
# Sourced by the fault campaigns: the shim, small runs and commands to disturb, and what a disturbed one may not do.
#
# A workload is a command that ends within milliseconds, with what it starts from and what it leaves.  `disturb` runs it
# with a fault; `judge` looks at the end of it; `recover` runs it again undisturbed and compares with the calm run.
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"
case ${BUILD:-build} in
/*) shim=$BUILD/faults/shim.so ;;
*) shim=$root/${BUILD:-build}/faults/shim.so ;;
esac
[ -f "$shim" ] || { echo "$shim is missing: make $shim"; exit 1; }
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=2000 # as the trainer sets it: no second start
# Folders in memory: thousands of runs write, and none is to be kept.
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
    rm -rf "$scratch"
    scratch=$(mktemp -d -p /dev/shm)
    cd "$scratch" || exit 1
fi

# AddressSanitizer would rather stand before the shim, ends by another code here, and needs terabytes of addresses.
# What the shim itself keeps it would call a leak.
address_space=1048576 # KiB
sanitized() {
    ldd "$trainer" | grep -q libasan
}
if sanitized; then
    export ASAN_OPTIONS=verify_asan_link_order=0:exitcode=66:detect_leaks=0:allocator_may_return_null=1
    address_space=unlimited
fi

small_configs() {
    cat >one.yaml <<'YAML'
seed: 7
device: ref
threads: 1
out_dir: run
batch_size: 2
max_length: 8
max_steps: 4
learning_rate: 1e-3
checkpoint_freq: 1
model: {family: gpt2, layers: 1, heads: 1, width: 8, dropout: 0.1}
tokenizer: {kind: char}
data: {prefetch: 1}
tasks: [{name: sums, train: sums.txt, validation: 30%}]
precision: {mode: fp32}
schedule: {warmup_steps: 1}
evaluation: {every: 2, batches: 1, items: 2}
logging: {every: 1}
YAML
    sed '/^tasks/d' one.yaml >two.yaml
    cat >>two.yaml <<'YAML'
tasks:
  - {name: sums, train: sums.txt, validation: 30%, steps: 3}
  - {name: words, train: words.jsonl, validation: 30%, steps: 3}
replay: {buffer_size: 4}
ewc: {fisher_samples: 2}
mer: {beta: 0.5, gamma: 0.5, group_steps: 2, groups: 2}
YAML
    local i
    for ((i = 0; i < 40; i++)); do printf '%d+%d=%d;' $((i % 7)) $((i % 9)) $((i % 7 + i % 9)); done >sums.txt
    for ((i = 0; i < 20; i++)); do printf '{"text":"a word, number %d of many"}\n' $i; done >words.jsonl
    gzip -k sums.txt
    zstd -q words.jsonl
    { echo text; sed 's/;/;\n/g' sums.txt; } >table.csv
    { printf '['; sed '$!s/$/,/' words.jsonl; printf ']'; } >list.json
}

# Tokens as llm.c keeps them: a header of 256 numbers of four bytes (magic, version, count), then two bytes a token.
token_file() { # COUNT
    local i number
    for number in 20240520 1 "$1"; do
        printf "\\x$(printf %02x $((number & 255)))\\x$(printf %02x $((number >> 8 & 255)))"
        printf "\\x$(printf %02x $((number >> 16 & 255)))\\x$(printf %02x $((number >> 24 & 255)))"
    done
    head -c $((4 * 253)) /dev/zero
    for ((i = 0; i < $1; i++)); do printf "\\x$(printf %02x $((i * i % 251)))\\x00"; done
}

# name | what it starts from, a folder of fixtures/ | what it leaves | arguments
#   run: a folder of checkpoints and records that a second start continues; text on standard output and pages; figures,
#   of which some are times; modes, a row each
workloads() {
    cat <<'EOT'
train|-|run|--config one.yaml
cpu|-|run|--config one.yaml device=cpu threads=2 precision.mode=bf16
resume|half|run|--config one.yaml
fp16|-|run|--config one.yaml precision.mode=fp16 precision.init_scale=1e9 gradient_accumulation_steps=2 memory.recompute=block
bf16|-|run|--config one.yaml precision.mode=bf16 tokenizer.kind=byte model.family=llama
emu|-|run|--config one.yaml device=emu max_steps=2 precision.mode=bf16
bpe|-|run|--config one.yaml tokenizer.kind=bpe tokenizer.path=bpe.json tasks.0.train=words.jsonl
ewc-mer|-|run|--config two.yaml continual.strategy=[ewc,mer]
factors|-|run|--config two.yaml continual.strategy=ewc ewc.curvature=kronecker ewc.block_size=24
packed|-|run|--config two.yaml tasks.0.train=sums.txt.gz tasks.1.train=words.jsonl.zst continual.strategy=er
lists|-|run|--config two.yaml tasks.0.train=table.csv tasks.1.train=list.json continual.strategy=l2
si-er|-|run|--config two.yaml continual.strategy=[si,er]
a-gem|-|run|--config two.yaml continual.strategy=a-gem
plan|-|text|plan --config one.yaml
eval|whole|text|eval --checkpoint run
generate|whole|text|generate --checkpoint run --prompt 1+ --tokens 4
report|whole|text|report --run run
inspect|whole|text|inspect --checkpoint run --html page.html
tokenizer|-|text|tokenizer train --output learned.json --vocabulary 280 words.jsonl
compare|-|figures|compare --config two.yaml --strategies none,er --seeds 1 --out compared
bench|-|modes|bench --config one.yaml --modes fp32,bf16 --steps 2 --out compared
selftest|-|figures|selftest --device ref --op rope --no-speed
list|-|text|selftest --list
config|-|text|--config two.yaml --print-config
EOT
}

# Of the small runs: fixtures/half, a run that was killed in the middle; fixtures/whole: one that came to its end; bpe.json.
make_fixtures() {
    small_configs
    mkdir fixtures
    "$trainer" tokenizer train --output bpe.json --vocabulary 280 words.jsonl >out 2>err || fail "tokenizer: $(tail -n 1 err)"
    LD_PRELOAD=$shim FAULT_KINDS=rename FAULT_AT=5 FAULT_HOW=kill "$trainer" --config one.yaml >out 2>err &
    wait $! 2>/dev/null
    mv run fixtures/half
    "$trainer" --config one.yaml >out 2>err || fail "whole: $(tail -n 1 err)"
    mv run fixtures/whole
}

# workload ROW: its parts as variables, its start as files.
workload() {
    IFS='|' read -r name from leaves arguments <<<"$1"
    read -ra arguments <<<"$arguments"
}

fresh() {
    rm -rf run compared page.html learned.json
    [ "$from" = - ] || cp -r "fixtures/$from" run
}

# What the workload left, without what depends on the clock, in the variable `left`.
look() {
    case $leaves in
    run) left=$(bits run && cd run && find . ! -path './checkpoints/*' | sort) ;;
    # The processor's name is read from a file, which may fail: then it is "unknown".
    text) left=$(cat out page.html learned.json 2>/dev/null | sed -E 's/[0-9.]+ (tokens\/s|s|ms)\b//g; s/^(device: [a-z]+) .*/\1/') ;;
    modes) left=$(cut -d' ' -f1 out | grep -E '^(fp32|bf16)$') ;; # the rest are times
    figures) left=$(tr -d '0-9.e+kMG-' <out | tr -s ' ') ;;
    esac 2>&1
}

# calm: the undisturbed workload; leaves its result in `expected` and the number of its calls of KINDS in `calls`.
calm() {
    fresh
    LD_PRELOAD=$shim FAULT_KINDS=$1 FAULT_REPORT=calls "$trainer" "${arguments[@]}" >out 2>err </dev/null ||
        { fail "$name: undisturbed: $(tail -n 1 err)"; return 1; }
    look
    expected=$left
    calls=$(sed -n 's/^all //p' calls)
}

# disturb KINDS N [VARIABLE=VALUE...]: the workload with a fault in the N-th call; exit code in `code`.
disturb() {
    local kinds=$1 at=$2
    shift 2
    fresh
    { env LD_PRELOAD="$shim" FAULT_KINDS="$kinds" FAULT_AT="$at" FAULT_SECONDS="${FAULT_SECONDS:-20}" "$@" \
        "$trainer" "${arguments[@]}" >out 2>err </dev/null; } 2>/dev/null
    code=$?
    read -r -d '' said <err
    disturbed=$((disturbed + 1))
}

# recover WHAT: the same command again ends as the calm one did.
recover() {
    [ "$leaves" = run ] || fresh
    if ! "$trainer" "${arguments[@]}" >out 2>err </dev/null; then
        fail "$name: $1: the next start does not continue: $(tail -n 1 err)"
        return
    fi
    look
    [ "$left" = "$expected" ] || { fail "$name: $1: another end after continuing"; diff <(echo "$expected") <(echo "$left") | head -n 4; }
    recovered=$((recovered + 1))
}

disturbed=0 recovered=0
