#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README, ARCHITECTURE and docs: their sizes, words, links, commands and quoted messages; exit code 1 names what is wrong.

README has at most 150 lines and no cell of more than 15 words, ARCHITECTURE.md at most 15 kB.  A page of docs begins with
what can be done after it and has a command; links lead to files and headings that exist; the messages that troubleshooting
quotes are messages of the program.  The words below are not used in prose, comments or messages.
"""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# For a process, a file or a kernel: it, which.  continues.  next to.  separate.  No process.  That many.
WORDS = r"who|whoever|whom|nobody|somebody|everybody|anybody|goes on|went on|so many|" \
        r"beside|of its own|of their own|of no account"
wrong = []


def complain(path, text):
    wrong.append(f"{path.relative_to(ROOT)}: {text}")


def anchors(text):
    """The names that headings have as links."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


def literals():
    """All string literals of the program, neighbours joined."""
    text = ""
    for folder in ("runtime", "optim", "kernels"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".cu", ".cuh", ".cpp"):
                text += re.sub(r'"\s*"', "", re.sub(r'"\s*PRI\w+\s*"', "d", path.read_text())) + "\n"
    return text


pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").glob("*.md"))
for page in pages:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists():
            complain(page, f"the link {target} leads nowhere")
        elif anchor and anchor not in anchors(path.read_text()):
            complain(page, f"the link {target} has no such heading")
    if page.name == "messages.md":
        continue
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(rf"\b({WORDS})\b", line, re.I)
        if found:
            complain(page, f"{number}: `{found.group()}` is a word not to use (CONTRIBUTING.md, style)")
    if page.parent.name == "docs" and page.name != "README.md":
        if "After this page" not in text.split("\n## ")[0]:
            complain(page, "does not begin with what can be done after it: `After this page ...`")
        if not re.search(r"^    build/trainer ", text, re.M):
            complain(page, "has no command of the trainer")

readme = (ROOT / "README.md").read_text()
if readme.count("\n") > 150:
    complain(ROOT / "README.md", f"has {readme.count(chr(10))} lines, at most 150")
for line in readme.split("\n"):
    for cell in line.strip("|").split("|") if line.startswith("|") else ():
        if len(re.sub(r"\]\([^)]*\)", "]", cell).split()) > 15:
            complain(ROOT / "README.md", f"a cell of more than 15 words: {cell.strip()}")
if (ROOT / "ARCHITECTURE.md").stat().st_size > 15000:
    complain(ROOT / "ARCHITECTURE.md", f"has {(ROOT / 'ARCHITECTURE.md').stat().st_size} bytes, at most 15,000")

program = literals()
page = ROOT / "docs/troubleshooting.md"
for quoted in re.findall(r"^\| `([^`]+)` ", page.read_text(), re.M):
    for piece in re.split(r"\.\.\.|\bN\b|\bM\b|NAME", quoted):
        if len(piece.strip()) >= 8 and piece.strip() not in program:
            complain(page, f"no message says `{piece.strip()}`")

files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "runtime", "kernels", "optim", "tests", "bench", "examples",
                        "configs", "mk", "Makefile"], capture_output=True, text=True).stdout.split()
for name in files:
    path = ROOT / name
    read = path.suffix in (".c", ".h", ".cu", ".cuh", ".cpp", ".sh", ".py", ".mk", ".yaml", ".md")
    if not read or "results" in name or path == pathlib.Path(__file__).resolve():
        continue
    for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
        found = re.search(rf"\b({WORDS})\b", line)
        if found:
            complain(path, f"{number}: `{found.group()}` is a word not to use (CONTRIBUTING.md, style)")

print("\n".join(wrong), end="\n" if wrong else "")
raise SystemExit(1 if wrong else 0)
