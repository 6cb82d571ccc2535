"""What is made of micro-batches that never were: an age where there is one, and how far behind they are."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from evenflow.bench.spark_overload import Batch, judged

START_S = 0.5
"""What a batch takes without rows."""


def run(load: float, end_s: float, first_s: float = START_S) -> list[Batch]:
    """A query from second 0 on, whose first batch takes first_s, and each other START_S and `load` seconds per second of rows."""
    found, since_s, at_s, takes_s = list[Batch](), 0.0, 0.0, first_s
    while at_s < end_s:
        over_s = at_s + takes_s
        if at_s > since_s:
            ages = 1e3 * (over_s - np.linspace(since_s, at_s, 50))
            found.append(Batch(since_s, at_s, over_s, ages, round(1000 * load * (at_s - since_s))))
        since_s, at_s = at_s, over_s
        takes_s = START_S + load * (at_s - since_s)
    return found


def test_a_query_that_keeps_up_has_the_age_of_its_usual_batches() -> None:
    """At half load a batch settles at a second: its oldest row is two seconds old when it is over."""
    told = judged(run(0.5, 42.0), 0.0, 12.0, 42.0)
    assert told["p99_ms"] == pytest.approx(2000, rel=0.03) and told["behind_s"] < 2.1


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_what_fell_due_during_the_start_is_not_in_the_age(load: float) -> None:
    """Goal: a first batch of ten seconds, as in a new session, says nothing of how old rows are. Its backlog at 0.8 is long gone by 120."""
    usual = judged(run(load, 120.0), 0.0, 12.0, 120.0)["p99_ms"]
    assert judged(run(load, 120.0, first_s=10.0), 0.0, 12.0, 120.0)["p99_ms"] == pytest.approx(usual, rel=0.3)
    assert max(float(each.ages_ms.max()) for each in run(load, 120.0, first_s=10.0)) > 15_000


@pytest.mark.parametrize("load", [1.0, 1.5, 2.0, 3.0, 5.0])
def test_a_query_that_falls_behind_has_no_age(load: float) -> None:
    told = judged(run(load, 42.0), 0.0, 12.0, 42.0)
    assert math.isnan(told["p99_ms"]) and told["behind_s"] > 4.0


def test_a_query_that_has_nothing_over_is_behind_since_it_began() -> None:
    told = judged([], 100.0, 112.0, 142.0)
    assert math.isnan(told["p99_ms"]) and told["behind_s"] == 42.0


def progress(**changed: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "timestamp": "1970-01-01T00:00:20.000Z", "durationMs": {"triggerExecution": 1500},
        "sources": [{"startOffset": {"us": 18_000_000}, "endOffset": {"us": 20_000_000}}],
        "observedMetrics": {"ages": {"n": 4, "q": [10.0, 20.0]}},
    }  # fmt: skip
    return told | changed


def test_batches_are_read_of_what_spark_tells() -> None:
    found = Batch.of(progress())
    assert found is not None
    assert (found.first_s, found.last_s, found.over_s, found.rows, found.ages_ms.tolist()) == (18.0, 20.0, 21.5, 4, [10.0, 20.0])
    texts = [{"startOffset": json.dumps({"us": 18_000_000}), "endOffset": json.dumps({"us": 20_000_000})}]
    again = Batch.of(progress(sources=texts))
    assert again is not None and again.first_s == 18.0
    assert Batch.of(progress(sources=[{"startOffset": None, "endOffset": {"us": 20_000_000}}])) is None, "the first one"
    assert Batch.of(progress(observedMetrics={})) is None, "no rows"
