"""The moves of a run, one record each, out of `run.events()`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

UNDER_WAY: Final = "under way"
DONE: Final = "done"
DROPPED: Final = "dropped"
_STATES: Final = {"move_begun": UNDER_WAY, "move_done": DONE, "move_dropped": DROPPED}


def moves_of(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One object per move, in the order in which they began.

    at_s (seconds since the run's start), segment (its name), partitions (how many), source, target (sites), reason, state (under way, done
    or dropped), bytes (of state that have travelled), seconds (from the plan that began it to its end; None before), stall_ms: the time in
    which a result of these partitions may have waited for the move, at most: from the word that the new replica counts until its site has
    answered that they are one with what it had. None before its end, and 0 if it was given up before. events: a move may have begun before
    the first one.
    """
    found: list[dict[str, Any]] = []
    places: dict[int, int] = {}
    for event in events:
        state = _STATES.get(event["kind"])
        if state is None:
            continue
        place = None if state == UNDER_WAY else places.pop(event["number"], None)  # Another generation numbers its moves anew.
        begun_s = round(event["at_s"] - (event.get("seconds") or 0.0), 4) if place is None else found[place]["at_s"]
        if place is None:
            place = len(found)
            found.append({})
        if state == UNDER_WAY:
            places[event["number"]] = place
        found[place] = {
            "at_s": begun_s, "segment": event["segment"], "partitions": len(event["partitions"]), "source": event["source"],
            "target": event["target"], "reason": event["reason"], "state": state, "bytes": event["bytes"],
            "seconds": event.get("seconds"), "stall_ms": event.get("stall_ms"),
        }  # fmt: skip
    return found


def in_all(moves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the moves that are done: moves, partitions, bytes, and stall_ms, the longest; 0 where there was none."""
    done = [move for move in moves if move["state"] == DONE]
    return {
        "moves": len(done), "partitions": sum(move["partitions"] for move in done), "bytes": sum(move["bytes"] for move in done),
        "stall_ms": max((move["stall_ms"] for move in done), default=0.0),
    }  # fmt: skip
