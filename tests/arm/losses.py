# SPDX-License-Identifier: MIT
"""losses.py FOLDER: the losses of fifty steps on Arm against x86's, from the runs FOLDER/PROCESSOR-MODE-ROW-NUDGE.

Portable code rounds every product and every sum on both, and must give the same bits.  Other rows round otherwise: fused,
in another order, or to odd.  So do x86's rows among themselves, and the steps amplify what the first one rounded, so that
one distance is a draw.  The bound is therefore twice the largest distance from x86's portable run of all of x86's other
runs: each row that this machine has, with the learning rate as it is and 1, 2 and 3 units of 2^-23 larger.
"""

import json
import pathlib
import sys

STEPS = 50


def losses(folder):
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    found = [record["loss"] for record in records if record["event"] == "step"]
    assert len(found) == STEPS, f"{folder}: {len(found)} steps"
    return found


def is_near(folder, mode):
    exact = losses(folder / f"x86-{mode}-portable-0")
    far = {}
    for run in sorted(folder.glob(f"*-{mode}-*")):
        far[run.name] = max(abs(a - b) for a, b in zip(exact, losses(run)))
    bound = 2 * max(distance for name, distance in far.items() if name.startswith("x86"))
    near = True
    for name, distance in far.items():
        allowed = 0 if name == f"arm-{mode}-portable-0" else bound
        if name.startswith("arm"):
            print(f"{name}: {distance:.3g} from x86-{mode}-portable-0, may be {allowed:.3g}")
            near = near and distance <= allowed
        elif name.endswith("-0"):
            print(f"{name}: {distance:.3g}")
    return near


def main():
    folder = pathlib.Path(sys.argv[1])
    results = [is_near(folder, mode) for mode in ("fp32", "bf16")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
