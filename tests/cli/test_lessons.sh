#!/bin/bash
# SPDX-License-Identifier: MIT
# The lessons' commands run, and their claims hold; with fewer steps and less text than on the pages.
. "$(dirname "$0")/lib.sh"
expect 0 "$root/examples/lessons/check.sh" "$(dirname "$trainer")" 10 tasks.0.synthetic_tokens=100000 evaluation.batches=2
grep 'NOT HOLD' out
finish
