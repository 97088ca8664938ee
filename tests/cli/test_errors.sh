#!/bin/bash
# SPDX-License-Identifier: MIT
# Wrong usage and wrong files: exit codes and messages, which test_errors.exact shows whole.
. "$(dirname "$0")/lib.sh"
tiny_config
expect 0 "$trainer" --help
says out "mer.buffer_size"
expect 0 "$trainer" --version
shows 2 frobnicate
shows 2 --config missing.yaml
shows 2 --config tiny.yaml mer.buffer_size=-5
shows 2 --config tiny.yaml model.widht=3
printf 'batch_size: 4\nmer:\n  buffer_size: -5\n' >bad.yaml
shows 2 --config bad.yaml
shows 2 --config tiny.yaml device=gpu
shows 2 --config tiny.yaml model.heads=5
shows 1 eval --checkpoint nowhere
shows 1 inspect --checkpoint nowhere
shows 2 generate
shows 2 tokenizer
mkdir empty
shows 1 --config tiny.yaml 'tasks.0.train=empty'
[ -d run ] && fail "a refused run left a folder"
# Overflow at the only scale there is: named, saved, exit code 1.
expect 1 "$trainer" --config tiny.yaml precision.mode=fp16 precision.loss_scale=static precision.init_scale=1e15 out_dir=hopeless
says err "first non-finite value"
[ -f hopeless/diverged/checkpoints/latest ] || fail "the state was not kept"
[ -e hopeless/checkpoints ] && fail "a state that diverged is a checkpoint to continue from"
# Overflow with a dynamic scale: skipped, counted, continued.
expect 0 "$trainer" --config tiny.yaml precision.mode=fp16 precision.init_scale=1099511627776 out_dir=falling
says err "skipped"
says falling/metrics.jsonl '"skipped_steps":1'
# What was probably meant.
shows 2 base.yaml
shows 2 trian
shows 2 seed=3
shows 2 --config tiny.yaml --learning_rate=1e-4
shows 2 plan --config tiny.yaml --model.layers 3
expect 0 "$trainer" -h
says out "Configuration keys:"
expect 0 "$trainer" plan -h
says out "--device-memory"
for command in train plan compare bench report eval generate inspect selftest tokenizer; do
    expect 0 "$trainer" $command --help
    expect 0 "$trainer" $command --hel
done
# A value is no option, whatever it looks like.
shows 1 generate --checkpoint nowhere --prompt --sampels
shows 2 generate --checkpoint nowhere --sampels 2
finish
