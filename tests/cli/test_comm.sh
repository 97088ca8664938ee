#!/bin/bash
# SPDX-License-Identifier: MIT
# Communicators between processes of one host: every operation, and ranks that call different things, die, are stopped,
# give up, leave, are late or do not come.
# Waits more than it computes.
. "$(dirname "$0")/lib.sh"
ranks=$(dirname "$trainer")/tests/comm/ranks
for size in 1 2 3 4 5; do
    expect 0 "$ranks" shared $size values
done
for case in busy mismatch kill stop abort leave late absent; do
    expect 0 "$ranks" shared 3 $case
done
expect 0 "$ranks" shared 2 kill
finish
