"""Replaying: what a run does again when it goes on where an earlier one stood (availability.md, K10).

An earlier generation of the run has given out what follows from its journal: which rows form which epoch, and what the plans of those
epochs say. So the epochs after the base are cut exactly as they were, from rows that sources give once more, under plans with the same
content. Whatever comes out of them is the same in every row, and who has it already drops it by its address.

This file decides nothing about plans, and knows no journal: a `Beginning` is a value that the coordinator makes of where the journal
stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.availability.entries import Cut, Key, LeftOut, Piece
from evenflow.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a generation of a run begins.

    epoch: the base: everything begins after it, with the state as of its end. 0: with nothing, and there is no state to wait for.
    plans: in order, under which the epochs after it are processed; they differ in ranges and weights only, and the first one acts from the
    epoch after the base at the latest. A run begins under the last of them. Who comes later is given a plan, and needs none before it.
    cuts: by ingress partition, of the epochs from `epoch` + 1 to `durable`, ascending and without gaps: they are cut so again.
    logs: by ingress partition, what `PartitionLog.facts_done` said of it at the end of the base; none where that is nothing.
    pieces: of the checkpoint at the base. generation: which one begins, 0 where nothing is journalled.
    left_out: by ingress partition, rows of its source that were in the epochs up to the base. Sites need not know.
    """

    epoch: int = 0
    plans: tuple[Plan, ...] = ()
    cuts: Mapping[Key, tuple[Cut, ...]] = field(default_factory=dict)
    logs: Mapping[Key, Sequence[Any]] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    generation: int = 0
    left_out: Mapping[Key, LeftOut] = field(default_factory=dict)
    durable: int = field(init=False)
    """The last epoch that is cut as before. No end has given out a later one."""

    def __post_init__(self) -> None:
        last = [cuts[-1].epoch if cuts else self.epoch for cuts in self.cuts.values()]
        object.__setattr__(self, "durable", min(last, default=self.epoch))

    def cut(self, key: Key, epoch: int) -> Cut | None:
        """How this epoch is cut at an ingress partition, if that is given."""
        return self.cuts[key][epoch - self.epoch - 1] if self.epoch < epoch <= self.durable else None

    def through(self, key: Key) -> int:
        """Where the source of an ingress partition is at the end of what is cut as before; 0 if nothing is."""
        cut = self.cut(key, self.durable) if self.durable > self.epoch else None
        return 0 if cut is None else cut.taken

    def first_of(self, plan: Plan, before: Plan) -> int:
        """The first epoch from which a plan may act that follows on another: what is replayed has its content already, whatever is moved or
        copied meanwhile."""
        return before.effective if plan.settings == before.settings else max(before.effective, self.durable + 1)

    def before(self, plan: Plan) -> tuple[Plan, ...]:
        """The plans that act before this one, for a site that begins with the run."""
        return self.plans[:-1] if self.plans and plan.number == self.plans[-1].number else ()


FROM_NOTHING: Final = Beginning()
"""A run that has no past."""


class CannotReplay(Exception):
    """Rows of an ingress partition that were in an epoch cannot be put into it again. key, epoch: of which one."""

    def __init__(self, key: Key, cut: Cut, before: int, why: str) -> None:
        super().__init__(
            f"partition {key[1]} cannot be replayed: epoch {cut.epoch}, which was given out before, goes from position {before} to "
            f"{cut.taken}, and {why}. Let the source keep its rows until a checkpoint covers them, or give the dataflow a new location"
        )
        self.key, self.epoch = key, cut.epoch
