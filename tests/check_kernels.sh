#!/bin/bash
# SPDX-License-Identifier: MIT
# check_kernels.sh [--write|--list]: what the compiler made of every CUDA kernel.  Fails where a kernel spills registers,
# on whatever architecture; where one that should use tensor cores, ldmatrix and asynchronous copies (or wgmma and tensor
# copies) does not; where the compiler serialises wgmma or ignores setmaxnreg; where a kernel touches device memory before
# it waits for the kernel before (compute capability 9.0, 10.0, 12.0); where none of the selftest's cases launches a
# kernel; where a launch asks for more shared memory than a block of the GPU has; or where the table
# kernels/cuda/KERNELS.md is stale.  --write makes the table anew, --list prints a row for every kernel.  BUILD says where
# `make check-kernels` put the objects, with ptxas's reports and machine code next to them (mk/cuda.mk), and tests/launches.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
build=${BUILD:-build}
document=kernels/cuda/KERNELS.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Kernels that live from the tensor cores: pattern, then the opcodes that their machine code must hold.  Of tf32, ldmatrix
# can read an operand only where k is contiguous; the exact kernels (f32) multiply on the general cores.
needs='
^matmul_kernel HMMA LDGSTS
^matmul_kernel<(Bf16|F16), HMMA LDSM LDGSTS
^matmul_hopper_kernel HGMMA UTMALDG
^matmul_fp8_hopper_kernel QGMMA UTMALDG
^matmul_fp8_kernel QMMA LDSM LDGSTS
^attention_backward_hopper_kernel HGMMA UTMALDG
^peak_wgmma_kernel HGMMA
^attention_forward_kernel HMMA LDSM LDGSTS
^attention_forward_hopper_kernel HGMMA UTMALDG
^attention_query_bwd_kernel HMMA LDSM LDGSTS
^attention_key_value_bwd_kernel HMMA LDSM LDGSTS
'

# Names as people read them, without namespaces and parameters.  Reads and writes lines with a name as their last field.
readable() {
    c++filt | sed -E 's/ void / /; s/hs_(cuda|emu)::|\(anonymous namespace\):://g' | awk '{
        depth = 0
        for (i = 1; i <= length($0); i++) {
            letter = substr($0, i, 1)
            if (letter == "(" && depth == 0)
                break
            depth += (letter == "<") - (letter == ">")
        }
        print substr($0, 1, i - 1)
    }'
}

# ptxas's report: a line a kernel and architecture.
reports() {
    local report source
    for report in "$build"/obj/kernels/cuda/*/*.ptxas; do
        source=$(basename "$report" .cuda.ptxas).cu
        awk -v source="$source" '
            /Compiling entry function/ { split($0, part, "\047"); name = part[2]; architecture = part[4] }
            /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
            /: Used [0-9]+ registers/ && name != "" {
                match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
                shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
                print "report", source, architecture, registers, shared, stack, stores, loads, name
                name = ""
            }' "$report"
    done
}

# Sections of code of a file: a line each, of its kernel, where it begins and its size.
code_sections() {
    readelf -SW "$1" 2>/dev/null |
        sed -nE 's/^ *\[ *[0-9]+\] \.text\.([^ ]*) +[A-Z]+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+) .*/\1 \2 \3/p'
}

# instructions FILE OFFSET BYTES: 16 bytes each, its opcode the low 12 bits of the first word.
instructions() {
    od -An -v -tx8 -w16 -j $((16#$2)) -N $((16#$3)) "$1"
}

# Machine code: a line a kernel, of its name, its instructions and how often the opcodes of `needs` occur.  Numbers
# counted against probes with a known count of each instruction.
machine_code() {
    local cubin name offset size
    for cubin in "$build"/obj/kernels/cuda/*/*.cuda.cubin; do
        code_sections "$cubin" | while read -r name offset size; do
            instructions "$cubin" "$offset" "$size" | awk -v name="$name" '
                { count[substr($1, 14)]++ }
                END { print "code", NR, count["23c"] + 0, count["83b"] + 0, count["fae"] + 0, count["387"] + 0,
                            count["983"] + 0, count["9f0"] + 0, count["5b4"] + 0, count["27a"] + 0, count["9f3"] + 0, name }'
        done
    done
}

# waits ARCHITECTURE FILE...: of each kernel whether it waits for the kernel before (82e), and how many instructions in
# front of that touch device memory: compilers may move loads of what they take for constant.
waits() {
    local architecture=$1 cubin name offset size
    shift
    for cubin in "$@"; do
        code_sections "$cubin" | while read -r name offset size; do
            { instructions "$cubin" "$offset" "$size" || true; } | awk -v architecture="$architecture" -v name="$name" '
                { opcode = substr($1, 14) }
                opcode == "82e" { waits = 1; exit }
                opcode ~ /^(980|981|985|986|98e|9a3|9a8|3a9|fae|3b4|5b4)$/ { accesses++ }
                END { print "waits", architecture, waits + 0, accesses + 0, name }'
        done
    done
}

# Kernels that no other runs ahead of, and which need not wait: hs_launch starts them.
alone='^(comm_fold_kernel|peak_kernel|peak_wgmma_kernel)'

# For every architecture with overlapping kernels that this compiler knows, and a kernel that reads too soon, which must
# be found there.
all_waits() {
    local code planted="$work/planted.cubin"
    for code in 90 100 120; do
        "${NVCC:-nvcc}" --list-gpu-code | grep -qx "sm_$code" || continue
        waits "$code" "$build"/obj/kernels/cuda/*/*.sm_$code.cubin
        [ $code != 90 ] || waits 90 "$build"/obj/kernels/cuda/*/*_hopper.cuda.cubin
        "${NVCC:-nvcc}" -std=c++17 -O3 -I. -gencode "arch=compute_$code,code=sm_$code" -cubin -o "$planted" \
            tests/kernels/early.cu
        waits "$code" "$planted" | awk '$3 && $4 { found = 1 } END { exit !found }' ||
            echo "unseen $code"
    done
}

# What ptxas only mentions, and what halves a Hopper kernel's speed: wgmma that is serialised, setmaxnreg that is ignored.
remarks() {
    grep -HE '\(C75(08|10|11|17)\)' "$build"/obj/kernels/cuda/*/*.ptxas | sed -E 's|^.*/([^/]*)\.cuda\.ptxas:|\1.cu: |'
}

# Launches name a kernel by its address in the program.  Some operations fit their blocks to the device's shared memory:
# one run for each size there is (compute capability 8.6 and 8.9, 8.0, 9.0).
launches() {
    local kib
    nm "$build/tests/launches" | awk '{ print $1, $3 }' | sort >"$work/symbols"
    for kib in 99 163 227; do
        HALFSTEP_EMU_SHARED=$kib "$build/tests/launches" | sort -u >"$work/addresses"
        join "$work/addresses" "$work/symbols" | awk -v kib=$kib '{ print "launch", kib, $2, $3, $4 }'
    done
}

table() {
    cat <<'MD'
# Kernels

Generated by `make docs` (tests/check_kernels.sh); do not edit.

MD
    echo "Compiler: $(nvcc_version)."
    cat <<'MD'

Where the machine code for compute capability 8.0 and 9.0 differs, both figures are given, 8.0 first. Spilled bytes are the sum over
8.0, 8.6, 8.9 and 9.0 (9.0a where a kernel is Hopper's own), and 10.0 and 12.0 where this compiler makes their machine code; none may
be spilled. Occupancy is the share of a multiprocessor's warps that the blocks which fit can fill, from registers, shared memory
and the largest block among the launches of the selftest's cases and of common models' layers. "-": no case launches this combination of
number formats, or not there.

Each row is the worst of all instantiations; `make check-kernels LIST=--list` prints every kernel.

| source | kernel | instantiations | registers | spilled bytes | tensor cores | occupancy 8.0 | occupancy 9.0 |
|---|---|---|---|---|---|---|---|
MD
    sort "$work/families"
}

# Instructions are counted in the code for 8.0, of Hopper's kernels for 9.0a, of matmul_fp8_kernel for 8.9.
every_kernel() {
    cat <<'MD'
| source | kernel | threads | registers | shared bytes, static + dynamic | spilled bytes | instructions | occupancy 8.0 | 8.6 | 8.9 | 9.0 |
|---|---|---|---|---|---|---|---|---|---|---|
MD
    sort "$work/rows"
}

nvcc_version() {
    "${NVCC:-nvcc}" --version | sed -n 's/.*release .*, V\(.*\)/nvcc \1/p'
}

{
    reports
    machine_code
    all_waits
    launches
} | readable >"$work/facts"
{
    cat "$work/facts"
    awk 'NF { print "needs", $0 }' <<<"$needs"
} | awk -v table="$work/rows" -v families="$work/families" -f tests/kernels/occupancy.awk -f tests/kernels/tables.awk | sort >"$work/complaints"
remarks >>"$work/complaints" || true
awk -v alone="$alone" '
    $1 == "unseen" { print "tests/kernels/early.cu: its early load is not seen in the code for sm_" $2 }
    $1 != "waits" { next }
    { name = $0; sub(/^waits [^ ]+ [^ ]+ [^ ]+ /, "", name) }
    $3 && $4 { print name ": touches device memory before it waits for the kernel before, on sm_" $2 }
    !$3 && name !~ alone { print name ": does not wait for the kernel before, on sm_" $2 }' "$work/facts" >>"$work/complaints"
# KiB of a block, threads, bytes and the kernel of each launch.
awk '$1 == "launch" && $4 > $2 * 1024 { $1 = $3 = ""; print "more shared memory than KiB that a block has:" $0 }' \
    "$work/facts" >>"$work/complaints"
table >"$work/document"
if [ "${1:-}" = --write ]; then
    cp "$work/document" "$document"
elif [ "${1:-}" = --list ]; then
    every_kernel
elif grep -qF "$(nvcc_version)." "$document" 2>/dev/null; then
    # Another compiler makes other code: then only the checks count.
    diff -u "$document" "$work/document" || echo "$document is stale: make docs" >>"$work/complaints"
fi
cat "$work/complaints"
[ ! -s "$work/complaints" ]
echo "check-kernels: $(wc -l <"$work/rows") kernels, no spills; none touches memory before it waits:" \
    "$(awk '$1 == "waits" { kernels[$2]++; waiting[$2] += $3 }
            END { for (code in kernels) {
                      printf "%s%d of %d wait on sm_%s", separator, waiting[code], kernels[code], code
                      separator = ", "
                  } }' "$work/facts")"
