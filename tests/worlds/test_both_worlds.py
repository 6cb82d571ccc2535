"""The same scenario in the simulator and on Spark: the same dataflow, disturbed in the same way, and the answer of plain Python.

A scenario says what happens in the middle of a run; a world knows how to make it happen. Here nobody dies: `test_failures` has those.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, NondeterministicBox
from tests.drawn import one_in
from tests.worlds.dataflows import Fragile, Gated, Personal, Silences, Totals, counted, rows_in_order
from tests.worlds.worlds import World

Named = Callable[[str], str]


@pytest.fixture(scope="module")
def totals() -> Totals:
    return Totals()


def in_the_middle(world: World) -> None:
    world.until(lambda: world.output().num_rows > 300, "results come")


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_an_undisturbed_run(world: World, totals: Totals, gate: Path, named: Named, replicas: int) -> None:
    sink = ef.sinks.memory(named("counted"))
    gate.touch()
    world.start(counted(gate, sink), sink, replicas)
    totals.check(world.finish())
    assert not world.happened("site_lost"), world.told("site_lost")


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_a_plan_that_changes_nothing(world: World, totals: Totals, gate: Path, named: Named, replicas: int) -> None:
    sink = ef.sinks.memory(named("counted"))
    world.start(counted(gate, sink), sink, replicas)
    in_the_middle(world)
    world.change_plan()
    world.until(lambda: world.cast.machine.plan.number > 0, "the plan is there")
    gate.touch()
    totals.check(world.finish())


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_all_links_break_at_once(world: World, totals: Totals, gate: Path, named: Named, replicas: int) -> None:
    sink = ef.sinks.memory(named("counted"))
    world.start(counted(gate, sink), sink, replicas)
    in_the_middle(world)
    world.cut_links()
    before = world.output().num_rows
    world.until(lambda: world.output().num_rows > before + 300, "results come again")
    gate.touch()
    totals.check(world.finish())
    assert not world.happened("site_lost"), world.told("site_lost")


@pytest.mark.conformance
def test_timers_of_processing_time(world: World, totals: Totals, gate: Path, named: Named) -> None:
    sink = ef.sinks.memory(named("silences"))
    flow = ef.Dataflow("silences")
    rows = flow.source(Gated(str(gate)), name="rows").where("value % 3 = 0")
    rows.key_by("part", "key").process(Silences()).to(sink, name="out")
    world.start(flow, sink, 2)
    in_the_middle(world)
    assert all(now >= at for at, now in rows_in_order(world.output(), "at", "now"))
    gate.touch()
    totals.check_sums(world.finish())


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_a_box_that_raises(world: World, gate: Path, named: Named, replicas: int) -> None:
    sink = ef.sinks.memory(named("fragile"))
    flow = ef.Dataflow("fragile")
    flow.source(Gated(str(gate)), name="rows").key_by("key").process(Fragile()).name("glass").to(sink, name="out")
    world.start(flow, sink, replicas)
    with pytest.raises(BoxFailed, match="seven is too many") as raised:
        world.finish()
    assert raised.value.box == "glass" and raised.value.epoch > 1
    assert "in process" in raised.value.user_traceback
    assert all(n < 300 for key, n in rows_in_order(world.output(), "key", "n") if key == 7)


def test_replicas_that_disagree(world: World, gate: Path, named: Named) -> None:
    """Goal: results that depend on who has computed them are found, though every replica for itself always says the same."""
    sink = ef.sinks.memory(named("personal"))
    flow = ef.Dataflow("personal")
    flow.source(Gated(str(gate)), name="rows").key_by("key").process(Personal()).name("vain").to(sink, name="out")
    world.start(flow, sink)
    with pytest.raises(NondeterministicBox, match="put out different rows at sites") as raised:
        world.finish()
    assert raised.value.box == "vain"
    assert not world.happened("site_lost"), world.told("site_lost")
