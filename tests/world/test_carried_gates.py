"""What a savepoint has of windows and sessions of whose rows some were left out is taken over by a program that holds back the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evenflow as ef
from evenflow.availability.content import Content
from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.errors import LocationError
from evenflow.query.planner import layout
from evenflow.query.structure import Structure, as_written
from evenflow.world.locations.carrying import Carried, carried

QOS = ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
LOST = [[0, 500, 2**30]]
Program = Callable[[Any], None]


def sessions(*columns: str, qos: bool = True, name: str = "visits") -> Program:
    def build(stream: Any) -> None:
        out = stream.group_by(*columns).session("1 second").agg(n="count(*)").name(name)
        out.to(ef.sinks.memory(f"of {name}"), name=f"of {name}", qos=QOS if qos else None)

    return build


def windows(*, qos: bool = True) -> Program:
    def build(stream: Any) -> None:
        out = stream.group_by("key").window("1 minute").agg(n="count(*)").name("visits")
        out.to(ef.sinks.memory("out"), name="out", qos=QOS if qos else None)

    return build


def rows_only(stream: Any) -> None:
    stream.where("value > 3").name("large").to(ef.sinks.memory("rows"), name="rows", qos=QOS)


def program(*of: Program) -> Structure:
    flow = ef.Dataflow("carried")
    source = ef.sources.generator(rate=100, keys=4, rows=100, partitions=2).begun(1_000_000)
    stream = flow.source(source, name="in").with_watermark("ts", "1 second")
    for each in of:
        each(stream)
    return as_written(layout(flow.network, sites=2, partitions=4))


def take_over(before: Structure, now: Structure, *drop: str, lost: object = LOST, state: bool = True) -> Carried:
    """lost: what every piece says that rows may be missing of. state: boxes of aggregates have some."""
    pieces = []
    for number, segment in enumerate(before["segments"]):
        stateful = [
            step for step, of in enumerate(segment["steps"]) if of["kind"] == "aggregate" and segment["kind"] != "ingress" and state
        ]
        objects = tuple(StoredObject(f"state/{number}-{step}", step, 5, 100, "0" * 32) for step in stateful)
        facts = {"epoch": 9, "watermark": 7, "logs": {}, "digests": [], **({"lost": lost} if lost else {})}
        pieces.append(Piece(number, 0, tuple(range(segment["partitions"])), facts, objects))
    return carried(Completed(1, 9, tuple(pieces)), Content(1), before, now, drop)


CASES: dict[str, tuple[list[Program], list[Program], str]] = {
    "without qos": ([sessions("key")], [sessions("key", qos=False)], "hold back nothing"),
    "windows without qos": ([windows()], [windows(qos=False)], "hold back nothing"),
    "a unit with fewer columns": (
        [sessions("key", "value")],
        [sessions("key", "value"), sessions("key", name="users")],
        "hold back other results",
    ),
    "keys, and no windows": ([windows()], [windows(), sessions("key", name="users")], "hold back other results"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("state", [True, False])
def test_parts_are_not_taken_over_by_who_does_not_hold_them_back(case: str, state: bool) -> None:
    """Goal: no result comes that misses rows. Method: with and without state of the box: a key of which all rows were left out has none."""
    before, now, says = CASES[case]
    found = take_over(program(*before), program(*now), state=state)
    assert [each.box for each in found.boxes if each.fate == "changed"] == ["visits"]
    with pytest.raises(LocationError, match=rf"box 'visits' \(aggregate\): rows before it were left out.*{says}.*drop_state=\['visits'\]"):
        found.demand("there")
    dropped = take_over(program(*before), program(*now), "visits", state=state)
    assert dropped.whole and "dropped" in [each.fate for each in dropped.boxes if (each.box, each.kind) == ("visits", "aggregate")]


@pytest.mark.parametrize("case", CASES)
def test_where_nothing_is_missing_they_are(case: str) -> None:
    before, now, _ = CASES[case]
    assert take_over(program(*before), program(*now), lost=None).whole


def test_who_holds_back_the_same_takes_them_over() -> None:
    found = take_over(program(sessions("key")), program(rows_only, sessions("key")))
    assert found.whole and [each.fate for each in found.boxes if (each.box, each.kind) == ("visits", "aggregate")] == ["kept"]
    assert any(piece.facts.get("lost") == LOST for piece in found.made.pieces)
