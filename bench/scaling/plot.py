# SPDX-License-Identifier: MIT
"""A chart of lines over two logarithmic axes as a separate SVG, in the colours of the trainer's pages, light and dark.

Next to each measured line, in its colour and dotted, runs what its peak allows; a legend says which is which.
"""
import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 470, 66, 20, 92, 48
COLOURS = 8
STYLE = """
svg{--page:#fff;--ink:#1a222d;--soft:#566173;--line:#dde2e9;--c0:#2461b5;--c1:#c9501f;--c2:#1b8059;--c3:#8547b8;
--c4:#8f6a00;--c5:#bd2f75;--c6:#3d7690;--c7:#5f6875;font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--page:#181e26;--ink:#e7ebf1;--soft:#9ca8b8;--line:#2d3743;--c0:#74abff;--c1:#ff9868;
--c2:#4fd0a0;--c3:#c6a0ff;--c4:#e3bd4b;--c5:#ff88c2;--c6:#8ac8e2;--c7:#adb7c4}}
text{fill:var(--soft)}.title{fill:var(--ink);font-size:15px;font-weight:600}.name{fill:var(--ink)}.page{fill:var(--page)}
.grid{stroke:var(--line)}.fine{stroke:var(--line);stroke-opacity:.45}.axis{stroke:var(--soft)}
.curve{fill:none;stroke-width:2}.peak{fill:none;stroke-width:1.5;stroke-dasharray:1.5 4;stroke-linecap:round}
"""


class Axis:
    """A logarithmic axis from one place to another; its ends lie a little beyond the values'."""

    def __init__(self, values, start, end):
        low, high = math.log10(min(values)), math.log10(max(values))
        margin = 0.03 * (high - low) + 0.01
        self.low, self.high, self.start, self.end = low - margin, high + margin, start, end

    def place(self, value):
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        """Every 1, 2, ... 9 times a power of ten, with whether it is labelled."""
        labelled = (1,) if self.high - self.low > 3 else (1, 2, 5)
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for digit in range(1, 10):
                value = digit * 10.0**power
                if self.low <= math.log10(value) <= self.high:
                    yield value, digit in labelled


def millions(count):
    return f"{count / 1e6:g} M"


def milliseconds(value):
    return f"{value / 1e3:g} s" if value >= 1e3 else f"{value:g} ms"


def axes(x, y):
    bottom = HEIGHT - BOTTOM
    for value, labelled in y.ticks():
        at, kind = y.place(value), "grid" if labelled else "fine"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        if labelled:
            yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{milliseconds(value)}</text>'
    for value, labelled in x.ticks():
        at, kind = x.place(value), "grid" if labelled else "fine"
        yield f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>'
        if labelled:
            yield f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{millions(value)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">parameters</text>'
    yield f'<text x="{LEFT - 8}" y="{TOP - 10}" text-anchor="end">a step</text>'


def path(x, y, points):
    return "M" + "L".join(f"{x.place(size):.1f} {y.place(ms):.1f}" for size, ms in points)


def curves(x, y, lines):
    for i, (name, measured, at_peak) in enumerate(lines):
        colour = f"var(--c{i % COLOURS})"
        yield f'<path class="peak" stroke="{colour}" d="{path(x, y, at_peak)}"/>'
        yield f'<path class="curve" stroke="{colour}" d="{path(x, y, measured)}"/>'
        for size, ms in measured:
            yield (f'<circle fill="{colour}" cx="{x.place(size):.1f}" cy="{y.place(ms):.1f}" r="3"><title>{escape(name)}, '
                   f'{size / 1e6:.3g} M: {ms:.4g} ms</title></circle>')


def legend(lines):
    """Names in columns under the title; the last entry is the dots'."""
    entries = [(name, f'class="curve" stroke="var(--c{i % COLOURS})"') for i, (name, _, _) in enumerate(lines)]
    entries.append(("at the measured peak", 'class="peak" stroke="var(--soft)"'))
    columns = math.ceil(len(entries) / 2)
    step = (WIDTH - LEFT - RIGHT) / columns
    for i, (name, drawn) in enumerate(entries):
        left, top = LEFT + step * (i // 2), 44 + 18 * (i % 2)
        yield f'<path {drawn} d="M{left:.0f} {top}h22"/><text class="name" x="{left + 28:.0f}" y="{top + 4}">{escape(name)}</text>'


def write_plot(file_name, lines, title):
    """lines: of (name, [(parameters, ms)], [(parameters, ms at the peak)])."""
    points = [point for _, measured, at_peak in lines for point in measured + at_peak]
    x = Axis([size for size, _ in points], LEFT, WIDTH - RIGHT)
    y = Axis([ms for _, ms in points], HEIGHT - BOTTOM, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
             f'role="img" aria-label="{escape(title)}">', f"<style>{STYLE}</style>",
             f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
             f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
             *legend(lines), *axes(x, y), *curves(x, y, lines), "</svg>"]
    with open(file_name, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")
