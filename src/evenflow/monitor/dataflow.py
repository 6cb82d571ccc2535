"""What a dataflow is, for a scene: its boxes and arrows as the user drew them, and what they have become in the layout. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from evenflow.monitor.scene import SceneArrow, SceneBox, SceneSegment, SceneStep, SceneStream
from evenflow.plan.layout import Dealt, Keyed, Layout, Segment, Single, Spread
from evenflow.plan.moved_whole import MovedWhole
from evenflow.query.geometry import Geometry
from evenflow.query.network import Network
from evenflow.query.whole import moved_whole
from evenflow.statistics.growing import Summed

ROUTES: Final = {Keyed: "keyed", Single: "single", Spread: "spread", Dealt: "dealt"}
NOWHERE: Final = {"width": 0.0, "height": 0.0, "boxes": [], "arrows": [], "groups": []}


@dataclass(frozen=True, slots=True)
class Drawn:
    """The parts of `SceneRun` that a dataflow determines, and for each box where its counts come from: heads are its steps that take rows
    from other boxes, tails those that give rows to others."""

    boxes: tuple[SceneBox, ...]
    arrows: tuple[SceneArrow, ...]
    segments: tuple[SceneSegment, ...]
    streams: tuple[SceneStream, ...]
    steps: tuple[SceneStep, ...]
    geometry: Any
    moved_whole: tuple[MovedWhole, ...]
    heads: Summed
    tails: Summed
    every: Summed

    def box_counts(self, counts: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
        """(rows in, rows out, rows failed, busy us), each by box. counts: see `Growing.boxes`."""
        rows_in, rows_out, busy_us, failed = counts.T
        places = (self.heads, rows_in), (self.tails, rows_out), (self.every, failed), (self.every, busy_us)
        sums = np.zeros((len(places), len(self.boxes)), np.int64)
        for found, (steps, values) in zip(sums, places, strict=True):
            steps.into(found, values)
        return tuple([tuple(found) for found in sums.tolist()])


def drawn(planned: Layout, network: Network | None) -> Drawn:
    """network: as the user drew it; None where only the layout is known: then there are no boxes and arrows."""
    firsts: list[int] = []
    steps: list[SceneStep] = []
    for segment in planned.segments:
        firsts.append(len(steps))
        steps += [SceneStep(segment.id, step.box) for step in segment.steps]
    inner = _inner(planned, firsts, steps)
    geometry = None if network is None else Geometry(network, planned)
    boxes = []
    for box in network or ():
        assert geometry is not None
        mine = tuple(number for number, step in enumerate(steps) if step.box == box.name)
        group = geometry.groups[geometry.group_of[box.name]].segments
        segments = sorted({segment.id for segment in group} | {steps[number].segment for number in mine})
        boxes.append(SceneBox(box.name, box.kind, tuple(segments), mine, box.kind == "source", box.kind == "sink"))
    segments_of = {box.name: box.segments for box in boxes}
    fed, feeding = {end for _, end in inner}, {start for start, _ in inner}
    return Drawn(
        boxes=tuple(boxes),
        arrows=tuple(
            SceneArrow(up, port, box.name, _streams(planned, segments_of[up], segments_of[box.name]))
            for box in network or ()
            for up, port in box.inputs
        ),
        segments=tuple(SceneSegment(s.id, s.name, s.kind, s.partitions, s.source, s.sink) for s in planned.segments),
        streams=tuple(
            SceneStream(arc.id, arc.producer, arc.consumer, ROUTES[type(arc.route)], _columns(arc.route))  # type: ignore[arg-type]
            for arc in planned.arcs
        ),
        steps=tuple(steps),
        geometry=NOWHERE if geometry is None else geometry.to_json(),
        moved_whole=moved_whole(planned),
        heads=_by_box([[step for step in box.steps if step not in fed] for box in boxes]),
        tails=_by_box([[step for step in box.steps if step not in feeding] for box in boxes]),
        every=_by_box([box.steps for box in boxes]),
    )


def _by_box(steps: Sequence[Sequence[int]]) -> Summed:
    """How what is counted by step is summed up by box. steps: numbers of each box's."""
    owners = [box for box, mine in enumerate(steps) for _ in mine]
    return Summed.of(np.array(owners, np.int64), np.array([number for mine in steps for number in mine], np.int64))


def _columns(route: object) -> tuple[str, ...]:
    return route.columns if isinstance(route, Keyed) else ()


def _streams(planned: Layout, producers: Sequence[int], consumers: Sequence[int]) -> tuple[int, ...]:
    """Through the exchange, if the arrow leads from some segments to others."""
    if set(consumers) <= set(producers):
        return ()
    return tuple(arc.id for arc in planned.arcs if arc.producer in producers and arc.consumer in consumers)


def _inner(planned: Layout, firsts: Sequence[int], steps: Sequence[SceneStep]) -> set[tuple[int, int]]:
    """Pairs of steps of one box of which the first feeds the second: a box that is combined before the exchange and finished behind it."""
    pairs = set()
    for segment in planned.segments:
        for at, step in enumerate(segment.steps):
            for port in (step.source, step.other):
                feeders = [] if port is None else [port.step] if port.step >= 0 else _feeders(planned, segment, firsts)
                for feeder in feeders:
                    start = feeder if port is None or port.step < 0 else firsts[segment.id] + port.step
                    if steps[start].box == step.box:
                        pairs.add((start, firsts[segment.id] + at))
    return pairs


def _feeders(planned: Layout, segment: Segment, firsts: Sequence[int]) -> list[int]:
    """Steps whose rows come into the segment through the exchange."""
    arcs = [planned.arcs[number] for number in segment.inputs]
    return [firsts[arc.producer] + arc.port.step for arc in arcs if arc.port.step >= 0]
