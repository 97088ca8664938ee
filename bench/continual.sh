#!/bin/bash
# SPDX-License-Identifier: MIT
# continual.sh [BUILD] [SEEDS]: the four-domain benchmark (configs/cl-benchmark.yaml) in fp32 and bf16: every strategy, and
# what the reservoir's size, the penalty's step and the number of updates change.  Tables with mean and spread.  One run
# at a time: their speeds are part of the tables.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
seeds=${2:-3}
folder=${OUT:-$(mktemp -d)}
variants=none,joint,er,er:replay.buffer_size=64,ewc,mer
for mode in fp32 bf16; do
    echo "== precision $mode"
    "$build/trainer" compare --config configs/cl-benchmark.yaml --strategies "$variants" --seeds "$seeds" --jobs 1 \
        --out "$folder/$mode" precision.mode=$mode logging.tensorboard=false
done
echo "== further strategies, fp32, seed 1"
"$build/trainer" compare --config configs/cl-benchmark.yaml --seeds 1 --jobs 1 --out "$folder/more" logging.tensorboard=false \
    --strategies "none,l2,si,a-gem,ewc:ewc.step=proximal:ewc.normalize=mean:ewc.lambda=50000,ewc:ewc.mode=separate,ewc+er,mer:mer.mode=reptile:mer.interval=4,mer:mer.mode=algorithm7:mer.group_steps=4"
echo "outputs in $folder"
