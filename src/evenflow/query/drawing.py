"""The drawing under a dataflow: its boxes by name, added, renamed and altered, each checked at once.

It knows boxes and arrows, and nothing of the streams that a user draws with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.check import outcome, stream_type
from evenflow.query.given import box_name
from evenflow.query.kinds.kind import StreamType
from evenflow.query.network import Box, Network
from evenflow.query.user.binding import with_functions
from evenflow.query.user.scope import out_of_reach
from evenflow.sources.then import AfterSource


@dataclass(slots=True)
class Handle:
    """The current name of a box; streams hold it, so that they survive a renaming."""

    name: str


class Arrow(Protocol):
    """What goes into a box: an output port of another one."""

    port: int

    @property
    def flow(self) -> Drawing: ...
    @property
    def box(self) -> Box: ...
    @property
    def type(self) -> StreamType: ...
    @property
    def schema(self) -> pa.Schema: ...


@dataclass(frozen=True, slots=True)
class Aliased:
    """What an alias stands for: an output port of a box, or the table that the box joins with."""

    handle: Handle
    port: int
    table: bool = False


class Drawing:
    """A name and the boxes drawn so far."""

    def __init__(self, name: str) -> None:
        """name: what logs, metrics and pictures call it. Raises QueryError if it is empty."""
        if not name or not isinstance(name, str):
            raise QueryError("a dataflow needs a name, such as Dataflow('sessions')")
        self.name = name
        self._boxes: dict[str, Box] = {}
        self._handles: dict[str, Handle] = {}
        self.aliases: dict[str, list[Aliased]] = {}

    @property
    def network(self) -> Network:
        """The boxes drawn so far, as a value that does not change any more."""
        return Network(self.name, tuple(self._boxes.values()))

    def draw(self, kind: str, params: Mapping[str, Any], inputs: Sequence[Arrow], name: str | None, stem: str) -> Handle:
        """Check a box and draw it. Returns the handle of it. name: or None for the first free one that begins with `stem`."""
        named = self.free(stem) if name is None else box_name(name, stem or kind)
        if named in self._boxes:
            raise QueryError(f"two boxes are called {named!r}; give one of them another name")
        for stream in inputs:
            if stream.flow is not self:
                raise QueryError(
                    f"box {named!r} would join dataflows {stream.flow.name!r} and {self.name!r}; draw both streams in one dataflow"
                )
        params = with_functions(named, kind, params, [stream.schema for stream in inputs])
        with out_of_reach():
            found = outcome(named, kind, params, [stream.type for stream in inputs])
        arrows = tuple((stream.box.name, stream.port) for stream in inputs)
        self._boxes[named] = Box(named, kind, arrows, dict(params), found.schemas, found.event_time, found.watermark_delay_us)
        handle = self._handles[named] = Handle(named)
        return handle

    def free(self, stem: str) -> str:
        """`stem`, or `stem_2`, `stem_3`, ...: the first that no box has."""
        name, number = stem, 1
        while name in self._boxes:
            number += 1
            name = f"{stem}_{number}"
        return name

    def rename(self, handle: Handle, name: str) -> None:
        """Call a box by another name; arrows and streams follow."""
        if not name or not isinstance(name, str):
            raise QueryError(f"box {handle.name!r} cannot be called {name!r}; give it a name that is not empty")
        if name == handle.name:
            return
        if name in self._boxes:
            raise QueryError(f"two boxes would be called {name!r}; give {handle.name!r} another name")
        old = handle.name
        renamed = {}
        for box in self._boxes.values():
            inputs = tuple((name if up == old else up, port) for up, port in box.inputs)
            new = replace(box, inputs=inputs, name=name if box.name == old else box.name)
            renamed[new.name] = new
        self._boxes = {box.name: _after_renamed(box, old, name) for box in renamed.values()}
        self._handles[name] = self._handles.pop(old)
        handle.name = name

    def alter(self, handle: Handle, params: Mapping[str, Any]) -> None:
        """Give a box other parameters, which must not change what comes out of the ports that it has."""
        box = self._boxes[handle.name]
        given = [stream_type(self._boxes[up], port) for up, port in box.inputs]
        self._boxes[box.name] = replace(box, params=dict(params), schemas=outcome(box.name, box.kind, params, given).schemas)

    def take_back(self, handle: Handle) -> Box:
        """Undraw a box that nobody reads. Returns it. Raises QueryError if somebody does."""
        box = self.box_of(handle)
        if any(up == box.name for other in self._boxes.values() for up, _ in other.inputs):
            raise QueryError(f"box {box.name!r} is read by others already; draw what comes after it first")
        del self._boxes[box.name], self._handles[box.name]
        return box

    def box_of(self, handle: Handle) -> Box:
        if self._handles.get(handle.name) is not handle:
            raise QueryError(f"box {handle.name!r} is part of another one by now; go on with the stream that then() has returned")
        return self._boxes[handle.name]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Several boxes are drawn, or none if one of them is wrong."""
        boxes, handles = dict(self._boxes), dict(self._handles)
        try:
            yield
        except BaseException:
            self._boxes, self._handles = boxes, handles
            raise


def _after_renamed(box: Box, old: str, name: str) -> Box:
    """The box; if its source begins after the one of that name, after the new name."""
    source = box.params.get("source")
    if not isinstance(source, AfterSource) or source.after != old:
        return box
    return replace(box, params={**box.params, "source": replace(source, after=name)})
