# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The phase of gpu.sh that asks the hardware's counters.  Sourced by it, which has limited, tool, own_run and the sizes.
# shellcheck disable=SC2154

# Kernels of a GPT-2 step by name and number of the launch: GELU forward (the third product of a layer), a backward
# product, both directions of attention, and what is bound by memory.
counted=(matmul_hopper_kernel:3 matmul_hopper_kernel:70 attention_forward_hopper_kernel:2
    attention_backward_hopper_kernel:2 attention_query_gradient_kernel:2 cross_entropy_kernel:1
    norm_backward_kernel:2 update_kernel:3)

# count_launches SECONDS FILE ENTRY... -- OPTION...: ncu's table of these launches in two steps of GPT-2, with its options.
count_launches() {
    local most=$1 table=$2 ids=() tool
    shift 2
    tool trainer
    for (( ; $# > 0; )); do
        [ "$1" != -- ] || { shift && break; }
        ids+=(--kernel-id "::regex:^${1%:*}\$:${1#*:}")
        shift
    done
    limited "$most" ncu --clock-control none --target-processes all --csv "$@" "${ids[@]}" "${tool[@]}" \
        --config "$work/gpt2.yaml" max_steps=2 precision.mode=bf16 kernels.cuda_graph=false out_dir="$work/counters" \
        >"$table" 2>"$work/ncu"
    local code=$?
    rm -rf "$work/counters"
    cat "$work/ncu" >&2
    return $code
}

# The products of a step in their order, a line each: "nt, 154.6 GFLOP, predicted 165.2 us".
list_products() {
    own_run products 2 precision.mode=bf16 kernels.cuda_graph=false logging.trace=1-1 >/dev/null || return 1
    awk '
        function number(key) { return match($0, "\"" key "\":[0-9.]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : 0 }
        /"cat":"operation"/ && /"name":"matmul"/ {
            match($0, /"transposes":"[nt]+"/)
            printf "%s, %.4g GFLOP, predicted %.1f us\n", substr($0, RSTART + 14, RLENGTH - 15), number("flops") * 1e-9, number("predicted_us")
        }' "$work/gpt2/trace.json"
}

# The awk of both tables: fields are quoted; the first is ncu's number of the launch, the fifth the kernel, the ninth the
# grid, then the section, metric, unit and value.
ncu_fields='
    { gsub(/"?\r?$/, "", $NF); key = substr($1, 2) }
    $1 ~ /^"[0-9]+$/ && !(key in kernel) { order[++count] = key; kernel[key] = $5; grid[key] = $9 }'

phase_counters() {
    local entry code
    if ! command -v ncu >/dev/null; then
        echo "There is no ncu here."
        return 0
    fi
    count_launches 300 "$out/counters.csv" "${counted[@]}" -- --page details --section SpeedOfLight --section Occupancy \
        --section MemoryWorkloadAnalysis --section ComputeWorkloadAnalysis --section WarpStateStats
    code=$?
    list_products >"$work/products" || code=1
    echo "| kernel | launch | grid | duration | multiprocessors | memory | HBM | L2 | occupancy |"
    echo "|---|---|---|---|---|---|---|---|---|"
    awk -F'","' -v wanted="${counted[*]}" "$ncu_fields"'
        function field(name) { return (id SUBSEP name) in value ? value[id, name] : "" }
        $13 == "Duration" || $13 == "Memory Throughput" || $13 ~ /Throughput$/ || $13 == "Achieved Occupancy" {
            if (!((key SUBSEP $13) in value)) value[key, $13] = $15 " " $14
        }
        END {
            entries = split(wanted, entry, " ")
            for (i = 1; i <= entries; i++) { split(entry[i], parts, ":"); launch[parts[1], ++asked[parts[1]]] = parts[2] }
            for (i = 1; i <= count; i++) {
                id = order[i]
                printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", kernel[id], launch[kernel[id], ++seen[kernel[id]]],
                    grid[id], field("Duration"), field("Compute (SM) Throughput"), field("Memory Throughput"),
                    field("DRAM Throughput"), field("L2 Cache Throughput"), field("Achieved Occupancy")
            }
            exit count == 0
        }' "$out/counters.csv" || { echo "ncu counted no kernel" >&2; tail -n 5 "$out/counters.csv" >&2; code=1; }
    for entry in "${counted[@]}"; do
        grep -q "${entry%:*}" "$out/counters.csv" || { echo "ncu counted no launch ${entry#*:} of ${entry%:*}" >&2; code=1; }
    done
    echo
    for entry in "${counted[@]}"; do
        [ "${entry%:*}" != matmul_hopper_kernel ] || echo "Product ${entry#*:}: $(sed -n "${entry#*:}p" "$work/products")."
    done
    count_pipes || echo "ncu knows none of the counters of tensor pipes, L2 and banks: see log.txt."
    return $code
}

# What products and attention do to the tensor cores, the L2 cache and shared memory.  In a run of ncu apart, which a name
# that this GPU lacks would end.
count_pipes() {
    local metrics='regex:sm__inst_executed_pipe_tensor.*sum$,regex:^lts__t_bytes.sum$,regex:l1tex__data_bank_conflicts.*sum$'
    count_launches 90 "$work/pipes.csv" "${counted[@]:0:4}" -- --metrics "$metrics" || return 1
    printf '\n| kernel | counter | value |\n|---|---|---|\n'
    awk -F'","' "$ncu_fields"'
        $13 ~ /^(sm__inst_executed_pipe_tensor|lts__t_bytes|l1tex__data_bank_conflicts)/ && $15 + 0 > 0 {
            printf "| %s %s | %s | %s %s |\n", kernel[key], key, $13, $15, $14
            shown++
        }
        END { exit shown == 0 }' "$work/pipes.csv"
}
