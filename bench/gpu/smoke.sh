# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The phase smoke of gpu.sh: what is wrong, if anything is, in a minute.  A line for each step, which names what it tried;
# none stops the others.  Sourced by gpu.sh.
# shellcheck disable=SC2154

# attempt NAME COMMAND...: at most six seconds on a GPU; its last words where it fails.
attempt() {
    local name=$1 code start=$SECONDS
    shift
    limited 6 "$@" >"$work/attempt" 2>&1
    code=$?
    json '{"bench":"smoke","step":"%s","ok":%s}' "$name" "$([ $code -eq 0 ] && echo true || echo false)"
    if [ $code -eq 0 ]; then
        echo "- $name: right ($((SECONDS - start)) s)"
        return 0
    fi
    [ $code -ne 124 ] || echo "no end" >>"$work/attempt"
    [ $code -le 128 ] || echo "ended by signal $((code - 128))" >>"$work/attempt"
    echo "- **$name: FAILED** (exit code $code): $(grep -vE '^(device: |emulator: called from|[^ ]*\()' "$work/attempt" | tail -n 1)"
    return 1
}

# All of bench/fragments: its rows that broke.
smoke_fragments() {
    local tool
    tool fragments
    # shellcheck disable=SC2086
    "${tool[@]}" --device "$device" $tiny >"$work/rows" 2>&1
    local code=$?
    grep -E 'BROKEN|FAILED' "$work/rows" | tail -n 3
    return $code
}

# three_steps NAME DEVICE SETTING...: the losses of a small model to $work/NAME.smoke.
three_steps() {
    tiny_run "$2" gpt2 bf16 "$1" max_steps=3 model.layers=2 model.width=128 \
        max_length=$((parity_length > 32 ? 128 : 32)) "${@:3}" >"$work/$1.smoke"
}

# same_losses NAME OTHER DISTANCE: relative, of all three; 0: to the last digit.
same_losses() {
    [ "$(wc -l <"$work/$1.smoke")" -eq 3 ] && paste "$work/$1.smoke" "$work/$2.smoke" | awk -v most="$3" '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > most * $1) bad = 1 } END { exit bad }' && return
    echo "losses $(paste -sd' ' "$work/$1.smoke"), and $(paste -sd' ' "$work/$2.smoke") of $2"
    return 1
}

# train NAME OTHER DISTANCE SETTING...
train() {
    local name=$1 other=$2 distance=$3
    shift 3
    three_steps "$name" "$device" "$@" && same_losses "$name" "$other" "$distance"
}

# What the machine can do at most: a figure that is far off is not this project's.
smoke_rates() {
    local tool
    tool products
    # shellcheck disable=SC2086
    "${tool[@]}" --device "$device" --seconds 0.3 $tiny rates
}

phase_smoke() {
    local code=0 tile tool self
    tool trainer
    self=("${tool[@]}" selftest --device "$device" --no-speed --pairs)
    # A function of this shell has no timeout: in a child it has one.
    export -f tool limited tiny_run train three_steps same_losses smoke_fragments smoke_rates losses_of
    export work here device tiny cublaslt build deadline patience parity_layers parity_width parity_length parity_steps
    command -v nvidia-smi >/dev/null && [ "$device" = cuda ] &&
        nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.draw --format=csv,noheader | sed 's/^/- /'
    attempt "code for all GPUs (convert)" "${self[@]}" --op convert || code=1
    attempt "sums of a warp and a block (norm_forward)" "${self[@]}" --op norm_forward || code=1
    attempt "the emulator's assumptions (bench/fragments)" bash -c smoke_fragments || code=1
    for tile in mma-128x128 wgmma-256x256 wgmma-256x256-joint; do
        attempt "products by $tile" "${self[@]}" --op matmul --force-tile "$tile,bf16-$tile,mma-any-128x64,mma-any-64x64,ffma-64x64" || code=1
    done
    attempt "attention forward" "${self[@]}" --op attention_forward || code=1
    attempt "attention backward" "${self[@]}" --op attention_backward || code=1
    attempt "three steps on the cpu" bash -c 'three_steps cpu cpu' || code=1
    attempt "three steps by kernels for all GPUs, one by one" bash -c \
        'train plain cpu 1e-3 kernels.hopper=none kernels.overlap=false kernels.cuda_graph=false' || code=1
    attempt "three steps by Hopper's kernels" bash -c \
        'train hopper cpu 1e-3 kernels.overlap=false kernels.cuda_graph=false' || code=1
    attempt "kernels that begin early" bash -c 'train early hopper 0 kernels.cuda_graph=false' || code=1
    attempt "recorded steps" bash -c 'train recorded hopper 0 kernels.overlap=false' || code=1
    attempt "recorded steps whose kernels begin early" bash -c 'train both hopper 0' || code=1
    if attempt "a large product and a copy" bash -c smoke_rates; then
        sed -n 's/^rates: /  /p' "$work/attempt"
    else
        code=1
    fi
    return $code
}
