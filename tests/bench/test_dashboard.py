"""The run that `bench dashboard` watches has the size it says, and a reading of it is what a page takes."""

from __future__ import annotations

import json

import pytest

from evenflow.bench.dashboard import SITES, Big, check_ms, driver_cost, run
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene


def test_it_is_as_big_as_the_target_and_told_in_small_objects() -> None:
    big = Big()
    scene, first = big.turn()
    same, second = big.turn()
    assert same is scene and second.number == first.number + 1
    (shown,) = scene.runs
    assert len(shown.boxes) >= 200 and len(shown.segments) >= 26 and len(scene.sites) == SITES
    assert sum(segment.partitions for segment in shown.segments) >= 1_000
    assert sum(second.runs[0].boxes.rows_in) > sum(first.runs[0].boxes.rows_in) > 0
    assert Scene.from_json(json.loads(json.dumps(scene.to_json()))) == scene
    assert Reading.from_json(json.loads(json.dumps(second.to_json()))) == second
    cost = driver_cost(big, 3)
    assert cost["reading_bytes"] < 100_000
    assert cost["driver_share"] > cost["driver_share_without_dashboard"] > 0
    assert 0 < cost["dashboard_share_unwatched"] < cost["driver_share_without_dashboard"] / 5, "nobody looks: one reading in ten seconds"
    assert check_ms(big, 1) > 0


@pytest.mark.conformance
def test_it_measures_what_it_says() -> None:
    said: list[str] = []
    result = run(quick=True, say=said.append)
    assert 0 < result["driver_share"] < 0.2 and 0 < result["ui_share_50_tabs"] < 0.5 and result["ui_mb"] < 200
    assert result["first_picture_ms"] < 30_000 and result["heap_mb"] < 60
