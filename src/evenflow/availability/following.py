"""What a journal adds up to for the driver that appends to it, so that it need not read back what it has said itself (decision 62).

Entries are collected behind a snapshot of the oldest retained checkpoint's entry. What that snapshot says is known when the entry is
appended: what plans say, and the cuts that are durable by then and come after the checkpoint's epoch. Its epoch is one that nobody has
reached when the checkpoint begins, so cuts are kept from then on only. While none is under way, one cut of each ingress partition is
all that is kept, however long that lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evenflow.availability.entries import Completed, Entry, LeftOut
from evenflow.availability.retained import RETAINED
from evenflow.availability.standing import Standing


@dataclass(slots=True)
class Following:
    """_fold: of all entries, but with those cuts only that are kept. _forgotten: the last epoch of which a cut is not. _snapshots: of the
    newest checkpoints' entries, by (generation, number), oldest first; those of other drivers are not there."""

    _fold: Standing
    _forgotten: int = 0
    _snapshots: dict[tuple[int, int], Entry] = field(default_factory=dict)

    @staticmethod
    def of(known: Standing) -> Following:
        """known: what the entries so far add up to; it stays as it is."""
        cuts = {key: list(of) for key, of in known.cuts.items()}
        own = replace(
            known, contents=list(known.contents), cuts=cuts, begins=list(known.begins), rows=dict(known.rows),
            programs=list(known.programs), left_out=dict(known.left_out),
        )  # fmt: skip
        found = Following(own)
        found._forget(None)
        return found

    def add(self, entry: Entry, under_way: int | None) -> None:
        """This one has been appended. under_way: the epoch of the checkpoint that has begun and is not whole, None if there is none.

        Raises JournalCorrupt if the entry contradicts those before. Cost: of its cuts, whatever came before.
        """
        self._fold.add(entry)
        if isinstance(entry.matter, Completed):
            self._complete(entry.matter)
            under_way = None
        self._forget(under_way)

    def programs(self, oldest: int) -> tuple[frozenset[str], frozenset[str]]:
        """What is kept of versions: what epochs after the oldest retained checkpoint's need, and what only those before did."""
        needed = self._fold.programs_since(oldest)
        return needed, frozenset(name for _, name in self._fold.programs) - needed

    def snapshot(self, made: Completed) -> Entry | None:
        """That of this checkpoint's entry; None if another driver has appended it, or if cuts that it needs were not kept."""
        return self._snapshots.get(made.place)

    def _complete(self, made: Completed) -> None:
        if self._forgotten <= made.epoch:
            self._snapshots[made.place] = self._fold.snapshot()
            while len(self._snapshots) > RETAINED:
                del self._snapshots[next(iter(self._snapshots))]
        self._fold.checkpoints = [made]
        self._fold.rows = {name: epoch for name, epoch in self._fold.rows.items() if epoch > made.epoch}

    def _forget(self, under_way: int | None) -> None:
        """Cuts up to that epoch, or all, but for the last one of each partition: the next one has to follow on it."""
        for key, cuts in self._fold.cuts.items():
            count = 0
            while count < len(cuts) - 1 and (under_way is None or cuts[count].epoch <= under_way):
                count += 1
            if count:
                self._forgotten = max(self._forgotten, cuts[count - 1].epoch)
                gone = LeftOut.of(cuts[:count], self._fold.left_out.get(key))
                if gone is not None:
                    self._fold.left_out[key] = gone  # A snapshot is of a checkpoint behind all that is forgotten.
                del cuts[:count]
