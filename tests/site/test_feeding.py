"""Feeding is the consumer's choice, at any time, and no frame counts twice (A1-A4, T2)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.site.cohort import Cohort
from evenflow.site.facts import PartFinished
from tests.drawn import examples
from tests.site.cluster import SOURCE, TOTALS, Cluster, expected, totals


def feeders(cluster: Cluster, site: int, segment: int = TOTALS) -> dict[int, set[int]]:
    """By stream, the sites that feed this site's cohort."""
    cohort: Cohort = cluster.parts[site].cohorts[segment, 0]
    return {stream: {feed.site for feed in inbox.feeds.values()} for stream, inbox in cohort.inboxes.items()}


def test_two_replicas_of_a_dataflow_run_as_two() -> None:
    cluster = Cluster(totals(sites=4), 4)
    for site in cluster.parts:
        for fed_by in feeders(cluster, site).values():
            assert fed_by == ({0, 1} if site in (0, 1) else {2, 3})


def test_when_a_link_breaks_another_replica_is_asked_at_once_without_anybodys_leave() -> None:
    cluster = Cluster(totals(sites=4), 4)
    cluster.rows((1, 10), (2, 20))
    cluster.talk()
    cluster.cut(0, 1)
    assert all(fed_by == {0, 3} for fed_by in feeders(cluster, 0).values())
    assert all(fed_by == {1, 2} for fed_by in feeders(cluster, 1).values())
    cluster.rows((1, 1))
    cluster.talk()
    assert cluster.output() == expected([(1, 10), (2, 20), (1, 1)])
    cluster.join(0, 1)
    assert all(fed_by == {0, 1} for fed_by in feeders(cluster, 0).values()), "its own rank again"
    cluster.rows((2, 2))
    cluster.talk()
    assert cluster.output() == expected([(1, 10), (2, 20), (1, 1), (2, 2)])


def test_a_death_needs_no_word_of_the_coordinator_to_be_masked() -> None:
    cluster = Cluster(totals(sites=4), 4)
    victim = next(site for site in (2, 3) if all(leader.site != site for leader in cluster.membership.leaders[SOURCE]))
    cluster.rows((1, 10))
    cluster.talk()
    before = cluster.committed
    cluster.kill(victim)
    assert all(victim not in fed_by for site in cluster.parts for fed_by in feeders(cluster, site).values())
    follower = {0: 2, 2: 0, 1: 3, 3: 1}[victim]
    assert cluster.parts[follower].view.membership.number == 0
    cluster.declare(sites=tuple(sorted(cluster.parts)))
    cluster.rows((1, 1))
    cluster.talk()
    assert cluster.committed > before and cluster.output() == expected([(1, 10), (1, 1)])


def test_a_frame_is_kept_until_all_replicas_of_its_consumers_have_it() -> None:
    cluster = Cluster(totals(sites=2), 2)
    cluster.cut(0, 1, told=lambda site: False)
    led = cluster.membership.leaders[SOURCE][0].site
    cluster.rows((1, 10))
    cluster.talk()
    assert cluster.parts[led].cohorts[SOURCE, 0].hosted.done == 0, "the other one does not hold the record"
    cluster.join(0, 1)
    cluster.talk()
    for part in cluster.parts.values():
        assert part.processed == 1
        for cohort in part.cohorts.values():
            assert all(kept.frame_bytes == 0 and set(kept.acked.values()) == {1} for kept in cohort.retained.values())


def test_a_site_that_no_longer_wants_to_be_fed_is_not() -> None:
    cluster = Cluster(totals(sites=4), 4)
    cluster.cut(0, 1)
    cluster.talk()
    assert 1 not in cluster.parts[0].feeding.fed(), "nor one that cannot be reached: it asks again"
    assert 1 in cluster.parts[2].feeding.fed()
    cluster.join(0, 1)
    cluster.talk()
    for site, part in cluster.parts.items():
        side = {0, 1} if site in (0, 1) else {2, 3}
        assert part.feeding.fed() <= side, f"site {site} feeds the other side"


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.laws
@settings(max_examples=examples(10, 300), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_to_links_every_row_counts_once(replicas: int, seed: int) -> None:
    """Links break and come back at any moment, on either side first; messages of different links overtake each other."""
    random = Random(seed)
    cluster = Cluster(totals(partitions=4, sites=3), 3, replicas, scheme="chained", shuffle=random)
    rows = []
    for _ in range(40):
        what = random.random()
        if what < 0.3:
            pairs = [(random.randrange(6), random.randrange(100)) for _ in range(random.randint(1, 5))]
            rows += pairs
            cluster.rows(*pairs, partition=random.randrange(2))
        elif what < 0.45:
            a, b = random.sample(range(3), 2)
            if (a, b) not in cluster.down:
                cluster.cut(a, b)
        elif what < 0.6 and cluster.down:
            cluster.join(*random.choice(sorted(cluster.down)))
        else:
            for _ in range(random.randint(1, 15)):
                cluster.step()
    for a, b in sorted(cluster.down):
        if a < b:
            cluster.join(a, b)
    cluster.end()
    cluster.talk()
    assert cluster.output() == expected(rows)
    assert len(cluster.told(PartFinished)) == 3
