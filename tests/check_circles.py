#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Circles of files within a room: sources that call each other, directly or by way of others of the room.

    check_circles.py [--calls ROOM]     --calls: which functions make the arrows of that room

A file calls another where it names a function that the other defines and does not keep static.  Rooms are those of
ARCHITECTURE.md.  Exit code 1 where there is a circle.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINITION = re.compile(r"^(?!static\b|typedef\b|extern\b|#)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.S)


def rooms():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    listed = text[text.index("<!-- rooms -->"):text.index("<!-- end of rooms -->")]
    return re.findall(r"^    ([a-z][a-z0-9_/]*) ", listed, re.M)


def calls_of(folder):
    """file -> {file it calls: names}, of the C files that lie in the folder itself."""
    text = {path.stem: COMMENT.sub(" ", path.read_text()) for path in sorted(folder.glob("*.c"))}
    home = {name: stem for stem, code in text.items() for name in DEFINITION.findall(code)}
    calls = {}
    for stem, code in text.items():
        calls[stem] = {}
        for name in sorted(set(WORD.findall(code))):
            if home.get(name, stem) != stem:
                calls[stem].setdefault(home[name], []).append(name)
    return calls


def circles(calls):
    """Strongly connected components of more than one file (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(file):
        number[file] = low[file] = len(number)
        stack.append(file)
        for other in calls[file]:
            if other not in number:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], number[other])
        if low[file] == number[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in calls:
        if file not in number:
            visit(file)
    return found


def main():
    bad = 0
    for room in rooms():
        calls = calls_of(ROOT / room)
        for circle in circles(calls):
            bad += 1
            print(f"{room}: a circle of {len(circle)} files: {' '.join(circle)}")
            for file in circle if "--calls" in sys.argv and room in sys.argv else []:
                for other in sorted(set(calls[file]) & set(circle)):
                    print(f"    {file} -> {other}: {' '.join(calls[file][other])}")
    sys.exit(bad > 0)


main()
