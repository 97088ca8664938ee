#!/bin/bash
# SPDX-License-Identifier: MIT
# Which processes may join a run where ranks meet over TCP: those that prove that they know its secret.  Where rank 0 listens,
# what comes there and does not belong there, where a start is refused, and where the secret may not show.
# Waits more than it computes.
. "$(dirname "$0")/lib.sh"
ranks=$(dirname "$trainer")/tests/comm/ranks
intruder=$(dirname "$trainer")/tests/comm/intruder
port=$((20000 + ($$ * 7) % 20000))
secret=this-is-the-secret-of-$$-and-long

# as RANK SIZE COMMAND...: as torchrun would start it.
as() {
    local rank=$1 size=$2
    shift 2
    RANK=$rank WORLD_SIZE=$size MASTER_ADDR=${address:-127.0.0.1} MASTER_PORT=$port timeout 60 "$@"
}

# listens PID: the sockets on which the process listens, as the kernel's tables have them (address:port in hexadecimal).
listens() {
    local link
    for link in /proc/"$1"/fd/*; do
        readlink "$link" 2>/dev/null
    done | sed -nE 's/^socket:\[([0-9]+)\]$/\1/p' >inodes
    cat /proc/"$1"/net/tcp /proc/"$1"/net/tcp6 2>/dev/null | awk 'NR == FNR { own[$1]; next } $4 == "0A" && $10 in own { print $2 }' inodes -
}

# alone [KEY=VALUE...]: rank 0 of 2, which waits, as process $pid.
alone() {
    local i
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=$address MASTER_PORT=$port "$ranks" launched values "$@" >out.0 2>err.0 &
    pid=$!
    for i in $(seq 100); do
        [ -z "$(listens "$pid")" ] || return
        sleep 0.05
    done
    fail "rank 0 does not listen: $(cat err.0)"
}

hexadecimal=$(printf '%04X' "$port")
# --- the address ---
for address in 127.0.0.1 localhost ::1 [::1] 127.9.8.7; do
    case $address in *::1*) [ -e /proc/net/if_inet6 ] && grep -q '^0\{31\}1 ' /proc/net/if_inet6 || continue ;; esac
    alone distributed.join=20
    listens "$pid" >found
    # 127.x.x.x with its bytes in the order of this machine, or ::1
    grep -qE "^([0-9A-F]{6}7F|00000000000000000000000001000000):$hexadecimal$" found ||
        fail "$address: rank 0 listens on $(cat found)"
    [ "$(wc -l <found)" = 1 ] || fail "$address: rank 0 listens on $(wc -l <found) sockets"
    expect 0 as 1 2 "$ranks" launched values distributed.join=20
    wait
done
address=127.0.0.1
# By distributed.address, too.
RANK=0 WORLD_SIZE=2 timeout 60 "$ranks" launched values distributed.address=127.0.0.1:$port >out.0 2>err.0 &
expect 0 env RANK=1 WORLD_SIZE=2 "$ranks" launched values distributed.address=127.0.0.1:$port
wait

# Another user's process: the system says which user's.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    cp "$intruder" intruder
    chmod 755 . intruder
    for address in 127.0.0.1 ::1; do
        [ $address = 127.0.0.1 ] || grep -qs '^0\{31\}1 ' /proc/net/if_inet6 || continue
        alone distributed.join=20
        expect 0 setpriv --reuid=65534 --clear-groups ./intruder $address:$port user
        expect 0 as 1 2 "$ranks" launched values distributed.join=20
        wait
        says err.0 "1 were another user's"
    done
    address=127.0.0.1
fi

# --- no secret off the loopback address ---
rank=0
for address in 192.0.2.1 a.host.invalid "$(hostname)" 0.0.0.0; do
    rank=$((1 - rank))
    expect 2 as $rank 2 "$ranks" launched values distributed.join=1
    says err "would meet at $address, which is not the loopback address"
    says err "export HALFSTEP_SECRET_FILE=~/halfstep-secret"
    says err "torchrun passes it on"
    [ "$(wc -l <err)" = 1 ] || fail "$(wc -l <err) lines"
done
expect 2 env SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=1 SLURM_JOB_NODELIST="node[01-02]" "$ranks" launched values distributed.launch=slurm
says err "would meet at node01"
says err "srun passes it on"
# All processes of torchrun and srun on one host, under a name that it has outside.
address=a.host.invalid
LOCAL_WORLD_SIZE=2 as 0 2 "$ranks" launched values >out.0 2>err.0 &
LOCAL_WORLD_SIZE=2 expect 0 as 1 2 "$ranks" launched values
wait
LOCAL_WORLD_SIZE=1 expect 2 as 0 2 "$ranks" launched values
address=127.0.0.1

# --- with a secret ---
export HALFSTEP_SECRET=$secret
for transport in auto tcp; do
    as 0 2 "$ranks" launched values distributed.transport=$transport >out.0 2>err.0 &
    expect 0 as 1 2 "$ranks" launched values distributed.transport=$transport
    wait $! || fail "rank 0: $(cat err.0)"
done
# Off the loopback address, too: by this machine's own name, on all addresses.
address=$(hostname)
if getent hosts "$address" >/dev/null; then
    alone distributed.join=20
    listens "$pid" | grep -qE "^0+:$hexadecimal$" || fail "by its name rank 0 listens on $(listens "$pid")"
    expect 0 as 1 2 "$ranks" launched values distributed.join=20
    wait
fi
address=127.0.0.1

# What does not belong there keeps no rank from coming, is closed, and is counted in one line.
alone distributed.join=50
for kind in garbage early none wrong replay; do
    expect 0 "$intruder" "127.0.0.1:$port" $kind
done
for kind in slow silent flood; do
    "$intruder" "127.0.0.1:$port" $kind >out.$kind 2>&1 &
    echo $! >pid.$kind
done
sleep 1
expect 0 as 1 2 "$ranks" launched values distributed.join=50
wait "$pid" || fail "rank 0: $(cat err.0)"
for kind in slow silent flood; do
    wait "$(cat pid.$kind)" || fail "$kind: $(cat out.$kind)"
done
[ "$(grep -c 'connections that were closed' err.0)" = 1 ] || fail "not one line: $(cat err.0)"
grep -qE ': [5-9] did not prove that they know the secret, 0 were another user.s, [0-9]+ were silent, [1-9][0-9]+ found no room' err.0 ||
    fail "other counts: $(cat err.0)"
# One that is silent is closed by itself.
alone distributed.join=50
expect 0 "$intruder" "127.0.0.1:$port" silent
grep -qE 'closed after (9|1[0-2])\.[0-9] s' out || fail "a silent one: $(cat out)"
expect 0 as 1 2 "$ranks" launched values distributed.join=50
wait
says err.0 "0 did not prove that they know the secret, 0 were another user's, 1 were silent"

# A rank with another secret, or none, gets the reason, and rank 0 says how many there were.
for other in "env HALFSTEP_SECRET=another-secret-of-some-length" "env -u HALFSTEP_SECRET"; do
    as 0 2 "$ranks" launched values distributed.join=2 >out.0 2>err.0 &
    # shellcheck disable=SC2086
    expect 1 as 1 2 $other "$ranks" launched values distributed.join=1
    says err "one listens there that has another secret"
    wait
    says err.0 "did not prove that they know the secret"
    says err.0 "still absent: 1"
done
unset HALFSTEP_SECRET

# --- the file ---
printf '%s\n' "$secret" >file
chmod 600 file
HALFSTEP_SECRET_FILE=file as 0 2 "$ranks" launched values >out.0 2>err.0 &
HALFSTEP_SECRET=$secret expect 0 as 1 2 "$ranks" launched values # the same, by the other way, without the line's end
wait
for mode in 640 604 620 660 644 601; do
    chmod $mode file
    HALFSTEP_SECRET_FILE=file expect 2 as 0 2 "$ranks" launched values
    says err "others may read or change file (mode $mode): chmod 600 file"
done
chmod 600 file
HALFSTEP_SECRET_FILE=missing expect 2 as 0 2 "$ranks" launched values
says err "HALFSTEP_SECRET_FILE: missing cannot be opened"
HALFSTEP_SECRET_FILE=. expect 2 as 0 2 "$ranks" launched values
says err "is not a file"
printf 'short\n' >short && chmod 600 short
HALFSTEP_SECRET_FILE=short expect 2 as 0 2 "$ranks" launched values
says err "short holds fewer than 16 bytes"
HALFSTEP_SECRET=short expect 2 as 0 2 "$ranks" launched values
says err "HALFSTEP_SECRET holds fewer than 16 bytes"
HALFSTEP_SECRET=$secret HALFSTEP_SECRET_FILE=file expect 2 as 0 2 "$ranks" launched values
says err "both set: unset one"

# --- where it may not show ---
tiny_config
HALFSTEP_SECRET=$secret as 1 2 "$trainer" --config tiny.yaml max_steps=2 distributed.transport=tcp >out.1 2>err.1 &
HALFSTEP_SECRET=$secret expect 0 as 0 2 "$trainer" --config tiny.yaml max_steps=2 distributed.transport=tcp
wait $! || fail "rank 1: $(cat err.1)"
HALFSTEP_SECRET=$secret expect 0 "$trainer" --config tiny.yaml --print-config
cp out printed
HALFSTEP_SECRET=$secret expect 2 as 0 2 "$trainer" --config tiny.yaml seed=x
cp err refused
! grep -rqF "$secret" run out.0 out.1 err.0 err.1 printed refused || fail "the secret is in $(grep -rlF "$secret" run out.* err.* printed refused)"

# --- --processes opens no port ---
HALFSTEP_SECRET=$secret "$trainer" --config tiny.yaml out_dir=several --processes 2 max_steps=100000 checkpoint_freq=0 >out 2>err &
parent=$!
for i in $(seq 200); do grep -qs '"event":"step"' several/metrics.jsonl && break; sleep 0.1; done
children=$(pgrep -P $parent)
[ "$(echo "$children" | wc -l)" = 2 ] || fail "not two processes: $children"
for pid in $parent $children; do
    [ -z "$(listens "$pid")" ] || fail "--processes: process $pid listens on $(listens "$pid")"
done
kill $parent
wait $parent

# --- MPI: on one host the loopback address, and a secret of each start ---
if [ -e "$(dirname "$trainer")/libhalfstep-mpi.so" ]; then
    HALFSTEP_FAULT="rank=1,step=1,do=delay:3" ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n 2 \
        "$trainer" --config tiny.yaml out_dir=mpi max_steps=2 distributed.transport=mpi >out 2>err || fail "mpirun: $(cat err)"
    ! grep -q "would meet" err || fail "mpirun on one host asks for a secret"
fi
finish
