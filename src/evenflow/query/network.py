"""The query network: boxes and arrows, as data.

A `Box` is one operator as the user drew it; an arrow goes from an output port of one box to another box. A `Network` is a set of
boxes whose shape is right: names are unique, arrows lead somewhere, nothing goes in circles. What a box means for columns and
types is decided in `kinds`, how it is written by hand in `builder`, and how it runs in `planner`. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.kinds import KINDS

LATE_PORT: Final = 1
"""Output port of a keyed box that has the rows it judged late; of a join, those of its left."""

RIGHT_LATE_PORT: Final = 2
"""Output port of a join that has the late rows of its right."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box of the network.

    inputs: (box name, output port) of each arrow into it. params: those of the kind, see `kinds`. schemas: one per output
    port; a sink has none. event_time: the event-time column of port 0, if its stream carries a watermark, and
    watermark_delay_us: how far that watermark stays behind, microseconds.
    """

    name: str
    kind: str
    inputs: tuple[tuple[str, int], ...]
    params: Mapping[str, Any]
    schemas: tuple[pa.Schema, ...]
    event_time: str | None = None
    watermark_delay_us: int | None = None


def dead_letter_port(kind: str, params: Mapping[str, Any]) -> int | None:
    """The output port with the rows on which a box of that kind raises, behind all its others; None where such a row ends the run."""
    return KINDS[kind].of_step(params).ports() if "on_error" in params else None


def is_dead_letter(box: Box, port: int) -> bool:
    """Whether a port has the rows on which the box raises."""
    return dead_letter_port(box.kind, box.params) == port


def is_late(box: Box, port: int) -> bool:
    """Whether a port has late rows. A case has an output per condition instead."""
    return port >= LATE_PORT and box.kind != "case" and not is_dead_letter(box, port)


def is_aside(box: Box, port: int) -> bool:
    """Whether a port has rows that were put aside, late ones or dead letters. They may be left alone, and are then counted and dropped."""
    return is_late(box, port) or is_dead_letter(box, port)


def port_suffix(box: Box, port: int) -> str:
    """What goes behind a box's name where a port of it is meant."""
    if is_dead_letter(box, port):
        return ".dead_letters"
    if box.kind == "case":
        return f".{port}"
    return ".late" if is_late(box, port) else ""


@dataclass(frozen=True)
class Network:
    """A checked set of boxes, kept in topological order; among equals the order they were given in.

    Raises QueryError if a name is used twice, an arrow comes from nowhere, a box has a wrong number of inputs, something reads
    from a sink, or the boxes form a cycle (then it names the boxes on it).
    """

    name: str
    boxes: tuple[Box, ...]
    _by_name: dict[str, Box] = field(init=False, repr=False, compare=False)
    _readers: dict[str, tuple[Box, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name: dict[str, Box] = {}
        for box in self.boxes:
            if box.name in by_name:
                raise QueryError(f"two boxes are called {box.name!r}; give one of them another name with .name(...)")
            by_name[box.name] = box
        for box in self.boxes:
            _check_arrows(box, by_name)
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "boxes", _topological(self.boxes, by_name))
        readers: dict[str, dict[str, Box]] = {}
        for box in self.boxes:
            for up, _ in box.inputs:
                readers.setdefault(up, {})[box.name] = box
        object.__setattr__(self, "_readers", {up: tuple(found.values()) for up, found in readers.items()})

    def __iter__(self) -> Iterator[Box]:
        return iter(self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def box(self, name: str) -> Box:
        """The box of that name, or QueryError with the names that exist."""
        try:
            return self._by_name[name]
        except KeyError:
            raise QueryError(f"no box is called {name!r}; there are {', '.join(map(repr, self._by_name))}") from None

    def readers(self, name: str, port: int | None = None) -> tuple[Box, ...]:
        """Boxes that read from the box (from that output port of it, if given), in topological order."""
        found = self._readers.get(name, ())
        return found if port is None else tuple(box for box in found if any(up == name and p == port for up, p in box.inputs))

    def input_schemas(self, box: Box) -> tuple[pa.Schema, ...]:
        """Schema of each arrow into the box."""
        return tuple(self._by_name[up].schemas[port] for up, port in box.inputs)

    def of_kind(self, kind: str) -> tuple[Box, ...]:
        return tuple(box for box in self.boxes if box.kind == kind)

    def dangling(self) -> tuple[Box, ...]:
        """Boxes of which nobody reads anything. Late rows and dead letters may be left alone, they are then counted and dropped."""
        return tuple(box for box in self.boxes if box.kind != "sink" and not self.readers(box.name))

    def check_complete(self) -> None:
        """Raise QueryError unless every box leads to a sink, so that the network is fit to run."""
        if not self.boxes:
            raise QueryError(f"dataflow {self.name!r} is empty; begin with .source(...) and end with .to(sink)")
        if loose := self.dangling():
            names = ", ".join(repr(box.name) for box in loose)
            verb = "leads" if len(loose) == 1 else "lead"
            raise QueryError(
                f"dataflow {self.name!r}: {names} {verb} to no sink; "
                "end it with .to(sink), for example .to(evenflow.sinks.discard()), or leave it out"
            )


def _check_arrows(box: Box, by_name: Mapping[str, Box]) -> None:
    if not box.name or not isinstance(box.name, str):
        raise QueryError(f"a box of kind {box.kind!r} has no name; give it one")
    if not isinstance(box.kind, str) or box.kind not in KINDS:
        raise QueryError(f"box {box.name!r}: kind {box.kind!r} is unknown; it must be one of {', '.join(KINDS)}")
    least, most = KINDS[box.kind].inputs
    if len(box.inputs) < least or (most is not None and len(box.inputs) > most):
        wanted = f"{least}" if least == most else f"at least {least}"
        raise QueryError(f"box {box.name!r} ({box.kind}) has {len(box.inputs)} inputs; it must have {wanted}")
    for up, port in box.inputs:
        if up not in by_name:
            raise QueryError(f"box {box.name!r} reads from {up!r}, which does not exist; add that box or correct the name")
        if not 0 <= port < len(by_name[up].schemas):
            has = len(by_name[up].schemas)
            raise QueryError(f"box {box.name!r} reads output {port} of {up!r}, which has {has}; correct the port")


def _topological(boxes: tuple[Box, ...], by_name: Mapping[str, Box]) -> tuple[Box, ...]:
    """Boxes so that everyone comes after its inputs, otherwise in the given order. QueryError names a cycle."""
    placed: dict[str, Box] = {}
    waiting = list(boxes)
    while waiting:
        ready = next((b for b in waiting if all(up in placed for up, _ in b.inputs)), None)
        if ready is None:
            circle = _cycle(waiting[0], placed, by_name)
            path = " -> ".join(repr(n) for n in [*circle, circle[0]])
            raise QueryError(f"the boxes {path} form a cycle; a dataflow must lead from its sources to its sinks: remove one arrow")
        placed[ready.name] = ready
        waiting.remove(ready)
    return tuple(placed.values())


def _cycle(start: Box, placed: Mapping[str, Box], by_name: Mapping[str, Box]) -> list[str]:
    """Names on a cycle upstream of a box that can never be placed, in the direction of the arrows."""
    path: list[str] = []
    box = start
    while box.name not in path:
        path.append(box.name)
        box = next(by_name[up] for up, _ in box.inputs if up not in placed)
    circle = path[path.index(box.name) :][::-1]
    first = min(circle, key=list(by_name).index)
    return circle[circle.index(first) :] + circle[: circle.index(first)]
