#!/bin/bash
# SPDX-License-Identifier: MIT
# Wrong usage and wrong files: exit codes and messages.
. "$(dirname "$0")/lib.sh"
tiny_config
expect 0 "$trainer" --help
says out "mer.buffer_size"
expect 0 "$trainer" --version
expect 2 "$trainer" frobnicate
says err "frobnicate is not a command"
expect 2 "$trainer" --config missing.yaml
says err "missing.yaml"
expect 2 "$trainer" --config tiny.yaml mer.buffer_size=-5
says err "mer.buffer_size must be at least 1 (got -5)"
expect 2 "$trainer" --config tiny.yaml model.widht=3
says err "did you mean"
printf 'batch_size: 4\nmer:\n  buffer_size: -5\n' >bad.yaml
expect 2 "$trainer" --config bad.yaml
says err "bad.yaml:3:"
expect 2 "$trainer" --config tiny.yaml device=gpu
expect 2 "$trainer" --config tiny.yaml model.heads=5
says err "model.heads"
expect 1 "$trainer" eval --checkpoint nowhere
expect 1 "$trainer" inspect --checkpoint nowhere
expect 2 "$trainer" generate
expect 2 "$trainer" tokenizer
mkdir empty
expect 1 "$trainer" --config tiny.yaml 'tasks.0.train=empty'
says err "empty"
[ -d run ] && fail "a refused run left a folder"
# Overflow at the only scale there is: named, saved, exit code 1.
expect 1 "$trainer" --config tiny.yaml precision.mode=fp16 precision.loss_scale=static precision.init_scale=1e15 out_dir=hopeless
says err "first non-finite value"
[ -f hopeless/diverged/checkpoints/latest ] || fail "the state was not kept"
[ -e hopeless/checkpoints ] && fail "a state that diverged is a checkpoint to go on from"
# Overflow with a dynamic scale: skipped, counted, gone on.
expect 0 "$trainer" --config tiny.yaml precision.mode=fp16 precision.init_scale=1099511627776 out_dir=falling
says err "skipped"
says falling/metrics.jsonl '"skipped_steps":1'
# What was probably meant.
expect 2 "$trainer" base.yaml
says err "to train by it: trainer --config base.yaml"
expect 2 "$trainer" trian
says err "did you mean train?"
expect 2 "$trainer" seed=3
says err "trainer --config FILE seed=3"
expect 2 "$trainer" --config tiny.yaml --learning_rate=1e-4
says err "a key of the configuration has no dashes: learning_rate=1e-4"
expect 2 "$trainer" plan --config tiny.yaml --model.layers 3
says err "a key of the configuration has no dashes: model.layers=VALUE"
expect 0 "$trainer" -h
says out "Configuration keys:"
expect 0 "$trainer" plan -h
says out "--device-memory"
for command in train plan compare bench report eval generate inspect selftest tokenizer; do
    expect 0 "$trainer" $command --help
    expect 0 "$trainer" $command --hel
done
# A value is no option, whatever it looks like.
expect 1 "$trainer" generate --checkpoint nowhere --prompt --sampels
says err "nowhere"
expect 2 "$trainer" generate --checkpoint nowhere --sampels 2
says err "--sampels is not an option of this command; did you mean --samples?"
finish
