"""What a leader of ingress partitions tells the other leaders of the epochs that it has closed (E5)."""

from __future__ import annotations

import pytest

from tests.sim.test_scenarios import Stage


@pytest.mark.parametrize(("processed", "told"), [(11, [12]), (12, [])])
def test_a_leader_says_what_it_has_closed_until_everybody_is_through_with_it(processed: int, told: list[int]) -> None:
    """Found by the swarm: a site that only leads is through with its own part of an epoch at once. Nobody told a leader that came later of
    that epoch, so it never closed its part of it, and everything stood still."""
    stage = Stage("row_windows", sites=4)
    stage.world.run_for(0.02)
    part = stage.world.sites[stage.leader()].part
    part.flush(stage.world.now_us)
    part.ingress.closed = part.finished = 12
    part.credit.processed = processed
    peer = next(site for site in stage.machine.sites if site != part.site)
    part.say_closed(peer)
    marks = [mark for said in part.flush(stage.world.now_us) if said.peer == peer for mark in said.section.marks]
    assert [mark.epoch for mark in marks if mark.stream == 65_535] == told
