#!/bin/bash
# SPDX-License-Identifier: MIT
# The lessons' commands run, and their claims hold; with fewer steps than on the pages.
. "$(dirname "$0")/lib.sh"
expect 0 "$root/examples/lessons/check.sh" "$(dirname "$trainer")" 12
grep 'NOT HOLD' out
finish
