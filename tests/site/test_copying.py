"""The life of a copy: a stage for whatever is the case, and an order in which the stages come (C1-C4)."""

from __future__ import annotations

import pytest

from evenflow.site.arriving import LEVEL_EPOCHS
from evenflow.site.copying import LIFE, Stage, may_follow, stage_of
from evenflow.site.events import StateArrived, TimerFired
from evenflow.site.facts import CopyFailed, CopyLive
from tests.site.cluster import OUT, Cluster, expected, totals
from tests.site.test_housing import copying, live, through

FACTS = ("planned", "housed", "come", "installed", "reported", "joining")
LINE = (
    # planned housed come installed reported joining
    ((0, 0, 0, 0, 0, 0), Stage.TO_COME),
    ((0, 0, 1, 0, 0, 1), Stage.TO_COME),
    ((1, 0, 0, 0, 0, 1), Stage.TO_COME),
    ((1, 1, 0, 0, 0, 1), Stage.AWAITED),
    ((1, 1, 1, 0, 0, 1), Stage.INSTALLING),
    ((1, 1, 0, 1, 0, 1), Stage.BEHIND),
    ((1, 1, 0, 1, 1, 1), Stage.LEVEL),
    ((1, 1, 0, 1, 1, 0), Stage.LIVE),
    ((1, 0, 0, 0, 0, 0), Stage.OVER),
)
"""What is the case in the life of a copy, one thing after the other."""


def test_what_is_the_case_is_a_stage_and_they_come_in_order() -> None:
    found = [stage_of(**{name: bool(fact) for name, fact in zip(FACTS, case, strict=True)}) for case, _ in LINE]
    assert found == [stage for _, stage in LINE]
    assert list(dict.fromkeys(found)) == list(Stage)


def test_a_dropped_copy_is_over_whatever_of_it_still_lies_here() -> None:
    for come in (False, True):
        assert stage_of(planned=True, housed=False, come=come, installed=False, reported=False, joining=False) is Stage.OVER


def test_no_stage_follows_a_later_one_but_that_a_corrupt_state_is_awaited_again() -> None:
    back = [(before, after) for before in LIFE for after in LIFE if LIFE.index(after) < LIFE.index(before) and may_follow(before, after)]
    assert back == [(Stage.INSTALLING, Stage.AWAITED)]


@pytest.mark.parametrize(("come", "installed", "why"), [(True, False, "cannot be level"), (True, True, "once")])
def test_facts_that_contradict_each_other_are_found(come: bool, installed: bool, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        stage_of(planned=True, housed=True, come=come, installed=installed, reported=True, joining=True)


def test_a_copy_lives_through_all_stages_in_order() -> None:
    """A state in pieces of one byte, at a site that has nothing else; the coordinator's word comes between two epochs."""
    cluster, copy, rows = copying(piece_bytes=1)
    arriving, seen = cluster.parts[2].arriving, [Stage.TO_COME]

    def look() -> None:
        if arriving.stage(copy.number) is not seen[-1]:
            seen.append(arriving.stage(copy.number))

    assert arriving.stage(copy.number + 1) is Stage.TO_COME
    look()
    cluster.arrive(cluster.ships.pop())
    while not cluster.told(CopyLive):
        look()
        cluster.give(2, TimerFired("install"))
        if seen[-1] is Stage.INSTALLING and arriving.stage(copy.number) is not Stage.INSTALLING:
            look()
            cluster.talk()
    look()
    cluster.declare(joining=())
    look()
    through(cluster, rows, 2)
    assert seen == [stage for stage in LIFE if stage not in (Stage.BEHIND, Stage.LIVE)], (
        "level at once, and joined at once: nobody was ahead"
    )
    assert arriving.stages() == {}


def test_a_state_that_is_faster_than_its_plan_is_kept_and_one_that_was_corrupt_is_awaited_again() -> None:
    cluster, copy, _ = copying()
    arriving, state = cluster.parts[2].arriving, cluster.ships[0].capture.to_bytes()
    cluster.give(2, StateArrived(copy.number + 1, state))
    assert arriving.stages() == {copy.number: Stage.AWAITED, copy.number + 1: Stage.TO_COME}
    cluster.give(2, StateArrived(copy.number, state[:-9]))
    assert [failed.number for failed in cluster.told(CopyFailed)] == [copy.number]
    assert arriving.stage(copy.number) is Stage.AWAITED
    cluster.give(2, StateArrived(copy.number, state))
    cluster.talk()
    live(cluster)
    assert arriving.stage(copy.number) is Stage.OVER
    cluster.give(2, StateArrived(copy.number, state))
    assert arriving.stages() == {copy.number + 1: Stage.TO_COME}, "what comes late is nobody's"


def test_a_copy_is_level_when_it_is_as_far_as_all_others_whoever_they_are() -> None:
    """Goal: no replica counts that would hold the others back (C3). Method: a sink's partition comes to a site to whom nobody has anything
    to say, since it produces and leads nothing. Its works take long, and the others go on."""
    cluster = Cluster(totals(), 4, spares=1)
    target, source = 4, cluster.plan.placement[OUT][0][0]
    rows = [(k, k) for k in range(5)]
    cluster.rows(*rows)
    cluster.talk()
    copy = cluster.copy(OUT, (0,), source, target)
    through(cluster, rows, 9)
    others = min(part.processed for site, part in cluster.parts.items() if site != target)
    assert cluster.parts[target].acknowledging.credit.processed == others > copy.number
    cluster.paused.add((target, OUT))
    cluster.arrive(cluster.ships.pop())
    cohort = cluster.parts[target].cohorts[OUT, copy.number]
    while cohort.hosted.done + LEVEL_EPOCHS < others:
        cluster.talk()
        assert not cluster.told(CopyLive), f"it is at epoch {cohort.hosted.done}, and the others are at {others}"
        cluster.finish(copy.number)
    cluster.talk()
    assert [fact.number for fact in cluster.told(CopyLive)] == [copy.number]
    cluster.paused.clear()
    cluster.finish(copy.number)
    cluster.declare(joining=())
    through(cluster, rows, 3)
    assert cluster.output() == expected(rows) and cluster.parts[target].processed > others
    assert all(target not in part.acknowledging.credit.listeners for part in cluster.parts.values()), "it has nothing to hear any more"


def test_a_copy_is_not_level_by_the_last_word_of_a_site_that_it_no_longer_hears() -> None:
    """Goal: as above (C3), while the target has lost its connection with one of those who count. Method: another one feeds it instead, and
    is ahead; nothing closes far ahead of what all have processed (E5), so that the silent one is not where it was, either."""
    cluster = Cluster(totals(), 4, spares=1)
    target, source = 4, cluster.plan.placement[OUT][0][0]
    rows = [(k, k) for k in range(5)]
    cluster.rows(*rows)
    cluster.talk()
    copy = cluster.copy(OUT, (0,), source, target)
    through(cluster, rows, 3)
    cluster.paused.add((target, OUT))
    cluster.arrive(cluster.ships.pop())
    cohort = cluster.parts[target].cohorts[OUT, copy.number]
    cluster.cut(next(site for site in cluster.parts if site not in (target, source)), target)
    through(cluster, rows, 12)
    others = min(part.processed for site, part in cluster.parts.items() if site != target)
    behind = LEVEL_EPOCHS + cluster.parts[target].ingress.pipeline
    while cohort.hosted.done + behind < others:
        cluster.talk()
        assert not cluster.told(CopyLive), f"it is at epoch {cohort.hosted.done}, and the others are at {others}"
        cluster.finish(copy.number)
    cluster.talk()
    assert [fact.number for fact in cluster.told(CopyLive)] == [copy.number], "nobody waits for the silent one's next word"
