"""What happened to a run's sites, short enough to be read while it happens. Pure functions over `run.events()`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from evenflow.monitor.summary import mebibytes, milliseconds
from evenflow.statistics.moves import DONE, DROPPED, moves_of

Event = Mapping[str, Any]

_OF_TONE: Final = {
    "bad": "kill site_lost lost failed begun_anew rows_lost",
    "warn": "recovery_waits take_over copy_dropped move_dropped move_refused repartition_refused scaling_waits refresh_failed "
    "shedding not_backed_up disk_trouble checkpoint_dropped checkpoint_passed_over user_code_slow journal_waits clock_behind "
    "standby_takes_over silent",
    "good": "redundancy recovered_in_place restarted site_joined shedding_ended checkpoint_completed user_code_back journal_back "
    "believed",
    "accent": "copies move repartitioned availability replaced scaling",
    "violet": "site_emptied site_left round",
}  # fmt: skip
TONES: Final = {kind: tone for tone, kinds in _OF_TONE.items() for kind in kinds.split()}
"""Of each kind of event that has one: as in the page's kinds.js."""
_COLOURS: Final = {"bad": "red", "warn": "yellow", "good": "green", "accent": "cyan", "violet": "magenta"}
STYLES: Final = {kind: _COLOURS[tone] for kind, tone in TONES.items()} | {"kill": "bold red", "redundancy": "bold green"}
_PLACE: Final = re.compile(r": on executor .*?\): ")
_COUNT: Final = re.compile(r"^(\d+) partitions")


class Entry(NamedTuple):
    """One line. at_s: since the run's start. kind: of the event, or `copies`: all that were copied to one site until it was done, or
    `move`: one from its beginning to its end."""

    at_s: float
    kind: str
    text: str


def timeline(events: Sequence[Event]) -> list[Entry]:
    """Events in order of time, the copies to a site as one entry that grows, a move as one that is completed."""
    entries: list[Entry] = []
    catching_up: dict[int, CatchUp] = {}
    places: dict[int, int] = {}
    moves: dict[int, int] = {}
    for event in sorted(events, key=lambda event: event["at_s"]):
        kind, site = event["kind"], event["site"]
        if kind in ("copy_begun", "copy_live"):
            if site not in catching_up:
                catching_up[site], places[site] = CatchUp(event["at_s"], site), len(entries)
                entries.append(Entry(event["at_s"], "copies", ""))
            catching_up[site].take(event)
            entries[places[site]] = catching_up[site].entry()
        elif kind in ("move_begun", "move_done", "move_dropped"):
            (move,) = moves_of([event])
            place = moves.setdefault(event["number"], len(entries))
            if place == len(entries):
                entries.append(Entry(event["at_s"], "move", ""))
            entries[place] = Entry(entries[place].at_s, "move_dropped" if move["state"] == DROPPED else "move", move_text(move))
        else:
            entries.append(Entry(event["at_s"], kind, _PLACE.sub(": ", str(event["text"]))))
            if kind in ("redundancy", "site_lost"):  # What is copied from now on has another cause.
                catching_up.clear()
    return entries


def move_text(move: Mapping[str, Any]) -> str:
    """A move (see `moves_of`) in a line: what, from where to where, bytes and stall once it is done, and why."""
    text = f"{move['partitions']:,} partitions of {move['segment']}, site {move['source']} → {move['target']}"
    if move["state"] == DONE:
        text += f": {mebibytes(move['bytes'])} in {move['seconds']:.2f} s, stall < {milliseconds(move['stall_ms'])}"
    else:
        text += ", given up" if move["state"] == DROPPED else ", under way"
    return f"{text} ({move['reason']})"


class CatchUp:
    """The copies to one site."""

    def __init__(self, begun_s: float, site: int) -> None:
        self._begun_s, self._last_s, self._site = begun_s, begun_s, site
        self._begun = self._live = 0

    def take(self, event: Event) -> None:
        found = _COUNT.match(str(event["text"]))
        count = int(found[1]) if found else 0
        self._last_s = event["at_s"]
        if event["kind"] == "copy_begun":
            self._begun += count
        else:
            self._live += count

    def entry(self) -> Entry:
        under_way = self._begun - self._live
        text = f"catch-up: {self._live:,} partitions copied to site {self._site}"
        text += f", {under_way:,} more under way" if under_way > 0 else f", in {self._last_s - self._begun_s:.2f} s"
        return Entry(self._begun_s, "copies", text)


def event_line(event: Event) -> str:
    """One line for a log or a pipe."""
    return f"{event['at_s']:6.2f} s  {event['kind']}: {event['text']}"
