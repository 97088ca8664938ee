#!/bin/bash
# SPDX-License-Identifier: MIT
# make install under DESTDIR and PREFIX: the installed trainer finds its parts wherever the prefix lies, the manual page and the
# completion know every command and option that --help knows; make uninstall leaves nothing, and nothing else is touched.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$trainer")
prefix=$scratch/stage/opt/halfstep
mkdir -p "$prefix/lib/halfstep" && echo 'of another package' >"$prefix/lib/halfstep/other"

expect 0 env -u MAKEFLAGS -u MAKELEVEL make -C "$root" BUILD="$build" DESTDIR="$scratch/stage" PREFIX=/opt/halfstep install
installed=$prefix/bin/trainer
if ! ldd "$installed" | grep -q libasan; then # which finds functions by other means
    [ "$(stat -c %s "$installed")" -lt "$(stat -c %s "$trainer")" ] || fail "the installed trainer is not stripped"
fi

# Nothing of the build folder is used: the parts next to the installed program are.
expect 0 "$installed" selftest --device emu --no-speed --op combine
says out "device: emu"
mv "$prefix" moved
expect 0 moved/bin/trainer selftest --device emu --no-speed --op combine
mv moved/lib/halfstep/libhalfstep-emu.so part.so
expect 1 moved/bin/trainer selftest --device emu --no-speed --op combine
says err "this build has no emulator; to build it: make emu"
echo 'not a shared object' >moved/lib/halfstep/libhalfstep-emu.so
expect 1 moved/bin/trainer selftest --device emu --no-speed --op combine
says err "libhalfstep-emu.so cannot be opened: "
says err "to build it again: make emu"
mv part.so moved/lib/halfstep/libhalfstep-emu.so
mv moved "$prefix"

# A part of another build is refused.
if command -v cc >/dev/null; then
    cat >other.c <<'C'
static const unsigned long long part[64] = { 1 };
const void *hs_backend_part(void) { return part; }
C
    mkdir other && cp "$installed" other/ && cc -shared -fPIC -o other/libhalfstep-emu.so other.c
    expect 1 other/trainer selftest --device emu --no-speed --op combine
    says err "libhalfstep-emu.so comes from another build than this program"
    # The header for allocators needs no other, in C and in C++.
    echo '#include <halfstep/memory_hooks.h>' >header.c
    for language in c c++; do
        expect 0 cc -x $language -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" header.c
    done
fi

page=$prefix/share/man/man1/trainer.1
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z "$page" 2>warnings || fail "groff refuses the manual page"
    [ ! -s warnings ] || fail "the manual page: $(head -n 3 warnings)"
    groff -man -Tascii -P -c -P -b -P -u "$page" >page.txt 2>&1 || cp "$page" page.txt
    says page.txt "CONFIGURATION KEYS"
fi
sed 's/\\-/-/g' "$page" >plain
"$trainer" --help >help
"$trainer" reference >reference.md
for variable in $(grep -o '^| `HALFSTEP_[A-Z_]*' reference.md | tr -d '|` '); do
    says plain "$variable"
done
grep -oE '^  trainer [a-z]+' help | sort -u >commands
[ "$(wc -l <commands)" -ge 10 ] || fail "--help lists few commands"

# What bash completes of a command line; the last word is the one under the cursor.
complete_line() {
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trainer; printf "%s\n" "${COMPREPLY[@]}"' \
        - "$prefix/share/bash-completion/completions/trainer" "$@" 2>>err.complete
}
complete_line trainer '' >first
while read -r _ command; do
    grep -qx "$command" first || fail "completion does not know the command $command"
    says plain ".SS $command"
    "$trainer" "$command" --help >options
    complete_line trainer "$command" -- >got
    for option in $(grep -oE '^ +(-[a-z], )?--[a-z-]+' options | grep -oE -- '--[a-z-]+' | grep -v -- '--usage'); do
        grep -qx -- "$option" got || fail "completion does not know $command $option"
        [ "$option" = --help ] || grep -qF -- "$option\\fR" plain || fail "the manual page does not have $command $option"
    done
done < <(cat commands && echo '  trainer train')
complete_line trainer --con >got
[ "$(cat got)" = --config ] || fail "trainer --con completes to: $(cat got)"
touch recipe.yaml
[ "$(complete_line trainer --config rec)" = recipe.yaml ] || fail "--config does not complete files"
[ "$(complete_line trainer selftest --device em)" = emu ] || fail "--device does not complete its words"
[ "$(complete_line trainer tokenizer enc)" = encode ] || fail "tokenizer does not complete its words"
[ "$(complete_line trainer --config recipe.yaml ewc.lam)" = ewc.lambda= ] || fail "keys are not completed"
[ ! -s err.complete ] || fail "completion complains: $(head -n 3 err.complete)"
expect 2 "$trainer" reference --completion csh
says err "--completion csh: bash, zsh and fish are known"
# The other shells, where they are installed: the same commands and options.  What zsh's own functions would be given is
# written out in place of them.
zsh_file=$prefix/share/zsh/site-functions/_trainer fish_file=$prefix/share/fish/vendor_completions.d/trainer.fish
zsh_line() {
    zsh -f -c '_arguments() { print -rl -- "$@"; }; _describe() { print -rl -- $commands; }; file=$1; shift
        words=("$@"); CURRENT=$#; . $file' - "$zsh_file" "$@" 2>>err.complete
}
fish_line() {
    fish --no-config -c "source '$fish_file'; complete -C '$1'" 2>>err.complete
}
! command -v zsh >/dev/null || zsh_line trainer '' >first.zsh
! command -v fish >/dev/null || fish_line 'trainer ' >first.fish
while read -r _ command; do
    "$trainer" "$command" --help >options
    [ ! -e first.zsh ] || grep -q "^$command:" first.zsh || fail "zsh does not know the command $command"
    [ ! -e first.fish ] || grep -q "^$command	" first.fish || fail "fish does not know the command $command"
    [ ! -e first.zsh ] || zsh_line trainer "$command" -- >got.zsh
    [ ! -e first.fish ] || fish_line "trainer $command --" >got.fish
    for option in $(grep -oE '^ +(-[a-z], )?--[a-z-]+' options | grep -oE -- '--[a-z-]+' | grep -v -- '--usage'); do
        [ ! -e first.zsh ] || grep -qE -- "^$option(=|\[)" got.zsh || fail "zsh does not know $command $option"
        [ ! -e first.fish ] || grep -q -- "^$option	" got.fish || fail "fish does not know $command $option"
    done
done < <(cat commands && echo '  trainer train')
if [ -e first.fish ]; then
    [ "$(fish_line 'trainer --config recipe.yaml ewc.lam')" = ewc.lambda= ] || fail "fish does not complete keys"
    [ "$(fish_line 'trainer selftest --device em' | cut -f1)" = emu ] || fail "fish does not complete words"
fi
[ ! -s err.complete ] || fail "completion complains: $(head -n 3 err.complete)"

expect 0 env -u MAKEFLAGS -u MAKELEVEL make -C "$root" BUILD="$build" DESTDIR="$scratch/stage" PREFIX=/opt/halfstep uninstall
[ "$(find "$prefix" -type f)" = "$prefix/lib/halfstep/other" ] || fail "after uninstall: $(find "$prefix" -type f)"
finish
