"""Frames that go along with a capture are kept again where its state begins again (P1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.exchange.retention import Asked, Retention
from evenflow.exchange.section import Resume
from evenflow.plan.placement import first_membership
from evenflow.site.ground import Setup
from evenflow.site.machine import SiteMachine
from evenflow.site.own_frames import packed, restore, taken
from evenflow.site.view import View
from evenflow.stream.ids import FeedNumber, PlanNumber
from tests.site.cluster import SOURCE, Cluster, totals

LAYOUT = totals(partitions=8, sites=2)
CONSUMERS = (0, 3, 4)


def fed(retained: Retention, producers: tuple[int, ...]) -> list[tuple[int, int, list[str]]]:
    """(epoch, plan, rows) of what the consumers get who ask for all of it."""
    found = []
    for kept in retained.since(1):
        asked = Asked(1, Resume(retained.stream, 0, FeedNumber(1), 1, producers, CONSUMERS), 1)
        rows = [str(row) for bundle in asked.bundles(kept, retained.stream) for row in bundle.rows.to_pylist()]
        found.append((kept.epoch, int(kept.plan), sorted(rows)))
    return found


@pytest.mark.parametrize(("number", "effective"), [(0, 1), (7, 50)])
def test_frames_are_kept_again_also_where_their_plan_is_not_known(number: int, effective: int) -> None:
    """Method: what has it begins with the plan of epoch 1, or has come later and knows plan 7 and no earlier one."""
    cluster = Cluster(LAYOUT, 2)
    site = cluster.membership.leaders[SOURCE][0].site
    (made,) = [cohort for cohort in cluster.parts[site].cohorts.values() if cohort.segment.id == SOURCE]
    (stream,) = made.segment.outputs
    made.retained[stream].hold(0)
    for number_ in range(5):
        cluster.rows(*((key, number_) for key in range(20)))
        cluster.talk()
    said, rows = packed([taken(made, stream, 0, CONSUMERS)])
    before = fed(made.retained[stream], made.partitions)
    assert sum(len(each) for *_, each in before) > 0
    plan = replace(cluster.plan, number=PlanNumber(number), effective=effective)
    membership = first_membership(LAYOUT, plan, range(2))
    part = SiteMachine(Setup(LAYOUT, cluster.plan, membership, site, cluster.parts[site].options))
    (again,) = [cohort for cohort in part.cohorts.values() if cohort.segment.id == SOURCE]
    again.retained[stream].hold(0)
    restore(again, View(LAYOUT, plan, membership, site), said, dict(enumerate(rows)))
    assert fed(again.retained[stream], again.partitions) == before
