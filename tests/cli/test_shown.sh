#!/bin/bash
# SPDX-License-Identifier: MIT
# What the commands show of a small run on the reference backend, with the same sums everywhere: test_shown.exact.
. "$(dirname "$0")/lib.sh"

# Without the machine's name and memory, the program's size, and the clock.
steady() {
    sed -E -e 's/^((info: )?device: ref) \(.*\)/\1 (MACHINE)/' \
        -e 's/[0-9.]+[kM]? tok\/s/N tok\/s/; s/  ETA [0-9hms ]+//' \
        -e 's/^(limit: target_gpu_util 0.8 of) .*/\1 MACHINE/; s/(it could grow to) .*/\1 N/' \
        -e '/\(resident(;.*)?\)$/d; /\.[mv]  *f32 /d' -e 's/^hash [0-9a-f]+/hash N/'
}

tiny_config
tiny_tasks
shows 0 plan --config tiny.yaml device=ref
shows 0 --config tiny.yaml device=ref max_steps=8 logging.progress=lines
shows 0 eval --checkpoint run
shows 0 inspect --checkpoint run
shows 0 generate --checkpoint run --prompt "1 + " --tokens 4 --temperature 0
shows 0 --config tasks.yaml device=ref out_dir=tasks logging.progress=lines 'continual.strategy=[ewc,mer]'
shows 0 --config tasks.yaml device=ref out_dir=tasks logging.progress=lines 'continual.strategy=[ewc,mer]'
shows 0 report --run tasks
finish
