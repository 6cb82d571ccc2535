"""SQL in Spark's dialect to boxes of a dataflow: one query, or a script of views, sources, sinks and queries into them.

`grammar` parses, `statements` runs the statements of a script, `select` a query, by clauses: `group`, `distinct`, `join`,
`best`, `match`; `lowering` is what clauses need of the query around them. It draws with the builder's methods, and knows
nothing of segments and sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenflow.errors import QueryError
from evenflow.query.script.grammar import parse_script
from evenflow.query.script.lowering import OutputMode
from evenflow.query.script.select import Lowering
from evenflow.query.script.statements import Statements
from evenflow.query.sql.depth import room
from evenflow.query.user.scope import scope

if TYPE_CHECKING:
    from evenflow.query.builder import Stream
    from evenflow.query.network import Box
    from evenflow.sinks.sink import Sink
    from evenflow.sources.source import Source


def sql(
    text: str,
    streams: Mapping[str, Stream | Source] | None = None,
    *,
    sinks: Mapping[str, Sink] | None = None,
    functions: Mapping[str, Any] | None = None,
    name: str = "sql",
    on_error: Literal["fail", "skip"] = "fail",
    output_mode: OutputMode = "append",
    every: str | timedelta = "1 second",
) -> Stream:
    """The stream of the last statement's rows; `.flow` is its dataflow, with the boxes of all statements.

        ef.sql("SELECT src, count(*) AS n FROM packets GROUP BY src, window(ts, '1 minute')", {"packets": packets})

    text: a SELECT in Spark's SQL, or statements separated by semicolons: CREATE [TEMPORARY] VIEW name AS SELECT ..., CREATE TEMPORARY
    VIEW name USING source OPTIONS (...), CREATE TABLE name USING sink OPTIONS (...), INSERT INTO sink SELECT ... . streams: what FROM may
    name: streams of one dataflow, or sources. sinks: what INSERT INTO may name. name: of the dataflow, if it is a new one.

    functions: of yours, by the names that the text calls them by: `ef.udf`, `ef.pandas_udf`, `ef.arrow_udf`, functions that PySpark has
    decorated, `ef.Aggregator`s; or `ef.registered(spark)`, those that are registered in a session of Spark.

    on_error: what becomes of a row on which an expression of SELECT, WHERE, HAVING or GROUP BY raises, as `Stream.on_error` says.

    output_mode: when windows are put out. "append": once. "update": whenever rows have come into them, as groups without a window are.
    "changelog": then, as what has changed, with a column `_change`. "complete": the whole result `every` so often, if it has changed, and
    at the end; such a query can have ORDER BY and LIMIT.

    Raises QueryError (ExpressionError, UnknownColumn, TypeMismatch) with line and column where the text cannot be run on streams. Then
    nothing is added to the dataflow.
    """
    from evenflow.query.builder import Dataflow, Stream

    if on_error not in ("fail", "skip"):
        raise QueryError(f"on_error is {on_error!r}; it must be 'fail' or 'skip'")
    if output_mode not in get_args(OutputMode):
        raise QueryError(f"output_mode is {output_mode!r}; it must be one of {', '.join(get_args(OutputMode))}")
    with scope(functions):  # A function of the user's may be called as one that the parser knows.
        script = parse_script(text)
    given = dict(streams or {})
    flows = {id(stream.flow): stream.flow for stream in given.values() if isinstance(stream, Stream)}
    if len(flows) > 1:
        names = " and ".join(repr(flow.name) for flow in flows.values())
        raise QueryError(f"the streams are of the dataflows {names}; take all from one, or pass sources")
    flow = next(iter(flows.values()), None) or Dataflow(name)
    with flow.whole(), scope(functions), room(text):
        tables = {
            table: stream if isinstance(stream, Stream) else flow.source(stream, name=flow.free(table)) for table, stream in given.items()
        }
        drawn = {box.name for box in flow.network}
        last = Statements(Lowering(flow, script, output_mode, every), tables, dict(sinks or {})).run()
        for box in flow.network:
            if on_error == "skip" and box.name not in drawn and _computes(box):
                flow.stream(box.name).on_error("skip")
        return last


def _computes(box: Box) -> bool:
    """Whether expressions of the box may raise; a column that only passes cannot."""
    return box.kind == "filter" or (box.kind == "select" and any(name != made for name, made in box.params["columns"]))


__all__ = ["sql"]
