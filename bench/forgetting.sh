#!/bin/bash
# SPDX-License-Identifier: MIT
# forgetting.sh [--config FILE] [--out FOLDER] [--plot FILE.svg] [STRATEGY...]: what each strategy forgets of one stream.
#
# Trains the configuration (configs/cl.yaml) once with each strategy (none er mer; two at once: ewc,mer), in
# FOLDER/STRATEGY (runs/forgetting), then prints a Markdown table and writes the chart.  A strategy that has trained there
# already is not trained again.  BUILD (build) says where the trainer is.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
config=$root/configs/cl.yaml out=runs/forgetting plot=
while [ $# -gt 0 ]; do
    case $1 in
    --config | --out | --plot)
        [ $# -gt 1 ] || { echo "forgetting.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --config) config=$2 ;;
        --out) out=$2 ;;
        --plot) plot=$2 ;;
        esac
        shift 2
        ;;
    -*)
        sed -n '3,7s/^# \?//p' "$0" >&2
        exit 2
        ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || set -- none er mer
trainer=$(realpath "${BUILD:-$root/build}/trainer")
[ -x "$trainer" ] || { echo "forgetting.sh: $trainer is not there: run make" >&2; exit 1; }
folders=()
for strategy in "$@"; do
    folder=$out/${strategy//,/+}
    mkdir -p "$folder"
    "$trainer" --config "$config" "continual.strategy=[$strategy]" out_dir="$folder" logging.progress=none >"$folder/output.txt" 2>&1 ||
        { tail -n 5 "$folder/output.txt" >&2; exit 1; }
    folders+=("$folder")
done
exec python3 -B "$root/bench/forgetting/plot.py" ${plot:+--plot "$plot"} "${folders[@]}"
