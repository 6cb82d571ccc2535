"""What answers are worth, where their values come from, and what stays whole when rows are left out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QosError, QueryError
from evenflow.plan.layout import Keys, Shed, Windows
from evenflow.query.export import to_python
from evenflow.query.lineage import value_of
from evenflow.query.planner import layout
from evenflow.query.qos import DEFAULT_LOSS, Qos
from evenflow.query.units import Gate, Unit, gates, sheds, unit_of, units, units_text

ORDERS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("item", pa.int64()), ("amount", pa.float64())])
WORTH = ef.qos()


def orders(flow: ef.Dataflow, name: str = "orders") -> Any:
    return flow.source(ef.sources.memory([], schema=ORDERS), name=name).with_watermark("ts", "10 seconds")


# ------------------------------------------------ curves


def test_a_quality_of_service_is_data() -> None:
    found = ef.qos(
        latency=[("250 ms", 1), ("1 s", 0)], loss=[(1, 1), (0.5, 0.9), (0, 0)], value=("amount", [(0, 0.1), (1000, 1)]), weight=2
    )
    assert found.latency is not None and found.latency(625_000) == pytest.approx(0.5) and found.patience_us == 250_000
    assert found.loss(0.75) == pytest.approx(0.95) and found.value is not None and found.value(500) == pytest.approx(0.55)
    assert found.weight == 2 and found.notes() == ()
    assert Qos() == WORTH and WORTH.loss == DEFAULT_LOSS and WORTH.patience_us is None


def test_a_loss_that_is_not_concave_says_what_it_counts_as() -> None:
    (note,) = ef.qos(loss=[(0, 0), (0.5, 0.1), (1, 1)]).notes()
    assert "not concave" in note and "(0, 0), (1, 1)" in note
    (note,) = ef.qos(loss=[(0.5, 0), (1, 1)]).notes()
    assert "(0, 0), (1, 1)" in note
    assert ef.qos(loss=[(0, 0), (0.5, 1)]).notes() == () == ef.qos(loss=[(0.1, 0.5), (0.5, 0.5)]).notes()


@pytest.mark.parametrize(
    ("given", "parameter", "says"),
    [
        ({"latency": [("250 ms", 0), ("1 s", 1)]}, "latency", "rises with age"),
        ({"latency": [("soon", 1), ("1 s", 0)]}, "latency", "not a span of time"),
        ({"latency": [("1 s", 1)]}, "latency", "two points"),
        ({"latency": "1 s"}, "latency", "list of points"),
        ({"loss": [(0, 1), (1, 0)]}, "loss", "falls where more is delivered"),
        ({"loss": [(0, 0), (100, 1)]}, "loss", "shares from 0 to 1"),
        ({"loss": [(0, -1), (1, 1)]}, "loss", "below 0"),
        ({"loss": [(0, 0), (0, 1)]}, "loss", "there twice"),
        ({"loss": [(0, 0), (1, float("nan"))]}, "loss", "finite"),
        ({"loss": [(0, 0), (1, "all")]}, "loss", "no pair of numbers"),
        ({"value": "amount"}, "value", "a column and its points"),
        ({"value": ("amount", [(0, 1)])}, "value", "two points"),
        ({"weight": 0}, "weight", "above 0"),
        ({"weight": float("inf")}, "weight", "above 0"),
        ({"weight": True}, "weight", "above 0"),
        ({"weight": 10**400}, "weight", "above 0"),
        ({"loss": [(0, 0), (1, 10**400)]}, "loss", "too large"),
        ({"value": ("amount", [(0, 1), (1, 10**400)])}, "value", "too large"),
    ],
)
def test_curves_that_cannot_be(given: dict[str, Any], parameter: str, says: str) -> None:
    with pytest.raises(QosError, match=says) as error:
        ef.qos(**given)
    assert error.value.parameter == parameter


# ------------------------------------------------ values


def test_a_value_is_traced_through_boxes_that_pass_it_on() -> None:
    flow = ef.Dataflow("f")
    more = orders(flow).where("item > 3").select("ts", "user", "amount as price")
    both = more.union(orders(flow, "others").select("ts", "user", "amount as price"))
    both.to(ef.sinks.discard(), qos=ef.qos(value=("price", [(0, 0), (9, 1)])), name="out")
    found = value_of(flow.network, flow.network.box("out"))
    assert {found["orders", 0], found["others", 0]} == {"amount"} and found[flow.network.box("out").inputs[0]] == "price"


def test_a_value_passes_joins_and_keys_and_late_rows() -> None:
    flow = ef.Dataflow("f")
    right = orders(flow, "right").select("ts", "user", "item as bought")
    joined = orders(flow, "left").join(right, on="user", condition="l.ts between r.ts and r.ts + interval 5 seconds", suffix="_r")
    joined.to(ef.sinks.discard(), qos=ef.qos(value=("bought", [(0, 0), (9, 1)])), name="out")
    assert value_of(flow.network, flow.network.box("out"))["right", 0] == "item"
    counted = orders(flow, "third").group_by("item").window("1 minute").agg(n="count(*)")
    counted.to(ef.sinks.discard(), qos=ef.qos(value=("item", [(0, 0), (9, 1)])), name="totals")
    assert value_of(flow.network, flow.network.box("totals"))["third", 0] == "item"
    counted.late().to(ef.sinks.discard(), qos=ef.qos(value=("amount", [(0, 0), (9, 1)])), name="late")
    assert value_of(flow.network, flow.network.box("late"))["third", 0] == "amount"


@pytest.mark.parametrize(
    ("draw", "box", "column"),
    [
        (lambda s: s.select("amount * 2 as amount").name("doubled"), "doubled", "amount"),
        (lambda s: s.group_by("user").window("1 minute").agg(amount="sum(amount)").name("totals"), "totals", "amount"),
        (lambda s: s.flat_map(lambda batch: batch, output="amount double", name="made").where("amount > 1"), "made", "amount"),
    ],
)
def test_a_value_that_is_computed_names_box_and_column(draw: Any, box: str, column: str) -> None:
    flow = ef.Dataflow("f")
    stream = draw(orders(flow))
    with pytest.raises(QosError, match=f"box '{box}' .* computes as '{column}'"):
        stream.to(ef.sinks.discard(), qos=ef.qos(value=(column, [(0, 0), (9, 1)])), name="out")
    assert "out" not in flow.network


@pytest.mark.parametrize(("column", "says"), [("user", "no number"), ("price", "there are ts, user, item, amount")])
def test_a_value_is_a_column_of_numbers(column: str, says: str) -> None:
    with pytest.raises(QosError, match=says):
        orders(ef.Dataflow("f")).to(ef.sinks.discard(), qos=ef.qos(value=(column, [(0, 0), (9, 1)])))
    with pytest.raises(QosError, match=r"make it with evenflow\.qos"):
        orders(ef.Dataflow("f")).to(ef.sinks.discard(), qos={"weight": 2})  # type: ignore[arg-type]


def test_it_is_saved_and_read_again_and_said() -> None:
    flow = ef.Dataflow("f")
    given = ef.qos(latency=[("250 ms", 1), ("1 s", 0)], value=("amount", [(0, 0.1), (1000, 1)]), weight=2)
    orders(flow).to(ef.sinks.discard(), qos=given, name="out")
    assert ef.Dataflow.from_json(flow.to_json()).network.box("out").params["qos"] == given
    assert "latency=[('250000 us', 1.0), ('1000000 us', 0.0)]" in to_python(flow.network)
    assert "weight 2, latency 250 ms 1, 1 s 0, value of amount 0 0.1, 1000 1" in flow.to_text()
    plain = ef.Dataflow("f")
    orders(plain).to(ef.sinks.discard(), name="out")
    assert "qos" not in plain.to_json()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight": -1}, "weight"),
        ({"weight": "x"}, "weight"),
        ({"weight": None}, "weight"),
        ({"loss": None}, "no curve"),
        ({"value": None}, "a column and its points"),
        ({"column": None}, "a column and its points"),
        ({"latency": [[0, 0], [9, 1]]}, "rises with age"),
        ({"loss": [[0, 1], [1, 0]]}, "falls"),
        ({"loss": [[0, -7], [1, 1]]}, "below 0"),
        ({"loss": [[0, 0], [5, 1]]}, "from 0 to 1"),
        ({"loss": [[0, "x"], [1, 1]]}, "cannot be made"),
    ],
)
def test_what_is_read_is_judged_as_what_is_drawn(change: dict[str, Any], says: str) -> None:
    flow = ef.Dataflow("f")
    orders(flow).to(ef.sinks.discard(), qos=ef.qos(latency=[("1 s", 1), ("2 s", 0)], value=("amount", [(0, 0), (9, 1)])), name="out")
    data = json.loads(flow.to_json())
    [given] = [box["params"]["qos"]["with"] for box in data["boxes"] if box["name"] == "out"]
    curve = given["value"]
    for key, value in change.items():
        given[key] = json.loads(json.dumps(curve)) | {"with": {"points": value}} if isinstance(value, list) else value
    with pytest.raises(QueryError, match=f"(?s)box 'out'.*{says}"):
        ef.Dataflow.from_json(json.dumps(data))


# ------------------------------------------------ units


def at_source(draw: Any) -> Unit:
    flow = ef.Dataflow("f")
    draw(orders(flow)).to(ef.sinks.discard(), qos=WORTH)
    return unit_of(flow.network, ("orders", 0))


@pytest.mark.parametrize(
    ("draw", "unit", "columns"),
    [
        (lambda s: s.where("item > 3"), "row", ()),
        (lambda s: s.group_by("user").window("1 minute").agg(n="count(*)"), "window", ("user",)),
        (lambda s: s.group_by().window("1 minute").agg(n="count(*)"), "window", ()),
        (lambda s: s.select("ts", "user as who").group_by("who").window("1 minute").agg(n="count(*)"), "window", ("user",)),
        (
            lambda s: s.select("ts", "user", "item % 9 as nine").group_by("user", "nine").window("1 minute").agg(n="count(*)"),
            "window",
            ("user",),
        ),
        (lambda s: s.group_by("user").session("1 minute").agg(n="count(*)"), "key", ("user",)),
        (lambda s: s.group_by("user").agg(n="count(*)"), "none", ()),
        (lambda s: s.group_by("user").window("1 minute", mode="update").agg(n="count(*)"), "none", ()),
        (lambda s: s.drop_duplicates(["user", "item"], within_watermark=True), "key", ("user", "item")),
        (lambda s: s.drop_duplicates(["user", "item"]), "none", ()),
        (
            lambda s: s.drop_duplicates(["user", "item"], within_watermark=True).group_by("user").window("1 minute").agg(n="count(*)"),
            "key",
            ("user",),
        ),
        (lambda s: s.select("ts", "item % 9 as nine").group_by("nine").session("1 minute").agg(n="count(*)"), "none", ()),
    ],
)
def test_the_unit_of_a_stream_follows_from_all_behind_it(draw: Any, unit: str, columns: tuple[str, ...]) -> None:
    found = at_source(draw)
    assert (found.unit, found.columns) == (unit, columns), found


def test_blocks_of_a_window() -> None:
    assert at_source(lambda s: s.group_by("user").window("1 minute").agg(n="count(*)")).block_us == 60_000_000
    sliding = at_source(lambda s: s.group_by("user").window("1 minute", "10 seconds").agg(n="count(*)"))
    assert sliding.block_us == 8 * 60_000_000 and sliding.time == "ts"


def windows(*given: tuple[Any, ...], **more: Any) -> Any:
    """Of one stream, which several boxes cut into windows: all they put out together."""

    def draw(stream: Any) -> Any:
        first, *others = (stream.group_by("user").window(*each, **more).agg(n="count(*)") for each in given)
        for other in others:
            other.to(ef.sinks.discard(), qos=WORTH)
        return first

    return draw


@pytest.mark.parametrize("given", [(("1 hour", "10 minutes"), ("1 hour", "25 minutes")), (("8 hours",), ("1 hour", "25 minutes"))])
def test_windows_of_one_box_beside_those_of_another_are_keys(given: Any) -> None:
    assert at_source(windows(*given)).unit == "key" and at_source(windows(given[0], given[0])).unit == "window"


def test_windows_that_begin_elsewhere_are_others() -> None:
    def both(stream: Any) -> Any:
        windows(("1 hour",))(stream).to(ef.sinks.discard(), qos=WORTH)
        return windows(("1 hour",), start="30 minutes")(stream)

    assert at_source(windows(("1 hour",), start="30 minutes")).start_us == 1_800_000_000
    assert at_source(both).unit == "key"


def test_a_block_has_the_same_windows_as_every_other() -> None:
    found = at_source(windows(("1 hour", "25 minutes")))
    assert found.block_us % found.slide_us == 0 and found.block_us >= 8 * found.size_us


def joined_left(flow: ef.Dataflow, on: Any = "user") -> tuple[Any, Any, Any]:
    left, right = orders(flow, "left"), orders(flow, "right")
    condition = "l.ts between r.ts and r.ts + interval 5 seconds"
    return left, right, left.join(right, on=on, condition=condition, how="left", suffix="_r")


def of_both(flow: ef.Dataflow, one: str = "left", other: str = "right") -> list[tuple[str, tuple[str, ...]]]:
    return [(unit.unit, unit.columns) for name in (one, other) if (unit := unit_of(flow.network, (name, 0)))]


def test_a_join_whose_left_rows_must_all_come_misses_no_right_ones() -> None:
    """Else left rows would come out without the partner that they had: a wrong row, and not a missing one."""
    flow = ef.Dataflow("f")
    left, _, joined = joined_left(flow)
    joined.name("pairs").to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow) == [("key", ("user",))] * 2
    left.to(ef.sinks.discard(), name="all")
    assert of_both(flow) == [("none", ())] * 2
    assert "the inputs of 'pairs'" in unit_of(flow.network, ("right", 0)).because
    assert "'all' is an output without qos" in unit_of(flow.network, ("right", 0)).because


def test_what_must_come_far_above_a_join_is_seen() -> None:
    flow = ef.Dataflow("f")
    left, right = orders(flow, "left"), orders(flow, "right")
    condition = "l.ts between r.ts and r.ts + interval 5 seconds"
    few = left.where("item > 3").select("ts", "user as buyer")
    few.join(right, condition=f"l.buyer = r.user and {condition}", how="left", suffix="_r").to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow) == [("key", ("user",))] * 2
    left.to(ef.sinks.discard())
    assert of_both(flow) == [("none", ())] * 2


def test_a_key_that_one_side_alone_can_have_is_no_unit() -> None:
    """Sessions by a column of the right side: of the left one no part is whole then, so none of the right one is left out."""
    flow = ef.Dataflow("f")
    left, right = orders(flow, "left"), orders(flow, "right").select("ts", "user as buyer", "item as bought")
    condition = "l.user = r.buyer and l.item = r.bought and l.ts between r.ts and r.ts + interval 5 seconds"
    left.join(right, condition=condition, how="full", suffix="_r").group_by("buyer").session("1 minute").agg(n="count(*)").to(
        ef.sinks.discard(), qos=WORTH
    )
    assert of_both(flow) == [("none", ())] * 2


def test_both_sides_of_a_join_are_hashed_by_the_same() -> None:
    flow = ef.Dataflow("f")
    left, _, joined = joined_left(flow, ["user", "item"])
    joined.to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow) == [("key", ("user", "item"))] * 2
    left.group_by("user").session("1 minute").agg(n="count(*)").to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow) == [("key", ("user",))] * 2


def test_windows_behind_a_union_are_whole_in_all_that_is_put_together() -> None:
    flow = ef.Dataflow("f")
    one, other = orders(flow, "one"), orders(flow, "other")
    one.union(other).group_by("user").window("1 minute").agg(n="count(*)").to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow, "one", "other") == [("window", ("user",))] * 2
    third = orders(flow, "third")
    other.union(third).to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow, "one", "other") == [("window", ("user",))] * 2 and unit_of(flow.network, ("third", 0)).unit == "row"
    other.group_by("user").session("1 minute").agg(n="count(*)").to(ef.sinks.discard(), qos=WORTH)
    assert of_both(flow, "one", "other") == [("key", ("user",))] * 2
    other.to(ef.sinks.discard())
    assert of_both(flow, "one", "other") == [("none", ())] * 2


def test_a_join_has_its_keys_whole_on_both_sides() -> None:
    flow = ef.Dataflow("f")
    right = orders(flow, "right").select("ts", "user as buyer", "item")
    joined = orders(flow, "left").join(right, condition="l.user = r.buyer and l.ts between r.ts and r.ts + interval 5 seconds", suffix="_r")
    joined.to(ef.sinks.discard(), qos=WORTH)
    assert [(unit_of(flow.network, (side, 0)).unit, unit_of(flow.network, (side, 0)).columns) for side in ("left", "right")] == [
        ("key", ("user",)), ("key", ("user",)),
    ]  # fmt: skip


def test_readers_have_units_of_their_own_and_an_output_without_qos_is_protected() -> None:
    flow = ef.Dataflow("f")
    stream = orders(flow)
    stream.where("item > 3", name="few").to(ef.sinks.discard(), qos=WORTH, name="rows")
    stream.group_by("user").window("1 minute").agg(n="count(*)").name("counts").to(ef.sinks.discard(), qos=WORTH, name="windows")
    watermark = flow.network.box("few").inputs[0]
    found = units(flow.network)
    assert found[watermark, "few"].unit == "row" and found[watermark, "counts"].unit == "window"
    assert unit_of(flow.network, ("orders", 0)).unit == "window"
    stream.to(ef.sinks.discard(), name="all")
    protected = unit_of(flow.network, ("orders", 0))
    assert protected.unit == "none" and "'all' is an output without qos" in protected.because
    assert units(flow.network)[watermark, "few"].unit == "row"


def test_what_may_be_left_out_is_said_before_anything_runs() -> None:
    flow = ef.Dataflow("f")
    stream = orders(flow)
    stream.where("item > 3", name="few").to(ef.sinks.discard(), qos=ef.qos(loss=[(0, 0), (0.5, 0.1), (1, 1)]), name="rows")
    stream.group_by("user").agg(n="count(*)").name("counts").to(ef.sinks.discard(), qos=WORTH, name="totals")
    text = units_text(flow.network)
    assert "of 'orders': nothing ('counts' has running totals)" in text and "before 'few': rows" in text and "not concave" in text
    stream.to(ef.sinks.discard(), name="all")
    assert "protected, so that nothing they need is left out: 'all'" in units_text(flow.network)
    plain = ef.Dataflow("f")
    orders(plain).to(ef.sinks.discard())
    assert units_text(plain.network) == ""


def test_the_plan_says_what_of_a_qos_nobody_goes_by() -> None:
    """Goal: who gives a value or a weight knows before the overload that it chooses nothing. The plan said which rows may go, and nothing
    of that. Method: outputs without a latency, windows whose rows differ in worth, and two outputs that do not agree on it."""

    def said(*worths: ef.Qos, window: bool = False) -> str:
        flow = ef.Dataflow("f")
        rows = flow.source(ef.sources.generator(100, 4, rows=100), name="in").with_watermark("ts", "1 second")
        made = rows.group_by("key").window("1 second").agg(n="count(*)") if window else rows
        for number, worth in enumerate(worths):
            made.to(ef.sinks.discard(), name=f"out {number}", qos=worth)
        return units_text(flow.network)

    latency: Any = [("250 ms", 1), ("1 s", 0)]
    plain, dear = ef.qos(latency=latency), ef.qos(latency=latency, value=("key", [(0, 0), (4, 1)]))
    assert "of 'in' nothing is left out for being late: none of its outputs has a latency" in said(ef.qos(weight=2))
    assert "of 'in' windows go alike, whatever their value" in said(dear, window=True)
    assert "of 'in' rows go alike, whatever their value: its outputs do not agree" in said(plain, dear)
    assert not any("of 'in' " in text for text in (said(plain), said(dear), said(dear, dear), said(plain, window=True)))


def shedding_of(value: object = None, *, protect: bool = False, window: bool = False, latency: bool = True) -> object:
    """What may be left out of source `in` of a small dataflow."""
    flow = ef.Dataflow("sheds")
    rows = flow.source(ef.sources.generator(10), name="in").where("value >= 0")
    age = {"latency": [("250 ms", 1), ("1 s", 0)]} if latency else {}
    given = {} if value is None else {"value": value}
    rows.select("key", "price").to(ef.sinks.memory(), name="first", qos=ef.qos(**age, **given))
    rows.select("price").to(ef.sinks.memory(), name="second", qos=None if protect else ef.qos(latency=[("2 s", 1), ("3 s", 0)], **given))
    if window:
        counted = rows.with_watermark("ts", "1 second").group_by("key").window("1 second").agg(n="count(*)")
        counted.to(ef.sinks.memory(), name="third", qos=ef.qos())
    return layout(flow.network, sites=2).sheds.get("in")


def test_changes_are_never_left_out_of_a_source() -> None:
    """Goal: a table stays one. Method: a source of changes straight into an output that could do without rows."""
    flow = ef.Dataflow("changes")
    changes = ef.sources.memory([], schema=pa.schema([("k", pa.int64()), ("_change", pa.string())]))
    flow.source(changes, name="in").to(ef.sinks.memory(), name="out", qos=ef.qos(latency=[("250 ms", 1), ("1 s", 0)]))
    assert sheds(flow.network) == {} and unit_of(flow.network, ("in", 0)).because == "'out' is given a changelog"


def test_what_an_engine_may_leave_out_of_a_source() -> None:
    """D6: where all outputs can do without any row, and some answer is worth less when it is older."""
    shed = shedding_of()
    assert shed == Shed(("first", "second"), 250_000)
    assert shedding_of(protect=True) is None and shedding_of(window=True) is None
    assert shedding_of(latency=False) == Shed(("first", "second"), 2_000_000)
    valued = shedding_of(("price", [(0, 0.1), (1000, 1)]))
    assert isinstance(valued, Shed) and valued.column == "price" and len(valued.classes) == 8


# ------------------------------------------------ windows that stay whole

IN_TIME = ef.qos(latency=[("250 ms", 1), ("1 s", 0)])


def counts(stream: Any, *keys: str) -> None:
    stream.group_by(*keys).window("1 minute").agg(n="count(*)").name("counts").to(ef.sinks.discard(), qos=IN_TIME, name="out")


def test_windows_are_left_out_whole_and_held_back_where_they_are_made() -> None:
    """Goal: where rows enter and at the gate the same is hashed. Method: columns have other names between them."""
    flow = ef.Dataflow("f")
    stream = orders(flow).where("item > 3").select("ts", "user as who", "item % 7 as kind")
    counts(stream, "kind", "who")
    [(name, shed)] = sheds(flow.network).items()
    assert name == "orders" and shed.whole == Windows(("user",), "ts", 60_000_000, 60_000_000, 0, 60_000_000)
    [(box, gate)] = gates(flow.network, {name: shed}).items()
    assert box == "counts" and gate.columns == ("who",) and gate.whole == shed.whole
    assert "nothing yet" not in units_text(flow.network)


def filtered_first(flow: ef.Dataflow) -> None:
    counts(
        flow.source(ef.sources.memory([], schema=ORDERS), name="in").where("item > 3", name="few").with_watermark("ts", "1 second"), "user"
    )


def of_two(flow: ef.Dataflow) -> None:
    counts(orders(flow, "one").union(orders(flow, "other"), name="both"), "user")


def by_session(stream: Any, gap: str = "1 minute") -> None:
    stream.group_by("user").session(gap).agg(n="count(*)").name("visits").to(ef.sinks.discard(), qos=IN_TIME, name="out")


def test_keys_are_left_out_whole_before_sessions_and_held_back_behind_them() -> None:
    """Goal: a source before sessions is shed by their key. Method: the key has another name there; windows beside them have a gate, too."""
    flow = ef.Dataflow("f")
    stream = orders(flow).select("ts", "user as who", "item")
    made = stream.group_by("who", "item").session("1 minute").agg(n="count(*)").name("visits")
    made.to(ef.sinks.discard(), qos=IN_TIME, name="out")
    stream.group_by("who").window("10 seconds").agg(n="count(*)").name("counts").to(ef.sinks.discard(), qos=IN_TIME, name="other")
    [(name, shed)] = sheds(flow.network).items()
    assert name == "orders" and shed.whole == Keys(("user",), "ts") and shed.outputs == ("out", "other")
    found = gates(flow.network, {name: shed})
    assert found["visits"] == Gate("orders", ("who",), shed.whole, 60_000_000) and found["counts"] == Gate("orders", ("who",), shed.whole)
    assert "nothing yet" not in units_text(flow.network) and "keys user" in units_text(flow.network)


def filtered_before_sessions(flow: ef.Dataflow) -> None:
    source = flow.source(ef.sources.memory([], schema=ORDERS), name="in")
    by_session(source.where("item > 3", name="few").with_watermark("ts", "1 second"))


def sessions_of_two(flow: ef.Dataflow) -> None:
    by_session(orders(flow, "one").union(orders(flow, "other"), name="both"))


def with_own_gaps(flow: ef.Dataflow) -> None:
    by_session(orders(flow), "CASE WHEN item > 3 THEN INTERVAL 1 MINUTE ELSE INTERVAL 2 MINUTES END")


def behind_windows(flow: ef.Dataflow) -> None:
    by_session(orders(flow).group_by("user").window("1 minute").agg(n="count(*)").name("minutes"))


def first_of_a_key(flow: ef.Dataflow) -> None:
    orders(flow).drop_duplicates("user", within_watermark=True, name="first").to(ef.sinks.discard(), qos=IN_TIME, name="out")


def by_two_times(flow: ef.Dataflow) -> None:
    source = flow.source(ef.sources.memory([], schema=pa.schema([*ORDERS, ("sent", ORDERS.field("ts").type)])), name="in")
    by_session(source.with_watermark("ts", "1 second"))
    made = source.with_watermark("sent", "1 second").name("later").group_by("user").session("1 minute").agg(n="count(*)")
    made.to(ef.sinks.discard(), qos=IN_TIME, name="other")


def test_both_sides_of_an_inner_join_are_shed_by_its_key_and_nothing_is_held_back() -> None:
    flow = ef.Dataflow("f")
    left, right = orders(flow, "left"), orders(flow, "right").select("ts", "user as who", "item as other")
    made = left.join(right, condition="l.user = r.who and l.ts between r.ts and r.ts + interval 5 seconds", suffix="_r")
    made.to(ef.sinks.discard(), qos=IN_TIME, name="out")
    found = sheds(flow.network)
    assert {name: shed.whole for name, shed in found.items()} == {"left": Keys(("user",), "ts"), "right": Keys(("user",), "ts")}
    assert gates(flow.network, found) == {} and "nothing yet" not in units_text(flow.network)


def with_left_rows_alone(flow: ef.Dataflow) -> None:
    near = "l.user = r.user and l.ts between r.ts and r.ts + interval 5 seconds"
    made = orders(flow, "left").join(orders(flow, "right"), condition=near, how="left", suffix="_r", name="both")
    made.to(ef.sinks.discard(), qos=IN_TIME, name="out")


@pytest.mark.parametrize(
    ("draw", "box"),
    [
        (with_left_rows_alone, "behind 'both' nobody can tell"),
        (filtered_first, "'few'"),
        (of_two, "'both'"),
        (filtered_before_sessions, "'few'"),
        (sessions_of_two, "'both'"),
        (with_own_gaps, "behind 'visits' nobody can tell"),
        (behind_windows, "'visits' is behind 'minutes'"),
        (first_of_a_key, "behind 'first' nobody can tell"),
        (by_two_times, "'later' goes by"),
    ],
)
def test_a_box_that_cannot_take_a_unit_is_named(draw: Any, box: str) -> None:
    flow = ef.Dataflow("f")
    draw(flow)
    assert sheds(flow.network) == {}
    [*lines] = [line for line in units_text(flow.network).splitlines() if "but nothing yet of" in line]
    assert lines and all(box in line for line in lines)
