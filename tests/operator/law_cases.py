"""Processors for the law over all operators: one per style, with every kind of field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.processor import BatchProcessor, Processor


class Journal(Processor):
    """Per key: remembers in a value, a string, a list and a map; forgets everything when it sees a `small` below -80."""

    output = "k bigint, s string, seen bigint, sum double, names array<string>, most bigint"

    def open(self, store: Any) -> None:
        store.value("seen", "bigint", default=0)
        store.value("sum", "double")
        store.value("last", "string")
        store.list("names", "string")
        store.map("times", "boolean", "bigint")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for row in rows.to_pylist():
            if row["small"] is not None and row["small"] < -80:
                state.seen = state.sum = state.last = None
                state.names, state.times = [], {}
                continue
            state.seen += 1
            state.sum = (state.sum or 0.0) + (row["f"] or 0.0)
            state.names = [*state.names, row["name"]][-3:]
            if row["b"] is not None:
                state.times[row["b"]] = state.times.get(row["b"], 0) + 1
            yield key[0], state.last, state.seen, state.sum, list(state.names), max(state.times.values(), default=None)
            state.last = row["s"]


class Previous(BatchProcessor):
    """Every row with its number within the key and the `f` of the key's row before it."""

    output = "k bigint, number bigint, f double, before double, s string"

    def open(self, store: Any) -> None:
        store.value("count", "bigint", default=0)
        store.value("f", "double")
        store.value("s", "string")

    def process(self, rows: pa.RecordBatch, groups: Any, state: Any) -> Any:
        f = rows.column("f").to_numpy(zero_copy_only=False)
        before = np.concatenate(([np.nan], f[:-1]))
        before[groups.starts] = np.where(state.f.exists(), state.f.get(), np.nan)
        place = np.arange(rows.num_rows) - groups.starts[groups.ids]
        number = place + state.count.get()[groups.ids]
        s = np.array([None, *rows.column("s").to_pylist()[:-1]], object)
        s[groups.starts] = state.s.get()
        state.count.put(number[groups.last] + 1)
        state.f.put(f[groups.last])
        state.s.put(rows.column("s").take(pa.array(groups.last)))
        made = {"k": rows.column("k"), "number": number, "f": f, "before": before, "s": pa.array(s, pa.string())}
        return made, np.arange(rows.num_rows)
