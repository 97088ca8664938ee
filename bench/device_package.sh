#!/bin/bash
# SPDX-License-Identifier: MIT
# device_package.sh FOLDER [BUILD]: the folder to carry to a machine with a GPU and no packages: the trainer, the benchmark
# programs, the libraries that they need beyond the C library, and bench/gpu.sh with its peers.  There:
#
#     FOLDER/gpu.sh --trainer FOLDER/trainer --out RESULTS
#
# Debugging information stays here.  The processor must be of this machine's kind, its C library no older.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: bench/device_package.sh FOLDER [BUILD]}
build=${2:-build}
programs=(fragments products attention bandwidth ops)
mkdir -p "$folder/bench" "$folder/lib" "$folder/peers"
strip -o "$folder/trainer" "$build/trainer"
for program in "${programs[@]}"; do
    strip -o "$folder/bench/$program" "$build/bench/$program"
done
# Of the C library's own parts a second copy does harm: the loader belongs to the machine's.
ldd "$build/trainer" "${programs[@]/#/$build/bench/}" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' | xargs -r cp -Lt "$folder/lib"
cp bench/gpu.sh "$folder/gpu.sh"
cp bench/peers/*.py "$folder/peers/"
git describe --always --dirty >"$folder/COMMIT"
echo "$folder: $(du -sm "$folder" | cut -f 1) MiB"
