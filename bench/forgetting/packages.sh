# SPDX-License-Identifier: MIT
# Text out of Debian packages, for the scripts of this folder, which source it and set `out` to a folder: packages are fetched
# (apt-get download) into $out/packages and unpacked there, not installed.

# fetch PACKAGE: unpacked in packages/PACKAGE
fetch() {
    [ -d "$out/packages/$1" ] && return
    mkdir -p "$out/packages"
    (cd "$out/packages" && apt-get download -qq "$1")
    local archive
    archive=$(ls "$out/packages/$1"_*.deb | tail -n 1)
    dpkg-deb -x "$archive" "$out/packages/$1.part"
    dpkg-deb -f "$archive" Version >"$out/packages/$1.part/.version"
    mv "$out/packages/$1.part" "$out/packages/$1"
}

# files PACKAGE PATTERN: their paths in the package, in the order of a hash of these
files() {
    (cd "$out/packages/$1" && find . -type f -path "$2") | python3 -c '
import hashlib, sys
print(*sorted(sys.stdin.read().splitlines(), key=lambda path: hashlib.md5(path.encode()).hexdigest()), sep="\n")'
}

# text PACKAGE PATTERN BYTES: the files' text, as much of it as is wanted; what is no text is left out
# (head ends the loop)
text() {
    files "$1" "$2" 2>/dev/null | while read -r file; do
        case $file in
        *.gz | *.dz) zcat <"$out/packages/$1/$file" || break ;;
        *) if grep -qI . "$out/packages/$1/$file"; then cat "$out/packages/$1/$file" || break; fi ;;
        esac
    done 2>/dev/null | head -c "$3" | iconv -c -f UTF-8 -t UTF-8 || true
}

# What a reader sees of HTML, near enough: no tags, no scripts, no runs of empty lines.
words_of_html() {
    sed -e 's/<\(script\|style\)[^>]*>.*<\/\(script\|style\)>//g' -e '/<\(script\|style\)[ >]/,/<\/\(script\|style\)>/d' \
        -e 's/<[^>]*>//g' -e '/<[^>]*$/,/>/d' \
        -e "s/&lt;/</g; s/&gt;/>/g; s/&quot;/\"/g; s/&#39;/'/g; s/&nbsp;/ /g; s/&#160;/ /g; s/&amp;/\&/g" | cat -s
}
