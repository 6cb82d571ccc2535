"""Catalyst's expressions as SQL, and plans as boxes, without a JVM. What they compute is compared with Spark in tests/oracle."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import NotPortable
from evenflow.query.planner import layout
from evenflow.query.ported.expressions import SqlWriter, function_name
from evenflow.query.ported.lowering import PlanLowering
from evenflow.query.ported.tree import Attribute, Expression, Plan, read_expression
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.script.grammar import parse_script
from evenflow.query.script.lowering import OutputMode
from evenflow.query.script.relation import Relation
from evenflow.query.script.select import Lowering
from evenflow.query.user.function import of_spark
from evenflow.query.user.scope import scope
from evenflow.site.options import FlowOptions
from evenflow.sources.source import Source
from evenflow.world.sim.world import SimWorld

Json = list[dict[str, Any]]
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int64())])
IDS = {"ts": 1, "k": 2, "n": 3, "at": 4}


def node(kind: str, *children: Json, **fields: Any) -> Json:
    """An expression as `TreeNode.toJSON` writes it."""
    return [{"class": f"catalyst.{kind}", "num-children": len(children), **fields}, *(part for child in children for part in child)]


def column(name: str, id_: int | None = None) -> Json:
    return node("AttributeReference", name=name, exprId={"id": IDS[name] if id_ is None else id_}, dataType="long")


def literal(value: str | None, type_: str = "integer") -> Json:
    return node("Literal", value=value, dataType=type_)


def cast(inner: Json, type_: str) -> Json:
    return node("Cast", inner, dataType=type_, timeZoneId="Etc/UTC")


def written(tree: Json, zone: str = "UTC") -> str:
    def no_field(tree: Expression, ordinal: int) -> str:
        raise AssertionError

    return SqlWriter(lambda tree: f"`{tree.name}`", no_field, zone).sql(read_expression(tree))


REF = node("CommonExpressionRef")
WRITTEN = [
    (node("Add", column("n"), literal("1", "long")), "(`n` + 1L)"),
    (node("Not", node("IsNull", column("n"))), "(NOT (`n` IS NULL))"),
    (literal("it's \\", "string"), "'it\\'s \\\\'"),
    (literal("-5", "long"), "(-5L)"),
    (node("GetTimestamp", column("k"), literal("yyyy", "string"), dataType="timestamp_ntz"), "to_timestamp_ntz(`k`, 'yyyy')"),
    (node("GetTimestamp", column("k"), literal("yyyy", "string"), dataType="timestamp"), "to_timestamp(`k`, 'yyyy')"),
    (
        node("MakeTimestamp", *[column("n")] * 6, dataType="timestamp_ntz", failOnError=True),
        "make_timestamp_ntz(`n`, `n`, `n`, `n`, `n`, `n`)",
    ),
    (literal(None, "void"), "NULL"),
    (literal(None, "long"), "CAST(NULL AS BIGINT)"),
    (literal("1.5", "decimal(2,1)"), "CAST('1.5' AS decimal(2,1))"),
    (literal("10000000", "interval second"), "INTERVAL '10000000' MICROSECOND"),
    (cast(literal("2 minutes", "string"), "interval"), "INTERVAL '120000000' MICROSECOND"),
    (cast(literal("10800000000", "interval hour"), "integer"), "CAST(CAST(INTERVAL '3' HOUR AS INTERVAL HOUR) AS INT)"),
    (cast(literal("93600000000", "interval hour"), "interval day"), "CAST(INTERVAL '26' HOUR AS INTERVAL DAY)"),
    (cast(cast(literal("86400000000", "interval day"), "interval day to second"), "long"),
     "CAST(CAST(INTERVAL '1' DAY AS INTERVAL DAY TO SECOND) AS BIGINT)"),
    (cast(column("n"), "long"), "`n`"),
    (cast(column("n"), "string"), "CAST(`n` AS STRING)"),
    (node("Cast", column("k"), dataType="integer", **{"try": True}), "TRY_CAST(`k` AS INT)"),
    (node("AggregateExpression", node("Sum", column("n"), **{"try": True}), isDistinct=False), "try_sum(`n`)"),
    (node("CaseWhen", column("n"), literal("1"), literal("2")), "CASE WHEN `n` THEN 1 ELSE 2 END"),
    (node("CaseWhen", column("n"), literal("1")), "CASE WHEN `n` THEN 1 END"),
    (node("Like", column("k"), literal("a!%", "string"), escapeChar="!"), "(`k` LIKE 'a!%' ESCAPE '!')"),
    (node("StringTrimLeft", column("k"), literal("x", "string")), "ltrim('x', `k`)"),
    (node("Nvl", node("Coalesce", column("n"), literal("0")), replacement=0), "coalesce(`n`, 0)"),
    (node("TryAdd", node("Add", column("n"), literal("1")), replacement=0), "try_add(`n`, 1)"),
    (node("TryMultiply", node("TryEval", node("Multiply", column("n"), column("n"))), replacement=0), "try_multiply(`n`, `n`)"),
    (node("XxHash64", column("n"), seed=42), "xxhash64(`n`)"),
    (node("TimestampAdd", literal("1"), column("ts"), unit="MONTH"), "timestampadd(MONTH, 1, `ts`)"),
    (
        node("JsonToStructs", column("k"), schema={"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True}]}),
        "from_json(`k`, 'struct<a:int>')",
    ),
    (
        node("With", node("And", node("GreaterThanOrEqual", REF, literal("1")), node("LessThanOrEqual", REF, literal("2"))),
             node("CommonExpressionDef", column("n"))),
        "((`n` >= 1) AND (`n` <= 2))",
    ),
    (
        node("AggregateExpression", node("Sum", column("n")), node("IsNotNull", column("k")), isDistinct=False),
        "sum(`n`) FILTER (WHERE (`k` IS NOT NULL))",
    ),
    (node("AggregateExpression", node("Count", column("n")), isDistinct=True), "CAST(size(array_distinct(collect_list(`n`))) AS BIGINT)"),
    (node("AggregateExpression", node("First", column("n"), ignoreNulls=True), isDistinct=False), "first(`n`, true)"),
    (node("AggregateExpression", node("CollectList", column("n"), ignoreNulls=True), isDistinct=False), "collect_list(`n`)"),
    (
        node("AggregateExpression", node("CollectList", column("n"), ignoreNulls=False), node("IsNotNull", column("k")), isDistinct=False),
        "collect_list(`n`) FILTER (WHERE (`k` IS NOT NULL)) RESPECT NULLS",
    ),
    (node("AggregateExpression", node("CollectSet", column("n"), ignoreNulls="false"), isDistinct=False), "collect_set(`n`) RESPECT NULLS"),
    (node("AggregateExpression", node("AnyValue", column("n"), ignoreNulls=True), isDistinct=False), "any_value(`n`, true)"),
    (
        node("AggregateExpression", node("Percentile", column("n"), literal("1"), literal("1", "long")), isDistinct=False),
        "percentile(`n`, 1)",
    ),
    (
        node("AggregateExpression", node("Percentile", column("n"), literal("1"), column("at")), isDistinct=False),
        "percentile(`n`, 1, `at`)",
    ),
    (node("ParseToDate", column("k"), literal("yyyy", "string"), ansiEnabled=False, timeZoneId="UTC"), "try_to_date(`k`, 'yyyy')"),
    (node("ParseToTimestamp", column("ts"), dataType="timestamp_ntz", failOnError=True), "to_timestamp_ntz(`ts`)"),
    (node("With", node("NullIfResult", node("EqualTo", REF, literal("1")), REF), node("CommonExpressionDef", column("n"))),
     "if((`n` = 1), NULL, `n`)"),
    (node("UnBase64", column("k"), failOnError=False), "unbase64(`k`)"),
    (
        node("TimestampAddInterval", column("ts"), node("MakeInterval", literal("0"), column("n"), failOnError=True)),
        "(`ts` + make_interval(0, `n`))",
    ),
    (node("TryElementAt", node("ElementAt", column("k"), literal("1")), replacement=0), "try_element_at(`k`, 1)"),
    (
        node("AggregateExpression", node("PercentileDisc", column("n"), literal("1"), reverse=True), node("IsNotNull", column("k"))),
        "percentile_disc(1) WITHIN GROUP (ORDER BY `n` DESC) FILTER (WHERE (`k` IS NOT NULL))",
    ),
    (node("AggregateExpression", node("ListAgg", column("k"), literal(None, "void"))), "listagg(`k`)"),
    (node("AggregateExpression", node("ApproxTopK", column("k"), literal("2"), literal("10000"))), "approx_top_k(`k`, 2)"),
    (
        node("AggregateExpression", node("MaxBy", column("n"), column("at")), node("IsNotNull", column("k")), isDistinct=False),
        "max_by(`n`, `at`) FILTER (WHERE (`k` IS NOT NULL))",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_an_expression_as_sql(tree: Json, text: str) -> None:
    assert written(tree) == text


REFUSED = {
    "Sentences": (node("Sentences", column("k")), "sentences(k)"),
    "nulls instead of failures": (node("ToDate", column("k"), failOnError=False), "todate(k)"),
    "seed": (node("Murmur3Hash", column("n"), seed=7), "murmur3hash(n)"),
    "aggregate": (node("AggregateExpression", node("HistogramNumeric", column("n"))), "histogramnumeric(n)"),
    "months": (literal("3", "interval month"), "3"),
    "type": (cast(column("n"), "interval year"), "cast(n)"),
    "several names": (node("With", REF, node("CommonExpressionDef", column("n")), node("CommonExpressionDef", column("k"))), "commonexpr"),
    "bytes": (literal("[B@1f2e", "binary"), "[B@1f2e"),
    "position": (node("RegExpReplace", column("k"), literal("a"), literal("b"), literal("2")), "regexpreplace"),
}  # fmt: skip


@pytest.mark.parametrize(("tree", "shown"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_to_mean_the_same_is_refused(tree: Json, shown: str) -> None:
    with pytest.raises(NotPortable) as refused:
        written(tree)
    assert shown in refused.value.expression
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.expression, again.node) == (str(refused.value), refused.value.expression, "")


@pytest.mark.parametrize(
    "tree",
    [
        node("Hour", column("ts"), timeZoneId="Europe/Berlin"),
        literal("2026-01-01 00:00:00", "timestamp"),
        cast(node("TimestampAddInterval", column("ts"), literal("1", "interval second")), "date"),
        node("TimestampAddInterval", column("ts"), literal("86400000000", "interval day")),
        node("TimestampAddInterval", column("ts"), node("UnaryMinus", literal("86400000000", "interval day"))),
        node("TimestampAddInterval", column("ts"), node("MakeDTInterval", column("n"), literal("0"), literal("0"), literal("0"))),
        node("TimestampAddInterval", column("ts"), node("UnaryMinus", node("MakeInterval", literal("0"), column("n"), failOnError=True))),
    ],
    ids=lambda tree: tree[0]["class"],
)
def test_what_depends_on_the_time_zone_is_refused(tree: Json) -> None:
    with pytest.raises(NotPortable, match="Europe/Berlin"):
        written(tree, "Europe/Berlin")


def test_what_does_not_depend_on_the_time_zone_is_not() -> None:
    inside = node("TimestampAddInterval", column("ts"), literal("1000000", "interval second"))
    assert written(cast(inside, "timestamp"), "Europe/Berlin") == "(`ts` + INTERVAL '1000000' MICROSECOND)"
    before = node("TimestampAddInterval", column("ts"), node("UnaryMinus", literal("1000000", "interval second")))
    assert written(before, "Europe/Berlin") == "(`ts` - INTERVAL '1000000' MICROSECOND)"
    assert written(cast(column("n"), "double"), "Europe/Berlin") == "CAST(`n` AS DOUBLE)"


def test_what_spark_makes_of_minus_is_written_as_minus() -> None:
    """A time minus an interval is replaced by an addition, and intervals are cast to those of all units."""
    second = literal("1000000", "interval second")
    added = node("TimestampAddInterval", column("ts"), node("UnaryMinus", second))
    before = cast(node("DatetimeSub", added, replacement=0), "timestamp")
    assert written(node("GreaterThanOrEqual", column("at"), before)) == "(`at` >= (`ts` - INTERVAL '1000000' MICROSECOND))"
    apart = node("SubtractTimestamps", column("ts"), column("at"), dataType="interval day to second")
    near = node("LessThanOrEqual", apart, cast(second, "interval day to second"))
    assert written(near) == "((`ts` - `at`) <= INTERVAL '1000000' MICROSECOND)"


# ---------------------------------------------------------------- plans


class Rows:
    """Has the rows of every source, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], list[str], bool, int | None]] = []

    def stream(self, plan: Plan, names: Sequence[str], kept: Sequence[str], above: Sequence[Plan], time: int | None) -> Source:
        self.asked.append((list(names), list(kept), bool(above), time))
        types = {"ts": pa.timestamp("us", "UTC"), "at": pa.timestamp("us", "UTC"), "k": pa.string(), "holds": pa.bool_()}
        return ef.sources.memory([], schema=pa.schema([(name, types.get(name.rstrip("_0123456789"), pa.int64())) for name in kept]))

    def table(self, plan: Plan, names: Sequence[str], kept: Sequence[str]) -> Any:
        return pa.table({name: pa.array([], pa.string()) for name in kept})


def attributes(*names: str) -> tuple[Attribute, ...]:
    return tuple(Attribute(IDS[name], name) for name in names)


READ = Plan("StreamingRelationV2", {}, output=attributes("ts", "k", "n"))
TIMED = Plan("EventTimeWatermark", {"eventTime": column("ts")}, (READ,), "~Watermark", output=READ.output, delay_us=10_000_000)


def project(child: Plan, *columns: Json) -> Plan:
    made = [read_expression(tree) for tree in columns]
    return Plan("Project", {"projectList": list(columns)}, (child,), "~Project", output=tuple(Attribute(c.id, c.name) for c in made))


def alias(inner: Json, name: str, id_: int) -> Json:
    return node("Alias", inner, name=name, exprId={"id": id_})


def lowered(plan: Plan, rows: Rows | None = None, **more: Any) -> ef.Stream:
    return PlanLowering(ef.Dataflow("ported"), rows or Rows(), **more).lower(plan)


def test_a_projection_above_a_watermark_stays_in_spark_with_its_time() -> None:
    rows = Rows()
    stream = lowered(Plan("Deduplicate", {"keys": [column("k")]}, (project(TIMED, column("k")),), output=attributes("k")), rows)
    assert rows.asked == [(["k", "ts"], ["k", "ts"], True, IDS["ts"])]
    assert stream.columns == ["k"]


def test_a_time_under_another_name_is_the_time_there() -> None:
    rows = Rows()
    plan = project(TIMED, alias(column("ts"), "at", 9), column("n"))
    lowered(Plan("Deduplicate", {"keys": [column("n")]}, (plan,), output=plan.output), rows)
    assert rows.asked == [(["at", "n"], ["at", "n"], True, None)]


def test_what_is_lacked_above_a_watermark_is_left_to_spark_and_the_rows_are_left_out_here() -> None:
    """A condition is a column then, so the watermark still sees every row."""
    condition = node("GreaterThan", node("Sentences", column("k")), literal("1"))
    filtered = Plan("Filter", {"condition": condition}, (TIMED,), "~Filter", output=READ.output)
    plan = project(filtered, column("k"), alias(node("Sentences", column("k")), "s", 9))
    rows = Rows()
    stream = lowered(Plan("Deduplicate", {"keys": [column("k")]}, (plan,), output=plan.output), rows)
    assert rows.asked == [(["k", "s", "ts", "holds_0"], ["k", "s", "ts", "holds_0"], True, IDS["ts"])]
    assert stream.columns == ["k", "s"]


def test_what_is_known_here_is_done_here() -> None:
    filtered = Plan("Filter", {"condition": node("GreaterThan", column("n"), literal("1"))}, (TIMED,), "~Filter", output=READ.output)
    rows = Rows()
    lowered(Plan("Deduplicate", {"keys": [column("k")]}, (filtered,), output=READ.output), rows)
    assert rows.asked == [(["ts", "k", "n"], ["ts", "k", "n"], False, None)]


def test_a_query_inside_a_condition_is_refused() -> None:
    inner = node("ListQuery", **{"class": "org.apache.spark.sql.catalyst.expressions.ListQuery"})
    filtered = Plan("Filter", {"condition": node("InSubquery", column("k"), inner)}, (TIMED,), "~Filter", output=READ.output)
    with pytest.raises(NotPortable, match="InSubquery"):
        lowered(Plan("Deduplicate", {"keys": [column("k")]}, (filtered,), output=READ.output))


def test_functions_of_functions_are_written_with_the_ids_of_their_variables() -> None:
    x = node("NamedLambdaVariable", name="x", exprId={"id": 71})
    made = node("ArrayTransform", column("k"), node("LambdaFunction", node("Add", x, literal("1")), x))
    assert SqlWriter(lambda tree: tree.name, lambda *_: "").sql(read_expression(made)) == "transform(k, `x_71` -> (`x_71` + 1))"


def test_columns_that_nobody_names_do_not_come_in() -> None:
    rows = Rows()
    count = alias(node("AggregateExpression", node("Count", literal("1"))), "n", 7)
    plan = Plan("Aggregate", {"groupingExpressions": [column("k")], "aggregateExpressions": [column("k"), count]}, (READ,),
                output=(Attribute(2, "k"), Attribute(7, "n")))  # fmt: skip
    stream = lowered(plan, rows, mode="update")
    assert rows.asked == [(["ts", "k", "n"], ["k"], False, None)]
    assert stream.columns == ["k", "n"]


def test_windows_in_update_mode_end_as_those_in_append_mode() -> None:
    times = [second * 1_000_000 for second in range(60) for _ in range(3)]
    table = pa.table([pa.array(times, SCHEMA.field("ts").type), ["a", "b", None] * 60, list(range(180))], schema=SCHEMA)

    def states(mode: OutputMode) -> list[tuple[Any, ...]]:
        flow = ef.Dataflow("windows")
        rows = Relation.of(flow.source(ef.sources.memory(table)).with_watermark("ts", "5 seconds"))
        script = parse_script("SELECT k, window.start AS s, sum(n) AS n FROM t GROUP BY k, window(ts, '20 seconds', '10 seconds')")
        result = Lowering(flow, script, mode).query(script.statements[0], {"t": rows})
        assert result.running == (mode == "update")
        result.stream.to(ef.sinks.memory("out"), name="out")
        world = SimWorld(
            layout(flow.network, sites=2, partitions=4), sites=2, options=FlowOptions(epoch_rows=25, linger_ms=1), read_rows=25
        )
        world.run_until_quiet()
        return [tuple(row.values()) for row in world.output("out").to_pylist()]

    once, often = states("append"), states("update")
    assert {state[:2]: state for state in often} == {state[:2]: state for state in once}
    assert len(often) > len(once) == 7 * 3


def test_python_functions_of_a_plan_are_called_by_their_numbers() -> None:
    """Several lambdas have one name, so the calls have their numbers; `functions_of` finds the functions in the plan."""

    def call(kind: str, inner: Json, name: str, number: int) -> Json:
        return node(kind, inner, name=name, resultId={"id": number}, udfDeterministic=True)

    def spread(n: Any) -> float:
        return float(n.max() - n.min())

    functions = {
        function_name("<lambda>", 12): of_spark("<lambda>", lambda n: n * 10, "bigint", 100),
        function_name("Spread", 13): of_spark("Spread", spread, "double", 202),
    }
    assert list(functions) == ["lambda_12", "spread_13"]
    made = node("AggregateExpression", call("PythonUDAF", call("PythonUDF", column("n"), "<lambda>", 12), "Spread", 13), isDistinct=False)
    plan = Plan("Aggregate", {"groupingExpressions": [column("k")], "aggregateExpressions": [column("k"), alias(made, "s", 7)]}, (READ,),
                output=(Attribute(2, "k"), Attribute(7, "s")))  # fmt: skip

    class Filled(Rows):
        def stream(self, plan: Plan, names: Sequence[str], kept: Sequence[str], above: Sequence[Plan], time: int | None) -> Source:
            assert list(kept) == ["k", "n"]
            return ef.sources.memory(pa.table({"k": ["a", "b", "a", "a"], "n": pa.array([5, 4, 3, 9], pa.int64())}))

    with scope(functions):
        stream = lowered(plan, Filled(), mode="update")
    stream.to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(stream.flow.network, sites=2, partitions=4), sites=2)
    world.run_until_quiet()
    newest = {row["k"]: row["s"] for row in world.output("out").to_pylist()}
    assert newest == {"a": 60.0, "b": 0.0}
    distinct = node("AggregateExpression", call("PythonUDAF", column("n"), "Spread", 13), isDistinct=True)
    with pytest.raises(NotPortable, match="no FILTER and no DISTINCT"):
        written(distinct)


COUNTED = Plan(
    "Aggregate",
    {"groupingExpressions": [column("k")],
     "aggregateExpressions": [column("k"), alias(node("AggregateExpression", node("Count", literal("1"))), "n", 7)]},
    (READ,), output=(Attribute(2, "k"), Attribute(7, "n")),
)  # fmt: skip


def sorted_by(name: str, id_: int, direction: str, nulls: str) -> Plan:
    order = node("SortOrder", column(name, id_), direction={"object": f"catalyst.{direction}$"}, nullOrdering={"object": f"x.{nulls}$"})
    return Plan("Sort", {"order": [order], "global": True}, (COUNTED,), "~Sort", output=COUNTED.output)


def limited(child: Plan, count: str) -> Plan:
    local = Plan("LocalLimit", {"limitExpr": literal(count)}, (child,), "~LocalLimit", output=child.output)
    return Plan("GlobalLimit", {"limitExpr": literal(count)}, (local,), "~GlobalLimit", output=child.output)


def test_a_whole_table_is_sorted_and_cut_as_the_plan_says() -> None:
    table = lowered(limited(sorted_by("n", 7, "Descending", "NullsLast"), "3"), mode="complete", every="5 seconds").box
    assert (table.kind, table.params["by"], table.params["limit"], table.params["every_us"]) == ("complete", (("n", True),), 3, 5_000_000)
    for counts in (("5", "3"), ("3", "5")):
        twice = limited(limited(sorted_by("n", 7, "Descending", "NullsLast"), counts[0]), counts[1])
        assert lowered(twice, mode="complete").box.params["limit"] == 3
    assert lowered(COUNTED, mode="changelog").columns == ["k", "n", "_change"]


@pytest.mark.parametrize(
    ("plan", "more", "says"),
    [
        (sorted_by("n", 7, "Descending", "NullsFirst"), {"mode": "complete"}, "leave nulls_first and nulls_last out"),
        (sorted_by("other", 9, "Ascending", "NullsFirst"), {"mode": "complete"}, "by columns of its own, not by other"),
        (limited(limited(COUNTED, "5"), "0"), {"mode": "complete"}, "the limit of a table is 0"),
        (limited(COUNTED, "3"), {"mode": "update"}, "or use output_mode='complete'"),
        (TIMED, {"mode": "complete"}, "here is none; use append mode"),
        (Plan("Union", {}, (TIMED, TIMED), "~Union", output=READ.output), {"policy": "max"}, "Policy is 'max', and there are 2"),
    ],
)
def test_what_complete_mode_and_watermarks_cannot_be(plan: Plan, more: dict[str, Any], says: str) -> None:
    with pytest.raises(NotPortable, match=says):
        lowered(plan, **more)


def test_one_watermark_is_the_least_and_the_greatest() -> None:
    assert lowered(Plan("Deduplicate", {"keys": [column("k")]}, (TIMED,), output=READ.output), policy="max").box.kind == "dedup"


def test_how_spark_would_deal_rows_out_says_nothing() -> None:
    by_key = Plan("RepartitionByExpression", {"partitionExpressions": [column("k")]}, (TIMED,), "~Repartition", output=READ.output)
    once = Plan("Deduplicate", {"keys": [column("k")]}, (by_key,), "~Deduplicate", output=READ.output)
    stream = lowered(Plan("Repartition", {"numPartitions": 1}, (once,), "~Repartition 1", output=READ.output))
    assert [box.kind for box in stream.flow.network.boxes] == [box.kind for box in lowered(once).flow.network.boxes]
    sort = sorted_by("n", 7, "Descending", "NullsLast")
    last = Plan("Repartition", {"numPartitions": 1}, (sort,), "~Repartition 1", output=sort.output)
    assert lowered(last, mode="complete").box.params["by"] == (("n", True),)


def test_a_node_that_is_not_known_is_named() -> None:
    with pytest.raises(NotPortable, match=r"before withWatermark; in ~Mystery") as refused:
        lowered(Plan("Mystery", {}, (TIMED,), "~Mystery", output=READ.output))
    assert refused.value.node == "Mystery"


def test_the_innermost_node_is_named() -> None:
    condition = node("GreaterThan", node("Sentences", column("k")), literal("1"))
    once = Plan("Deduplicate", {"keys": [column("k")]}, (TIMED,), "~Deduplicate", output=READ.output)
    plan = Plan("Filter", {"condition": condition}, (once,), "~Filter (sentences(k) > 1)", output=READ.output)
    with pytest.raises(NotPortable) as refused:
        lowered(Plan("Deduplicate", {"keys": [column("n")]}, (plan,), "~Deduplicate", output=plan.output))
    assert (refused.value.node, refused.value.expression) == ("Filter", "sentences(k)")
    assert "~Filter" in str(refused.value)


def test_a_join_needs_columns_that_are_equal() -> None:
    other = Plan("EventTimeWatermark", {"eventTime": column("ts", 11)}, (Plan("StreamingRelationV2", {}, output=(Attribute(11, "ts"),)),),
                 output=(Attribute(11, "ts"),), delay_us=0)  # fmt: skip
    join = Plan("Join", {"joinType": {"object": "plans.Inner$"}, "condition": None}, (TIMED, other), output=(*TIMED.output, *other.output))
    with pytest.raises(NotPortable, match="equal on both sides"):
        lowered(join)


def windowed(ids: dict[str, int], over: str, window: int) -> Plan:
    """Rows with a watermark of `ts` and a column of that id, windows of a minute over a time of theirs."""
    output = tuple(Attribute(id_, name) for name, id_ in ids.items())
    read = Plan("StreamingRelationV2", {}, output=output)
    timed = Plan("EventTimeWatermark", {"eventTime": column("ts", ids["ts"])}, (read,), "~Watermark", output=output, delay_us=0)
    time, minute = column(over, ids[over]), literal("60000000", "long")
    start = node("Subtract", time, node("Remainder", node("Subtract", time, literal("0", "long")), minute))
    made = node("CreateNamedStruct", literal("start", "string"), start, literal("end", "string"), node("Add", start, minute))
    return project(timed, alias(made, "w", window), *(column(name, id_) for name, id_ in ids.items()))


def renamed_time(plan: Plan, id_: int) -> Plan:
    """The same with `ts` under another name."""
    return project(plan, *(alias(column("ts", c.id), "sent", id_) if c.name == "ts" else column(c.name, c.id) for c in plan.output))


LEFT, RIGHT = {"ts": 101, "k": 102}, {"ts": 201, "k": 202, "at": 204}


@pytest.mark.parametrize("how", ["Inner", "LeftOuter"])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(("over", "renamed"), [("ts", False), ("ts", True), ("at", False)])
def test_equal_windows_bound_the_event_times_if_both_are_over_them(over: str, renamed: bool, mirrored: bool, how: str) -> None:
    sides = (windowed(LEFT, "ts", 301), windowed(RIGHT, over, 302))
    sides = (sides[0], renamed_time(sides[1], 205)) if renamed else sides
    pairs = [(column("k", 102), column("k", 202)), (column("w", 301), column("w", 302))]
    if mirrored:
        sides, pairs = sides[::-1], [pair[::-1] for pair in pairs]
    equal = node("And", *(node("EqualTo", *pair) for pair in pairs))
    output = tuple(Attribute(each.id, f"c{each.id}") for side in sides for each in side.output if each.name not in ("k", "w"))
    join = Plan("Join", {"joinType": {"object": f"plans.{how}$"}, "condition": equal}, sides, "~Join", output=output)
    if over == "at" and how == "LeftOuter":
        with pytest.raises(NotPortable, match="bound"):
            lowered(join)
        return
    (box,) = lowered(join).flow.network.of_kind("join")
    made = box.params["join"]
    assert (made.low_us, made.high_us) == ((None, None) if over == "at" else (-60_000_000, 60_000_000))


def test_a_table_cannot_be_the_side_that_is_kept() -> None:
    table = Plan("LocalRelation", {}, streaming=False, output=(Attribute(12, "k"),))
    condition = node("EqualTo", column("k", 12), column("k"))
    join = Plan("Join", {"joinType": {"object": "plans.LeftOuter$"}, "condition": condition}, (table, TIMED), output=TIMED.output)
    with pytest.raises(NotPortable, match="put the stream on the left"):
        lowered(join)


class Frames(Rows):
    """Tables are of a library whose frames have a limit, as Spark's."""

    def table(self, plan: Plan, names: Sequence[str], kept: Sequence[str]) -> Any:
        return polars.from_arrow(super().table(plan, names, kept))


@pytest.mark.parametrize("refresh", [None, "5 minutes"])
def test_tables_are_read_again_where_that_is_asked_for(refresh: str | None) -> None:
    table = Plan("LocalRelation", {}, streaming=False, output=(Attribute(12, "of"), Attribute(13, "name")))
    condition = node("EqualTo", column("k"), column("of", 12))
    kind = {"joinType": {"object": "plans.LeftOuter$"}, "condition": condition}
    once = Plan("Join", kind, (TIMED, table), output=(*TIMED.output, Attribute(13, "name")))
    other = Plan("LocalRelation", {}, streaming=False, output=(Attribute(14, "for"), Attribute(15, "more")))
    again = {"joinType": {"object": "plans.Inner$"}, "condition": node("EqualTo", column("k"), column("for", 14))}
    twice = Plan("Join", again, (once, other), output=(*once.output, Attribute(15, "more")))
    stream = lowered(twice, Frames(), refresh=refresh)
    found = [(table.name, table.every_us) for table in refreshed_tables(stream.flow.network)]
    assert found == ([] if refresh is None else [("table", 300_000_000), ("table_2", 300_000_000)])


def test_what_had_another_name_in_spark_4_0_is_known_by_the_present_one() -> None:
    from evenflow.query.ported.tree import kind_of

    package = "org.apache.spark.sql.catalyst.expressions"
    assert {kind_of({"class": f"{package}.{name}"}) for name in ("TimeAdd", "TimestampAddInterval")} == {"TimestampAddInterval"}


LCASE = "string collate UTF8_LCASE"


def collated(name: str = "k", type_: Any = LCASE) -> Json:
    return node("AttributeReference", name=name, exprId={"id": IDS[name]}, dataType=type_)


@pytest.mark.parametrize(
    "type_",
    [
        LCASE,
        {"type": "array", "elementType": "string collate UNICODE_CI", "containsNull": True},
        {"type": "struct", "fields": [{"name": "a", "type": "string", "metadata": {"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}}]},
        {"type": "struct", "fields": [{"name": "a", "type": "string", "metadata": {"__COLLATIONS": {"a": "icu.UNICODE_CI"}}}]},
    ],
)
def test_an_expression_of_a_collated_column_is_refused(type_: Any) -> None:
    with pytest.raises(NotPortable, match=r"'k'.*collate U\w+_\w+.*lower\(x\)"):
        written(node("EqualTo", collated("k", type_), literal("A", "string")))
    with pytest.raises(NotPortable, match=r"collate UTF8_LCASE"):
        written(cast(column("k"), LCASE))
    with pytest.raises(NotPortable, match="Collate"):
        written(node("Collate", column("k"), node("ResolvedCollation", collationName="UTF8_LCASE")))


def test_a_collation_by_bytes_is_none() -> None:
    fields = [{"name": "collate x", "type": "string", "metadata": {"__COLLATIONS": {"a": "spark.UTF8_BINARY"}}}]
    assert written(node("IsNull", collated("k", {"type": "struct", "fields": fields}))) == "(`k` IS NULL)"
    assert written(cast(collated("k", "string collate UTF8_BINARY"), "string")) == "CAST(`k` AS STRING)"
    assert written(cast(column("n"), "string collate UTF8_BINARY")) == "CAST(`n` AS STRING)"


@pytest.mark.parametrize("type_", [LCASE, "array<string collate UNICODE>", "struct<a:string collate UTF8_LCASE>"])
def test_a_collated_column_of_spark_is_refused_by_its_name(type_: str) -> None:
    output = (Attribute(1, "ts", "timestamp"), Attribute(2, "k", type_), Attribute(3, "n", "bigint"))
    read = Plan("StreamingRelationV2", {}, output=output)
    timed = Plan("EventTimeWatermark", {"eventTime": column("ts")}, (read,), "~Watermark", output=output, delay_us=10_000_000)
    counted = node("AggregateExpression", node("Count", literal("1")), isDistinct=False)
    for plan in (
        Plan("Deduplicate", {"keys": [column("k")]}, (timed,), output=output),
        Plan("Deduplicate", {"keys": []}, (timed,), "~Deduplicate", output=output),
        Plan("Aggregate", {"groupingExpressions": [column("k")], "aggregateExpressions": [column("k"), alias(counted, "c", 9)]}, (read,),
             output=(output[1], Attribute(9, "c", "bigint"))),
        Plan("Deduplicate", {"keys": [column("k")]}, (replace(project(timed, column("k")), output=output[1:2]),), output=output[1:2]),
    ):  # fmt: skip
        with pytest.raises(NotPortable, match=r"'k' is a string collate U\w+.*lower\(x\)"):
            lowered(plan, mode="update")
    unread = Plan("Deduplicate", {"keys": [column("n")]}, (project(timed, column("n")),), output=output[2:])
    assert lowered(unread).columns == ["n"]
