# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Phases of gpu.sh: how fast is it, compared with what?  Sourced by it.
# shellcheck disable=SC2154

# --- GPT-2 124M -------------------------------------------------------------------------------------------------
write_gpt2() {
    cat >"$work/gpt2.yaml" <<YAML
seed: 1
device: $device
model: {family: gpt2, layers: $layers, heads: $heads, width: $width, bias: true, vocabulary: $vocabulary}
tasks: [{name: mixture, train: "synthetic:mixture", synthetic_tokens: $((12 * batch * length + 20000))}]
batch_size: $batch
max_length: $length
learning_rate: 6e-4
schedule: {kind: constant, warmup_steps: 10}
target_gpu_util: 0.9 # of the card, or of what --memory says
optimizer: {betas: [0.9, 0.95], clip_norm: 1.0}
memory: {limit: $card_memory, auto_fit: true}
checkpoint_freq: 0
resume: never
evaluation: {every: 0, batches: 1}
logging: {every: 1, tensorboard: false, progress: none}
YAML
}

# The largest batch, halved from $batch, with a plan in bf16 that fits this card; PyTorch, which has all logits at a
# time, needs two to three times as much.  Runs of wider formats that do not fit take smaller micro-batches (auto_fit).
fit_batch() {
    local share=0.9 tool
    [ -n "$torch_missing" ] || share=0.4
    tool trainer
    while write_gpt2 && ! limited 60 "${tool[@]}" plan --config "$work/gpt2.yaml" precision.mode=bf16 \
        memory.auto_fit=false target_gpu_util=$share >"$work/plan" 2>&1 && grep -q 'the plan exceeds' "$work/plan" &&
        [ "$batch" -gt 1 ]; do
        batch=$((batch / 2))
    done
}

# own_run NAME STEPS SETTING...: one run of the trainer; its losses to $work/NAME.losses, "TOKENS_PER_SECOND MIB" to the
# standard output.
own_run() {
    local name=$1 steps=$2 log=$work/$1.log tool
    shift 2
    tool trainer
    rm -rf "$work/gpt2"
    limited 100 "${tool[@]}" --config "$work/gpt2.yaml" max_steps="$steps" out_dir="$work/gpt2" "$@" >"$log" 2>&1 ||
        { { grep -m 1 error "$log" || tail -n 1 "$log"; } >&2; rm -rf "$work/gpt2"; return 1; }
    losses_of "$work/gpt2" >"$work/$name.losses"
    # The first record holds the start.
    sed -n 's/.*"event":"step".*"tokens_per_second":\([^,}]*\).*/\1/p' "$work/gpt2/metrics.jsonl" | sed 1d | sort -g |
        awk '{ rate[NR] = $1 } END { printf "%.1f ", rate[int((NR + 1) / 2)] }'
    sed -n 's/.*memory (MiB)://p' "$log" | tr -c '0-9.\n' ' ' | awk '{ for (i = 1; i <= NF; i++) total += $i } END { printf "%.4g\n", total }'
}

# compare_losses NAME: the largest relative distance from fp32's losses, and whether it is within 1%.
compare_losses() {
    paste "$work/fp32.losses" "$work/$1.losses" | awk -v name="$1" '
        NF == 2 { steps++; difference = $1 > $2 ? $1 - $2 : $2 - $1; if (difference / $1 > most) most = difference / $1 }
        END {
            near = steps + 0 != 0 && most <= 0.01
            printf "| %s | %d | %.2g%% | %s |\n", name, steps, 100 * most, (near ? "yes" : "NO")
            exit !near
        }'
}

# While the peer compiles, which disturbs times: only losses are looked at here.
phase_losses() {
    local name code=0
    # Small cards have no room for both at once.
    [ "${memory:-0}" -lt 70000 ] || prepare_peer bf16
    declare -A settings=([fp32]='precision.mode=fp32' [bf16]='precision.mode=bf16'
        [no_hopper]='precision.mode=bf16 kernels.hopper=none' [cublaslt]='precision.mode=bf16 kernels.matmul=cublaslt')
    echo "Over the first $loss_steps steps, the largest distance from fp32's losses; at most 1% is asked for."
    echo
    echo "| run | steps | distance | within 1% |"
    echo "|---|---|---|---|"
    for name in fp32 bf16 no_hopper cublaslt; do
        # shellcheck disable=SC2086
        if ! own_run $name "$loss_steps" ${settings[$name]} >/dev/null; then
            echo "| $name | 0 | it failed: $(tail -n 1 "$work/errors") | |"
            # What needs other hardware or libraries is no failure of this project's.
            [ $name = fp32 ] || [ $name = bf16 ] && code=1
            continue
        fi
        compare_losses $name || code=1
        json '{"bench":"losses","run":"%s","losses":[%s]}' $name "$(paste -sd, "$work/$name.losses")"
    done
    echo
    await_peer 150 # what follows is timed
    return $code
}

# prepare_peer MODE: has PyTorch prepare, unless it has; starts it if need be.  It works on while we do.
prepare_peer() {
    [ -z "$torch_missing" ] || return 0
    [ -n "$peer_pid" ] || start_peer
    [ "$peer_mode" != "$1" ] || return 0
    echo "prepare $1" >&7
    peer_mode=$1 peer_preparing=yes
}

start_peer() {
    mkfifo "$work/ask" "$work/answer" 2>/dev/null
    python3 "$here/peers/gpt2_torch.py" --batch "$batch" --length "$length" <"$work/ask" >"$work/answer" \
        2>>"$out/log.txt" &
    peer_pid=$!
    exec 7>"$work/ask" 8<"$work/answer"
    peer_mode=''
}

stop_peer() {
    [ -n "$peer_pid" ] || return 0
    kill "$peer_pid" 2>/dev/null
    peer_pid=''
}

# await_peer SECONDS: until what it prepares is ready.
await_peer() {
    local word mode rest
    [ -n "$peer_pid" ] && [ -n "$peer_preparing" ] || return 0
    if read -r -t "$1" -u 8 word mode rest; then
        echo "PyTorch: $word, $mode: $rest"
        echo
    else
        torch_missing="it was not prepared after $1 s"
        stop_peer
    fi
    peer_preparing=''
}

# peer_turn MODE STEPS: "TOKENS_PER_SECOND MIB"; 2: it answers no more.
peer_turn() {
    local mode rate peak
    echo "$1 $2" >&7
    read -r -t 60 -u 8 mode rate peak || return 2
    [ "$mode" = "$1" ] || return 1
    echo "$rate $peak"
}

median() {
    sort -g | awk '{ value[NR] = $1 } END { if (NR) print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

# take_turn NAME MODE SETTING...: one turn of ours, noted.
take_turn() {
    local name=$1 mode=$2 result
    shift 2
    if result=$(own_run "$name" "$(steps_of "$mode")" precision.mode="$mode" "$@"); then
        echo "$mode $name $result" >>"$work/turns"
    elif ! grep -q "^$mode $name failed" "$work/turns"; then
        echo "$mode $name failed" >>"$work/turns"
        echo "$mode, $name: failed: $(tail -n 1 "$work/errors")"
        echo
        return 1
    fi
}

take_peer_turn() {
    local result
    [ -n "$peer_pid" ] || return 0
    result=$(peer_turn "$1" "$(steps_of "$1")")
    case $? in
    0) echo "$1 torch $result" >>"$work/turns" ;;
    2)
        torch_missing='it stopped answering'
        stop_peer
        ;;
    esac
}

# turn_row MODE NAME: a row of the table; rates relative to our own untuned turns.
turn_row() {
    local rate mib own
    rate=$(awk -v mode="$1" -v name="$2" '$1 == mode && $2 == name && $3 != "failed" { print $3 }' "$work/turns" | median)
    mib=$(awk -v mode="$1" -v name="$2" '$1 == mode && $2 == name && $3 != "failed" { print $4 }' "$work/turns" | median)
    own=$(awk -v mode="$1" '$1 == mode && $2 == "own" && $3 != "failed" { print $3 }' "$work/turns" | median)
    [ -n "$rate" ] || return 0
    awk -v mode="$1" -v name="$2" -v rate="$rate" -v mib="$mib" -v own="${own:-0}" -v L="$layers" -v C="$width" \
        -v T="$length" -v V="$vocabulary" 'BEGIN {
            N = 12 * L * C * C + (V + T) * C
            printf("| %s | %s | %.0f | %.4g | %s | %s |\n", mode, name, rate, rate * (6 * N + 6 * L * C * T) * 1e-12, mib,
                own + 0 > 0 ? sprintf("%.2f", rate / own) : "")
        }'
    json '{"bench":"gpt2","mode":"%s","run":"%s","tokens_per_second":%s,"memory_mib":%s}' "$1" "$2" "$rate" "$mib"
}

turn_table() {
    local mode name
    echo "$layers layers, width $width, vocabulary $vocabulary, $batch x $length tokens a step; medians of at most $rounds turns, taken in"
    echo "turn. Operations: 6 N + 6 L C T a token."
    echo
    echo "| mode | run | tokens/s | TFLOP/s | memory MiB | relative to own |"
    echo "|---|---|---|---|---|---|"
    for mode in "$@"; do
        for name in own tuned no_hopper no_graph no_overlap neither copies unordered logits cublaslt torch; do
            turn_row "$mode" $name
        done
    done
    [ -n "$peer_pid" ] || printf '\nPyTorch: %s.\n' "${torch_missing:-it did not start}"
}

# take_same NAME SETTING...: a turn that has to have the losses of `own` to the last bit.
take_same() {
    local name=$1
    shift
    take_turn "$name" bf16 "$@" || return 1
    cmp -s "$work/own.losses" "$work/$name.losses" && return
    echo "bf16, $name: other losses than own's, by $* alone: $(paste -sd' ' "$work/own.losses") and $(paste -sd' ' "$work/$name.losses")"
    echo
    return 1
}

# One turn each: other kernels, and what only changes how the same ones are launched.
take_once() {
    local code=0
    take_turn no_hopper bf16 kernels.hopper=none || code=1
    take_same no_graph kernels.cuda_graph=false || code=1
    take_same no_overlap kernels.overlap=false || code=1
    take_same neither kernels.cuda_graph=false kernels.overlap=false || code=1
    HALFSTEP_HOPPER_STORES=copies take_same copies || code=1
    [[ $device = emu || $description != *'capability 9.0'* ]] || take_turn unordered bf16 kernels.deterministic=false || code=1
    take_turn logits bf16 precision.logits=compute || code=1
    return $code
}

phase_gpt2() {
    local round code=0 tuning=''
    prepare_peer bf16
    await_peer 150
    [ ! -s "$out/tuning.txt" ] || tuning=$out/tuning.txt
    : >"$work/turns"
    for ((round = 1; round <= rounds; round++)); do
        [ $SECONDS -lt "$deadline" ] || break
        take_turn own bf16 || code=1
        take_peer_turn bf16
        [ -z "$tuning" ] || take_turn tuned bf16 kernels.tuning="$tuning" || code=1
        [ "$device" = emu ] || take_turn cublaslt bf16 kernels.matmul=cublaslt || code=1
        [ $round -gt 1 ] || take_once || code=1
    done
    turn_table bf16
    [ "$device" = emu ] || printf '\nThe aim on an H200: at least 600,000 tokens/s in bf16, and more than PyTorch.\n'
    return $code
}

phase_modes() {
    local mode code=0
    rounds=1
    [ -s "$work/turns" ] || : >"$work/turns"
    for mode in fp16 tf32 fp32; do
        take_turn own $mode || code=1
        prepare_peer $mode
        await_peer 150
        take_peer_turn $mode
    done
    turn_table fp16 tf32 fp32
    return $code
}

# Predicted from the plan's nominal rates and the measured step without: passes overlap it, then the update.
phase_offload() {
    local level result rate base='' device_mib predicted same code=0 tool
    tool trainer
    echo "GPT-2 124M in bf16 with more and more in the host's memory: the same losses are asked for."
    echo
    echo "| offload | tokens/s | share | predicted share | device MiB, planned | same losses |"
    echo "|---|---|---|---|---|---|"
    for level in none optimizer gradients weights; do
        local setting=(precision.mode=bf16 kernels.cuda_graph=false memory.offload=$level)
        if ! result=$(own_run offload_$level "$(steps_of bf16)" "${setting[@]}"); then
            echo "| $level | it failed: $(tail -n 1 "$work/errors") | | | | |"
            code=1
            continue
        fi
        rate=${result% *}
        base=${base:-$rate}
        limited 60 "${tool[@]}" plan --config "$work/gpt2.yaml" "${setting[@]}" >"$work/offload.plan" || code=1
        device_mib=$(awk '$1 == "total" { print $2 }' "$work/offload.plan")
        predicted=$(awk -v tokens=$((batch * length)) -v base="$base" '
            /^memory.offload: the update moves/ { update = $(NF - 1) }
            /^  passes move/ { for (i = 1; i < NF; i++) if ($i == "least") passes = $(i + 1) }
            END { step = tokens / base; printf "%.2f", step / ((step > passes ? step : passes) + update) }' "$work/offload.plan")
        same=yes
        cmp -s "$work/offload_none.losses" "$work/offload_$level.losses" || { same=NO && code=1; }
        awk -v level=$level -v rate="$rate" -v base="$base" -v predicted="$predicted" -v mib="$device_mib" -v same=$same \
            'BEGIN { printf "| %s | %.0f | %.2f | %s | %s | %s |\n", level, rate, rate / base, predicted, mib, same }'
        json '{"bench":"offload","level":"%s","tokens_per_second":%s,"predicted_share":%s,"device_mib":%s,"same_losses":"%s"}' \
            $level "$rate" "$predicted" "$device_mib" $same
    done
    return $code
}

# The card of `plan --card` that this GPU is; nothing where the list has none.
planned_card() {
    local found
    [ "$device" = cuda ] || { echo 'H200 SXM'; return; }
    found=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
    case $found in
    *H200*) echo 'H200 SXM' ;;
    *H100*) echo 'H100 SXM' ;;
    *A100*80*) echo 'A100 80GB' ;;
    *A100*) echo 'A100 40GB' ;;
    *RTX\ [0-9]*) grep -oE 'RTX [0-9]+( Ti)?' <<<"$found" ;;
    esac
}

# The small Shakespeare recipe's model on another text: a step is some 150 launches of a few microseconds.
phase_small() {
    local graph result code=0 tool predicted='' card
    local setting=(precision.mode=bf16 model.layers=4 model.heads=4 model.width=128 model.bias=false model.vocabulary=264
        batch_size=12 max_length=64 logging.every=$([ "$device" = emu ] && echo 1 || echo 100))
    [ "$device" = emu ] && setting+=(model.layers=1 model.width=32 batch_size=2 max_length=16)
    card=$(planned_card)
    tool trainer
    if [ -n "$card" ]; then
        limited 60 "${tool[@]}" plan --config "$work/gpt2.yaml" "${setting[@]}" device=cuda --card "$card" --step \
            >"$work/small.plan" || code=1
        predicted=$(grep -oE '[0-9.]+ ms' "$work/small.plan" | head -n 1)
    fi
    echo "Predicted for ${card:-a card that is not in the list}, recorded: ${predicted:-nothing}."
    echo
    echo "| steps | tokens/s | ms a step |"
    echo "|---|---|---|"
    for graph in true false; do
        if ! result=$(own_run small_$graph "$([ "$device" = emu ] && echo 4 || echo 1000)" "${setting[@]}" kernels.cuda_graph=$graph); then
            echo "| graph $graph | it failed: $(tail -n 1 "$work/errors") | |"
            code=1
            continue
        fi
        awk -v rate="${result% *}" -v graph=$graph -v emu="$device" \
            'BEGIN { tokens = emu == "emu" ? 32 : 768; printf "| %s | %.0f | %.3f |\n", graph == "true" ? "recorded" : "launched one by one", rate, 1e3 * tokens / rate }'
        json '{"bench":"small","graph":"%s","tokens_per_second":%s,"predicted":"%s"}' $graph "${result% *}" "$predicted"
    done
    cmp -s "$work/small_true.losses" "$work/small_false.losses" || { echo; echo "The two have different losses."; code=1; }
    return $code
}

# Four layers of Llama 1.1B: products with their gate, and the gate behind them.
phase_gates() {
    local gates round code=0 rate
    local setting=(model.family=llama model.bias=false model.layers=4 model.width=2048 model.heads=32 model.kv_heads=4
        model.mlp_width=5632 batch_size=8)
    [ "$device" = emu ] && setting=(model.family=llama model.bias=false model.mlp_width=136)
    : >"$work/gates"
    for round in 1 2 3; do
        for gates in epilogue apart; do
            if rate=$(HALFSTEP_GATES=$gates own_run "gates_$gates" "$(steps_of bf16)" precision.mode=bf16 "${setting[@]}"); then
                echo "$gates ${rate% *}" >>"$work/gates"
            else
                echo "$gates: it failed: $(tail -n 1 "$work/errors")"
                return 1
            fi
        done
        [ "$round" -lt "$rounds" ] || break
    done
    echo "| SwiGLU | tokens/s |"
    echo "|---|---|"
    for gates in epilogue apart; do
        rate=$(awk -v gates=$gates '$1 == gates { print $2 }' "$work/gates" | median)
        echo "| $gates | $rate |"
        json '{"bench":"gates","gates":"%s","tokens_per_second":%s}' $gates "$rate"
    done
    cmp -s "$work/gates_epilogue.losses" "$work/gates_apart.losses" || { echo; echo "The two have different losses."; code=1; }
    return $code
}

phase_trace() {
    own_run trace "$(steps_of bf16)" precision.mode=bf16 kernels.cuda_graph=false logging.trace=3-3 >/dev/null || return 1
    cp "$work/gpt2/trace.json" "$out/trace.json" || return 1
    echo "One step of GPT-2 with the time, operations and bytes of each operation: trace.json (chrome://tracing, Perfetto)."
    echo "Operations that the model of the GPU predicts, each launched by itself:"
    echo
    awk '
        function number(key) { return match($0, "\"" key "\":[0-9.]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : 0 }
        /"cat":"operation"/ && /"predicted_us":/ {
            match($0, /"name":"[a-z_]+"/); name = substr($0, RSTART + 8, RLENGTH - 9)
            if (match($0, /"transposes":"[nt]+"/)) name = name " " substr($0, RSTART + 14, RLENGTH - 15)
            name = name ", " sprintf("%.4g", number("flops") * 1e-9) " GFLOP"
            if (!(name in calls)) order[++count] = name
            calls[name]++; measured[name] += number("dur"); predicted[name] += number("predicted_us")
        }
        END {
            print "| operation | calls | measured us | predicted us | ratio |\n|---|---|---|---|---|"
            for (i = 1; i <= count; i++) {
                name = order[i]; n = calls[name]
                printf "| %s | %d | %.1f | %.1f | %.2f |\n", name, n, measured[name] / n, predicted[name] / n,
                    measured[name] / predicted[name]
            }
        }' "$out/trace.json"
}

# --- Parts ------------------------------------------------------------------------------------------------------
phase_products() {
    program 110 products --seconds "$measure_s"
}

phase_fp8() {
    program 110 fp8 --seconds "$measure_s"
}

phase_tuning() {
    local tool
    tool trainer
    limited 90 "${tool[@]}" selftest --tune "$out/tuning.txt" --config "$work/gpt2.yaml" precision.mode=bf16
}

phase_attention() {
    local rival=''
    if [ "$torch" != none ] && [ "$device" = cuda ]; then
        limited 30 python3 "$here/peers/attention_torch.py" 0.1 >"$work/attention.torch" ||
            printf "PyTorch's attention did not finish; the table has what it measured.\n\n"
        [ -s "$work/attention.torch" ] && rival=$work/attention.torch
    fi
    program 60 attention --seconds "$measure_s" ${rival:+"$rival"}
}

# Needs two GPUs and NCCL; where there is one GPU it says that nothing was run.  PyTorch brings the library, too.
phase_collectives() {
    local gpus found=''
    gpus=$([ "$device" = emu ] && echo 2 || nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    if [ "$gpus" -lt 2 ]; then
        echo "Not run: this machine has $gpus GPU, and two are needed."
        return 0
    fi
    if [ "$device" = cuda ] && ! ldconfig -p | grep -q 'libnccl\.so\.2'; then
        found=$(python3 -c 'import glob, os, torch
root = os.path.dirname(os.path.dirname(torch.__file__))
print((glob.glob(root + "/nvidia/**/libnccl.so.2", recursive=True) + [""])[0])' 2>/dev/null)
        if [ -z "$found" ]; then
            echo "Not run: $gpus GPUs, and no libnccl.so.2."
            return 0
        fi
    fi
    echo "$gpus GPUs, a process each."
    echo
    HALFSTEP_NCCL=$found program 60 collectives --ranks "$((gpus < 16 ? gpus : 16))" --seconds "$measure_s"
}

phase_bandwidth() {
    program 40 bandwidth --seconds "$measure_s"
}

phase_operations() {
    local op names=() tool
    tool ops
    for op in $only_ops; do
        names+=(--op "$op")
    done
    limited 120 "${tool[@]}" --device "$device" --json "$work/json" "${names[@]}" | sed '/^# /d; s/^## /### /'
}
