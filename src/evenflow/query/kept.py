"""A network in which DataFrames are files: where a run may be gone on with, what Spark would push has to be there to be read again.

Behind `then` the union whose second part waits for the DataFrame becomes one source of both, as if the files had been drawn: its position
says in which of the two a row is (`evenflow.sources.then`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.network import Box, Network
from evenflow.sources.source import Source
from evenflow.sources.then import POSITION, AfterSource, ChainSource, awaited


def batches(network: Network) -> list[Box]:
    """The sources that are batch DataFrames, those that wait for others included."""
    return [box for box in network.of_kind("source") if _source(box).pushed and not _source(box).streaming]


def streams(network: Network) -> list[Box]:
    """The sources that are streaming DataFrames, and wait for no other."""
    found = [box for box in network.of_kind("source") if _source(box).pushed and _source(box).streaming]
    return [box for box in found if awaited(_source(box)) is None]


def kept(network: Network, files: Mapping[str, Source]) -> Network:
    """The same with these sources instead of the boxes' own. files: by box, for all of `batches` and `streams`. Raises QueryError."""
    boxes = {box.name: box for box in network}
    for name, source in files.items():
        first = awaited(_source(boxes[name]))
        boxes[name] = _with_source(boxes[name], source if first is None else AfterSource(source, first))
    for name in files:
        waiting = [box for box in boxes.values() if box.kind == "source" and awaited(_source(box)) == name]
        if waiting:
            _chain(boxes, boxes[name], waiting)
    return Network(network.name, tuple(boxes.values()))


def _source(box: Box) -> Source:
    source: Source = box.params["source"]
    return source


def _with_source(box: Box, source: Source) -> Box:
    return replace(box, params={**box.params, "source": source}, schemas=(source.schema,))


def _chain(boxes: dict[str, Box], first: Box, waiting: list[Box]) -> None:
    """Make one source of the first and of what waits for it, and a select of the union."""
    union, between = _below(boxes, first, waiting)
    source, after = _source(first), _source(waiting[0])
    assert isinstance(after, AfterSource)
    if after.source.pushed:
        raise QueryError(
            f"box {waiting[0].name!r}: behind a batch DataFrame and with a checkpoint location comes a source that the sites read, such as "
            "ef.sources.kafka; a streaming DataFrame is a source of its own there: unite the two streams instead"
        )
    if not after.source.kept:
        raise QueryError(
            f"box {waiting[0].name!r}: behind a batch DataFrame and with a checkpoint location a source has durability 'kept': a restart "
            "reads the two as one, and cannot go on without rows of the second only"
        )
    chain = ChainSource(source, after.source)
    boxes[first.name] = _with_source(first, chain)
    columns = [field for field in chain.schema if field.name != POSITION]
    named = {"columns": tuple((field.name, field.name) for field in columns)}
    boxes[union.name] = Box(union.name, "select", ((first.name, 0),), named, (pa.schema(columns),))
    for gone in (waiting[0].name, *between):
        del boxes[gone]


def _below(boxes: Mapping[str, Box], first: Box, waiting: list[Box]) -> tuple[Box, list[str]]:
    """The union of the two, and what is between the second source and it. Raises QueryError where other boxes read them, too."""
    readers = {name: [box for box in boxes.values() if name in (up for up, _ in box.inputs)] for name in boxes}
    union, second, between = readers[first.name], waiting[0].name, list[str]()
    while len(readers[second]) == 1 and (below := readers[second][0]).kind == "select" and len(union) == 1 and below is not union[0]:
        if any(name != column for name, column in below.params["columns"]):
            break
        between.append(below.name)
        second = below.name
    if len(waiting) > 1 or len(union) != 1 or readers[second] != union or len(union[0].inputs) != 2:
        raise QueryError(
            f"box {first.name!r}: with a checkpoint location a batch DataFrame and what comes after it become one source, so give then() a "
            "source itself, and draw everything else behind it"
        )
    return union[0], between


__all__ = ["batches", "kept", "streams"]
