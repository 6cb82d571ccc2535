"""An ordinary streaming DataFrame as a stream of Evenflow: its plan is read out of the JVM, and parts of it are given back to run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

import pyarrow as pa

from evenflow import sources
from evenflow.errors import NotPortable, QueryError
from evenflow.processor import Processor
from evenflow.query.builder import Dataflow, Stream
from evenflow.query.ported.lowering import PlanLowering
from evenflow.query.ported.tree import Attribute, Plan, kind_of
from evenflow.query.script.lowering import OutputMode
from evenflow.query.user.function import UserFunction
from evenflow.query.user.scope import scope
from evenflow.stream.schema import quoted, schema_of_spark
from evenflow.world.spark.bridge.functions import functions_of, unpickled
from evenflow.world.spark.bridge.group_state import GroupStateFunction
from evenflow.world.spark.bridge.stacking import stacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from evenflow.sources.source import Source


def from_streaming(
    df: DataFrame, output_mode: OutputMode = "append", *, every: str | timedelta = "1 second",
    refresh: str | timedelta | None = None, name: str = "streaming",
) -> Stream:  # fmt: skip
    """The stream of a streaming DataFrame's rows, computed by Evenflow; `.flow` is its dataflow.

        query = counts.writeStream.outputMode("append").format("parquet").option("path", out).start()    # before
        run = engine.start(ef.from_streaming(counts).to(ef.sinks.parquet(out)).flow)                     # after

    df: with its groupBy, window, agg, join, dropDuplicates and withWatermark. What is below the first of them Spark goes on doing.
    output_mode: "append"; "update": rows of groups as they are so far, as in Spark; "complete": the whole result at every trigger, which
    `every` is, as in Spark; "changelog": what changes, with a column `_change`. refresh: how often tables that are joined
    above a watermark are read again (see `Dataflow.table`), None: they stay as they are. name: of the dataflow.

    Columns have the names and the types that they have in Spark. Raises NotPortable with the part of the plan and the expression that
    cannot be run here.
    """
    if not hasattr(df, "_jdf"):
        raise QueryError(f"from_streaming takes a streaming DataFrame of a classic Spark session, not {type(df).__name__}")
    if not df.isStreaming:
        raise QueryError("this DataFrame is no stream; bring it in with flow.from_spark(df), or read it with spark.readStream")
    if output_mode not in get_args(OutputMode):
        raise QueryError(f"output_mode is {output_mode!r}; it must be one of {', '.join(get_args(OutputMode))}")
    settings = df.sparkSession.conf
    if settings.get("spark.sql.ansi.enabled") != "true":
        raise QueryError(
            "this session computes without ANSI mode (nulls instead of overflow and bad casts), Evenflow with it: set "
            "spark.sql.ansi.enabled to true, and see that the query still does what it should"
        )
    origin = _Session(df)
    flow = Dataflow(name)
    zone, policy = settings.get("spark.sql.session.timeZone") or "UTC", settings.get("spark.sql.streaming.multipleWatermarkPolicy", "min")
    plan = origin.plan()
    with scope(origin.functions):
        return PlanLowering(flow, origin, output_mode, zone, every, (policy or "min").lower(), refresh).lower(plan)


class _Session:
    """The plan's side of the JVM. functions: of the user's, that the plan has been found to call."""

    def __init__(self, df: DataFrame) -> None:
        self._df, self._spark = df, df.sparkSession
        self._jvm: Any = self._spark.sparkContext._jvm
        self.functions: dict[str, UserFunction] = {}

    def plan(self) -> Plan:
        """The analysed plan. WITH is written out where it is read; IN (SELECT ...) and EXISTS are the joins that Spark makes of them."""
        with self._whole_texts():
            return self._plan()

    def _plan(self) -> Plan:
        root: Any = self._df._jdf.queryExecution().analyzed()
        nodes = json.loads(root.toJSON())
        if any(kind_of(node) == "WithCTE" for node in nodes):
            root = _inlined(root, self._jvm)
            nodes = json.loads(root.toJSON())
        if any(kind_of(node) == "Filter" and _asks(node) for node in nodes):
            rules = self._jvm.org.apache.spark.sql.catalyst.optimizer
            root = rules.RewritePredicateSubquery.apply(rules.PullupCorrelatedPredicates.apply(root))
            nodes = json.loads(root.toJSON())
        return self._read(iter(nodes), root)

    def _read(self, nodes: Iterator[Mapping[str, Any]], node: Any) -> Plan:
        fields = next(nodes)
        kind = kind_of(fields)
        children = tuple(self._read(nodes, child) for child in _each(node.children()))
        streaming = bool(node.isStreaming())
        output = tuple(_attribute(column) for column in _each(node.output()))
        text = str(node.simpleString(_MANY)) if streaming else ""
        delay_us = None
        if kind == "Expand" and fields.get("projections") is None:  # JSON has no lists of what the analyser has mapped.
            fields = {**fields, "projections": [[json.loads(tree.toJSON()) for tree in _each(made)] for made in _each(node.projections())]}
        if kind == "EventTimeWatermark":
            delay_us = 1000 * int(self._jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs(node.delay()))
        if streaming and kind in _JUDGED and ("try_cast(" in text or kind == "Aggregate"):
            fields = _with_modes(fields, node)
        if streaming and kind in _JUDGED and _PYTHON in json.dumps(fields):
            self._keep_functions(kind, text, node)
        return Plan(kind, fields, children, text, streaming, output, delay_us, node)

    @contextmanager
    def _whole_texts(self) -> Iterator[None]:
        """Spark leaves arguments of long calls out of its texts, and there may be a try_cast or an option among them."""
        conf = self._jvm.org.apache.spark.sql.internal.SQLConf.get()
        before = conf.getConfString(_ARGUMENTS) if conf.contains(_ARGUMENTS) else None
        conf.setConfString(_ARGUMENTS, str(_MANY))
        try:
            yield
        finally:
            if before is None:
                conf.unsetConf(_ARGUMENTS)
            else:
                conf.setConfString(_ARGUMENTS, before)

    def _keep_functions(self, kind: str, text: str, node: Any) -> None:
        try:
            self.functions |= functions_of(node, self._jvm)
        except QueryError as error:
            raise NotPortable(f"{kind} cannot be ported: {error}; in {text}", text, kind) from error

    def stream(self, plan: Plan, names: Sequence[str], kept: Sequence[str], above: Sequence[Plan], time: int | None) -> Source:
        node = stacked(plan.handle, [part.handle for part in above], time, self._jvm) if above else plan.handle
        return sources.spark(self._dataframe(node, names, kept))

    def processor(self, plan: Plan, arguments: Mapping[str, str], given: Mapping[str, str], time: str | None) -> Processor:
        node = plan.handle
        function, _ = unpickled(node.functionExpr(), self._jvm)
        output, state = (schema_of_spark(json.loads(str(type_.json())), plan.kind) for type_ in (node.schema(), node.stateType()))
        renamed = pa.schema([field.with_name(given[field.name]) for field in output])
        zone = self._spark.conf.get("spark.sql.session.timeZone") or "UTC"
        return GroupStateFunction(function, arguments, given, renamed, state, str(node.timeout().toString()), time, zone)

    def table(self, plan: Plan, names: Sequence[str], kept: Sequence[str]) -> DataFrame:
        return self._dataframe(plan.handle, names, kept)

    def _dataframe(self, node: Any, names: Sequence[str], kept: Sequence[str]) -> DataFrame:
        from pyspark.sql import DataFrame

        jdf = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, node)
        return DataFrame(jdf, self._spark).toDF(*names).select(*map(quoted, kept))

    def _seq(self, items: Sequence[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(items))


_ARGUMENTS: Final = "spark.sql.debug.maxToStringFields"
_MANY: Final = 100_000
"""Columns and arguments that the text of a node may have."""
_PYTHON = "catalyst.expressions.PythonUD"
"""What the classes of calls of Python functions begin with."""

_MODAL: Final = ("Cast", "Sum", "Average")
"""What JSON does not say of whether it is null where others fail."""


def _with_modes(fields: Mapping[str, Any], node: Any) -> Mapping[str, Any]:
    """The fields of a node with a field `try` of such expressions, and `modes` of the node if it is known of all of them."""
    lists = [tree for name in ("groupingExpressions", "aggregateExpressions", "projectList") for tree in fields.get(name) or ()]
    lists += [fields["condition"]] if fields.get("condition") else []
    told = [part for tree in lists for part in tree if kind_of(part) in _MODAL]
    found: list[Any] = []
    waiting = list(_each(node.expressions()))[::-1] if told else []
    while waiting:
        part = waiting.pop()
        found += [part] if part.getClass().getSimpleName() in _MODAL else []
        waiting += list(_each(part.children()))[::-1]
    if len(told) != len(found):
        return fields
    for part, handle in zip(told, found, strict=True):
        mode = handle.evalMode() if kind_of(part) == "Cast" else handle.productElement(1)
        part["try"] = "TRY" in str(mode.toString())
    return {**fields, "modes": True}


_JUDGED = frozenset({"Project", "Filter", "Aggregate", "Join"})


def _asks(node: Mapping[str, Any]) -> bool:
    """Whether a condition has IN (SELECT ...) or EXISTS (SELECT ...)."""
    text = json.dumps(node.get("condition"))
    return any(f'catalyst.expressions.{kind}"' in text for kind in ("ListQuery", "Exists"))


def _attribute(column: Any) -> Attribute:
    return Attribute(int(column.exprId().id()), str(column.name()), str(column.dataType().catalogString()))


def _inlined(root: Any, jvm: Any) -> Any:
    """The plan without WITH. Spark's rule has one argument more in some versions."""
    from py4j.protocol import Py4JError

    rule = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE
    try:
        return rule(True, False).apply(root)
    except Py4JError:
        return rule(True, False, False).apply(root)


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(at) for at in range(sequence.size()))


__all__ = ["from_streaming"]
