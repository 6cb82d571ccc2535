"""The picture is well-formed, shows every box once, and nothing stands on anything else."""

from __future__ import annotations

import itertools
import json
import re
from xml.etree import ElementTree

import pytest

import evenflow as ef
from evenflow.query.draw import to_svg
from evenflow.query.geometry import geometry_json
from evenflow.query.layering import Item, layered
from evenflow.query.planner import layout
from tests.query.networks import packets, session_monitor
from tests.query.test_planner import finished, two_feeds

SVG = "{http://www.w3.org/2000/svg}"
Place = tuple[float, float, float, float]


def place(rect: ElementTree.Element) -> Place:
    x, y, width, height = (float(rect.get(key, "nan")) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def overlap(one: Place, other: Place) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inside(small: Place, large: Place) -> bool:
    return large[0] <= small[0] and large[1] <= small[1] and small[2] <= large[2] and small[3] <= large[3]


def boxes_of(root: ElementTree.Element) -> dict[str, Place]:
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class") == "box"]
    return {g.get("data-box", ""): place(g.find(f"{SVG}rect")) for g in groups}


def along(path: str) -> list[tuple[float, float]]:
    """Points on a path of lines and cubic curves, close together."""
    points: list[tuple[float, float]] = []
    for letter, numbers in re.findall(r"([MLC])([^MLC]+)", path):
        values = [float(v) for v in numbers.split()]
        ends = list(zip(values[::2], values[1::2], strict=True))
        if letter == "M":
            points += ends
            continue
        start = points[-1]
        corners = [start, *ends] if letter == "C" else [start, start, ends[0], ends[0]]
        for step in range(1, 41):
            t = step / 40
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            x, y = (sum(w * corner[axis] for w, corner in zip(weights, corners, strict=True)) for axis in (0, 1))
            points.append((x, y))
    return points


def unfinished() -> ef.Dataflow:
    flow = ef.Dataflow("half & <half>")
    packets(flow).where("length < 3 and src <> '&'").group_by("src").agg(n="count(*)")
    return flow


def wide() -> ef.Dataflow:
    flow = ef.Dataflow("wide")
    rows = packets(flow)
    parts = [rows.where(f"proto = {n}") for n in range(5)]
    whole = parts[0].union(*parts[1:], rows)
    for n, part in enumerate([*parts, whole]):
        part.group_by("src").agg(n="count(*)").to(ef.sinks.memory(f"m{n}"), name=f"out {n}")
    return flow


FLOWS = [session_monitor, unfinished, wide, lambda: finished(two_feeds()[1])]


@pytest.mark.parametrize("draw", FLOWS, ids=["sessions", "unfinished", "wide", "feeds"])
def test_every_box_is_there_and_none_stands_on_another(draw) -> None:
    flow = draw()
    root = ElementTree.fromstring(flow.to_svg())
    boxes = boxes_of(root)
    assert boxes.keys() == {box.name for box in flow.network}
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {*boxes, flow.name} <= texts
    assert [pair for pair in itertools.combinations(boxes, 2) if overlap(boxes[pair[0]], boxes[pair[1]])] == []
    shades = [place(rect) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "segment"]
    assert not any(overlap(a, b) for a, b in itertools.combinations(shades, 2))
    for shade in shades:
        assert all(inside(box, shade) or not overlap(box, shade) for box in boxes.values())
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(box[2] < width and box[3] < height for box in boxes.values())


@pytest.mark.parametrize("draw", FLOWS, ids=["sessions", "unfinished", "wide", "feeds"])
def test_arrows_lead_to_the_right_and_pass_over_no_box(draw) -> None:
    root = ElementTree.fromstring(draw().to_svg())
    boxes = boxes_of(root)
    arrows = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == sum(len(box.inputs) for box in draw().network)
    for arrow in arrows:
        points = along(arrow.get("d", ""))
        assert points[0][0] < points[-1][0]
        assert [(n, x, y) for n, b in boxes.items() for x, y in points if b[0] + 1 < x < b[2] - 1 and b[1] + 1 < y < b[3] - 1] == []


def test_arrows_say_columns_keys_and_late_rows() -> None:
    svg = session_monitor().to_svg()
    for label in (">ts, src, dst, +3<", ">by src, dst<", ">by app, src<", ">spread<", ">to one partition<", ">late: ts, src, dst, +3<"):
        assert label in svg
    assert "<title>ts timestamp, src string, app string, dur double</title>" in svg
    assert "segment 0 · ingress · 3 partitions" in svg


def test_segments_are_shaded_only_when_they_are_known() -> None:
    assert 'class="segment"' in session_monitor().to_svg()
    assert 'class="segment"' not in unfinished().to_svg()


def test_a_picture_is_a_function_of_the_network() -> None:
    assert session_monitor().to_svg() == session_monitor().to_svg()


def test_an_arrow_over_a_column_bends_round_what_stands_there() -> None:
    items = {name: Item(10, 10) for name in "abc"}
    placed = layered(items, [("a", "b"), ("b", "c"), ("a", "c")], [20, 20, 20], row_gap=5)
    before, behind = placed.bends[2]
    middle = placed.items["b"]
    assert before[1] == behind[1] and not middle.y <= before[1] <= middle.y + middle.height
    assert (before[0], behind[0]) == (middle.x, middle.x + middle.width)
    assert [placed.items[name].x for name in "abc"] == [0, 30, 60]


@pytest.mark.parametrize("draw", FLOWS, ids=["sessions", "unfinished", "wide", "feeds"])
def test_geometry_is_where_the_picture_has_it(draw) -> None:
    flow = draw()
    planned = layout(flow.network, sites=2, partitions=4) if draw is not unfinished else None
    told = geometry_json(flow.network, planned)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    root = ElementTree.fromstring(to_svg(flow.network, planned))
    drawn = boxes_of(root)
    assert {box["name"]: (box["x"], box["y"]) for box in told["boxes"]} == {name: (at[0], at[1]) for name, at in drawn.items()}
    assert [(arrow["start"], arrow["port"], arrow["end"]) for arrow in told["arrows"]] == [
        (up, port, box.name) for box in flow.network for up, port in box.inputs
    ]
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert [tuple(arrow["points"][0]) for arrow in told["arrows"]] == [along(path)[0] for path in paths]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= told["width"] + 0.1 for box in told["boxes"])
    assert bool(told["groups"]) == (planned is not None)
