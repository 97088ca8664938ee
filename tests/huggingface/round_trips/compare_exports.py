#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare_exports.py BUILD FOLDER [TEXTS [NAME...]]: a folder, a run that begins with it, its exports, and the program that reads each.

    models      every folder of tests/huggingface/models, with templates, tokens and sampling defaults added: a run, and one
                with adapters; logits of transformers, PEFT and llama.cpp against ours; what the files say of their use
    tokenizers  each of tests/tokenizers/kinds.py with a model: ids of TEXTS texts, special tokens among them, by transformers
                and by the GGUF's tables, which is written or refused by name

NAME: only these models and tokenizers. llama.cpp is compared where llama-cpp-python is installed.
Skipped, with exit status 0, where transformers, PEFT, gguf or torch are not installed, unless ROUND_TRIPS=required.
"""
import array
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/tokenizers"))
try:
    import torch
    import transformers
    from peft import PeftModel
    import corpus
    import ggml
    import kinds
    from compare import encode, frame, unframe
except ImportError as error:
    print(f"SKIPPED  round trips: {error}; nothing was compared")
    sys.exit(1 if os.environ.get("ROUND_TRIPS") == "required" else 0)

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
RUN = ["batch_size=1", "max_length=24", "max_steps=2", "learning_rate=1e-2", "weight_decay=0", "checkpoint_freq=0",
       "precision.mode=fp32", "evaluation.every=0", "evaluation.batches=1", "evaluation.sample_tokens=0",
       "logging.progress=none", "logging.device_seconds=0", "logging.tensorboard=false", "tasks.0.name=text"]
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{{ eos_token }}\n{% endfor %}"
ADAPTED = {"gpt2": (["c_attn", "mlp.c_proj"], ["embedding", "*.ln_f.*"]),
           "nanochat": (["q_proj", "v_proj", "mlp"], ["embedding"]),
           "phi3": (["qkv_proj", "mlp"], ["embedding", "*model.norm.*"])}
# gemma2: its own scale of scores; exaone4: windows in five layers
NO_GGUF = {"gpt2", "gpt2-untied", "gemma2", "ministral", "mistral-window", "nanochat", "exaone4"}
LONG = {"phi3"}  # llama.cpp takes longrope's long factors, as its context is longer than the model's first one
TABLES = {"gemma3": 1e-2}  # llama.cpp's GELU is a table of f16 numbers
COUNTS = {}
FAILED = []


def count(what, good, detail=""):
    right, wrong = COUNTS.get(what, (0, 0))
    COUNTS[what] = (right + bool(good), wrong + (not good))
    if not good:
        FAILED.append(f"{what}: {detail}")
        print(f"  FAIL {what}: {detail}", flush=True)
    return good


class Ours:
    def __init__(self, build, work):
        self.build, self.work = build, work

    def trainer(self, *words):
        done = subprocess.run([self.build / "trainer", *map(str, words)], capture_output=True, text=True, cwd=self.work)
        return done.returncode, done.stderr + done.stdout

    def train(self, folder, out, text, *keys):
        shutil.rmtree(self.work / out, ignore_errors=True)
        (self.work / "run.yaml").write_text(f"tasks: [{{name: text, train: {text}}}]\n")
        return self.trainer("--config", "run.yaml", f"init_from={folder}", f"out_dir={out}", *RUN, *keys)

    def export(self, run, out, *options):
        path = self.work / out
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return self.trainer("export", "--checkpoint", run, "--output", out, *options)

    def logits(self, run, ids):
        (self.work / "ids.bin").write_bytes(array.array("i", ids).tobytes())
        done = subprocess.run([self.build / "tests/huggingface/logits", self.work / run, self.work / "ids.bin", "precision.mode=fp32"],
                              capture_output=True, check=True)
        return torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).view(len(ids), -1)

    def encode(self, tokenizer, texts):
        data = [text.encode() for text in texts]
        (self.work / "texts").write_bytes(frame(zip(data, data)))
        subprocess.run([self.build / "tests/tokenize", "encode", tokenizer, self.work / "texts", self.work / "ids"],
                       capture_output=True, check=True)
        return [None if item is None else list(array.array("i", item)) for item in unframe((self.work / "ids").read_bytes(), 4)]


def checkpoint(ours, run):
    folder = ours.work / run / "checkpoints"
    return folder / (folder / "latest").read_text().strip()


def logits_of(model, ids, dtype):
    with torch.no_grad():
        return model.to(dtype)(torch.tensor([ids])).logits[0].double()


def near(what, name, found, model, ids, more=2e-6):
    """As near to f64 as other arithmetic in f32 is: the bound is four times what torch's own f32 is off, and `more`."""
    single, exact = (logits_of(model, ids, dtype) for dtype in (torch.float32, torch.float64))
    bound = 4 * (single - exact).abs().max() + more
    off = (found.double()[:, :exact.shape[1]] - exact).abs().max()
    count(what, off <= bound, f"{name}: off by {off:.3g}, bound {bound:.3g}")


# ---- models


def prepare(source, folder):
    """The folder with a use that others do not have."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    path = folder / "tokenizer.json"
    file = json.loads(path.read_text())  # two merges less, and two special tokens
    del file["model"]["merges"][-2:]
    words = {number: word for word, number in file["model"]["vocab"].items()} | {270: "<pad>", 271: "<more>"}
    file["model"]["vocab"] = {words[number]: number for number in range(len(words))}
    file["added_tokens"] += [dict(file["added_tokens"][0], id=number, content=words[number]) for number in (270, 271)]
    path.write_text(json.dumps(file))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "model_max_length": 40, "padding_side": "left",
        "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<pad>", "extra_special_tokens": ["<more>"]}))
    (folder / "generation_config.json").write_text(json.dumps({
        "bos_token_id": 0, "eos_token_id": [0, 262], "pad_token_id": 270, "do_sample": True, "temperature": 0.6, "top_k": 20}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools " + TEMPLATE)


def use_of(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    generation = transformers.GenerationConfig.from_pretrained(folder).to_dict()
    named = set(json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text()))
    talk = [{"role": "user", "content": "the hand"}]
    return {
        "tokens": {key: token for key, token in tokenizer.special_tokens_map.items() if key in named},  # without a class's own
        "length": tokenizer.model_max_length, "side": tokenizer.padding_side,
        "template": tokenizer.apply_chat_template(talk, tokenize=False),
        "tools": tokenizer.apply_chat_template(talk, chat_template="tool_use", tokenize=False),
        "generation": {key: value for key, value in generation.items() if key != "transformers_version" and key[0] != "_"},
    }


def check_generation(ours, name, model, ids, tokenizer):
    """Where a text ends: both read it in the exported folder."""
    model.float()
    prompt = tokenizer.decode(ids[:6])
    given = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    made = model.generate(torch.tensor([given]), do_sample=False, max_new_tokens=24, pad_token_id=0)[0].tolist()[len(given):]
    code, text = ours.trainer("generate", "--checkpoint", "exported", "--prompt", prompt, "--tokens", 24, "--temperature", 0,
                              "--json", "precision.mode=fp32")
    found = json.loads(text.splitlines()[-1])["samples"][0]["tokens"] if code == 0 else text
    ends = set(model.generation_config.eos_token_id)
    while made and made[-1] in ends:  # ours leaves it out
        made.pop()
    count("greedy texts and their ends", found[:len(made)] == made and (code == 0) and not set(found) & ends,
          f"{name}: {found} here, {made} there")


def check_gguf(ours, name, run, model, ids, source, options=()):
    code, text = ours.export(run, "model.gguf", "--format", "gguf", *options)
    if name in NO_GGUF:
        count("GGUF refused by name", code == 1 and "use --format hf" in text, f"{name}: {text}")
        return
    if not count("GGUF written", code == 0, f"{name}: {text}"):
        return
    keys = ggml.read(ours.work / "model.gguf")
    said = [keys.get("tokenizer." + key) for key in ("chat_template", "chat_template.tool_use", "ggml.eos_token_id",
                                                    "ggml.eot_token_id", "ggml.padding_token_id")]
    wanted = [TEMPLATE, "tools " + TEMPLATE, 0, 262, source["tokens"]["pad_token"]]
    wanted[4] = keys["tokenizer.ggml.tokens"].index(wanted[4])
    count("GGUF's tokens and templates", said == wanted, f"{name}: {said}")
    count("GGUF's sampling defaults", abs(keys["general.sampling.temp"] - 0.6) < 1e-6 and keys["general.sampling.top_k"] == 20, name)
    program = ggml.program(ours.work / "model.gguf", True)
    if program and name not in LONG:
        near("logits of llama.cpp", name, torch.tensor(program.logits(ids)), model, ids, TABLES.get(name, 2e-6))


def check_model(ours, source, ids, text):
    name, folder = source.name, ours.work / "folder"
    prepare(source, folder)
    use = use_of(folder)
    code, said = ours.export(folder, "copied")
    count("folder to folder", code == 0 and use_of(ours.work / "copied") == use, f"{name}: {said}")
    code, said = ours.train(folder, "run", text)
    if not count("runs", code == 0, f"{name}: {said}"):
        return
    shutil.rmtree(ours.work / "gone", ignore_errors=True)
    folder.rename(ours.work / "gone")  # nothing is read from it again
    code, said = ours.export("run", "exported")
    found = use_of(ours.work / "exported") if code == 0 else said
    count("what a run's folder says of its use", found == use, f"{name}: {found} for {use}")
    model = transformers.AutoModelForCausalLM.from_pretrained(ours.work / "exported", dtype=torch.float32)
    near("logits of transformers", name, ours.logits("run", ids), model, ids)
    check_generation(ours, name, model, ids, transformers.AutoTokenizer.from_pretrained(ours.work / "exported"))
    check_gguf(ours, name, "run", model, ids, use)
    (ours.work / "gone").rename(folder)
    check_adapters(ours, name, folder, ids, text, use)


def check_adapters(ours, name, folder, ids, text, use):
    targets, trained = ADAPTED.get(name.split("-")[0], (["q_proj", "v_proj", "mlp"], ["embedding", "*model.norm.*"]))
    code, said = ours.train(folder, "adapted", text, "adapter.kind=lora", "adapter.rank=2",
                            f"adapter.targets={json.dumps(targets)}", f"adapter.also_train={json.dumps(trained)}")
    if not count("runs with adapters", code == 0, f"{name}: {said}"):
        return
    code, said = ours.export("adapted", "merged", "--merge")
    merged = transformers.AutoModelForCausalLM.from_pretrained(ours.work / "merged", dtype=torch.float32) if code == 0 else None
    if not count("merged", merged is not None and use_of(ours.work / "merged") == use, f"{name}: {said}"):
        return
    near("logits of merged models", name, ours.logits("adapted", ids), merged, ids)
    check_gguf(ours, name, "adapted", merged, ids, use, ["--merge"])
    code, said = ours.export("adapted", "peft", "--format", "peft", "--base", folder)
    if not count("adapters written", code == 0, f"{name}: {said}"):
        return
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, ours.work / "peft")
    near("logits of PEFT", name, logits_of(adapted, ids, torch.float32), merged, ids)
    code, said = ours.train(folder, "again", text, f"adapter.init_from={ours.work / 'peft'}", "learning_rate=0")
    code, said = ours.export("again", "again-merged", "--merge") if code == 0 else (code, said)
    same = code == 0 and (ours.work / "again-merged/model.safetensors").read_bytes() == (ours.work / "merged/model.safetensors").read_bytes()
    count("adapters read again", same, f"{name}: {said}")


# ---- tokenizers


def more(sample):
    """Further ones that a GGUF can say."""
    pre = kinds.pre_tokenizers
    plain = pre.ByteLevel(add_prefix_space=False)
    yield "smaug", kinds.byte_level(sample, kinds.split(kinds.LLAMA3))
    yield "smollm", kinds.byte_level(sample, pre.Sequence([pre.Digits(individual_digits=True), plain]))
    tokenizer = kinds.byte_level(sample, plain, size=1000)
    tokenizer.add_special_tokens([kinds.AddedToken(text, normalized=False) for text in ("<|a|>", "<|ab|>", "[INST]", "\u2581")])
    tokenizer.add_tokens([kinds.AddedToken(text, normalized=False) for text in ("Xyz", "isn't", "  ", "    ", "\u65e5\u672c")])
    yield "added-plainly", tokenizer


def texts_for(tokenizer, number, seed):
    """Texts with this tokenizer's own tokens among the words."""
    draw = random.Random(seed)
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values()] or ["<s>"]
    texts = corpus.mixes(seed, number)[:number]
    for at in range(0, number, 2):
        words = texts[at].split(" ")
        for _ in range(draw.randrange(1, 4)):
            words.insert(draw.randrange(len(words) + 1), draw.choice(special))
        texts[at] = draw.choice([" ", ""]).join(words)
    return texts


def is_settled(text):
    """Whether Unicode has had all of its characters for long: llama.cpp's tables are older than Unicode 16."""
    return all(unicodedata.category(character) != "Cn" for character in text)


def make_model(folder, tokenizer):
    shutil.rmtree(folder, ignore_errors=True)
    config = transformers.LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=16, intermediate_size=16,
                                      num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64,
                                      bos_token_id=0, eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def differing(texts, one, other):
    """Texts of different ids; one that ours refuses (a character without a token) is no text of a run."""
    return [text for text, a, b in zip(texts, one, other) if a is not None and list(a) != list(b)]


def check_tokenizer(ours, name, tokenizer, number, text):
    folder = ours.work / "folder"
    make_model(folder, tokenizer)
    code, said = ours.train(folder, "run", text)
    if not count("runs by tokenizer", code == 0, f"{name}: {said[-300:]}"):
        return
    shutil.rmtree(folder)
    code, said = ours.export("run", "exported")
    if not count("tokenizers exported", code == 0, f"{name}: {said[-300:]}"):
        return
    theirs = transformers.AutoTokenizer.from_pretrained(ours.work / "exported").backend_tokenizer
    texts, found = encode(theirs, texts_for(tokenizer, number, 7))  # without those on which the library panics
    own = ours.encode(checkpoint(ours, "run") / "tokenizer.json", texts)
    wrong = differing(texts, own, found)
    COUNTS["texts"] = (COUNTS.get("texts", (0, 0))[0] + len(texts) - len(wrong), COUNTS.get("texts", (0, 0))[1] + len(wrong))
    count("ids of transformers", not wrong, f"{name}: {len(wrong)} texts, {wrong[:1]!r:.200}")
    code, said = ours.export("run", "model.gguf", "--format", "gguf")
    if code != 0:
        print(f"  {name}: no GGUF: {said.strip().splitlines()[-1][:150]}")
        count("GGUF of a tokenizer refused by name", code == 1 and ("GGUF" in said or "ggml" in said), f"{name}: {said[-300:]}")
        return
    composed = [t for t in texts if name not in ("qwen2",) or theirs.normalizer.normalize_str(t) == t]  # ggml leaves NFC out
    own = ours.encode(checkpoint(ours, "run") / "tokenizer.json", composed)
    wrong = differing(composed, own, ggml.Reader(ours.work / "model.gguf").encode_all(composed))
    count("ids by a GGUF's tables", not wrong, f"{name}: {len(wrong)} texts, {wrong[:1]!r:.200}")
    program = ggml.program(ours.work / "model.gguf", False)
    if program:
        some = [t for t in composed if "\0" not in t and len(t) < 4000 and is_settled(t)][:1000]
        wrong = differing(some, ours.encode(checkpoint(ours, "run") / "tokenizer.json", some), map(program.encode, some))
        count("ids of llama.cpp", not wrong, f"{name}: {len(wrong)} texts, {wrong[:1]!r:.200}")


def main():
    build, work = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    only = set(sys.argv[4:])
    models, ours = ROOT / "tests/huggingface/models", Ours(build, work)
    work.mkdir(parents=True, exist_ok=True)
    ids = array.array("i", (models / "tokens.bin").read_bytes()).tolist()
    plain = work / "text.txt"
    plain.write_text("".join(f"line {i} of the text, and another hour: {i * 7919 % 1000}\n" for i in range(200)))
    for source in sorted(path for path in models.iterdir() if path.is_dir() and (not only or path.name in only)):
        print(source.name, flush=True)
        check_model(ours, source, ids, plain)
    words = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "ARCHITECTURE.md")]
    sample = words + [text.replace("\0", "") for text in corpus.mixes(3, 2000)]
    for name, tokenizer in itertools.chain(kinds.build(sample), more(sample)):
        if only and name not in only:
            continue
        print(name, flush=True)
        check_tokenizer(ours, name, tokenizer, number, plain)
    for what, (right, wrong) in COUNTS.items():
        print(f"{what:44} {right:7} right {wrong:4} wrong")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
