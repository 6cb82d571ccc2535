"""Refreshed tables as they are declared, and what may take the place of what: everything else is refused with what to do about it."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, QueryError, TableError, TypeMismatch, UnknownColumn
from evenflow.query import tables
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import same_rows, with_tables
from evenflow.query.text import network_text

SHOPS = pa.table({"shop": ["n", "s"], "name": ["North", "South"], "size": [1.0, float("nan")]})
ORDERS = pa.schema([("shop", pa.string()), ("price", pa.float64())])


def flow_with(given: Any = lambda: SHOPS, **of: Any) -> ef.Dataflow:
    flow = ef.Dataflow("f")
    shops = flow.table(given, "shops", **{"key": "shop", **of})
    orders = flow.source(ef.sources.memory([], schema=ORDERS), name="orders")
    orders.join(shops, "shop", "left", name="named").to(ef.sinks.memory("out"), name="out")
    orders.where("price > 1").join(shops, "shop", "semi", name="known").to(ef.sinks.memory("known"), name="k")
    return flow


def test_a_refreshed_table_is_joined_as_any_other() -> None:
    flow = flow_with()
    assert flow.network.box("named").schemas[0].names == ["shop", "price", "name", "size"]
    assert "left by shop, table shops, refreshed every 5 min" in network_text(flow.network)
    assert "refreshed on demand" in network_text(flow_with(refresh=None).network)


def test_what_was_read_becomes_data_of_every_join_with_it() -> None:
    flow = flow_with()
    (table,) = refreshed_tables(flow.network)
    planned = layout(flow.network, sites=2)
    steps = [step for segment in planned.segments for step in segment.steps if step.kind == "table_join"]
    assert [step.params["table"].num_rows for step in steps] == [0, 0]
    filled = with_tables(planned, {"shops": table.checked(table.given())})
    steps = [step for segment in filled.segments for step in segment.steps if step.kind == "table_join"]
    assert [step.params["table"].num_rows for step in steps] == [2, 2]


@pytest.mark.parametrize(
    ("given", "of", "error", "why"),
    [
        (SHOPS, {}, QueryError, "a Table does not change; join with it as it is"),
        (lambda: SHOPS, {"key": "town"}, UnknownColumn, "there is no column 'town'"),
        (lambda: SHOPS, {"refresh": "soon"}, QueryError, "'shops'.*soon"),
        (lambda: SHOPS, {"refresh": "0 seconds"}, QueryError, "would be read all the time"),
        (lambda: pa.table({"shop": [["n"]]}), {}, TypeMismatch, "cannot be a key"),
        (lambda: 7, {}, QueryError, "cannot join with int"),
    ],
)
def test_what_no_refreshed_table_can_be(given: Any, of: dict[str, Any], error: type[EvenflowError], why: str) -> None:
    with pytest.raises(error, match=why):
        flow_with(given, **of)


def test_a_table_has_a_name_and_no_other_one_has_it() -> None:
    flow = ef.Dataflow("f")
    with pytest.raises(QueryError, match="needs a name"):
        flow.table(lambda: SHOPS, "")
    orders = flow.source(ef.sources.memory([], schema=ORDERS))
    orders.join(flow.table(lambda: SHOPS, "shops"), "shop")
    with pytest.raises(QueryError, match="two tables are called 'shops'"):
        orders.join(flow.table(lambda: SHOPS, "shops"), "shop")


def test_a_dataflow_with_a_function_that_cannot_be_saved_says_so() -> None:
    lock = threading.Lock()
    with pytest.raises(QueryError, match="named"):
        flow_with(lambda: SHOPS if lock else None).to_json()


def checked(found: Any, key: str | None = "shop") -> pa.Table:
    (table,) = refreshed_tables(flow_with(key=key).network)
    return table.checked(found)


def test_what_is_equal_looks_the_same_in_any_order() -> None:
    assert same_rows(checked(SHOPS), checked(SHOPS.take([1, 0])))
    assert not same_rows(checked(SHOPS), checked(SHOPS.slice(0, 1)))
    other = SHOPS.set_column(2, "size", pa.array([1.0, 2.0]))
    assert not same_rows(checked(SHOPS), checked(other)) and not same_rows(checked(other), checked(SHOPS))
    assert not same_rows(checked(SHOPS), checked(SHOPS.set_column(1, "name", pa.array(["North", "Sud"]))))
    null = SHOPS.set_column(2, "size", pa.array([1.0, None]))
    assert not same_rows(checked(SHOPS), checked(null)) and same_rows(checked(null), checked(null))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (SHOPS.drop(["size"]), "has other columns: shop string, name string instead of shop string, name string, size double"),
        (SHOPS.set_column(2, "size", pa.array([1, 2])), "has other columns: .*size int64 instead of"),
        (pa.concat_tables([SHOPS, SHOPS.slice(1)]), "has 2 rows with the key shop = 's'"),
    ],
)
def test_what_cannot_take_the_place_of_a_table(found: pa.Table, why: str) -> None:
    with pytest.raises(TableError, match=f"table 'shops' {why}"):
        checked(found)


def test_without_a_key_rows_may_be_there_twice() -> None:
    assert checked(pa.concat_tables([SHOPS, SHOPS]), key=None).num_rows == 4


def test_a_table_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "REFRESHED_BYTES", 10)
    with pytest.raises(TableError, match="leave out columns and rows until it has 10"):
        checked(SHOPS)
