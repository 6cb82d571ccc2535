"""Functions of the user's in expressions, aggregates and SQL: what they give, how they fail, what is refused."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

import evenflow as ef
from evenflow.errors import BoxFailed, ExpressionError, QueryError, TypeMismatch
from evenflow.operator.catalogue import build
from evenflow.query.expression import Compiled
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.driver.program import pack
from tests.oracle.running import CUTS, Cut, run

SECOND = 1_000_000
TABLE = pa.table({
    "k": pa.array([i % 3 for i in range(40)], pa.int64()),
    "x": pa.array([None if i % 7 == 3 else i for i in range(40)], pa.int64()),
    "s": pa.array([f"w{i % 5}" for i in range(40)]),
    "ts": pa.array([i * SECOND for i in range(40)], pa.timestamp("us")),
})  # fmt: skip
ROWS = TABLE.to_pylist()
ONE_EPOCH = Cut(2, 8, 1_000, 2)


@ef.udf("bigint")
def bucket(x: int | None) -> int | None:
    return None if x is None else x // 10


@ef.pandas_udf("double")
def half(x: pd.Series) -> pd.Series:
    return x / 2


@ef.pandas_udf("string")
def label(pairs: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    for s, k in pairs:
        yield s + k.astype(str)


@ef.arrow_udf("bigint")
def twice(x: pa.Array) -> pa.Array:
    return pc.multiply(x, 2)


@ef.pandas_udf("double")
def median(x: pd.Series) -> float:
    return float(x.median())


@ef.pandas_udf("double")
def weighted(x: pd.Series, w: pd.Series) -> float:
    return float((x * w).sum())


@ef.arrow_udf("bigint")
def longest(x: pa.Array) -> pa.Scalar:
    return pc.max(x)


class Spread(ef.Aggregator):
    output = "bigint"

    def zero(self) -> Any:
        return ()

    def update(self, state: Any, x: Any) -> Any:
        if x is not None and x < 0:
            raise ArithmeticError(f"{x} is negative")
        return state if x is None else (x, x) if not state else (min(state[0], x), max(state[1], x))

    def merge(self, one: Any, other: Any) -> Any:
        return one if not other else other if not one else (min(one[0], other[0]), max(one[1], other[1]))

    def finish(self, state: Any) -> Any:
        return state[1] - state[0] if state else None


class Chain(ef.Aggregator):
    """Without merge: rows come in order."""

    output = "string"
    state = "string"

    def zero(self) -> Any:
        return ""

    def update(self, state: Any, s: Any, x: Any) -> Any:
        return f"{state}{s[1:]}{'' if x is None else '+'}"


class Minus(ef.Aggregator):
    output, state = "bigint", "bigint"

    def zero(self) -> int:
        return -1

    def update(self, state: int, x: Any) -> int:
        return state

    def merge(self, one: int, other: int) -> int:
        return one

    def finish(self, state: int) -> int:
        return state


FUNCTIONS: dict[str, Any] = {
    "bucket": bucket, "half": half, "label": label, "twice": twice, "median": median, "weighted": weighted, "longest": longest,
    "spread": Spread(), "chain": Chain(),
}  # fmt: skip


def rows_of(draw: Callable[[ef.Stream], ef.Stream], table: pa.Table = TABLE, cut: Cut = CUTS[1]) -> list[dict[str, Any]]:
    def build(source: Any) -> ef.Dataflow:
        flow = ef.Dataflow("mine")
        draw(flow.source(source, name="in").with_watermark("ts", "100 seconds")).to(ef.sinks.memory("out"), name="out")
        return flow

    rows: list[dict[str, Any]] = run(build, table, cut).to_pylist()
    return sorted(rows, key=str)


def newest(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {row["k"]: row for row in rows}


def by_key(rows: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["k"], []).append(row)
    return groups


def spread_of(rows: list[dict[str, Any]]) -> int:
    known = [row["x"] for row in rows if row["x"] is not None]
    return max(known) - min(known)


def median_of(rows: list[dict[str, Any]]) -> float:
    return float(pd.Series([row["x"] for row in rows], dtype="float64").median())


# ---------------------------------------------------------------- one value per row


@pytest.mark.parametrize("cut", CUTS)
def test_functions_of_rows(cut: Cut) -> None:
    wanted = [
        {
            "b": None if x is None else x // 10, "h": None if x is None else (x + 1) / 2, "l": f"{row['s']}{row['k']}",
            "t": None if x is None else 2 * (x // 10) + 1,
        }
        for row in ROWS if (x := row["x"]) is None or x // 10 < 3
    ]  # fmt: skip

    def draw(stream: ef.Stream) -> ef.Stream:
        few = stream.where(ef.expr("coalesce(bucket(x), 0) < 3", bucket=bucket))
        return few.select(b=bucket("x"), h=half("x + 1"), l=label("s", "k"), t=ef.expr("twice(bucket(x)) + 1", twice=twice, bucket=bucket))

    assert rows_of(draw, cut=cut) == sorted(wanted, key=str)


def test_calls_nest_and_columns_of_other_names_may_be_read() -> None:
    def draw(stream: ef.Stream) -> ef.Stream:
        return stream.with_columns({"a b": "x"}).select(n=half(twice(bucket("`a b`"))))

    assert sorted(str(row["n"]) for row in rows_of(draw)) == sorted(
        str(None if row["x"] is None else float(row["x"] // 10)) for row in ROWS
    )


class Given:
    """As PySpark decorates a function: `pyspark.sql.udf.UserDefinedFunction`."""

    def __init__(self, func: Any, type: str, evalType: int, deterministic: bool = True) -> None:
        self.func, self.evalType, self.deterministic = func, evalType, deterministic
        self.returnType: Any = type

    def __call__(self, *args: Any) -> Any:
        raise AssertionError("that makes a column of Spark's")


def test_functions_that_pyspark_has_decorated() -> None:
    from pyspark.sql import types

    made = ef.udf(Given(lambda x: x, types.ArrayType(types.LongType()), 100), name="mine")
    assert made.type == pa.list_(pa.int64()) and made.takes == "rows" and not made.aggregate
    spark = {"plain": Given(lambda x: -1 if x is None else x, "bigint", 101), "mid": Given(lambda x: x.median(), "double", 202)}
    rows = rows_of(
        lambda s: ef.sql("SELECT k, mid(x) AS m, max(plain(x)) AS p FROM t GROUP BY k", {"t": s}, functions=spark), cut=ONE_EPOCH
    )
    assert newest(rows)[2]["m"] == median_of(by_key(ROWS)[2]) and newest(rows)[2]["p"] == 35
    with pytest.raises(QueryError, match="'f' is not deterministic"):
        ef.expr("f(x)", f=Given(len, "bigint", 100, deterministic=False))
    with pytest.raises(QueryError, match=r"'f' \(evalType 201\) is none of columns"):
        ef.expr("f(x)", f=Given(len, "bigint", 201))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ef.udf(len), "udf needs the type of what the function returns"),
        (lambda: ef.udf(len, "struct<a:geometry>"), r"returns 'struct<a:geometry>': unknown type 'geometry'"),
        (lambda: ef.pandas_udf(lambda x: x, "double"), "its annotations say what it is; write -> Series"),
        (lambda: ef.expr("f(x)", f=len), "does not say what it returns; decorate it"),
        (lambda: ef.expr("f(x)", f=Spread), r"is the class Spread; give an instance, Spread\(\)"),
        (lambda: bucket(3), "its arguments are columns and expressions, as text"),
        (lambda: bucket(ef.expr("bucket(x)", bucket=half)), "two functions are called 'bucket'"),
    ],
)
def test_what_is_no_function(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        make()


@ef.udf("bigint")
def wordy(x: Any) -> Any:
    return "many" if x == 5 else x


@ef.udf("bigint")
def fraction(x: Any) -> Any:
    return x / 2 if x else x


@ef.pandas_udf("bigint")
def short(x: pd.Series) -> pd.Series:
    return x.iloc[1:]


@ef.pandas_udf("bigint")
def words(x: pd.Series) -> pd.Series:
    return x.map(lambda _: "word")


@ef.pandas_udf("bigint")
def one_value(x: pd.Series) -> pd.Series:
    return 3  # type: ignore[return-value]


@ef.pandas_udf("bigint")
def silent(x: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from ()


@ef.udf("bigint")
def broken(x: Any) -> Any:
    if x == 5:
        raise LookupError("five is not known")
    return x


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (wordy, "the function 'wordy' returned 'many', and is declared to return bigint"),
        (fraction, "'fraction' returned 0.5, and is declared to return bigint"),
        (short, r"'short' returned \d+ values for \d+ rows: return exactly one value per row"),
        (words, "'words' returned .*, and is declared to return bigint"),
        (one_value, "'one_value' returned int, not a column: return one value per row"),
        (silent, "'silent' yielded 0 columns for one"),
        (broken, "(?s)five is not known.*in broken|in broken.*five is not known"),
    ],
)
def test_a_function_that_fails_ends_the_run_and_says_where(function: Any, says: str) -> None:
    with pytest.raises((BoxFailed, TypeMismatch, LookupError)) as caught:
        rows_of(lambda s: s.select(y=function("x")), cut=CUTS[0])
    import re
    import traceback

    assert re.search(says, "".join(traceback.format_exception(caught.value)))


def test_poison_rows_of_a_function() -> None:
    def draw(stream: ef.Stream) -> ef.Stream:
        made = stream.select("k", y=broken("x"), z=wordy("x"))
        dead = made.dead_letters().select("k", y="x", z="CAST(length(error) AS BIGINT)")
        return made.union(dead)

    rows = rows_of(draw)
    (poison,) = [row for row in rows if row["z"] != row["y"]]
    assert len(rows) == 40 and poison == {"k": 2, "y": 5, "z": len("LookupError: five is not known")}


def test_an_expression_keeps_its_functions() -> None:
    _, stream = start()
    ((_, compiled),) = stream.select(y=bucket("x")).box.params["columns"]
    assert isinstance(compiled, Compiled) and compiled.columns == ("x",) and "bucket" in compiled.functions
    dumps: Any = cloudpickle.dumps
    again = pickle.loads(dumps(compiled))
    assert again(pa.RecordBatch.from_pydict({"x": pa.array([25, None], pa.int64())})).to_pylist() == [2, None]


def start() -> tuple[ef.Dataflow, ef.Stream]:
    flow = ef.Dataflow("mine")
    return flow, flow.source(ef.sources.memory(TABLE.slice(0, 0)), name="in").with_watermark("ts", "1 second")


def test_what_is_not_read_is_not_taken_in() -> None:
    flow, stream = start()
    stream.where(ef.expr("bucket(x) > 1", bucket=bucket)).select(y=half("x")).to(ef.sinks.memory("out"))
    planned = layout(flow.network, sites=2)
    assert planned.segments[0].schema.names == ["x", "ts"]
    assert "bucket(x) > 1" in flow.to_text() and "y = half(x)" in flow.to_text()


def test_a_drawing_with_functions_can_be_saved() -> None:
    flow, stream = start()
    stream.with_columns(y=bucket("x")).group_by("k").window("5 seconds").agg(m=median("y"), s=Spread()("x")).to(ef.sinks.memory("out"))
    text = flow.to_json()
    with pytest.raises(QueryError, match="allow_pickle=True"):
        ef.Dataflow.from_json(text)
    assert ef.Dataflow.from_json(text, allow_pickle=True).to_text() == flow.to_text()


# ---------------------------------------------------------------- one value per group

AGGREGATES: Mapping[str, Any] = {
    "m": median("x"), "w": weighted("x", "k + 1"), "l": longest("x"), "s": Spread()("x"),
    "both": ef.expr("median(x) * 2 + spread(x) + count(*)", median=median, spread=Spread()),
}  # fmt: skip


def wanted_of(k: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    known = [row["x"] for row in rows if row["x"] is not None]
    made = {"m": median_of(rows), "w": float(sum(known) * (k + 1)), "l": max(known), "s": spread_of(rows)}
    return {"k": k, **made, "both": made["m"] * 2 + made["s"] + len(rows)}


@pytest.mark.parametrize("cut", CUTS)
def test_windows(cut: Cut) -> None:
    found = rows_of(lambda s: s.group_by("k").window("20 seconds").agg(**AGGREGATES).drop("window_start", "window_end"), cut=cut)
    halves = [[row for row in ROWS if row["ts"].second < 20], [row for row in ROWS if row["ts"].second >= 20]]
    assert found == sorted((wanted_of(k, mine) for part in halves for k, mine in by_key(part).items()), key=str)


def test_a_function_of_the_users_is_meant_where_spark_has_one_of_that_name() -> None:
    mine = Minus()
    assert {row["m"] for row in rows_of(lambda s: s.group_by("k").agg(m=ef.expr("median(x)", median=mine)), cut=ONE_EPOCH)} == {-1}
    found = rows_of(lambda s: ef.sql("SELECT k, median(x) AS m FROM t GROUP BY k", {"t": s}, functions={"median": mine}), cut=ONE_EPOCH)
    assert {row["m"] for row in found} == {-1}


def test_totals_so_far() -> None:
    found = rows_of(lambda s: s.group_by("k").agg(**AGGREGATES), cut=ONE_EPOCH)
    assert newest(found) == {k: wanted_of(k, rows) for k, rows in by_key(ROWS).items()}


def test_an_aggregator_alone_is_combined_before_the_exchange() -> None:
    flow, stream = start()
    stream.group_by("k").window("20 seconds").agg(s=Spread()("x"), n="count(*)").to(ef.sinks.memory("out"))
    steps = [step.kind for segment in layout(flow.network, sites=2).segments for step in segment.steps]
    assert "combine" in steps
    found = rows_of(lambda s: s.group_by("k").window("100 seconds").agg(s=Spread()("x"), n="count(*)").select("k", "s", "n"))
    assert found == [{"k": k, "s": spread_of(rows), "n": len(rows)} for k, rows in sorted(by_key(ROWS).items())]


def test_sessions_unite_states() -> None:
    table = TABLE.filter(pc.not_equal(TABLE["s"], "w4"))
    found = rows_of(lambda s: s.group_by().session("1 second").agg(s=Spread()("x"), m=median("x")).select("s", "m"), table)
    parts = [ROWS[i : i + 4] for i in range(0, 40, 5)]
    assert found == sorted(({"s": spread_of(part), "m": median_of(part)} for part in parts), key=str)
    with pytest.raises(QueryError, match=r"sessions grow together, and chain has no merge"):
        start()[1].group_by().session("1 second").agg(c=Chain()("s", "x"))


def test_windows_that_count_rows() -> None:
    found = rows_of(lambda s: s.group_by("k").rows(3).agg(s=Spread()("x"), m=median("x"), c=Chain()("s", "x")).drop("ts"))
    wanted = []
    for k, rows in by_key(ROWS).items():
        for at in range(len(rows)):
            last = rows[max(0, at - 2) : at + 1]
            chain = "".join(f"{row['s'][1:]}{'' if row['x'] is None else '+'}" for row in last)
            wanted.append({"k": k, "s": spread_of(last), "m": median_of(last), "c": chain})
    assert found == sorted(wanted, key=str)


@pytest.mark.parametrize("cut", CUTS[1:])
def test_without_merge_rows_come_in_order(cut: Cut) -> None:
    found = rows_of(lambda s: s.group_by("k").window("100 seconds").agg(c=Chain()("s", "x")).select("k", "c"), cut=cut)
    chains = {k: "".join(f"{r['s'][1:]}{'' if r['x'] is None else '+'}" for r in rows) for k, rows in by_key(ROWS).items()}
    assert found == [{"k": k, "c": chain} for k, chain in sorted(chains.items())]


@ef.pandas_udf("double")
def refuses(x: pd.Series) -> float:
    if (x == 4).any():
        raise LookupError("a four")
    return float(x.sum())


@ef.pandas_udf("double")
def many(x: pd.Series) -> float:
    return x  # type: ignore[return-value]


def test_groups_on_which_a_function_raises() -> None:
    def draw(stream: ef.Stream) -> ef.Stream:
        made = stream.group_by("k").window("100 seconds").agg(y=refuses("x"))
        dead = made.dead_letters()
        assert dead.columns == ["k", "window_start", "window_end", "_y_0", "error"]
        return made.select("k", "y").union(dead.select("k", y="CAST(length(error) AS DOUBLE)"))

    found = newest(rows_of(draw))
    assert found[1]["y"] == len("LookupError: a four") and found[2]["y"] == sum(row["x"] or 0 for row in by_key(ROWS)[2])
    with pytest.raises((BoxFailed, LookupError), match="a four"):
        rows_of(lambda s: s.group_by("k").agg(y=refuses("x")), cut=CUTS[0])
    with pytest.raises((BoxFailed, TypeMismatch), match="'many' returned Series, not one value"):
        rows_of(lambda s: s.group_by("k").agg(y=many("x")), cut=CUTS[0])


def test_rows_on_which_an_aggregator_raises() -> None:
    negative = TABLE.set_column(1, "x", pc.if_else(pc.equal(TABLE["x"], 6), -6, TABLE["x"]))

    def draw(stream: ef.Stream) -> ef.Stream:
        made = stream.group_by("k").window("100 seconds").agg(y=Spread()("x"), n="count(*)").on_error("skip")
        dead = stream.flow.stream("aggregate.in").dead_letters()
        assert dead.columns == ["k", "x", "s", "ts", "error"]
        return made.select("k", "y", "n").union(dead.select("k", y="x", n="CAST(-1 AS BIGINT)"))

    found = rows_of(draw, negative)
    without = [row for row in ROWS if row["x"] != 6]
    assert {"k": 0, "y": -6, "n": -1} in found
    assert [row for row in found if row["n"] > 0] == [
        {"k": k, "y": spread_of(rows), "n": len(rows)} for k, rows in sorted(by_key(without).items())
    ]
    with pytest.raises((BoxFailed, ArithmeticError), match="-6 is negative"):
        rows_of(lambda s: s.group_by("k").agg(y=Spread()("x")), negative, CUTS[0])


def test_the_policy_can_be_taken_back() -> None:
    _, stream = start()
    made = stream.group_by("k").agg(y=Spread()("x")).on_error("skip").on_error("fail")
    box = stream.flow.network.box("aggregate.in")
    assert "on_error" not in box.params and not any(getattr(column, "trial", False) for _, column in box.params["columns"])
    assert "on_error" not in made.box.params


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda s: s.select(y=median("x")), "median is an aggregate; use it in agg"),
        (lambda s: s.group_by("k").agg(y=half("x")), "is not an aggregate"),
        (lambda s: s.group_by("k").agg(y=median()), "median needs an argument"),
        (lambda s: s.group_by("k").agg(y=ef.expr("median(*)", median=median)), r"takes no DISTINCT and no \*"),
        (lambda s: s.group_by("k").agg(y=ef.expr("median(sum(x))", median=median)), "an aggregate cannot be inside an aggregate"),
        (lambda s: s.select(y="bucket(x)"), "there is no function 'bucket'.*functions=.'bucket': f.*ef.expr"),
        (lambda s: s.select(y=bucket("nosuch")), "box 'select': there is no column 'nosuch'"),
        (
            lambda s: s.group_by("k").agg(n="count(*)", mode="changelog").group_by().agg(y=median("n"), mode="changelog"),
            "an aggregator of your own cannot take rows back",
        ),
        (lambda s: s.join(s, "k", condition=bucket("l.x")), "."),
    ],
)
def test_mistakes(draw: Callable[[ef.Stream], Any], says: str) -> None:
    _, stream = start()
    with pytest.raises(QueryError, match=says):
        draw(stream)


class Undeclared(ef.Aggregator):
    pass


class Shaped(ef.Aggregator):
    output = "struct<a:geometry>"


@pytest.mark.parametrize(("made", "says"), [(Undeclared(), "does not say its output"), (Shaped(), "output = 'struct<a:geometry>'")])
def test_aggregators_that_declare_nothing(made: ef.Aggregator, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        start()[1].group_by("k").agg(y=made("x"))


def test_replicas_agree() -> None:
    flow = ef.Dataflow("twice")
    stream = flow.source(ef.sources.memory(TABLE), name="in").with_watermark("ts", "1 second")
    made = stream.group_by("k").window("10 seconds").agg(s=Spread()("x"), n="count(*)")
    made.select("k", "s", b=bucket("s")).to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=3, partitions=8), sites=3, replicas=2, options=FlowOptions(epoch_rows=4, linger_ms=1))
    world.run_until_quiet()
    found = world.output("out").to_pylist()
    assert len(found) == 12 and all(row["b"] == row["s"] // 10 for row in found)


def test_the_users_modules_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors do not have the file that a function is in: what is packed for them can be read without it."""
    (tmp_path / "shop.py").write_text(
        "import evenflow as ef\n\n\ndef net(x):\n    return None if x is None else tax(x)\n\n\ndef tax(x):\n    return x * 2\n\n\n"
        "class Last(ef.Aggregator):\n    output = 'bigint'\n    state = 'bigint'\n\n    def zero(self):\n        return 0\n\n"
        "    def update(self, state, x):\n        return tax(x or 0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = importlib.import_module("shop")
    flow, stream = start()
    rows = stream.with_columns(y=ef.udf(shop.net, "bigint")("x"))
    rows.group_by("k").window("5 seconds").agg(z=shop.Last()("y")).to(ef.sinks.memory("out"))
    packed = pack(layout(flow.network, sites=2), FlowOptions())
    monkeypatch.delitem(sys.modules, "shop")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    read, _ = pickle.loads(packed)
    steps = {step.box: step for segment in read.segments for step in segment.steps}
    operator = build(steps["select"])
    assert operator is not None and steps["aggregate"].params["calls"][0].made.update(0, 4) == 8


# ---------------------------------------------------------------- SQL


def test_sql_calls_them_by_name() -> None:
    text = """
        WITH few AS (SELECT k, x, Bucket(x) AS b, half(x) AS h, ts FROM t WHERE coalesce(bucket(x), 0) < 3)
        SELECT k, b, median(h) AS m, spread(x) + count(*) AS s, window.end AS e FROM few
        GROUP BY k, b, window(ts, '100 seconds') HAVING b IS NULL OR median(h) > 2"""
    found = rows_of(lambda s: ef.sql(text, {"t": s}, functions=FUNCTIONS).drop("e"))
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in ROWS:
        if row["x"] is None or row["x"] < 30:
            groups.setdefault((row["k"], None if row["x"] is None else row["x"] // 10), []).append(row)
    wanted = []
    for (k, b), rows in groups.items():
        m = None if b is None else median_of(rows) / 2
        if m is None or m > 2:
            wanted.append({"k": k, "b": b, "m": m, "s": None if b is None else spread_of(rows) + len(rows)})
    assert found == sorted(wanted, key=str)


def test_sql_leaves_poison_rows_out() -> None:
    functions = {"broken": broken, "spread": Spread()}
    text = "SELECT k, spread(broken(x) - 3) AS y, count(*) AS n FROM t GROUP BY k, window(ts, '100 seconds')"
    found = rows_of(lambda s: ef.sql(text, {"t": s}, functions=functions, on_error="skip"))
    # 5 is not known, and 0 to 2 are negative then.
    good = [row for row in ROWS if row["x"] is None or (row["x"] > 2 and row["x"] != 5)]
    assert found == [{"k": k, "y": spread_of(rows), "n": len(rows)} for k, rows in sorted(by_key(good).items())]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT nosuch(x) AS y FROM t", "there is no function 'nosuch'.*functions=.'nosuch': f"),
        ("SELECT median(x) FILTER (WHERE x > 1) AS y FROM t GROUP BY k", "FILTER is not available with median"),
        ("SELECT median(DISTINCT x) AS y FROM t GROUP BY k", "DISTINCT"),
        ("SELECT a.x FROM t a JOIN t b ON a.k = b.k AND bucket(a.x) > bucket(b.x) AND a.ts = b.ts", "the function 'bucket' is yours"),
    ],
)
def test_what_sql_refuses(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=f"(?is){says}"):
        ef.sql(text, {"t": start()[1]}, functions=FUNCTIONS)


def test_names_are_known_inside_only() -> None:
    _, stream = start()
    ef.sql("SELECT bucket(x) AS y FROM t", {"t": stream}, functions=FUNCTIONS)
    with pytest.raises(ExpressionError, match="there is no function 'bucket'"):
        stream.select(y="bucket(x)")


def test_a_function_goes_before_one_of_the_same_name() -> None:
    functions = {"upper": ef.udf(lambda s: f"<{s}>", "string")}
    found = rows_of(lambda s: ef.sql("SELECT DISTINCT upper(s) AS u FROM t", {"t": s}, functions=functions))
    assert found == [{"u": f"<w{i}>"} for i in range(5)]
