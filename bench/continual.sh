#!/bin/bash
# SPDX-License-Identifier: MIT
# continual.sh [BUILD] [SEEDS] [STREAM...]: every strategy on the streams that need no data, with mean and spread.
#
# Streams: cl-benchmark and cl-ten (in fp32 and bf16: half an hour each on two cores), cl (the main job, an hour and a
# quarter; its replaying strategies take a third more steps for the same new tokens, so that joint training, none and ewc
# run with as many steps too), more (forms of strategies, one seed).  None named: all.  One run at a time, as their
# speeds are part of the tables; JOBS=2 is faster.  Outputs in OUT; called again it continues where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} seeds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- cl-benchmark cl-ten cl more
folder=${OUT:-$(mktemp -d)}
all=none,ewc,ewc:ewc.curvature=diagonal,l2,si,er,mer,a-gem,der++,lwf,generative,ewc+er,lwf+er,joint
steps=tasks.0.tokens=1200000:tasks.1.tokens=666667:tasks.2.tokens=933333:tasks.3.tokens=666667

# compared NAME CONFIG STRATEGIES SEEDS [KEYS]
compared() {
    echo "== $1"
    "$build/trainer" compare --config "configs/$2.yaml" --strategies "$3" --seeds "$4" --jobs "${JOBS:-1}" \
        --out "$folder/$1" logging.tensorboard=false evaluation.show=0 "${@:5}"
}
for stream; do
    case $stream in
    cl) compared cl cl "ewc+mer,mer,er,ewc,none,joint,joint:$steps,none:$steps,ewc:$steps" "$seeds" ;;
    more)
        compared more cl-benchmark "er:replay.buffer_size=64,ewc:ewc.mode=separate,mer:mer.mode=reptile:mer.interval=4,mer:mer.mode=algorithm7:mer.group_steps=4" 1
        ;;
    *)
        for mode in fp32 bf16; do
            compared "$stream-$mode" "$stream" "$all" "$seeds" precision.mode=$mode
        done
        ;;
    esac
done
echo "outputs in $folder"
