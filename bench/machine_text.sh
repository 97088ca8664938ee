#!/bin/bash
# SPDX-License-Identifier: MIT
# machine_text.sh FOLDER: the text that a Debian or Ubuntu machine has by itself, for configs/speedrun-cpu.yaml:
# Python's and Perl's modules, C headers, documentation, licences.  FOLDER then holds
#
#     train.jsonl, validation.jsonl    a file a document, {"text": ...}
#     files.tsv                        what is in them: train or validation, kind, bytes, name
#
# Regular UTF-8 files of 1 MiB at most (larger ones are tables), each content once, in the order of its SHA-256, so that
# kinds are mixed and the same files give the same bytes.  One content in twenty is held out, by the same number: whole
# files, but a later version of a held-out file may be in the training text.  Needs bash, coreutils, findutils and
# perl-base, which every Debian has, and no rights.
set -euo pipefail
export LC_ALL=C
out=${1:?usage: bench/machine_text.sh FOLDER}
mkdir -p "$out"
if [ -e "$out/train.jsonl" ]; then
    echo "machine_text.sh: $out/train.jsonl is there already: name another folder" >&2
    exit 1
fi
places=()
for place in /usr/lib/python3* /usr/include /usr/share/doc /usr/share/perl /usr/share/perl5 /usr/lib/*/perl* \
    /usr/share/common-licenses; do
    [ ! -d "$place" ] || places+=("$place")
done
[ ${#places[@]} -gt 0 ] || { echo "machine_text.sh: none of the folders of a Debian machine is there" >&2; exit 1; }

# Names end with zero bytes, as they may hold anything else.
find "${places[@]}" -type f -readable -size -2049 -print0 | xargs -0 -r sha256sum -z | sort -z | perl -0 -e '
use strict;
my ($out) = @ARGV;
my @kinds = (    # the first that fits; files of no kind are left out
    [licences  => qr{/copyright$|^/usr/share/common-licenses/}],
    [python    => qr{\.pyi?$}],
    [perl      => qr{\.(pm|pl|pod|ph|al)$}],
    [headers   => qr{^/usr/include/.*(\.(h|hh|hpp|hxx|inc|tcc|ipp)|/[a-z_0-9]+)$}],
    [documents => qr{^/usr/share/doc/}],
);
my %files;
open my $list, ">", "$out/files.tsv" or die "machine_text.sh: $out/files.tsv: $!\n";
for my $split ("train", "validation") {
    open $files{$split}, ">", "$out/$split.jsonl.part" or die "machine_text.sh: $out/$split.jsonl.part: $!\n";
}
my ($last, %count, %bytes) = ("");
while (my $line = <STDIN>) {
    chomp $line;
    my ($hash, $name) = $line =~ /^([0-9a-f]{64})  (.*)$/s or next;
    my ($row) = grep { $name =~ $_->[1] } @kinds;
    next if $hash eq $last || !$row;
    open my $file, "<", $name or next;
    my $text = do { local $/; <$file> };
    my $characters = $text;
    next if !defined $text || $text !~ /\S/ || $text =~ /[\x00-\x08\x0b\x0e-\x1f\x7f]/;
    next if !utf8::decode($characters) || $characters =~ /[^\x{0}-\x{d7ff}\x{e000}-\x{10ffff}]/;
    $last = $hash;
    my $split = hex(substr $hash, 0, 8) % 20 ? "train" : "validation";
    my ($kind, $size) = ($row->[0], length $text);
    $count{$split}{$kind}++;
    $bytes{$split}{$kind} += $size;
    my %escape = ("\n" => "\\n", "\t" => "\\t", "\r" => "\\r", "\f" => "\\f", "\"" => "\\\"", "\\" => "\\\\");
    $text =~ s/([\n\t\r\f"\\])/$escape{$1}/g;
    print { $files{$split} } "{\"text\": \"$text\"}\n";
    $name =~ s/[\t\n]/?/g;
    print $list "$split\t$kind\t$size\t$name\n";
}
for my $file (values %files, $list) {
    close $file or die "machine_text.sh: $out: $!\n";
}
rename "$out/$_.jsonl.part", "$out/$_.jsonl" or die "machine_text.sh: $out/$_.jsonl: $!\n" for "validation", "train";
printf "%-10s %12s %12s %12s %12s\n", "", "train files", "bytes", "validation", "bytes";
my %all;
for my $kind (sort keys %{ $count{train} }) {
    my @cells = map { ($count{$_}{$kind} || 0, $bytes{$_}{$kind} || 0) } "train", "validation";
    printf "%-10s %12d %12d %12d %12d\n", $kind, @cells;
    $all{$_} += $cells[$_] for 0 .. 3;
}
printf "%-10s %12d %12d %12d %12d\n", "all", map { $all{$_} || 0 } 0 .. 3;
' "$out"
