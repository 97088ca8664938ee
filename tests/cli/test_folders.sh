#!/bin/bash
# SPDX-License-Identifier: MIT
# Folders as other programs leave them: of every property the file and the key that count are those which count for
# transformers, with its losses and continuations in tests/huggingface/cases.txt (cases.py makes the folders and says
# where each file and key stands); what would be another model is refused with its name.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not there"; exit 0; }
cases=$root/tests/huggingface/cases.py
python3 "$cases" text >text.txt
head -c 24 text.txt >prompt.txt

# shares NAME COUNT LOSS TOKENS...: what the trainer makes of the folder is what transformers made of it
shares() {
    local name=$1 count=$2 loss=$3 got
    shift 3
    expect 0 "$trainer" eval --checkpoint "folders/$name" --file text.txt --json precision.mode=fp32 batch_size=1 \
        max_length=$((count - 1))
    got=$(grep -o '"val_loss":[^,]*' out | cut -d: -f2)
    awk -v a="$got" -v b="$loss" 'BEGIN { exit !((a - b) ^ 2 < 1e-9 * b ^ 2) }' || fail "$name: loss $got, not $loss"
    expect 0 "$trainer" generate --checkpoint "folders/$name" --prompt-file prompt.txt --tokens 8 --temperature 0 --json \
        precision.mode=fp32
    got=$(sed -E 's/.*"tokens":\[([^]]*)\],"ended_by":([a-z0-9]*).*/\1,\2/; s/,?null//; s/,/ /g' out)
    [ "$got" = "$*" ] || fail "$name: continued by $got, not $*"
}

python3 "$cases" make-all folders || fail "not all folders are made"
tried=0
while IFS=$'\t' read -r name message; do
    read -r -a wanted < <(grep "^$name " "$root/tests/huggingface/cases.txt")
    tried=$((tried + 1))
    if [ -n "$message" ]; then
        "$trainer" eval --checkpoint "folders/$name" --file text.txt precision.mode=fp32 batch_size=1 max_length=16 >out 2>err
        [ $? = 1 ] || [ $? = 2 ] || fail "$name: not refused"
        says err "$message"
    elif [ "${wanted[1]:-}" = refused ]; then
        fail "$name: transformers refuses it, and no message is expected"
    else
        shares "${wanted[@]}"
    fi
done < <(python3 "$cases" list)
[ "$tried" -ge 80 ] || fail "$tried folders"

# The page names a case for each property, and only cases that there are.
page=$root/docs/huggingface-folders.md
for name in $(grep -o '`case [a-z0-9-]*`' "$page" | tr -d '`' | cut -d' ' -f2); do
    grep -q "^$name " "$root/tests/huggingface/cases.txt" || fail "$page: there is no case $name"
done
for name in $(cut -d' ' -f1 "$root/tests/huggingface/cases.txt"); do
    case $name in plain*) continue ;; esac
    grep -q "case $name\`" "$page" || fail "$page does not name the case $name"
done

# A file in place of the folder, and adapters in it where a run begins.
for wrong in folders/plain/model.safetensors folders/plain/config.json; do
    expect 2 "$trainer" --config /dev/null init_from=$wrong out_dir=r
    says err "$wrong is a file: name the folder that holds config.json, weights and tokenizer (perhaps folders/plain)"
done
: >model.gguf
expect 2 "$trainer" --config /dev/null init_from=model.gguf out_dir=r
says err "model.gguf: a GGUF can be exported but not read"
expect 2 "$trainer" --config /dev/null init_from=maker/model out_dir=r
says err "nothing is fetched from a hub here"
mkdir -p models--maker--model/snapshots/1
expect 2 "$trainer" --config /dev/null init_from=models--maker--model out_dir=r
says err "it is a hub's cache: name the folder in its snapshots"
expect 2 "$trainer" --config /dev/null init_from=folders/adapter-there out_dir=r
says err "folders/adapter-there holds adapters (adapter_config.json) with its weights"

# Python writes Infinity for a length without end; the template in the same file is found all the same.
python3 "$cases" make plain talks
python3 - <<'PY'
import json
about = json.load(open("talks/tokenizer_config.json"))
about["model_max_length"] = float("inf")
about["chat_template"] = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                          "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
                          "{% endif %}")
json.dump(about, open("talks/tokenizer_config.json", "w"))
PY
expect 0 "$trainer" --config /dev/null init_from=talks --print-config
grep -qE '^ *chat_template: chatml' out || fail "the folder's template is not found"

# The end of documents is the folder's, also in a run's checkpoint, and there it needs the folder no more.
python3 "$cases" make plain ends
python3 - <<'PY'
import json
about = json.load(open("ends/tokenizer_config.json"))
about["eos_token"] = "an"  # no usual name of an end
json.dump(about, open("ends/tokenizer_config.json", "w"))
with open("documents.jsonl", "w") as file:
    for i in range(60):
        file.write(json.dumps({"text": f"the hour {i}"}) + "\n")
PY
expect 0 "$trainer" tokenizer count --tokenizer ends/tokenizer.json documents.jsonl
says out "with end-of-text"
expect 0 "$trainer" --config /dev/null init_from=ends 'tasks.0.train=documents.jsonl' max_steps=2 max_length=16 batch_size=2 \
    precision.mode=fp32 out_dir=r
grep -qE 'end_of_text: "?an"?$' r/config.yaml || fail "the run does not know the folder's end of text"
# A run of an earlier version did not read it, and continues as it began.
run="--config /dev/null init_from=ends tasks.0.train=documents.jsonl max_steps=4 checkpoint_freq=2 max_length=16
    batch_size=2 precision.mode=fp32 logging.device_seconds=0"
# shellcheck disable=SC2086
{
    expect 0 "$trainer" $run tokenizer.end_of_text= out_dir=whole
    bits whole >whole.bits
    goes_on_from whole/checkpoints/step-00000002 "$trainer" $run out_dir=run
}
says err "documents end as this run began"
echo '{"eos_token_id": [201, 202]}' >ends/generation_config.json
rm -r r
expect 0 "$trainer" --config /dev/null init_from=ends 'tasks.0.train=documents.jsonl' max_steps=2 max_length=16 batch_size=2 \
    precision.mode=fp32 learning_rate=0 out_dir=r
expect 0 "$trainer" generate --checkpoint r --prompt the --tokens 40 --seed 3 --json
here=$(cat out)
mv ends gone
expect 0 "$trainer" generate --checkpoint r --prompt the --tokens 40 --seed 3 --json
[ "$(cat out)" = "$here" ] || fail "without its folder a run ends its texts elsewhere"
sed 's/201, 202/203, 204/' -i gone/generation_config.json
expect 0 "$trainer" generate --checkpoint r --prompt the --tokens 40 --temperature 0 --json
finish
