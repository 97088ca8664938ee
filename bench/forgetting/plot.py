# SPDX-License-Identifier: MIT
"""plot.py [--plot FILE.svg] RUN...: what runs over the same tasks forgot, as a Markdown table and as a chart.

The chart has one panel a run: the held-out loss of each task, before training and after each task, from the matrix in the
run's metrics.jsonl; joint training has no tasks one after another, and so a row of the table only.  It is one SVG without
scripts, in the colours of the trainer's pages, light and dark.
"""
import json
import sys
from html import escape
from pathlib import Path

PANEL, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 220, 330, 40, 104, 66, 46, 14
COLOURS = 8
STYLE = """
svg{--page:#fff;--ink:#1a222d;--soft:#566173;--line:#dde2e9;--c0:#2461b5;--c1:#c9501f;--c2:#1b8059;--c3:#8547b8;
--c4:#8f6a00;--c5:#bd2f75;--c6:#3d7690;--c7:#5f6875;font:13px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--page:#181e26;--ink:#e7ebf1;--soft:#9ca8b8;--line:#2d3743;--c0:#74abff;--c1:#ff9868;
--c2:#4fd0a0;--c3:#c6a0ff;--c4:#e3bd4b;--c5:#ff88c2;--c6:#8ac8e2;--c7:#adb7c4}}
text{fill:var(--soft)}.title{fill:var(--ink);font-size:15px;font-weight:600}.name{fill:var(--ink);font-weight:600}
.page{fill:var(--page)}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.curve{fill:none;stroke-width:2}
.before{fill:none;stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}
"""


def read(folder):
    """The run's latest matrix: names, rows (before training, then after each task), summary, optimizer steps."""
    matrix = steps = None
    for line in (Path(folder) / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record.get("event") == "matrix":
            matrix = record
        steps = record.get("step", steps)
    if matrix is None:
        sys.exit(f"{folder}: metrics.jsonl holds no matrix: has the run finished?")
    rows = [matrix["untrained"]] + matrix["losses"]
    return {"label": Path(folder).name, "names": matrix["names"], "rows": rows, "summary": matrix["summary"], "steps": steps}


def table(runs):
    yield "| strategy | retained | forgetting | learned | optimizer steps |"
    yield "|---|---|---|---|---|"
    for run in runs:
        figures = [run["summary"].get(name) for name in ("retained", "forgetting", "learned")]
        shown = ["" if figure is None else f"{figure:.2f}" for figure in figures]
        yield f"| {run['label']} | {' | '.join(shown)} | {run['steps']:,} |"


def panel(run, left, top_loss):
    """One run: a line a task; dotted until the task is trained on, its name at the end of the line."""
    bottom, ends = HEIGHT - BOTTOM, []

    def x(moment):
        return left + moment * PANEL / (len(run["rows"]) - 1)

    def y(loss):
        return bottom - loss / top_loss * (bottom - TOP)

    yield f'<text class="name" x="{left}" y="{TOP - 12}">{escape(run["label"])}</text>'
    for loss in range(0, int(top_loss) + 1, 2):
        yield f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{y(loss):.1f}" y2="{y(loss):.1f}"/>'
        yield f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss}</text>'
    for moment in range(len(run["rows"])):
        yield f'<text x="{x(moment):.1f}" y="{bottom + 18}" text-anchor="middle">{moment}</text>'
    for task, name in enumerate(run["names"]):
        colour = f"var(--c{task % COLOURS})"
        points = [(x(moment), y(row[task])) for moment, row in enumerate(run["rows"])]
        for kind, part in (("before", points[: task + 2]), ("curve", points[task + 1 :])):
            if len(part) > 1:
                yield f'<path class="{kind}" stroke="{colour}" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in part)}"/>'
        for moment, (a, b) in enumerate(points):
            if moment > task:
                yield (f'<circle fill="{colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"><title>{escape(name)}, after task {moment}: '
                       f'{run["rows"][moment][task]:.3f}</title></circle>')
        ends.append([points[-1][1], name, colour, run["rows"][-1][task]])
    ends.sort()
    for i in range(1, len(ends)):  # names that would overlap move down, then all back up into the panel
        ends[i][0] = max(ends[i][0], ends[i - 1][0] + 15)
    over = max(0.0, ends[-1][0] - bottom)
    for place, name, colour, loss in ends:
        yield f'<text style="fill:{colour}" x="{left + PANEL + 8}" y="{place - over + 4:.1f}">{escape(name)} {loss:.2f}</text>'


def chart(runs):
    width = LEFT + len(runs) * (PANEL + RIGHT) + (len(runs) - 1) * GAP
    top_loss = max(max(row) for run in runs for row in run["rows"]) * 1.04
    title = "Held-out loss of each task (nats a token): untrained (0) and after each task"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(title)}">'
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="page" width="{width}" height="{HEIGHT}"/>'
    yield f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>'
    for i, run in enumerate(runs):
        yield from panel(run, LEFT + i * (PANEL + RIGHT + GAP), top_loss)
    yield f'<text x="{LEFT}" y="{HEIGHT - 8}">tasks trained; dotted: before the task\'s own training</text>'
    yield "</svg>"


def main(arguments):
    plot = None
    if arguments[:1] == ["--plot"]:
        plot, arguments = arguments[1], arguments[2:]
    if not arguments:
        sys.exit("plot.py [--plot FILE.svg] RUN...")
    runs = [read(folder) for folder in arguments]
    if any(run["names"] != runs[0]["names"] for run in runs):
        sys.exit("plot.py: the runs have other tasks")
    print("\n".join(table(runs)))
    if plot:
        drawn = [run for run in runs if all(loss is not None for row in run["rows"] for loss in row)]
        Path(plot).write_text("\n".join(chart(drawn)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
