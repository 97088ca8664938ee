#!/bin/bash
# SPDX-License-Identifier: MIT
# make.sh BUILD FOLDER (`make gpu-package`): the folder to carry to a machine with a GPU and no packages: all programs of
# bench/gpu.sh as one, the backends' parts, the libraries that they need beyond the C library, the script and its peers.
# There, from any folder:
#
#     FOLDER/gpu.sh --phases correct --out RESULTS
#
# Debugging information stays here.  The processor must be of this machine's kind, its C library no older.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: bench/package/make.sh BUILD FOLDER} folder=${2:?usage: bench/package/make.sh BUILD FOLDER}
rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/parts" "$folder/peers"
strip -o "$folder/halfstep-gpu" "$build/halfstep-gpu"
for part in "$build"/bench/parts/*.so; do
    strip -o "$folder/parts/${part##*/}" "$part"
done
# For the same script on the emulator.
strip -o "$folder/parts/libhalfstep-nccl-standin.so" "$build/libhalfstep-nccl-standin.so"
# Of the C library's own parts a second copy does harm: the loader belongs to the machine's.
ldd "$build/halfstep-gpu" "$build"/bench/parts/*.so | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' | xargs -r cp -Lt "$folder/lib"
cp -r bench/gpu.sh bench/gpu "$folder/"
cp bench/peers/*.py "$folder/peers/"
git describe --always --dirty >"$folder/COMMIT" 2>/dev/null || echo unknown >"$folder/COMMIT"
echo "$folder: $(du -sm "$folder" | cut -f 1) MiB"
