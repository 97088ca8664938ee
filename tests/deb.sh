#!/bin/bash
# SPDX-License-Identifier: MIT
# The Debian packages of `make deb` on a bare system, where debootstrap and root can make one: installed, run, upgraded,
# removed without a trace.  Part of `make nightly`; `tests/deb.sh FOLDER` has the packages in FOLDER (build/deb).
set -eu
packages=$(realpath "${1:-build/deb}")
[ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "skipped: needs root, debootstrap and dpkg-deb"
    exit 0
}
if command -v lintian >/dev/null; then
    # The first entry of a package's changelog closes no report; a package built without DEBEMAIL has no host of mail.
    lintian --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog \
        --fail-on error,warning "$packages"/*.deb
fi
system=$(mktemp -d)
trap 'umount "$system/proc" 2>/dev/null; rm -rf "$system"' EXIT
debootstrap --variant=minbase bookworm "$system" >"$system.log" 2>&1 || { tail "$system.log"; exit 1; }
rm -f "$system.log"
cp /etc/resolv.conf "$system/etc/"
cp "$packages"/halfstep_*.deb "$packages"/halfstep-emulator_*.deb "$system/root/"
# The same packages once more, as a later version.
for name in halfstep halfstep-emulator; do
    dpkg-deb -R "$packages"/${name}_*.deb "$system/tmp/$name"
    sed -i -E 's/^(Version: .*|.*halfstep \(= [^)]*)-1/\1-2/' "$system/tmp/$name/DEBIAN/control"
    dpkg-deb -b "$system/tmp/$name" "$system/tmp/$name.deb" >/dev/null
done
mount --bind /proc "$system/proc"
chroot "$system" bash -eu <<'SYSTEM'
cd /root
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq 2>/dev/null
files() { find / -xdev -path /proc -prune -o -path /var -prune -o -path /root -prune -o -path /tmp -prune -o -print | sort; }
files >before
apt-get install -y -qq --no-install-recommends ./halfstep_*.deb ./halfstep-emulator_*.deb >log 2>&1 || { tail log; exit 1; }
trainer --version
trainer --config /usr/share/doc/halfstep/examples/configs/demo.yaml out_dir=run max_steps=20 checkpoint_freq=10 >log 2>&1 || { tail log; exit 1; }
trainer selftest --device emu --no-speed --op convert
apt-get install -y -qq /tmp/halfstep.deb /tmp/halfstep-emulator.deb >log 2>&1 || { tail log; exit 1; }
dpkg -s halfstep halfstep-emulator | grep -c '^Version: .*-2$' | grep -qx 2
trainer --config /usr/share/doc/halfstep/examples/configs/demo.yaml out_dir=run max_steps=30 resume=changed >log 2>&1 || { tail log; exit 1; }
grep -q "continuing from run/checkpoints/step-00000020" log
apt-get purge -y -qq halfstep halfstep-emulator >log 2>&1
apt-get autoremove -y -qq --purge >log 2>&1
files | diff before - && echo "removed without a trace"
SYSTEM
