#!/bin/bash
# SPDX-License-Identifier: MIT
# A slice of each campaign of tests/faults, some seconds together; `make faults` runs them whole.
folder=$(cd "$(dirname "$0")/../faults" && pwd)
failed=
slice() { # PART SIZE
    [ -f "$folder/$1.sh" ] || return
    COUNT=$2 bash "$folder/$1.sh" || failed="$failed $1"
}
slice allocations 44
slice calls 60
slice full_disk 12
slice kills 30
slice hostile_files 84
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
