"""`stalls`: a site that hangs is not seen where nobody waits for it, and is seen where a leader cuts epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.experiments.harness.simulator import start
from evenflow.experiments.papers import stalls

SHORT = replace(stalls.QUICK, seconds=0.6, rate=2_000, partitions=8)


@pytest.mark.conformance
def test_a_hanging_site_is_not_seen_where_sources_are_cut_by_content() -> None:
    calm, hanging, led = (
        stalls.run(SHORT, start, cut, 2, stalls=stalled, seed=0)
        for cut, stalled in (("content", False), ("content", True), ("leader", True))
    )
    assert calm.latency_ms.size > 1_000
    assert hanging.percentile(99.9) <= stalls.RATIO * calm.percentile(99.9)
    assert led.percentile(99.9) > 50, "nobody hung, or nobody waited"
