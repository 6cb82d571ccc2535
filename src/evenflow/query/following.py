"""What `stream.then(...)` draws: one stream, and when it has been given whole, another one.

Two sources that are read inside the sites become one, whose position says in which of them it is. Where Spark pushes the rows of the first
it is a union, whose second part waits for the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from evenflow.errors import QueryError
from evenflow.query.drawing import Drawing, Handle
from evenflow.query.given import box_name
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.judging import naming
from evenflow.query.network import Box
from evenflow.sources.source import Source
from evenflow.sources.then import POSITION, AfterSource, ChainSource, awaited, lacking

S = TypeVar("S", bound=HandledStream)


def draw_then(first: S, second: Any, name: str | None) -> S:
    """See `Stream.then`."""
    flow = first.flow
    box = flow.free("then") if name is None else box_name(name, "then")
    with flow.whole():
        if isinstance(second, Source):
            params = {"source": second, **_weighing(_sources(flow, first.box))}
            second = type(first)(flow, flow.draw("source", params, (), None, second.kind))
        if not isinstance(second, HandledStream):
            raise QueryError(f"box {box!r}: after a stream comes another stream, or a source, not {type(second).__name__} {second!r:.60}")
        if second.flow is not flow:
            raise QueryError(f"box {box!r}: both streams are drawn in one dataflow; {second.box.name!r} is in {second.flow.name!r}")
        given = {found.name: found for found in _sources(flow, first.box)}
        later = {found.name: found for found in _sources(flow, second.box)}
        if both := sorted(given.keys() & later.keys()):
            raise QueryError(f"box {box!r}: source {both[0]!r} cannot come after itself; draw it twice")
        if any(found.params["source"].pushed for found in given.values()):
            _make_wait(flow, box, list(given.values()), list(later.values()))
            if (why := lacking(first.schema, second.schema)) is not None:
                raise QueryError(f"box {box!r}: {why}")
            if second.columns != first.columns:
                second = second._drawn("select", {"columns": tuple((c, c) for c in first.columns)}, (second,), None, "select")
            return first._drawn("union", {}, (first, second), name, "then")
        return _chained(first, second, box, name)


def _sources(flow: Drawing, box: Box) -> Iterator[Box]:
    """The sources above a box, itself if it is one."""
    if box.kind == "source":
        yield box
    for up, _ in box.inputs:
        yield from _sources(flow, flow.network.box(up))


def _make_wait(flow: Drawing, box: str, given: list[Box], later: list[Box]) -> None:
    """Sources of the second stream wait for the end of the first one's."""
    awaited_here = {awaited(found.params["source"]) for found in given}
    last = [found for found in given if found.name not in awaited_here]
    source = last[0].params["source"]
    if len(last) > 1 or not source.pushed:
        raise QueryError(f"box {box!r}: what comes first is one batch DataFrame; unite behind then(), and let other sources come last")
    if source.streaming:
        raise QueryError(f"box {box!r}: the DataFrame of {last[0].name!r} is a stream, so nothing comes after it; give a batch DataFrame")
    for found in later:
        if awaited(found.params["source"]) is not None:
            raise QueryError(f"box {box!r}: source {found.name!r} comes after {awaited(found.params['source'])!r} already")
        flow.alter(Handle(found.name), {**found.params, "source": AfterSource(found.params["source"], last[0].name)})


def _weighing(sources: Iterable[Box]) -> Mapping[str, bool]:
    """The parameter of a source that takes the place of these: rows of one that weighs go on saying what they stand for."""
    return {"weights": True} if any(box.params.get("weights") for box in sources) else {}


def _chained(first: S, second: HandledStream, box: str, name: str | None) -> S:
    """Both sources as one, in the place and with the name of the first."""
    flow = first.flow
    for stream in (first, second):
        if stream.box.kind != "source":
            raise QueryError(
                f"box {box!r}: {stream.box.name!r} is no source; call then() on the sources themselves, and draw everything else behind it"
            )
    boxes = [flow.take_back(stream.handle) for stream in (first, second)]
    with naming(box):
        source = ChainSource(*[found.params["source"] for found in boxes])
    made = type(first)(flow, flow.draw("source", {"source": source, **_weighing(boxes)}, (), boxes[0].name, source.kind))
    columns = tuple((column, column) for column in made.columns if column != POSITION)
    return first._drawn("select", {"columns": columns}, (made,), name, "then")
