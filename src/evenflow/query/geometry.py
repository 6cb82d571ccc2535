"""Where everything stands when a network is drawn from left to right: pixels, and no picture yet.

The boxes of a segment are placed first, then the segments as wholes, with the same method (`layering`). `draw` makes an SVG of it;
`to_json` is for those who draw by themselves, such as a page in a browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.plan.layout import Dealt, Keyed, Layout, Segment, Single
from evenflow.query.kinds import KINDS
from evenflow.query.layering import Item, Name, layered
from evenflow.query.network import Box, Network, is_aside, is_late
from evenflow.query.text import box_lines, columns_text
from evenflow.stream.schema import ddl_of

Point = tuple[float, float]

TITLE_PX: Final = 14
LINE_PX: Final = 11.5
LABEL_PX: Final = 10.5
LINE_HEIGHT: Final = 16.0
PADDING: Final = 12.0
GROUP_PADDING: Final = 18.0
GROUP_TITLE: Final = 24.0
COLUMNS_SHOWN: Final = 4


def geometry_json(network: Network, planned: Layout | None = None) -> dict[str, Any]:
    """The places as plain values, pixels from the upper left corner, rounded to tenths. planned: its segments stand around their boxes.

    width, height: of it all.
    boxes: name, kind, lines (what stands under the name), columns (DDL of each output port), x, y, width, height; in the network's order.
    arrows: start (box), port (of it), end (box), aside (late rows or dead letters), points ([x, y] from end to end), above and below (what
    stands there, or ""); by the box that reads, in the network's order, and then by its inputs.
    groups: segments (ids), title, repeated (the boxes run in each of several segments), x, y, width, height; none without `planned`.
    """
    return Geometry(network, planned).to_json()


@dataclass(slots=True)
class Group:
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


class Geometry:
    """All the places of one picture: of boxes, of what arrows pass, of segments around them, and what is written on arrows."""

    def __init__(self, network: Network, planned: Layout | None) -> None:
        self.network, self.planned = network, planned
        self.groups = _grouped(network, planned)
        self.group_of = {box.name: name for name, group in self.groups.items() for box in group.boxes}
        self.arrows = [(up, port, box.name) for box in network for up, port in box.inputs]
        self.items: dict[str, Item] = {}
        self._paths: dict[int, list[Point]] = {}
        self._level_to: dict[int, float] = {}
        self._borders: dict[int, tuple[Point | None, Point | None]] = {}
        self.shades: dict[Name, Item] = {}
        self._put()

    # ------------------------------------------------ places

    def _put(self) -> None:
        """Boxes inside their groups, groups on the sheet, then both together."""
        inner: dict[Name, dict[str, Item]] = {}
        ends: dict[Name, dict[int, list[Point]]] = {}
        for name, group in self.groups.items():
            inner[name], ends[name], self.shades[name] = self._inside(name, group)
        outer = [(n, self.group_of[up], self.group_of[to]) for n, (up, _, to) in enumerate(self.arrows)]
        crossing = [(n, a, b) for n, a, b in outer if a != b]
        room = [self._label_width(n) + 56 for n, _, _ in crossing]
        placed = layered(self.shades, [(a, b) for _, a, b in crossing], room, row_gap=26)
        for name, group in self.groups.items():
            shade = self.shades[name]
            for box in group.boxes:
                item = inner[name][box.name]
                self.items[box.name] = Item(item.width, item.height, item.x + shade.x, item.y + shade.y)
        bends = {n: list(placed.bends[i]) for i, (n, _, _) in enumerate(crossing)}
        for number, start, end in outer:
            self._level_to[number] = self._level_to.get(number, 0.0) + self.shades[start].x
            moved = [[(x + self.shades[g].x, y + self.shades[g].y) for x, y in ends[g].get(number, [])] for g in (start, end)]
            self._paths[number] = moved[0] if start == end else [*moved[0], *bends[number], *moved[1]]
            if start != end and not moved[0]:
                self._level_to[number] = placed.edges[start]
            elif start != end:
                self._paths[number].insert(len(moved[0]), (placed.edges[start], moved[0][-1][1]))
            if start != end:
                self._borders[number] = (moved[0][-1] if moved[0] else None, moved[1][0] if moved[1] else None)
        self.width, self.height = placed.width, placed.height

    def _inside(self, name: Name, group: Group) -> tuple[dict[str, Item], dict[int, list[Point]], Item]:
        """Places in one group: boxes, points that arrows pass inside of it (to its border if they leave), and its size."""
        items: dict[Name, Item] = {box.name: _size(box) for box in group.boxes}
        arrows: list[tuple[Name, Name]] = []
        numbers: list[int] = []
        entries: list[Name] = []
        exits: list[Name] = []
        for number, (up, _, to) in enumerate(self.arrows):
            here = (self.group_of[up] == name, self.group_of[to] == name)
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
        inside = [start in self.group_of and end in self.group_of for start, end in arrows]
        room = [self._label_width(n) + 40 if both else 0.0 for n, both in zip(numbers, inside, strict=True)]
        placed = layered(items, arrows, room, row_gap=22, first=entries, last=exits)
        side, top = (GROUP_PADDING, GROUP_TITLE + 6) if group.shaded else (0.0, 0.0)
        bottom = GROUP_PADDING if group.shaded else 0.0
        for item in items.values():
            item.x, item.y = item.x + side, item.y + top
        width, height = placed.width + 2 * side, placed.height + top + bottom
        if group.shaded:
            width = max(width, text_width(group.title, LABEL_PX) + 2 * side)
        points: dict[int, list[Point]] = {}
        for i, number in enumerate(numbers):
            start, end = arrows[i]
            through = [(x + side, y + top) for x, y in placed.bends[i]]
            if start in self.group_of:
                self._level_to[number] = placed.edges[start] + side
            before = [(0.0, items[start].middle)] if start in entries else []
            after = [(width, items[end].middle)] if end in exits else []
            points[number] = [*before, *through, *after]
        return {box.name: items[box.name] for box in group.boxes}, points, Item(width, height)

    def _label_width(self, number: int) -> float:
        """Room for both labels of an arrow, side by side."""
        return sum(text_width(text, LABEL_PX) + 14 for text in self.labels(number) if text)

    def labels(self, number: int) -> tuple[str, str]:
        """What stands above and below an arrow: the columns, where they are new, and the way through the exchange."""
        up, port, to = self.arrows[number]
        box = self.network.box(up)
        schema = box.schemas[port]
        same = port == 0 and any(schema.names == given.names for given in self.network.input_schemas(box))
        text = "" if same else columns_text(schema, COLUMNS_SHOWN)
        above = f"{'late' if is_late(box, port) else 'failed'}: {text or 'rows'}" if is_aside(box, port) else text
        return above, "" if self.group_of[up] == self.group_of[to] else self._route(to, (up, port))

    def _route(self, to: str, source: tuple[str, int]) -> str:
        box = self.network.box(to)
        if box.kind == "join":
            join = box.params["join"]
            return f"by {', '.join(join.left_keys if source == box.inputs[0] else join.right_keys)}"
        keys: Sequence[str] = (
            box.params.get("keys", box.params.get("columns", ())) if box.kind == "key_by" or KINDS[box.kind].stateful else ()
        )
        if keys:
            return f"by {', '.join(keys)}"
        if self.planned is None:
            return ""
        consumers = {s.id: s for s in self.groups[self.group_of[to]].segments}
        routes = [arc.route for arc in self.planned.arcs if arc.consumer in consumers and arc.producer not in consumers]
        if not routes or box.kind in ("union", "filter", "select", "watermark", "table_join"):
            return ""
        route = routes[0]
        if isinstance(route, Keyed):
            return f"by {', '.join(route.columns)}"
        return "to one partition" if isinstance(route, Single) else "dealt out" if isinstance(route, Dealt) else "spread"

    def ends(self, number: int) -> tuple[Point, Point]:
        """Where an arrow leaves and arrives: arrows at one side of a box are spread over it, the late rows' lowest."""
        up, port, to = self.arrows[number]
        start, end = self.items[up], self.items[to]
        ports = sorted({p for u, p, _ in self.arrows if u == up})
        return (start.x + start.width, start.y + start.height * (ports.index(port) + 1) / (len(ports) + 1)), (end.x, end.middle)

    def points(self, number: int) -> list[Point]:
        """What an arrow passes from end to end. It is level where its labels stand, and up to the end of its column."""
        above, below = self.labels(number)
        start, end = self.ends(number)
        leaving, entering = self.leaving(number), self.entering(number)
        points: list[Point] = []
        for point in [start, (self._level_to[number], start[1]), *self._paths[number], end]:
            if point == entering and below:
                points.append((point[0] - text_width(below, LABEL_PX) - 20, point[1]))
            if not points or point[0] > points[-1][0] or point[1] != points[-1][1]:
                points.append(point)
            if point == leaving and above:
                points.append((point[0] + text_width(above, LABEL_PX) + 14, point[1]))
        return points

    def leaving(self, number: int) -> Point:
        """Where the arrow leaves the shaded group it comes from, or its box if it stays inside."""
        return self._borders.get(number, (None, None))[0] or self.ends(number)[0]

    def entering(self, number: int) -> Point:
        """Where the arrow enters the shaded group it goes to, or its box."""
        return self._borders.get(number, (None, None))[1] or self.ends(number)[1]

    def to_json(self) -> dict[str, Any]:
        """See `geometry_json`."""
        boxes = [
            {"name": box.name, "kind": box.kind, "lines": list(box_lines(box)), "columns": [ddl_of(each) for each in box.schemas]}
            | _place(self.items[box.name])
            for box in self.network
        ]
        arrows = []
        for number, (up, port, to) in enumerate(self.arrows):
            above, below = self.labels(number)
            points = [[round(x, 1), round(y, 1)] for x, y in self.points(number)]
            aside = is_aside(self.network.box(up), port)
            arrows.append({"start": up, "port": port, "end": to, "aside": aside, "points": points, "above": above, "below": below})
        groups = [
            {"segments": [segment.id for segment in group.segments], "title": group.title, "repeated": group.repeated}
            | _place(self.shades[name])
            for name, group in self.groups.items()
            if group.shaded
        ]
        return {"width": round(self.width, 1), "height": round(self.height, 1), "boxes": boxes, "arrows": arrows, "groups": groups}


def _grouped(network: Network, planned: Layout | None) -> dict[Name, Group]:
    """Which boxes are placed together: those of a segment; where a box runs in several, those that run in the same ones."""
    if planned is None:
        return {"all": Group(list(network))}
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
    groups: dict[Name, Group] = {}
    for box in network:
        group = groups.setdefault(of_box[box.name], Group([], tuple(planned.segments[i] for i in of_box[box.name])))
        group.boxes.append(box)
    return groups


def _size(box: Box) -> Item:
    lines = box_lines(box)
    widths = [text_width(box.name, TITLE_PX, bold=True), *(text_width(line, LINE_PX) for line in lines)]
    return Item(max(90.0, max(widths) + 2 * PADDING), 30 + len(lines) * LINE_HEIGHT)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimated width, pixels: without a font at hand, an average letter is 0.55 of its height."""
    wide = sum(0.9 if c in "mwMW@%→" else 0.33 if c in "iljtf.,:;'|()[] " else 0.66 if c.isupper() else 0.58 for c in text)
    return wide * size * (1.16 if bold else 1.0)


def _place(item: Item) -> dict[str, float]:
    return {"x": round(item.x, 1), "y": round(item.y, 1), "width": round(item.width, 1), "height": round(item.height, 1)}
