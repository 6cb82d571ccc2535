"""A network as a picture: SVG, boxes and arrows from left to right, segments as shaded groups.

The boxes of a segment are placed first, then the segments as wholes, with the same method (`layering`). On an arrow stand the
columns it carries and, where it crosses an exchange, how rows find their partition. The whole schema is in the tool tip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from evenflow.plan.layout import Dealt, Keyed, Layout, Segment, Single
from evenflow.query.kinds import KINDS
from evenflow.query.layering import Item, Name, layered
from evenflow.query.network import Box, Network, is_aside, is_late
from evenflow.query.text import box_lines, columns_text
from evenflow.stream.schema import ddl_of

FONT: Final = "-apple-system, 'Segoe UI', Inter, Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
Point = tuple[float, float]

TITLE_PX: Final = 14
LINE_PX: Final = 11.5
LABEL_PX: Final = 10.5
LINE_HEIGHT: Final = 16.0
PADDING: Final = 12.0
GROUP_PADDING: Final = 18.0
GROUP_TITLE: Final = 24.0
COLUMNS_SHOWN: Final = 4


def to_svg(network: Network, planned: Layout | None = None) -> str:
    """The picture as an SVG document. planned: its segments are shaded; without it there are none."""
    return _Drawing(network, planned).svg()


@dataclass(slots=True)
class _Group:
    """Boxes that are placed together. segment: what they run as, or None where it is several or unknown."""

    boxes: list[Box] = field(default_factory=list)
    segments: tuple[Segment, ...] = ()

    @property
    def shaded(self) -> bool:
        return bool(self.segments)

    @property
    def repeated(self) -> bool:
        """The boxes run in each of several segments, behind a union."""
        return len(self.segments) > 1 and self.segments[-1].kind != "egress"

    @property
    def title(self) -> str:
        numbers = [str(segment.id) for segment in self.segments]
        if self.repeated:
            return f"in segments {', '.join(numbers)}"
        counts = " → ".join(f"{s.partitions} partition{'s' if s.partitions > 1 else ''}" for s in self.segments)
        return f"segment {' + '.join(numbers)} · {self.segments[-1].kind} · {counts}"


class _Drawing:
    """All the places of one picture, and then its text."""

    def __init__(self, network: Network, planned: Layout | None) -> None:
        self._network, self._planned = network, planned
        self._groups = _grouped(network, planned)
        self._group_of = {box.name: name for name, group in self._groups.items() for box in group.boxes}
        self._arrows = [(up, port, box.name) for box in network for up, port in box.inputs]
        self._items: dict[str, Item] = {}
        self._paths: dict[int, list[Point]] = {}
        self._level_to: dict[int, float] = {}
        self._borders: dict[int, tuple[Point | None, Point | None]] = {}
        self._shades: dict[Name, Item] = {}
        self._place()

    # ------------------------------------------------ places

    def _place(self) -> None:
        """Boxes inside their groups, groups on the sheet, then both together."""
        inner: dict[Name, dict[str, Item]] = {}
        ends: dict[Name, dict[int, list[Point]]] = {}
        for name, group in self._groups.items():
            inner[name], ends[name], self._shades[name] = self._inside(name, group)
        outer = [(n, self._group_of[up], self._group_of[to]) for n, (up, _, to) in enumerate(self._arrows)]
        crossing = [(n, a, b) for n, a, b in outer if a != b]
        room = [self._label_width(n) + 56 for n, _, _ in crossing]
        placed = layered(self._shades, [(a, b) for _, a, b in crossing], room, row_gap=26)
        for name, group in self._groups.items():
            shade = self._shades[name]
            for box in group.boxes:
                item = inner[name][box.name]
                self._items[box.name] = Item(item.width, item.height, item.x + shade.x, item.y + shade.y)
        bends = {n: list(placed.bends[i]) for i, (n, _, _) in enumerate(crossing)}
        for number, start, end in outer:
            self._level_to[number] = self._level_to.get(number, 0.0) + self._shades[start].x
            moved = [[(x + self._shades[g].x, y + self._shades[g].y) for x, y in ends[g].get(number, [])] for g in (start, end)]
            self._paths[number] = moved[0] if start == end else [*moved[0], *bends[number], *moved[1]]
            if start != end and not moved[0]:
                self._level_to[number] = placed.edges[start]
            elif start != end:
                self._paths[number].insert(len(moved[0]), (placed.edges[start], moved[0][-1][1]))
            if start != end:
                self._borders[number] = (moved[0][-1] if moved[0] else None, moved[1][0] if moved[1] else None)
        self._width, self._height = placed.width, placed.height

    def _inside(self, name: Name, group: _Group) -> tuple[dict[str, Item], dict[int, list[Point]], Item]:
        """Places in one group: boxes, points that arrows pass inside of it (to its border if they leave), and its size."""
        items: dict[Name, Item] = {box.name: _size(box) for box in group.boxes}
        arrows: list[tuple[Name, Name]] = []
        numbers: list[int] = []
        entries: list[Name] = []
        exits: list[Name] = []
        for number, (up, _, to) in enumerate(self._arrows):
            here = (self._group_of[up] == name, self._group_of[to] == name)
            if not any(here) or not (group.shaded or all(here)):
                continue
            start: Name = up if here[0] else ("in", number)
            end: Name = to if here[1] else ("out", number)
            if not here[0]:
                items[start] = Item(0, 8)
                entries.append(start)
            if not here[1]:
                items[end] = Item(0, 8)
                exits.append(end)
            arrows.append((start, end))
            numbers.append(number)
        inside = [start in self._group_of and end in self._group_of for start, end in arrows]
        room = [self._label_width(n) + 40 if both else 0.0 for n, both in zip(numbers, inside, strict=True)]
        placed = layered(items, arrows, room, row_gap=22, first=entries, last=exits)
        side, top = (GROUP_PADDING, GROUP_TITLE + 6) if group.shaded else (0.0, 0.0)
        bottom = GROUP_PADDING if group.shaded else 0.0
        for item in items.values():
            item.x, item.y = item.x + side, item.y + top
        width, height = placed.width + 2 * side, placed.height + top + bottom
        if group.shaded:
            width = max(width, _text_width(group.title, LABEL_PX) + 2 * side)
        points: dict[int, list[Point]] = {}
        for i, number in enumerate(numbers):
            start, end = arrows[i]
            through = [(x + side, y + top) for x, y in placed.bends[i]]
            if start in self._group_of:
                self._level_to[number] = placed.edges[start] + side
            before = [(0.0, items[start].middle)] if start in entries else []
            after = [(width, items[end].middle)] if end in exits else []
            points[number] = [*before, *through, *after]
        return {box.name: items[box.name] for box in group.boxes}, points, Item(width, height)

    def _label_width(self, number: int) -> float:
        """Room for both labels of an arrow, side by side."""
        return sum(_text_width(text, LABEL_PX) + 14 for text in self._labels(number) if text)

    def _labels(self, number: int) -> tuple[str, str]:
        """What stands above and below an arrow: the columns, where they are new, and the way through the exchange."""
        up, port, to = self._arrows[number]
        box = self._network.box(up)
        schema = box.schemas[port]
        same = port == 0 and any(schema.names == given.names for given in self._network.input_schemas(box))
        text = "" if same else columns_text(schema, COLUMNS_SHOWN)
        above = f"{'late' if is_late(box, port) else 'failed'}: {text or 'rows'}" if is_aside(box, port) else text
        return above, "" if self._group_of[up] == self._group_of[to] else self._route(to, (up, port))

    def _route(self, to: str, source: tuple[str, int]) -> str:
        box = self._network.box(to)
        if box.kind == "join":
            join = box.params["join"]
            return f"by {', '.join(join.left_keys if source == box.inputs[0] else join.right_keys)}"
        keys: Sequence[str] = (
            box.params.get("keys", box.params.get("columns", ())) if box.kind == "key_by" or KINDS[box.kind].stateful else ()
        )
        if keys:
            return f"by {', '.join(keys)}"
        if self._planned is None:
            return ""
        consumers = {s.id: s for s in self._groups[self._group_of[to]].segments}
        routes = [arc.route for arc in self._planned.arcs if arc.consumer in consumers and arc.producer not in consumers]
        if not routes or box.kind in ("union", "filter", "select", "watermark", "table_join"):
            return ""
        route = routes[0]
        if isinstance(route, Keyed):
            return f"by {', '.join(route.columns)}"
        return "to one partition" if isinstance(route, Single) else "dealt out" if isinstance(route, Dealt) else "spread"

    # ------------------------------------------------ text

    def svg(self) -> str:
        margin, title = 24.0, 34.0
        width, height = self._width + 2 * margin, self._height + 2 * margin + title
        width = max(width, _text_width(self._network.name, 18) + 2 * margin)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" '
            f"font-family={quoteattr(FONT)}>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 1 L9 5 L0 9 z" fill="#5b6b7a"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            _text(margin, margin + 12, self._network.name, 18, "#1d2a36", weight=600),
            f'<g transform="translate({margin:.0f} {margin + title:.0f})">',
            *(self._shade(name) for name, group in self._groups.items() if group.shaded),
            *(self._arrow(number) for number in range(len(self._arrows))),
            *(self._box(box) for box in self._network),
            *(self._arrow_text(number) for number in range(len(self._arrows))),
            "</g>",
            "</svg>",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    def _shade(self, name: Name) -> str:
        item = self._shades[name]
        fill = "#ffffff" if self._groups[name].repeated else "#f4f6f9"
        rect = _rect(item, 12, fill, "#d9e0e7", 'stroke-dasharray="5 4" class="segment"')
        return rect + _text(item.x + GROUP_PADDING, item.y + 17, self._groups[name].title, LABEL_PX, "#6b7b8a")

    def _box(self, box: Box) -> str:
        item, (fill, border) = self._items[box.name], KINDS[box.kind].colours
        lines = box_lines(box)
        ddl = " / ".join(ddl_of(schema) for schema in box.schemas)
        texts = [_text(item.x + PADDING, item.y + 20, box.name, TITLE_PX, "#1d2a36", weight=600)]
        for i, line in enumerate(lines):
            texts.append(_text(item.x + PADDING, item.y + 20 + (i + 1) * LINE_HEIGHT, line, LINE_PX, border if i == 0 else "#44525f"))
        tip = f"<title>{escape(f'{box.name} ({box.kind}): {ddl}')}</title>"
        return f'<g class="box" data-box={quoteattr(box.name)}>{tip}{_rect(item, 8, fill, border, "")}{"".join(texts)}</g>'

    def _ends(self, number: int) -> tuple[Point, Point]:
        """Where an arrow leaves and arrives: arrows at one side of a box are spread over it, the late rows' lowest."""
        up, port, to = self._arrows[number]
        start, end = self._items[up], self._items[to]
        ports = sorted({p for u, p, _ in self._arrows if u == up})
        return (start.x + start.width, start.y + start.height * (ports.index(port) + 1) / (len(ports) + 1)), (end.x, end.middle)

    def _arrow(self, number: int) -> str:
        up, port, _ = self._arrows[number]
        dash = ' stroke-dasharray="4 3"' if is_aside(self._network.box(up), port) else ""
        tip = f"<title>{escape(ddl_of(self._network.box(up).schemas[port]))}</title>"
        path = _curve(self._points(number))
        return f'<path d="{path}" fill="none" stroke="#5b6b7a" stroke-width="1.5"{dash} marker-end="url(#head)">{tip}</path>'

    def _points(self, number: int) -> list[Point]:
        """What an arrow passes from end to end. It is level where its labels stand, and up to the end of its column."""
        above, below = self._labels(number)
        start, end = self._ends(number)
        leaving, entering = self._leaving(number), self._entering(number)
        points: list[Point] = []
        for point in [start, (self._level_to[number], start[1]), *self._paths[number], end]:
            if point == entering and below:
                points.append((point[0] - _text_width(below, LABEL_PX) - 20, point[1]))
            if not points or point[0] > points[-1][0] or point[1] != points[-1][1]:
                points.append(point)
            if point == leaving and above:
                points.append((point[0] + _text_width(above, LABEL_PX) + 14, point[1]))
        return points

    def _arrow_text(self, number: int) -> str:
        """Columns above the arrow's beginning, once if a port has several readers; the route below its end."""
        above, below = self._labels(number)
        up, port, _ = self._arrows[number]
        first = next(n for n, (u, p, _) in enumerate(self._arrows) if (u, p) == (up, port)) == number
        parts = []
        if above and first:
            x, y = self._leaving(number)
            parts.append(_text(x + 8, y - 6, above, LABEL_PX, "#44525f", halo=True))
        if below:
            x, y = self._entering(number)
            parts.append(_text(x - 12, y + 14, below, LABEL_PX, "#8a5a00", anchor="end", halo=True))
        return "".join(parts)

    def _leaving(self, number: int) -> Point:
        """Where the arrow leaves the shaded group it comes from, or its box if it stays inside."""
        return self._borders.get(number, (None, None))[0] or self._ends(number)[0]

    def _entering(self, number: int) -> Point:
        """Where the arrow enters the shaded group it goes to, or its box."""
        return self._borders.get(number, (None, None))[1] or self._ends(number)[1]


def _grouped(network: Network, planned: Layout | None) -> dict[Name, _Group]:
    """Which boxes are placed together: those of a segment; where a box runs in several, those that run in the same ones."""
    if planned is None:
        return {"all": _Group(list(network))}
    of_box: dict[str, tuple[int, ...]] = {}
    for box in network:
        own = tuple(s.id for s in planned.segments if s.name in (box.name, f"{box.name}.stage") or any(t.box == box.name for t in s.steps))
        if KINDS[box.kind].stateful and own:
            own = own[-1:]  # Its combine step is in the producers, the box itself behind them.
        if not own:
            own = tuple(sorted({s for up, _ in box.inputs for s in of_box[up]}))
        of_box[box.name] = own
    for box in network.of_kind("key_by"):
        if len(readers := network.readers(box.name)) == 1:
            of_box[box.name] = of_box[readers[0].name]
    groups: dict[Name, _Group] = {}
    for box in network:
        group = groups.setdefault(of_box[box.name], _Group([], tuple(planned.segments[i] for i in of_box[box.name])))
        group.boxes.append(box)
    return groups


# ---------------------------------------------------------------- pieces of SVG


def _size(box: Box) -> Item:
    lines = box_lines(box)
    widths = [_text_width(box.name, TITLE_PX, bold=True), *(_text_width(line, LINE_PX) for line in lines)]
    return Item(max(90.0, max(widths) + 2 * PADDING), 30 + len(lines) * LINE_HEIGHT)


def _text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimated width, pixels: without a font at hand, an average letter is 0.55 of its height."""
    wide = sum(0.9 if c in "mwMW@%→" else 0.33 if c in "iljtf.,:;'|()[] " else 0.66 if c.isupper() else 0.58 for c in text)
    return wide * size * (1.16 if bold else 1.0)


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
