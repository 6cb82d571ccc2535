"""Rules of the protocol that no row carries out alone: what they say happens within the effects of several rows, or in what settles.

Each has a function that is the rule: whoever wants to know whether it is kept reads that one, and a planted bug in its module shows
that the swarm would notice. The generated tables in docs/ name them behind the rows.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Within:
    """id: rule of the protocol. where: module and function in it, such as `exchange.inbox:Inbox.put`. why: one sentence for the table."""

    id: str
    where: str
    why: str

    def find(self) -> Any:
        """The function. Raises ImportError or AttributeError if it is not there any more."""
        module, path = self.where.split(":")
        found: Any = importlib.import_module(f"evenflow.{module}")
        for name in path.split("."):
            found = getattr(found, name)
        return found


WITHIN: Final = (
    Within("E4", "exchange.outbox:Outbox.take", "one section per peer and tick carries all streams, replicas, acknowledgements and closes"),
    Within("E7", "exchange.credit:Credit", "every dataflow has its own: unrelated queries share sites, not back-pressure"),
    Within("E8", "operator.order:Order.process", "behind the watermark, rows leave by event time and tie-break"),
    Within("E9", "stream.cut:Running.epochs", "a row's epoch is counted by the greatest number of its partition so far"),
    Within("E10", "sources.cut:CutReader.read", "an epoch is whole by a row of a later one, or by the reader's promise"),
    Within("E11", "stream.cut:Grid.stamp", "the stamp of an epoch that is cut by content is the time at which it ends by the grid"),
    Within("A1", "exchange.retention:Retention.evict", "a frame goes when every live consumer replica holds it, and not before"),
    Within("A4", "exchange.inbox:Inbox.put", "a frame of a feed that is over, or of an epoch that its feed has marked, is dropped"),
    Within("A5", "exchange.credit:Credit.advance", "room is granted up to an epoch; the oldest unfinished one always has it"),
    Within("A5", "site.ingress:Ingress.may_close", "only an ingress waits for room: it does not close the next epoch"),
    Within("A6", "site.content:ContentIngress.may_close", "epochs that are cut by content wait for room alone: they cannot grow"),
    Within("T1", "coordinator.detector:Detector._judge", "a site is dead that neither the coordinator nor its peers hear any more"),
    Within("T3", "plan.placement:first_plan", "at the start replicas lie mirrored, so that one death disturbs one of them"),
    Within("C1", "site.arriving:Arriving.begin", "from its first epoch on, the plan's copies have cohorts that are fed like the others"),
    Within("C2", "site.departing:Departing.capture", "at the end of the epoch before the plan, its state is taken for a copy"),
    Within("C5", "coordinator.moving:Moving._by_source", "a move is copied from a replica at a site that it does not relieve"),
    Within("I1", "site.leading:Leading._settle", "an epoch's rows may go out when all live members hold its record"),
    Within("I3", "site.journalling:Journalling._tell", "what all live members hold is told, so that a restart cuts the same epochs"),
    Within("I4", "site.content:OwnLeading.change", "each replica reads the source and leads itself: no records, no followers"),
    Within("S1", "state.pages:PagedTable.capture", "a partition's state is frozen where it lies: later writes copy what they change"),
    Within(
        "S2", "operator.user.store:KeyedStore.commit", "what user code keeps is in the engine's pages, and in them once its epoch is over"
    ),
    Within("D1", "exchange.shedding:staying", "which rows stay follows from their places and worth, and what is kept"),
    Within("D2", "site.ingress:Ingress._cut", "the leader decides, its record has the kept rows, and takes those that were left out along"),
    Within("D3", "exchange.thinning:Thinner.thinned", "what the plan keeps of an arc is chosen before rows are routed, by what they are"),
    Within("D4", "operator.gate:Gate.process", "a window or session comes if no epoch in which it could get rows has left its unit out"),
    Within("D6", "site.reflex:Reflex.is_late", "until a row has waited for half of what an answer may take, all enter"),
    Within("D6", "policy.shedding.live:FlowPlanner._wanted", "a plan leaves rows out only where more is offered than can be done"),
)
"""In the order of the protocol. An id may have rows as well."""
