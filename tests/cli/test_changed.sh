#!/bin/bash
# SPDX-License-Identifier: MIT
# resume: changed, and a run that diverges: what may be another value from here on, where that is recorded, what stays the
# last good checkpoint, and that the command which the message gives works as it is printed.
. "$(dirname "$0")/lib.sh"
tiny_config

# Without the word nothing may change; with it, what is to come, and only that.
expect 0 "$trainer" --config tiny.yaml
expect 2 "$trainer" --config tiny.yaml max_steps=36 learning_rate=5e-4
says err "differing: learning_rate. To continue from there: resume=changed"
expect 2 "$trainer" --config tiny.yaml max_steps=36 learning_rate=5e-4 batch_size=8 resume=changed
says err "differing: batch_size. Set them back"
expect 0 "$trainer" --config tiny.yaml max_steps=36 learning_rate=5e-4 schedule.min_learning_rate=1e-5 resume=changed
says err "changed from here on: "
says err "learning_rate 0.001 -> 0.0005"
grep -qE 'schedule.min_learning_rate 0 -> 1\.0e-5' err || fail "the second change is not named"
says err "the run's length changed, and schedule.kind cosine follows it: the learning rate is "
says run/metrics.jsonl '{"event":"changed","step":24,"keys":"'
says run/report.html "changed on the way"
says run/report.html "at step 24: "
# The new values are the run's own now.
expect 0 "$trainer" --config tiny.yaml max_steps=40 learning_rate=5e-4 schedule.min_learning_rate=1e-5
[ "$(grep -c '"event":"changed"' run/metrics.jsonl)" = 1 ] || fail "a change is recorded twice"
# Other formats: weights and moments are kept in f32, the loss scale begins anew.
expect 0 "$trainer" --config tiny.yaml max_steps=44 learning_rate=5e-4 schedule.min_learning_rate=1e-5 precision.mode=fp16 resume=changed
says err "precision: fp16"
grep -q '"step":44,.*"loss_scale":65536' run/metrics.jsonl || fail "fp16 did not begin with its own loss scale"
expect 0 "$trainer" --config tiny.yaml max_steps=48 learning_rate=5e-4 schedule.min_learning_rate=1e-5 precision.mode=fp32 resume=changed
grep -q '"step":48,.*"loss_scale":1,' run/metrics.jsonl || fail "fp32 has a loss scale"

# A task's own length may change, too: longer, the run has the bits of one that had it from the start.
expect 0 "$trainer" --config tiny.yaml out_dir=own schedule.kind=constant tasks.0.tokens=1536
[ "$(cat own/checkpoints/latest)" = step-00000012 ] || fail "1536 tokens are $(cat own/checkpoints/latest)"
expect 0 "$trainer" --config tiny.yaml out_dir=own schedule.kind=constant tasks.0.tokens=2048
expect 0 "$trainer" --config tiny.yaml out_dir=whole schedule.kind=constant tasks.0.steps=16
for file in model optimizer; do cmp {own,whole}/checkpoints/step-00000016/$file.safetensors || fail "$file differs"; done

# Diverged: kept aside, the last good checkpoint stays, and the command as printed continues.
expect 0 "$trainer" --config tiny.yaml out_dir=wild schedule.kind=constant max_steps=12
latest=$(cat wild/checkpoints/latest)
expect 1 "$trainer" --config tiny.yaml out_dir=wild schedule.kind=constant max_steps=100 checkpoint_freq=0 learning_rate=1000 resume=changed
says err "gradients are not finite at step"
says err "kept for inspection in wild/diverged; the last checkpoint is unchanged. To continue from it with precision.mode=fp32, or"
[ "$(cat wild/checkpoints/latest)" = "$latest" ] || fail "the diverged state became the latest checkpoint"
command=$(sed -nE 's/.*a lower learning rate: trainer (.*)$/\1/p' err)
[ -n "$command" ] || fail "no command in the message"
expect 0 "$trainer" inspect --checkpoint wild/diverged
# As printed, but for the rate: a third of an absurd one is absurd.
# shellcheck disable=SC2086
expect 0 "$trainer" ${command%learning_rate=*}learning_rate=1e-3 max_steps=20
says err "continuing from wild/checkpoints/$latest"
finish
