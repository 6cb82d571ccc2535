"""Readers get the newest reading, every event once, and share what is encoded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from typing import Any, cast

from evenflow.monitor.web.feed import EVENTS_KEPT, Feed, Position


def feed() -> Feed:
    made = Feed("n", ("seconds", "p50_ms"))
    made.scene("scene", {"number": 1})
    return made


def read(feed: Feed, number: int, *events: int) -> None:
    happened = [{"run": "r", "kind": "kill", "number": each} for each in events]
    feed.reading(f"reading {number}", {"number": number}, happened, {"r": (float(number), None)})


def kinds(frame: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in frame.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_who_comes_first_gets_the_scene_the_past_and_the_newest_reading() -> None:
    made = feed()
    read(made, 1)
    read(made, 2, 7)
    _, frame = made.newer(Position())
    assert [kind for kind, _ in kinds(frame)] == ["scene", "past", "happened", "reading"]
    assert dict(kinds(frame))["past"] == {"r": {"seconds": [1.0, 2.0], "p50_ms": [None, None]}}
    assert dict(kinds(frame))["reading"] == {"number": 2}


def test_a_slow_reader_gets_the_newest_reading_and_every_event() -> None:
    made = feed()
    read(made, 1)
    at, _ = made.newer(Position())
    for number in range(2, 50):
        read(made, number, number)
    at, frame = made.newer(at)
    told = dict(kinds(frame))
    assert told["reading"] == {"number": 49}
    assert [event["number"] for event in told["happened"]] == list(range(2, 50))
    assert made.newer(at)[1] == b""


def test_who_was_cut_off_goes_on_by_id_and_who_was_with_another_server_begins() -> None:
    made = feed()
    read(made, 1, 1)
    at, _ = made.newer(Position())
    read(made, 2, 2)
    again = Position.of(at.id("n"), "n")
    assert again == at
    assert [kind for kind, _ in kinds(made.newer(again)[1])] == ["happened", "reading"]
    for wrong in (None, "", "m.1.1.1.1", "n.1.1.1", "n.-1.1.1.1", "n.1.1.1.1.1", "n.x.1.1.1", "n." + "9" * 400 + ".1.1.1"):
        assert Position.of(wrong, "n") == Position()


def test_a_position_of_the_future_harms_nobody() -> None:
    made = feed()
    read(made, 1, 1)
    _, frame = made.newer(Position(99, 99, 99, 99))
    assert dict(kinds(frame))["reading"] == {"number": 1}


def test_one_encoding_serves_all_readers() -> None:
    made = feed()
    read(made, 1)
    at, _ = made.newer(Position())
    read(made, 2)
    frames = {id(made.newer(at)[1]) for _ in range(50)}
    assert len(frames) == 1


def test_the_oldest_events_are_forgotten() -> None:
    made = feed()
    for number in range(EVENTS_KEPT + 10):
        read(made, number + 1, number)
    told = dict(kinds(made.newer(Position())[1]))
    assert len(told["happened"]) == EVENTS_KEPT
    assert told["happened"][-1]["number"] == EVENTS_KEPT + 9


def test_who_waits_hears_of_the_next_change_and_of_the_end() -> None:
    async def story() -> list[str]:
        made = feed()
        made.open()
        read(made, 1)
        at, _ = made.newer(Position())
        turns = [made.turn for _ in range(20)]
        await asyncio.to_thread(read, made, 2)
        await asyncio.wait_for(asyncio.gather(*(turn.wait() for turn in turns)), 10)
        turn = made.turn
        assert not turn.is_set()
        await asyncio.to_thread(made.end, "the engine has stopped")
        await asyncio.wait_for(turn.wait(), 10)
        return [kind for kind, _ in kinds(made.newer(at)[1])]

    with ThreadPoolExecutor(1) as own:  # The browser of other tests has its loop in this thread.
        assert own.submit(lambda: asyncio.run(story())).result(30) == ["reading", "ended"]


class HeldLoop:
    """A loop that turns when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, call: Callable[..., None], *given: Any) -> None:
        self.calls.append(partial(call, *given))


def test_two_changes_before_the_loop_turns_wake_who_waits_in_between() -> None:
    made, loop = feed(), HeldLoop()
    made._loop, made._changed = cast(asyncio.AbstractEventLoop, loop), asyncio.Event()
    read(made, 1)
    read(made, 2)
    loop.calls[0]()
    between = made.turn
    assert not between.is_set()
    loop.calls[1]()
    read(made, 3)
    loop.calls[2]()
    assert between.is_set() and not made.turn.is_set()


def test_frames_are_not_kept_without_end() -> None:
    made = feed()
    for number in range(1, 300):
        read(made, number)
        made.newer(Position(1, number - 1, 0, 0))
    assert len(made._frames) <= 64
    made.end("over")
    for number in range(300):
        made.newer(Position(1, number, 0, 0))
    assert len(made._frames) <= 64


def test_who_has_missed_much_is_told_the_curves_anew() -> None:
    """A page that was hidden for an hour drew a straight line from then to now, as what the last ten minutes had been."""
    made = feed()
    read(made, 1)
    at, _ = made.newer(Position())
    for number in range(2, 5):
        read(made, number)
    at, frame = made.newer(at)
    assert [kind for kind, _ in kinds(frame)] == ["reading"]
    for number in range(5, 105):
        read(made, number)
    _, frame = made.newer(at)
    assert [kind for kind, _ in kinds(frame)] == ["past", "reading"]
    assert dict(kinds(frame))["past"]["r"]["seconds"] == [float(number) for number in range(1, 105)]


def test_one_value_that_json_has_not_ends_nobody_s_stream() -> None:
    """An event stays for long, and whoever came while it did had none of the others either: the page said that the connection was lost."""
    made = feed()
    made.reading(
        "r", {"number": 1}, [{"run": "r", "kind": "shedding", "rate": float("nan"), "of": {"x": (float("inf"), 1.5, Decimal("2.5"))}}], {}
    )
    told = dict(kinds(made.newer(Position())[1]))
    assert told["happened"] == [{"run": "r", "kind": "shedding", "rate": None, "of": {"x": [None, 1.5, "2.5"]}}]
    assert json.loads(made.happened_json(0, {}))["end"] == 1


def test_who_comes_hears_of_operations_that_go_on_and_of_none_that_is_over() -> None:
    """A page that was opened in the evening showed for a while what was drained in the morning, as if it went on."""
    made = feed()
    read(made, 1)
    over, goes_on = {"request": 1, "operation": "drain"}, {"request": 2, "operation": "savepoint"}
    made.say({**over, "said": "site 2 still hosts 3 replicas"})
    at, _ = made.newer(Position())
    made.say({**over, "over": True, "problem": None})
    assert [line.get("over") for line in dict(kinds(made.newer(at)[1]))["said"]] == [True], "who was there hears of the end"
    assert "said" not in dict(kinds(made.newer(Position())[1]))
    made.say({**goes_on, "said": "a checkpoint is made"})
    assert dict(kinds(made.newer(Position())[1]))["said"] == [{**goes_on, "said": "a checkpoint is made"}]
