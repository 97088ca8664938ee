#!/bin/sh
# SPDX-License-Identifier: MIT
# packages.sh SUDO PACKAGE...: install the Debian packages that are missing, and only then ask apt.
set -u
sudo=$1
shift
missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
# pkgconf provides pkg-config on newer systems: a command that is there need not be installed.
if command -v pkg-config >/dev/null; then missing=$(printf '%s' "$missing" | sed 's/ pkg-config\b//'); fi
[ -z "$missing" ] && exit 0
echo "installing:$missing"
if ! command -v apt-get >/dev/null; then
    echo "apt-get is not there: install these (or your system's equivalents) by hand:$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
