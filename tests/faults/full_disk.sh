#!/bin/bash
# SPDX-License-Identifier: MIT
# full_disk.sh: no room for what a run writes: every write, flush and close of a run in turn meets a full disk, once and
# from there on (COUNT places, 0, the default: all); file systems of few kilobytes, where they can be mounted; limits to
# the size of a file (RLIMIT_FSIZE).  Each run has to say that there is no room; what was saved before must still be
# there, and with room again the run comes to the undisturbed end.
count=${COUNT:-0}
. "$(dirname "$0")/lib.sh"
small_configs
leaves=run from=- name=train
arguments=(--config one.yaml)
told=0 harmless=0

# A checkpoint that `latest` named before the disk was full is whole; so is the run's configuration, by which people
# start it again.
saved_is_whole() {
    [ ! -e run/config.yaml ] || cmp -s run/config.yaml config.yaml || fail "$1: run/config.yaml is not whole"
    [ ! -s run/checkpoints/latest ] || "$trainer" inspect --checkpoint run >/dev/null 2>err ||
        fail "$1: what was saved is lost: $(tail -n 1 err)"
}

# judge WHAT WORDS: the end of a disturbed run.
judge() {
    if [ "$code" = 0 ]; then
        look
        [ "$left" = "$expected" ] || fail "$1: exit code 0 with another result"
        harmless=$((harmless + 1))
    elif [ "$code" = 1 ] && [[ $said == *error:*"$2"* ]]; then
        told=$((told + 1))
    else
        fail "$1: exit code $code: ${said##*$'\n'}"
    fi
    saved_is_whole "$1"
}

calm write,sync,close,mkdir,rename || finish
cp run/config.yaml .
step=1
[ "$count" -le 0 ] || step=$((calls / count + 1))
for ((at = 1; at <= calls; at += step)); do
    rest=$((at / step % 2))
    disturb write,sync,close,mkdir,rename $at FAULT_ERROR=ENOSPC FAULT_COUNT=$rest
    judge "full disk from $at of $calls" "No space left on device"
    [ $((disturbed % 16)) != 1 ] || recover "full disk from $at of $calls"
done
echo "  $disturbed places"

# The folder of the run is a small file system; afterwards it grows.
mounts=0
mkdir small
trap 'umount "$scratch/small" 2>/dev/null; rm -rf "$scratch"' EXIT
if mount -t tmpfs -o size=4m none "$PWD/small" 2>/dev/null; then
    for kilobytes in 4 8 12 16 20 24 28 32 40 48 56 64 80 96; do
        rm -rf small/* run
        mount -o "remount,size=${kilobytes}k" "$PWD/small"
        mkdir small/run && ln -s small/run run
        "$trainer" "${arguments[@]}" >out 2>err
        code=$?
        said=$(cat err)
        judge "a file system of $kilobytes KiB" "No space left on device"
        mount -o remount,size=4m "$PWD/small"
        recover "a file system of $kilobytes KiB"
        mounts=$((mounts + 1))
    done
    umount "$PWD/small"
else
    echo "  no file system can be mounted here: left out"
fi
rm -rf run

limits=0
for kilobytes in 1 2 3 4 5 6 7 8 10 12; do
    rm -rf run
    (ulimit -f $kilobytes && exec "$trainer" "${arguments[@]}") >out 2>err
    code=$?
    said=$(cat err)
    judge "files of $kilobytes KiB at most" "File too large"
    recover "files of $kilobytes KiB at most"
    limits=$((limits + 1))
done
echo "full_disk: $disturbed places, $mounts file systems, $limits limits: $told reported, $harmless without effect; $recovered recovered, $failures wrong"
finish
