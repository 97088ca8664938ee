#!/bin/bash
# SPDX-License-Identifier: MIT
# A slice of each campaign of tests/faults, some seconds together; `make faults` runs them whole.
folder=$(cd "$(dirname "$0")/../faults" && pwd)
failed=
slice() { # PART SIZE [WORKLOADS]
    COUNT=$2 ONLY=${3:-} bash "$folder/$1.sh" || failed="$failed $1"
}
slice allocations 50 'train|resume|ewc-mer|emu|packed|report|generate|inspect|bench'
slice calls 60 'resume|bf16|lists|compare|eval|tokenizer'
slice full_disk 12
slice kills 30
slice growing 12
slice hostile_files 84
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
