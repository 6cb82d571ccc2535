"""What a box does with rows on which it raises, as it is drawn: ports, names, JSON, pictures, mistakes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld

TABLE = pa.table({"ts": pa.array([], pa.timestamp("us")), "k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})


def start() -> tuple[ef.Dataflow, ef.Stream]:
    flow = ef.Dataflow("dirty")
    return flow, flow.source(ef.sources.memory(TABLE), name="in")


class Echo(ef.Processor):
    output = "k bigint"

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        return [key]


def all_kinds(stream: ef.Stream) -> dict[str, ef.Stream]:
    return {
        "filter": stream.where("1 / v > 0"),
        "select": stream.select("k", w="1 / v"),
        "flat_map": stream.flat_map(lambda batch: ([], []), "k bigint"),
        "case": stream.case("1 / v > 0", "v > 5")[1],
        "process": stream.key_by("k").process(Echo()),
    }


def test_dead_letters_are_the_input_and_why() -> None:
    _, stream = start()
    for kind, made in all_kinds(stream.with_watermark("ts", "1 second")).items():
        dead = made.dead_letters()
        assert made.box.kind == kind and dead.box is made.box
        assert [*dead.schema.names] == ["ts", "k", "v", "error"] and dead.event_time is None
        assert repr(dead).startswith(f"Stream('{made.box.name}.dead_letters'")


def test_a_column_called_error_stays() -> None:
    _, stream = start()
    dead = stream.select("k", error="1 / v").where("error > 1").dead_letters()
    assert dead.columns == ["k", "error", "_error"]
    assert dead.where("1 / k > 0").dead_letters().columns == ["k", "error", "_error", "__error"]


def test_results_stay_what_they_were() -> None:
    _, stream = start()
    timed = stream.with_watermark("ts", "1 second")
    for made in all_kinds(timed).values():
        before = made.type
        assert made.on_error("skip") is made and made.type == before and len(made.box.schemas) >= 2
        assert made.on_error("fail").box.params.get("on_error") is None and made.type == before


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda s: s.on_error("skip"), r"box 'in' \(source\) has no rows to put aside"),
        (lambda s: s.group_by("k").agg(n="sum(1 / v)").on_error("skip"), r"\(aggregate\) has no rows to put aside.*with_columns before"),
        (lambda s: s.where("v > 1").on_error("retry"), "on_error is 'retry'; it must be 'fail' or 'skip'"),
        (lambda s: s.where("v > 1").dead_letters().on_error("skip"), "not to what it puts aside"),
        (lambda s: s.where("v > 1").dead_letters().name("dead"), "dead letters belong to box 'filter'"),
    ],
)
def test_mistakes(draw: Any, says: str) -> None:
    flow, stream = start()
    boxes = len(flow.network)
    with pytest.raises(QueryError, match=says):
        draw(stream)
    assert not any("on_error" in box.params for box in flow.network.boxes[:boxes])


def test_dead_letters_that_are_read_cannot_be_taken_back() -> None:
    _, stream = start()
    made = stream.where("1 / v > 0")
    made.dead_letters().to(ef.sinks.discard())
    with pytest.raises(QueryError, match="box 'filter': its dead letters are read"):
        made.on_error("fail")


def test_it_survives_json_and_is_told() -> None:
    flow, stream = start()
    made = stream.where("1 / v > 0").name("sane")
    made.to(ef.sinks.discard(), name="out")
    made.dead_letters().to(ef.sinks.discard(), name="dead")
    again = ef.Dataflow.from_json(flow.to_json())
    assert again.to_json() == flow.to_json() and again.to_text() == flow.to_text()
    assert "1 / v > 0, rows on which it raises left out" in flow.to_text() and "<- sane.dead_letters" in flow.to_text()
    assert "failed: " in flow.to_svg()


def test_columns_are_kept_for_dead_letters_that_are_read_and_for_no_others() -> None:
    for read, wanted in ((False, ["k", "v"]), (True, ["ts", "k", "v"])):
        flow, stream = start()
        made = stream.select("k", w="1 / v").on_error("skip")
        made.to(ef.sinks.memory("out"), name="out")
        if read:
            made.dead_letters().to(ef.sinks.discard(), name="dead")
        assert layout(flow.network, sites=1).segments[0].schema.names == wanted


def test_a_computed_result_of_an_aggregate_can_be_guarded() -> None:
    _, stream = start()
    made = stream.group_by("k").agg(mean="sum(v) / sum(k)").on_error("skip")
    assert made.box.kind == "select" and made.dead_letters().columns[-1] == "error"


WORDS = pa.table({"k": [1, 1, 2, 2, 3], "word": ["5", "five", "7", "", "0"]})
PER_KEY = "SELECT k, sum(cast(word AS int)) AS total, count(*) AS n FROM words GROUP BY k HAVING 12 / sum(cast(word AS int)) > 0"


def test_sql_leaves_out_rows_and_groups_on_which_expressions_raise() -> None:
    stream = ef.sql(PER_KEY, {"words": ef.sources.memory(WORDS)}, on_error="skip")
    stream.to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(stream.flow.network, sites=2, partitions=4), sites=2)
    world.run_until_quiet()
    newest = {row["k"]: (row["total"], row["n"]) for row in world.output("out").to_pylist()}
    assert newest == {1: (5, 1), 2: (7, 1)}
    assert sum(site.part.counters.rows_failed for site in world.sites) >= 3


def test_sql_ends_the_run_unless_told_otherwise() -> None:
    assert not any("on_error" in box.params for box in ef.sql(PER_KEY, {"words": ef.sources.memory(WORDS)}).flow.network)
    with pytest.raises(QueryError, match="on_error is 'ignore'; it must be 'fail' or 'skip'"):
        ef.sql(PER_KEY, {"words": ef.sources.memory(WORDS)}, on_error="ignore")  # type: ignore[arg-type]


def test_sql_guards_nothing_that_it_has_not_drawn_and_that_cannot_raise() -> None:
    flow, stream = start()
    flow.source(ef.sources.memory(TABLE), name="other").where("1 / v > 0", name="mine")
    ef.sql("SELECT k, v FROM t WHERE v > 1", {"t": stream}, on_error="skip")
    assert {box.kind for box in flow.network if "on_error" in box.params} == {"filter"}
    assert "on_error" not in flow.network.box("mine").params
