"""Which segments have keys that can only be moved whole, and why.

A hot key of an aggregate that is combined before the exchange costs its consumer a row per producer partition and epoch. Any other key
is one partition's work, all of its rows: partitions can be moved from site to site, a key cannot be split. A user with a hot key wants
to know which of the two he has (policies.md, hot keys).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenflow.plan.layout import Keyed, Layout, Segment, Step
from evenflow.plan.moved_whole import MovedWhole
from evenflow.query.aggregates import RowWindow, TimeWindow, combinable
from evenflow.query.network import LATE_PORT


def moved_whole(planned: Layout) -> tuple[MovedWhole, ...]:
    """The segments behind a keyed exchange over which every row is sent, in their order."""
    found = []
    for segment in planned.segments:
        routes = [planned.arcs[arc].route for arc in segment.inputs]
        step = next((step for step in segment.steps if step.kind != "order"), None)
        if routes and isinstance(routes[0], Keyed) and step is not None and not step.params.get("partial", False):
            found.append(MovedWhole(segment.id, step.box, routes[0].columns, _reason(step, segment, planned)))
    return tuple(found)


def _reason(step: Step, segment: Segment, planned: Layout) -> str:
    """Why the rows of the box that starts a segment were not combined before they were sent."""
    if step.kind != "aggregate":
        return f"a {step.kind} box needs every row itself"
    params: Mapping[str, Any] = step.params
    window = params["window"]
    if isinstance(window, RowWindow):
        return "windows that count rows need every row itself"
    calls = [c.text for c in params["calls"] if not combinable([c], step.schema)]
    if calls:
        return f"{', '.join(calls)} cannot be combined before the exchange"
    if window is not None and not isinstance(window, TimeWindow):
        return "where a session ends is known behind the exchange only"
    if "tie_break" in params or any(other.kind == "order" for other in segment.steps):
        return "its rows are wanted in order"
    if window is not None and step.schema.field(window.column).type.unit != "us":
        return f"the time {window.column} has another unit than microseconds"
    at = segment.steps.index(step)
    ports = [other.source for other in segment.steps]
    ports += [arc.port for arc in planned.arcs if arc.producer == segment.id]
    if any(port.step == at and port.port == LATE_PORT for port in ports):
        return "its late rows are read"
    return "combine=False"
