#!/bin/bash
# SPDX-License-Identifier: MIT
# A short form of kill_resume.sh; `make test-kill` runs twenty moments.
exec bash "$(dirname "$0")/kill_resume.sh" 3 42
