"""A driver that goes on where another one stopped tells its program from that one's by what they are, not by what Python makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.differences import differences
from evenflow.coordinator.versions import asked_for
from evenflow.errors import LocationError
from evenflow.plan.layout import Layout
from evenflow.query.builder import Dataflow
from evenflow.query.footprint import footprint
from evenflow.query.planner import layout
from evenflow.query.structure import Structure, as_before, first_difference, structure, structure_digest
from evenflow.sources.kafka import KafkaSource
from evenflow.sources.table import TableSource

MODULE = """
import evenflow as ef
LIMIT = {limit}

def helper(x):
    {comment}
    return x + {added}

@ef.udf("bigint")
def bucket(x):
    return helper(x) // LIMIT

class Counts(ef.Processor):
    output = "n bigint"
    def open(self, store):
        store.value("n", "bigint")
    def process(self, key, rows, state):
        state.n = (state.n or 0) + len(rows)
        yield (state.n{more},)

def dataflow():
    flow = ef.Dataflow("told apart")
    rows = flow.source(ef.sources.generator(rows=10, keys=4)).with_columns(b=bucket("key"))
    rows.key_by("key").process(Counts()).to(ef.sinks.discard())
    return flow
"""


def module_of(limit: int = 8, comment: str = "# add", added: int = 1, more: str = "") -> ModuleType:
    made = ModuleType("told_apart")
    exec(MODULE.format(limit=limit, comment=comment, added=added, more=more), made.__dict__)
    return made


def of(flow: Dataflow, sites: int = 4) -> Structure:
    return structure(layout(flow.network, sites=sites, partitions=16))


def flow_of(condition: str = "key > 1", sink: ef.sinks.Sink | None = None, calls: str = "count(*)", rate: int = 100) -> Dataflow:
    flow = ef.Dataflow("plain")
    kept = flow.source(ef.sources.generator(rate=rate, keys=4)).where(condition).name("kept")
    kept.group_by("key").agg(n=calls).name("counts").to(sink or ef.sinks.discard(), name="out")
    return flow


def test_it_is_the_same_in_another_process_whatever_its_hashes_are(tmp_path: Path) -> None:
    (tmp_path / "told_apart.py").write_text(MODULE.format(limit=8, comment="# add", added=1, more=""))
    program = (
        "import told_apart\nfrom evenflow.query.planner import layout\nfrom evenflow.query.structure import *\n"
        "print(structure_digest(structure(layout(told_apart.dataflow().network, sites=4, partitions=16))))"
    )
    said = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        said.add(ran.stdout)
    assert len(said) == 1
    assert said == {structure_digest(of(module_of().dataflow())) + "\n"}


def test_it_is_plain_json() -> None:
    said = of(module_of().dataflow())
    assert first_difference(json.loads(json.dumps(said)), said) is None
    assert "0x" not in json.dumps(said)


def test_a_comment_and_a_docstring_are_no_difference() -> None:
    before = of(module_of().dataflow())
    assert first_difference(before, of(module_of(comment='"""Adds one."""').dataflow())) is None
    assert first_difference(before, of(module_of(comment="# something else").dataflow())) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"more": " + 1"}, "box 'Counts', processor: the code of Counts is another one"),
        ({"added": 2}, "the code of bucket is another one"),
        ({"limit": 9}, "the code of bucket is another one"),
    ],
    ids=["a processor", "what a function calls", "a constant that a function names"],
)
def test_code_that_does_something_else_is_told(change: dict[str, int], told: str) -> None:
    found = first_difference(of(module_of().dataflow()), of(module_of(**change).dataflow()))  # type: ignore[arg-type]
    assert found is not None and told in found and "box" in found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: flow_of(condition="key > 2"), "box 'kept', condition: was key > 1, is key > 2"),
        (lambda: flow_of(calls="sum(value)"), "box 'kept': columns: was"),
        (lambda: flow_of(rate=200), "source 'generator', rate: was 100, is 200"),
        (lambda: flow_of(sink=ef.sinks.memory("x")), "box 'out' is gone"),
        (lambda: module_of().dataflow(), "box 'kept' is gone"),
    ],
)
def test_the_first_difference_names_the_box_and_the_field(change: Callable[[], Dataflow], told: str) -> None:
    found = first_difference(of(flow_of()), of(change()))
    assert found is not None and told in found


def test_where_a_sink_writes_counts_and_how_patient_it_is_does_not(tmp_path: Path) -> None:
    def to(name: str, retries: int = 5) -> Dataflow:
        return flow_of(sink=ef.sinks.parquet(str(tmp_path / name), retries=retries))

    assert first_difference(of(to("a")), of(to("a", retries=9))) is None
    found = first_difference(of(to("a")), of(to("b")))
    assert found is not None and "'out', path" in found


def test_a_program_is_the_same_however_often_a_process_has_run_it() -> None:
    """Names that sinks have by themselves are counted in a process: in a notebook, a program that is run again has others."""

    def to_topic(**named: str) -> Layout:
        return layout(flow_of(sink=ef.sinks.kafka("localhost:9092", "t", **named)).network, sites=2)

    first = json.loads(json.dumps(structure(to_topic())))
    again = as_before(to_topic(), first)
    assert again.sinks["out"].name == first["sinks"]["out"]["name"], "by which the topic knows the run"
    assert first_difference(first, structure(again)) is None and structure_digest(structure(again)) == structure_digest(first)
    assert "'out', name" in str(first_difference(first, structure(as_before(to_topic(name="mine"), first))))
    kept = [of(flow_of(sink=ef.sinks.memory())) for _ in range(2)]
    assert kept[0] == kept[1]
    kept[0]["sinks"]["out"]["name"] = "memory-1"  # So others have written it down.
    assert first_difference(kept[0], kept[1]) is None
    assert first_difference(of(flow_of(sink=ef.sinks.memory("a"))), of(flow_of(sink=ef.sinks.memory("b")))) is not None


def test_a_version_may_write_to_a_topic_by_a_name_that_it_has_by_itself() -> None:
    running, wanted = (layout(flow_of(sink=ef.sinks.kafka("localhost:9092", "t")).network, sites=2) for _ in range(2))
    found = differences(running, asked_for(wanted, running, {}))
    assert [each for each in found if each.change != "same"] == []


def test_what_a_callback_does_is_no_part_of_the_rows() -> None:
    def to(function: Callable[[int, pa.RecordBatch], object]) -> Dataflow:
        return flow_of(sink=ef.sinks.callback(function))

    assert first_difference(of(to(lambda epoch, batch: None)), of(to(print))) is None


def test_the_number_of_sites_is_told_where_it_shows() -> None:
    assert first_difference(of(flow_of()), of(flow_of(), sites=3)) == "segment 'generator', partitions: was 4, is 3"


COLUMNS = pa.schema([("id", pa.int64())])


def kafka(*starts: tuple[int, int], ends: tuple[tuple[int, int], ...] = ()) -> KafkaSource:
    return KafkaSource("localhost:9092", "t", COLUMNS, "json", starts, ends, options=(("sasl.password", "hunter2"),))


def reading(source: ef.sources.Source) -> Layout:
    flow = ef.Dataflow("ends")
    flow.source(source, name="in").to(ef.sinks.discard())
    return layout(flow.network, sites=2)


def test_secrets_are_not_written_down() -> None:
    table = TableSource("postgresql://me:hunter2@there/db", "t", COLUMNS, "id")
    for source in (kafka((0, 5)), table):
        said = json.dumps(structure(reading(source)))
        assert "hunter2" not in said
        assert "there" in said or "localhost:9092" in said


def test_what_a_source_has_looked_up_is_that_of_its_first_start() -> None:
    before = json.loads(json.dumps(structure(reading(kafka((0, 5), (1, 7), ends=((0, 9), (1, 9)))))))
    now = as_before(reading(kafka((0, 80), (1, 90), ends=((0, 99), (1, 99)))), before)
    assert now.sources["in"].starts == ((0, 5), (1, 7)) and now.sources["in"].ends == ((0, 9), (1, 9))
    assert first_difference(before, structure(now)) is None


def test_a_topic_that_has_grown_is_an_error_and_not_left_unread() -> None:
    before = structure(reading(kafka((0, 5))))
    with pytest.raises(LocationError, match="source 'in' has the partitions 0, 1 now, and had 0"):
        as_before(reading(kafka((0, 5), (1, 0))), before)


def test_rows_are_the_same_however_they_are_cut() -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    assert footprint(table) == footprint(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert footprint(table) != footprint(table.slice(1))
    assert footprint(np.arange(3)) != footprint(np.arange(4))


def test_what_holds_itself_comes_to_an_end() -> None:
    held: list[object] = []
    held.append(held)
    assert footprint(held) == [{"again": "list"}]
