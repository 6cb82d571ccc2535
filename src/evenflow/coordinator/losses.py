"""What amnesia has cost a run (availability.md, B4): partitions that began anew, and frames that were read as empty, as it is known.

Where no replica of a partition lives and its mode is amnesia, a plan lets it begin anew from an epoch on. What it had is gone: its
state, and its frames behind what each consumer holds, up to that epoch. Every consumer says which it reads as empty. A source that was
read there goes on behind all that anybody has heard of, so that no row comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from evenflow.plan.layout import Layout
from evenflow.plan.plan import Begins, Copy, Plan
from evenflow.site.facts import Voided
from evenflow.site.replaying import Beginning
from evenflow.stream.ids import SiteId

Key = tuple[int, int]


@dataclass(slots=True)
class Losses:
    """anew: partitions that began anew with nothing, by segment, each time counted. voided: what each site has said. frames: epochs of
    producer partitions that were read as empty, of all consumer sites together. rows: that were made for partitions of which nobody was
    there to receive them. unkept: rows by source that nobody gives again, and that were not kept where the run has a location: the run
    has gone on without those that came after its newest checkpoint."""

    layout: Layout
    anew: dict[int, int] = field(default_factory=dict)
    voided: list[tuple[SiteId, Voided]] = field(default_factory=list)
    frames: int = 0
    rows: int = 0
    unkept: dict[str, int] = field(default_factory=dict)
    _heard: dict[Key, Begins] = field(default_factory=dict)
    _said: dict[Key, int] = field(default_factory=dict)
    _empty: dict[tuple[SiteId, int, int], tuple[int, int]] = field(default_factory=dict)

    def restart(self, beginning: Beginning) -> list[tuple[str, dict[str, Any]]]:
        """The run goes on. What is said of each source that has lost rows by that, and its facts."""
        said = []
        for segment in self.layout.segments:
            source = segment.source or ""
            cuts = {key: found for key, found in beginning.cuts.items() if key[0] == segment.id}
            if not cuts or self.layout.sources[source].kept:
                continue
            rows = sum(self._newly_lost(key, int(beginning.logs.get(key, (0,))[0]), beginning.through(key)) for key in cuts)
            if rows:
                self.unkept[source] = self.unkept.get(source, 0) + rows
                text = (
                    f"{rows:,} rows of source {source!r}, in epochs {beginning.epoch + 1} to {beginning.durable}, are lost with what was "
                    "on its way: nobody gives them again, and they are not kept (durability='none'). No state has them from here on"
                )
                said.append((text, {"source": source, "rows": rows, "epoch": beginning.epoch + 1, "through": beginning.durable}))
        return said

    def _newly_lost(self, key: Key, first: int, through: int) -> int:
        """Rows of an ingress partition between two positions, without those that an earlier restart went on without."""
        first, self._said[key] = max(first, self._said.get(key, 0)), max(through, self._said.get(key, 0))
        return max(0, through - first)

    def remember(self, before: Losses) -> None:
        """Those of the generation before, of sources that are not kept."""
        self.unkept, self._said = dict(before.unkept), dict(before._said)

    def hear(self, heard: Iterable[Begins]) -> None:
        """What a site has heard of ingress partitions that have lost their logs."""
        for begins in heard:
            key = (begins.segment, begins.partition)
            if key not in self._heard or begins.epoch > self._heard[key].epoch:
                self._heard[key] = begins

    def begins(self, plan: Plan) -> Plan:
        """The plan, with where the sources go on of ingress partitions that begin anew."""
        if not any(copy.void and self.layout.segments[copy.segment].kind == "ingress" for copy in plan.copies):
            return plan
        return replace(plan, copies=tuple(self._with_begins(copy) for copy in plan.copies))

    def _with_begins(self, copy: Copy) -> Copy:
        if not copy.void or self.layout.segments[copy.segment].kind != "ingress":
            return copy
        return replace(copy, begins=tuple(self._heard.get((copy.segment, p), Begins(copy.segment, p)) for p in copy.partitions))

    def begun(self, copy: Copy, plan: Plan) -> tuple[str, dict[str, Any]]:
        """Partitions begin anew: what is said of it, and its facts."""
        segment, count = self.layout.segments[copy.segment], len(copy.partitions)
        self.anew[segment.id] = self.anew.get(segment.id, 0) + count
        text = (
            f"{count} partitions of {segment.name} begin anew at site {copy.target} from epoch {plan.effective} on: what they had is lost"
        )
        details = {"segment": segment.name, "partitions": list(copy.partitions), "epoch": plan.effective}
        if copy.begins:
            text += f", and {segment.source} goes on behind all that was heard of it"
            details["positions"] = [begins.taken for begins in copy.begins]
        return text, details

    def take(self, site: SiteId, said: Voided) -> None:
        """A consumer reads frames as empty."""
        self.voided.append((site, said))
        for partition in said.partitions:
            # What begins anew may be lost before its consumers are through with what was lost before: they say that again. And of two
            # consumers at a site one may be behind the other.
            key = (site, said.stream, partition)
            first, through = self._empty.get(key, (said.first, said.first - 1))
            self.frames += max(0, said.last - max(through, said.first - 1)) + max(0, min(first - 1, said.last) - said.first + 1)
            self._empty[key] = min(first, said.first), max(through, said.last)
