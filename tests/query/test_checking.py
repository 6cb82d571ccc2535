"""Every box of a half-drawn network is judged, faults are said where they are, and nothing that the file names is imported."""

from __future__ import annotations

import base64
import copy
import dataclasses
import gc
import importlib
import json
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import sinks, sources
from evenflow.errors import EvenflowError, QueryError
from evenflow.query import checking, saved_tables
from evenflow.query.checking import Checker, filled
from evenflow.query.kinds import KINDS
from evenflow.query.serial import KINDS as CLASSES
from evenflow.query.serial import Consent, document_of, network_from_json
from evenflow.query.sql.folding import within
from tests.query.networks import packets, session_monitor

ALLOWED = Consent(modules=("tests.query.networks",))
Document = dict[str, Any]


def drawn() -> Document:
    """A source, a watermark, a filter, a select, totals by window, and where they go; and rows by rank."""
    flow = ef.Dataflow("drawn")
    rows = packets(flow).where("proto = 6 and length > 40", name="tcp").with_column("kb", "length / 1024")
    rows.group_by("src").window("1 minute").agg(n="count(*)", kb="sum(kb)").name("totals").to(ef.sinks.discard(), name="gone")
    rows.case("length > 100", "length > 50", name="sizes")[0].to(ef.sinks.discard(), name="large")
    rows.group_by("src").rows(10).agg(mean="avg(length)").name("last").to(ef.sinks.discard(), name="kept")
    return document_of(flow.to_json())


def box(document: Document, name: str) -> Any:
    return next(each for each in document["boxes"] if each["name"] == name)


def told(document: Document, checker: Checker | None = None) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (checker or Checker(ALLOWED)).check(document).to_json()["boxes"]}


def test_what_is_right_is_right_and_claims_what_it_claims() -> None:
    for document in (drawn(), document_of(session_monitor().to_json())):
        checked = Checker(ALLOWED).check(document)
        assert checked.right and checked.loose in ((), ("sizes",))
        bare = {**document, "boxes": [{k: v for k, v in each.items() if k not in ("schemas", "event_time")} for each in document["boxes"]]}
        assert filled(bare, Checker(ALLOWED).check(bare)) == document


def test_it_does_not_stop_at_the_first_fault_and_says_who_waits() -> None:
    document = drawn()
    box(document, "tcp")["params"]["condition"] = "prto = 6"
    box(document, "packets")["at"] = [3, 4]
    document["boxes"].append({"name": "alone", "kind": "source", "params": {}})
    found = told(document)
    assert (found["tcp"]["state"], found["tcp"]["type"], found["tcp"]["parameter"]) == ("wrong", "UnknownColumn", "condition")
    assert (found["tcp"]["start"], found["tcp"]["end"]) == (0, 4)
    assert found["select"]["state"] == "waiting" and found["select"]["waits_for"] == ["tcp"]
    assert found["totals"]["waits_for"] == ["select"]
    assert (found["alone"]["state"], found["alone"]["parameter"]) == ("wrong", "source")
    assert found["watermark"]["state"] == "right" and found["watermark"]["ports"][0]["event_time"] == "ts"


@pytest.mark.parametrize(
    ("name", "change", "parameter", "item", "part"),
    [
        ("tcp", {"condition": "proto = 6 and foo(length) > 40"}, "condition", None, "foo(length)"),
        ("tcp", {"condition": "proto = 6 and length >"}, "condition", None, ">"),
        ("tcp", {"condition": "proto =\n 6 and (lngth > 40)"}, "condition", None, "lngth"),
        ("tcp", {"condition": "length"}, "condition", None, None),
        ("tcp", {"condition": 3}, "condition", None, None),
        ("tcp", {"condition": {"$moon": 1}}, "condition", None, None),
        ("tcp", {"on_error": "perhaps"}, "on_error", None, None),
        ("select", {"columns": [["a", "length"], ["b", "lenth + 1"]]}, "columns", 1, "lenth"),
        ("select", {"columns": [["a", "length"], ["a", "src"]]}, "columns", None, None),
        ("select", {"columns": [["a", "src + 1"], ["ts", "ts"]], "event_time": "t"}, "event_time", None, None),
        ("watermark", {"column": "src"}, "column", None, None),
        ("watermark", {"delay_us": -1}, "delay_us", None, None),
        ("watermark", {"idle_us": 0}, "idle_us", None, None),
        ("totals", {"keys": ["src", "nobody"]}, "keys", 1, None),
        ("totals", {"mode": "sometimes"}, "mode", None, None),
        ("totals", {"order": "never"}, "order", None, None),
        ("totals", {"calls": []}, "calls", None, None),
        ("totals", {"window": {"$time_window": {"column": "ts", "size_us": 10, "slide_us": 20}}}, "window", None, None),
        ("last", {"window": {"$row_window": {"history": 3, "slide": 0}}}, "window", None, None),
        ("last", {"tie_break": ["dst", "nobody"]}, "tie_break", 1, None),
        ("sizes", {"conditions": ["length > 1", "length + 1"]}, "conditions", 1, None),
        ("gone", {"sink": {"$sink": {"kind": "nowhere"}}}, "sink", None, None),
        ("packets", {"source": 5}, "source", None, None),
    ],
)
def test_a_fault_says_which_parameter_and_which_letters(
    name: str, change: dict[str, Any], parameter: str, item: int | None, part: str | None
) -> None:
    document = drawn()
    box(document, name)["params"].update(change)
    found = told(document)[name]
    assert (found["state"], found["parameter"], found.get("item")) == ("wrong", parameter, item), found
    if part is not None:
        text = checking._expression(change[parameter], item)
        assert text[found["start"] : found["end"]] == part


def test_a_parameter_that_is_missing_is_named() -> None:
    for name, kind in KINDS.items():
        needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
        if not needed:
            continue
        document = drawn()
        inputs = [["watermark", 0]] * kind.inputs[0]
        document["boxes"].append({"name": "new", "kind": name, "inputs": inputs, "params": {}})
        assert told(document)["new"]["parameter"] == needed[0]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda d: box(d, "tcp").update(inputs=[["totals", 0]]), {"tcp": "inputs", "select": "inputs", "totals": "inputs"}),
        (lambda d: box(d, "tcp").update(inputs=[["nobody", 0]]), {"tcp": "inputs"}),
        (lambda d: box(d, "tcp").update(inputs=[["watermark", 7]]), {"tcp": "inputs"}),
        (lambda d: box(d, "tcp").update(inputs=[]), {"tcp": "inputs"}),
        (lambda d: box(d, "tcp").update(inputs="watermark"), {"tcp": "inputs"}),
        (lambda d: box(d, "tcp").update(inputs=[["watermark"]]), {"tcp": "inputs"}),
        (lambda d: box(d, "tcp").update(kind="flter"), {"tcp": "kind"}),
        (lambda d: box(d, "tcp").update(kind=["filter"]), {"tcp": "kind"}),
        (lambda d: box(d, "tcp").update(params=[]), {"tcp": "params"}),
        (lambda d: d["boxes"].append({"name": "tcp", "kind": "union"}), {"tcp": "name"}),
        (lambda d: d["boxes"].append({"kind": "union"}), {"": "name"}),
        (lambda d: d["boxes"].append("union"), {"": "name"}),
    ],
)
def test_a_network_of_a_wrong_shape_is_told_box_by_box(change: Any, wrong: dict[str, str]) -> None:
    document = drawn()
    change(document)
    checked = Checker(ALLOWED).check(document)
    assert not checked.right
    assert {each.name: each.fault.parameter for each in checked.boxes if each.fault is not None} == wrong
    with pytest.raises(QueryError):
        network_from_json(json.dumps(document), modules=ALLOWED.modules)


def test_what_no_box_can_know_is_a_fault_of_the_whole() -> None:
    flow = ef.Dataflow("late")
    rows = packets(flow, watermark=False)
    rows.group_by("src").agg(n="count(*)", ts="max(ts)").to(ef.sinks.discard())
    document = document_of(flow.to_json())
    document["boxes"].insert(2, {"name": "w", "kind": "watermark", "inputs": [["aggregate", 0]], "params": {"column": "ts", "delay_us": 1}})
    name = next(each["name"] for each in document["boxes"] if each["kind"] == "aggregate")
    box(document, "w")["inputs"] = [[name, 0]]
    box(document, "discard")["inputs"] = [["w", 0]]
    checked = Checker().check(document)
    assert all(each.state == "right" for each in checked.boxes) and not checked.right
    assert checked.fault is not None and "watermark" in checked.fault.error


def test_totals_need_not_say_their_types() -> None:
    document = drawn()
    for call in box(document, "totals")["params"]["calls"]:
        del call["$call"]["type"]
    checked = Checker(ALLOWED).check(document)
    assert checked.right and filled(document, checked) == drawn()
    box(document, "totals")["params"]["calls"][1]["$call"]["column"] = "src"
    found = told(document)["totals"]
    assert (found["type"], found["parameter"], found["item"]) == ("TypeMismatch", "calls", 1)


def test_a_letter_costs_one_box(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    judge = checking.outcome
    monkeypatch.setattr(checking, "outcome", lambda name, *more: (asked.append(name), judge(name, *more))[1])
    checker, document = Checker(ALLOWED), drawn()
    checker.check(document)
    assert len(asked) == len(document["boxes"])
    asked.clear()
    box(document, "tcp")["params"]["condition"] += " "
    assert checker.check(document).right and asked == ["tcp"]
    asked.clear()
    box(document, "select")["params"]["columns"].append(["more", "1"])
    checker.check(document)
    assert asked == ["select", "totals", "gone", "sizes", "large", "last", "kept"] or set(asked) >= {"select", "totals", "sizes", "last"}
    assert "tcp" not in asked


def two_hundred() -> Document:
    """Of the kinds that people draw, with expressions of some length."""
    flow = ef.Dataflow("wide")
    rows = packets(flow)
    for number in range(14):
        mine = rows.where(f"proto in (6, 17) and length between {number} and 1500 and (rate < 0.5 or rate > 2.5)", name=f"mine_{number}")
        named = mine.select(
            "ts", "src", "dst", "length", "case when proto = 6 then 'tcp' when proto = 17 then 'udp' else 'other' end as app",
            f"length * 8.0 / {number + 1} as bits", "substring(src, 1, 6) as net",
        )  # fmt: skip
        totals = named.group_by("src", "app").window("1 minute").agg(n="count(*)", bytes="sum(length)", most="max(bits)", mean="avg(bits)")
        often = totals.where("n > 10 and bytes / n > 40").select("src", "bytes", "mean", "concat(src, '/', app) as label")
        often.where("mean > 10.5").to(ef.sinks.discard())
        named.where("app = 'udp'").drop_duplicates(["src", "net", "ts"]).to(ef.sinks.discard())
        named.group_by("net").agg(k="count(*)", last="max(ts)").where("k > 3").to(ef.sinks.discard())
    return document_of(flow.to_json())


def slowness(document: Any) -> float:
    """How many times as long as on the machine of these bounds such work takes here and now, at least once: five copies of the document
    took 6.6 ms there, where checking it took 64. Processors differ by a factor of two, and so do those that others use as well."""
    return max(1.0, best_of_five(lambda: [copy.deepcopy(document) for _ in range(5)]) / 0.0066)


def best_of_five(work: Callable[[], Any]) -> float:
    """Seconds of CPU, as `timeit` takes them, without the garbage of all tests before: others work on this machine, too."""
    took_s = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            began_s = time.thread_time()
            work()
            took_s.append(time.thread_time() - began_s)
    finally:
        gc.enable()
    return min(took_s)


@pytest.mark.conformance
def test_two_hundred_boxes_are_judged_while_somebody_types() -> None:
    """All of them when they are opened, and again after each letter: the boxes that it touches, and what is true of the whole only."""
    document, checker = two_hundred(), Checker()
    assert len(document["boxes"]) > 200 and checker.check(document).right
    assert best_of_five(lambda: Checker().check(document)) <= 0.150 * slowness(document)

    def typed() -> None:
        box(document, "mine_9")["params"]["condition"] += " "
        checker.check(document)

    assert best_of_five(typed) <= 0.050 * slowness(document)


def test_code_is_locked_and_what_is_behind_it_is_judged_by_its_claim() -> None:
    document = document_of(session_monitor().to_json())
    found = told(document, Checker())
    assert found["track"]["state"] == "locked" and found["track"]["type"] == "CodeNotAllowed"
    assert found["track"]["ports"][0]["ddl"] == "ts timestamp, src string, app string, dur double"
    assert found["stats"]["state"] == "right"
    del box(document, "track")["schemas"]
    assert told(document, Checker())["stats"]["waits_for"] == ["track"]


def test_only_arrows_that_fit_are_offered() -> None:
    document = drawn()
    document["boxes"].append({"name": "both", "kind": "union", "inputs": [["watermark", 0], ["tcp", 0]], "params": {}})
    document["boxes"].append({"name": "again", "kind": "union", "inputs": [["totals", 0], ["totals", 0]], "params": {}})
    offered = Checker(ALLOWED).fitting(document, "packets", 0)
    assert offered["boxes"] == ["both"] and "source" not in offered["kinds"] and "filter" in offered["kinds"]
    assert "both" not in Checker(ALLOWED).fitting(document, "both", 0)["boxes"]
    assert Checker(ALLOWED).fitting(document, "totals", 0)["boxes"] == ["again"]
    assert Checker(ALLOWED).fitting(document, "nobody", 0) == {"boxes": [], "kinds": []}


def test_where_a_box_was_drawn_stays_in_the_document_and_no_reader_minds() -> None:
    document = drawn()
    box(document, "tcp")["at"] = [120.5, -3]
    assert box(filled(document, Checker(ALLOWED).check(document)), "tcp")["at"] == [120.5, -3]
    text = json.dumps(document)
    assert document_of(network_again(text)) == drawn()


def network_again(text: str) -> str:
    return ef.Dataflow.from_json(text, modules=ALLOWED.modules).to_json()


# ---------------------------------------------------------------- files that mean harm


class Looker:
    """Sees every module that anybody looks for."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        self.seen.append(name)
        return None


@pytest.fixture
def looker(monkeypatch: pytest.MonkeyPatch) -> Looker:
    found = Looker()
    monkeypatch.setattr(sys, "meta_path", [found, *sys.meta_path])
    return found


class Boom:
    def __reduce__(self) -> Any:
        return (os.abort, ())


HARM: list[Any] = [
    {"python": "os:system"}, {"python": "os:system", "with": {}}, {"python": "subprocess:Popen", "with": {"args": "false"}},
    {"python": "antigravity:x"}, {"python": "evenflow.cli.app:main"}, {"python": "evenflow..os:Latest", "with": {}},
    {"python": ["os", "system"]}, {"python": None}, {"python": {"python": "this:s"}}, {"$kind": "os:system", "with": {}},
    {"$kind": "this", "with": {}}, {"$kind": ["Latest"], "with": []}, {"pickle": base64.b64encode(pickle.dumps(Boom())).decode()},
    {"pickle": 5}, {"python": "this:", "$kind": "Latest", "with": {}}, {"$source": {"kind": "this"}}, {"$table": "AAAA"}, {},
    *({"$kind": kind, "with": {}} for kind in CLASSES),
]  # fmt: skip


def places(harm: Any) -> Iterator[Any]:
    """The harm, and values that have it somewhere inside."""
    yield from (harm, [harm], [["a", harm]], {"python": "os:path", "with": {"x": harm}})
    yield {"$call": {"name": "n", "function": "sum", "column": "length", "type": "bigint", "made": harm, "others": [harm]}}
    yield from ({tag: harm} for tag in ("$time_window", "$session_window", "$own_sessions", "$row_window"))
    for tag, kinds in (("$source", sources.KINDS), ("$sink", sinks.KINDS)):
        for kind, found in kinds.items():
            yield {tag: {"kind": kind, **{f.name: harm for f in dataclasses.fields(found)}}}  # type: ignore[arg-type]
    for name, module in CLASSES.items():
        made = getattr(importlib.import_module(module), name)
        yield {"$kind": name, "with": {f.name: harm for f in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else {}}


def test_a_file_imports_and_runs_nothing_whatever_it_names(looker: Looker) -> None:
    base, checker = drawn(), Checker()
    checker.check(base)
    looker.seen.clear()
    states: Counter[str] = Counter()
    for number, value in enumerate(place for harm in HARM for place in places(harm)):
        for kind, judged in list(KINDS.items())[number % 8 :: 8]:
            document = {**base, "boxes": base["boxes"][:2]}
            params = {f.name: copy.copy(value) for f in dataclasses.fields(judged)} | {"somewhere": value}
            document["boxes"] = [*document["boxes"], {"name": "b", "kind": kind, "inputs": [["packets", 0]] * judged.inputs[0]}]
            document["boxes"][-1]["params"] = params
            states[checker.check(document).boxes[-1].state] += 1
            if number % 3 == 0:
                with suppress(EvenflowError):
                    network_from_json(json.dumps(document))
    assert states["locked"] > 200 and states["wrong"] > 200
    assert [name for name in looker.seen if not name.startswith(("evenflow", "pyarrow"))] == []


COSTLY = (
    "size(sequence(1, 2000000000)) > 0",
    "levenshtein(repeat('a', 1000000), repeat('b', 1000000)) > 0",
    "levenshtein(concat(repeat('a', 4000), repeat('a', 4000), repeat('a', 4000)), concat(repeat('a', 4000), repeat('b', 4000))) > 0",
    "length(lpad('a', 2000000000, 'xy')) > 0",
    "length(rpad('a', 2000000000)) > 0",
    "length(space(2000000000)) > 0",
    "size(array_repeat('a', 2000000000)) > 0",
    "size(array_insert(array(1), 2000000000, 1)) > 0",
    "length(replace(repeat('a', 4000), 'a', repeat('b', 4000))) > 0",
    "length(format_string('%2000000000d', 1)) > 0",
    "length(format_number(1, 2000000000)) > 0",
    "regexp_count('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', '(a+)+$') > 0",
    "round(1.5, 2000000000) > 0",
)


@pytest.mark.timeout(60)
def test_checking_works_not_for_constants() -> None:
    document = drawn()
    began = time.thread_time()
    for condition in COSTLY:
        box(document, "tcp")["params"]["condition"] = condition
        assert told(document)["tcp"]["state"] in ("right", "wrong")
    assert time.thread_time() - began < 3
    box(document, "tcp")["params"]["condition"] = " or ".join(["levenshtein(repeat('a', 60), repeat('b', 60)) > 0"] * 300)
    began = time.thread_time()
    with within(50_000):
        told(document)
    assert time.thread_time() - began < 10


def test_a_table_that_is_large_once_unpacked_is_refused() -> None:
    def text(table: pa.Table, packing: str | None) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as writer:
            writer.write_table(table)
        return base64.b64encode(sink.getvalue().to_pybytes()).decode()

    small = pa.table({"a": [1, 2, None], "b": pa.array(["x", "y", "x"]).dictionary_encode()})
    for packing in ("zstd", "lz4", None):
        assert saved_tables.table_from_text(text(small, packing)).equals(small)
    large = pa.table({"a": pa.array(np.zeros(saved_tables.MOST_BYTES // 8 + 1, np.int64))})
    before = pa.total_allocated_bytes()
    with pytest.raises(QueryError, match="at most"):
        saved_tables.table_from_text(text(large, "zstd"))
    assert pa.total_allocated_bytes() <= before
    many = pa.table({"a": pa.array([["x"]]).take(pa.array(np.zeros(10, np.int64))), "n": pa.nulls(10)})
    assert saved_tables.table_from_text(text(many, "zstd")).equals(many)
    with pytest.raises(QueryError, match="at most"):
        saved_tables.table_from_text(text(pa.table({"n": pa.nulls(saved_tables.MOST_BYTES + 1)}), None))
    for wrong in ("", "AAAA", 3, None, text(small, None)[:200]):
        with pytest.raises(QueryError, match="no table"):
            saved_tables.table_from_text(wrong)


def test_a_box_that_misses_an_input_is_offered() -> None:
    document = drawn()
    document["boxes"].append({"name": "new", "kind": "filter", "params": {"condition": "length > 3"}})
    document["boxes"].append({"name": "both", "kind": "union", "inputs": [["tcp", 0]]})
    document["boxes"].append({"name": "circle", "kind": "union", "inputs": [["select", 0]]})
    document["boxes"].append({"name": "done", "kind": "sink", "inputs": [["tcp", 0]], "params": {"sink": {"$sink": {"kind": "discard"}}}})
    found = Checker(ALLOWED).fitting(document, "tcp", 0)["boxes"]
    assert "new" in found and "both" in found and "done" not in found
    assert told(document)["new"]["state"] == "wrong" and told(document)["new"]["parameter"] == "inputs"
    document["boxes"].append({"name": "joined", "kind": "join", "inputs": [["tcp", 0]], "params": {}})
    assert "joined" in Checker(ALLOWED).fitting(document, "packets", 0)["boxes"]
    assert Checker(ALLOWED).fitting(document, "new", 0) == {"boxes": [], "kinds": []}
    box(document, "new")["params"] = {"condition": "nothing > 3"}
    assert "new" in Checker(ALLOWED).fitting(document, "tcp", 0)["boxes"]


def test_of_two_boxes_of_one_name_the_first_is_filled() -> None:
    document = drawn()
    document["boxes"].append({"name": "totals", "kind": "filter"})
    found = filled(document, Checker(ALLOWED).check(document))
    assert found["boxes"][-1] == {"name": "totals", "kind": "filter"} and box(found, "totals")["kind"] == "aggregate"
    with pytest.raises(QueryError, match="totals"):
        network_from_json(json.dumps(found))


def test_what_is_kept_has_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_KEPT_BYTES", 400_000)
    checker, document = Checker(ALLOWED), drawn()
    for number in range(12):
        box(document, "tcp")["params"]["condition"] = f"proto = {number}" + " " * 20_000
        assert checker.check(document).right
        assert 0 < checker.kept_bytes <= 400_000
