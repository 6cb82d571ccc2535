"""A source that brings more than sites can do behind it, into two outputs that can do without some of it: a plan says which share of each
arc's rows goes on (D3).

What comes out must be what batch makes of the rows that entered in each epoch, less those that the plan of that epoch leaves out, to the
row; all that was left out is told once; and what a protected output needs is all there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Tell
from evenflow.exchange.shedding import class_of
from evenflow.exchange.thinning import Thinner
from evenflow.plan.layout import Layout
from evenflow.site.events import PlanCommitted
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.swarm.cases import Case, Complaint, Tables, differ, rows_of, too_much
from evenflow.swarm.shed_cases import read_whole
from evenflow.swarm.thinned_checkers import Needed
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite

COLUMNS: Final = ("key", "value")
BEGIN_US: Final = 1_000_000
SECONDS: Final = 0.4
DURABLE: Final = frozenset({-1})
"""Who did what an earlier generation had made durable."""


@dataclass
class Thinnings(Observer):
    """What entered, and what plans kept of it. sinks: by arc out of the source, the output that it leads to alone. worlds: the run's
    generations. done: by (epoch, source partition), who did it and the rows that came to the arcs. keeps: by (arc, epoch).
    further: outputs of which rows are left out behind these arcs, too: of them it is known what may come, and no more. begun: by
    (generation, plan), what was to be kept when it was committed."""

    sinks: tuple[str, ...]
    whole: tuple[str, ...] = ()
    worlds: list[Any] = field(default_factory=list)
    done: dict[tuple[int, int], tuple[frozenset[int], pa.RecordBatch]] = field(default_factory=dict)
    keeps: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    further: set[str] = field(default_factory=set)
    begun: dict[tuple[int, int], Any] = field(default_factory=dict)

    def watch(self, world: Any) -> None:
        """A generation begins: what the one before did behind what was durable is done anew."""
        durable = world.coordinator.beginning.durable
        self.done = {at: (DURABLE, rows) for at, (_, rows) in self.done.items() if at[0] <= durable}
        self.keeps = {at: keep for at, keep in self.keeps.items() if at[1] <= durable}
        self.worlds.append(world)
        plan = world.coordinator.plan
        self.begun[len(self.worlds), plan.number] = plan.settings.keeps  # Nobody commits the one that it begins with.
        world.observers = (*world.observers, self, Needed(world))

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """D3: every plan carries what the last round had decided when it was committed. Who comes later is told it as it is."""
        keeps = self.worlds[-1].coordinator.rounds.keeps
        for action in actions:
            if isinstance(action, Tell) and isinstance(action.message, PlanCommitted):
                plan = action.message.plan
                said = self.begun.setdefault((len(self.worlds), plan.number), keeps)
                assert plan.settings.keeps == said, f"plan {plan.number} keeps {plan.settings.keeps}, and the last round decided {said}"

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        segment, epoch = work.hosted.segment, work.tick.epoch
        members = self.worlds[-1].coordinator.sites
        if site.world is not self.worlds[-1] or site.index not in members or outcome.error is not None:
            return  # What a generation does that is over is nobody's business.
        if segment.kind != "ingress":
            self.further |= {sink for split in work.splits if split.keep for sink in self.layout.thins[split.arc.id].outputs}
            return
        for partition, rows in work.arrived:
            by, before = self.done.get((epoch, partition), (frozenset(), rows))
            same = before.num_rows == rows.num_rows
            assert same or not by & {*DURABLE, *members}, (
                f"epoch {epoch} of source partition {partition} has other rows at site {site.index}"
            )
            self.done[epoch, partition] = ((by if same else frozenset()) | {site.index}, rows)
        for arc, split in zip(segment.outputs, work.splits, strict=True):
            assert self.keeps.setdefault((arc, epoch), split.keep) == split.keep, (
                f"site {site.index} keeps {split.keep} of arc {arc} in epoch {epoch}, and another one {self.keeps[arc, epoch]}"
            )

    @property
    def entered(self) -> dict[tuple[int, int], pa.RecordBatch]:
        """By (epoch, source partition), the rows that came to the arcs. What a site did alone that is dead since, nobody has taken."""
        members, newest = self.worlds[-1].coordinator.sites, dict[int, int]()
        for (epoch, partition), (by, _) in self.done.items():
            if by.intersection(members):
                newest[partition] = max(epoch, newest.get(partition, 0))
        return {at: rows for at, (_, rows) in self.done.items() if at[0] <= newest.get(at[1], at[0])}

    @property
    def layout(self) -> Layout:
        found: Layout = self.worlds[-1].layout
        return found

    def answers(self) -> dict[str, list[tuple[Any, ...]]]:
        """What each sink must have. Also that what was told is what was left out."""
        layout = self.layout
        arcs = [arc for arc in layout.arcs if layout.segments[arc.producer].kind == "ingress"]
        found: dict[str, list[tuple[Any, ...]]] = {}
        for arc, sink in zip(arcs, self.sinks, strict=True):
            rows = []
            for (epoch, partition), batch in sorted(self.entered.items(), key=lambda item: item[0]):
                there = batch.select(arc.schema.names)
                keep = self.keeps[arc.id, epoch]
                assert not keep or sink not in self.whole, f"rows are left out that the protected {sink!r} needs"
                if keep:
                    thinner = Thinner.of(arc.id, layout.thins[arc.id], arc.schema)
                    of = class_of(thinner.thin.column, thinner.thin.classes, there) if len(keep) > 1 else np.zeros(there.num_rows, np.int64)
                    hashes = thinner.hashes(there, np.full(there.num_rows, partition, np.int32), epoch)
                    there = there.filter(pa.array(hashes < np.array(keep, np.uint64)[of]))
                rows += list(zip(*there.select(list(COLUMNS)).to_pydict().values(), strict=True))
            found[sink] = rows
        return found

    def judge(self, tables: Tables) -> Complaint:
        answers = self.answers()
        for sink, table in tables.items():
            assert sink not in self.whole or sink not in self.further, f"rows are left out that the protected {sink!r} needs"
            if said := (too_much if sink in self.further else differ)(rows_of(table), answers[sink]):
                return said
        return None

    def judge_part(self, tables: Tables) -> Complaint:
        answers = self.answers()
        return next((said for sink, table in tables.items() if (said := too_much(rows_of(table), answers[sink]))), None)


def thinned(random: Random) -> Case:
    """Two outputs, of which one is worth more. Of a quarter of the runs it is protected."""
    partitions, rows = random.randint(1, 4), random.randint(600, 2_000)
    made = ef.sources.generator(int(rows / SECONDS), 50, rows=rows, partitions=partitions, seed=random.randrange(1_000)).begun(BEGIN_US)
    worth: dict[str, Any] = {"value": ("value", [(0, 0.1), (1000, 1)])} if random.random() < 0.4 else {}
    latency = [(f"{random.choice([20, 80])} ms", 1), ("400 ms", 0)]
    protected = random.random() < 0.25
    flow = ef.Dataflow("thinned")
    stream = flow.source(made, name="in")
    dear = None if protected else ef.qos(latency=latency, **worth)
    stream.repartition().select(*COLUMNS).to(ef.sinks.memory("dear"), name="dear", qos=dear)
    stream.repartition().select(*COLUMNS).to(ef.sinks.memory("cheap"), name="cheap", qos=ef.qos(latency=latency, weight=0.2, **worth))
    counts = [made.open(p, partitions) for p in range(partitions)]
    told = Thinnings(("dear", "cheap"), ("dear",) if protected else ())
    return Case(flow, {"in": [read_whole(each).num_rows for each in counts]}, told.judge, told.judge_part, cut=False, watch=told.watch)


__all__ = ["Thinnings", "thinned"]
