"""The planner: a query network becomes segments and arcs.

It walks the network from the sources down and keeps, for every output port of a box, the **flows** that carry it: places inside
segments. A stateless box is repeated in the segment of every flow, so a union disappears: it is several flows. A keyed box
starts a segment of its own, fed by one arc per flow, unless the rows are where their key wants them already. What an aggregate
may do before the exchange (combine, leave out columns) is put at the end of the producers.

A segment's input port is -1: the rows of all its input streams, which have the same columns, one stream after the other. Only a join has
two inputs, -1 and -2, of columns of their own; its segment begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.plan.effects import effects_schema
from evenflow.plan.layout import Arc, Dealt, Keyed, Layout, Port, Route, Segment, Single, Spread, Step
from evenflow.query.age import every_us_of, worths_of
from evenflow.query.aggregates import TimeWindow, order_sensitive, partial_schema
from evenflow.query.check import stream_type
from evenflow.query.columns import Nullable
from evenflow.query.cutting import check_cuts
from evenflow.query.join import Join as Joined
from evenflow.query.join import joined_time, out_columns
from evenflow.query.kinds import read
from evenflow.query.kinds.aggregate import Aggregate
from evenflow.query.kinds.join import Join
from evenflow.query.kinds.key_by import KeyBy
from evenflow.query.kinds.kind import Fed, KeyedKind, RowKind, StreamType
from evenflow.query.kinds.repartition import Repartition
from evenflow.query.kinds.sink import Sink
from evenflow.query.kinds.sort import Sort
from evenflow.query.kinds.source import Source
from evenflow.query.kinds.union import Union
from evenflow.query.kinds.watermark import Watermark
from evenflow.query.lateness import shed_when_late
from evenflow.query.narrowing import narrow
from evenflow.query.network import LATE_PORT, RIGHT_LATE_PORT, Box, Network, dead_letter_port
from evenflow.query.protecting import ahead_of_sources, classes_of, modes_asked, promises
from evenflow.query.thinning import qualities_of, thins_of, valued_of
from evenflow.query.units import gates
from evenflow.stream.change import is_changelog

INPUT: Final = Port(-1)
"""All input rows of a segment; of a join's, those of the left."""

RIGHT: Final = Port(-2)
"""The input rows of a join's right."""


MOST: Final = 65_536
"""Sites, partitions or writers that a plan can have."""


def layout(
    network: Network,
    *,
    sites: int,
    partitions: int = 256,
    max_partitions: int | None = None,
    writers: int | None = None,
    columns: Mapping[str, Iterable[str]] | None = None,
) -> Layout:
    """The segments and arcs that run `network`.

    sites: number of sites, >= 1, for sources that choose their partitions by it. partitions: P of every keyed segment at the start.
    max_partitions: how many it may have while it runs; None: as many. writers:
    parallel writers of a sink that writes inside the sites, default what the sink says or one per site. columns: of sources, that are
    taken in though no box reads them. The layout is a
    function of the arguments alone. Raises QueryError if a box leads to no sink, or a watermark is declared after a keyed box
    or twice for one source.
    """
    for number in (sites, partitions, *([] if writers is None else [writers]), *([] if max_partitions is None else [max_partitions])):
        if isinstance(number, bool) or not isinstance(number, int) or number > MOST:
            raise QueryError(f"dataflow {network.name!r}: sites, partitions and writers are whole numbers to {MOST:,}, not {number!r:.40}")
    if sites < 1 or partitions < 1 or (writers is not None and writers < 1):
        raise QueryError(
            f"dataflow {network.name!r}: sites, partitions and writers must be at least 1; got {sites}, {partitions}, {writers}"
        )
    most = partitions if max_partitions is None else max_partitions
    if most < partitions:
        raise QueryError(
            f"dataflow {network.name!r}: max_partitions is {most}, which is less than the {partitions} partitions at the start"
        )
    network.check_complete()
    return narrow(_cut(network, sites, partitions, most, writers), columns or {})


def check_plan(network: Network) -> None:
    """Raise the QueryError that `layout` would: cheaper, for who asks at every letter."""
    network.check_complete()
    _cut(network, sites=1, partitions=1, most=1, writers=None)


def _cut(network: Network, sites: int, partitions: int, most: int, writers: int | None) -> Layout:
    check_cuts(network)
    cutter = _Cutter(network, sites, partitions, most, writers)
    for box in network:
        cutter.place(box)
    return cutter.finish()


# ---------------------------------------------------------------- the walk


@dataclass(frozen=True, slots=True)
class _Flow:
    """Where a stream can be had: a port in a segment. keys: the segment's partitioning, while those columns are still as they
    were.

    canonical: the order of its rows within a partition does not depend on the order in which frames arrived. lag_us: of its event time
    behind the segment's watermark.
    """

    segment: int
    port: Port
    schema: pa.Schema
    keys: tuple[str, ...] | None
    canonical: bool
    lag_us: int = 0


@dataclass(slots=True)
class _Draft:
    """A segment that is being put together. watermark: the step that goes last, if there is one."""

    name: str
    kind: Literal["ingress", "inner", "egress"]
    partitions: int
    schema: pa.Schema
    steps: list[Step] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    source: str | None = None
    sink: str | None = None
    sensitive: bool = False
    watermark: Step | None = None
    in_use: int = 0
    publishes: bool = False
    effects: pa.Schema | None = None
    unordered: bool = False

    def add(self, step: Step) -> Port:
        self.steps.append(step)
        return Port(len(self.steps) - 1)


class _Cutter:
    """The state of one walk."""

    def __init__(self, network: Network, sites: int, partitions: int, most: int, writers: int | None) -> None:
        self._network, self._sites, self._partitions, self._writers = network, sites, most, writers
        self._in_use = partitions if partitions < most else 0
        self._drafts: list[_Draft] = []
        self._places: dict[tuple[object, ...], str] = {}
        self._arcs: list[Arc] = []
        self._canonical: list[bool] = []
        self._flows: dict[tuple[str, int], tuple[_Flow, ...]] = {}
        self._sheds = shed_when_late(network)
        self._gates = gates(network, self._sheds)

    def place(self, box: Box) -> None:
        """Put one box into segments. Its inputs have been placed."""
        given = [flow for up in box.inputs for flow in self._flows[up]]
        match read(box.kind, box.params):
            case Source() as kind:
                self._flows[box.name, 0] = (self._ingress(box, kind),)
            case Watermark() as kind:
                self._flows[box.name, 0] = tuple(self._watermark(box, kind, flow) for flow in given)
            case Union():
                self._flows[box.name, 0] = tuple(self._widen(box, flow) for flow in given)
            case KeyBy():
                self._flows[box.name, 0] = tuple(given)
            case Repartition(partitions):
                self._flows[box.name, 0] = (self._cut(box.name, "inner", partitions or self._sites, given, Dealt()),)
            case Join(join):
                self._join(box, join)
            case RowKind() as kind:
                self._rowwise(box, kind, given if kind.repeats else [self._led(box, given)])
            case KeyedKind() as kind:
                self._keyed(box, kind, given)
            case Sink(sink, unordered=unordered):
                self._sink(box, sink, unordered, given)
        self._dead_letters(box)

    def finish(self) -> Layout:
        self._spread_sensitivity()
        outputs: list[list[int]] = [[] for _ in self._drafts]
        for arc in self._arcs:
            outputs[arc.producer].append(arc.id)
        segments = []
        for number, draft in enumerate(self._drafts):
            if draft.watermark is not None:
                draft.add(draft.watermark)
            segment = Segment(
                id=number,
                name=draft.name,
                kind=draft.kind,
                partitions=draft.partitions,
                inputs=tuple(draft.inputs),
                outputs=tuple(outputs[number]),
                steps=tuple(draft.steps),
                sensitive=draft.sensitive,
                source=draft.source,
                sink=draft.sink,
                right=tuple(draft.right),
                in_use=draft.in_use,
                publishes=draft.publishes,
                effects=draft.effects,
                unordered=draft.unordered,
                schema=draft.schema,
            )
            segments.append(segment)
        sources = {box.name: box.params["source"] for box in self._network.of_kind("source")}
        sinks = {box.name: box.params["sink"] for box in self._network.of_kind("sink")}
        worths = worths_of(self._network, segments, self._arcs)
        thins = thins_of(self._network, segments, self._arcs)
        return Layout(
            self._network.name, tuple(segments), tuple(self._arcs), sources, sinks, self._sheds, worths,
            modes=modes_asked(self._network, segments), depends=classes_of(self._network, segments), promised=promises(self._network),
            ahead=ahead_of_sources(self._network), every_us=every_us_of(self._network),
            thins=thins, valued=valued_of(self._network, thins), qualities=qualities_of(self._network),
        )  # fmt: skip

    def _spread_sensitivity(self) -> None:
        """Who feeds a segment that cares about order, or deals its rows out by their places, must itself put rows out in an order that is
        a function of its input (E3)."""
        for number in range(len(self._drafts) - 1, -1, -1):
            draft = self._drafts[number]
            for arc in draft.inputs:
                cares = (draft.kind == "inner" and draft.sensitive) or isinstance(self._arcs[arc].route, Dealt)
                if cares and not self._canonical[arc]:
                    self._drafts[self._arcs[arc].producer].sensitive = True

    # ------------------------------------------------ boxes that stay where their input is

    def _ingress(self, box: Box, kind: Source) -> _Flow:
        source = kind.source
        count = source.partitions(self._sites)
        if count < 1:
            raise QueryError(f"box {box.name!r}: the source wants {count} partitions; it must be read with at least one")
        self._drafts.append(_Draft(box.name, "ingress", count, box.schemas[0], source=box.name, sensitive=False))
        return _Flow(len(self._drafts) - 1, INPUT, box.schemas[0], None, canonical=True)

    def _rowwise(self, box: Box, kind: RowKind, given: list[_Flow]) -> None:
        """The step is repeated wherever its input is."""
        flows: list[list[_Flow]] = [[] for _ in box.schemas]
        for flow in given:
            params, user = kind.step(flow.schema)
            step = Step(box.name, box.kind, {**params, **self._guard(box)}, flow.schema, flow.port, user)
            made = replace(flow, port=self._drafts[flow.segment].add(step), keys=kind.keys_behind(flow.keys, flow.schema))
            for port, schema in enumerate(box.schemas):
                flows[port].append(replace(made, port=Port(made.port.step, port), schema=schema))
        for port, ends in enumerate(flows):
            self._flows[box.name, port] = tuple(ends)

    def _led(self, box: Box, given: list[_Flow]) -> _Flow:
        """A segment that begins with a box whose answers cannot be made again (N1), and where its rows are: those of a partition stay
        together, in order. There are no more partitions than sites, since each has a record in each epoch."""
        most = max([self._drafts[flow.segment].partitions for flow in given])
        flow = self._cut(box.name, "inner", min(self._sites, most), given, Spread())
        self._drafts[flow.segment].effects = effects_schema(box.schemas)
        return replace(flow, canonical=True)

    def _dead_letters(self, box: Box) -> None:
        """The rows on which the box raises come out of the same steps as its results."""
        port = dead_letter_port(box.kind, box.params)
        if port is not None:
            made = self._flows[box.name, 0]
            self._flows[box.name, port] = tuple(replace(f, port=Port(f.port.step, port), schema=box.schemas[port]) for f in made)

    def _guard(self, box: Box) -> dict[str, Any]:
        """What a step must know of what its box does with rows on which it raises."""
        port = dead_letter_port(box.kind, box.params)
        if port is None:
            return {}
        wanted = bool(self._network.readers(box.name, port)) or not self._repeats(box)  # Followers count what a record says.
        return {"on_error": box.params["on_error"], "dead_letters": wanted}

    @staticmethod
    def _repeats(box: Box) -> bool:
        return read(box.kind, box.params).repeats

    def _watermark(self, box: Box, kind: Watermark, flow: _Flow) -> _Flow:
        draft = self._drafts[flow.segment]
        if draft.kind != "ingress":
            raise QueryError(
                f"box {box.name!r}: a watermark is made where rows enter; declare it before {draft.name!r}, right after the source"
            )
        if draft.watermark is not None:
            other = draft.watermark.box
            raise QueryError(
                f"box {box.name!r}: source {draft.source!r} has a watermark from {other!r} already; declare it once, "
                "before the streams part"
            )
        waits = [box.name for box in self._network.of_kind("source") if box.params["source"].waits]
        if draft.source in waits and kind.idle_us is None:
            raise QueryError(
                f"box {box.name!r}: source {draft.source!r} has places that wait for what may come, and one that waits would hold the "
                "watermark back for ever; declare it with idle=, such as with_watermark(..., idle='10 seconds')"
            )
        params = {"time": kind.column, "delay_us": kind.delay_us, "idle_us": kind.idle_us}
        draft.watermark = Step(box.name, "watermark", params, flow.schema, flow.port)
        return flow

    def _widen(self, box: Box, flow: _Flow) -> _Flow:
        """Streams that are united must agree to the letter: a column that may be null in one of them may be null in all."""
        schema = box.schemas[0]
        if flow.schema.equals(schema):
            return flow
        columns = tuple((f.name, f.name if f.equals(flow.schema.field(f.name)) else Nullable(f.name)) for f in schema)
        port = self._drafts[flow.segment].add(Step(box.name, "select", {"columns": columns}, flow.schema, flow.port))
        return replace(flow, port=port, schema=schema)

    # ------------------------------------------------ boxes with state

    def _keyed(self, box: Box, kind: KeyedKind, given: list[_Flow]) -> None:
        keys = tuple(kind.keys)
        late = bool(self._network.readers(box.name, LATE_PORT))
        retracts = isinstance(kind, Aggregate) and is_changelog(given[0].schema)
        combined = isinstance(kind, Aggregate) and (retracts or (not late and kind.combinable(given[0].schema)))
        if len(given) == 1 and given[0].keys == keys:
            # What takes rows back is the negative of their totals, so they are summed up first wherever they are.
            combined = retracts
            flow = self._combine(box, kind, given[0]) if isinstance(kind, Aggregate) and retracts else given[0]
        else:
            fed = []
            for flow in given:
                if isinstance(kind, Aggregate) and combined:
                    fed.append(self._combine(box, kind, flow))
                else:
                    fed.append(flow if late else self._prune(box, kind, flow))
            route: Route = Keyed(keys) if keys else Single()
            flow = self._cut(box.name, "inner", self._partitions if keys else 1, fed, route)
            flow = replace(flow, keys=keys)
        if kind.order == "event_time" and not kind.sorts_itself():
            flow, lates = self._order(box, kind, flow)
            self._flows[box.name, LATE_PORT] = lates
        if isinstance(kind, Sort):
            self._flows[box.name, 0] = (flow,)
        else:
            self._state(box, kind, flow, Fed(flow.schema, self._given(box), box.schemas[0], combined, retracts))

    def _join(self, box: Box, join: Joined) -> None:
        """A segment of its own for what comes from both sides, by their keys, which have equal hashes where they are equal."""
        left, right = (self._flows[up] for up in box.inputs)
        flow = self._cut(box.name, "inner", self._partitions, list(left), Keyed(join.left_keys))
        draft = self._drafts[flow.segment]
        draft.right = self._connect(flow.segment, list(right), Keyed(join.right_keys))
        times = [self._network.box(up).event_time if port == 0 else None for up, port in box.inputs]
        schemas = (flow.schema, right[0].schema)
        params = {"join": join, "right": schemas[1], "left_time": times[0], "right_time": times[1]}
        port = draft.add(Step(box.name, "join", params, flow.schema, INPUT, other=RIGHT))
        time = joined_time(join, out_columns(join, *schemas), times[0], times[1])
        # Rows that the join has kept are older than the watermark, so nothing behind it may go by that: it has no keys to stay for.
        self._flows[box.name, 0] = (replace(flow, port=port, schema=box.schemas[0], lag_us=0 if time is None else time[1]),)
        for late, schema in ((LATE_PORT, schemas[0]), (RIGHT_LATE_PORT, schemas[1])):
            self._flows[box.name, late] = (replace(flow, port=Port(port.step, late), schema=schema),)

    def _order(self, box: Box, kind: KeyedKind, flow: _Flow) -> tuple[_Flow, tuple[_Flow, ...]]:
        time = self._given(box).event_time
        tie_break = kind.ties(flow.schema, time)
        canonical = set(flow.schema.names) <= {time, *tie_break}
        draft = self._drafts[flow.segment]
        draft.sensitive |= not (canonical or flow.canonical)
        port = draft.add(Step(box.name, "order", {"time": time, "tie_break": tie_break}, flow.schema, flow.port))
        late = replace(flow, port=Port(port.step, LATE_PORT))
        return replace(flow, port=port, canonical=flow.canonical or canonical), (late,)

    def _state(self, box: Box, kind: KeyedKind, flow: _Flow, fed: Fed) -> None:
        draft, how = self._drafts[flow.segment], kind.step(fed)
        draft.sensitive |= how.cares and not flow.canonical
        step = Step(box.name, box.kind, {**how.params, **self._guard(box)}, flow.schema, flow.port, how.user_code)
        port, keys = draft.add(step), flow.keys if how.keeps_key else None
        late = replace(flow, port=Port(port.step, LATE_PORT))
        if (gate := self._gates.get(box.name)) is not None:
            params = {"columns": gate.columns, "whole": gate.whole, "around_us": gate.around_us}
            port = draft.add(Step(box.name, "gate", params, box.schemas[0], port))
        self._flows[box.name, 0] = (_Flow(flow.segment, port, box.schemas[0], keys, flow.canonical, how.lag_us),)
        self._flows.setdefault((box.name, LATE_PORT), (late,))

    def _given(self, box: Box) -> StreamType:
        up, port = box.inputs[0]
        return stream_type(self._network.box(up), port)

    def _combine(self, box: Box, kind: Aggregate, flow: _Flow) -> _Flow:
        """Aggregate each producer partition's rows of an epoch before they are sent.

        Which rows share a place in the table depends on their order (decision 20), so behind an exchange that must be one order.
        """
        params = {"keys": kind.keys, "calls": kind.calls, "window": kind.window}
        draft = self._drafts[flow.segment]
        draft.sensitive |= (draft.kind == "inner" or order_sensitive(kind.calls, flow.schema)) and not flow.canonical
        port = draft.add(Step(box.name, "combine", params, flow.schema, flow.port, kind.folds_user_code()))
        window = kind.window if isinstance(kind.window, TimeWindow) else None
        return replace(flow, port=port, schema=partial_schema(flow.schema, kind.keys, kind.calls, window))

    def _prune(self, box: Box, kind: KeyedKind, flow: _Flow) -> _Flow:
        """Leave out the columns that the box does not read, before they are sent."""
        needed = kind.needed(self._given(box).event_time)
        if needed is None or needed >= set(flow.schema.names):
            return flow
        kept = tuple((name, name) for name in flow.schema.names if name in needed)
        port = self._drafts[flow.segment].add(Step(box.name, "select", {"columns": kept}, flow.schema, flow.port))
        return replace(flow, port=port, schema=pa.schema([flow.schema.field(name) for name, _ in kept]))

    # ------------------------------------------------ the ends

    def _sink(self, box: Box, sink: Any, unordered: bool, given: list[_Flow]) -> None:
        if sink.place is not None and (first := self._places.setdefault(sink.place, box.name)) != box.name:
            raise QueryError(
                f"sinks {first!r} and {box.name!r} would both write into {sink}; unite their streams before, or give each its own place"
            )
        if sink.where == "none":
            for flow in given:
                self._drafts[flow.segment].add(Step(box.name, "discard", {}, flow.schema, flow.port))
        elif sink.where == "site":
            self._site_sink(box, sink, given)
        else:
            end = self._cut(box.name, "egress", 1, given, Single())
            self._drafts[end.segment].sink = box.name
            self._drafts[end.segment].unordered = unordered

    def _site_sink(self, box: Box, sink: Any, given: list[_Flow]) -> None:
        """Writers side by side stage files; one segment behind them commits what they staged (protocol O2). Nobody reads what is staged,
        but what is there is never replaced: so both publish."""
        writers = self._writers or sink.writers or self._sites
        flow = self._cut(f"{box.name}.stage", "egress", writers, given, Spread())
        port = self._drafts[flow.segment].add(Step(box.name, "stage", sink.step_params(), flow.schema, flow.port))
        end = self._cut(box.name, "egress", 1, [replace(flow, port=port, schema=sink.record_schema)], Single())
        self._drafts[end.segment].add(Step(box.name, "commit", sink.step_params(), end.schema, end.port))
        self._drafts[flow.segment].publishes = self._drafts[end.segment].publishes = True

    def _cut(self, name: str, kind: Literal["inner", "egress"], partitions: int, given: list[_Flow], route: Route) -> _Flow:
        """A new segment behind an exchange that brings together all the flows."""
        number, schema = len(self._drafts), given[0].schema
        draft = _Draft(name, kind, partitions, schema, sensitive=kind == "egress", in_use=self._in_use if isinstance(route, Keyed) else 0)
        self._drafts.append(draft)
        self._connect(number, given, route)
        return _Flow(number, INPUT, schema, None, canonical=False)

    def _connect(self, number: int, given: list[_Flow], route: Route) -> list[int]:
        """Arcs from the flows to a segment. Returns their ids."""
        made = []
        for flow in given:
            made.append(len(self._arcs))
            self._arcs.append(Arc(len(self._arcs), flow.segment, number, flow.port, flow.schema, route, flow.lag_us))
            self._canonical.append(flow.canonical)
        self._drafts[number].inputs += made
        return made


__all__ = ["INPUT", "layout"]
