#!/bin/bash
# SPDX-License-Identifier: MIT
# The checks of the tree's own shape find what they are there to find.
. "$(dirname "$0")/lib.sh"

tree=$scratch/tree
mkdir "$tree"
cp -r "$root/kernels" "$root/optim" "$root/runtime" "$root/bench" "$root/examples" "$root/tests" "$root/ARCHITECTURE.md" "$tree"
expect 0 bash "$tree/tests/check_deps.sh"

# planted FILE LINE TEXT: with LINE at its end, FILE is complained about, in words that hold TEXT.
planted() {
    local file=$tree/$1
    mkdir -p "$(dirname "$file")"
    [ ! -f "$file" ] || cp "$file" kept
    echo "$2" >>"$file"
    expect 1 bash "$tree/tests/check_deps.sh"
    says out "$1"
    says out "$3"
    rm "$file"
    [ ! -f kept ] || mv kept "$file"
}
planted optim/update.c '#include "runtime/config/config.h"' 'no arrow points up'
planted runtime/io/files.c '  #  include "optim/update.h"' 'no arrow points up'
planted runtime/model/model.c '#include "kernels/cpu/cpu.h"' 'backends are seen through'
planted kernels/emu/stream.cpp '#include "kernels/cuda/toolbox/launch.cuh"' 'no arrow points up'
planted kernels/ref/rope.c '#include "kernels/cpu/cpu.h"' 'backends never include each other'
planted kernels/base/log.c '#include <cuda_runtime.h>' 'CUDA headers'
planted runtime/io/files.c '#include <zlib.h>' 'at most one may'
planted runtime/io/files.c '#include "tests/support/scratch.h"' 'in no room'
planted kernels/new/new.c 'int hs_new;' 'no room'
planted runtime/io/files.c '/* reads "HALFSTEP_NEW" */' 'HALFSTEP_NEW is not in'
# A circle: a file at the bottom of its room names a function of one at the top.
sed -i '$a static HsStatus (*const hs_up)(HsRun *) = hs_run_train;' "$tree/runtime/train/records.c"
expect 1 bash "$tree/tests/check_deps.sh"
says out "runtime/train: a circle of"
expect 1 python3 "$tree/tests/check_circles.py" --calls runtime/train
says out "records -> loop: hs_run_train"

{ echo 'int hs_long(void)' && echo '{' && yes '    hs_call();' | head -n 81 && echo '}'; } >long.c
expect 1 "$root/tests/check_size.sh" long.c
says out 'long.c:1: a function of 81 lines'
sed -i 3d long.c
expect 0 "$root/tests/check_size.sh" long.c
{ echo '__global__ void long_kernel(int count)' && echo '{' && yes '    call();' | head -n 100 && echo '}'; } >long.cu
expect 0 "$root/tests/check_size.sh" long.cu

# Lines: a room that grew is named, and one that is not listed.
expect 0 "$tree/tests/check_lines.sh"
yes '/* more */' | head -n 60 >>"$tree/runtime/io/files.c"
expect 1 "$tree/tests/check_lines.sh"
says out "runtime/io has"
sed -i '/^runtime\/io /d' "$tree/tests/lines"
expect 1 "$tree/tests/check_lines.sh"
says out "no number for runtime/io"

# Durations: within the budget, on a machine of half the speed too; over it with a test that is not listed, or that takes
# longer than it is listed with.
expect 0 "$root/tests/check_durations.sh"
printf '# seconds\nbudget 60\n20 a\n15 b\n10 c\n2 d\n' >"$tree/tests/durations"
within() { # CODE TAKEN...
    local code=$1
    shift
    printf '%s\n' "$@" >taken
    expect "$code" "$tree/tests/check_durations.sh" taken
}
expect 0 "$tree/tests/check_durations.sh"
says out "47 s of one core, of a budget of 60 s"
within 0 '40 a' '30 b' '20 c' '4 d'
says out "2.00 times the listed durations"
within 1 '20 a' '15 b' '10 c' '2 d' '20 new'
says out "new took 20 s, of which tests/durations knows 0"
within 1 '40 a' '30 b' '20 c' '50 d'
says out "d took 25 s, of which tests/durations knows 2"
sed -i 's/budget 60/budget 40/' "$tree/tests/durations"
expect 1 "$tree/tests/check_durations.sh"
expect 2 env TIER=all "$root/tests/run.sh"
says err "TIER=all: give one of quick test nightly"

finish
