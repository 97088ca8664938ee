#!/bin/bash
# SPDX-License-Identifier: MIT
# scaling.sh [OPTION...] TEXT [BUILD]: how a CPU's step time grows with the model, from 0.1 to 124 million parameters, and
# what more threads bring: tokens a second and milliseconds a step on 1, 2, 4 ... threads in bf16 and fp32, and the share
# of a step of the smallest model that is spent in no operation.
#
# A Markdown page goes to the standard output, with --plot FILE.svg the chart to that file.  BUILD (build) holds the
# trainer and bench/profile.  OPTIONs are those of bench/scaling/measure.py: --rounds N --seconds S --threads N,...
# --modes bf16,fp32 --sizes N --json FILE --plot FILE.svg
set -eu
options=()
while [ $# -gt 0 ]; do
    case $1 in
    --*=*) options+=("$1") && shift ;;
    --*) options+=("$1" "${2:-}") && shift "$(($# > 1 ? 2 : 1))" ;;
    *) break ;;
    esac
done
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '3,9s/^# \?//p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "${2:-$here/../build}")
[ -r "$1" ] || { echo "scaling.sh: $1 cannot be read" >&2; exit 1; }
for program in trainer bench/profile; do
    [ -x "$build/$program" ] || { echo "scaling.sh: $build/$program is not there: run make and make bench-programs" >&2; exit 1; }
done
exec python3 -B "$here/scaling/measure.py" --build "$build" "${options[@]}" "$1"
