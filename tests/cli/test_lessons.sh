#!/bin/bash
# SPDX-License-Identifier: MIT
# The lessons' commands run, and their claims hold; with fewer steps and less text than on the pages.
# Those with most modes at night: what they say of bf16 and FP8, test_accuracy.sh and test_logits.sh measure as well.
. "$(dirname "$0")/lib.sh"
[ "${TIER:-test}" = nightly ] || export LESSONS='1 2 3 5 6'
expect 0 "$root/examples/lessons/check.sh" "$(dirname "$trainer")" 10 tasks.0.synthetic_tokens=100000 evaluation.batches=2
grep 'NOT HOLD' out
finish
