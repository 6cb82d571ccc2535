"""Port every query of the corpus, run it in the simulator, and hold its rows against batch Spark on the same rows.

The text of a query runs twice: over streams of files, whose plan is ported by `ef.from_streaming`, and over the same files as batch
frames, which is the oracle. What the ported query leaves to Spark, below its first stateful part, is computed by batch Spark too: the
plan of that part gets the batch's rows in the place of its streams, so that no streaming query has to be started for any of it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow import sinks
from evenflow.bench.corpus.query import Inputs, Query
from evenflow.bench.corpus.rows import tables
from evenflow.errors import EvenflowError, NotPortable
from evenflow.testing import run as simulate
from evenflow.world.spark.bridge.analysed import from_streaming

EPOCH_ROWS: Final = 17
STREAMS: Final = ("events", "orders", "payments", "impressions", "clicks")
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1", "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one query. reason: why it was not ported, or how its rows differ. expression: what was refused. rows: of batch Spark."""

    name: str
    ported: bool
    equal: bool
    reason: str | None = None
    expression: str | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Corpus:
    """The inputs in a session, as streams and as batch frames. leaves: the batch plan of each file source, by its folder."""

    spark: Any
    streams: Inputs
    frames: Inputs

    @staticmethod
    @contextmanager
    def of(spark: Any) -> Iterator[Corpus]:
        """With all inputs as files."""
        with tempfile.TemporaryDirectory() as folder:
            streams, frames = dict[str, Any](), dict[str, Any]()
            for name, table in tables().items():
                at = Path(folder) / name
                at.mkdir()
                pq.write_table(table, at / "rows.parquet")
                frames[name] = spark.read.parquet(str(at))
                if name in STREAMS:
                    streams[name] = spark.readStream.schema(frames[name].schema).parquet(str(at))
            yield Corpus(spark, Inputs(**{**frames, **streams}), Inputs(**frames))

    def outcome(self, query: Query) -> Outcome:
        """What becomes of a query. Whatever it raises is part of that."""
        try:
            wanted = query.build(self.frames).toArrow()
        except Exception as error:  # Whatever Spark raises: a query of this list that Spark refuses is a fault of the list.
            return Outcome(query.name, False, False, f"batch Spark refuses it: {str(error)[:300]}")
        try:
            stream = from_streaming(query.build(self.streams), query.mode)
            stream.to(sinks.memory("out"), name="out")
            given = {box.name: self._rows(box.params["source"].dataframe) for box in stream.flow.network.of_kind("source")}
        except NotPortable as error:
            return Outcome(query.name, False, False, str(error), error.expression, wanted.num_rows)
        except EvenflowError as error:
            return Outcome(query.name, False, False, f"{type(error).__name__}: {error}", None, wanted.num_rows)
        except Exception as error:
            return Outcome(query.name, False, False, f"Spark refuses it as a stream: {str(error)[:300]}", None, wanted.num_rows)
        try:
            got = simulate(stream.flow, given, sites=2, epoch_rows=EPOCH_ROWS).table("out")
        except Exception as error:
            return Outcome(query.name, True, False, f"{type(error).__name__}: {error}", None, wanted.num_rows)
        difference = differing(_final(got, query, wanted.num_rows), _flattened(wanted, got.schema))
        return Outcome(query.name, True, difference is None, difference, None, wanted.num_rows)

    def _rows(self, streaming: Any) -> pa.Table:
        """The rows of a part of a streaming plan, by batch Spark."""
        from pyspark.sql import DataFrame

        jvm = self.spark.sparkContext._jvm
        plan = self._batch(streaming._jdf.queryExecution().analyzed(), jvm)
        jdf = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.spark._jsparkSession, plan)
        return DataFrame(jdf, self.spark).toArrow()

    def _batch(self, node: Any, jvm: Any) -> Any:
        """The plan with the batch's rows in the place of each stream, under the stream's ids."""
        children = node.children()
        if children.size():
            made = [self._batch(children.apply(at), jvm) for at in range(children.size())]
            return node.withNewChildren(jvm.org.apache.spark.api.python.PythonUtils.toSeq(made).toIndexedSeq())
        name = next((name for name in STREAMS if node.isStreaming() and f"/{name}" in node.simpleString(1000)), None)
        if name is None:
            return node
        frame = getattr(self.frames, name)._jdf.queryExecution().analyzed()
        return _renamed(frame, node.output(), jvm)


def _renamed(plan: Any, output: Any, jvm: Any) -> Any:
    """A projection of a plan onto other ids."""
    own = plan.output()
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    nothing = jvm.scala.Option.empty()
    columns = [
        jvm.org.apache.spark.sql.catalyst.expressions.Alias(
            own.apply(at), output.apply(at).name(), output.apply(at).exprId(), seq([]), nothing, seq([])
        )
        for at in range(own.size())
    ]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(seq(columns), plan)


def _final(got: pa.Table, query: Query, count: int) -> pa.Table:
    """What stands at the end: the newest row of each group in update mode, the last table in complete mode."""
    if query.mode == "update":
        keys = [key if key in got.schema.names else f"{key}_start" for key in query.newest]
        newest = {tuple(str(row[key]) for key in keys): at for at, row in enumerate(got.select(keys).to_pylist())}
        return got.take(list(newest.values()))
    return got.slice(max(0, got.num_rows - count)) if query.mode == "complete" else got


def _flattened(wanted: pa.Table, schema: pa.Schema) -> pa.Table:
    """Spark's rows with a window as two columns, where the ported query has two."""
    columns: dict[str, Any] = {}
    for field in wanted.schema:
        column = wanted.column(field.name)
        if field.name not in schema.names and f"{field.name}_start" in schema.names:
            whole = column.combine_chunks()
            columns |= {f"{field.name}_{part}": whole.field(part) for part in ("start", "end")}
        else:
            columns[field.name] = column
    return pa.table(columns)


def differing(got: pa.Table, wanted: pa.Table) -> str | None:
    """How two tables differ as bags of rows; None if they do not. Floats within 1e-9, relative."""
    if [name.lower() for name in got.schema.names] != [name.lower() for name in wanted.schema.names]:
        return f"columns {got.schema.names} instead of {wanted.schema.names}"
    for mine, theirs in zip(got.schema, wanted.schema, strict=True):
        if _plain_type(mine.type) != _plain_type(theirs.type):
            return f"column {mine.name!r} is {mine.type} instead of {theirs.type}"
    rows, expected = _sorted(got), _sorted(wanted)
    if len(rows) != len(expected):
        return f"{len(rows)} rows instead of {len(expected)}"
    for row, other in zip(rows, expected, strict=True):
        if not _same(row, other):
            return f"{row} instead of {other}"
    return None


def _plain_type(type_: pa.DataType) -> str:
    """A type without what only one of the two says: whether it may be null, the name of an element, the size of offsets."""
    if pa.types.is_map(type_):
        return f"map<{_plain_type(type_.key_type)},{_plain_type(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{_plain_type(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{_plain_type(field.type)}' for field in type_)}>"
    return str(type_).replace("large_", "")


def _sorted(table: pa.Table) -> list[Any]:
    return sorted((tuple(map(_plain, row.values())) for row in table.to_pylist(maps_as_pydicts="strict")), key=_key)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(((key, _plain(inner)) for key, inner in value.items()), key=str))
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _key(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(f"{value:.6g}" if isinstance(value, float) else str(value) for value in row)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of `bench corpus`: queries, how many are ported, how many of these equal batch Spark, and what was refused."""
    return {
        "benchmark": "corpus",
        "quick": False,
        "queries": len(outcomes),
        "ported": sum(outcome.ported for outcome in outcomes),
        "equal": sum(outcome.equal for outcome in outcomes),
        "refused": [
            {"query": outcome.name, "reason": outcome.reason, "expression": outcome.expression}
            for outcome in outcomes
            if not outcome.ported
        ],
        "different": [{"query": outcome.name, "reason": outcome.reason} for outcome in outcomes if outcome.ported and not outcome.equal],
    }


def run(queries: Sequence[Query], say: Callable[[str], None]) -> dict[str, Any]:
    """`bench corpus`: all queries in a session of its own."""
    from evenflow.world.spark.cluster.session import QUICK_START, embedded_session, stop_session

    conf = {**SETTINGS, "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:+UseSerialGC {QUICK_START}"}
    spark = embedded_session("local[1]", "evenflow-corpus", conf)
    try:
        with Corpus.of(spark) as corpus:
            outcomes = []
            for query in queries:
                outcomes.append(corpus.outcome(query))
                if not outcomes[-1].equal:
                    say(f"{query.name}: {'differs' if outcomes[-1].ported else 'refused'}: {outcomes[-1].reason}")
            return report(outcomes)
    finally:
        stop_session(spark)


__all__ = ["Corpus", "Outcome", "differing", "report", "run"]
