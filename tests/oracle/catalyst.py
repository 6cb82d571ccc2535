"""What batch Spark SQL makes of an expression in each row: a value, null, or an error.

A query ends with the first error of any row. So every expression is wrapped, and `array(expression)` within Catalyst's own TryEval
gives the list of the value where there is one, and null where Spark raises. Then one query answers thousands of expressions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.classic.column import Column

AS_WRITTEN: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Nothing is compiled to Java."""

INTERPRETED: Final = {
    **AS_WRITTEN,
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in (
            "ConstantFolding",
            "NullPropagation",
            "SimplifyConditionals",
            "UnwrapCastInBinaryComparison",
            "BooleanSimplification",
            "SimplifyExtractValueOps",
        )
    ),
}
"""Thousands of expressions over some rows: compiling them to Java would take minutes, interpreting them takes seconds.

Constants are not computed beforehand, because there an error ends the query, whatever is around it. Nor is anything left out
because the result does not depend on it: it may raise.
"""

AT_A_TIME: Final = 50
"""How many expressions are analyzed together: to find the one that Spark refuses takes the analysis of twice as many."""


class Catalyst:
    """Expressions of Spark over the rows of one batch."""

    def __init__(self, spark: SparkSession, batch: pa.RecordBatch) -> None:
        logging.getLogger("SQLQueryContextLogger").disabled = True  # It writes down every refusal.
        self._jvm: Any = spark._jvm
        self._frame = frame_of(spark, batch)

    def answers(self, texts: Sequence[str]) -> dict[str, pa.Array | None]:
        """Per expression that Spark accepts, an array of lists: [value], [null], or null where the row raises. None: Spark raises for all
        rows together, as it does in what it computes once for several places (BETWEEN), so nothing is known of any."""
        return self._asked(list(self._accepted(texts).items()))

    def _asked(self, columns: list[tuple[str, Column]]) -> dict[str, pa.Array | None]:
        """All together; if that raises, each half."""
        if not columns:
            return {}
        asked = self._frame.select(*[column.alias(f"e{k}") for k, (_, column) in enumerate(columns)])
        try:
            table = asked.toArrow()
        except pa.ArrowInvalid:  # Of variants, which PySpark says are never null inside a list that is.
            table = pa.Table.from_batches(asked._collect_as_arrow())
        except PySparkException:
            half = len(columns) // 2
            return self._asked(columns[:half]) | self._asked(columns[half:]) if half else {columns[0][0]: None}
        return {text: table.column(k).combine_chunks() for k, (text, _) in enumerate(columns)}

    def _accepted(self, texts: Sequence[str]) -> dict[str, Column]:
        """Those that pass Spark's analysis: some at a time, and if one of them does not, each half."""
        columns = [(text, column) for text in texts if (column := self._column(text)) is not None]
        return {text: column for k in range(0, len(columns), AT_A_TIME) for text, column in self._analyzed(columns[k : k + AT_A_TIME])}

    def _analyzed(self, columns: list[tuple[str, Column]]) -> Iterator[tuple[str, Column]]:
        if not columns:
            return
        try:
            self._frame.select(*[column for _, column in columns])
        except (AnalysisException, Py4JJavaError):  # Some refusals of Spark are internal errors of its analysis.
            if len(columns) == 1:
                return
            half = len(columns) // 2
            yield from self._analyzed(columns[:half])
            yield from self._analyzed(columns[half:])
        else:
            yield from columns

    def _column(self, text: str) -> Column | None:
        catalyst, utils = self._jvm.org.apache.spark.sql.catalyst.expressions, self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        try:
            listed: Any = functions.array(functions.expr(text))  # Within the text of array(...), Spark's lexer takes >> for two ends.
        except ParseException:
            return None
        return Column(utils.column(catalyst.TryEval(utils.expression(listed._jc))))


def frame_of(spark: SparkSession, batch: pa.RecordBatch) -> DataFrame:
    """The batch in Spark as it is; by itself, Spark takes a timestamp without a zone for one with."""
    plain = [f.name for f in batch.schema if pa.types.is_timestamp(f.type) and f.type.tz is None]
    names = [f"cast(`{n}` as timestamp_ntz) as `{n}`" if n in plain else f"`{n}`" for n in batch.schema.names]
    return spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1).selectExpr(*names)


@contextmanager
def interpreted(spark: SparkSession, settings: Mapping[str, str] = INTERPRETED) -> Iterator[None]:
    """The session has these settings meanwhile, and then those of before."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)
