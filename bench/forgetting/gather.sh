#!/bin/bash
# SPDX-License-Identifier: MIT
# gather.sh FOLDER [STREAM...]: streams of real text, FOLDER/STREAM/N-TASK.txt, out of Debian packages.
#
# A stream is the lines of the list below with its name, in their order; none named: all of them.  Packages are fetched
# (apt-get download) into FOLDER/packages and unpacked there, not installed.  A task's text is the files that the pattern
# matches, in the order of a hash of their names, until BYTES (1600000) are there; gzipped ones are read through, what is no
# text is left out.  FOLDER/STREAM/packages.txt says which versions it came from.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '3,9s/^# \?//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(realpath "$1")
shift
bytes=${BYTES:-1600000}
source "$(dirname "$0")/packages.sh"

# stream task package pattern
streams() {
    cat <<'LIST'
mixed     sayings  fortunes            */games/fortunes/*
mixed     headers  linux-libc-dev      *.h
mixed     python   libpython3.11-stdlib *.py
mixed     glosses  wordnet-base        */data.*
languages french   manpages-fr         *.gz
languages german   manpages-de         *.gz
languages spanish  manpages-es         *.gz
languages polish   manpages-pl         *.gz
code      lisp     sbcl-source         *.lisp
code      tcl      tcllib              *.tcl
code      perl     perl-modules-5.36   *.pm
code      c++      libeigen3-dev       */Eigen/src/*.h
formats   xml      docbook-xsl         *.xsl
formats   html     postgresql-doc-15   *.html
formats   json     iso-codes           *.json
formats   latex    texlive-latex-base  *.sty
programs  go       golang-1.19-src     *.go
programs  ruby     libruby3.1          *.rb
programs  erlang   erlang-src          *.erl
programs  octave   octave-common       *.m
tongues   italian  manpages-it         *.gz
tongues   dutch    manpages-nl         *.gz
tongues   brazilian manpages-pt-br     *.gz
tongues   russian  manpages-ru         *.gz
LIST
}

previous=
streams | while read -r stream task package pattern; do
    [ $# -eq 0 ] || [[ " $* " == *" $stream "* ]] || continue
    [ "$stream" = "$previous" ] && number=$((number + 1)) || number=1
    previous=$stream
    file=$out/$stream/$number-$task.txt
    [ -s "$file" ] && continue
    fetch "$package"
    mkdir -p "$out/$stream"
    text "$package" "$pattern" "$bytes" >"$file.part"
    mv "$file.part" "$file"
    echo "$number-$task: $package $(cat "$out/packages/$package/.version")" >>"$out/$stream/packages.txt"
    echo "$file: $(stat -c %s "$file") bytes" >&2
done
