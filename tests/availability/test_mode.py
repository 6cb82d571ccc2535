"""Modes of availability: what users write, the segments that have them, and their form in plans and journals."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Entry, Logged, from_bytes, to_bytes
from evenflow.availability.mode import MODES, Mode, mode_named, of_segment, replicas_of, shortened
from evenflow.errors import AvailabilityError, QueryError
from evenflow.plan.placement import first_plan
from evenflow.plan.plan import Plan, Settings
from evenflow.query.builder import Dataflow
from evenflow.query.export import to_python
from evenflow.query.planner import layout
from evenflow.stream.ids import PlanNumber
from evenflow.world.spark.net.coding import coder

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def flow() -> tuple[Dataflow, Any]:
    flow = Dataflow("modes")
    return flow, flow.source(ef.sources.memory([], schema=ROWS), name="in")


def test_every_mode_has_a_row() -> None:
    assert [*MODES] == [*Mode]
    assert [replicas_of(mode, 2) for mode in Mode] == [2, 1, 1, 1]
    assert of_segment((), 7) is Mode.PAIRS and of_segment((Mode.PAIRS, Mode.AMNESIA), 1) is Mode.AMNESIA
    assert shortened([Mode.PAIRS, Mode.PAIRS]) == () and shortened([Mode.PAIRS, Mode.AMNESIA]) == (Mode.PAIRS, Mode.AMNESIA)


@pytest.mark.parametrize("given", ["", "pair", "AMNESIA", 3, None, "passiv"])
def test_an_unknown_mode_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(AvailabilityError, match="box 'sum': availability is .*it must be one of 'pairs', 'passive', 'upstream', 'amnesia'"):
        mode_named(given, "box 'sum'")


def test_a_box_is_not_given_a_mode_that_there_is_not() -> None:
    _, stream = flow()
    with pytest.raises(AvailabilityError, match="box 'in': availability is 'passiv'"):
        stream.availability("passiv")
    assert "availability" not in stream.availability(None).box.params


def test_a_misspelt_mode_is_guessed() -> None:
    with pytest.raises(AvailabilityError, match="did you mean 'amnesia'"):
        mode_named("amnezia", "the dataflow")


def test_boxes_say_what_their_segments_do() -> None:
    drawn, stream = flow()
    total = stream.where("v > 0").group_by("k").agg(total="sum(v)").availability("amnesia")
    total.availability("passive").to(ef.sinks.memory(), name="out")
    planned = layout(drawn.network, sites=2)
    assert {planned.segments[number].name: mode for number, mode in planned.modes.items()} == {total.box.name: Mode.PASSIVE}, (
        "what the aggregate leaves to the source's segment does not make that passive"
    )
    total.availability(None)
    assert layout(drawn.network, sites=2).modes == {}


def test_boxes_that_run_together_must_agree() -> None:
    drawn, stream = flow()
    stream.availability("pairs").where("v > 0", name="some").availability("amnesia").to(ef.sinks.memory())
    with pytest.raises(AvailabilityError, match="boxes 'in' and 'some' run together, and ask for availability 'pairs' and 'amnesia'"):
        layout(drawn.network, sites=2)


def test_a_box_that_only_leads_on_has_none() -> None:
    drawn, stream = flow()
    stream.union(stream).availability("amnesia").to(ef.sinks.memory())
    assert "availability" not in drawn.network.box("union").params


def test_a_box_whose_form_leaves_it_to_the_dataflow_asks_for_nothing() -> None:
    drawn, stream = flow()
    stream.to(ef.sinks.discard())
    said = json.loads(drawn.to_json())
    for box in said["boxes"]:
        box["params"]["availability"] = None
    again = Dataflow.from_json(json.dumps(said))
    assert layout(again.network, sites=2).modes == {} and ".availability(" not in to_python(again.network)


def test_a_dataflow_keeps_it_when_it_is_saved() -> None:
    drawn, stream = flow()
    stream.group_by("k").agg(total="sum(v)").availability("amnesia").to(ef.sinks.discard())
    again = Dataflow.from_json(drawn.to_json())
    assert again.network == drawn.network
    wrong = drawn.to_json().replace('"amnesia"', '"amnezia"')
    with pytest.raises(QueryError, match="did you mean 'amnesia'"):
        Dataflow.from_json(wrong)


def test_one_replica_is_spread_over_all_sites() -> None:
    drawn, stream = flow()
    stream.group_by("k").agg(total="sum(v)").availability("amnesia").to(ef.sinks.memory(), name="out")
    planned = layout(drawn.network, sites=4, partitions=8)
    modes = tuple(planned.modes.get(segment.id, Mode.PAIRS) for segment in planned.segments)
    plan = first_plan(planned, 4, 2, modes=modes)
    assert [len(row[0]) for row in plan.placement] == [2, 1, 2]
    assert plan.placement[1] == tuple((site,) for site in (0, 0, 1, 1, 2, 2, 3, 3))
    assert plan.mode(1) is Mode.AMNESIA and plan.mode(0) is Mode.PAIRS
    assert first_plan(planned, 4, 2, modes=(Mode.PAIRS,) * 3).placement == first_plan(planned, 4, 2).placement


MODED = Plan(PlanNumber(3), 7, (((),),), settings=Settings(modes=(Mode.AMNESIA,)))


def test_a_plan_travels_with_its_modes() -> None:
    plans = coder(tuple[Plan, ...])
    assert plans.decode(b"".join(plans.encode((MODED,)))) == (MODED,)
    with pytest.raises(ValueError, match="is not a valid Mode"):
        plans.decode(b"".join(plans.encode((MODED,))).replace(b"amnesia", b"amnezia"))


@pytest.mark.parametrize("newcomers", [(), ((0, ("a",)),)])
@pytest.mark.parametrize("modes", [(), (Mode.AMNESIA, Mode.PAIRS)])
def test_a_journal_says_what_was_chosen(modes: tuple[Mode, ...], newcomers: Any) -> None:
    content = Content(4, modes=modes, newcomers=newcomers)
    entry = Entry(1, 1, "n", Logged({}, (content,)))
    matter = from_bytes(to_bytes(entry), 1).matter
    assert isinstance(matter, Logged) and matter.contents == (content,)
    assert content.same(Content(9, modes=modes, newcomers=newcomers)) and not content.same(Content(4, modes=(Mode.UPSTREAM,)))


def test_what_names_no_modes_is_written_as_before() -> None:
    begun = Begun("r", "d", "", {}, (), Content(1))
    assert b'"content":[1,[],[],0]' in to_bytes(Entry(1, 1, "n", begun))
