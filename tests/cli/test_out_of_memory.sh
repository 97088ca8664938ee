#!/bin/bash
# SPDX-License-Identifier: MIT
# Memory that runs out is reported as such: while the command line is read, while JSON is read, in the emulator.  The
# shim of tests/faults makes a chosen allocation fail.
. "$(dirname "$0")/../faults/lib.sh"
small_configs

# starved N COMMAND...: the N-th allocation fails, and all behind it.
starved() {
    local at=$1
    shift
    expect 1 env LD_PRELOAD="$shim" FAULT_KINDS=memory FAULT_AT="$at" FAULT_COUNT=0 FAULT_SECONDS=20 "$@"
}

# argp's own allocation is the first of every command.  Continuing without its result would train the defaults.
for command in "" plan compare bench report eval generate inspect selftest tokenizer; do
    # shellcheck disable=SC2086
    starved 1 "$trainer" $command --config one.yaml
    says err "error: no memory to read the command line"
done
[ ! -e run ] && [ ! -e runs ] || fail "something was trained without a command line"

"$trainer" --config one.yaml >out 2>err || fail "undisturbed: $(tail -n 1 err)"
cp -r run whole

# Every allocation of a command that does little but read JSON.
LD_PRELOAD=$shim FAULT_KINDS=memory FAULT_REPORT=calls "$trainer" report --run run >out 2>err
calls=$(sed -n 's/^all //p' calls)
[ "$calls" -gt 50 ] || fail "$calls allocations in a report"
told=0
for ((at = 1; at <= calls; at += 5)); do
    LD_PRELOAD=$shim FAULT_KINDS=memory FAULT_AT=$at FAULT_COUNT=0 FAULT_SECONDS=20 "$trainer" report --run run >out 2>err
    case $? in
    0) diff -r run whole || fail "allocation $at of $calls: another report" ;; # the C library does without its last ones
    1) grep -q "^error: .*memory" err && told=$((told + 1)) || fail "allocation $at of $calls: $(tail -n 1 err)" ;;
    *) fail "allocation $at of $calls: exit code $?: $(tail -n 1 err)" ;;
    esac
done
[ $told -ge $((calls / 5 - 3)) ] || fail "$told failures of $calls reported"
diff -r run whole >/dev/null || fail "reports that failed have changed the run"

# Every text that grows in memory, the last of them as it is closed, which the C library does without an error.
LD_PRELOAD=$shim FAULT_KINDS=realloc FAULT_REPORT=calls "$trainer" --config two.yaml out_dir=two >out 2>err
calls=$(sed -n 's/^all //p' calls)
for ((at = calls - 45; at <= calls; at++)); do
    rm -rf two
    LD_PRELOAD=$shim FAULT_KINDS=realloc FAULT_AT=$at FAULT_SECONDS=20 "$trainer" --config two.yaml out_dir=two >out 2>err
    code=$?
    [ $code = 0 ] || { [ $code = 1 ] && grep -q "^error: .*memory" err; } || fail "realloc $at of $calls: exit code $code"
done

# The emulator: no std::bad_alloc to abort by, also in the middle of a kernel.  AddressSanitizer's `new` asks no malloc.
! sanitized || finish
LD_PRELOAD=$shim FAULT_KINDS=memory FAULT_REPORT=calls "$trainer" --config one.yaml device=emu out_dir=emu >out 2>err
calls=$(sed -n 's/^all //p' calls)
in_kernels=0
for ((at = calls / 9; at < calls * 9 / 10; at += calls / 9)); do
    rm -rf emu
    starved $at "$trainer" --config one.yaml device=emu out_dir=emu
    grep -q "^error: .*memory" err || fail "allocation $at of $calls: $(tail -n 1 err)"
    grep -q "^error: emulator: no memory left to run kernel" err && in_kernels=$((in_kernels + 1))
done
[ $in_kernels -gt 0 ] || fail "memory never ran out in a kernel"
finish
