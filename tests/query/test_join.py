"""Joins as they are written: what is a key, a bound in time or a condition; what comes out; what is refused and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import evenflow as ef
from evenflow.errors import EvenflowError, ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.plan.layout import Keyed, Port
from evenflow.query.join import How, Join, split_condition
from evenflow.query.network import Network
from evenflow.query.planner import layout
from evenflow.query.text import layout_text
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

ORDERS = pa.schema([("ts", pa.timestamp("us")), ("id", pa.int64()), ("price", pa.float64()), ("who", pa.string())])
PAYMENTS = pa.schema([("paid", pa.timestamp("us")), ("id", pa.int64()), ("amount", pa.float64()), ("who", pa.string())])
NEAR = "r.paid between l.ts and l.ts + interval 1 hour"
HOUR = 3_600_000_000
NAMES = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["one", "two"]})


@pytest.fixture
def flow() -> ef.Dataflow:
    return ef.Dataflow("shop")


@pytest.fixture
def orders(flow: ef.Dataflow) -> ef.Stream:
    return flow.source(ef.sources.memory([], schema=ORDERS), name="orders").with_watermark("ts", "10 seconds")


@pytest.fixture
def payments(flow: ef.Dataflow) -> ef.Stream:
    return flow.source(ef.sources.memory([], schema=PAYMENTS), name="payments").drop("who").with_watermark("paid", "1 minute")


def made(stream: ef.Stream) -> Join:
    found: Join = stream.box.params["join"]
    return found


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("l.ts between r.paid - interval 10 seconds and r.paid", 0, 10_000_000),
        ("r.paid >= l.ts and r.paid <= l.ts + interval '5' minutes", 0, 300_000_000),
        ("r.paid > l.ts and l.ts + interval 1 second > r.paid", 1, 999_999),
        ("ts = paid", 0, 0),
        ("r.paid - l.ts <= interval 2 seconds and l.ts - r.paid <= interval 1 second", -1_000_000, 2_000_000),
        ("r.paid >= l.ts + (- interval '5' second) and - interval 2 seconds < l.ts - r.paid", -5_000_000, 1_999_999),
        (
            "interval 0 seconds >= (r.paid - l.ts) - interval 1 second and l.ts - (r.paid + interval 3 seconds) <= interval 0 seconds",
            -3_000_000,
            1_000_000,
        ),
        ("(l.ts - interval 1 second) <= (interval 2 seconds + r.paid)", -3_000_000, None),
        ("l.ts >= r.paid and (l.ts <= r.paid + interval 1 second and l.ts <= r.paid + interval 3 seconds)", -1_000_000, 0),
    ],
)
def test_comparisons_of_event_times_become_bounds(text: str, low: int | None, high: int | None) -> None:
    found = split_condition(f"l.id = r.id and {text}", ORDERS, PAYMENTS, "ts", "paid")
    assert (found.keys[0], found.low_us, found.high_us, found.rest) == (("id", "id"), low, high, None)


@pytest.mark.parametrize(
    "text",
    [
        "(l.id = r.id) AND (r.paid >= l.ts) AND (r.paid <= (l.ts + interval 1 minute))",
        "((((l.id) = (r.id)) AND (((r.paid >= l.ts)))) AND (r.paid <= (l.ts + (interval 1 minute))))",
        "((l.id = r.id) and (r.paid between (l.ts) and (l.ts + interval 1 minute)))",
    ],
)
def test_parentheses_hide_neither_keys_nor_bounds(text: str) -> None:
    found = split_condition(text, ORDERS, PAYMENTS, "ts", "paid")
    assert (found.keys, found.low_us, found.high_us, found.rest) == ((("id", "id"),), 0, 60_000_000, None)


def test_what_is_neither_key_nor_bound_stays_a_condition() -> None:
    found = split_condition("price > amount and l.id = r.id and (l.who = 'x' or r.who = 'y')", ORDERS, PAYMENTS, "ts", "paid")
    assert found.keys == (("id", "id"),) and (found.low_us, found.high_us) == (None, None)
    assert found.rest is not None and "price > amount" in found.rest and " OR " in found.rest
    twice = split_condition("l.id = r.id and r.paid - l.ts <= r.paid - l.ts", ORDERS, PAYMENTS, "ts", "paid")
    assert (twice.low_us, twice.high_us) == (None, None) and twice.rest is not None
    timeless = split_condition("l.id = r.id and l.ts <= r.paid", ORDERS, PAYMENTS, None, None)
    assert timeless.low_us is None and timeless.rest is not None
    months = split_condition("l.id = r.id and l.ts <= r.paid + interval 1 month", ORDERS, PAYMENTS, "ts", "paid")
    assert (months.low_us, months.high_us) == (None, None) and months.rest is not None


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("l.id = r.id and x.price > 1", ExpressionError, "called l .left. and r"),
        ("id = 3", ExpressionError, "both sides of the join have a column 'id'; write l.id or r.id"),
        ("l.id = r.id and l.cost > 1", UnknownColumn, "'cost'"),
        ("l.id = r.id and nowhere > 1", UnknownColumn, "'nowhere'"),
        ("l.id = r.id and l.price + r.amount", TypeMismatch, "not boolean"),
        ("l.id = ", ExpressionError, "l.id ="),
        ("l.id = r.id and l.ts <= r.paid + interval 1 fortnight", ExpressionError, "unit"),
    ],
)
def test_a_wrong_condition_says_what_to_write(orders: ef.Stream, payments: ef.Stream, text: str, error: type, said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        orders.join(payments, condition=text, within="1 hour")
    assert "'join'" in str(caught.value)


# ---------------------------------------------------------------- what comes out


def test_keys_of_on_come_out_once_and_first(orders: ef.Stream, payments: ef.Stream) -> None:
    joined = orders.join(payments, "id", within=timedelta(hours=1))
    assert joined.columns == ["id", "ts", "price", "who", "paid", "amount"]
    assert (made(joined).low_us, made(joined).high_us) == (-HOUR, HOUR)
    assert repr(joined).endswith("event time ts)")
    assert orders.join(payments, condition=f"l.id = r.id and {NEAR}", suffix="_r").columns == [*ORDERS.names, "paid", "id_r", "amount"]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_names_of_on_are_found_whatever_the_case_of_their_letters(orders: ef.Stream, payments: ef.Stream, how: str) -> None:
    """The column is called as on the side that it is taken from, as in Spark (tests/oracle/test_dataframes.py)."""
    theirs = payments.with_column_renamed("id", "ID")
    joined = orders.join(theirs, "Id", how, within="1 hour")
    rest = ["ts", "price", "who", "paid", "amount"]
    wanted = ["id", "ts", "price", "who"] if how in ("semi", "anti") else ["ID" if how == "right" else "id", *rest]
    assert (joined.columns, made(joined).left_keys, made(joined).right_keys) == (wanted, ("id",), ("ID",))
    table = NAMES.rename_columns(["ID", "Name"])
    if how not in ("right", "full"):
        assert orders.join(table, ["iD"], how).columns[:2] == ["id", "ts"]
    sums = [stream.group_by("id").agg(n="count(*)", mode="changelog") for stream in (orders, theirs)]
    assert sums[0].join(sums[1], "iD", how, suffix="_r").columns[0] == ("ID" if how == "right" else "id")
    with pytest.raises(EvenflowError, match="ambiguous"):
        orders.join(payments.select("paid", "amount", "id as iD", "id as Id"), "ID", how, within="1 hour")
    with pytest.raises(UnknownColumn, match="'idd'"):
        orders.join(payments, "idd", how, within="1 hour")


@pytest.mark.parametrize(
    ("how", "time", "delay_us"),
    [
        ("inner", "ts", HOUR),
        ("left_outer", "ts", HOUR),
        ("rightouter", "paid", 0),
        ("full", "ts", HOUR),
        ("leftsemi", "ts", HOUR),
        ("anti", "ts", HOUR),
    ],
)
def test_event_time_goes_on_behind_a_join_as_far_as_it_may_be_back(
    orders: ef.Stream, payments: ef.Stream, how: str, time: str, delay_us: int
) -> None:
    """A left row is kept for up to an hour; a right row for no time at all, since its partner must be earlier."""
    joined = orders.join(payments, "id", how, NEAR)
    assert (joined.event_time, joined.box.watermark_delay_us) == (time, 60_000_000 + delay_us)
    joined.group_by("id").window("1 hour", column=time).count().to(ef.sinks.discard())
    planned = layout(joined.flow.network, sites=2, partitions=8)
    (behind,) = [arc for arc in planned.arcs if planned.segments[arc.producer].name == "join"]
    assert behind.lag_us == delay_us


def test_windows_on_both_sides_are_joined_by_their_ends(orders: ef.Stream, payments: ef.Stream) -> None:
    left = orders.group_by("id").window("1 hour").agg(orders="count(*)")
    right = payments.group_by("id").window("1 hour").agg(payments="count(*)")
    joined = left.join(right, ["id", "window_start", "window_end"], "full")
    assert (made(joined).low_us, made(joined).high_us, joined.event_time) == (0, 0, "window_end")


def test_a_join_is_a_segment_with_two_inputs(orders: ef.Stream, payments: ef.Stream) -> None:
    joined = orders.join(payments, condition=f"l.who = cast(r.id as string) and l.id = r.id and {NEAR}", suffix="_r")
    joined.late().to(ef.sinks.memory("late"), name="late")
    joined.late("right").to(ef.sinks.memory("late_right"), name="late_right")
    joined.to(ef.sinks.memory("out"), name="out")
    planned = layout(joined.flow.network, sites=2, partitions=8)
    segment = next(segment for segment in planned.segments if segment.name == "join")
    routes = [planned.arcs[number].route for number in segment.inputs]
    assert routes == [Keyed(("id",)), Keyed(("id",))] and segment.right == segment.inputs[1:]
    assert (segment.steps[0].source, segment.steps[0].other) == (Port(-1), Port(-2))
    assert "(right) from segment" in layout_text(planned) and "left input, right input" in layout_text(planned)
    schemas = {planned.segments[arc.consumer].name: arc.schema.names for arc in planned.arcs if arc.producer == segment.id}
    assert (schemas["late"], schemas["late_right"]) == (ORDERS.names, ["paid", "id", "amount"])


def test_a_union_may_be_a_side(orders: ef.Stream, payments: ef.Stream, flow: ef.Dataflow) -> None:
    more = flow.source(ef.sources.memory([], schema=ORDERS), name="more").with_watermark("ts", "0 seconds")
    payments.join(orders.union(more), "id", "right", "l.paid >= r.ts and l.paid <= r.ts + interval 1 hour").to(ef.sinks.discard())
    segment = next(s for s in layout(flow.network, sites=2, partitions=8).segments if s.name == "join")
    assert len(segment.inputs) == 3 and segment.right == segment.inputs[1:]


def test_a_joined_dataflow_survives_json(orders: ef.Stream, payments: ef.Stream) -> None:
    joined = orders.join(payments, "id", "left", f"{NEAR} and price > amount").join(NAMES, "id", "left")
    joined.to(ef.sinks.memory("out"), name="out")
    again = ef.Dataflow.from_json(joined.flow.to_json())
    assert again.to_text() == joined.flow.to_text() and isinstance(again.network, Network)
    assert again.network.box("join").params["join"] == made(orders.flow.stream("join"))
    assert again.network.box("join_2").params["table"].equals(NAMES)
    assert "join" in joined.flow.to_svg()


# ---------------------------------------------------------------- tables


def test_a_table_is_joined_where_the_rows_are(orders: ef.Stream) -> None:
    joined = orders.join(NAMES, "id", "left")
    assert joined.columns == ["id", "ts", "price", "who", "name"] and joined.event_time == "ts"
    joined.group_by("name").window("1 hour").count().to(ef.sinks.discard())
    planned = layout(joined.flow.network, sites=2, partitions=8)
    assert [step.kind for step in planned.segments[0].steps] == ["table_join", "combine", "watermark"]


class Frame:
    """A DataFrame of another library, as far as a join looks at it. The types are those that Spark gives."""

    isStreaming = False

    def toArrow(self) -> pa.Table:
        return pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "at": pa.array([0], pa.timestamp("us", "Europe/Berlin")),
                "s": pa.array(["x"], pa.large_string()),
            }
        )


def test_a_dataframe_is_read_as_a_table(orders: ef.Stream) -> None:
    joined = orders.join(Frame(), "id")
    assert [str(t) for t in joined.schema.types[4:]] == ["timestamp[us, tz=UTC]", "string"]


def test_a_dataframe_with_a_collated_column_is_refused(orders: ef.Stream) -> None:
    class Collated(Frame):
        schema = T.StructType([T.StructField("id", T.LongType()), T.StructField("s", T.StringType("UTF8_LCASE"))])

    with pytest.raises(TypeMismatch, match="column 's' is a string collate UTF8_LCASE"):
        orders.join(Collated(), "id")


# ---------------------------------------------------------------- what is refused


class Streaming(Frame):
    isStreaming = True


Draw = Callable[[ef.Stream, ef.Stream], Any]


@pytest.mark.parametrize(
    ("draw", "error", "said"),
    [
        (lambda o, p: o.join(p, "id"), QueryError, "no time bounds say when a row can be forgotten.*within='10 seconds'.*unbounded=True"),
        (lambda o, p: o.join(p, "id", "left", unbounded=True), QueryError, "left join: no time bounds say how long to wait"),
        (lambda o, p: o.join(p, "id", condition="l.ts <= r.paid"), QueryError, "would grow for ever"),
        (lambda o, p: o.join(p, condition=NEAR), QueryError, "joins by no key"),
        (lambda o, p: o.join(p, "id", within="1 hour", condition="l.ts > r.paid + interval 2 hours"), QueryError, "no two times"),
        (lambda o, p: o.join(p, "id", "cross", within="1 hour"), QueryError, "how is 'cross'"),
        (lambda o, p: o.join(p, "number", within="1 hour"), UnknownColumn, "no column 'number'"),
        (lambda o, p: o.join(p, condition=f"l.who = r.id and {NEAR}"), TypeMismatch, "l.who is string and r.id is int64; cast one"),
        (lambda o, p: o.join(p, condition=f"l.price = r.id and {NEAR}"), TypeMismatch, "l.price is double and r.id is int64"),
        (lambda o, p: o.join(p, condition=f"l.id = r.id and {NEAR}"), QueryError, "both sides have a column 'id'.*suffix"),
        (lambda o, p: o.join(p, [3], within="1 hour"), QueryError, "names of columns that both sides have, not 3"),
        (lambda o, p: o.join(p, "id", condition=lambda b: b, within="1 hour"), QueryError, "is not a string"),
        (
            lambda o, p: o.join(p, "id", condition="l.ts > r.paid - interval 9999999 weeks"),
            QueryError,
            "70,000 years",
        ),
        (lambda o, p: o.join(NAMES, "id", "right"), QueryError, "use how='inner', 'left', 'semi' or 'anti'"),
        (lambda o, p: o.join(NAMES, "id", within="1 hour"), QueryError, "a table has no event time"),
        (lambda o, p: o.join(NAMES, "name"), UnknownColumn, "no column 'name'"),
        (lambda o, p: o.join({"id": [1]}, "id"), QueryError, "cannot join with dict; give a stream, a batch DataFrame"),
        (lambda o, p: o.join(Streaming(), "id"), QueryError, "from_spark"),
        (lambda o, p: o.join(pa.table({"id": pa.array([1], pa.time32("s"))}), "id"), TypeMismatch, "time32"),
        (lambda o, p: o.join(pa.table({"id": pa.array([[1]])}), "id"), TypeMismatch, "cannot be a key|is list"),
    ],
)
def test_what_is_refused(orders: ef.Stream, payments: ef.Stream, draw: Draw, error: type[EvenflowError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        draw(orders, payments)
    assert "'join'" in str(caught.value)
    assert "join" not in orders.flow.network


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_without_a_watermark_is_refused_where_state_would_grow(flow: ef.Dataflow, payments: ef.Stream, how: How) -> None:
    timeless = flow.source(ef.sources.memory([], schema=ORDERS), name="timeless")
    with pytest.raises(QueryError, match=r"left stream has no watermark.*\.with_watermark"):
        timeless.join(payments, "id", how)
    with pytest.raises(QueryError, match="declare .with_watermark"):
        timeless.join(payments, "id", how, within="1 hour")
    assert timeless.join(payments, "id", unbounded=True).event_time is None


def test_a_full_join_by_name_needs_one_type(flow: ef.Dataflow, orders: ef.Stream) -> None:
    other = flow.source(ef.sources.memory([], schema=pa.schema([("at", pa.timestamp("us")), ("id", pa.int32())])), name="narrow")
    narrow = other.with_watermark("at", "1 second")
    assert orders.join(narrow, "id", within="1 hour").schema.field("id").type == pa.int64()
    with pytest.raises(TypeMismatch, match="int64 and r.id is int32"):
        orders.join(narrow, "id", "full", within="1 hour")


def test_a_large_table_is_refused(orders: ef.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.query.kinds.table_join.TABLE_BYTES", 10)
    with pytest.raises(QueryError, match="sent to every site"):
        orders.join(NAMES, "id")


# ---------------------------------------------------------------- running


def test_no_row_behind_a_join_is_late_that_was_not_before_it(flow: ef.Dataflow) -> None:
    """Left rows come out an hour of event time after their own, when the watermark has long passed their window."""
    hours = [hour * HOUR for hour in range(8)]
    left = pa.record_batch([pa.array(hours, pa.timestamp("us")), list(range(8)), [1.0] * 8, ["a"] * 8], schema=ORDERS)
    right = pa.record_batch(
        [pa.array([t + HOUR for t in hours], pa.timestamp("us")), list(range(8)), [1.0] * 8, ["b"] * 8], schema=PAYMENTS
    )
    orders = flow.source(ef.sources.memory([left]), name="orders").with_watermark("ts", "0 seconds")
    payments = flow.source(ef.sources.memory([right]), name="payments").drop("who").with_watermark("paid", "0 seconds")
    joined = orders.join(payments.where("id % 2 = 0"), "id", "left", NEAR)
    counts = joined.group_by("who").window("10 minutes").agg(n="count(*)", met="count(paid)")
    counts.to(ef.sinks.memory("out"), name="out")
    counts.late().to(ef.sinks.memory("late"), name="late")
    world = SimWorld(
        layout(flow.network, sites=2, partitions=4), sites=2, seed=1, options=FlowOptions(epoch_rows=1, linger_ms=1), read_rows=1
    )
    world.run_until_quiet()
    assert sorted(world.output("out").column("met").to_pylist()) == [0] * 4 + [1] * 4
    assert world.output("late").num_rows == 0
