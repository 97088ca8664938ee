#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes that others started: mpirun, and what torchrun and srun set, imitated. A rank that is absent, comes twice,
# reads another configuration or contradicts itself is named on both sides.
# Waits more than it computes.
. "$(dirname "$0")/lib.sh"
ranks=$(dirname "$trainer")/tests/comm/ranks
port=$((20000 + $$ % 20000))

# as RANK SIZE COMMAND...: as torchrun would start it.
as() {
    local rank=$1 size=$2
    shift 2
    RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 "$@"
}

# each CODE COMMAND...: all ranks of 3, with output in err.0, err.1 and err.2.
each() {
    local code=$1 rank pids=() got
    shift
    for rank in 0 1 2; do
        as $rank 3 "$@" >out.$rank 2>err.$rank &
        pids+=($!)
    done
    for rank in 0 1 2; do
        wait "${pids[rank]}"
        got=$?
        [ $got = "$code" ] || { fail "rank $rank: exit code $got instead of $code: $*"; tail -n 5 err.$rank; }
    done
}

each 0 "$ranks" launched values
says out.0 "3 ranks by shared memory, 3 on this host"
[ ! -s out.1 ] || fail "rank 1 writes to the standard output"
# torchrun's own store has the port that it passes on: the next free one is taken then.
export TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=job
each 0 "$ranks" launched mismatch
unset TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RUN_ID

# By TCP alone, as across hosts.
for case in values busy mismatch; do
    each 0 "$ranks" launched $case distributed.transport=tcp
    says out.0 "3 ranks by TCP through rank 0, 3 on this host"
done
for case in kill stop abort late; do
    for rank in 0 1 2; do
        as $rank 3 "$ranks" launched $case distributed.transport=tcp distributed.timeout=$([ $case = late ] && echo 2 || echo 60) \
            >out.$rank 2>err.$rank &
        echo $! >pid.$rank
    done
    for rank in 0 2; do wait "$(cat pid.$rank)"; done
    pkill -KILL -P "$(cat pid.1)" 2>/dev/null # the stopped one
    wait
    ! grep -E '^rank [0-9], line' err.0 err.1 err.2 || fail "tcp: $case"
    says out.0 "3 ranks by TCP"
done

as 0 3 "$ranks" launched values distributed.join=2 2>err.0 >out.0 &
expect 2 as 1 3 "$ranks" launched values distributed.join=2
says err "refused: after 2 s these ranks of 3 are still absent: 2"
wait
says err.0 "after 2 s these ranks of 3 are still absent: 2"
expect 1 as 1 3 "$ranks" launched values distributed.join=1
says err "rank 1 of 3 found no rank 0 at 127.0.0.1, port $port"

as 0 3 "$ranks" launched values distributed.join=20 2>err.0 >out.0 &
as 1 3 "$ranks" launched values distributed.join=20 2>err.1 >out.1 &
sleep 0.5
expect 2 as 1 3 "$ranks" launched values distributed.join=20
says err "came although rank 1 of 3 (host"
wait
says err.0 "came although rank 1 of 3 (host"

as 0 2 "$ranks" launched values seed=1 2>err.0 >out.0 &
expect 2 as 1 2 "$ranks" launched values seed=2
says err "has another configuration than rank 0"
wait
says err.0 "rank 1 of 2 (host"
as 0 2 "$ranks" launched values 2>err.0 >out.0 &
expect 2 as 1 3 "$ranks" launched values
says err "belongs to a run of another size: rank 0 counts 2"
wait
# A foreign process keeps no rank from starting.
as 0 2 "$ranks" launched values distributed.join=20 2>err.0 >out.0 &
sleep 0.5
printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/$port" 2>/dev/null
TORCHELASTIC_RUN_ID=other expect 2 as 1 2 "$ranks" launched values
says err "of run 'other' connected to run 'run'"
expect 0 as 1 2 "$ranks" launched values distributed.join=20
wait
says err.0 "connection"

# Variables that contradict each other, are missing, or are no numbers.
expect 2 env OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 "$ranks" launched values
says err "RANK makes this process 1 of 4, and OMPI_COMM_WORLD_RANK 2 of 4"
expect 2 env RANK=1 WORLD_SIZE=4 "$ranks" launched values
says err "MASTER_ADDR is not set"
expect 2 env RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 "$ranks" launched values
says err "the environment variable RANK is 4, and should be a number from 0 to 3"
expect 0 env RANK=1 WORLD_SIZE=4 "$ranks" launched values distributed.launch=none
expect 0 env RANK=1 "$ranks" launched values
expect 2 "$ranks" launched values distributed.launch=slurm
says err "no srun started this process: start it so, or set distributed.launch=auto"
expect 0 env SLURM_PROCID=0 SLURM_NTASKS=4 "$ranks" launched values
# srun_as RANK: with the variables of srun.
srun_as() {
    SLURM_PROCID=$1 SLURM_NTASKS=2 SLURM_JOB_ID=$$ SLURM_JOB_NODELIST="localhost,other[01-07]" \
        timeout 60 "$ranks" launched values distributed.launch=slurm
}
srun_as 1 >out.1 2>err.1 &
expect 0 srun_as 0
wait $! || fail "srun's variables: $(cat err.1)"
says out "2 ranks by shared memory"
tiny_config
expect 2 as 0 2 "$trainer" --config tiny.yaml --processes 2
says err "this is one of 2 processes that a launcher started, and is to start 2 itself"

# MPI.  Its libraries leak.
if [ -e "$(dirname "$trainer")/libhalfstep-mpi.so" ]; then
    mpi=(env ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE)
    expect 0 "${mpi[@]}" -n 3 "$ranks" launched values
    says out "3 ranks by shared memory"
    for size in 1 2 3 4 5; do
        in_tier $((size + 1)) 2 || continue
        expect 0 "${mpi[@]}" -n $size "$ranks" launched values distributed.transport=mpi
        [ $size = 1 ] || says out "$size ranks by MPI"
    done
    for case in busy mismatch; do expect 0 "${mpi[@]}" -n 3 "$ranks" launched $case distributed.transport=mpi; done
    # mpirun ends what is left of these; what the ranks have to say is that they saw what they should have: nothing.
    for case in kill stop abort late; do
        "${mpi[@]}" -n 3 "$ranks" launched $case distributed.transport=mpi distributed.timeout=$([ $case = late ] && echo 2 || echo 60) >out 2>err &&
            fail "$case: mpirun saw no failure"
        says out "3 ranks by MPI"
        ! grep -E '^rank [0-9], line' err || fail "$case"
    done
fi
finish
