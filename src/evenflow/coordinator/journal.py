"""The journal as the driver of a run writes it (availability.md, J1-J4): what is to be appended, and how far that is done.

Leaders tell their cuts (`Logged`), and a committed plan says what content depends on (`Content`). All that has come goes into the next
entry, which is made when the last one is in: one append at a time, so a slow store makes entries larger, not more of them. An epoch is
durable when the cuts of all ingress partitions up to it are in, and with them all contents that act up to it: no site cuts an epoch of a
plan before the plan is committed, so a content is here before the cuts that depend on it.

An entry is created only if there is none of its number, so of two drivers one finds the other's nonce where its own should be: it has been
replaced, and its run ends (`Fenced`). A store that fails may have done what it was asked, or may do it later. Then what is there is read:
if it is this driver's own, that was it; if there is nothing, the same entry is tried again, never another one of that number.

Nothing here knows a store. What it wants of one is an action, and its answers are events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from evenflow.availability.content import Content
from evenflow.availability.entries import Completed, Cut, Drained, Ended, Entry, Key, Logged, Matter, Stopped
from evenflow.availability.following import Following
from evenflow.availability.standing import Standing, named_rows
from evenflow.errors import ProtocolError
from evenflow.plan.plan import Plan

RETRY_MS: Final = (1.0, 1000.0)
"""Least and greatest time between two tries at a store that fails. It doubles."""
CORRUPT_MAX: Final = 8
"""An entry that cannot be used is read so often: some stores show an object before it is whole."""


@dataclass(slots=True)
class Journal:
    """generation, nonce: of this driver. last: number of the newest entry that is in. durable: see the module.

    open: the entry that is being appended, or None. closing: the run is over but for the last word of its journal. trouble: a person was
    told that the store fails. refused: it has said that the open entry is there already, and was not read since. _told, _in: by ingress
    partition, the last epoch whose cut has come, and is in. _cuts, _contents: what is to go into the next entry; _content: the newest of
    all. _others: entries of other kinds that wait. retained: checkpoints that were there. until: cuts of later epochs wait, so that no end
    takes these; None: none do.
    rows: objects with rows that cuts name, and the last epoch that does. under_way: the epoch of the checkpoint that has begun and is not
    whole, None if there is none. leaving: a person stops the run: its last entry says so. drains: a person drains it, which the next entry
    says; drained: one says so. stamp: the newest of a cut. _following: what all entries add up to, for snapshots. precise: ends wait for
    the cuts of their epochs; else none comes, and what is durable is the newest checkpoint's epoch.
    """

    generation: int
    nonce: str
    last: int
    durable: int
    _told: dict[Key, int]
    _in: dict[Key, int]
    _content: Content
    _following: Following
    open: Entry | None = None
    closing: bool = False
    trouble: bool = False
    refused: bool = False
    _cuts: dict[Key, list[Cut]] = field(default_factory=dict)
    _contents: list[Content] = field(default_factory=list)
    _others: list[Matter] = field(default_factory=list)
    _pause_ms: float = RETRY_MS[0]
    _corrupt: int = 0
    retained: tuple[Completed, ...] = ()
    until: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    under_way: int | None = None
    leaving: bool = False
    drains: bool = False
    drained: bool = False
    stamp: int = 0
    precise: bool = True

    @staticmethod
    def of(standing: Standing) -> Journal:
        """standing: what the location's entries add up to, the one with which this driver has begun included."""
        assert standing.begun is not None, "a driver begins its generation before its run"
        reached = dict.fromkeys(standing.begun.ingress, standing.durable)
        last, durable, told, in_ = standing.last, standing.durable, dict(reached), dict(reached)
        following = Following.of(standing)
        journal = Journal(standing.generation, standing.nonce, last, durable, told, in_, standing.contents[-1], following)
        journal.retained = tuple(standing.checkpoints)
        journal.rows = dict(standing.rows)
        journal.stamp, journal.precise, journal.drained = standing.stamp, standing.precise, standing.drained
        return journal

    # ------------------------------------------------------------ what is to go in

    def note_cuts(self, told: Mapping[Key, tuple[Cut, ...]]) -> None:
        """A leader has told cuts; what a successor tells again is known."""
        for key, cuts in told.items():
            for cut in cuts:
                if cut.epoch > self._told[key]:
                    if cut.epoch != self._told[key] + 1:
                        raise ProtocolError(f"epoch {cut.epoch} of ingress partition {key} is to be journalled after {self._told[key]}")
                    self._cuts.setdefault(key, []).append(cut)
                    self._told[key] = cut.epoch
            self.stamp = max(self.stamp, *(cut.stamp for cut in cuts[-1:]), 0)

    def note_plan(self, plan: Plan) -> None:
        """A plan is committed."""
        content = Content.of(plan)
        if not content.same(self._content):
            self._contents.append(content)
            self._content = content

    @property
    def told(self) -> int:
        """The last epoch of which a cut has come, of any ingress partition."""
        return max(self._told.values(), default=self.durable)

    def close(self) -> None:
        """The run is over: sources have ended, and sinks have everything."""
        self.closing = True
        self.ask(Ended(self.durable))  # Or more, if a checkpoint goes in before.

    def ask(self, matter: Matter) -> None:
        """An entry of another kind is to be appended."""
        self._others.append(matter)

    # ------------------------------------------------------------ appending

    def next(self) -> Entry | None:
        """What is to be appended now, if anything is, and nothing else is under way."""
        if self.open is None and (matter := self._matter()) is not None:
            self.open = Entry(self.last + 1, self.generation, self.nonce, matter)
            return self.open
        return None

    def _matter(self) -> Matter | None:
        """What the next entry is about: a stop before all else, then that the run is drained, then cuts and plans, then the rest."""
        if self.leaving:
            return Stopped(self.durable)
        if self.drains:
            self.drains, self.drained = False, True
            return Drained(self.durable)
        cuts = self._take_cuts()
        if cuts or self._contents:
            contents, self._contents = tuple(self._contents), []
            return Logged(cuts, contents)
        if not self._others:
            return None
        matter = self._others.pop(0)
        return Ended(self.durable) if isinstance(matter, Ended) else matter

    def _take_cuts(self) -> dict[Key, tuple[Cut, ...]]:
        """Those that may go into an entry now; the others stay."""
        given = sorted(self._cuts.items())
        self._cuts = {key: held for key, cuts in given if (held := [cut for cut in cuts if not self._may(cut)])}
        return {key: taken for key, cuts in given if (taken := tuple(cut for cut in cuts if self._may(cut)))}

    def _may(self, cut: Cut) -> bool:
        return self.until is None or cut.epoch <= self.until

    def awaits(self, number: int) -> bool:
        """An answer about this entry is awaited."""
        return self.open is not None and self.open.number == number

    def is_own(self, entry: Entry) -> bool:
        return (entry.generation, entry.nonce) == (self.generation, self.nonce)

    def appended(self) -> Entry:
        """The open entry is in."""
        entry, self.open = self.open, None
        assert entry is not None and entry.number == self.last + 1
        self.last = entry.number
        self._following.add(entry, self.under_way)
        self._pause_ms, self._corrupt, self.refused = RETRY_MS[0], 0, False
        if isinstance(entry.matter, Logged) and self.precise:
            self._in |= {key: cuts[-1].epoch for key, cuts in entry.matter.cuts.items()}
            self.rows |= named_rows(entry.matter)
            durable = least(self._in.values(), self.durable)
            assert durable >= self.durable
            self.durable = durable
        elif isinstance(entry.matter, Completed) and not self.precise:
            self.durable = entry.matter.epoch
        return entry

    def snapshot(self, made: Completed) -> Entry | None:
        """What all entries up to this checkpoint's add up to; None if they have to be read for that."""
        return self._following.snapshot(made)

    def gone_rows(self, oldest: int) -> frozenset[str]:
        """Objects with rows that no cut after this epoch names, the base of the oldest checkpoint that is kept. They are forgotten."""
        gone = frozenset([name for name, epoch in self.rows.items() if epoch <= oldest])
        self.rows = {name: epoch for name, epoch in self.rows.items() if epoch > oldest}
        return gone

    def programs(self, oldest: int) -> tuple[frozenset[str], frozenset[str]]:
        """See `Following`."""
        return self._following.programs(oldest)

    def pause_ms(self) -> float:
        """How long to wait before the store is asked again."""
        pause, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, RETRY_MS[1])
        return pause

    def is_corrupt(self) -> bool:
        """The open entry could not be used once more. True if that is enough."""
        self._corrupt += 1
        return self._corrupt >= CORRUPT_MAX


def least(epochs: Iterable[int], otherwise: int) -> int:
    return min(epochs, default=otherwise)
