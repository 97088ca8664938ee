#!/bin/bash
# SPDX-License-Identifier: MIT
# peers.sh [--work DIR] [OPTION...] TEXT [BUILD]: this trainer and PyTorch train the CPU recipes in turns, on 1 thread and on
# all: tokens per second and their ratio, eager and compiled, bf16 and fp32; seconds and loss of the small recipe.
#
# PyTorch comes from Python's package registry into a separate environment, DIR/venv (kept for the next time; without
# --work a temporary one, removed at the end): about 6 GB, because the registry's build for x86 brings a GPU's libraries
# along.  Where that cannot be had the comparison is skipped, which is no failure.  BUILD (build) holds the trainer.
# OPTIONs are those of bench/peers/cpu.py: --rounds N --steps N --threads N,... --recipes small,full,gpt2-256,gpt2-1024
# --modes bf16,fp32 --variants eager,compile --json FILE
set -eu
work='' options=()
while [ $# -gt 0 ]; do
    case $1 in
    --work) work=$2 && shift 2 ;;
    --*) options+=("$1" "$2") && shift 2 ;;
    *) break ;;
    esac
done
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '3,10s/^# \?//p' "$0" >&2
    exit 2
fi
text=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trainer=$(realpath "${2:-$here/../build}")/trainer
[ -r "$text" ] || { echo "peers.sh: $text cannot be read" >&2; exit 1; }
[ -x "$trainer" ] || { echo "peers.sh: $trainer is not there: run make" >&2; exit 1; }
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
python=$work/venv/bin/python

skip() {
    echo "PyTorch's comparison is skipped: $1"
    tail -n 3 "$work/install.log" 2>/dev/null | sed 's/^/  /'
    exit 0
}

if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    command -v python3 >/dev/null || skip "there is no python3"
    python3 -m venv "$work/venv" >"$work/install.log" 2>&1 || skip "python3 cannot make an environment"
    "$python" -m pip install torch numpy >>"$work/install.log" 2>&1 || skip "pip cannot install PyTorch"
    "$python" -c 'import torch, numpy' >>"$work/install.log" 2>&1 || skip "PyTorch does not start"
fi
# What torch.compile makes belongs to the environment, not to the user's cache.
export TORCHINDUCTOR_CACHE_DIR=$work/compiled
"$python" "$here/peers/cpu.py" --trainer "$trainer" "${options[@]}" "$text"
