"""What `bench regions` counts: gaps, and rows of a shared table; its run is tried by hand, since it starts processes for minutes."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenflow.bench.regional import Region
from evenflow.bench.regional_sinks import Shared, compare_rows
from evenflow.bench.regions import Pauses, Reading, Setting, run
from evenflow.errors import OptionError

EXPECTED = Region(4001, "g", 1_700_000_000.0, 1000, 300).expected()


class Silent:
    """A subscriber that gives nothing."""

    delivered = 0

    def take(self, timeout_s: float) -> None:
        return None

    def close(self) -> None:
        return


def reading(*moments: float) -> Reading:
    made: Any = Reading(Silent(), 50.0, 0.0)  # type: ignore[arg-type]
    made.end()
    made.moments = list(moments)
    return made  # type: ignore[no-any-return]


def test_a_gap_is_the_longest_wait_that_overlaps_what_follows_the_event() -> None:
    assert reading(1.0, 3.0, 3.1, 3.2).gap_s(2.0, 3.2) == 2.0, "it had begun before the event"
    assert reading(1.0, 1.9, 2.1, 2.2, 9.0).gap_s(2.0, 2.2) == pytest.approx(0.2)
    assert reading(1.0).gap_s(2.0, 5.0) == 4.0, "nothing came any more"
    assert reading().gap_s(2.0, 5.0) == 3.0


def test_a_gap_is_told_apart_from_regions_that_showed_nothing() -> None:
    made = reading(1.0, 1.9, 2.8, 2.9)
    made.shown = {0: [1.0, 1.9], 1: [1.9, 2.0, 2.7, 2.9]}
    assert made.unshown_s(0, 2.0, 2.9) == pytest.approx(0.7), "the other region itself showed nothing for so long"
    assert made.unshown_s(1, 2.0, 2.9) == pytest.approx(1.0), "the region that was struck says nothing of the others"
    made.shown[2] = [1.9, 2.1, 2.3, 2.5, 2.7, 2.9]
    assert made.unshown_s(0, 2.0, 2.9) == pytest.approx(0.2), "of several others the best one counts"


def test_each_epoch_is_shown_by_a_leg_once() -> None:
    made = reading()
    for leg, epoch in ((0, 1), (1, 1), (1, 2), (1, 2), (0, 2), (0, 1)):
        made.subscriber.on_shown(leg, epoch)  # type: ignore[misc]
    assert {leg: len(moments) for leg, moments in made.shown.items()} == {0: 2, 1: 2}
    made.subscriber.on_shown(0, 9)  # type: ignore[misc]
    made.subscriber.delivered = 9
    assert made.others_behind_s(0) == pytest.approx(7 * 0.05) and made.others_behind_s(1) == 0.0


def test_a_pause_of_the_process_is_seen() -> None:
    pauses, before = Pauses(), sys.getswitchinterval()
    began_s = time.monotonic()
    try:
        sys.setswitchinterval(0.2)
        while time.monotonic() < began_s + 0.3:
            pass
    finally:
        sys.setswitchinterval(before)
    threading.Event().wait(0.05)
    pauses.end()
    assert pauses.longest_s(began_s, time.monotonic()) > 0.1
    assert pauses.longest_s(began_s - 9.0, began_s - 8.0) == 0.0


def test_events_are_in_a_drawn_order_and_all_there() -> None:
    events = Setting(kills=3, cuts=2).events()
    assert sorted(events) == ["cut"] * 2 + ["kill"] * 3 and events == Setting(kills=3, cuts=2).events()
    assert any(replace(Setting(kills=3, cuts=2), seed=seed).events() != events for seed in range(2, 6))


@pytest.mark.parametrize(
    ("spoil", "counted"),
    [(None, {}), ("DELETE FROM totals WHERE rowid = 3", {"lost": 1}),
     ("INSERT INTO totals SELECT * FROM totals WHERE rowid = 3", {"repeated": 1}),
     ("UPDATE totals SET s = s + 1 WHERE rowid = 3", {"lost": 1, "wrong": 1})],
)  # fmt: skip
def test_rows_of_the_table_are_compared_up_to_its_last_epoch(tmp_path: Path, spoil: str | None, counted: dict[str, int]) -> None:
    file = str(tmp_path / "rows.sqlite")
    there = [(key, n, s) for (epoch, key), (n, s) in sorted(EXPECTED.items()) if epoch <= 4]
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE totals (key, n, s)")
        connection.execute("CREATE TABLE evenflow_chains (target, run, epoch, digest)")
        connection.executemany("INSERT INTO totals VALUES (?, ?, ?)", there)
        connection.execute("INSERT INTO evenflow_chains VALUES ('totals', 'g', 4, '0')")
        if spoil is not None:
            connection.execute(spoil)
    connection.close()
    shared = Shared(file)
    assert shared.last_epochs("g") == {"table": 4}
    assert {name: compare_rows(rows, 4, EXPECTED) for name, rows in shared.rows("g")} == {
        "table": {"rows": len(there), "lost": 0, "repeated": 0, "wrong": 0} | counted
    }


def test_a_sink_that_regions_cannot_share_is_refused_before_anything_starts() -> None:
    with pytest.raises(OptionError, match="delta"):
        run(Setting(sinks=("table", "delta")))
