#!/bin/bash
# SPDX-License-Identifier: MIT
# The checks of the tree's own shape find what they are there to find.
. "$(dirname "$0")/lib.sh"

tree=$scratch/tree
mkdir "$tree"
cp -r "$root/kernels" "$root/optim" "$root/runtime" "$root/bench" "$root/tests" "$root/ARCHITECTURE.md" "$tree"
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

{ echo 'int hs_long(void)' && echo '{' && yes '    hs_call();' | head -n 81 && echo '}'; } >long.c
expect 1 "$root/tests/check_size.sh" long.c
says out 'long.c:1: a function of 81 lines'
sed -i 3d long.c
expect 0 "$root/tests/check_size.sh" long.c
{ echo '__global__ void long_kernel(int count)' && echo '{' && yes '    call();' | head -n 100 && echo '}'; } >long.cu
expect 0 "$root/tests/check_size.sh" long.cu

finish
