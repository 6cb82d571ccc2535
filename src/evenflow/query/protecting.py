"""What boxes ask for of availability, and the segments that have it: a segment is lost as a whole, so its boxes must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evenflow.availability.guarantee import Guarantee, OperatorClass, guarantee_named
from evenflow.availability.mode import Mode, mode_named
from evenflow.errors import AvailabilityError
from evenflow.plan.layout import Segment
from evenflow.query.faults import about
from evenflow.query.kinds import read
from evenflow.query.network import Box, Network, is_aside

AVAILABILITY: Final = "availability"
"""The parameter that a box may have of any kind but these:"""
LEADING: Final = ("key_by", "union")
STEPS: Final[Mapping[str, Sequence[str]]] = {"sort": ("order",), "sink": ("discard", "stage", "commit")}
"""Kinds of steps by which a box of that kind runs, where they are called otherwise."""


def asked(box: Box) -> Mode | None:
    """The mode that a box asks for, None if it leaves that to the dataflow."""
    said = box.params.get(AVAILABILITY)
    return None if said is None else mode_named(said, f"box {box.name!r}")


def check_asked(name: str, params: Mapping[str, Any]) -> None:
    """Raise AvailabilityError for a mode that there is not."""
    if params.get(AVAILABILITY) is not None:
        with about(AVAILABILITY):
            mode_named(params[AVAILABILITY], f"box {name!r}")


def modes_asked(network: Network, segments: Sequence[Segment]) -> Mapping[int, Mode]:
    """By segment, what its boxes ask for. Raises AvailabilityError where two ask for different modes, or a box is in no segment of its own
    since it only joins arrows."""
    wanted = {box.name: mode for box in network if (mode := asked(box)) is not None}
    kinds = {box.name: box.kind for box in network}
    found: dict[int, Mode] = {}
    because: dict[int, str] = {}
    placed: set[str] = set()
    for segment in segments if wanted else ():
        for box in _own(segment, kinds):
            if box not in wanted:
                continue
            placed.add(box)
            other = found.setdefault(segment.id, wanted[box])
            first = because.setdefault(segment.id, box)
            if other is not wanted[box]:
                raise AvailabilityError(
                    f"boxes {first!r} and {box!r} run together, and ask for availability {str(other)!r} and {str(wanted[box])!r}: "
                    "give both the same"
                )
    for name in wanted:
        if name not in placed:
            raise AvailabilityError(
                f"box {name!r} only leads rows on, and has nothing that could be lost: declare availability at the box before or behind it"
            )
    return found


def classes_of(network: Network, segments: Sequence[Segment]) -> Mapping[int, tuple[tuple[str, OperatorClass], ...]]:
    """By segment, its boxes with how what they put out depends on what they have had."""
    kinds = {box.name: box.kind for box in network}
    depends = {box.name: read(box.kind, box.params).depends for box in network}
    return {segment.id: tuple((box, depends[box]) for box in _own(segment, kinds)) for segment in segments}


def ahead_of_sources(network: Network) -> Mapping[str, str]:
    """By box whose state closes by event time: the first box before it behind which that may be ahead of all that its sources have given.
    Not there if none may."""
    boxes = {box.name: box for box in network}
    ahead: dict[str, str] = {}
    for box in network:
        timed = [boxes[up] for up, port in box.inputs if boxes[up].event_time is not None and not is_aside(boxes[up], port)]
        before = next((ahead[up.name] for up in timed if up.name in ahead), None)
        kind, given = read(box.kind, box.params), [up.event_time for up in timed if up.event_time is not None]
        if before is None and box.event_time is not None and kind.may_run_ahead(box.event_time, given):
            before = box.name
        if before is not None:
            ahead[box.name] = before
    closing = {box.name for box in network if read(box.kind, box.params).depends is OperatorClass.CONVERGENT}
    return {name: before for name, before in ahead.items() if name in closing}


def promises(network: Network) -> Mapping[str, Guarantee]:
    """By sink, what it must have through failures, where that is said."""
    sinks = ((box.name, box.params.get("guarantee")) for box in network.of_kind("sink"))
    return {name: guarantee_named(given, f"box {name!r}") for name, given in sinks if given is not None}


def _own(segment: Segment, kinds: Mapping[str, str]) -> Iterator[str]:
    """Boxes that have their place in the segment. What an aggregate or a union leaves to those before it is no place of theirs."""
    ends = (segment.source, segment.sink, segment.name if kinds.get(segment.name) == "repartition" else None)
    yield from (box for box in ends if box is not None)
    for box in dict.fromkeys(step.box for step in segment.steps if step.kind in STEPS.get(kinds[step.box], (kinds[step.box],))):
        if box not in ends:
            yield box
