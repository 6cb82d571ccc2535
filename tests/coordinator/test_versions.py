"""Which version may take the place of which: the same boxes with other code, and everything else is refused, naming the box."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow.coordinator.versions import asked_for, columns_of, in_version, version_of, with_table
from evenflow.errors import OperationRefused
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_plan
from evenflow.plan.plan import Version
from evenflow.query.planner import layout
from evenflow.world.spark.driver.program import pack_version
from tests.query.networks import PACKETS

SINK = ef.sinks.memory("out")


class Counter(ef.Processor):
    """Counts with one field, of a name and type that are given."""

    output = "src string, n bigint"

    def __init__(self, field: str = "n", type_: str = "bigint") -> None:
        self.field, self.type = field, type_

    def open(self, store: Any) -> None:
        store.value(self.field, self.type)

    def process(self, key: Any, rows: Any, state: Any) -> None:
        return None


def build(
    condition: Any = "proto = 6",
    kept: str = "length + 1 as length",
    processor: ef.Processor | None = None,
    sink: ef.sinks.Sink = SINK,
    keys: tuple[str, ...] = ("src",),
    more: Callable[[ef.Stream], ef.Stream] = lambda stream: stream,
    delay: str = "10 seconds",
    count: str = "count(*)",
    partitions: int = 3,
    name: str = "kept",
) -> ef.Dataflow:
    flow = ef.Dataflow("f")
    source = flow.source(ef.sources.memory([], partitions, schema=PACKETS), name="packets").with_watermark("ts", delay)
    rows = more(source.where(condition, name="tcp").select("ts", "src", "proto", kept).name(name))
    rows.key_by(*keys).process(processor or Counter(), order="arrival", name="counter").to(sink, name="out")
    rows.group_by("src").window("1 second").agg(n=count).name("windows").to(ef.sinks.memory("w"), name="w")
    return flow


def planned(flow: ef.Dataflow, **given: Any) -> Layout:
    return layout(flow.network, sites=4, partitions=8, **given)


RUNNING = planned(build(processor=Counter()))


def version(flow: ef.Dataflow, **given: Any) -> Version:
    return version_of(RUNNING, first_plan(RUNNING, 4), planned(flow, columns=columns_of(RUNNING), **given), 1)


def test_boxes_without_state_and_processors_may_do_something_else() -> None:
    found = version(build("proto = 17 and length > 9", "length * 2 as length", processor=Counter()))
    assert found.boxes == ("tcp", "kept", "counter") and set(found.since) == {0, 1}
    _, segment = first_plan(RUNNING, 4).runs(RUNNING.segments[0])
    assert segment is RUNNING.segments[0]


def test_what_a_version_does_not_change_is_as_before() -> None:
    same = RUNNING.segments[0].steps
    found = version(build("proto = 17"))
    changed = dict(found.steps[0])
    assert [step.box for step in changed.values()] == ["tcp"] and all(changed[at] != same[at] for at in changed)


REFUSED: list[tuple[str, ef.Dataflow, str]] = [
    ("columns that do not come in", build("dst = 'x'"), "box 'packets' reads dst, which the running version does not take in"),
    ("other columns", build(kept="'x' as length"), "box 'kept' gives other columns"),
    ("another store", build(processor=Counter("m")), "the processor of box 'counter' declares another store"),
    ("another type in the store", build(processor=Counter("n", "double")), "the processor of box 'counter' declares another store"),
    ("a new box", build(more=lambda stream: stream.where("length > 1", name="long")), "box 'long' is new"),
    ("another name", build(name="other"), "box '(kept|other)' is (missing|new)"),
    ("another key", build(keys=("proto",)), "box .counter. has|what goes from"),
    ("another sink", build(sink=ef.sinks.discard()), "box|sink"),
    ("another watermark", build(delay="20 seconds"), "has state, and another"),
    ("another aggregate", build(count="sum(length)"), "box 'windows'"),
    ("other partitions", build(partitions=2), "the source 'packets' is another one"),
]


@pytest.mark.parametrize(("flow", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_anything_else_is_refused(flow: ef.Dataflow, why: str) -> None:
    with pytest.raises(OperationRefused, match=why) as refused:
        version(flow)
    assert "Start it as a dataflow of its own" in str(refused.value)


def is_tcp(rows: pa.RecordBatch) -> pa.Array:
    return pc.equal(rows.column("proto"), 6)


def test_functions_where_rows_enter_are_refused_where_there_were_none() -> None:
    with pytest.raises(OperationRefused, match="box 'tcp' calls functions where rows enter, where none did"):
        version(build(is_tcp))


def test_the_same_version_is_refused() -> None:
    processor = Counter()
    running, again = planned(build(processor=processor)), planned(build(processor=processor))
    with pytest.raises(OperationRefused, match="runs in this version already"):
        version_of(running, first_plan(running, 4), again, 1)


def totals(made: type[ef.Aggregator], *given: Any, column: str = "length") -> Layout:
    flow = ef.Dataflow("f")
    rows = flow.source(ef.sources.memory([], 3, schema=PACKETS), name="packets")
    rows.group_by("src").agg(n=made(*given)(column)).name("totals").to(SINK, name="out")
    return planned(flow)


def aggregator(name: str = "Total", state: str | None = "bigint", output: str = "bigint", merging: bool = True) -> type[ef.Aggregator]:
    """A class that has been loaded anew: equal to others by name only."""

    def update(self: Any, state: Any, x: Any) -> Any:
        return state + 1

    methods = {"zero": lambda self: 0, "update": update, **({"merge": update} if merging else {})}
    return type(name, (ef.Aggregator,), {"output": output, "state": state, **methods})


def test_aggregators_may_have_other_code() -> None:
    running = totals(aggregator())
    found = version_of(running, first_plan(running, 4), totals(aggregator()), 1)
    assert "totals" in found.boxes and {step.kind for steps in found.steps for step in steps.values()} >= {"combine", "aggregate"}


OTHERS: list[tuple[str, Layout, str]] = [
    ("another state", totals(aggregator(state="double")), "the aggregator Total of box 'totals' is another class, declares another state"),
    (
        "an undeclared state",
        totals(aggregator(state=None)),
        "the aggregator Total of box 'totals' is another class, declares another state",
    ),
    ("another class", totals(aggregator("Other")), "the aggregator Other of box 'totals' is another class|box 'totals' has state"),
    ("another result", totals(aggregator(output="double")), "gives other columns"),
    ("no merge", totals(aggregator(merging=False)), "box"),
]


@pytest.mark.parametrize(("wanted", "why"), [case[1:] for case in OTHERS], ids=[case[0] for case in OTHERS])
def test_aggregators_with_other_states_are_refused(wanted: Layout, why: str) -> None:
    running = totals(aggregator())
    with pytest.raises(OperationRefused, match=why):
        version_of(running, first_plan(running, 4), wanted, 1)


def test_a_version_of_a_version() -> None:
    """What the first has changed stays as it is where the second does not change it back."""
    first = version(build("proto = 17", "length * 2 as length", processor=(processor := Counter())))
    plan = first_plan(RUNNING, 4).with_settings(version=first)
    second = version_of(RUNNING, plan, planned(build("proto = 17", processor=processor)), 2)
    assert second.boxes == ("kept",) and second.since == (2, 1, 0, 0, 0)[: len(second.since)]
    number, segment = plan.with_settings(version=second).runs(RUNNING.segments[0])
    conditions = [step.params["condition"] for step in segment.steps if step.box == "tcp"]
    assert number == 2 and conditions == ["proto = 17"]


def test_a_table_that_is_read_anew_changes_nothing_else() -> None:
    """Goal: a version of a refreshed table keeps what the one before it has changed. Method: a condition first, then the table."""

    def build_with(condition: str) -> ef.Dataflow:
        flow = ef.Dataflow("f")
        table = flow.table(lambda: pa.table({"proto": [6], "name": ["tcp"]}), "names")
        rows = flow.source(ef.sources.memory([], schema=PACKETS), name="packets").where(condition, name="kept")
        rows.join(table, "proto", name="named").to(SINK, name="out")
        return flow

    running = planned(build_with("proto > 1"))
    first = version_of(running, first_plan(running, 4), planned(build_with("proto > 2"), columns=columns_of(running)), 1)
    plan = first_plan(running, 4).with_settings(version=first)
    second = with_table(running, plan, "names", pa.table({"proto": [17], "name": ["udp"]}), 2)
    assert (second.boxes, second.tables, second.since[0]) == (("named",), (("names", 1),), 2)
    steps = in_version(running, plan.with_settings(version=second)).segments[0].steps
    assert [step.params["condition"] for step in steps if step.box == "kept"] == ["proto > 2"]
    assert [step.params["table"].column("name").to_pylist() for step in steps if step.box == "named"] == [["udp"]]


def test_a_version_travels_with_its_functions() -> None:
    """Plain pickle takes it, as it does plans, though a function of a box is no importable one."""
    flow = build(processor=Counter())
    found = pack_version(version(flow), planned(flow))
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.packed) == (found, found.packed) and set(again.steps[1]) == set(found.steps[1])


def worth(qos: Any, condition: str) -> Layout:
    flow = ef.Dataflow("f")
    flow.source(ef.sources.generator(10), name="in").where(condition, name="some").to(SINK, name="out", qos=qos)
    return layout(flow.network, sites=4, partitions=8)


@pytest.mark.parametrize("condition", ["value > 1", "value > 2"])
@pytest.mark.parametrize("qos", [None, ef.qos(latency=[("2 s", 1), ("3 s", 0)])])
def test_an_output_keeps_its_quality_of_service(qos: Any, condition: str) -> None:
    """Goal: no output is protected by its newest version, and has rows left out all the same."""
    given = ef.qos(latency=[("250 ms", 1), ("1 s", 0)])
    running = worth(given, "value > 1")
    assert version_of(running, first_plan(running, 4), worth(given, "value > 2"), 1).boxes == ("some",)
    for one, other in ((running, worth(qos, condition)), (worth(qos, condition), running)):
        with pytest.raises(OperationRefused, match="output 'out' .* another qos"):
            version_of(one, first_plan(one, 4), other, 1)


def test_a_source_that_began_at_a_time_is_the_same_one() -> None:
    """What it has looked up when the run was begun is not what anybody asks for."""

    def rated(rate: int, number: int) -> Layout:
        flow = ef.Dataflow("f")
        made = flow.source(ef.sources.generator(rate=rate, keys=4, partitions=2), name="made")
        made.select("key", f"{number} as n").name("marked").to(SINK, name="out")
        return planned(flow)

    running = rated(10, 1)
    running = replace(running, sources={name: source.begun(123) for name, source in running.sources.items()})
    with pytest.raises(OperationRefused, match="the source 'made' is another one"):
        version_of(running, first_plan(running, 4), asked_for(rated(20, 2), running, {}), 1)
    assert version_of(running, first_plan(running, 4), asked_for(rated(10, 2), running, {}), 1).boxes == ("marked",)
