#!/bin/bash
# SPDX-License-Identifier: MIT
# The rule of rooms: a source includes headers of its room and of rooms further down the list in ARCHITECTURE.md
# (between `rooms` and `end of rooms`), and each outside library is used in one file.
# No files of a room call each other in a circle (check_circles.py).
# check_deps.sh --report prints the rooms with their sizes.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0

complain() {
    echo "$1"
    status=1
}

rooms=$(sed -n '/<!-- rooms -->/,/<!-- end of rooms -->/p' ARCHITECTURE.md | sed -nE 's/^    ([a-z][a-z0-9_\/]*) .*/\1/p')
[ "$(wc -w <<<"$rooms")" -gt 20 ] || complain "ARCHITECTURE.md has lost its list of rooms"
sources=$(find kernels optim runtime \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | sort)

# A file's room is the longest name in the list that it lies under.
law='
    function room_of(path, length_of, room) {
        room = path
        while (sub(/\/[^\/]*$/, "", room))
            if (room in place)
                return room
        return ""
    }
    BEGIN {
        count = split(rooms, names, /[ \n]+/)
        for (i = 1; i <= count; i++)
            place[names[i]] = i
    }
'
if [ "${1-}" = --report ]; then
    # shellcheck disable=SC2086
    wc -l $sources | grep -v ' total$' | awk -v rooms="$rooms" "$law"'
        { files[room_of($2)]++; lines[room_of($2)] += $1 }
        END { for (i = 1; i <= count; i++) printf "%-28s %3d files %6d lines\n", names[i], files[names[i]], lines[names[i]] }'
    exit 0
fi
# shellcheck disable=SC2086
awk -v rooms="$rooms" "$law"'
    FNR == 1 {
        own = room_of(FILENAME)
        if (own == "") { print FILENAME ": no room of ARCHITECTURE.md holds it"; bad = 1 }
    }
    own != "" && match($0, /^[ \t]*#[ \t]*include[ \t]*"[^"]+"/) {
        split($0, part, "\"")
        other = room_of(part[2])
        if (other == "") {
            print FILENAME ":" FNR ": includes " part[2] ", which is in no room: write the path from the top, and let nothing here include tests, bench or examples"
            bad = 1
        } else if (place[other] < place[own]) {
            print FILENAME ":" FNR ": includes " part[2] ", but " own " stands below " other ": no arrow points up"
            bad = 1
        }
    }
    END { exit bad }' $sources || status=1

# forbid FOLDER PATTERN WHY: no file of the folder may include a header that matches.
forbid() {
    local hits
    hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[\"<]($2)" "$1" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.cpp' 2>/dev/null)
    [ -z "$hits" ] || complain "$3:
$hits"
}
forbid kernels/ref 'kernels/(cpu|cuda|emu)/' "backends never include each other"
forbid kernels/cpu 'kernels/(ref|cuda|emu)/' "backends never include each other"
forbid kernels/cuda 'kernels/(ref|cpu)/' "backends never include each other"
forbid kernels/emu 'kernels/(ref|cpu|cuda)/' "the emulator knows CUDA's interface, not the kernels that use it"
for folder in optim runtime; do
    forbid "$folder" 'kernels/(ref|cpu|cuda|emu)/' "backends are seen through kernels/ops/backend.h only"
done
for folder in kernels/base kernels/ops kernels/checks kernels/tuning kernels/ref kernels/cpu optim runtime; do
    forbid "$folder" 'cuda|nccl' "CUDA headers appear only under kernels/cuda"
done
# one_file PATTERN: an outside library is used in one file.
one_file() {
    local files
    files=$(grep -rlE "#[[:space:]]*include[[:space:]]*<($1)" kernels optim runtime --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.cpp' | wc -l)
    [ "$files" -le 1 ] || complain "$1 is included by $files files, at most one may:
$(grep -rlE "#[[:space:]]*include[[:space:]]*<($1)" kernels optim runtime)"
}
one_file 'yaml\.h'
one_file 'cjson/cJSON\.h|cJSON\.h'
one_file 'pcre2\.h'
one_file 'utf8proc\.h'
one_file 'zlib\.h'
one_file 'zstd\.h'
one_file 'snappy-c\.h'
one_file 'sodium\.h'
one_file 'microhttpd\.h'
# Opened at run time: no header shows it, but the functions' names do.
# names_in PATTERN FILE LIBRARY: only FILE names the library's functions.
names_in() {
    local named
    named=$(grep -rlE "$1" kernels optim runtime bench --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' | sort | tr '\n' ' ')
    [ "$named" = "$2 " ] || complain "$3's functions are named in: $named; $2 alone may"
}
# Every environment variable that is read is in the reference's table.
for variable in $(grep -rhoE '"HALFSTEP_[A-Z_]+"' kernels optim runtime --include='*.c' --include='*.cu' --include='*.cpp' | tr -d '"' | sort -u); do
    grep -q "X($variable," runtime/config/environment.h ||
        complain "$variable is not in runtime/config/environment.h, and is read in: $(grep -rl "\"$variable\"" kernels optim runtime | tr '\n' ' ')"
done
names_in '\bnvml[A-Z]' runtime/record/nvml.c NVML
names_in '\bnccl[A-Z]' kernels/cuda/comm/library.cu NCCL
names_in '\bdnnl_' bench/onednn.h oneDNN
names_in '\b(cblas|openblas_set)_' bench/openblas.h OpenBLAS
names_in '\bMPI_[A-Z][a-z]+[a-z_]*\(' kernels/mpi/comm_mpi.c MPI
# Circles of files within a room.
python3 tests/check_circles.py || status=1
exit $status
