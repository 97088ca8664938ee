#!/bin/bash
# SPDX-License-Identifier: MIT
# A short form of kill_continual.sh: each phase once, and two random moments of each configuration.
exec bash "$(dirname "$0")/kill_continual.sh" 2 42
