#!/bin/bash
# SPDX-License-Identifier: MIT
# sysroot.sh FOLDER PACKAGE...: the Debian packages and all that they depend on, for arm64, unpacked into FOLDER/root.
# From this system's own package sources, with lists and archives in FOLDER: nothing of the system changes, and no rights
# are needed.  What FOLDER holds already is kept while the packages asked for are the same.
set -euo pipefail
folder=$(realpath -m "$1")
shift
stamp=$folder/packages
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$*" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder/lists/partial" "$folder/archives/partial" "$folder/root"
: >"$folder/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State::Lists=$folder/lists"
    -o "Dir::State::Status=$folder/status" -o "Dir::Cache::Archives=$folder/archives" -o Dir::Cache::pkgcache=
    -o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1)
"${apt[@]}" update
"${apt[@]}" install --download-only --no-install-recommends -y "$@" >/dev/null
for archive in "$folder"/archives/*.deb; do
    dpkg-deb -x "$archive" "$folder/root"
done
# Links from the root would lead to this machine's libraries.
find "$folder/root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfnr "$folder/root$(readlink "$link")" "$link"
done
rm -rf "$folder/archives" "$folder/lists"
echo "$*" >"$stamp"
