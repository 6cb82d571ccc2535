"""What would change if a running dataflow were replaced by another one: every box, whether it goes on as it is, and why not.

A person looks at this before a replacement, and a replacement is made of it (`versions`). Boxes without state may have other conditions,
expressions and functions, as long as their columns stay; a process may have other code, as long as its store stays, and so may an
aggregator, as long as its state's type stays. So every frame, every state and every count means the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, Literal

from evenflow.errors import EvenflowError, QueryError
from evenflow.operator.catalogue import build
from evenflow.operator.operator import Operator, Stateless, TwoSided
from evenflow.operator.user.process import Process
from evenflow.plan.layout import Layout, Segment, Step
from evenflow.query.aggregates import AggCall
from evenflow.query.user.aggregator import reads_states_of

SHAPE: Final = ("name", "kind", "partitions", "inputs", "outputs", "source", "sink", "right", "sensitive", "in_use")
OF_PROCESS: Final = ("processor", "verify")
"""Parameters of a process that may change."""
ENDS: Final = ("stage", "commit")
"""Steps of a sink, which know their run."""

Change = Literal["same", "other", "new", "gone", "refused"]
RANK: Final[Mapping[Change, int]] = {"same": 0, "other": 1, "new": 2, "gone": 3, "refused": 4}
"""What a box of several steps is: the worst that one of them is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One box. change: "same"; "other", it has other code; "new" or "gone"; "refused", it cannot become what is wanted. keeps_state: it has
    state, and the state stays. why: of what is refused, new or gone, in words."""

    box: str
    change: Change
    keeps_state: bool = False
    why: str = ""

    @property
    def possible(self) -> bool:
        """A run can go on so."""
        return self.change in ("same", "other")

    def to_json(self) -> dict[str, Any]:
        return {"box": self.box, "change": self.change, "keeps_state": self.keeps_state, "why": self.why}


class Refusal(Exception):
    """Why a step cannot become another one. Never leaves this module."""

    def __init__(self, why: str, box: str) -> None:
        self.why, self.box = why, box
        super().__init__(why)


def differences(running: Layout, wanted: Layout) -> tuple[Difference, ...]:
    """Every box that either of them runs, in the order of what runs, and then what is new. running: with the steps of its newest version.
    wanted: planned for as many sites, partitions and writers, with the columns that what runs takes in."""
    found: dict[str, Difference] = {}

    def note(box: str, change: Change, why: str = "", *, keeps: bool = False) -> None:
        before = found.get(box)
        if before is None or RANK[change] > RANK[before.change]:
            found[box] = Difference(box, change, keeps or (before is not None and before.keeps_state), why)
        elif keeps:
            found[box] = replace(before, keeps_state=True)

    theirs = {segment.name: segment for segment in wanted.segments}
    same_shape = _boxes(running) == _boxes(wanted)
    for segment in running.segments:
        for box in _of(segment):
            note(box, "same")
    for name, end in running.sources.items():
        _note_end(note, "source", name, end, wanted.sources)
    for name, end in running.sinks.items():
        _note_end(note, "sink", name, end, wanted.sinks)
    for box in _otherwise_shed(running, wanted):
        note(box, "refused", f"the output {box!r} has another qos, or is fed by other rows: what is left out of a source is for good")
    for segment in running.segments:
        other = theirs.get(segment.name)
        if other is None:
            continue
        if same_shape:
            for refusal in _shape(segment, other):
                note(refusal.box, "refused", refusal.why)
        for now, then in _pairs(segment, other):
            keeps = _has_state(now)
            try:
                changed = changes(now, then)
                note(now.box, "other" if changed else "same", keeps=keeps)
            except Refusal as refusal:
                note(refusal.box, "refused", refusal.why, keeps=keeps)
    mine, others = (dict.fromkeys(box for s in layout.segments for box in _of(s)) for layout in (running, wanted))
    for box in mine:
        if box not in others:
            note(box, "gone", f"box {box!r} is missing")
    for box in others:
        if box not in mine:
            note(box, "new", f"box {box!r} is new, or is at another place")
    if all(each.possible for each in found.values()):
        for box, why in _order_and_arcs(running, wanted):
            note(box, "refused", why)
    return tuple(found.values())


def compared(found: Sequence[Difference], version: int) -> dict[str, Any]:
    """For a person who is to decide. version: number of the one that runs. changed: boxes that would do something else."""
    return {
        "version": version,
        "possible": all(each.possible for each in found),
        "changed": [each.box for each in found if each.change != "same"],
        "boxes": [each.to_json() for each in found],
    }


def _boxes(layout: Layout) -> list[tuple[str, list[str]]]:
    return [(segment.name, [step.box for step in segment.steps]) for segment in layout.segments]


def _of(segment: Segment) -> list[str]:
    """The boxes of a segment, its source first and its sink last."""
    ends = ([segment.source] if segment.source is not None else [], [segment.sink] if segment.sink is not None else [])
    return [*ends[0], *(step.box for step in segment.steps), *ends[1]]


def _pairs(segment: Segment, other: Segment) -> Iterator[tuple[Step, Step]]:
    """Steps of both that are of one box: in their order where both have the same, else those of one kind."""
    if [step.box for step in segment.steps] == [step.box for step in other.steps]:
        yield from zip(segment.steps, other.steps, strict=True)
        return
    for now in segment.steps:
        then = next((step for step in other.steps if (step.box, step.kind) == (now.box, now.kind)), None)
        if then is not None:
            yield now, replace(then, source=now.source, other=now.other)  # Where it is behind a box that is new, or gone, says that one.


def _note_end(note: Any, what: str, name: str, end: Any, wanted: Mapping[str, Any]) -> None:
    if name not in wanted:
        note(name, "gone", f"the {what} {name!r} is missing")
    elif _described(wanted[name]) != _described(end):
        note(name, "refused", f"the {what} {name!r} is another one")


def _otherwise_shed(running: Layout, wanted: Layout) -> Iterator[str]:
    """Outputs of sources, or behind arcs, of which something else may be left out."""
    for source in dict.fromkeys([*running.sheds, *wanted.sheds]):
        now, then = running.sheds.get(source), wanted.sheds.get(source)
        if now != then:
            yield from dict.fromkeys(box for shed in (now, then) if shed is not None for box in shed.outputs if box in running.sinks)
    for arc, thin in running.thins.items():
        if thin != wanted.thins.get(arc):
            yield from thin.outputs


def _described(end: Any) -> Any:
    """What can be compared of a source or a sink: its description, or only its type where it has none (rows in memory)."""
    try:
        return end.to_json()
    except QueryError:
        return type(end)


def _shape(now: Segment, other: Segment) -> Iterator[Refusal]:
    for name in SHAPE:
        if getattr(now, name) != getattr(other, name):
            why = f"box {now.name!r} has other {name.replace('_', ' ')}: {getattr(other, name)!r} instead of {getattr(now, name)!r}"
            yield Refusal(why, now.name)
    if now.kind == "ingress" and other.user_code and not now.user_code:
        box = next(step.box for step in other.steps if step.user_code)
        yield Refusal(f"box {box!r} calls functions where rows enter, where none did", box)
    if now.schema != other.schema:
        more = [name for name in other.schema.names if name not in now.schema.names]
        yield Refusal(f"box {now.name!r} reads {', '.join(more) or 'other columns'}, which the running version does not take in", now.name)


def _order_and_arcs(running: Layout, wanted: Layout) -> Iterator[tuple[str, str]]:
    if [segment.name for segment in running.segments] != [segment.name for segment in wanted.segments]:
        yield running.segments[0].name, "boxes are in another order"
        return
    for segment, other in zip(running.segments, wanted.segments, strict=True):
        if [step.box for step in segment.steps] != [step.box for step in other.steps]:
            yield segment.steps[0].box if segment.steps else segment.name, f"boxes of {segment.name!r} are in another order"
    for arc, another in zip_longest(running.arcs, wanted.arcs):
        if arc != another:
            known = arc or another
            start, end = running.segments[known.producer].name, running.segments[known.consumer].name
            yield end, f"what goes from {start!r} to {end!r} is not the same"


def changes(now: Step, other: Step) -> bool:
    """Whether the step does something else. Raises Refusal if it cannot take the place of the running one."""
    for name in ("kind", "source", "other", "schema"):
        if getattr(now, name) != getattr(other, name):
            raise Refusal(f"box {now.box!r} has another {'input' if name != 'kind' else name}", now.box)
    differing = [*_differing(now.params, other.params)]
    if not differing or now.kind in ENDS:
        return False
    before, after = _built(now), _built(other)
    if before.schemas != after.schemas:
        raise Refusal(f"box {now.box!r} gives other columns", now.box)
    if isinstance(before, Process) and isinstance(after, Process) and set(differing) <= set(OF_PROCESS):
        if before.fields != after.fields:
            raise Refusal(f"the processor of box {now.box!r} declares another store", now.box)
    elif differing == ["calls"]:
        _check_calls(now.box, now.params["calls"], other.params["calls"])
    elif not isinstance(before, Stateless):
        raise Refusal(f"box {now.box!r} has state, and another {differing[0]!r}", now.box)
    return True


def _has_state(step: Step) -> bool:
    try:
        return not isinstance(build(step), Stateless)
    except Exception:
        return True  # A user's code needs what is not here, but where the step runs. Only what keeps state is asked when it is built.


def _built(step: Step) -> Operator | TwoSided:
    """Raises Refusal where the user's code does not let it be built here."""
    try:
        return build(step)
    except EvenflowError:
        raise
    except Exception as error:
        why = f"box {step.box!r} cannot be compared where the driver runs: its code raised {type(error).__name__}: {error}"
        raise Refusal(why, step.box) from error


def _check_calls(box: str, mine: Sequence[AggCall], theirs: Sequence[AggCall]) -> None:
    """The same aggregates of the same columns; the user's aggregators may have other code."""
    for call, other in zip_longest(mine, theirs):
        made, others = (None if each is None else each.made for each in (call, other))
        if made is not None and others is not None and not reads_states_of(others, made):
            raise Refusal(
                f"the aggregator {type(others).__name__} of box {box!r} is another class, declares another state, or merges otherwise", box
            )
        if call is None or other is None or replace(call, made=others) != other:
            raise Refusal(f"box {box!r} has state, and other aggregates", box)


def _differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*mine, *theirs]):
        if name not in mine or name not in theirs or mine[name] != theirs[name]:
            yield name


__all__ = ["Change", "Difference", "changes", "compared", "differences"]
