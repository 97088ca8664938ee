#!/bin/bash
# SPDX-License-Identifier: MIT
# values.sh: every key of the configuration with values at and beyond its bounds, and with what is no value of its type;
# and pairs of keys of sizes at their extremes.  Each has to be planned, or refused by a message and exit code 1 or 2, in
# at most 10 seconds and 2 GiB of address space.
#
#   BUILD=build    what to try; a sanitizer's build runs without the limit of memory, and its reports count as crashes
#   DEVICE=ref     device of the base configuration
#   JOBS           at a time; as many as there are cores
#   KEYS='model.'  only keys that match this pattern
#
# The keys are those of `trainer reference`.  A value stands in a file, and once more on the command line.
set -u
cd "$(dirname "$0")/../.." || exit 1
trainer=$(realpath "${BUILD:-build}/trainer") || exit 1
DEVICE=${DEVICE:-ref} JOBS=${JOBS:-$(nproc)} KEYS=${KEYS:-.}
SECONDS_MOST=10 KIBIBYTES_MOST=$((2 << 20))
grep -q __asan_init "$trainer" && KIBIBYTES_MOST=unlimited
export trainer SECONDS_MOST KIBIBYTES_MOST
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 ASAN_OPTIONS=detect_leaks=1 OMP_NUM_THREADS=1

# One case, FILE [OVERRIDE]: prints "planned", "refused", "hang ..." or "crash ...".
if [ "${1:-}" = --one ]; then
    shift
    file=$1
    shift
    ulimit -v "$KIBIBYTES_MOST"
    timeout -s KILL "$SECONDS_MOST" "$trainer" plan --config "$file" "$@" >"$file.out" 2>&1
    code=$?
    # What is refused says why, in a line that begins with the word.
    if grep -aqE 'Sanitizer|runtime error:|Assertion' "$file.out"; then
        echo "crash $file $*: $(grep -aE -m1 'Sanitizer|runtime error:|Assertion' "$file.out")"
    elif [ $code = 137 ] || [ $code = 124 ]; then
        echo "hang $file $*"
    elif [ $code = 0 ]; then
        echo planned
    elif [ $code -le 2 ] && grep -aq '^error: .' "$file.out"; then
        echo refused
    else
        echo "crash $file $*: exit code $code, $(tail -n 1 "$file.out" | head -c 200)"
    fi
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# "section;key;type;least;most", from the reference's tables; section "" is the top level.
"$trainer" reference | awk -F' *[|] *' -v OFS=';' '
    /^## Environment/ { exit }
    /^## / { section = $0; gsub(/^## `?|`?$/, "", section); if (section == "Top level") section = "" }
    /^\| `/ {
        key = $2; gsub(/`/, "", key)
        least = ""; most = ""
        if ($5 ~ / to /) { split($5, bound, " to "); least = bound[1]; most = bound[2] }
        else if ($5 ~ / or more/) { least = $5; sub(/ or more/, "", least); most = "9000000000000000" }
        print section, key, $3, least, most
    }' >"$scratch/keys"

# The configuration that one key of is changed: a run of the smallest size.
cat >"$scratch/base" <<BASE
	device	$DEVICE
	batch_size	2
	max_length	16
	max_steps	4
model	layers	2
model	heads	2
model	width	16
tasks	train	"synthetic:addition"
tasks	synthetic_tokens	4000
mer	buffer_size	8
logging	every	1
BASE

# Values that mean something else to a parser than to a person, each as YAML.
cat >"$scratch/values" <<'VALUES'
0
1
-1
-0
2
3
2147483647
2147483648
4294967296
9223372036854775807
9223372036854775808
18446744073709551616
-9223372036854775808
1e308
1e-320
1e999
nan
.inf
-inf
0x10
1_000
""
" "
null
~
true
no
[]
[1, 2]
[[[1], {a: 2}]]
{a: 1}
"a\nb\tc\e\0"
"%s%n%s%n"
"../../../etc/passwd"
/dev/zero
*alias
&anchor 1
!!int 5
- 1
é
VALUES
printf '"%s"\n' "$(head -c 5000 /dev/zero | tr '\0' x)" >>"$scratch/values"
printf '%s\n' "$(head -c 400 /dev/zero | tr '\0' '[')" >>"$scratch/values"
printf 'a\001\033b\n' >>"$scratch/values"

# write FILE SECTION KEY VALUE [SECTION KEY VALUE]...: the base configuration with these keys instead of its own.
write() {
    local file=$1
    shift
    {
        cat "$scratch/base"
        while [ $# -gt 0 ]; do
            printf '%s\t%s\t%s\n' "$1" "$2" "$3"
            shift 3
        done
    } | awk -F'\t' '
        { place = $1 "\t" $2; if (!(place in value)) order[++count] = place; value[place] = $3 }
        END {
            for (i = 1; i <= count; i++) { split(order[i], part, "\t"); if (!(part[1] in seen)) sections[++n] = part[1]; seen[part[1]] }
            for (s = 1; s <= n; s++) {
                indent = sections[s] == "" ? "" : sections[s] == "tasks" ? "  - " : "  "
                if (sections[s] != "") print sections[s] ":"
                for (i = 1; i <= count; i++) {
                    split(order[i], part, "\t")
                    if (part[1] != sections[s]) continue
                    print indent part[2] ": " value[order[i]]
                    if (sections[s] == "tasks") indent = "    "
                }
            }
        }' >"$file"
}

cases=0
# A file on its own, then (nothing else being in the way) an override of the base file.
add_value() {
    local section=$1 key=$2 value=$3 prefix
    cases=$((cases + 1))
    write "$scratch/$cases.yaml" "$section" "$key" "$value"
    printf '%s\0\0' "$scratch/$cases.yaml"
    case $section in
    '') prefix= ;;
    tasks) prefix=tasks.0. ;;
    *) prefix=$section. ;;
    esac
    cases=$((cases + 1))
    cp "$scratch/base.yaml" "$scratch/$cases.yaml"
    printf '%s\0%s\0' "$scratch/$cases.yaml" "$prefix$key=$value"
}

# Sizes that are multiplied with each other, as far as they go.
sizes='batch_size gradient_accumulation_steps max_length model.layers model.heads model.width model.mlp_width
    model.vocabulary memory.head_chunk memory.micro_batch replay.buffer_size mer.group_steps mer.groups
    agem.reference_batches ewc.fisher_samples tasks.synthetic_tokens threads data.prefetch'
add_pairs() {
    local first second strategy least most values=()
    for first in $sizes; do
        values=()
        while IFS=';' read -r section key _ least most; do
            [ "${section:+$section.}$key" = "$first" ] && values=("$least" "$most" $((most / 2 + 1)) 1000)
        done <"$scratch/keys"
        printf '%s\t%s\n' "$first" "${values[*]}"
    done >"$scratch/sizes"
    while IFS=$'\t' read -r first firsts; do
        while IFS=$'\t' read -r second seconds; do
            [[ $first < $second ]] || continue
            for strategy in none '[ewc, mer]' a-gem; do
                read -r _ first_most _ first_some <<<"$firsts"
                read -r _ second_most second_half _ <<<"$seconds"
                for pair in "$first_most $second_most" "$first_some $second_half"; do
                    cases=$((cases + 1))
                    write "$scratch/$cases.yaml" continual strategy "$strategy" model family llama model head_dim 2 \
                        "$(section_of "$first")" "${first##*.}" "${pair% *}" "$(section_of "$second")" "${second##*.}" "${pair#* }"
                    printf '%s\0\0' "$scratch/$cases.yaml"
                done
            done
        done <"$scratch/sizes"
    done <"$scratch/sizes"
}

section_of() {
    case $1 in
    *.*) echo "${1%.*}" ;;
    *) echo ;;
    esac
}

write "$scratch/base.yaml" "" device "$DEVICE"
{
    while IFS=';' read -r section key _ least most; do
        [[ ${section:+$section.}$key =~ $KEYS ]] || continue
        while IFS= read -r value; do
            add_value "$section" "$key" "$value"
        done <"$scratch/values"
        [ -n "$least" ] || continue
        for value in "$least" "$most" "$(awk -v v="$most" 'BEGIN { printf "%.17g", v + 1 }')" "$(awk -v v="$least" 'BEGIN { printf "%.17g", v - 1 }')"; do
            add_value "$section" "$key" "$value"
        done
    done <"$scratch/keys"
    [ "$KEYS" != . ] || add_pairs
} >"$scratch/cases"

# An empty second word is no override.
xargs -0 -n 2 -P "$JOBS" bash -c 'exec "$0" --one "$1" ${2:+"$2"}' "tests/faults/values.sh" <"$scratch/cases" >"$scratch/results"

tried=$(wc -l <"$scratch/results")
count() { grep -c "^$1" "$scratch/results"; }
grep -E '^(crash|hang)' "$scratch/results" | head -n 40 | while read -r what file rest; do
    echo "$what ${rest:0:400}"
    sed 's/^/    /' "${file%:}" 2>/dev/null | cut -c1-160 | head -n 30
done
echo "values: $tried tried, $(count planned) planned, $(count refused) refused, $(count crash) crashes, $(count hang) hangs ($(wc -l <"$scratch/keys") keys, $SECONDS s)"
# Two words a case; a case without a result is a crash of this script.
[ "$tried" = $(($(tr -cd '\0' <"$scratch/cases" | wc -c) / 2)) ] && [ "$(count planned)" -gt 0 ] && [ "$(count crash)" = 0 ] && [ "$(count hang)" = 0 ]
