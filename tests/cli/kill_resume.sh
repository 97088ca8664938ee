#!/bin/bash
# SPDX-License-Identifier: MIT
# kill_resume.sh N [SEED]: kill -9 at N random moments (also while saving), resume each time; the record and the final
# checkpoint must equal those of an undisturbed run, byte for byte (times excepted).
moments=${1:-20}
RANDOM=${2:-1}
. "$(dirname "$0")/lib.sh"
tiny_config
# Saving every second step makes a save the likeliest moment to be killed in.
overrides="checkpoint_freq=2 max_steps=400 logging.every=1 evaluation.every=7 keep_best=true model.width=64 model.layers=3"
mkdir calm killed
start=$(date +%s%N)
(cd calm && expect 0 "$trainer" --config ../tiny.yaml $overrides)
whole_ms=$((($(date +%s%N) - start) / 1000000))
done_kills=0 attempts=0
while [ "$done_kills" -lt "$moments" ] && [ "$attempts" -lt $((moments * 20)) ]; do
    attempts=$((attempts + 1))
    # Early kills keep the run from finishing before the last of the moments.
    wait_ms=$((RANDOM % (whole_ms / 3 + 1) + 5))
    (cd killed && exec "$trainer" --config ../tiny.yaml $overrides >out 2>err) &
    pid=$!
    sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
    if kill -9 "$pid" 2>/dev/null; then done_kills=$((done_kills + 1)); fi
    wait "$pid" 2>/dev/null
    # A run that came to its end starts over, so that every kill hits a living one.
    if [ "$done_kills" -lt "$moments" ] && grep -q '"event":"end"' killed/run/metrics.jsonl 2>/dev/null; then
        rm -rf killed/run
    fi
done
(cd killed && expect 0 "$trainer" --config ../tiny.yaml $overrides)
record calm/run >calm.record
record killed/run >killed.record
same calm.record killed.record
tensors calm/run >calm.hash
tensors killed/run >killed.hash
same calm.hash killed.hash
same calm/run/checkpoints/best killed/run/checkpoints/best
echo "$done_kills kills, $(ls killed/run/checkpoints | wc -l) entries left in checkpoints/"
[ "$(find killed/run/checkpoints -name '.tmp-*' | wc -l)" = 0 ] || fail "temporary folders are left"
finish
