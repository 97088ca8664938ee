#!/bin/bash
# SPDX-License-Identifier: MIT
# Words of a command line that are wrong as a whole are found before any work: unknown ones, with what was meant; the same one
# twice; ones that contradict each other; files that could not be written in the end.
. "$(dirname "$0")/lib.sh"
tiny_config
printf 'aaa bbb aaa bbb ccc\n' >text.txt

# refused TEXT COMMAND...: with the text, and nothing but the message: no work was begun.
refused() {
    local text=$1
    shift
    expect 2 "$@"
    says err "$text"
    ! grep -qE '^(info|warning): ' err || fail "work was begun: $*"
    [ ! -e run ] && [ ! -e tiny-compare ] || { fail "something was written: $*"; rm -rf run; }
}

# Without a word: the commands, not the keys.
expect 0 "$trainer"
says out "trainer plan --config FILE"
[ "$(wc -l <out)" -lt 50 ] || fail "no word at all prints $(wc -l <out) lines"
expect 0 "$trainer" --help
says out "continual.strategy"

# An option twice, by its name, its letter, and the beginning of its name.
refused "--seed is given twice" "$trainer" generate --checkpoint none --seed 1 --seed 2
refused "--seed is given twice" "$trainer" generate --checkpoint none --seed=1 -s 1
refused "--tokens is given twice" "$trainer" generate --checkpoint none -n3 --tok 3
refused "--json is given twice" "$trainer" eval --checkpoint none --json --json
refused "--config is given twice" "$trainer" --config tiny.yaml --config tiny.yaml
refused "--config is given twice" "$trainer" plan -c tiny.yaml --config other.yaml
refused "--processes is given twice" "$trainer" --config tiny.yaml --processes 2 --processes 2
refused "--special <x> is given twice" "$trainer" tokenizer train --special '<x>' --special '<y>' --special '<x>' --output r.json text.txt
refused "--special \`<|endoftext|>\`" "$trainer" tokenizer train --special '<|endoftext|>' --output r.json text.txt
refused "--special \`a\`" "$trainer" tokenizer train --special a --output r.json text.txt
expect 0 "$trainer" tokenizer train --vocabulary 262 --special '<x>' --special '<y>' --output two.json text.txt
# What an option takes is no option: a text that looks like one, and words behind --.
expect 1 "$trainer" generate --checkpoint none --prompt --seed --seed 1
! grep -q "given twice" err || fail "a prompt is taken for an option"
# A key twice: the later one counts, and a warning says so before all else; the same value twice does no harm.
expect 0 "$trainer" --config tiny.yaml --print-config max_steps=1 seed=3 max_steps=2
says out "max_steps: 2"
[ "$(cat err)" = "warning: max_steps is set twice: 2 counts, and 1 does not" ] || fail "a key twice: $(cat err)"
expect 1 "$trainer" eval --checkpoint none learning_rate=1 seed=3 learning_rate=2
[ "$(head -n 1 err)" = "warning: learning_rate is set twice: 2 counts, and 1 does not" ] || fail "a key twice: $(cat err)"
expect 0 "$trainer" --config tiny.yaml --print-config max_steps=1 max_steps=1 tasks.0.steps=2
[ ! -s err ] || fail "a warning for the same: $(cat err)"
expect 0 "$trainer" --config tiny.yaml --processes 2 max_steps=1 max_steps=2
[ "$(grep -c "is set twice" err)" = 1 ] || fail "not one of three processes says it: $(cat err)"
rm -rf run
# A key twice in a file, at every depth.
for text in 'seed: 1\nseed: 1\n' 'model: {layers: 2, layers: 2}\n' 'model: {layers: 2}\nmodel: {heads: 2}\n' \
    'precision: {fp8: {margin: 1}, fp8: {history: 2}}\n' 'memory: {place: {cpu: 0}, place: {disk: ""}}\n' \
    'tasks: [{name: a, name: b}]\n' 'tasks: [{name: a}]\ntasks: [{name: b}]\n' \
    'optimizer: {groups: [{match: head, match: norm}]}\n' 'optimizer:\n  groups: []\n  groups: []\n'; do
    # shellcheck disable=SC2059
    printf "$text" >twice.yaml
    refused "is given twice" "$trainer" --config twice.yaml
done
# Contradictions.
refused "--grid lists values of learning_rate, and learning_rate=2 sets one" "$trainer" compare --config tiny.yaml --grid learning_rate=1e-3,1e-4 learning_rate=2
refused "--strategies lists strategies, and continual.strategy=er sets one" "$trainer" compare --config tiny.yaml --strategies none,er continual.strategy=er
refused "--prompt and --prompt-file both say" "$trainer" generate --checkpoint none --prompt a --prompt-file b
# A comparison's own words may set a key anew, which the user has set for all.
tiny_tasks
expect 0 "$trainer" compare --config tasks.yaml --strategies none,er:replay.buffer_size=8 --seeds 1 --out compared max_steps=2 replay.buffer_size=16 logging.progress=none
grep -q "buffer_size: 8" compared/er*/config.yaml || fail "a variant's own value does not count"

# Folders that are not there.
refused "--output missing/r.json: the folder missing is not there" "$trainer" tokenizer train --output missing/r.json text.txt
refused "--output missing/r.bin: the folder missing is not there" "$trainer" tokenizer encode --tokenizer two.json -omissing/r.bin text.txt
refused "--output .: is a folder" "$trainer" tokenizer train --output . text.txt
refused "--html missing/x.html: the folder missing is not there" "$trainer" inspect --checkpoint none --html missing/x.html
refused "--tune missing/x: the folder missing is not there" "$trainer" selftest --tune missing/x

# What was meant.
refused "did you mean --tokens?" "$trainer" generate --checkpoint none --max-new-tokens 3
refused "did you mean --samples?" "$trainer" generate --checkpoint none --num_samples=3
refused "did you mean --checkpoint?" "$trainer" eval --model none
refused "did you mean --temperature?" "$trainer" generate --checkpoint none --temprature 0
refused "did you mean generate?" "$trainer" chat --checkpoint none
refused "did you mean eval?" "$trainer" evaluate --checkpoint none
refused "did you mean tokenizer?" "$trainer" tokenise
refused "did you mean der++?" "$trainer" --config tiny.yaml continual.strategy=der
refused "did you mean a-gem?" "$trainer" compare --config tiny.yaml --strategies none,agem
refused "did you mean precision.mode=fp16?" "$trainer" --config tiny.yaml fp16=true
refused "did you mean max_epochs?" "$trainer" --config tiny.yaml num_train_epochs=3
refused "did you mean the key learning_rate, without dashes?" "$trainer" --config tiny.yaml --lr=3
refused "a key of the configuration is written without dashes: learning_rate=3" "$trainer" --config tiny.yaml --learning_rate=3
refused "as optimizer.kind=value" "$trainer" --config tiny.yaml optimizer=adamw
refused "unknown key trian.steps" "$trainer" --config tiny.yaml trian.steps=3
finish

# A length that no task takes.
expect 0 "$trainer" --config tiny.yaml max_steps=1 tasks.0.steps=2 device=cpu
says err "warning: max_steps changes nothing: each task has its length; set tasks.0.steps"
