"""What an editor does with a document besides judging it: boxes put in order, and a statement of SQL made into boxes.

A document is the JSON of a network (`serial`), in which a box may have more keys: `at`, where it is drawn, and `cell`, the SQL cell that
it came from; `cells` has the text of each. Readers of networks leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenflow.errors import QueryError
from evenflow.query.builder import Dataflow
from evenflow.query.checking import Checker
from evenflow.query.layering import Item, layered
from evenflow.query.network import Network
from evenflow.query.script import sql
from evenflow.query.serial import box_to_json

WIDTH: Final = 190.0
HEIGHT: Final = 74.0
BETWEEN: Final = 48.0
ROW_GAP: Final = 30.0


def tidied(document: Mapping[str, Any], sizes: Mapping[str, Sequence[float]] | None = None) -> dict[str, list[float]]:
    """The upper left corner of each box, in columns from left to right. sizes: width and height by box, where they are known.

    Boxes may be wrong: arrows that lead nowhere, or back, do not count.
    """
    boxes = [data for data in document["boxes"] if isinstance(data, dict) and isinstance(data.get("name"), str)]
    items: dict[Any, Item] = {}
    for data in boxes:
        width, height = (sizes or {}).get(data["name"], (WIDTH, HEIGHT))
        items[data["name"]] = Item(float(width), float(height))
    arrows: list[tuple[Any, Any]] = []
    below: dict[str, set[str]] = {}
    for data in boxes:
        for up in dict.fromkeys(arrow[0] for arrow in data.get("inputs", ()) if isinstance(arrow, list) and arrow):
            if up in items and not _leads(below, data["name"], up):
                arrows.append((up, data["name"]))
                below.setdefault(up, set()).add(data["name"])
    placed = layered(items, arrows, [BETWEEN] * len(arrows), row_gap=ROW_GAP)
    return {str(name): [round(item.x, 1), round(item.y, 1)] for name, item in placed.items.items()}


def _leads(below: Mapping[str, set[str]], start: str, end: str) -> bool:
    """Whether there is a way from one box to the other, or both are one."""
    found, waiting = {start}, [start]
    while waiting:
        for name in below.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return end in found


def with_cell(document: Mapping[str, Any], checker: Checker, cell: str, text: str) -> dict[str, Any]:
    """The document with the boxes of a statement in the place of those that the cell had. The last one has the cell's name, so that whoever
    reads it goes on. FROM may name any box that is right. Raises QueryError for a text that is wrong; then nothing is changed."""
    if not cell.strip():
        raise QueryError("a cell of SQL needs a name, which its result has")
    kept = [data for data in document["boxes"] if not (isinstance(data, dict) and data.get("cell") == cell)]
    if any(isinstance(data, dict) and data.get("name") == cell for data in kept):
        raise QueryError(f"a box is called {cell!r} already; give the cell another name")
    after = _after(document, cell)
    before = {**document, "boxes": [data for data in kept if not (isinstance(data, dict) and data.get("name") in after)]}
    boxes = [judged.box for judged in checker.check(before).boxes if judged.state == "right" and judged.box is not None]
    flow = Dataflow.from_network(Network(str(document.get("name", "dataflow")), tuple(boxes)))
    names = {box.name for box in boxes}
    taken = {str(data.get("name")) for data in kept if isinstance(data, dict)} - names
    with flow.whole():
        last = sql(text, {box.name: flow.stream(box.name) for box in boxes if box.schemas})
        if last.flow is flow and last.box.name not in names:
            last.name(cell)
    if last.flow is not flow:
        raise QueryError("the statement names none of the boxes: write SELECT ... FROM the name of one")
    made = [{**box_to_json(box), "cell": cell} for box in flow.network if box.name not in names]
    if clash := sorted({str(data["name"]) for data in made} & taken):
        raise QueryError(f"a box is called {clash[0]!r} already, and the statement would make another one; rename it")
    cells = document.get("cells")
    return {**document, "boxes": [*kept, *made], "cells": {**(cells if isinstance(cells, dict) else {}), cell: text}}


def _after(document: Mapping[str, Any], cell: str) -> set[str]:
    """Boxes behind those of a cell: it cannot read them."""
    found = {str(data["name"]) for data in document["boxes"] if isinstance(data, dict) and data.get("cell") == cell}
    grown = True
    while grown:
        grown = False
        for data in document["boxes"]:
            if not isinstance(data, dict) or data.get("name") in found:
                continue
            if any(isinstance(arrow, list) and arrow and arrow[0] in found for arrow in data.get("inputs", ())):
                found.add(str(data["name"]))
                grown = True
    return found


__all__ = ["tidied", "with_cell"]
