"""What stays whole where rows are left out: the unit of every stream, which follows from all boxes behind it.

| unit | stays whole | before |
| --- | --- | --- |
| row | nothing | boxes that keep no state |
| window | a window of a group | windows of time: each result is one that would have come |
| key | a key, on both sides of a join | sessions, inner joins; it is worked out for patterns and processors, and nothing goes before them |
| none | everything | running totals, changelogs, outputs without qos |

What one box must have whole is traced up through those that pass its columns on. Where several keep state in a row, what they have in
common stays whole: fewer columns make larger units, and without any column left nothing can be left out.

What reaches a join, or state behind a union, from several sides must miss the same keys or windows on all of them: a left row whose partner
was left out would come out alone, which is a wrong row and not a missing one. So the inputs of such a box have one unit, that which all
the streams above them can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from evenflow.plan.layout import Keys, Shed, Windows
from evenflow.query.kinds import read
from evenflow.query.kinds.join import Join
from evenflow.query.kinds.kind import Need
from evenflow.query.kinds.sink import Sink
from evenflow.query.kinds.watermark import Watermark
from evenflow.query.lineage import Stream, passed_on, value_of
from evenflow.query.network import Box, Network, dead_letter_port, is_aside
from evenflow.stream.change import is_changelog
from evenflow.stream.worth import ALIKE, Classes, classes_of

SLIDES: Final = 8
"""B of a unit `window`, in times size by slide: of sliding windows, whose rows are in several, whole blocks are left out."""


@dataclass(frozen=True, slots=True)
class Unit:
    """columns: that are hashed as a set, since two sides of a join may have them in another order; names at this stream. time, size_us,
    slide_us, start_us: of the windows of one box, see `TimeWindow`. because: the box that needs it, and what of it; empty for rows."""

    unit: Literal["row", "window", "key", "none"]
    columns: tuple[str, ...] = ()
    because: str = ""
    time: str | None = None
    size_us: int = 0
    slide_us: int = 0
    start_us: int = 0

    @property
    def block_us(self) -> int:
        """B: what is left out are windows that begin in [start + n B, start + n B + B), all of a group or none. So B is a multiple of the
        slide. A row goes on if one of its windows does; where they slide, the first windows of a block that is left out see such rows
        of the block before it, and must not be put out."""
        if self.slide_us == self.size_us:
            return self.slide_us
        return -(-SLIDES * self.size_us // self.slide_us) * self.slide_us

    def text(self) -> str:
        """As a plan shows it."""
        what = ", ".join(self.columns)
        of = {"row": "rows", "window": f"windows{f' of {what}' if what else ''}", "key": f"keys {what}", "none": "nothing"}[self.unit]
        return f"{of} ({self.because})" if self.because else of


ROWS: Final = Unit("row")


def units(network: Network) -> Mapping[tuple[Stream, str], Unit]:
    """By stream and the box that reads it, what may be left out of what that box reads."""
    bounds: dict[str, Bound] = {}
    while True:
        found = _passed_up(network, bounds)
        tighter = {box.name: bound for box in network.boxes if (bound := _bound(network, box, found)) is not None}
        if {name: bound[:2] for name, bound in tighter.items()} == {name: bound[:2] for name, bound in bounds.items()}:
            return found
        bounds = tighter  # Units only grow from one round to the next, so there is a last one.


def unit_of(network: Network, stream: Stream) -> Unit:
    """What may be left out of a stream for all who read it together."""
    return _of_readers(network, stream, units(network))


def _of_readers(network: Network, stream: Stream, of_all: Mapping[tuple[Stream, str], Unit]) -> Unit:
    return _combined([of_all[stream, box.name] for box in network.readers(*stream) if of_all[stream, box.name].unit != "row"])


def sheds(network: Network) -> Mapping[str, Shed]:
    """By source, what may be left out of it row by row: where all who read it can do without any row, and some output's answers are worth
    less when they are older."""
    if not any(_of_sink(box).qos is not None for box in network.of_kind("sink")):
        return {}
    found = {}
    for box in network.of_kind("source"):
        reached = _reached(network, box)
        unit = unit_of(network, (box.name, 0))
        whole = _whole(network, box, unit) if unit.unit in ("window", "key") else None
        latencies = [qos.patience_us for each in reached if (qos := _of_sink(each).qos) is not None]
        patience_us = min([us for us in latencies if us is not None], default=None)
        if not reached or patience_us is None:
            continue
        names, weights = tuple(each.name for each in reached), bool(box.params.get("weights"))
        if unit.unit == "row":  # What rows stand for is known of a share of all, not of one of which nothing stays.
            by = (None, ALIKE) if weights else _worth(network, box.name, reached)
            given = [qos for each in reached if (qos := _of_sink(each).qos) is not None]
            worths = tuple((qos.weight, qos.loss.hull()) for qos in given) if len(given) == len(reached) else ()
            found[box.name] = Shed(names, patience_us, *by, weighs=weights, worths=worths)
        elif not weights and isinstance(whole, Windows | Keys):
            found[box.name] = Shed(names, patience_us, whole=whole)
    return found


@dataclass(frozen=True, slots=True)
class Gate:
    """What a box of windows or sessions must hold back. columns: of its results, in the order of `whole.columns`. source: of what rows it
    is. around_us: how far before a result a row may be that would have been in it."""

    source: str
    columns: tuple[str, ...]
    whole: Windows | Keys
    around_us: int = 0


def gates(network: Network, shed: Mapping[str, Shed]) -> Mapping[str, Gate]:
    """By box of windows, what holds back its results that are parts. shed: what is left out."""
    found = {}
    for source, each in shed.items():
        if each.whole is not None:
            for box in _below(network, source):
                if (need := read(box.kind, box.params).needs(0)) is not None and need.around_us is not None:
                    traced = _traced_to(network, source, box, need.columns)
                    found[box.name] = Gate(source, tuple(traced[column] for column in each.whole.columns), each.whole, need.around_us)
    return found


def _whole(network: Network, source: Box, unit: Unit) -> Windows | Keys | str:
    """The windows or keys of a source that may stay whole or go; else the box that cannot take them, and why."""
    below = _below(network, source.name)
    names, states, time = {source.name, *(box.name for box in below)}, set[str](), unit.time
    for box in below:
        kind = read(box.kind, box.params)
        pairs = isinstance(kind, Join) and kind.join.how == "inner"
        if not isinstance(kind, Join) and any(up not in names for up, _ in box.inputs):
            return f"{box.name!r} has rows of other sources, too"
        if isinstance(kind, Watermark):
            if why := _filtered(network, source.name, box):
                return f"{box.name!r} is behind {why!r}, so nobody knows how far event time came where rows were left out"
            if unit.unit == "key":
                found = _traced_to(network, source.name, box, (kind.column,), back=True).get(kind.column)
                if found is None or time not in (None, found):
                    return f"{box.name!r} goes by a time that is computed, or another one than what is beside it"
                time = found
        need = kind.needs(0)
        if need is None or need.unit not in ("window", "key"):
            continue
        if dead_letter_port(box.kind, box.params) is not None:
            return f"{box.name!r} goes on without the rows on which it raises"
        if need.around_us is None and not pairs:
            return f"{unit.because}, and behind {box.name!r} nobody can tell which results are whole"
        if above := next((up.name for up in below if up.name in states and box in _below(network, up.name)), None):
            return f"{box.name!r} is behind {above!r}, and both keep what must be whole"
        states.add(box.name)
        if pairs:  # A pair of rows that are here is one that would have come. Keys are left out so that both are.
            continue
        if not set(unit.columns) <= _traced_to(network, source.name, box, need.columns).keys():
            return f"{box.name!r} does not put out what tells its {unit.unit}s apart"
    columns = tuple(sorted(set(unit.columns)))
    if time is None:
        return f"{unit.because}, and nothing says what the time of its rows is"
    if unit.unit == "key":
        return Keys(columns, time)
    return Windows(columns, time, unit.size_us, unit.slide_us, unit.start_us, unit.block_us)


def _why_not(network: Network, source: Box, unit: Unit) -> str:
    """What keeps rows of a source from being left out, though its outputs could do without such units; empty if nothing does."""
    if unit.unit in ("window", "key") and source.params.get("weights"):
        return (
            f"{unit.because}, which are left out whole, and not row by row as before estimates; estimate these, too, or leave out weights"
        )
    found = _whole(network, source, unit) if unit.unit in ("window", "key") else None
    return found if isinstance(found, str) else ""


def _of_no_use(network: Network, source: Box, unit: Unit) -> list[str]:
    """What outputs say of their answers, and nobody who leaves rows of a source out goes by."""
    if unit.unit == "none" or _why_not(network, source, unit):
        return []
    reached = _reached(network, source)
    given = [qos for box in reached if (qos := _of_sink(box).qos) is not None]
    notes, valued = [], any(qos.value is not None for qos in given)
    if given and all(qos.latency is None for qos in given):
        notes.append("nothing is left out for being late: none of its outputs has a latency, which says how late that is")
    elif valued and unit.unit in ("window", "key"):
        notes.append(f"{unit.unit}s go alike, whatever their value: each is of many rows, and all of them stay or go")
    elif valued and source.params.get("weights"):
        notes.append("rows go alike, whatever their value: estimates need some of all")
    elif valued and _worth(network, source.name, reached)[0] is None:
        notes.append("rows go alike, whatever their value: its outputs do not agree on that")
    return notes


def _below(network: Network, source: str) -> list[Box]:
    """The boxes to which rows of a source come."""
    names = {source}
    for box in network.boxes:
        if any(up in names for up, _ in box.inputs):
            names.add(box.name)
    return [box for box in network.boxes if box.name in names and box.name != source]


def _filtered(network: Network, source: str, box: Box) -> str | None:
    """A box between a source and a watermark that may not hand on all rows; None if all come to it."""
    up = box
    while (up := network.box(up.inputs[0][0])).name != source:
        if up.kind != "select" or "on_error" in up.params:
            return up.name
    return None


def _traced_to(network: Network, source: str, box: Box, columns: tuple[str, ...], *, back: bool = False) -> Mapping[str, str]:
    """By column of a source, the one of these columns of a box's only input that is it. back: the other way round."""
    found: dict[str, str] = {}
    for column in columns:
        (up, port), at = box.inputs[0], column
        while up != source:
            above = network.box(up)
            traced = _at(network, above, port, 0, at)
            if traced is None:
                break
            (up, port), at = above.inputs[0], traced
        else:
            found.setdefault(*((column, at) if back else (at, column)))
    return found


def _worth(network: Network, source: str, outputs: list[Box]) -> tuple[str | None, Classes]:
    """By which column of a source its rows differ in worth, and how: where all its outputs agree on that, else they are alike."""
    told = {(value_of(network, box).get((source, 0)), qos.value) for box in outputs if (qos := _of_sink(box).qos) is not None}
    if len(told) != 1:
        return None, ALIKE
    [(column, curve)] = told
    return (None, ALIKE) if column is None or curve is None else (column, classes_of(curve))


def _reached(network: Network, source: Box) -> list[Box]:
    """The outputs to which rows of a source come."""
    return [box for box in _below(network, source.name) if box.kind == "sink"]


def protected(network: Network) -> tuple[str, ...]:
    """Outputs without qos."""
    return tuple(box.name for box in network.of_kind("sink") if _of_sink(box).qos is None)


def needs_whole(network: Network, box: Box) -> bool:
    """Whether a box must have something whole, so that not any row may be left out before it."""
    return any(_own(network, box, number).unit != "row" for number in range(len(box.inputs)))


def units_text(network: Network) -> str:
    """What may be left out under overload of each stream that leaves a source, and of those that several read what each reader may miss;
    which outputs are protected; and how curves are used. Empty if no output has a quality of service: nothing is ever left out then."""
    given = [(box, sink.qos) for box in network.of_kind("sink") if (sink := _of_sink(box)).qos is not None]
    if not given:
        return ""
    of_all = units(network)
    lines = ["under overload, where that is asked for (`shedding`):"]
    for box in network.of_kind("source"):
        unit = unit_of(network, (box.name, 0))
        lines.append(f"  of {box.name!r}: {unit.text()}")
        lines += [f"  but nothing yet of {box.name!r}: {why}" for why in [_why_not(network, box, unit)] if why]
        lines += [f"  of {box.name!r} {note}" for note in _of_no_use(network, box, unit)]
    for (up, port), reader in of_all:
        if len(network.readers(up, port)) > 1:
            lines.append(f"  before {reader!r}: {of_all[(up, port), reader].text()}")
    if whole := protected(network):
        lines.append(f"  protected, so that nothing they need is left out: {', '.join(map(repr, whole))}")
    lines += [f"  {box.name!r}: {note}" for box, qos in given if qos is not None for note in qos.notes()]
    return "\n".join(lines) + "\n"


def _of_sink(box: Box) -> Sink:
    kind = read(box.kind, box.params)
    assert isinstance(kind, Sink)
    return kind


# ------------------------------------------------ from outputs to sources


def _passed_up(network: Network, bounds: Mapping[str, Bound]) -> dict[tuple[Stream, str], Unit]:
    found: dict[tuple[Stream, str], Unit] = {}
    for box in reversed(network.boxes):
        for number, stream in enumerate(box.inputs):
            needs = [_own(network, box, number)]
            needs += [_traced(network, box, port, number, found[(box.name, port), reader.name]) for port, reader in _readers(network, box)]
            unit = _combined([each for each in needs if each.unit != "row"])
            if box.name in bounds:
                unit = _bounded(box, number, unit, bounds[box.name])
            before = found.get((stream, box.name))
            found[stream, box.name] = unit if before is None else _combined([each for each in (before, unit) if each.unit != "row"])
    return found


def _readers(network: Network, box: Box) -> list[tuple[int, Box]]:
    return [(port, reader) for reader in network.readers(box.name) for up, port in reader.inputs if up == box.name]


def _own(network: Network, box: Box, number: int) -> Unit:
    """What the box itself needs of an input."""
    if box.kind == "sink" and _of_sink(box).qos is None:
        return Unit("none", because=f"{box.name!r} is an output without qos")
    if is_changelog(network.input_schemas(box)[number]):
        return Unit("none", because=f"{box.name!r} is given a changelog")
    if box.kind == "sink":
        return ROWS
    need = read(box.kind, box.params).needs(number)
    return ROWS if need is None else _of(box, need)


def _of(box: Box, need: Need) -> Unit:
    return Unit(need.unit, need.columns, f"{box.name!r} has {need.why}", need.time, need.size_us, need.slide_us, need.start_us)


def _traced(network: Network, box: Box, port: int, number: int, below: Unit) -> Unit:
    """A unit of an output of a box as one of its input."""
    if below.unit in ("row", "none"):
        return below
    columns = tuple(up for each in below.columns if (up := _at(network, box, port, number, each)) is not None)
    if below.unit == "window":
        time = None if below.time is None else _at(network, box, port, number, below.time)
        if time is not None:
            return replace(below, columns=columns, time=time)
        below = Unit("key", below.columns, below.because)
    return replace(below, columns=columns) if columns else _nothing(below, box)


def _at(network: Network, box: Box, port: int, number: int, column: str) -> str | None:
    return next((up for at, up in passed_on(network, box, port, column) if at == number or is_aside(box, port)), None)


def _nothing(below: Unit, box: Box) -> Unit:
    return Unit("none", because=f"{below.because} by columns that {box.name!r} computes")


def _combined(needs: list[Unit]) -> Unit:
    """What satisfies all of them."""
    if not needs:
        return ROWS
    first = next((each for each in needs if each.unit == "none"), needs[0])
    if first.unit == "none" or all(_same(each, first) for each in needs):
        return first
    common = tuple(column for column in first.columns if all(column in each.columns for each in needs))
    because = " and ".join(dict.fromkeys(each.because for each in needs))
    return Unit("key", common, because) if common else Unit("none", because=f"{because}, which have no column in common")


def _same(one: Unit, other: Unit) -> bool:
    return replace(one, because="") == replace(other, because="")


# ------------------------------------------------ between the inputs of a box

Bound = tuple[Literal["window", "key", "none"], frozenset[str], str]
"""What all inputs of a box can have: the unit, the names of its columns for the box (see `_names`), and why it is no finer."""


def _bound(network: Network, box: Box, of_all: Mapping[tuple[Stream, str], Unit]) -> Bound | None:
    """None if its inputs need not miss the same."""
    given = [of_all[stream, box.name] for stream in box.inputs]
    if len(given) < 2 or all(unit.unit == "row" for unit in given):
        return None
    bounds: list[Bound] = []
    for number, (stream, unit) in enumerate(zip(box.inputs, given, strict=True)):
        kind, kept, because = _entering(network, stream, unit, {column: column for column in unit.columns}, of_all)
        names = _names(box, number)
        bounds.append((kind, frozenset(names.get(column, column) for column in kept), because))
    common = frozenset.intersection(*(names for _, names, _ in bounds))
    coarsest = min(bounds, key=lambda bound: (("none", "key", "window").index(bound[0]), len(bound[1])))
    kind = "key" if coarsest[0] == "window" and any(names != common for _, names, _ in bounds) else coarsest[0]
    return ("none" if kind == "key" and not common else kind), common, coarsest[2]


def _entering(network: Network, stream: Stream, unit: Unit, columns: Mapping[str, str], of_all: Mapping[tuple[Stream, str], Unit]) -> Bound:
    """What all the streams can have above one that a box reads, as the box names it. columns: of `stream`, by those names."""
    here = _of_readers(network, stream, of_all)
    if unit.unit not in ("window", "key") or here.unit not in ("window", "key"):
        return "none", frozenset(), here.because if here.unit == "none" else unit.because
    kept = {name: column for name, column in columns.items() if column in here.columns}
    kind: Literal["window", "key"] = "window" if unit.unit == "window" == here.unit else "key"
    because = here.because
    box = network.box(stream[0])
    for number, up in enumerate(box.inputs):
        above = {name: of for name, column in kept.items() if (of := _at(network, box, stream[1], number, column)) is not None}
        above_kind, names, why = _entering(network, up, replace(unit, unit=kind), above, of_all)
        if above_kind == "none":
            return "none", frozenset(), why
        if above_kind != kind or len(names) < len(kept):
            because = why
        kind, kept = above_kind, {name: column for name, column in kept.items() if name in names}
    return kind, frozenset(kept), because


def _bounded(box: Box, number: int, unit: Unit, bound: Bound) -> Unit:
    """A unit of an input of a box that is one for all its inputs."""
    kind, common, why = bound
    if unit.unit == "none":
        return unit
    names = _names(box, number)
    columns = tuple(column for column in unit.columns if names.get(column, column) in common)
    because = unit.because if why == unit.because else f"the inputs of {box.name!r} miss the same or nothing, and {why}"
    if kind == "none" or (kind == "key" and not columns):
        return Unit("none", because=because)
    if unit.unit == kind:
        return unit if columns == unit.columns else replace(unit, columns=columns, because=because)
    return Unit("key", columns, because)


def _names(box: Box, number: int) -> Mapping[str, str]:
    """What a box that compares its inputs calls their columns; others call them as they are."""
    kind = read(box.kind, box.params)
    if not isinstance(kind, Join):
        return {}
    return {key: f"key {place}" for place, key in enumerate(kind.join.right_keys if number else kind.join.left_keys)}


__all__ = ["ROWS", "Unit", "needs_whole", "protected", "sheds", "unit_of", "units", "units_text"]
