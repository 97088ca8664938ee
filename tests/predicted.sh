#!/bin/bash
# SPDX-License-Identifier: MIT
# predicted.sh: kernels/cuda/PREDICTED.md on the standard output: what the model of the GPU says of kernels
# (trainer reference --predicted), then of whole optimizer steps (trainer plan --step).  Nothing here was measured.
set -euo pipefail
cd "$(dirname "$0")/.."
trainer=${BUILD:-build}/trainer

# plan CARD SETTING...: the tables of a step.
plan() {
    local card=$1
    shift
    "$trainer" plan --card "$card" --step device=cuda precision.mode=bf16 gradient_accumulation_steps=1 "$@" 2>/dev/null
}

# rows NAME CARDS SETTING...: a line for each card.
rows() {
    local name=$1 cards=$2 card
    shift 2
    while IFS= read -r card; do
        plan "$card" "$@" | awk -F ' *[|] *' -v name="$name" -v card="$card" '
            $3 == "**all**" { part[$2] = $7 }
            /PREDICTED, NOT MEASURED/ {
                match($0, /[0-9]+ tokens a step/); tokens = substr($0, RSTART) + 0
                match($0, /[0-9]+ launches/); launches = substr($0, RSTART) + 0
                match($0, /[0-9.]+ GB/); gigabytes = substr($0, RSTART) + 0
                match($0, /[0-9.]+ ms/); ms = substr($0, RSTART) + 0
                match($0, /[*][0-9]+ tokens/); rate = substr($0, RSTART + 1) + 0
                share = match($0, /[0-9.]+% of/) ? substr($0, RSTART) + 0 : 0
            }
            END {
                printf "| %s | %s | %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | **%.2f** | %d | %.0f%% |\n", name, card,
                       tokens, launches, gigabytes, part["forward"] + part["recompute"], part["head and loss"],
                       part["backward"], part["update"], ms, rate, share
            }'
    done <<<"$cards"
}

all=$'H200 SXM\nH100 SXM\nA100 80GB\nRTX 4090\nRTX 3060'
large=$'H200 SXM\nH100 SXM\nA100 80GB'
small=$'RTX 4090\nRTX 3060'
gpt2=(--config configs/gpt2-124m.yaml)
llama=(--config configs/llama-small.yaml model.layers=22 model.heads=32 model.kv_heads=4 model.width=2048
    model.mlp_width=5632 model.vocabulary=32000 model.tie_head=false max_length=2048)
frugal=(precision.master_weights=false precision.gradients=compute optimizer.kind=adamw8bit memory.recompute=block)
characters=(model.vocabulary=65)

"$trainer" reference --predicted
cat <<'TEXT'

# Predicted optimizer steps

**PREDICTED, NOT MEASURED.** `trainer plan --config FILE --card NAME --step` walks every launch of a step without running
one (the GPU kernels' own host code lays them out) and adds up the models above, and bytes over nine tenths of the
bandwidth for everything else; [planner_step.c](../../runtime/study/planner_step.c) states it. `--launches` lists them one
by one. Forward has what is recomputed, and the head its loss, forward and backward. The last column is products and
attention, counted once, against the datasheet's peak.

TEXT
echo "| recipe, bf16 | GPU | tokens | launches | GB | forward ms | head ms | backward ms | update ms | step ms | tokens/s | of the peak |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
rows "GPT-2 124M, 32 x 1024" "$large" "${gpt2[@]}" batch_size=32
rows "GPT-2 124M, 8 x 1024" "$small" "${gpt2[@]}" batch_size=8
rows "Llama 1.1B, 8 x 2048" "$large" "${llama[@]}" batch_size=8
rows "Llama 1.1B, 2 x 2048, no masters, 8-bit AdamW, blocks recomputed" "$small" "${llama[@]}" "${frugal[@]}" batch_size=2
rows "12 GB scenario (cl-12gb.yaml), 8 x 2048" "$small" --config configs/cl-12gb.yaml
rows "Shakespeare, small" "$all" --config configs/shakespeare-small.yaml "${characters[@]}"
rows "Shakespeare, full" "$all" --config configs/shakespeare-full.yaml "${characters[@]}"

echo
echo "## GPT-2 124M, 32 x 1024, H200 (predicted)"
echo
plan "H200 SXM" "${gpt2[@]}" batch_size=32
echo
echo "## Shakespeare, small, H200 (predicted)"
echo
plan "H200 SXM" --config configs/shakespeare-small.yaml "${characters[@]}"
cat <<'TEXT'

## What would prove it wrong

Each line names a figure of `bench/gpu.sh` (in brackets its phase), and the finding after which the model must change.

- Products (`products`): the chosen kernel of a product takes more than 1.25 or less than 0.8 of its predicted time, or
  another kernel of its row is faster by more than a tenth. Epilogues are the least sure part: compare a product with
  GELU's gradient or a residual with the plain one of the same size.
- FP8 (`fp8`): the same factors; the decoded product faster than the chosen kernel by more than a tenth; own / cuBLASLt
  below 0.8 where sums are promoted, then a step waits longer for its part than the other consumer's products last.
- Joint tiles (`tuning`, `selftest --tune`): 2304 x 768 x 32768 by `wgmma-256x256-joint` not faster than in 7 slices; then
  a turn costs more than 2,500 clocks beside its stores, or tiles that deal k out among clusters find too little in L2.
- Attention (`attention`): more than 1.3 or less than 0.75 of the predicted time at either head dimension.
- What only moves memory (`bandwidth`, `operations`): below 0.8 of the datasheet's bandwidth at sizes beyond L2; the model
  has 0.9 for all of them.
- Launches (`trace`, `gpt2` with `kernels.cuda_graph` true and false): a recorded step of the small Shakespeare recipe takes
  more than 1.5 times the predicted time. Then a dependent launch costs more than the 3,000 clocks that the model has.
- The clock (`gpt2`, beside the power that the run logs): a long step slower than the sum of its kernels timed one by one.
  The model knows no power limit.
TEXT
