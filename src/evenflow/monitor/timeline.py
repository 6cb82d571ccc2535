"""What happened to a run's sites, short enough to be read while it happens. Knows no run: it is told what `run.events()` says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from evenflow.monitor.summary import mebibytes, milliseconds
from evenflow.statistics.moves import DONE, DROPPED, moves_of

Event = Mapping[str, Any]

_OF_TONE: Final = {
    "bad": "kill site_lost lost failed begun_anew rows_lost",
    "warn": "recovery_waits take_over copy_dropped move_dropped move_refused repartition_refused scaling_waits overloaded refresh_failed "
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
    told = Timeline()
    told.take(events)
    return told.entries


class Timeline:
    """The newest entries of a run that is told bit by bit. kept: how many; None: all of them."""

    def __init__(self, kept: int | None = None) -> None:
        self._kept, self._next = kept, 0
        self._entries: dict[int, Entry] = {}
        self._catching_up: dict[int, tuple[int, CatchUp]] = {}
        self._moves: dict[int, int] = {}

    @property
    def entries(self) -> list[Entry]:
        """Oldest first."""
        return list(self._entries.values())

    def take(self, news: Sequence[Event]) -> None:
        """What has happened since the last time. Cost: that of the news, however much there has been."""
        for event in sorted(news, key=lambda event: event["at_s"]):
            kind, site = event["kind"], event["site"]
            if kind in ("copy_begun", "copy_live"):
                if site not in self._catching_up:
                    self._catching_up[site] = self._add(Entry(event["at_s"], "copies", "")), CatchUp(event["at_s"], site)
                place, copies = self._catching_up[site]
                copies.take(event)
                self._change(place, copies.entry())
            elif kind in ("move_begun", "move_done", "move_dropped"):
                self._take_move(event)
            else:
                self._add(Entry(event["at_s"], kind, _PLACE.sub(": ", str(event["text"]))))
                if kind in ("redundancy", "site_lost"):  # What is copied from now on has another cause.
                    self._catching_up.clear()

    def _take_move(self, event: Event) -> None:
        (move,) = moves_of([event])
        number, under_way = event["number"], event["kind"] == "move_begun"
        place = None if under_way else self._moves.pop(number, None)  # Another generation numbers its moves anew.
        if place is None:
            place = self._add(Entry(move["at_s"], "move", ""))
        if under_way:
            self._moves[number] = place
        if place in self._entries:
            kind = "move_dropped" if move["state"] == DROPPED else "move"
            self._change(place, Entry(self._entries[place].at_s, kind, move_text(move)))

    def _add(self, entry: Entry) -> int:
        place, self._next = self._next, self._next + 1
        self._entries[place] = entry
        if self._kept is not None and len(self._entries) > self._kept:
            del self._entries[next(iter(self._entries))]
        return place

    def _change(self, place: int, entry: Entry) -> None:
        """Nothing, if it is no longer among the newest."""
        if place in self._entries:
            self._entries[place] = entry


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
