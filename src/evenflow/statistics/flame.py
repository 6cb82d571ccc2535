"""Stacks as a flame graph: a bar per frame below the one that called it, as wide as its share, unless it is too narrow to be seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 1200.0
ROW: Final = 18.0
HEAD: Final = 34.0
NARROWEST: Final = 0.6
"""Pixels below which a bar is left out."""
LETTER: Final = 6.4
COLOURS: Final = {"box": "#b9d7f5", "own": "#f3d9b1", "engine": "#dfe4ea", "wait": "#eef0f2"}


@dataclass(slots=True)
class Bar:
    """A frame and what it calls. value: microseconds, of it all."""

    name: str
    value: int = 0
    calls: dict[str, Bar] = field(default_factory=dict)


def tree_of(name: str, stacks: Iterable[tuple[tuple[str, ...], int]]) -> Bar:
    """All stacks, from the outside in, each with its value, as one tree under a bar of that name."""
    root = Bar(name)
    for frames, value in stacks:
        if not value:
            continue
        at = root
        at.value += value
        for name in frames:
            at = at.calls.setdefault(name, Bar(name))
            at.value += value
    return root


def bars(root: Bar) -> Iterator[tuple[Bar, int, float, bool]]:
    """(bar, depth, beginning as a share of the whole, whether it is within a box), callers before what they call, by name."""
    waiting = [(root, 0, 0.0, False)]
    while waiting:
        bar, depth, begin, within = waiting.pop()
        within = within or bar.name.startswith("box ")
        yield bar, depth, begin, within
        calls = []
        for name in sorted(bar.calls):
            calls.append((bar.calls[name], depth + 1, begin, within))
            begin += bar.calls[name].value / root.value
        waiting += reversed(calls)


def to_svg(root: Bar, title: str) -> str:
    drawn, deepest = [], 0
    for bar, depth, begin, within in bars(root) if root.value else ():
        width = bar.value / root.value * WIDTH
        if width < NARROWEST:
            continue
        deepest = max(deepest, depth)
        drawn.append(_bar(bar, depth, begin * WIDTH, width, within, root.value))
    height = HEAD + (deepest + 1) * ROW + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="6" y="21" font-size="13" fill="#1d2730">{escape(title)}</text>{"".join(drawn)}</svg>\n'
    )


def _bar(bar: Bar, depth: int, x: float, width: float, within: bool, whole: int) -> str:
    y = HEAD + depth * ROW
    kind = "box" if bar.name.startswith("box ") else "own" if within else "wait" if bar.name.startswith("(") else "engine"
    room = int((width - 6) / LETTER)
    text = bar.name if len(bar.name) <= room else f"{bar.name[: room - 1]}…" if room > 3 else ""
    tip = f"<title>{escape(bar.name)}: {bar.value / 1000:,.1f} ms, {bar.value / whole:.1%}</title>"
    words = f'<text x="{x + 3:.1f}" y="{y + 13:.1f}" fill="#1d2730">{escape(text)}</text>' if text else ""
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 1:g}" rx="2" fill="{COLOURS[kind]}"/>'
    return f"<g>{tip}{box}{words}</g>"


__all__ = ["Bar", "bars", "to_svg", "tree_of"]
