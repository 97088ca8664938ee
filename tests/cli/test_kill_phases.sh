#!/bin/bash
# SPDX-License-Identifier: MIT
# A kill in each phase that is short or rare; `make test-kill` also kills at a thousand moments that are drawn.
COUNT=1 exec bash "$(dirname "$0")/../faults/phases.sh"
