"""What follows from an event is looked for by its cause: nothing that everything would have found is left."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from evenflow.site.machine import SiteMachine
from tests.site.cluster import Cluster, expected, totals


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_left_that_everything_would_have_found(seed: int, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a look by cause finds all that a look at everything finds. Method: after each, what everything would begin is asked, rows and
    messages coming in any order. Of epochs one closes at a time, and time alone may close one, which a timer says."""
    follow, looked = SiteMachine._follow, Counter[str]()

    def watched(part: SiteMachine, *news: bool) -> None:
        follow(part, *news)
        looked["by cause"] += 1
        able = [cohort.key for cohort in part.housing.order if not cohort.hosted.busy and cohort.has_input()]
        assert not able, f"{part}: cohorts {able} can begin, and {news} did not say so"
        done = min(cohort.hosted.done for cohort in part.housing.live)
        assert part.processed == done, f"{part}: all have processed epoch {done}, and {news} did not say so"
        for cohort in part.housing.sources:
            if not (news[0] or cohort.hosted.busy) and part.ingress.queues and part.ingress.linger_due_us is None:
                closing = part.ingress.may_close(part.credit.granted, part.credit.processed, part.now_us)
                assert not closing, f"{part}: an epoch can close, and {news} did not say so"

    monkeypatch.setattr(SiteMachine, "_follow", watched)
    random = Random(seed)
    cluster, rows = Cluster(totals(), sites=4, replicas=replicas, shuffle=random), list[tuple[int, int]]()
    for _ in range(20):
        batch = [(random.randrange(9), random.randrange(100)) for _ in range(random.randrange(1, 80))]
        cluster.rows(*batch, partition=random.randrange(2))
        rows += batch
        for _ in range(random.randrange(6)):
            cluster.step()
    cluster.end()
    cluster.talk()
    assert cluster.output() == expected(rows)
    assert looked["by cause"] > 100
