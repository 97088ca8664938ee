#!/bin/bash
# SPDX-License-Identifier: MIT
# Where a run is: ~ in paths, and folders and texts that lie elsewhere when a run continues.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models

# --- ~ ---
export HOME=$scratch/home
mkdir -p home/data
for i in $(seq 60); do echo "line $i of a text: $((i * 7919 % 1000))"; done >home/data/text.txt
tiny_config
expect 0 "$trainer" --config tiny.yaml 'out_dir="~/run"' 'tasks.0.train=["~/data/text.txt"]' 'tasks.0.validation=~/data/text.txt' max_steps=2
[ -d home/run/checkpoints ] || fail "~ in out_dir is not the home folder"
[ ! -e '~' ] || fail "a folder called ~ was made"
says home/run/config.yaml "out_dir: \"$HOME/run\""
says home/run/config.yaml "train: \"$HOME/data/text.txt\""
sed -e 's|out_dir: run|out_dir: ~/from-a-file|' -e 's|train: "synthetic:mixture"|train: ~/data|' tiny.yaml >home.yaml
cp home.yaml home/
expect 0 "$trainer" '--config=~/home.yaml' max_steps=2
[ -d home/from-a-file/checkpoints ] || fail "~ in a file is not the home folder"
# Options and words that name paths.
expect 0 "$trainer" eval --checkpoint='~/run' '--file=~/data/text.txt'
expect 0 "$trainer" eval '-d~/run' --file '~/data/text.txt'
expect 0 "$trainer" report '--run=~/run'
expect 0 "$trainer" inspect '--checkpoint=~/run' '--html=~/inspected.html'
[ -s home/inspected.html ] || fail "--html=~/inspected.html"
expect 0 "$trainer" tokenizer train --vocabulary 300 '--output=~/t.json' '~/data/text.txt'
expect 0 "$trainer" tokenizer count '--tokenizer=~/t.json' '~/data/text.txt'
expect 0 "$trainer" generate '--checkpoint=~/run' '--prompt-file=~/data/text.txt' --tokens 2 --json
expect 0 "$trainer" export '--checkpoint=~/run' '--output=~/exported'
[ -s home/exported/config.json ] || fail "--output=~/exported"
# A text that begins so is a text.
expect 0 "$trainer" generate '--checkpoint=~/run' --prompt '~/x' --tokens 1
says out '~/x'
# Another user's folder is not looked up; a folder that is called so has ./ in front.
for word in 'out_dir=~root/x' 'tasks.0.train=[a.txt,"~root/x"]' 'init_from=~root'; do
    expect 2 "$trainer" --config tiny.yaml "$word"
    says err "command line: ${word%%=*}: ~root"
    says err "is written ./~root"
done
expect 2 "$trainer" eval --checkpoint='~root/x'
says err "~root/x: ~ before a name means another user's folder"
expect 0 "$trainer" --config tiny.yaml 'out_dir=./~/run' max_steps=2
[ -d './~/run/checkpoints' ] || fail "./~ is not the folder of that name"
# An earlier version took ~ for such a name: what it left is pointed out.
expect 0 "$trainer" --config tiny.yaml 'out_dir=~/run' max_steps=2 'tasks.0.train=~/data/text.txt' 'tasks.0.validation=~/data/text.txt'
says err "warning: ~/run: ~ is the home folder; what lies in the folder ~ here is called ./~/run"
(unset HOME && expect 0 "$trainer" --print-config 'out_dir=~/x' && grep -q "^out_dir: \"$(getent passwd "$(id -u)" | cut -d: -f6)/x\"" out) || fail "without HOME"

# --- a run continues from other places ---
cat >tune.yaml <<'YAML'
batch_size: 2
max_length: 16
max_steps: 4
learning_rate: 1e-3
checkpoint_freq: 2
keep_checkpoints: 9
precision: {mode: fp32}
tasks: [{name: text, train: text.txt, validation: other.txt}]
evaluation: {every: 0, batches: 2, items: 0}
logging: {every: 1, progress: none, device_seconds: 0}
YAML
cp home/data/text.txt .
tac text.txt >other.txt
# half [KEY=VALUE...]: the run as it was after two steps.
half() {
    rm -rf run
    mkdir -p run/checkpoints
    cp -r "${whole:-whole}"/checkpoints/step-00000002 run/checkpoints
    echo step-00000002 >run/checkpoints/latest
    cp "${whole:-whole}"/metrics.jsonl "${whole:-whole}"/events.* run 2>/dev/null
}
# weights DIR: what was computed, but for the paths of the state.
weights() {
    record "$1" | grep -v '"event":"checkpoint"'
    tensors "$1" | grep -v trainer.json
}
# goes_on WHAT COMMAND...: to the same end.
goes_on() {
    local what=$1
    shift
    half
    expect 0 "$@"
    says err "continuing from run/checkpoints/step-00000002"
    weights run >run.bits
    cmp -s whole.bits run.bits || { fail "$what: another end"; diff whole.bits run.bits | head -n 5; }
}
# refused TEXT COMMAND...
refused() {
    local text=$1
    shift
    half
    expect 2 "$@"
    says err "$text"
}
go=("$trainer" --config tune.yaml out_dir=run)
cp -rL "$models/llama" base
expect 0 "$trainer" --config tune.yaml init_from=base out_dir=whole
weights whole >whole.bits
grep -q '"key": *"init_from"' whole/checkpoints/step-00000002/trainer.json || fail "the base's checksum is not kept"
cp -r base elsewhere
mkdir moved
cp text.txt other.txt moved
goes_on "the same places" "${go[@]}" init_from=base
mv base gone
goes_on "a base that was moved" "${go[@]}" init_from=elsewhere
says err "init_from: elsewhere holds what base held"
goes_on "a base that was moved, resume=changed" "${go[@]}" init_from=elsewhere resume=changed
goes_on "no base any more" "${go[@]}" init_from=base
says err "init_from: base is not there any more; the checkpoint has the weights and the tokenizer"
refused "and base is not there any more: name where it lies now" "${go[@]}" init_from=base tasks.1.name=more tasks.1.train=text.txt tasks.1.validation=20%
# Which a later checkpoint knows, too.
goes_on "a base that was moved" "${go[@]}" init_from=elsewhere
expect 0 "${go[@]}" init_from=gone max_steps=5
refused "init_from: nowhere is neither a Hugging Face folder" "${go[@]}" init_from=nowhere
cp -r gone other
python3 - <<'PY'
with open("other/model.safetensors", "r+b") as file:
    file.seek(-1, 2)
    byte = file.read(1)[0]
    file.seek(-1, 2)
    file.write(bytes([byte ^ 1]))
PY
refused "init_from: other does not hold what base held when this run began: model.safetensors has other bytes" "${go[@]}" init_from=other
cp gone/model.safetensors other/
sed -i 's/"vocab": *{/"vocab": {"an added word": 99999, /' other/tokenizer.json
half
"${go[@]}" init_from=other >out 2>err && fail "another tokenizer is taken"
mv gone base
# The text: by another path, as a folder, as a glob, as an absolute path.
goes_on "a text that was moved" "${go[@]}" init_from=base tasks.0.train=moved/text.txt tasks.0.validation=moved/other.txt
goes_on "an absolute path" "${go[@]}" init_from=base tasks.0.train="$PWD/text.txt"
mkdir folder && cp text.txt folder/renamed.txt
goes_on "a folder" "${go[@]}" init_from=base tasks.0.train=folder
goes_on "a glob" "${go[@]}" init_from=base 'tasks.0.train=fold*/*.txt'
refused "tasks.0.train: other.txt would take the place of text.txt, and has other bytes" "${go[@]}" init_from=base tasks.0.train=other.txt
cp text.txt short.txt && echo >>short.txt
refused "short.txt would take the place of text.txt, and has another size" "${go[@]}" init_from=base tasks.0.train=short.txt
cp text.txt text.md && cp text.txt folder/second.txt
goes_on "another name of the same format" "${go[@]}" init_from=base tasks.0.train=text.md
refused "folder/second.txt would take the place of other.txt" "${go[@]}" init_from=base tasks.0.train=folder
refused "differing: tasks.0.train" "${go[@]}" init_from=base tasks.0.train=synthetic:english
refused "differing: tasks.0.train" "${go[@]}" init_from=base 'tasks.0.train=[text.txt, text.txt]'
refused "differing: tasks.0.validation" "${go[@]}" init_from=base tasks.0.validation=10%
# Training's file for validation's, and the other way round.
refused "would take the place of" "${go[@]}" init_from=base tasks.0.train=moved/other.txt tasks.0.validation=moved/text.txt
# A checkpoint of an earlier version: it has no checksums of the base, and does not say what each file is for.
# earlier DIR [KEY=VALUE...]: `half` of such a run, in DIR.  A run that trains on the state's text says its checksum.
earlier() {
    local folder=$1/checkpoints/step-00000002
    shift
    expect 0 "$trainer" --config tune.yaml init_from=base out_dir="${folder%%/*}" max_steps=2 schedule.kind=constant "$@"
    python3 - "$folder/trainer.json" <<'PY'
import json, sys
state = json.load(open(sys.argv[1]))
state.pop("origin")
for row in state["files"]:
    row.pop("task"), row.pop("validation")
open(sys.argv[1], "w").write(json.dumps(state))
PY
    cp "$folder/trainer.json" state.txt
    rm -rf sums
    expect 0 "$trainer" --config tiny.yaml out_dir=sums max_steps=1 tasks.0.train=state.txt tasks.0.validation=state.txt
    python3 - "$folder" sums/checkpoints/step-00000001/trainer.json <<'PY'
import json, sys
row = json.load(open(sys.argv[2]))["files"][0]
path = sys.argv[1] + "/checksums.json"
sums = json.load(open(path))
sums["files"]["trainer.json"] = {"bytes": row["bytes"], "xxh3": row["xxh3"]}
open(path, "w").write(json.dumps(sums))
PY
}
long=("$trainer" --config tune.yaml schedule.kind=constant)
expect 0 "${long[@]}" init_from=base out_dir=constant
weights constant >constant.bits
earlier old
cp -r old older
expect 0 "${long[@]}" out_dir=old init_from=elsewhere
says err "whether elsewhere holds those of base is not known, as an earlier version began this run"
weights old >run.bits
same constant.bits run.bits
# Two purposes: which file is for which is not known, but where they were.
expect 2 "${long[@]}" init_from=base out_dir=older tasks.0.train=moved/text.txt
says err "was saved by an earlier version, which did not keep what each file is for"
expect 2 "${long[@]}" out_dir=older init_from=elsewhere max_steps=2 tasks.1.name=more tasks.1.train=text.txt tasks.1.validation=20%
says err "appended tasks are measured on the weights that the run began with"
expect 0 "${long[@]}" init_from=base out_dir=older
earlier single tasks.0.validation=20%
expect 0 "${long[@]}" init_from=base out_dir=single tasks.0.validation=20% tasks.0.train=moved/text.txt
says err "continuing from single/checkpoints/step-00000002"
finish
