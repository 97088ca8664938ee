#!/bin/bash
# SPDX-License-Identifier: MIT
# Some ranks that die at moments that are drawn, and what ends all ranks alike; `make faults` has a hundred.
COUNT=4 exec bash "$(dirname "$0")/../faults/processes.sh"
