#!/bin/bash
# SPDX-License-Identifier: MIT
# check_vectors.sh FOLDER: whether AVX2's kernels work on whole registers.  FOLDER has the objects of kernels/cpu/isa.
#
# Their sources speak of sixteen numbers, two registers there.  Where gcc cannot split an operation in two it takes the
# numbers apart and puts them together again, one by one: an attention or an update took two to three times as long, and
# no result was wrong.  AVX-512's objects, of the same sources, have what is left of such instructions by right; a few
# more are allowed.
set -eu
[ $# = 1 ] || { sed -n '3,4s/^# \?//p' "$0" >&2; exit 2; }
more=8 failed=0 files=0
# Loops over codes are left to the compiler, as their rule is (kernels/ops/code_rule.h).
elsewhere=quantize

# lanes OBJECT: its instructions that compare, insert or extract single numbers.
lanes() {
    objdump -d --no-show-raw-insn "$1" |
        grep -cE '[[:space:]](vu?comiss|vpinsr[bwdq]|vpextr[bwdq]|vinsertps|vextractps)[[:space:]]' || true
}

for narrow in "$1"/*.avx2.o; do
    name=$(basename "$narrow" .avx2.o)
    wide=$1/$name.avx512.o
    [ "$name" != $elsewhere ] || continue
    [ -e "$narrow" ] && [ -e "$wide" ] || { echo "check_vectors.sh: no $narrow with $wide: run make" >&2; exit 1; }
    files=$((files + 1))
    found=$(lanes "$narrow") usual=$(lanes "$wide")
    if [ "$found" -gt $((usual + more)) ]; then
        echo "kernels/cpu/isa/$name.c: for AVX2 $found instructions on single numbers, for AVX-512 $usual:" \
            "compare, convert and carry through loops by parts (kernels/cpu/simd_part.h)"
        failed=1
    fi
done
[ $failed = 0 ] && echo "vectors: $files files, on AVX2 no more instructions on single numbers than on AVX-512 and $more"
exit $failed
