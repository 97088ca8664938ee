#!/bin/bash
# SPDX-License-Identifier: MIT
# values.sh: every key of the configuration with values at and beyond its bounds, and with what is no value of its type;
# and pairs of sizes at their extremes.  Each has to be planned, or refused by a message and exit code 1 or 2, in at most
# 10 seconds and 2 GiB of address space.
#
#   BUILD=build    what to try; a sanitizer's build has ten times as long and all memory, and its reports count as crashes
#   DEVICE=ref     device of the base configuration
#   JOBS           at a time; as many as there are cores
#   KEYS='^model'  only keys that match this pattern, and no pairs
#   EVERY=1        only every EVERY-th case: for a short look
#
# The keys are those of `trainer reference`.  A value stands in a file, and most once more on the command line.
set -u
export LC_ALL=C
# What became of cases: each is FILE.yaml, and the override in FILE.override if that is there.
if [ "${1:-}" = --some ]; then
    shift
    ulimit -v "$KIBIBYTES_MOST"
    for file; do
        override=()
        [ -f "$file.override" ] && override=("$(<"$file.override")")
        timeout -s KILL "$SECONDS_MOST" "$trainer" plan --no-training --config "$file.yaml" "${override[@]}" >"$file.out" 2>&1 </dev/null
        code=$? said=$(tr -d '\0' <"$file.out")
        case $code in
        0) echo "planned" ;;
        124 | 137) echo "hang $file" ;;
        1 | 2) # what is refused says why
            [[ $'\n'$said == *$'\nerror: '?* ]] && echo "refused" || echo "crash $file exit code $code without a message"
            ;;
        *) echo "crash $file exit code $code" ;;
        esac
    done
    exit 0
fi

cd "$(dirname "$0")/../.." || exit 1
trainer=$(realpath "${BUILD:-build}/trainer") || exit 1
KIBIBYTES_MOST=$((2 << 20)) SECONDS_MOST=10
grep -q __asan_init "$trainer" && KIBIBYTES_MOST=unlimited SECONDS_MOST=100
# A separate exit code for reports.
export trainer KIBIBYTES_MOST SECONDS_MOST OMP_NUM_THREADS=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99 ASAN_OPTIONS=exitcode=99 LSAN_OPTIONS=exitcode=99
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# "section;key;least;most", from the reference's tables; section "" is the top level.
"$trainer" reference | awk -F' *[|] *' -v OFS=';' '
    /^## Environment/ { exit }
    /^## / { section = $0; gsub(/^## `?|`?$/, "", section); if (section == "Top level") section = "" }
    /^\| `/ {
        key = $2; gsub(/`/, "", key)
        least = ""; most = ""
        if ($5 ~ / to /) { split($5, bound, " to "); least = bound[1]; most = bound[2] }
        else if ($5 ~ / or more/) { least = $5; sub(/ or more/, "", least); most = "9000000000000000" }
        print section, key, least, most
    }' >"$scratch/keys"

# The configuration that a key of is changed: a run of the smallest size.
cat >"$scratch/base" <<BASE
;device;${DEVICE:-ref}
;batch_size;2
;max_length;16
;max_steps;4
model;layers;2
model;heads;2
model;width;16
tasks;train;"synthetic:addition"
tasks;synthetic_tokens;4000
mer;buffer_size;8
BASE

# As YAML.  Those of the first part stand on the command line, too.
cat >"$scratch/values" <<'VALUES'
0
1
-1
2147483647
2147483648
9223372036854775807
9223372036854775808
-9223372036854775808
1e308
1e-320
1e999
nan
.inf
""
null
true
[1, 2]
{a: 1}
"a\nb\tc\e\0"
%s%n%s%n
--
-0
3
4294967296
0x10
1_000
" "
~
[]
[[[1], {a: 2}]]
../../../etc/passwd
/dev/zero
*alias
&anchor 1
!!int 5
- 1
VALUES
{
    printf '"%s"\n' "$(head -c 5000 /dev/zero | tr '\0' x)"
    head -c 400 /dev/zero | tr '\0' '['
    printf '\na\001\033b\n\303\251\n\377\n'
} >>"$scratch/values"

# Sizes that are multiplied with each other.
sizes='batch_size gradient_accumulation_steps max_length model.layers model.heads model.width model.mlp_width
    model.vocabulary memory.head_chunk memory.micro_batch replay.buffer_size mer.group_steps mer.groups
    agem.reference_batches ewc.fisher_samples tasks.synthetic_tokens threads data.prefetch'

# Writes the cases' files, and prints their names.
awk -v scratch="$scratch" -v pattern="${KEYS:-}" -v every="${EVERY:-1}" -v sizes="$sizes" '
    # The base configuration with `changes`, "section;key" -> value, instead of its values.
    function write(changes, override,    place, i, s, part, value, order, count, sections, section_count, seen, indent, name, own) {
        if (++cases % every) { return }
        name = scratch "/" cases
        count = section_count = 0
        for (i = 1; i <= base_count; i++) { order[++count] = base_place[i]; value[base_place[i]] = base_value[i] }
        for (place in changes) { if (!(place in value)) order[++count] = place; value[place] = changes[place] }
        for (i = 1; i <= count; i++) {
            own = order[i]; sub(/;.*/, "", own)
            if (!(own in seen)) { sections[++section_count] = own; seen[own] = 1 }
        }
        for (s = 1; s <= section_count; s++) {
            indent = sections[s] == "" ? "" : sections[s] == "tasks" ? "  - " : "  "
            if (sections[s] != "") print sections[s] ":" > (name ".yaml")
            for (i = 1; i <= count; i++) {
                split(order[i], part, ";")
                if (part[1] != sections[s]) continue
                print indent part[2] ": " value[order[i]] > (name ".yaml")
                if (sections[s] == "tasks") indent = "    "
            }
        }
        close(name ".yaml")
        if (override != "") { print override > (name ".override"); close(name ".override") }
        print name
    }
    function try_value(section, key, value, twice,    changes) {
        changes[section ";" key] = value
        write(changes, "")
        split("", changes)
        if (twice) write(changes, (section == "" ? "" : section == "tasks" ? "tasks.0." : section ".") key "=" value)
    }
    # "model.width" -> "model;width", "threads" -> ";threads"
    function place_of(name) { return sub(/[.]/, ";", name) ? name : ";" name }
    function try_pairs(    count, list, i, j, p, s, changes, a, b, strategies) {
        count = split(sizes, list, /[ \n]+/)
        split("none;[ewc, mer];a-gem", strategies, ";")
        for (i = 1; i <= count; i++)
            for (j = i + 1; j <= count; j++)
                for (s = 1; s <= 3; s++)
                    for (p = 1; p <= 2; p++) {
                        split("", changes)
                        a = place_of(list[i]); b = place_of(list[j])
                        changes["model;family"] = "llama"; changes["model;head_dim"] = 2; changes["continual;strategy"] = strategies[s]
                        changes[a] = p == 1 ? most[a] : 1000
                        changes[b] = p == 1 ? most[b] : sprintf("%.0f", most[b] / 2)
                        write(changes, "")
                    }
    }
    FILENAME ~ /base$/ { base_place[++base_count] = $1 ";" $2; base_value[base_count] = $3; next }
    FILENAME ~ /values$/ { values[++value_count] = $0; next }
    { key_section[++key_count] = $1; key_name[key_count] = $2; key_least[key_count] = $3; key_most[key_count] = $4; most[$1 ";" $2] = $4 }
    END {
        for (k = 1; k <= key_count; k++) {
            section = key_section[k]; key = key_name[k]
            if (pattern != "" && ((section == "" ? "" : section ".") key) !~ pattern) continue
            for (v = 1; v <= value_count; v++) {
                if (values[v] == "--") { twice = 0; continue }
                if (v == 1) twice = 1
                try_value(section, key, values[v], twice)
            }
            if (key_least[k] == "") continue
            try_value(section, key, key_least[k], 1)
            try_value(section, key, key_most[k], 1)
            try_value(section, key, sprintf("%.17g", key_most[k] + 1), 1)
            try_value(section, key, sprintf("%.17g", key_least[k] - 1), 1)
        }
        if (pattern == "") try_pairs()
    }' FS=';' "$scratch/base" FS='\n' "$scratch/values" FS=';' "$scratch/keys" >"$scratch/cases" || exit 1

xargs -n 64 -P "${JOBS:-$(nproc)}" bash tests/faults/values.sh --some <"$scratch/cases" >"$scratch/results" 2>/dev/null

count() { grep -c "^$1" "$scratch/results"; }
grep -E '^(crash|hang)' "$scratch/results" | head -n 20 | while read -r what file rest; do
    echo "$what: $rest"
    { cat "$file.yaml" "$file.override" "$file.out"; } 2>/dev/null | cut -c1-200 | head -n 60 | sed 's/^/    /'
done
tried=$(wc -l <"$scratch/results") cases=$(wc -l <"$scratch/cases")
echo "values: $tried tried, $(count refused) refused, $(count planned) planned, $(count crash) crashes, $(count hang) hangs" \
    "($(wc -l <"$scratch/keys") keys, $SECONDS s)"
[ "$tried" = "$cases" ] && [ "$(count planned)" -gt 0 ] && [ "$(count crash)" = 0 ] && [ "$(count hang)" = 0 ]
