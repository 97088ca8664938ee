#!/bin/bash
# SPDX-License-Identifier: MIT
# logging.trace: the file has the steps asked for, complete and in order; the run is the untraced one bit for bit, also
# on a device that runs ahead or replays recorded steps, and when it is stopped inside the range and resumed.
. "$(dirname "$0")/lib.sh"
tiny_config

# events FILE PHASE CATEGORY: how many.
events() {
    grep -cE "^\{\"ph\":\"$2\",.*\"cat\":\"$3\"" "$1"
}

# sound FILE: one event a line, closed; the spans of each track begin in order and lie within the ones around them.
sound() {
    head -n 1 "$1" | grep -qF '{"displayTimeUnit":"ms","traceEvents":[' || fail "$1: no such head"
    [ "$(tail -n 1 "$1")" = ']}' ] || fail "$1: not closed"
    awk '
        NR == 1 || /^\]\}$/ { next }
        !/^\{"ph":"[XCM]",.*\}$/ && !/^\{"ph":"[XCM]",.*\},$/ { print "line " NR ": not an event"; bad = 1; exit }
        /^\{"ph":"X"/ {
            match($0, /"tid":[0-9]+/); tid = substr($0, RSTART + 6, RLENGTH - 6)
            match($0, /"ts":[0-9.]+/); ts = substr($0, RSTART + 5, RLENGTH - 5) * 1000
            match($0, /"dur":[0-9.]+/); finish = ts + substr($0, RSTART + 6, RLENGTH - 6) * 1000
            if (ts < last[tid]) { print "line " NR ": begins before the one before"; bad = 1; exit }
            last[tid] = ts
            while (depth[tid] > 0 && ends[tid, depth[tid]] <= ts) depth[tid]--
            if (depth[tid] > 0 && finish > ends[tid, depth[tid]] + 0.5) { print "line " NR ": stands out"; bad = 1; exit }
            ends[tid, ++depth[tid]] = finish
            spans++
        }
        END { if (bad || spans < 100) { print spans " spans"; exit 1 } }' "$1" || fail "$1 is not sound"
}

# traced FILE STEP...: exactly these steps are in it.
traced() {
    local file=$1
    shift
    grep -oE '"args":\{"step":[0-9]+' "$file" | grep -oE '[0-9]+$' | tr '\n' ' ' >steps
    [ "$(cat steps)" = "$* " ] || fail "$file has the steps $(cat steps)instead of $*"
}

expect 0 "$trainer" --config tiny.yaml out_dir=plain
[ ! -e plain/trace.json ] || fail "a trace that was not asked for"
expect 0 "$trainer" --config tiny.yaml out_dir=traced logging.trace=3-4
says err "trace: steps 3 to 4 are in traced/trace.json"
[ ! -e traced/trace.json.tmp ] || fail "a temporary file stays"
bits plain >plain.bits
bits traced >traced.bits
same plain.bits traced.bits
sound traced/trace.json
traced traced/trace.json 3 4
[ "$(events traced/trace.json X data)" = 2 ] || fail "one wait for data a step"
# Each layer's beginning has a value of the counter, and the end of each of the two passes a zero.
layers=$(events traced/trace.json X layer)
counters=$(grep -c '"live activations (bytes)"' traced/trace.json)
[ "$counters" = $((layers + 2)) ] || fail "$counters values of live activations for $layers layers"
[ "$(grep -c '"live activations (bytes)".*"alive":0}' traced/trace.json)" = 2 ] || fail "activations outlive the pass"
[ "$(grep -c '"memory by category (bytes)"' traced/trace.json)" = 4 ] || fail "memory around each step"
most=$(grep -oE '"alive":[0-9]+' traced/trace.json | grep -oE '[0-9]+' | sort -n | tail -n 1)
arena=$(grep -oE '"activations":[0-9]+' traced/trace.json | head -n 1 | grep -oE '[0-9]+')
[ "$most" -gt 0 ] && [ "$most" -le "$arena" ] || fail "$most bytes alive in an arena of $arena"
for name in '"forward"' '"head and loss"' '"backward"' '"update"' '"block.1.mlp.down"' '"update_list"'; do
    says traced/trace.json "\"name\":$name"
done

# A resumed run counts on: here two processes, the first stopped at the end of its shorter length, inside the range.
expect 0 "$trainer" --config tiny.yaml out_dir=halves max_steps=12 schedule.decay_steps=24 logging.trace=11-14
says err "trace: steps 11 to 12 are in halves/trace.json"
traced halves/trace.json 11 12
expect 0 "$trainer" --config tiny.yaml out_dir=halves schedule.decay_steps=24 logging.trace=11-14
traced halves/trace.json 13 14
sound halves/trace.json
expect 0 "$trainer" --config tiny.yaml out_dir=late logging.trace=100
says err "trace: nothing was traced, as none of the steps 100 started in this run, which is at step 24 now"
[ ! -e late/trace.json ] || fail "a trace without steps"

# Stopped inside the range: what was traced is written.
"$trainer" --config tiny.yaml out_dir=stopped max_steps=100000 checkpoint_freq=0 logging.trace=2-100000 \
    logging.every=100000 evaluation.every=0 >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s stopped/trace.json.tmp ] && break
    sleep 0.1
done
sleep 0.2
kill -TERM $pid
wait $pid
says err "trace: steps 2 to"
sound stopped/trace.json

# On a device with its own memory steps run ahead of the host, and may be replays of a recording: not the traced ones.
emu="device=emu batch_size=2 gradient_accumulation_steps=2 max_length=16 max_steps=10 logging.every=5 evaluation.every=0"
# shellcheck disable=SC2086
expect 0 "$trainer" --config tiny.yaml out_dir=emu $emu kernels.cuda_graph=true
bits emu >emu.bits
for graph in true false; do
    rm -rf watched
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tiny.yaml out_dir=watched $emu kernels.cuda_graph=$graph logging.trace=4-6
    bits watched >watched.bits
    same emu.bits watched.bits
    sound watched/trace.json
    traced watched/trace.json 4 5 6
done
finish
