# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The phase of gpu.sh that asks the hardware's counters.  Sourced by it.
# shellcheck disable=SC2154

# Kernels of a GPT-2 step by name and number of the launch: GELU forward (the third product of a layer), a backward
# product, both directions of attention, and what is bound by memory.
counted=(matmul_hopper_kernel:3 matmul_hopper_kernel:70 attention_forward_hopper_kernel:2
    attention_backward_hopper_kernel:2 attention_query_gradient_kernel:2 cross_entropy_kernel:1
    norm_backward_kernel:2 update_kernel:3)
phase_counters() {
    local entry ids=() tool code
    if ! command -v ncu >/dev/null; then
        echo "There is no ncu here."
        return 0
    fi
    tool trainer
    for entry in "${counted[@]}"; do
        ids+=(--kernel-id "::regex:^${entry%:*}\$:${entry#*:}")
    done
    limited 400 ncu --clock-control none --target-processes all --csv --page details --section SpeedOfLight \
        --section Occupancy --section MemoryWorkloadAnalysis --section ComputeWorkloadAnalysis --section WarpStateStats \
        "${ids[@]}" "${tool[@]}" --config "$work/gpt2.yaml" max_steps=2 precision.mode=bf16 kernels.cuda_graph=false \
        out_dir="$work/counters" >"$out/counters.csv" 2>"$work/ncu"
    code=$?
    cat "$work/ncu" >&2
    echo "| kernel | duration | multiprocessors | memory | HBM | L2 | occupancy |"
    echo "|---|---|---|---|---|---|---|"
    # Fields are quoted; the fifth is the kernel, then the section, metric, unit and value.
    awk -F'","' '
        function field(name) { return (id SUBSEP name) in value ? value[id, name] : "" }
        { gsub(/"?\r?$/, "", $NF) }
        $13 == "Duration" || $13 == "Memory Throughput" || $13 ~ /Throughput$/ || $13 == "Achieved Occupancy" {
            key = substr($1, 2)
            if (!(key in kernel)) { order[++count] = key; kernel[key] = $5 }
            if (!((key SUBSEP $13) in value)) value[key, $13] = $15 " " $14
        }
        END {
            for (i = 1; i <= count; i++) {
                id = order[i]
                printf "| %s | %s | %s | %s | %s | %s | %s |\n", kernel[id], field("Duration"), field("Compute (SM) Throughput"),
                    field("Memory Throughput"), field("DRAM Throughput"), field("L2 Cache Throughput"), field("Achieved Occupancy")
            }
            exit count == 0
        }' "$out/counters.csv" || { echo "ncu counted no kernel" >&2; tail -n 5 "$out/counters.csv" >&2; code=1; }
    for entry in "${counted[@]}"; do
        grep -q "${entry%:*}" "$out/counters.csv" && continue
        echo "ncu counted no launch ${entry#*:} of ${entry%:*}" >&2
        code=1
    done
    return $code
}
