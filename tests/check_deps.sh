#!/bin/bash
# SPDX-License-Identifier: MIT
# Which folder may include which: examples, bench, tests -> runtime -> optim -> kernels -> kernels/base.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0

complain() {
    echo "$1"
    status=1
}

# forbid FOLDER PATTERN WHY: no file of the folder may include a header that matches.
forbid() {
    local hits
    hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[\"<]($2)" "$1" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.cpp' 2>/dev/null)
    [ -z "$hits" ] || complain "$3:
$hits"
}

forbid kernels/base 'kernels/[^b]|kernels/b[^a]|optim/|runtime/|tests/|bench/' "kernels/base includes nothing above it"
forbid kernels 'optim/|runtime/|tests/|bench/' "kernels knows nothing of optim and runtime"
forbid kernels/ref 'kernels/cpu/|kernels/cuda/' "backends never include each other"
forbid kernels/cpu 'kernels/ref/|kernels/cuda/' "backends never include each other"
forbid kernels/cuda 'kernels/ref/|kernels/cpu/' "backends never include each other"
forbid optim 'runtime/|tests/|bench/|kernels/(ref|cpu|cuda)/' "optim sees the operations table, not models or backends"
forbid runtime 'tests/|bench/|examples/|kernels/(ref|cpu|cuda)/' "runtime sees backends through kernels/backend.h only"
for folder in kernels/base kernels/ref kernels/cpu optim runtime; do
    forbid "$folder" 'cuda|nccl' "CUDA headers appear only under kernels/cuda"
done

# one_file PATTERN: an outside library lives in one file.
one_file() {
    local files
    files=$(grep -rlE "#[[:space:]]*include[[:space:]]*<($1)" kernels optim runtime --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.cpp' | wc -l)
    [ "$files" -le 1 ] || complain "$1 is included by $files files, at most one may:
$(grep -rlE "#[[:space:]]*include[[:space:]]*<($1)" kernels optim runtime)"
}
one_file 'yaml\.h'
one_file 'cjson/cJSON\.h|cJSON\.h'
one_file 'pcre2\.h'
one_file 'utf8proc\.h'
one_file 'zlib\.h'
one_file 'zstd\.h'
# Opened at run time: no header tells, but the functions' names do.
# names_in PATTERN FILE LIBRARY: only FILE names the library's functions.
names_in() {
    local named
    named=$(grep -rlE "$1" kernels optim runtime bench --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' | sort | tr '\n' ' ')
    [ "$named" = "$2 " ] || complain "$3's functions are named in: $named; $2 alone may"
}
# Every environment variable that is read is in the reference's table.
for variable in $(grep -rhoE '"HALFSTEP_[A-Z_]+"' kernels optim runtime --include='*.c' --include='*.cu' --include='*.cpp' | tr -d '"' | sort -u); do
    grep -q "X($variable," runtime/environment.h || complain "$variable is read, and runtime/environment.h does not have it"
done
names_in '\bnvml[A-Z]' runtime/nvml.c NVML
names_in '\bdnnl_' bench/onednn.h oneDNN
names_in '\b(cblas|openblas_set)_' bench/openblas.h OpenBLAS
exit $status
