"""A query of TPC-H as a maintained view in the simulator, beside batch Spark: after every tenth of the changes both have the same rows."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenflow import sinks
from evenflow.bench.corpus.running import SETTINGS
from evenflow.bench.measuring import machine
from evenflow.bench.tpch.changes import Tenth, generated, tenths
from evenflow.bench.tpch.queries import QUERIES, tables_of
from evenflow.errors import EvenflowError, QueryError
from evenflow.query.builder import Dataflow
from evenflow.query.script import sql
from evenflow.stream.change import CHANGE
from evenflow.testing import simulate, source

Rows = Counter[tuple[Any, ...]]
EPOCH_ROWS = 20_000


@dataclass
class Outcome:
    """Of a query. changes: how many it was given; seconds: of CPU, of one core, that they took. refused, different: why it is not equal."""

    name: str
    changes: int = 0
    seconds: float = 0.0
    refused: str | None = None
    different: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return self.refused is None and not self.different


class View:
    """A query whose result is kept while its tables change."""

    def __init__(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        flow = Dataflow("tpch")
        read = {name: flow.source(source(schemas[name]), name=name) for name in tables_of(text)}
        sql(text, read, output_mode="changelog").to(sinks.memory("out"), name="out")
        self._running = simulate(flow, sites=1, partitions=2, replicas=1, epoch_rows=EPOCH_ROWS)
        self._tables, self._seen = tuple(read), 0
        self.rows: Rows = Counter()
        self.columns: list[str] = []

    def take(self, tenth: Tenth) -> int:
        """Give it a tenth of the changes; how many these were."""
        for name in self._tables:
            self._running.give(name, tenth.changes[name])
        self._running.settle()
        return sum(tenth.changes[name].num_rows for name in self._tables)

    def read(self) -> Rows:
        """The result as it is now. Raises ValueError if something was taken back that was not there."""
        table = self._running.table("out")
        new, self._seen = table.slice(self._seen), table.num_rows
        kinds = new[CHANGE].to_pylist()
        for row, kind in zip(_rows(new.drop_columns([CHANGE])), kinds, strict=True):
            self.rows[row] += -1 if kind in ("delete", "update_before") else 1
            if self.rows[row] == 0:
                del self.rows[row]
        if any(times < 0 for times in self.rows.values()):
            raise ValueError("a row was taken back that was not there")
        return self.rows


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Doubles to twelve digits: batch Spark adds them in another order."""
    columns = []
    for column in table.columns:
        values = column.to_pylist()
        if pa.types.is_floating(column.type):
            values = [None if value is None else float(f"{value:.12g}") for value in values]
        columns.append([value.normalize() if isinstance(value, Decimal) else value for value in values])
    return list(zip(*columns, strict=True))


def differing(got: Rows, wanted: Rows) -> str | None:
    """How results differ; None if they do not. A view of no rows at all has no row yet, where batch Spark has one of nulls."""
    if got == wanted or (not got and all(not any(value is not None for value in row) for row in wanted)):
        return None
    more, less = got - wanted, wanted - got
    too_many = f"{sum(more.values())} rows too many, such as {next(iter(more), None)}"
    return f"{too_many}; {sum(less.values())} missing, such as {next(iter(less), None)}"


def outcome(name: str, parts: Sequence[Tenth], answer: Callable[[str, Tenth], pa.Table]) -> Outcome:
    """Run one query over all tenths. answer: batch Spark's, of a text over the tables that are left after a tenth."""
    found, text = Outcome(name), QUERIES[name]
    try:
        view = View(text, {table: changes.schema for table, changes in parts[0].changes.items()})
    except QueryError as error:
        found.refused = f"{type(error).__name__}: {error}"
        return found
    for number, tenth in enumerate(parts, 1):
        began = time.process_time()
        try:
            found.changes += view.take(tenth)
            found.seconds += time.process_time() - began
            different = differing(view.read(), Counter(_rows(answer(text, tenth))))
        except (EvenflowError, ValueError) as error:
            different = f"{type(error).__name__}: {error}"
        if different is not None:
            found.different.append(f"after tenth {number}: {different}")
            break
    return found


class Batch:
    """Batch Spark over what is left after a tenth."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._tenth: Tenth | None = None

    def __call__(self, text: str, tenth: Tenth) -> pa.Table:
        if self._tenth is not tenth:
            for name, table in tenth.left.items():
                self._spark.createDataFrame(table).createOrReplaceTempView(name)
            self._tenth = tenth
        return self._spark.sql(text).toArrow()


def run(
    only: Sequence[str], scale: float, say: Callable[[str], None], spark: Any = None, directory: Path | None = None
) -> dict[str, Any]:  # fmt: skip
    """`bench tpch`. only: names of queries; all if there are none. spark: a session, or a new one."""
    from evenflow.world.spark.cluster.session import QUICK_START, embedded_session, stop_session

    names = [name for name in QUERIES if not only or name in only]
    with tempfile.TemporaryDirectory() if directory is None else nullcontext(str(directory)) as place:
        parts = tenths(generated(scale, Path(place)))
    conf = {**SETTINGS, "spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {QUICK_START}"}
    session = spark if spark is not None else embedded_session("local[2]", "evenflow-tpch", conf)
    outcomes = []
    try:
        for name in names:
            outcomes.append(outcome(name, parts, Batch(session)))
            said = outcomes[-1].refused or " ".join(outcomes[-1].different) or "equal"
            say(f"{name}: {said}")
    finally:
        if spark is None:
            stop_session(session)
    return report(outcomes, scale)


def report(outcomes: Sequence[Outcome], scale: float) -> dict[str, Any]:
    """The figures of `bench tpch`: changes a second of CPU of one core, in the simulator, with everything that a query is made of."""
    return {
        "benchmark": "tpch",
        "quick": False,
        "scale": scale,
        "equal": sum(each.equal for each in outcomes),
        "queries": [
            {
                "name": each.name,
                "equal": each.equal,
                "changes": each.changes,
                "changes_per_s": round(each.changes / each.seconds) if each.seconds else None,
                "refused": each.refused,
                "different": each.different,
            }
            for each in outcomes
        ],
        "machine": machine(),
    }
