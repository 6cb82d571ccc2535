"""A dataflow saved as JSON is the same dataflow when it is loaded, and a file cannot run code that nobody allowed."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch, UnknownColumn
from evenflow.query.planner import layout
from evenflow.query.refreshed import contents_in, refreshed_tables, with_contents
from evenflow.query.serial import KINDS, Consent, _describable, box_to_json, params_of
from evenflow.query.tables import RefreshedTable
from evenflow.query.text import layout_text, network_text
from tests.query.networks import PACKETS, Threshold, Tracker, packets, session_monitor


def long_enough(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch.column("length"), 40)


class Remembering(ef.Processor):
    """Has state that no field describes, so it is pickled."""

    output = "src string"

    def __init__(self, names: list[str]) -> None:
        self.names = names


MODULES = ("tests.query.networks", __name__)
"""Whose processors and functions the files here name."""


def again(flow: ef.Dataflow, *, allow_pickle: bool = False, modules: Sequence[str] = MODULES) -> ef.Dataflow:
    return ef.Dataflow.from_json(flow.to_json(), allow_pickle=allow_pickle, modules=modules)


def one_process(processor: ef.Processor) -> ef.Dataflow:
    flow = ef.Dataflow("f")
    packets(flow).key_by("src").process(processor, name="box").to(ef.sinks.discard())
    return flow


def test_the_session_network_survives() -> None:
    flow = session_monitor()
    loaded = again(flow)
    assert network_text(loaded.network) == network_text(flow.network)
    assert loaded.to_json() == flow.to_json()
    texts = [layout_text(layout(f.network, sites=4)) for f in (flow, loaded)]
    assert texts[0] == texts[1]
    assert isinstance(loaded.stream("track").box.params["processor"], Tracker)


def test_windows_over_windows_and_every_type_survive() -> None:
    flow = ef.Dataflow("f")
    number = pa.field("n", pa.int16(), nullable=False)
    schema = pa.schema([("d", pa.decimal128(10, 2)), ("b", pa.binary()), ("l", pa.list_(pa.string())), number])
    given = flow.source(ef.sources.memory([], schema=schema))
    given.group_by("d").rows(3, order="arrival").agg(all="collect_list(n)").to(ef.sinks.console())
    counts = packets(flow).group_by("src").window("1 minute", slide="20 s").agg(n="count(*)")
    counts.group_by("src").window("1 hour").agg(peak="max(n)").to(ef.sinks.parquet("out"))
    assert again(flow).to_json() == flow.to_json()


def test_a_loaded_dataflow_can_be_drawn_on() -> None:
    flow = again(session_monitor())
    flow.stream("stats").where("max_dur > 1").to(ef.sinks.discard())
    assert len(flow.network) == len(session_monitor().network) + 2


def test_a_function_of_a_module_is_saved_by_name() -> None:
    flow = ef.Dataflow("f")
    packets(flow).where(long_enough).to(ef.sinks.discard())
    assert '"python": "tests.query.test_serial:long_enough"' in flow.to_json()
    assert again(flow).stream("filter").box.params["condition"] is long_enough


def test_a_processor_is_saved_by_its_fields() -> None:
    flow = one_process(Threshold(5))
    assert "pickle" not in flow.to_json()
    assert again(flow).stream("box").box.params["processor"] == Threshold(5)


def test_what_no_field_describes_is_pickled_and_read_only_if_allowed() -> None:
    flow = one_process(Remembering(["a"]))
    with pytest.raises(QueryError, match="'box'.*allow_pickle=True"):
        again(flow)
    assert again(flow, allow_pickle=True).stream("box").box.params["processor"].names == ["a"]


def test_a_callback_is_pickled_by_reference() -> None:
    flow = ef.Dataflow("f")
    packets(flow).to(ef.sinks.callback(print), name="tell")
    with pytest.raises(QueryError, match="'tell'.*allow_pickle"):
        again(flow)
    assert again(flow, allow_pickle=True).network.box("tell").params["sink"].function is print


# ---------------------------------------------------------------- files that are wrong


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """The session network's JSON after a change to its boxes by name."""
    data = json.loads(session_monitor().to_json())
    change({box["name"]: box for box in data["boxes"]} | {"": data})
    return json.dumps(data)


def test_a_cycle_in_a_file_is_named() -> None:
    text = changed(lambda boxes: boxes["filter"].update(inputs=[["track", 0]]))
    with pytest.raises(QueryError, match="'filter' -> 'key_by' -> 'track' -> 'filter' form a cycle"):
        ef.Dataflow.from_json(text, modules=MODULES)


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda b: b["filter"]["params"].update(condition="prto = 6"), UnknownColumn, "'filter'.*prto"),
        (lambda b: b["filter"]["params"].clear(), QueryError, "'filter'.*'condition' is missing"),
        (lambda b: b["stats"].update(schemas=["x int", "y int"]), QueryError, "'stats' claims the columns"),
        (lambda b: b["stats"]["params"]["calls"][0]["$call"].update(column="app"), TypeMismatch, "'stats'"),
        (lambda b: b["traffic"]["params"]["window"]["$time_window"].update(slide_us=10**9), QueryError, "'traffic'.*slide"),
        (lambda b: b["stats"]["params"].update(window={"$moon": {}}), QueryError, "'stats'.*unknown kind '\\$moon'"),
        (lambda b: b["watermark"].update(inputs=[["nowhere", 0]]), QueryError, "'nowhere', which does not exist"),
        (lambda b: b["watermark"].pop("kind"), QueryError, "'watermark' cannot be read"),
        (lambda b: b["track"]["params"]["processor"].update(python="no.such:Thing"), QueryError, "'track' needs no.such:Thing"),
        (lambda b: b[""].update(evenflow=99), QueryError, "format 99"),
        (lambda b: b[""].pop("boxes"), QueryError, "not a dataflow"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change: Callable[[dict[str, Any]], object], kind: type[QueryError], says: str) -> None:
    with pytest.raises(kind, match=says):
        ef.Dataflow.from_json(changed(change), modules=(*MODULES, "no"))


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(QueryError, match="not JSON"):
        ef.Dataflow.from_json("{")


CALLABLES = ["subprocess:Popen", "os:system", "builtins:exec"]


@pytest.mark.parametrize("thing", CALLABLES)
@pytest.mark.parametrize("allowed", [{"allow_pickle": True}, {"modules": ["subprocess", "posix", "os", "builtins"]}], ids=repr)
def test_a_file_cannot_have_any_callable_called(thing: str, allowed: Any) -> None:
    text = changed(lambda boxes: boxes["track"]["params"].update(processor={"python": thing, "with": {"args": "false"}}))
    with pytest.raises(QueryError, match="neither a dataclass nor a processor|is not defined in os"):
        ef.Dataflow.from_json(text, **allowed)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module on the path that leaves a trace when it is imported. Returns the trace."""
    bait = "def bait(batch): return pa.array([True] * batch.num_rows, pa.bool_())"
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nimport os\nimport pyarrow as pa\n{bait}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    return tmp_path / "sprung"


NAMED: list[Any] = [{"python": "trap:bait"}, {"python": "trap:Bait", "with": {}}, {"$kind": "trap:Bait", "with": {}}]


@pytest.mark.parametrize("named", NAMED, ids=repr)
@pytest.mark.parametrize("key", ["condition", "somewhere"])
def test_a_file_has_no_module_imported_without_consent(trap: Path, named: Any, key: str) -> None:
    text = changed(lambda boxes: boxes["filter"]["params"].update({key: [named]}))
    with pytest.raises(QueryError, match="'filter'.*(modules=\\['trap'\\].*allow_pickle=True|unknown kind)"):
        ef.Dataflow.from_json(text, modules=MODULES)
    assert not trap.exists() and "trap" not in sys.modules


def test_a_file_names_what_a_module_defines_only_if_that_is_allowed(trap: Path) -> None:
    text = changed(lambda boxes: boxes["filter"]["params"].update(condition={"python": "trap:bait"}))
    for allowed in ({"modules": (*MODULES, "trap")}, {"allow_pickle": True}):
        assert callable(ef.Dataflow.from_json(text, **allowed).stream("filter").box.params["condition"])  # type: ignore[arg-type]
    assert trap.exists()
    for elsewhere in ("trap:os.system", "trap:os"):
        text = changed(lambda boxes, name=elsewhere: boxes["filter"]["params"].update(condition={"python": name}))  # type: ignore[misc]
        with pytest.raises(QueryError, match="is not defined in trap"):
            ef.Dataflow.from_json(text, modules=(*MODULES, "trap"))


def test_every_kind_is_there_and_is_found_by_its_name() -> None:
    for kind, module in KINDS.items():
        found = getattr(importlib.import_module(module), kind)
        assert found.__module__ == module and _describable(found)


def test_what_is_evenflow_s_own_needs_no_consent() -> None:
    """Kinds are named without their modules, and found also where an older version had them."""
    flow = ef.Dataflow("f")
    packets(flow, name="a").join_latest(packets(flow, name="b"), on="src", suffix="_r").to(ef.sinks.discard())
    text = flow.to_json()
    assert '"$kind": "Latest"' in text and "python" not in text
    assert again(flow, modules=()).to_json() == text
    older = text.replace('"$kind": "Latest"', '"python": "evenflow.somewhere:Latest"')
    assert ef.Dataflow.from_json(older).to_json() == text


def test_what_can_be_neither_imported_nor_pickled_is_refused() -> None:
    flow = one_process(Remembering([open]))  # type: ignore[list-item]
    flow.stream("box").box.params["processor"].names = (x for x in "ab")
    with pytest.raises(QueryError, match="'box'.*cannot be saved"):
        flow.to_json()


def test_schemas_are_saved_as_ddl() -> None:
    assert json.loads(session_monitor().to_json())["boxes"][0]["schemas"] == [
        "ts timestamp, src string, dst string, proto tinyint, length int, rate double"
    ]
    assert len(PACKETS) == 6


def test_what_was_read_of_a_refreshed_table_is_saved_without_code() -> None:
    """As locations have it: name, columns, key, interval, and the rows that it had."""
    flow = ef.Dataflow("f")
    rows = pa.table({"k": [1, 2], "name": ["a", None], "at": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    table = flow.table(lambda: rows, "names", key="k", refresh="5 minutes")
    flow.source(ef.sources.memory(pa.table({"k": [1]})), name="in").join(table, "k", name="joined").to(ef.sinks.discard())
    (read,) = refreshed_tables(with_contents(flow.network, {"names": rows}))
    box = with_contents(flow.network, {"names": rows}).box("joined")
    found = params_of("joined", json.loads(json.dumps(box_to_json(box)["params"])), Consent())["table"]
    assert isinstance(found, RefreshedTable) and found.given.equals(rows)
    assert (found.name, found.schema, found.key, found.every_us) == (read.name, read.schema, read.key, read.every_us)
    assert contents_in(flow.network) == {}


@pytest.mark.parametrize("ddl", [7, "no such thing as this type", "a bigint, a bigint", ["a bigint"], {"a": "bigint"}, None])
def test_a_schema_that_is_none_is_refused(ddl: Any) -> None:
    with pytest.raises(QueryError, match="'schema' cannot be read|unknown type|more than once"):
        params_of("box", {"schema": {"$schema": ddl}}, Consent())
