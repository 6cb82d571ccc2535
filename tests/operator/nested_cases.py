"""Rows with structures, lists and maps for the laws: those of `aggregate_cases` with the same values put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from tests.operator.aggregate_cases import make_rows

import evenflow as ef
from evenflow.query.aggregates import AggCall, result_type
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

WHO = pa.struct([("k", pa.int64()), ("home", pa.struct([("name", pa.string()), ("b", pa.bool_())]))])
ITEMS = pa.list_(pa.struct([("s", pa.string()), ("f", pa.float64())]))
TAGS = pa.map_(pa.string(), pa.int64())
SPOT = pa.struct([("at", pa.timestamp("us")), ("within", pa.struct([("b", pa.bool_()), ("f", pa.float64())])), ("small", pa.int16())])
"""Of nothing but values of fixed width."""
SCHEMA = pa.schema(
    [("k", pa.int64()), ("small", pa.int16()), ("i", pa.int64()), ("ts", pa.timestamp("us")), ("who", WHO), ("path", pa.list_(pa.int64())),
     ("items", ITEMS), ("tags", TAGS), ("spot", SPOT)]
)  # fmt: skip
KEYS = ("who", "path")
Epochs = list[tuple[Rows, Tick]]


def put_together(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `aggregate_cases.SCHEMA` as rows of this one: nulls at every level, lists and maps without elements among them."""
    made = []
    for row in batch.to_pylist():
        small, key = row["small"], row["k"]
        home = None if small is not None and small % 5 == 0 else {"name": row["name"], "b": row["b"]}
        count = 0 if small is None else small % 3
        made.append(
            {
                "k": key, "small": small, "i": row["i"], "ts": row["ts"],
                "who": None if small == 7 else {"k": key, "home": home},
                "path": None if key is None else [key % 3, None][: key % 4],
                "items": None if small is None else [{"s": row["s"], "f": row["f"]}, None][:count],
                "spot": None if small is None or small % 7 == 3 else {
                    "at": row["ts"], "within": None if small % 5 == 1 else {"b": row["b"], "f": row["f"]}, "small": small,
                },
                "tags": None if row["b"] is None else [(row["name"] or "", row["i"])][: int(row["b"])],
            }
        )  # fmt: skip
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def nested(flat: Callable[[int], Epochs], keys: Sequence[str], partitions: int) -> Callable[[int], Epochs]:
    """The same epochs, with these rows and distributed by these columns. flat: a maker of epochs of `aggregate_cases`."""

    def make(seed: int) -> Epochs:
        return [(make_rows(put_together(rows.batch), keys, partitions), tick) for rows, tick in flat(seed)]

    return make


def call(function: str, column: str) -> AggCall:
    return AggCall(f"{function}_{column}", function, column, result_type(function, SCHEMA.field(column).type))


NESTED = ("who", "path", "items", "tags")
CALLS = [
    *(call(function, column) for function in ("first", "last", "collect_list", "last_known", "count") for column in NESTED),
    *(call(function, column) for function in ("min", "max") for column in ("who", "path")),
    *(call(function, "spot") for function in ("first", "last", "last_known")),
]


class Keeping(ef.Processor):
    """Per key, in state of every shape: the last list, the map of the row before, all structures so far."""

    output = (
        "k bigint, last array<struct<s: string, f: double>>, tags map<string, bigint>, "
        "homes array<struct<k: bigint, home: struct<name: string, b: boolean>>>"
    )

    def open(self, store: Any) -> None:
        store.value("last", "array<struct<s: string, f: double>>")
        store.value("tags", "map<string, bigint>")
        store.list("homes", "struct<k: bigint, home: struct<name: string, b: boolean>>")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        for row in rows.to_pylist():
            state.homes = [*state.homes, row["who"]][-3:]
            yield row["k"], state.last, state.tags, list(state.homes)
            state.last, state.tags = row["items"], row["tags"]
