#!/bin/bash
# SPDX-License-Identifier: MIT
# memory.allocator: a shared object serves a run's memory.  The run has the bits that it has without, asks for what its
# account says and gives all of it back; what the object does wrong is reported with its name.  memory.limit is kept.
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2206
compiler=(${CC:-cc})
command -v "${compiler[0]}" >/dev/null || { echo "no C compiler: skipped"; finish; }
tiny_config

# compile OUTPUT OPTION...: the counting allocator.
compile() {
    local output=$1
    shift
    expect 0 "${compiler[@]}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -shared -fPIC -I"$root" "$@" -o "$output" \
        "$root/tests/allocator/counting.c"
}

# counted [every]: what the allocator counted is what the run's table says, use by use, and nothing is left.  The table of the
# emulator's device has uses that are not the allocator's.
counted() {
    awk -v every="${1-}" '
        function name(from, to, text, i) { for (i = from; i <= to; i++) text = text (i > from ? " " : "") $i; return text }
        NR == FNR && /^calls/ { next }
        NR == FNR { use = name(1, NF - 2); peak[use] = sprintf("%.1f", $(NF - 1) / 1048576); left += $NF; uses++; next }
        /memory \(MiB\) +planned/ { on = 1; next }
        !on { next }
        { first = 1; while ($first !~ /^[a-z]/ || $first ~ /^info/) first++; use = name(first, NF - 3) }
        use == "total" && !every { exit } # others served the rest
        use in peak { rows++; if (peak[use] != $NF) { print use ": counted " peak[use] ", table " $NF; bad = 1 } }
        !(use in peak) && every { print use ": in the table alone"; bad = 1 }
        use == "total" { exit }
        END {
            if (left > 0) { print left " bytes were not given back"; bad = 1 }
            if (every ? rows != uses || rows < 6 : rows < 1) { print rows " rows, " uses " uses"; bad = 1 }
            exit bad
        }' report err >unequal || fail "the account: $(cat unequal)"
}

compile counting.so
compile other.so -DVERSION=99
export COUNTING_REPORT=$PWD/report

expect 0 "$trainer" --config tiny.yaml device=cpu out_dir=own
bits own >own.bits
expect 0 "$trainer" --config tiny.yaml device=cpu out_dir=foreign memory.allocator=counting.so
says err "device and pinned memory of host is the allocator's: counting (counting.so)"
counted every
calls=$(sed -n 's/^calls //p' report)
[ "$calls" -ge 6 ] || fail "the allocator was asked $calls times"
bits foreign >foreign.bits
same own.bits foreign.bits

# On resume the key may change, either way.
expect 0 "$trainer" --config tiny.yaml device=cpu out_dir=own max_steps=30 schedule.decay_steps=30 resume=changed memory.allocator="$PWD/counting.so"
counted every
expect 0 "$trainer" --config tiny.yaml device=cpu out_dir=foreign max_steps=30 schedule.decay_steps=30 resume=changed
bits own >own.bits
bits foreign >foreign.bits
same own.bits foreign.bits

# Evaluation and generation take it from the command line, and not from the checkpoint.
for command in "eval" "generate --prompt 12 --tokens 4"; do
    rm -f report
    # shellcheck disable=SC2086
    expect 0 "$trainer" $command --checkpoint own device=cpu
    [ ! -e report ] || fail "$command: opened the checkpoint's allocator"
    cp out own.out
    # shellcheck disable=SC2086
    expect 0 "$trainer" $command --checkpoint own device=cpu memory.allocator=./counting.so
    says report "weights"
    [ "$(sed -n 's/^total [0-9]* //p' report)" = 0 ] || fail "$command: bytes were not given back"
    [ "$command" = eval ] || same out own.out # eval prints times
done

# A plan opens none, and is the same.
expect 0 "$trainer" plan --no-training --config tiny.yaml device=cpu
grep -vE 'ms|s/|second' out >own.out
expect 0 "$trainer" plan --no-training --config tiny.yaml device=cpu memory.allocator=missing.so
grep -vE 'ms|s/|second' out >foreign.out
same own.out foreign.out

# What goes wrong on the way: by name, and nothing is lost on the way out.
run=(--config tiny.yaml device=cpu out_dir=failed memory.allocator=counting.so)
for ((at = 1; at <= calls; at += 1 + calls / 6)); do
    rm -rf failed
    expect 1 env COUNTING_FAIL_AT=$at "$trainer" "${run[@]}"
    grep -qE "^error: .*: [0-9]+ bytes on host: the allocator counting has none: call $at has to fail\$" err || fail "call $at: $(tail -n 1 err)"
    [ "$(sed -n 's/^total [0-9]* //p' report)" = 0 ] || fail "call $at: bytes were not given back"
done
expect 1 env COUNTING_BREAK_AT=2 "$trainer" "${run[@]}"
says err "the allocator counting failed: it gives no reason"
expect 1 env COUNTING_MISALIGN_AT=1 "$trainer" "${run[@]}"
says err "which is not a multiple of 256"
[ "$(sed -n 's/^total [0-9]* //p' report)" = 0 ] || fail "misaligned: bytes were not given back"

# What is refused at the start.
expect 2 "$trainer" "${run[@]}" memory.allocator=missing.so
says err "memory.allocator: missing.so: it cannot be opened: "
expect 2 "$trainer" "${run[@]}" memory.allocator=other.so
says err "memory.allocator: other.so: it was compiled with version 99 of memory_hooks.h, and this program has version 1"
echo 'int nothing;' >nothing.c
expect 0 "${compiler[@]}" -shared -fPIC -o nothing.so nothing.c
expect 2 "$trainer" "${run[@]}" memory.allocator=nothing.so
says err "memory.allocator: nothing.so: it exports no function hs_memory_hooks"
expect 2 env COUNTING_NOT=host "$trainer" "${run[@]}"
says err "memory.allocator: counting.so: it has no memory for host"

# memory.limit binds commands without a plan, too.
expect 1 "$trainer" --config tiny.yaml device=cpu out_dir=large model.width=160 max_steps=1 memory.limit=1MiB
expect 0 "$trainer" --config tiny.yaml device=cpu out_dir=large model.width=160 max_steps=1 memory.limit=64MiB
expect 1 "$trainer" generate --checkpoint large --prompt 12 --tokens 4 device=cpu memory.limit=1MiB
grep -qE "^error: .*: [0-9]+ bytes on host: [0-9]+ are in use of the 1048576 that memory.limit allows" err || fail "the limit: $(tail -n 1 err)"

# The emulator has its own device memory; pinned memory may be the allocator's.
[ -e "$(dirname "$trainer")/libhalfstep-emu.so" ] || finish
export HALFSTEP_EMU_GUARD=off
emu=(--config tiny.yaml device=emu max_length=16 max_steps=4 checkpoint_freq=0 memory.offload=weights evaluation.every=0 evaluation.batches=1 evaluation.items=0)
expect 0 "$trainer" "${emu[@]}" out_dir=emu
expect 0 "$trainer" "${emu[@]}" out_dir=emu-foreign memory.allocator=counting.so
says err "pinned memory of emu:0 is the allocator's: counting"
counted
bits emu >emu.bits
bits emu-foreign >foreign.bits
same emu.bits foreign.bits
expect 2 env COUNTING_WHOLE=1 "$trainer" "${emu[@]}" out_dir=emu-whole memory.allocator=counting.so
says err "leave alloc and release NULL there"
finish
