"""Spark's own documented examples of its deterministic scalar functions: each as a query over a stream of one row, beside batch Spark.

The examples are those of `DESCRIBE FUNCTION EXTENDED`, read from the session. An example counts if Spark runs it here, and its plan is one
projection of one row that gives the same each time: no aggregate, no window, no generator, nothing that tells of the clock or the session.
The stream has one row with one column that no example reads; the query runs in the simulator. What raises in Spark has to raise here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from evenflow import sinks
from evenflow.bench.corpus.running import SETTINGS, differing
from evenflow.errors import EvenflowError, QueryError
from evenflow.query.builder import Dataflow
from evenflow.query.script import sql
from evenflow.testing import run as simulate
from evenflow.testing import source

OTHER_KINDS: Final = frozenset({"agg_funcs", "window_funcs", "generator_funcs", "table_funcs"})
OF_THE_SESSION: Final = frozenset({
    "curdate", "current_catalog", "current_database", "current_date", "current_path", "current_schema", "current_time",
    "current_timestamp", "current_timezone", "current_user", "input_file_block_length", "input_file_block_start", "input_file_name",
    "localtime", "localtimestamp", "now", "session_user", "user", "version",
})  # fmt: skip
"""Functions whose value is that of a clock or of a session, and of no row."""
_EXAMPLE: Final = re.compile(r"^\s*> ((?:SELECT|SET) .*?);\s*$", re.MULTILINE | re.DOTALL)
_OTHER_NODES: Final = re.compile(r"\b(Aggregate|Window|Generate|LocalRelation)\b ?\[")
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_ROW: Final = pa.table({"_row": pa.array([1])})


@dataclass(frozen=True, slots=True)
class Example:
    """Of a function's documentation. wanted: batch Spark's row; None if Spark raises, or the row is of a type that Arrow has not."""

    function: str
    group: str
    text: str
    wanted: pa.Table | None
    raises: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of an example. refused: why it was not taken as a query. different: how its row differs. Equal if it is neither."""

    example: Example
    refused: str | None = None
    different: str | None = None


def examples(spark: Any) -> Iterator[Example]:
    """Those that count, each once, with what batch Spark makes of it."""
    found = dict[str, tuple[str, str]]()
    catalog = spark._jsparkSession.sessionState().catalog()
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        try:
            info = catalog.lookupBuiltinOrTempFunction(name)
        except Exception:  # Operators that are syntax are not in the registry.
            continue
        if info.isDefined() and info.get().getGroup() not in OTHER_KINDS and name not in OF_THE_SESSION:
            settings = False
            for text in _EXAMPLE.findall(info.get().getExamples()):
                if text.startswith("SET "):
                    settings = not settings
                elif not settings:  # What stands between two SETs is of another way to read texts.
                    found.setdefault(text, (name, info.get().getGroup()))
    for text, (name, group) in found.items():
        try:
            frame = spark.sql(text)
            plan = frame._jdf.queryExecution().analyzed()
        except Exception:  # Spark itself refuses it: it is of a type or a library that this session does not have.
            continue
        if not plan.deterministic() or _OTHER_NODES.search(plan.toString()) or "unix_timestamp()" in text:
            continue
        example = Example(name, group, text, *_answer(frame))
        if (
            group != "misc_funcs" or example.wanted is None or example.wanted.equals(_answer(spark.sql(text))[0])
        ):  # Some begin with a chance.
            yield example


def _answer(frame: Any) -> tuple[pa.Table | None, bool]:
    """Batch Spark's row, and whether it raises instead; neither if it is of a type that Arrow has not."""
    try:
        return frame.toArrow(), False
    except pa.ArrowInvalid:  # PySpark says of a variant that it is never null, which Arrow then does not take.
        return pa.Table.from_batches(frame._collect_as_arrow()), False
    except Exception:  # Whatever it raises.
        pass
    try:
        frame.write.format("noop").mode("overwrite").save()
    except Exception:
        return None, True
    return None, False


def outcome(example: Example) -> Outcome:
    """Whether the example gives the same here."""
    try:
        flow = Dataflow("example")
        row = flow.source(source(_ROW.schema), name="one")
        out = sql(f"{example.text} FROM one", {"one": row})
        out.to(sinks.memory("out"), name="out")
    except QueryError as error:
        return Outcome(example, refused=f"{type(error).__name__}: {error}")
    try:
        got = simulate(out.flow, {"one": _ROW}).table("out")
    except EvenflowError as error:
        return Outcome(example, different=None if example.raises else f"{type(error).__name__}: {error}")
    if example.wanted is None:
        what = "Spark raises" if example.raises else "Spark's row cannot be taken as Arrow"
        return Outcome(example, different=f"{got.to_pylist()}, and {what}")
    names = [f"c{at}" for at in range(example.wanted.num_columns)]
    if got.num_columns != len(names):
        return Outcome(example, different=f"{got.num_columns} columns instead of {len(names)}")
    return Outcome(example, different=differing(got.rename_columns(names), example.wanted.rename_columns(names)))


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of `bench functions`."""
    return {
        "benchmark": "functions",
        "quick": False,
        "examples": len(outcomes),
        "equal": sum(each.refused is None and each.different is None for each in outcomes),
        "refused": [{"example": each.example.text, "function": each.example.function, "reason": each.refused}
                    for each in outcomes if each.refused is not None],
        "different": [{"example": each.example.text, "function": each.example.function, "reason": each.different}
                      for each in outcomes if each.different is not None],
    }  # fmt: skip


@contextmanager
def session() -> Iterator[Any]:
    """One local session, whose expressions are interpreted: to compile each of a thousand would take minutes."""
    from evenflow.world.spark.cluster.session import QUICK_START, embedded_session, stop_session

    conf = {**SETTINGS, **_INTERPRETED, "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:+UseSerialGC {QUICK_START}"}
    spark = embedded_session("local[1]", "evenflow-functions", conf)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # It writes down whatever Spark refuses.
    try:
        yield spark
    finally:
        stop_session(spark)


def run(only: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """`bench functions`. only: of functions whose name, or whose group's name, has this text."""
    outcomes = list[Outcome]()
    with session() as spark:
        for example in examples(spark):
            if only is None or only.lower() in f"{example.function} {example.group}".lower():
                outcomes.append(outcome(example))
                if (said := outcomes[-1].refused or outcomes[-1].different) is not None:
                    say(f"{example.text}: {'refused' if outcomes[-1].refused else 'differs'}: {said}")
    return report(outcomes)
