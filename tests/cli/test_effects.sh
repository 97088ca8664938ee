#!/bin/bash
# SPDX-License-Identifier: MIT
# What would have no effect, or another than one thinks, is said in one line: text that is not named, prompts that are longer
# than a model sees, settings that a run of this length never comes to.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models
for i in $(seq 200); do echo "line $i of a text: $((i * 7919 % 1000))"; done >text.txt
tiny_config

# --- no text is named ---
grep -v tasks: tiny.yaml >none.yaml
expect 0 "$trainer" --config none.yaml max_steps=1
grep -n "tasks.0.train is not set: training on the built-in languages, synthetic:mixture" err | cut -d: -f1 >line
[ "$(cat line)" = 1 ] || fail "the built-in languages are not said in the first line: $(cat err)"
expect 0 "$trainer" --config tiny.yaml out_dir=named max_steps=1
! grep -q "built-in languages" err || fail "a source that is named is said to be missing"
printf 'batch_size: 1\nmax_steps: 1\nmax_length: 16\n' >from.yaml
for more in "" "tasks.0.name=mine" "tasks.0.validation=text.txt"; do
    # shellcheck disable=SC2086
    expect 2 "$trainer" --config from.yaml init_from="$models/llama" out_dir=refused $more
    says err "init_from names a model, and nothing says what to train it on: set tasks.0.train"
done
expect 2 "$trainer" --config from.yaml init_from="$models/llama" out_dir=refused tasks.0.train=text.txt tasks.1.name=second
says err "set tasks.1.train"
[ ! -e refused ] || fail "a folder is left behind"
expect 0 "$trainer" --config from.yaml init_from="$models/llama" out_dir=asked tasks.0.train=synthetic:mixture tasks.0.synthetic_tokens=20000
# A resolved configuration names it.
expect 0 "$trainer" --config asked/config.yaml out_dir=again max_steps=1
for more in "" "--batches 1" "max_length=8" "--json"; do
    # shellcheck disable=SC2086
    expect 2 "$trainer" eval --checkpoint "$models/llama" $more
    says err "names no text to evaluate on: say --file FILE, --choices FILE or tasks.0.validation=FILE"
done
for more in "--file text.txt" "tasks.0.validation=text.txt" "tasks.0.train=text.txt"; do
    # shellcheck disable=SC2086
    expect 0 "$trainer" eval --checkpoint "$models/llama" max_length=16 batch_size=1 --batches 1 $more
done
expect 0 "$trainer" eval --checkpoint asked

# --- prompts beyond the context ---
positions=$(sed -nE 's/.*"(n_positions|max_position_embeddings)": *([0-9]+).*/\2/p' "$models/gpt2/config.json" | head -n 1)
long=$(printf 'word %.0s' $(seq 400))
tokens=$(printf '%s' "$long" | "$trainer" tokenizer count --tokenizer "$models/gpt2/tokenizer.json" --json - | grep -oE '"tokens": *[0-9]+' | grep -oE '[0-9]+')
for more in "" "--json" "--samples 3" "--temperature 0"; do
    # shellcheck disable=SC2086
    expect 0 "$trainer" generate --checkpoint "$models/gpt2" --tokens 2 --prompt "$long" $more
    says err "warning: the prompt has $tokens tokens, and the model sees $positions at a time: the first $((tokens - positions)) are not seen"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: $(cat err)"
done
printf '%s' "$long" >long.txt
expect 0 "$trainer" generate --checkpoint "$models/gpt2" --tokens 2 --prompt-file long.txt
says err "the first $((tokens - positions)) are not seen"
expect 0 "$trainer" generate --checkpoint "$models/gpt2" --tokens 2 --prompt word
[ ! -s err ] || fail "a warning for a prompt that fits: $(cat err)"
# To the token.
exact=$(head -c "$positions" /dev/zero | tr '\0' a)
expect 0 "$trainer" --config tiny.yaml out_dir=bytes max_steps=1 model.max_positions="$positions"
expect 0 "$trainer" generate --checkpoint bytes --tokens 1 --prompt "$exact"
[ ! -s err ] || fail "a warning for a prompt of as many tokens: $(cat err)"
expect 0 "$trainer" generate --checkpoint bytes --tokens 1 --prompt "a$exact"
says err "the first 1 are not seen"
# Rotary positions have no end, and were not trained beyond one.
made_for=$(sed -nE 's/.*"max_position_embeddings": *([0-9]+).*/\1/p' "$models/llama/config.json" | head -n 1)
expect 0 "$trainer" generate --checkpoint "$models/llama" --tokens 2 --prompt "$(printf 'word %.0s' $(seq "$made_for"))"
says err "and the model was made for $made_for: the last"
# Of a conversation, of the sample at a run's end, and of questions.
expect 0 "$trainer" generate --checkpoint "$models/gpt2" --chat --prompt "$long" --samples 2 --tokens 2 tokenizer.chat_template=alpaca
[ "$(grep -c 'are not seen' err)" = 1 ] || fail "a conversation: $(cat err)"
expect 0 "$trainer" --config tiny.yaml out_dir=sampled max_steps=1 evaluation.sample_tokens=2 evaluation.sample_prompt="$long"
says err "are not seen"
printf '{"context": "%s", "endings": ["a", "b"], "label": 0}\n{"context": "a", "endings": ["a", "b"], "label": 0}\n' "$long" >questions.jsonl
expect 0 "$trainer" eval --checkpoint "$models/gpt2" --choices questions.jsonl batch_size=2
says err "questions.jsonl: 2 endings with their contexts are longer than max_length"
[ "$(wc -l <err)" = 1 ] || fail "not one line: $(cat err)"

# --- settings ---
# warns TEXT KEY=VALUE...: with one warning, which has the text.
warns() {
    local text=$1
    shift
    rm -rf run
    expect 0 "$trainer" --config tiny.yaml schedule.warmup_steps="${warmup:-0}" max_steps=5 checkpoint_freq=0 evaluation.every="${every:-0}" "$@"
    says err "warning: $text"
    [ "$(grep -c '^warning: ' err)" = 1 ] || fail "not one warning: $(cat err)"
}
# silent KEY=VALUE...
silent() {
    rm -rf run
    expect 0 "$trainer" --config tiny.yaml max_steps=5 "$@"
    ! grep '^warning: ' err || fail "a warning: $*"
}
warmup=100 warns "schedule.warmup_steps is 100 and the run has 5 steps: its learning rate ends at 5e-05 and never reaches 0.001"
warmup=6 warns "schedule.warmup_steps is 6 and the run has 5 steps"
warns "schedule.decay_steps is 50 and the run has 5 steps: its learning rate ends at" schedule.decay_steps=50
warns "schedule.decay_steps is 3 and the run has 5 steps: the learning rate of the last 2 is 0" schedule.decay_steps=3
warns "schedule.decay_steps has no effect: it needs schedule.kind linear, cosine or wsd" schedule.kind=constant schedule.decay_steps=3
warns "schedule.min_learning_rate has no effect" schedule.kind=constant schedule.min_learning_rate=1e-5
warns "schedule.wsd_decay_fraction has no effect: it needs schedule.kind wsd" schedule.wsd_decay_fraction=0.5
warns "schedule.wsd_shape has no effect: it needs schedule.kind wsd" schedule.wsd_shape=linear
warns "continual.rewarm_fraction has no effect: it needs continual.schedule rewarm or infinite" continual.rewarm_fraction=0.5
warns "logging.trace is 9 and the run has 5 steps: nothing is traced" logging.trace=9-10
warns "evaluation.all_tasks_every is 9 and the run has 5 steps" evaluation.all_tasks_every=9
every=9 warns "evaluation.every is 9 and the run has 5 steps: evaluated at its end only"
every=2 warns "early_stop.patience is 3 evaluations, one in 2 steps, and the run has 5 steps: it never stops early" early_stop.patience=3
rm -rf run
expect 0 "$trainer" --config tiny.yaml max_steps=5 checkpoint_freq=6 evaluation.every=2
says err "checkpoint_freq is 6 and the run has 5 steps: saved at its end only"
silent schedule.warmup_steps=5 checkpoint_freq=5 evaluation.every=5
silent schedule.warmup_steps=2 checkpoint_freq=5 evaluation.every=5 schedule.decay_steps=3 schedule.min_learning_rate=1e-5
# Defaults are not warned of.
grep -vE 'checkpoint_freq|evaluation' tiny.yaml >few.yaml
rm -rf run
expect 0 "$trainer" --config few.yaml max_steps=5
! grep '^warning: ' err || fail "a warning of defaults"
rm -rf run
# Of several tasks the one that is too short; under one schedule their sum counts; later tasks may warm up otherwise.
tiny_tasks
expect 0 "$trainer" --config tasks.yaml tasks.1.steps=3 schedule.warmup_steps=4 evaluation.every=0 max_steps=6
says err "schedule.warmup_steps is 4 and task facts has 3 steps"
[ "$(grep -c '^warning: ' err)" = 1 ] || fail "tasks: $(cat err)"
rm -rf run
expect 0 "$trainer" --config tasks.yaml tasks.1.steps=3 schedule.warmup_steps=4 evaluation.every=0 max_steps=6 continual.schedule=single
! grep '^warning: ' err || fail "a warning under one schedule"
rm -rf run
expect 0 "$trainer" --config tasks.yaml tasks.1.steps=3 schedule.warmup_steps=4 evaluation.every=0 max_steps=6 continual.schedule=rewarm
! grep '^warning: ' err || fail "a warning of tasks that warm up otherwise"
# Several processes say it once.
rm -rf run
expect 0 "$trainer" --config tiny.yaml schedule.warmup_steps=100 max_steps=5 --processes 2 checkpoint_freq=5 evaluation.every=5
[ "$(grep -c 'warmup_steps is 100' err)" = 1 ] || fail "two processes: $(cat err)"
finish
