"""A swarm of seeded schedules: each seed draws a dataflow, a topology, delays, uneven processors, lost connections and plan changes.

EVENFLOW_SEEDS=N runs N fresh seeds more. A failing seed is in the test's name and replays exactly.
"""

from __future__ import annotations

import os
import time
from random import Random

import pytest

from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.model import CostModel, LinkModel, SinkModel
from evenflow.world.sim.world import SimWorld
from tests.sim import checkers
from tests.sim.flows import CASES, Case

pytestmark = pytest.mark.swarm

FIXED = 120
FRESH = int(os.environ.get("EVENFLOW_SEEDS", "20"))
FIRST_FRESH = int(time.time()) % 1_000_000 * 1_000


def draw_world(seed: int) -> tuple[Case, SimWorld]:
    """Everything about the run follows from the seed."""
    random = Random(seed)
    case = CASES[random.choice(sorted(CASES))](random, random.choice([50, 500, 3_000]))
    sites = random.randint(1, 6)
    planned = layout(case.flow.network, sites=sites, partitions=random.choice([1, 3, 16, 64]))
    world = SimWorld(
        planned,
        sites=sites,
        seed=seed,
        options=FlowOptions(
            linger_ms=random.choice([0.5, 5.0]),
            pipeline=random.choice([1, 2, 4]),
            window_epochs=random.choice([4, 64]),
            epoch_rows=random.choice([7, 300, 131_072]),
            heartbeat_ms=random.choice([20.0, 1000.0]),
            memory_bytes=random.choice([1, 2**28]),
        ),
        link=LinkModel((10, random.choice([50, 3_000])), random.choice([0, 0, 5_000, 50_000]), random.choice([500, 20_000])),
        cost=CostModel(slow=tuple(random.choice([1.0, 1.0, 10.0]) for _ in range(sites))),
        sink=SinkModel((20, random.choice([100, 20_000]))),
        read_rows=random.choice([50, 4096]),
        checkers=checkers.ALL,
    )
    for _ in range(random.choice([0, 0, 1, 4])):
        world.clock.after(random.randint(0, 100_000), world.change_plan)
    return case, world


@pytest.mark.parametrize("seed", [*range(FIXED), *range(FIRST_FRESH, FIRST_FRESH + FRESH)])
def test_any_schedule_gives_the_answer(seed: int) -> None:
    case, world = draw_world(seed)
    world.run_until_quiet()
    assert case.result(world.output("out")) == case.answer


def test_a_seed_replays_exactly() -> None:
    first, second = draw_world(3)[1], draw_world(3)[1]
    first.run_until_quiet()
    second.run_until_quiet()
    assert first.clock.now_us == second.clock.now_us
    assert first.messages == second.messages
    assert first.output("out").equals(second.output("out"))
    assert first.latencies_us == second.latencies_us


def test_the_swarm_reaches_the_rules_it_is_for() -> None:
    worlds = [draw_world(seed)[1] for seed in range(40)]
    for world in worlds:
        world.run_until_quiet()
    for rule in ("A2", "A3", "E2", "E5", "E6", "O1", "V2"):
        assert sum(world.fired(rule) for world in worlds) > 0, rule
    assert sum(inbox.duplicates for w in worlds for s in w.sites for inbox in s.part.inboxes.values()) > 0
