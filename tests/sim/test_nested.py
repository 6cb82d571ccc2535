"""Structures, lists and maps through a whole dataflow: as columns, in state, as keys, in joins, and through a restart of partitions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.testing import run

SCHEMA = (
    "id bigint, at timestamp_ntz, who struct<name: string, home: struct<city: string, zip: int>>, tags map<string, int>, "
    "items array<struct<sku: string, n: int>>"
)
ANN, BOB = {"name": "ann", "home": {"city": "X", "zip": 1}}, {"name": "bob", "home": None}
ROWS = [
    {"id": 1, "at": "2026-01-01 10:00:01", "who": ANN, "tags": [("a", 1)], "items": [{"sku": "p", "n": 2}, {"sku": "q", "n": 1}]},
    {"id": 2, "at": "2026-01-01 10:00:02", "who": BOB, "tags": [], "items": []},
    {"id": 3, "at": "2026-01-01 10:00:03", "who": ANN, "tags": [("a", None), ("b", 2)], "items": [{"sku": "p", "n": 5}]},
    {"id": 4, "at": "2026-01-01 10:01:30", "who": None, "tags": None, "items": None},
]


def orders() -> Any:
    flow = ef.Dataflow("orders")
    return flow.source(ef.sources.tcp_lines("nowhere.invalid", 9092, schema=SCHEMA), name="orders").with_watermark("at", "1 second")


def result(stream: Any, rows: Any = ROWS, **options: Any) -> list[dict[str, Any]]:
    stream.to(ef.sinks.memory(), name="out")
    found: list[dict[str, Any]] = run(stream.flow, {"orders": rows}, **options).rows("out")
    return found


def test_columns_pass_and_are_taken_apart() -> None:
    made = orders().select(
        "who", "who.name", "who.home.city as city", "tags['a'] as a", "items.sku as skus", "struct(id, who.name) as pair"
    )
    assert made.columns == ["who", "name", "city", "a", "skus", "pair"]
    rows = result(made)
    assert rows[0] == {"who": ANN, "name": "ann", "city": "X", "a": 1, "skus": ["p", "q"], "pair": {"id": 1, "name": "ann"}}
    assert rows[3] == {"who": None, "name": None, "city": None, "a": None, "skus": None, "pair": {"id": 4, "name": None}}
    assert result(orders().select("who.*"))[1] == {"name": "bob", "home": None}


def test_structures_are_keys_and_totals() -> None:
    by = orders().group_by("who").agg(n="count(*)", first="first(items)", all="collect_list(who.home)", least="min(who)", last="last(tags)")
    newest = {str(row["who"]): row for row in result(by)}
    assert newest[str(ANN)]["n"] == 2
    assert newest[str(ANN)]["all"] == [ANN["home"], ANN["home"]]
    assert newest[str(ANN)]["first"] == ROWS[0]["items"]
    assert newest[str(ANN)]["last"] == ROWS[2]["tags"]
    assert newest[str(ANN)]["least"] == ANN
    assert newest["None"]["n"] == 1
    windows = orders().group_by("who").window("1 minute").agg(n="count(*)", greatest="max(who)")
    assert sorted((str(row["who"]), row["n"], str(row["greatest"])) for row in result(windows)) == sorted(
        [(str(ANN), 2, str(ANN)), (str(BOB), 1, str(BOB)), ("None", 1, "None")]
    )


def test_equal_structures_are_duplicates() -> None:
    assert sorted(row["id"] for row in result(orders().drop_duplicates(["who"]))) == [1, 2, 4]
    with pytest.raises(TypeMismatch, match=r"'tags' is map<string, int32> and cannot be a key, as in Spark"):
        orders().drop_duplicates(["tags"])


def test_joins_are_by_structures_and_by_fields() -> None:
    left = orders()
    right = left.select("who as other", "at as then", "id as oid", "items as theirs")
    both = left.join(right, condition="l.who = r.other and l.id < r.oid", unbounded=True)
    assert [(row["id"], row["oid"], row["theirs"]) for row in result(both)] == [(1, 3, ROWS[2]["items"])]
    again = orders()
    named = again.select("named_struct('name', who.name) as s", "at as then", "id as oid")
    field = ef.sql(
        "SELECT l.id, r.oid, l.who.home.zip FROM l JOIN r ON l.who.name = r.s.name AND l.id <= r.oid",
        {"l": again, "r": named},
    )
    assert sorted((row["id"], row["oid"], row["zip"]) for row in result(field)) == [(1, 1, 1), (1, 3, 1), (2, 2, None), (3, 3, 1)]


def test_lists_and_maps_become_rows() -> None:
    items = orders().select("id", "items").explode("items", into="item").select("id", "item.*")
    assert [tuple(row.values()) for row in result(items)] == [(1, "p", 2), (1, "q", 1), (3, "p", 5)]
    tags = result(orders().select("id", "tags").explode("tags", position="place", outer=True))
    assert tags[0] == {"id": 1, "place": 0, "key": "a", "value": 1}
    assert [tuple(row.values()) for row in tags[1:]] == [(2, None, None, None), (3, 0, "a", None), (3, 1, "b", 2), (4, None, None, None)]
    parts = orders().select("id", "items").explode("items", into=["sku", "n"])
    assert ef.Dataflow.from_json(parts.flow.to_json()).to_text() == parts.flow.to_text()
    assert [tuple(row.values()) for row in result(parts)] == [(1, "p", 2), (1, "q", 1), (3, "p", 5)]
    for column, into, says in (("items", ["sku"], "give 2 names"), ("tags", "tag", "a map, whose key and value.*give 2 names"),
                               ("ids", ["a", "b"], "give one name")):  # fmt: skip
        with pytest.raises(QueryError, match=says):
            orders().select("items", "tags", ids="items.n").explode(column, into=into)


def test_sql_reads_fields_wherever_an_expression_stands() -> None:
    text = """
        SELECT who.name AS name, count(*) AS n, sum(tags['a']) AS a
        FROM orders
        WHERE who.home.zip = 1 OR who.home IS NULL
        GROUP BY who.name, window(at, '1 minute')
        HAVING count(tags) > 0
    """
    assert sorted(tuple(row.values()) for row in result(ef.sql(text, {"orders": orders()}))) == [("ann", 2, 1), ("bob", 1, None)]
    rows = result(ef.sql("SELECT o.who.*, o.items[0].sku AS sku FROM orders o WHERE size(o.items) > 0", {"orders": orders()}))
    assert rows[0] == {"name": "ann", "home": ANN["home"], "sku": "p"}


@pytest.mark.parametrize("field", ["who.home.zip", "best.who.home.zip"])
def test_the_best_rows_keep_a_structure_of_which_a_field_is_read(field: str) -> None:
    places = "SELECT id, who, row_number() OVER (PARTITION BY who.name ORDER BY id DESC) AS place FROM orders"
    rows = result(ef.sql(f"SELECT id, {field} AS zip FROM ({places}) best WHERE place <= 1", {"orders": orders()}))
    assert {row["id"]: row["zip"] for row in rows if row["id"] > 1} == {2: None, 3: 1, 4: None}


class Keeping(ef.Processor):
    """The orders of a key so far, in state of every shape."""

    output = (
        "who struct<name: string, home: struct<city: string, zip: int>>, last array<struct<sku: string, n: int>>, seen map<string, int>"
    )

    def open(self, store: Any) -> None:
        store.value("last", "array<struct<sku: string, n: int>>")
        store.value("seen", "map<string, int>")
        store.list("homes", "struct<city: string, zip: int>")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        for row in rows.to_pylist():
            state.homes.append((row["who"] or {}).get("home"))
            yield key[0], state.last, state.seen
            state.last, state.seen = row["items"], row["tags"]


@pytest.mark.parametrize("options", [{}, {"replicas": 2, "sites": 3}])
def test_state_of_a_processor_has_every_shape(options: dict[str, Any]) -> None:
    rows = result(orders().key_by("who").process(Keeping()), **options)
    assert [(row["last"], row["seen"]) for row in rows if row["who"] == ANN] == [(None, None), (ROWS[0]["items"], ROWS[0]["tags"])]


def test_functions_take_and_give_nested_values() -> None:
    @ef.udf("struct<name: string, n: int>")
    def counted(who: Any, items: Any) -> Any:
        return None if who is None else {"name": who["name"], "n": len(items)}

    rows = result(orders().with_columns({"made": ef.expr("f(who, items)", f=counted)}))
    assert [row["made"] for row in rows] == [{"name": "ann", "n": 2}, {"name": "bob", "n": 0}, {"name": "ann", "n": 1}, None]


def test_functions_are_given_structures_as_rows_and_maps_as_dicts() -> None:
    said: list[Any] = []

    def look(who: Any, tags: Any, items: Any) -> Any:
        if who is None:
            return None
        said.append((who.name, who["home"], who[0], "home" in who, who.asDict(True), tags.get("a"), [item.n for item in items]))
        return who.name, {name: -1 if n is None else n for name, n in tags.items()}, list(items)

    made = ef.udf(look, "struct<who: string, tags: map<string, int>, items: array<struct<sku: string, n: int>>>", name="look")
    rows = result(orders().select(x=ef.expr("look(who, tags, items)", look=made)))
    assert said[0] == ("ann", ("X", 1), "ann", True, ANN, 1, [2, 1])
    assert said[1] == ("bob", None, "bob", True, BOB, None, [])
    assert pickle.loads(pickle.dumps(said[0][1])).city == "X"
    assert rows[0]["x"] == {"who": "ann", "tags": [("a", 1)], "items": ROWS[0]["items"]}
    assert rows[2]["x"]["tags"] == [("a", -1), ("b", 2)] and rows[3]["x"] is None
