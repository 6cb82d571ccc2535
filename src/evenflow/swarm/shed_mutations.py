"""Planted bugs of shedding: each is found by seeds that bring more than sites can do (`shed_cases`)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

SHEDDING: Final = (
    Mutation("dropped rows are not taken", "site.ingress:Ingress._cut", "opened, taken, *flags", "opened, taken - sum(dropped), *flags"),
    Mutation("dropped by their place in the epoch", "site.ingress:Ingress._cut", "positions(batch, log.taken)", "positions(batch, 0)"),
    Mutation("dropped by another place again", "site.ingress:Ingress._thinned_again", "positions(batch, log.taken)", "positions(batch, 0)"),
    Mutation(
        "followers drop again",
        "site.log:PartitionLog.accept",
        "self.append(record)",
        "self.append(record._replace(rows=record.rows.slice(1)) if record.keep and record.rows is not None else record)",
    ),
    Mutation("dropped rows count at every replica", "coordinator.ledger:Ledger.take", "if said.epoch in told or", "if"),
    Mutation("what arcs drop counts at every replica", "coordinator.thinnings:Thinnings.take", "< said.epoch", "!= -1"),
    Mutation("what the plan keeps is forgotten", "coordinator.effects:RunEffects._propose_beyond", "self.rounds.keeps,", "(),"),
    Mutation(
        "a plan leaves rows out that sites could do",
        "policy.shedding.live:FlowPlanner.network",
        "1.0 - self.aside.get(site, 0.0)",
        "0.5 - self.aside.get(site, 0.0)",
    ),
    Mutation("keeps act on receipt", "site.view:View.splits", "plan = self.plan_at(epoch)", "plan = self.plan"),
    Mutation("a restart keeps what the last plan did", "coordinator.beginning:_plans", "keeps=content.keeps", "keeps=contents[-1].keeps"),
    Mutation("the reflex begins while there is room", "site.reflex:Reflex.is_late", "shed.patience_us / 2", "shed.patience_us / 8"),
    Mutation("what one reader can do without counts for all", "query.units:_of_readers", "(*stream) if", "(*stream)[:1] if"),
    Mutation("a protected output misses rows", "query.units:_own", "and _of_sink(box).qos is None", "and False"),
    Mutation("windows that are parts come", "operator.gate:Gate.process", "if not tick.lost or not rows.count:", "if True:"),
    Mutation(
        "a gate goes by the last share",
        "operator.facts:Facts.losing",
        "return (*lost, Lost(before, missed, kept))",
        "return (Lost(before, missed, kept),)",
    ),
    Mutation("a gate forgets when nothing is left out", "operator.facts:Facts.losing", "return lost\n", "return ()\n"),
    Mutation("keys are whole when nothing is left out", "operator.facts:_since", "return lost\n    if lost", "return ()\n    if lost"),
    Mutation("rows beside a session do not count", "operator.gate:Gate.process", "starts - self.around_us", "starts"),
    Mutation("a gate is not copied", "site.arriving:Arriving._settle", 'facts.get("lost", ())', "()"),
    Mutation("rows that stay stand for themselves alone", "site.reflex:Reflex._thinned", "weighed(kept, of[stays], keep)", "kept"),
    Mutation("marks are merged the other way", "exchange.inbox:Gathered.add", "if kept < self.kept:", "if kept > self.kept:"),
)
"""Of rows that are left out. Not in the list, since most seeds come through, and tests of one function find each: that event time goes by
what was kept (operator/test_gate.py), that consumers go by the newest time of one source partition (exchange/test_inbox.py), and that a
restart forgets what windows have lost (site/test_restored_facts.py)."""
