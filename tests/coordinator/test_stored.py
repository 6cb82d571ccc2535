"""What sites hear of what sinks have stored (protocol O1)."""

from __future__ import annotations

from dataclasses import replace

from evenflow.coordinator.stored import Stored
from evenflow.plan.plan import Plan
from evenflow.site.events import PlanCommitted, PlanProposed, SinkCommitted
from evenflow.stream.ids import SiteId


def plan(*placement: tuple[int, ...]) -> Plan:
    return Plan(1, 1, ((placement[0],), (placement[1],)))


def test_who_comes_to_host_hears_what_was_stored_when_nobody_did() -> None:
    """Segment 1 is the sink's. Its only host dies, what it has given is stored, and it begins again at another site."""
    stored, before, after = Stored(), plan((0, 2), (1,)), plan((0, 2), (2,))
    assert list(stored.note(before, 1, 7)) == [(1, SinkCommitted(1, 7))]
    assert list(stored.note(before, 1, 9)) == [(1, SinkCommitted(1, 9))]
    assert stored.behind(SiteId(2), PlanCommitted(after)) == [SinkCommitted(1, 9)]
    assert stored.behind(SiteId(0), PlanCommitted(after)) == []
    assert stored.behind(SiteId(2), PlanProposed(replace(after, number=2))) == []
