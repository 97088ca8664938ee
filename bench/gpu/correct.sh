# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Phases of gpu.sh: are the numbers right?  Sourced by it, which has limited, tool, program, json and the sizes.
# shellcheck disable=SC2154

# --- The emulator's assumptions -------------------------------------------------------------------------------
# After an experiment that hung or broke the device's context, the next ones run in a separate process.
phase_fragments() {
    local from=0 before=-1 code worst=0 start=$SECONDS
    : >"$work/fragments"
    while [ "$from" -gt "$before" ] && [ $((SECONDS - start)) -lt 60 ]; do
        before=$from
        program 20 fragments --from "$from" "$out/fragments.txt" >>"$work/fragments"
        code=$?
        [ $code -eq 0 ] || [ $code -eq 4 ] || worst=$code # 4: an experiment that is only reported
        [ $code -ne 124 ] || echo " | FAILED: no end in 20 s |" >>"$work/fragments"
        [ $code -eq 3 ] || [ $code -eq 4 ] || [ $code -eq 124 ] || break
        # Rows so far, without the two lines of the head.
        from=$(($(grep -c '^|' "$work/fragments") - 2))
    done
    cat "$work/fragments"
    return "$worst"
}

# --- Operations against the reference -------------------------------------------------------------------------
# test_op LABEL OPERATION OPTIONS...: one operation in a separate process, so that a fault or a wait without end costs
# the others nothing.  A line if it is right; else all that it said.
test_op() {
    local label=$1 op=$2 most=$op_seconds code tool
    shift 2
    tool trainer
    # Attention's backward alone takes 10 to 15 s, of which most is the reference's.
    case $op in attention_*) most=$((2 * op_seconds)) ;; esac
    patience=1 limited "$most" "${tool[@]}" selftest --device "$device" --no-speed --op "$op" "$@" >"$work/op" 2>&1
    code=$?
    json '{"bench":"selftest","label":"%s","operation":"%s","cases":%d,"ok":%s}' "$label" "$op" \
        "$(awk '/ cases / { cases = $2 } END { print cases + 0 }' "$work/op")" "$([ $code -eq 0 ] && echo true || echo false)"
    if [ $code -eq 0 ]; then
        awk -v label="$label" '/ cases / { printf "- %s: %s cases, worst error %s of tolerance\n", label, $2, $6 }' "$work/op"
        return 0
    fi
    [ $code -ne 124 ] || echo "no end in $most s" >>"$work/op"
    [ $code -le 128 ] || echo "ended by signal $((code - 128))" >>"$work/op"
    printf -- '- **%s: FAILED (exit code %d)**\n\n' "$label" $code
    sed '/^device: /d; s/^/      /' "$work/op"
    echo
    return 1
}

# forced_together MATCH ENTRY...: products with MATCH in their description by each of these kernels, in one process, which
# looks for what is expected once.  Where one is wrong or the process does not end well, a process for each says which.
forced_together() {
    local match=$1 entry code=0 layout tool asked=()
    shift
    [ -z "$covering" ] || asked=("$covering")
    layout=${HALFSTEP_MULTIPROCESSORS:+, laid out for $HALFSTEP_MULTIPROCESSORS multiprocessors}
    for entry; do
        asked+=(--force-tile "$entry")
    done
    tool trainer
    if limited 60 "${tool[@]}" selftest --device "$device" --no-speed --op matmul --match "$match" "${asked[@]}" >"$work/op" 2>&1; then
        awk -v layout="$layout" '
            /^products: forced to / { sub(/^products: forced to /, ""); label = $0 }
            / cases / { printf "- %s%s: %s cases, worst error %s of tolerance\n", label, layout, $2, $6 }' "$work/op"
        json '{"bench":"selftest","label":"%s%s","operation":"matmul","cases":%d,"ok":true}' "$*" "$layout" \
            "$(awk '/ cases / { cases += $2 } END { print cases + 0 }' "$work/op")"
        return 0
    fi
    for entry; do
        test_op "$entry$layout" matmul ${covering:+"$covering"} --match "$match" --force-tile "$entry" || code=1
    done
    # A process that ended badly with all of them, though none does alone.
    [ $code -ne 0 ] || tail -n 3 "$work/op" >&2
    return 1
}

# Kernels of 16-bit products on 16-bit cases, and so on: other cases would be multiplied as in every other test.
phase_forced() {
    local code=0 processors
    for processors in "$large" 4; do
        [ -z "$processors" ] || local -x HALFSTEP_MULTIPROCESSORS=$processors
        # shellcheck disable=SC2086
        {
            forced_together 'f16 ->' $forced_16bit || code=1
            forced_together ' x e4m3' $forced_codes || code=1
            [ -z "$forced_f32" ] || forced_together 'f32 ->' $forced_f32 || code=1
        }
    done
    return $code
}

phase_agreement() {
    [ -z "$large" ] || local -x HALFSTEP_MULTIPROCESSORS=$large
    program 120 agreement
}

phase_rounds() {
    local -x HALFSTEP_MULTIPROCESSORS=4
    program 120 agreement
}

# test_ops OPERATION...: how many are right, and whole what was said of the others.
test_ops() {
    local op code=0 right=0 wrong=0
    : >"$work/failed"
    for op; do
        if test_op "$op" "$op" >"$work/line"; then
            right=$((right + 1))
        else
            wrong=$((wrong + 1)) code=1
            cat "$work/line" >>"$work/failed"
        fi
    done
    echo "$right operations within tolerance, $wrong not."
    [ ! -s "$work/failed" ] || { echo; cat "$work/failed"; }
    return $code
}

# list_ops: those to test, a line each.
list_ops() {
    local tool
    tool trainer
    tr ' ' '\n' <<<"${only_ops:-$(limited 20 "${tool[@]}" selftest --list)}"
}

phase_hopper() {
    local names
    mapfile -t names < <(list_ops | grep -xF -e "${hopper_ops// /$'\n'}")
    test_ops "${names[@]}"
    local code=$?
    tested_ops=${names[*]}
    return $code
}

# But for those that the phase above has tested.
phase_selftest() {
    local names
    mapfile -t names < <(list_ops | grep -vxF -e "${tested_ops// /$'\n'}")
    [ ${#names[@]} -gt 0 ] || [ -n "$tested_ops" ] || { echo "no list of operations" >&2; return 1; }
    test_ops "${names[@]}"
}

# --- The same training on the cpu and on the device -----------------------------------------------------------
# tiny_run DEVICE FAMILY MODE NAME [SETTING...]: the losses of a short run, a line a step.
tiny_run() {
    local device=$1 mode=$3 name=$4 log=$work/$4.log tool
    tool trainer
    cat >"$work/tiny.yaml" <<YAML
seed: 7
model: {family: $2, layers: $parity_layers, heads: 2, width: $parity_width}
tasks: [{name: mixture, train: "synthetic:mixture", synthetic_tokens: 20000}]
batch_size: 4
max_length: $parity_length
max_steps: $parity_steps
learning_rate: 1e-3
checkpoint_freq: 0
evaluation: {every: 0, batches: 1}
logging: {every: 1, tensorboard: false, progress: none}
YAML
    limited 60 "${tool[@]}" --config "$work/tiny.yaml" device="$device" precision.mode="$mode" resume=never \
        out_dir="$work/$name" "${@:5}" >"$log" 2>&1 || { tail -n 3 "$log" >&2; return 1; }
    losses_of "$work/$name"
    rm -rf "${work:?}/$name"
}

losses_of() {
    sed -n 's/.*"event":"step".*"loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"
}

phase_parity() {
    local family mode verdict code=0
    echo "Largest difference between the losses of the cpu and of the device over $parity_steps steps, relative, and in"
    echo "unit roundoffs of the mode's products; and whether two runs on the device give the same bits."
    echo
    echo "| model | mode | difference | roundoffs | repeated |"
    echo "|---|---|---|---|---|"
    for family in $parity_families; do
        for mode in $parity_modes; do
            # The cpu has no products in tf32: its fp32 stands in.
            if ! { tiny_run cpu "$family" "${mode/tf32/fp32}" cpu >"$work/cpu.losses" &&
                tiny_run "$device" "$family" "$mode" first >"$work/first.losses" &&
                tiny_run "$device" "$family" "$mode" second >"$work/second.losses"; }; then
                echo "| $family | $mode | failed: $(tail -n 1 "$work/errors") | | |"
                code=1
                continue
            fi
            verdict=same
            cmp -s "$work/first.losses" "$work/second.losses" || { verdict=DIFFERENT; code=1; }
            paste "$work/cpu.losses" "$work/first.losses" | awk -v family="$family" -v mode="$mode" -v verdict="$verdict" '
                { difference = $1 > $2 ? $1 - $2 : $2 - $1; difference /= $1; if (difference > most) most = difference }
                END {
                    bits = mode == "bf16" ? 8 : mode == "fp32" ? 24 : 11
                    printf "| %s | %s | %.2g | %.2g | %s |\n", family, mode, most, most * 2 ^ bits, verdict
                }'
            json '{"bench":"parity","family":"%s","mode":"%s","losses_cpu":[%s],"losses":[%s],"repeated":"%s"}' "$family" \
                "$mode" "$(paste -sd, "$work/cpu.losses")" "$(paste -sd, "$work/first.losses")" "$verdict"
        done
    done
    return $code
}

# --- The sanitizer --------------------------------------------------------------------------------------------
# Without racecheck, which knows little of mbarriers and bulk copies, and takes what they order for races.
phase_sanitizer() {
    local check part code worst=0 tool
    if ! command -v compute-sanitizer >/dev/null; then
        echo "There is no compute-sanitizer here."
        return 0
    fi
    tool agreement
    echo "| tool | kernels | verdict |"
    echo "|---|---|---|"
    for check in memcheck synccheck; do
        for part in products attention; do
            limited 40 compute-sanitizer --tool $check --error-exitcode 9 --print-limit 5 "${tool[@]}" --device "$device" \
                --tiny $part >"$work/sanitizer" 2>&1
            code=$?
            json '{"bench":"sanitizer","tool":"%s","part":"%s","exit_code":%d}' $check $part $code
            case $code in
            0) echo "| $check | $part | clean |" ;;
            124) echo "| $check | $part | no end in 40 s |" ;;
            *)
                echo "| $check | $part | exit code $code: see log.txt |"
                grep -v '^|' "$work/sanitizer" | head -n 40 >&2
                worst=1
                ;;
            esac
        done
    done
    return $worst
}
