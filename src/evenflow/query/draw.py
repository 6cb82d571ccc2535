"""A network as a picture: SVG, boxes and arrows from left to right, segments as shaded groups.

Where everything stands says `geometry`. On an arrow stand the columns it carries and, where it crosses an exchange, how rows find their
partition. The whole schema is in the tool tip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from evenflow.plan.layout import Layout
from evenflow.query.geometry import GROUP_PADDING, LABEL_PX, LINE_HEIGHT, LINE_PX, PADDING, TITLE_PX, Geometry, Point, text_width
from evenflow.query.kinds import KINDS
from evenflow.query.layering import Item, Name
from evenflow.query.network import Box, Network, is_aside
from evenflow.query.text import box_lines
from evenflow.stream.schema import ddl_of

FONT: Final = "-apple-system, 'Segoe UI', Inter, Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "other": ("#b7791f", "other code"), "new": ("#c2415a", "new"), "gone": ("#c2415a", "gone"), "refused": ("#c2415a", "refused"),
}  # fmt: skip
"""Colour and words of a box that is not what runs."""


def to_svg(network: Network, planned: Layout | None = None, marks: Mapping[str, tuple[str, str]] | None = None) -> str:
    """The picture as an SVG document. planned: its segments are shaded; without it there are none. marks: by box, what would become of
    it in a run that is replaced (`MARKS`, and what is the same), and why; boxes that are the same are pale."""
    return _Drawing(Geometry(network, planned), marks or {}).svg()


class _Drawing:
    """The text of one picture."""

    def __init__(self, at: Geometry, marks: Mapping[str, tuple[str, str]]) -> None:
        self._at, self._marks = at, marks

    def svg(self) -> str:
        margin, title = 24.0, 34.0
        width, height = self._at.width + 2 * margin, self._at.height + 2 * margin + title
        width = max(width, text_width(self._at.network.name, 18) + 2 * margin)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" '
            f"font-family={quoteattr(FONT)}>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 1 L9 5 L0 9 z" fill="#5b6b7a"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            _text(margin, margin + 12, self._at.network.name, 18, "#1d2a36", weight=600),
            f'<g transform="translate({margin:.0f} {margin + title:.0f})">',
            *(self._shade(name) for name, group in self._at.groups.items() if group.shaded),
            *(self._arrow(number) for number in range(len(self._at.arrows))),
            *(self._box(box) for box in self._at.network),
            *(self._arrow_text(number) for number in range(len(self._at.arrows))),
            "</g>",
            "</svg>",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    def _shade(self, name: Name) -> str:
        item = self._at.shades[name]
        fill = "#ffffff" if self._at.groups[name].repeated else "#f4f6f9"
        rect = _rect(item, 12, fill, "#d9e0e7", 'stroke-dasharray="5 4" class="segment"')
        return rect + _text(item.x + GROUP_PADDING, item.y + 17, self._at.groups[name].title, LABEL_PX, "#6b7b8a")

    def _box(self, box: Box) -> str:
        item, (fill, border) = self._at.items[box.name], KINDS[box.kind].colours
        lines = box_lines(box)
        ddl = " / ".join(ddl_of(schema) for schema in box.schemas)
        texts = [_text(item.x + PADDING, item.y + 20, box.name, TITLE_PX, "#1d2a36", weight=600)]
        for i, line in enumerate(lines):
            texts.append(_text(item.x + PADDING, item.y + 20 + (i + 1) * LINE_HEIGHT, line, LINE_PX, border if i == 0 else "#44525f"))
        tip = f"<title>{escape(f'{box.name} ({box.kind}): {ddl}')}</title>"
        drawn, more = f"{_rect(item, 8, fill, border, '')}{''.join(texts)}", ""
        change, why = self._marks.get(box.name, ("same", ""))
        if change in MARKS:
            colour, words = MARKS[change]
            ring = Item(item.width + 6, item.height + 6, item.x - 3, item.y - 3)
            drawn += _rect(ring, 10, "none", colour, 'stroke-dasharray="6 3"')
            drawn += _text(item.x + item.width, item.y - 7, words, LABEL_PX, colour, weight=600, anchor="end", halo=True)
            tip = f"<title>{escape(why or words)}</title>"
        elif self._marks:
            more = ' opacity="0.45"'
        return f'<g class="box" data-box={quoteattr(box.name)}{more}>{tip}{drawn}</g>'

    def _arrow(self, number: int) -> str:
        up, port, _ = self._at.arrows[number]
        dash = ' stroke-dasharray="4 3"' if is_aside(self._at.network.box(up), port) else ""
        tip = f"<title>{escape(ddl_of(self._at.network.box(up).schemas[port]))}</title>"
        path = _curve(self._at.points(number))
        return f'<path d="{path}" fill="none" stroke="#5b6b7a" stroke-width="1.5"{dash} marker-end="url(#head)">{tip}</path>'

    def _arrow_text(self, number: int) -> str:
        """Columns above the arrow's beginning, once if a port has several readers; the route below its end."""
        above, below = self._at.labels(number)
        up, port, _ = self._at.arrows[number]
        first = next(n for n, (u, p, _) in enumerate(self._at.arrows) if (u, p) == (up, port)) == number
        parts = []
        if above and first:
            x, y = self._at.leaving(number)
            parts.append(_text(x + 8, y - 6, above, LABEL_PX, "#44525f", halo=True))
        if below:
            x, y = self._at.entering(number)
            parts.append(_text(x - 12, y + 14, below, LABEL_PX, "#8a5a00", anchor="end", halo=True))
        return "".join(parts)


# ---------------------------------------------------------------- pieces of SVG


def _rect(item: Item, radius: float, fill: str, border: str, more: str) -> str:
    place = f'x="{item.x:.1f}" y="{item.y:.1f}" width="{item.width:.1f}" height="{item.height:.1f}" rx="{radius:g}"'
    return f'<rect {place} fill="{fill}" stroke="{border}" stroke-width="1.2" {more}/>'


def _text(x: float, y: float, text: str, size: float, color: str, *, weight: int = 400, anchor: str = "start", halo: bool = False) -> str:
    about = ' stroke="#ffffff" stroke-width="3" stroke-linejoin="round" paint-order="stroke"' if halo else ""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}"{bold}{end}{about}>{escape(text)}</text>'


def _curve(points: Sequence[Point]) -> str:
    """A path that leaves and passes every point to the right."""
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        if abs(y1 - y0) < 0.5:
            text += f" L{x1:.1f} {y1:.1f}"
        else:
            bend = max((x1 - x0) / 2, 4.0)
            text += f" C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return text


__all__ = ["to_svg"]
