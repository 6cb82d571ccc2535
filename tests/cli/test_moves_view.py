"""Each move in the table, in the timeline and in the report: what, from where to where, why, its bytes, and how long it may stall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cli.test_view import EVENTS, PROGRESS, drawn

from evenflow.coordinator.hosting import Hosting
from evenflow.monitor.live import View
from evenflow.monitor.roster import DEAD_SHOWN_S, Roster
from evenflow.monitor.summary import moves_table, report, summary_table
from evenflow.monitor.timeline import Timeline, timeline
from evenflow.statistics.moves import in_all, moves_of


def event(kind: str, number: int, at_s: float, size: int = 0, **more: Any) -> dict[str, Any]:
    partitions = list(range(number, number + 12))
    about = {"number": number, "segment": "sessions", "partitions": partitions, "source": 3, "target": 4, "reason": "it is the idlest"}
    return {"at_s": at_s, "kind": kind, "site": 4, "text": "in words", "bytes": size, **about, **more}


MOVES: list[dict[str, Any]] = [
    {"at_s": 1.0, "kind": "round", "site": -1, "text": "balancing was asked for: 3 moves", "moves": 3},
    event("move_begun", 1, 1.1),
    event("move_begun", 2, 1.2),
    event("move_begun", 3, 1.3),
    event("move_done", 1, 1.5, 3 << 20, seconds=0.4, stall_ms=12.3),
    event("move_dropped", 2, 1.6),
]


def test_moves_are_told_apart_by_their_numbers() -> None:
    done, dropped, under_way = moves_of(MOVES)
    assert done == {
        "at_s": 1.1, "segment": "sessions", "partitions": 12, "source": 3, "target": 4, "reason": "it is the idlest", "state": "done",
        "bytes": 3 << 20, "seconds": 0.4, "stall_ms": 12.3,
    }  # fmt: skip
    assert (dropped["state"], under_way["state"], under_way["stall_ms"]) == ("dropped", "under way", None)
    assert in_all(moves_of(MOVES)) == {"moves": 1, "partitions": 12, "bytes": 3 << 20, "stall_ms": 12.3}
    assert in_all([]) == {"moves": 0, "partitions": 0, "bytes": 0, "stall_ms": 0.0}


def test_a_move_is_one_line_of_the_timeline_that_is_completed() -> None:
    entries = timeline(MOVES)
    assert [entry.kind for entry in entries] == ["round", "move", "move_dropped", "move"]
    assert entries[1].at_s == 1.1
    assert entries[1].text == "12 partitions of sessions, site 3 → 4: 3.0 MiB in 0.40 s, stall < 12.3 ms (it is the idlest)"
    assert "given up" in entries[2].text and "under way (it is the idlest)" in entries[3].text


def test_a_move_whose_beginning_is_forgotten_has_its_time() -> None:
    (done,) = moves_of(MOVES[4:5])
    assert (done["at_s"], done["state"], done["seconds"]) == (1.1, "done", 0.4)
    assert [entry.text[:14] for entry in timeline(MOVES[4:5])] == ["12 partitions "]


def test_another_generation_s_moves_are_others_though_their_numbers_are_the_same() -> None:
    again = [*MOVES, event("move_begun", 1, 9.0), event("move_done", 1, 9.5, 1 << 20, seconds=0.5, stall_ms=1.0)]
    assert [(move["at_s"], move["state"]) for move in moves_of(again)] == [
        (1.1, "done"), (1.2, "dropped"), (1.3, "under way"), (9.0, "done"),
    ]  # fmt: skip
    assert [entry.at_s for entry in timeline(again) if entry.kind == "move"] == [1.1, 1.3, 9.0]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_timeline_that_is_told_bit_by_bit_has_the_newest_entries(size: int) -> None:
    events = sorted([*EVENTS, *MOVES], key=lambda event: float(event["at_s"]))
    told = Timeline(4)
    for at in range(0, len(events), size):
        told.take(events[at : at + size])
    assert told.entries == timeline(events)[-4:]


def test_the_tables_and_the_report_have_every_move() -> None:
    text = drawn(moves_table(moves_of(MOVES)))
    assert "it is the idlest" in text and "3.0 MiB" in text and "< 12.3 ms" in text and "dropped" in text and "under way" in text
    text = drawn(summary_table(PROGRESS, events=MOVES))
    assert "12 replicas, 3.0 MiB, longest stall 12.3 ms at most" in text
    assert "longest stall" not in drawn(summary_table(PROGRESS))
    assert report(PROGRESS, master="m", interrupted=False, events=MOVES)["moves"] == moves_of(MOVES)


def test_the_view_shows_moves_and_who_leaves() -> None:
    view = View("sessions", "local-cluster[5,2,1024]")
    sites = tuple(replace(site, leaving=site.site == 2) for site in PROGRESS.sites)
    hosting = {site: Hosting(10) for site in range(4)}
    view.update(replace(PROGRESS, sites=sites), hosting, MOVES)
    text = drawn(view, 140)
    assert "leaving" in text and "site 3 → 4: 3.0 MiB" in text


def test_who_has_left_is_not_dead_and_goes_from_the_list_after_a_while() -> None:
    roster = Roster()
    hosting = {site: Hosting(10) for site in range(4)}
    roster.update(PROGRESS, hosting, ())
    left = [{"at_s": 15.0, "kind": "site_left", "site": 1, "text": "site 1 has left: it was drained"}]
    rest = replace(PROGRESS, sites=tuple(site for site in PROGRESS.sites if site.site != 1))
    roster.update(rest, hosting, left)
    assert [(row.told.site, row.role) for row in roster.rows] == [(0, "live"), (1, "left"), (2, "live"), (3, "live")]
    roster.update(replace(rest, seconds=15.1 + DEAD_SHOWN_S), hosting, left)
    assert [row.told.site for row in roster.rows] == [0, 2, 3]
