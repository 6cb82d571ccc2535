"""Planted bugs of the protocol, which the swarm must find: what checks the checkers.

Each is a change of a few words in one function, applied to the running process only. A change whose words are not there any more raises, so
that the list keeps up with the code.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from evenflow.exchange.rules import RuleTable
from evenflow.swarm.amnesia_mutations import AMNESIA
from evenflow.swarm.asked_mutations import ASKED
from evenflow.swarm.cut_mutations import CONTENT
from evenflow.swarm.death_mutations import DEATHS
from evenflow.swarm.image_mutations import IMAGES
from evenflow.swarm.mutation import Mutation as Mutation
from evenflow.swarm.passive_mutations import PASSIVE
from evenflow.swarm.portion_mutations import PORTIONS
from evenflow.swarm.region_mutations import REGIONS
from evenflow.swarm.shed_mutations import SHEDDING
from evenflow.swarm.store_mutations import STORES
from evenflow.swarm.upstream_mutations import UPSTREAM

JOURNAL: Final = (
    Mutation("what was told is durable", "coordinator.journal:Journal.appended", "least(self._in.values(),", "least(self._told.values(),"),
    Mutation("ends open an epoch too far", "coordinator.appending:go_on", "OpenEnds(journal.durable)", "OpenEnds(journal.durable + 1)"),
    Mutation(
        "a publishing step goes ahead", "site.machine:SiteMachine._run_cohorts", "cohort.hosted.done >= self.durable and", "False and"
    ),
    Mutation(
        "cuts are told before all hold them",
        "site.log:PartitionLog.settled_cuts",
        "if after < epoch <= self.settled]",
        "if after < epoch]",
    ),
    Mutation(
        "a successor tells only what is new",
        "site.journalling:Journalling._last",
        "else self._part.durable",
        "else self._part.leading.logs[key].settled - 1",
    ),
    Mutation(
        "cuts go with their rows",
        "site.log:PartitionLog.emitted",
        "self.drop(safe)",
        "self.drop(safe); self.forget_cuts(min(safe, self.done))",
    ),
    Mutation(
        "a copied log lacks the cuts from before it",
        "site.log:PartitionLog.facts_done",
        "if epoch <= self.done]",
        "if epoch < 0]",
    ),
    Mutation(
        "what nobody knows of has failed",
        "coordinator.appending:read_later",
        "_wait(run, event.why)",
        "journal = _journal(run)\n    journal._others.insert(0, journal.open.matter)\n    journal.open = None\n    run.append_next()",
    ),
    Mutation("what is refused is in", "coordinator.appending:read_back", "run.act(ReadEntry(event.number))", "go_on(run, event)"),
    Mutation(
        "the entry of another driver is passed over",
        "coordinator.appending:give_way",
        "run.end(Fenced(FENCED.format(generation=event.entry.generation, own=_journal(run).generation)))",
        "journal = _journal(run)\n"
        "    journal._others.insert(0, journal.open.matter)\n"
        "    journal.open, journal.last = None, journal.last + 1\n"
        "    run.append_next()",
    ),
    Mutation("an entry replaces another", "world.sim.store:SimStore._put", "if name in self.objects:", "if False:"),
    Mutation("plans are not journalled", "coordinator.journal:Journal.note_plan", "if not content.same(self._content):", "if False:"),
    Mutation(
        "plans are journalled an epoch late",
        "coordinator.journal:Journal.note_plan",
        "content = Content.of(plan)",
        "content = Content(plan.effective + 1, plan.ranges, plan.weights, 0 if plan.version is None else plan.version.number)",
    ),
    Mutation("the run ends before its journal", "coordinator.effects:RunEffects.end_if_finished", "if self.journal is None:", "if True:"),
)
"""Of the journal: what is outside then would not follow from what is in the store. Not in the list: that newcomers do not hear what is
durable. They host nothing before an epoch that is to come, and hear when that one is."""

REPLAY: Final = (
    Mutation("the replay ends an epoch too soon", "site.replaying:Beginning.cut", "epoch <= self.durable", "epoch < self.durable"),
    Mutation("a replayed epoch is cut anew", "site.ingress:Ingress.close", "if self.closed <= self.beginning.durable:", "if False:"),
    Mutation("a replay follows its peers", "site.ingress:Ingress.may_close", "if epoch <= self.beginning.durable:", "if False:"),
    Mutation("a successor fills up what is replayed", "site.ingress:Ingress.lead", "if log.end < min(", "if False and log.end < min("),
    Mutation("stamps of a replay are forgotten", "site.ingress:Ingress._cut_again", "self._goes_behind(cut.stamp)", "pass"),
    Mutation(
        "a content acts an epoch late in a replay",
        "coordinator.beginning:_plans",
        "content.effective, first.placement",
        "content.effective + (number > 0), first.placement",
    ),
    Mutation(
        "a plan changes what is being replayed",
        "site.replaying:Beginning.first_of",
        "return before.effective if plan.settings == before.settings else",
        "return before.effective if True else",
    ),
    Mutation("what is divided in a replay lies apart", "coordinator.beginning:_plans", "together, place, modes)", "None, place, modes)"),
)
"""Of what a new generation does again (K10)."""

CHECKPOINTS: Final = (
    Mutation(
        "changes are since a checkpoint that was dropped",
        "state.lineages:Lineages.capture",
        "self._captured |= dict.fromkeys(partitions, point)",
        "self._captured |= dict.fromkeys(partitions, point)\n"
        "    self.since |= {p: Point(self.since[p].epoch, point.mark) for p in partitions if p in self.since}",
    ),
    Mutation("what was removed stays", "state.folding:_stage", "np.where(link.present, current[here], -1)", "current[here]"),
    Mutation("a foreign lineage goes on", "state.lineages:Lineages.forget", "of.pop(partition, None)", "pass"),
    Mutation(
        "restored rows are taken for where they were",
        "state.pages:PagedTable.capture_changes",
        "in self.lineages.laid.items() if",
        "in () if",
    ),
    Mutation("restored rows were laid again", "state.lineages:Lineages.complete", "0, {}, {}", "0, {}, self.laid"),
    Mutation("captured an epoch late", "site.capturing:Capturing.begin", "order.epoch, order.folder", "order.epoch + 1, order.folder"),
    Mutation("a base goes that others need", "availability.retained:needed", "in retained", "in retained[:0]"),
    Mutation(
        "whole without one that stores",
        "coordinator.checkpointing:Checkpointing.ask_journal",
        "found.owing or",
        "len(found.owing) > 1 or",
    ),
    Mutation(
        "whole before a sink has its epoch",
        "site.capturing:Capturing.go_on",
        "self._releasing.through(cohort.segment.id) < found.epoch",
        "False",
    ),
    Mutation(
        "what is missing is empty",
        "state.folding:_read",
        '_refuse(name, origin, partitions, f"{type(error).__name__}: {error}", "read")',
        "return {}",
    ),
    Mutation("a restart forgets event time", "site.restoring:_facts", "min(watermarks)", "-(2**62)"),
)
"""Of what checkpoints have, and what a restart takes from them (K3, K5, K8, K9). Not in the list: that a checkpoint which was dropped after
a site had stored it is added to by the next one there. What is stored is right, and is named."""

COLLECTING: Final = (
    Mutation(
        "entries go that a retained checkpoint's replay needs",
        "availability.collecting:_read",
        "if _is_of(entry, oldest):",
        "if standing.base > oldest.epoch:",
    ),
    Mutation("a snapshot forgets what plans say", "availability.standing:Standing.snapshot", "tuple(self.contents),", "(begun.content,),"),
    Mutation("a snapshot forgets cuts", "availability.standing:Standing.snapshot", "tuple(cuts) for", "tuple(cuts[:-1]) for"),
    Mutation("a snapshot forgets rows", "availability.standing:Standing.snapshot", "if epoch > made.epoch", "if epoch < made.epoch"),
    Mutation(
        "a stale driver appends where entries were collected",
        "availability.collecting:unneeded",
        "and number not in kept",
        "",
    ),
    Mutation(
        "entries go that only the newest snapshot stands for",
        "availability.collecting:unneeded",
        "number <= known.number and",
        "number <= known.number + 3 and",
    ),
)
"""Of entries of the journal that go (K8)."""

KEEPING: Final = (
    Mutation(
        "objects with rows go that a checkpoint needs",
        "coordinator.checkpointing:Checkpointing._sweep",
        "journal.gone_rows(oldest)",
        "journal.gone_rows(oldest + 1_000)",
    ),
    Mutation("cuts do not say where rows are", "site.ingress_queue:IngressQueue.take", "tuple(objects)", "()"),
)
"""Of rows that nobody gives again (J5)."""

STANDBY: Final = (
    Mutation("standby ignores the lease", "coordinator.standby:Standby._look", "self.silent_s > self.patience_s", "self.silent_s > 0"),
    Mutation("standby takes over what a person has stopped", "coordinator.standby:Standby._look", "if looked.stopped:", "if False:"),
    Mutation(
        "silence goes on over a sign of life",
        "coordinator.standby:Standby._look",
        "self._since_s is None or sign != self._sign",
        "self._since_s is None",
    ),
    Mutation("nobody looked, and that was silence", "coordinator.standby:Standby._look", "self._since_s += max(0.0, unseen_s)", "pass"),
    Mutation("who missed it begins at once", "coordinator.standby:Standby.handle", "self._since_s, self.silent_s = None, 0.0", "pass"),
    Mutation(
        "the lease of the one that lives does not count",
        "coordinator.standby:Standby._look",
        "self._theirs_s = looked.lease_s",
        "self._theirs_s = 0.0",
    ),
)
"""Of a driver that stands by (K14). Seeds draw one beside runs that are lost (`standbys`), and a store that is away for longer than the
lease; tests/coordinator/test_standby.py turns its clock itself, and finds each of these in a second."""

HELD: Final = (
    Mutation("other rows stay than those that did", "state.held_objects:_merged", "before[kept]", "before[: int(kept.sum())]"),
    Mutation("a row that has met a partner is as it was", "operator.join.join_side:_imprints", "(numbers << 1) | met", "numbers << 1"),
    Mutation(
        "rows are compared with a checkpoint that was dropped",
        "state.held_changes:HeldChanges.capture_changes",
        "self._known[point.epoch][p] for",
        "self._known[max(self._known)][p] for",
    ),
)
"""Of rows that are held in no table, and of which a checkpoint has what changes (K3)."""

# Not in the list, since nobody could tell them from the protocol: records or words of an old term that count. A leader only changes by a
# death, and the membership that names the successor fences the dead one in the same breath.
MUTATIONS: Final = (
    Mutation(
        "a row that comes is in no list",
        "operator.changes.by_key:ByKey._installed",
        "link(np.ascontiguousarray(slots),",
        "self._links[slots[:1]] = -1\n    link(np.ascontiguousarray(slots[1:]),",
    ),
    Mutation(
        "ack before holding",
        "site.feeding:Feeding.received",
        "return min([c.inboxes[stream].through for",
        "return 1 + min([c.inboxes[stream].through for",
    ),
    Mutation("eviction on the first ack", "exchange.retention:Retention.settled", "return min(", "return max("),
    Mutation("no fencing", "site.view:View.is_dead", "return site not in", "return False and site not in"),
    Mutation("resume off by one", "site.feeding:Feeding._ask", "start = inbox.through + 1", "start = inbox.through + 2"),
    Mutation("a copy without what its consumers still lack", "site.arriving:Arriving._is_level", "if received < since:", "if False:"),
    Mutation("a plan applied on receipt", "site.view:View.plan_at", "if newest.effective <= epoch", "if True"),
    Mutation(
        "membership waits for an epoch",
        "site.effects:Effects.change_membership",
        "        self._stirred = True\n",
        "        self._stirred = True\n"
        "        waits = self.__dict__.setdefault('_waits', {})\n"
        "        if self.started and waits.setdefault(event.membership.number, self.closed) + 1 > self.closed:\n"
        "            self.tell(CopyFailed(-1, 'later'))\n"
        "            return\n",
    ),
    Mutation(
        "partitions on disk sleep though time passes",
        "site.spilling:Spilling.begin",
        "timeless=hosted.facts.timeless",
        "timeless=True",
    ),
    Mutation("room by arrival", "exchange.credit:Credit.advance", "(self._window if room else 1)", "(self._window if room else 0)"),
    Mutation("no window", "exchange.credit:Credit.advance", "finished + (self._window if room else 1)", "finished + 1_000"),
    Mutation(
        "the leader emits before its followers hold",
        "site.leading:Leading._settle",
        "log.settle(min([log.end, *[role.heard.get(site, 0) for site in needed]]))",
        "log.settle(log.end)",
    ),
    Mutation(
        "the successor ignores its log",
        "site.log:PartitionLog.lead",
        "self.matched = self.end",
        "self._forget_after(self.settled); self.matched = self.end",
    ),
    Mutation(
        "followers truncate on a new term",
        "site.log:PartitionLog.new_term",
        "self.matched = self.settled",
        "self.matched = self.settled; self._forget_after(self.settled)",
    ),
    Mutation(
        "the shortcut of two with three",
        "site.leading:Leading.change",
        "pair = len(view.plan.placement[key[0]][key[1]]) <= 2",
        "pair = True",
    ),
    Mutation(
        "a copy captured one epoch late",
        "site.departing:Departing.capture",
        "cohort.hosted.done != self._view.plan.effective - 1",
        "cohort.hosted.done != self._view.plan.effective",
    ),
    Mutation(
        "a joining replica feeds",
        "site.view:View.feeders",
        "live = self.live(block)",
        "live = tuple(s for s in block.sites if s in self.membership.sites)",
    ),
    Mutation(
        "a joining replica is waited for",
        "site.audience:Audience._tell_whom",
        "self._credit.set_sites(view.active(),",
        "self._credit.set_sites(tuple(sorted({s for x in layout.segments for s in view.present(x.id)})),",
    ),
    Mutation(
        "a copy is level by words of long ago",
        "site.audience:Audience._tell_whom",
        "sorted(arriving.union(needing))",
        "needing",
    ),
    Mutation("a reader is given no epochs without rows", "site.releasing:Releasing.finish", "(reads or mark)", "mark"),
    Mutation("a joining egress releases", "site.releasing:Releasing.pass_on", "if cohort.number:", "if False:"),
    Mutation("the driver takes every copy", "coordinator.first_copy:FirstCopy.accept", "if epoch <= self.newest:", "if not epoch:"),
    Mutation("a stale feed is accepted", "site.feeding:Feeding._ask", "self._numbers += len(feeders)", "self._numbers += 0"),
    Mutation(
        "watermarks are not merged",
        "exchange.inbox:Gathered.add",
        "if watermark < self.watermark:",
        "if True:",
    ),
    Mutation(
        "promises are forgotten with a membership",
        "site.effects:Effects.change_membership",
        "self.view.change(event.membership)",
        "self.view.change(event.membership); self.ingress.hold_from = None",
    ),
    Mutation(
        "dropped copies count as live",
        "plan.membership:Membership.live",
        "or c.number in self.dropped",
        "",
    ),
    Mutation("promises are not kept", "site.effects:Effects.promise", "self.ingress.hold_from = event.plan.effective", "pass"),
    Mutation(
        "a plan is committed with the first promise",
        "coordinator.plans:note_promise",
        "if not run.promised >= set(run.sites):",
        "if not run.promised:",
    ),
    Mutation(
        "a new link asks for nothing",
        "site.effects:Effects.resume_link",
        "self.feeding.link_up(event.peer)",
        "self.feeding.unreachable.discard(event.peer)",
    ),
    Mutation("a successor leads in the old term", "coordinator.leaders:Leaders.successors", "after.number)", "leader.since)"),
    Mutation(
        "a successor reads from the last epoch that is out",
        "site.effects:Effects._take_roles",
        "self.open_source(*key, log.taken,",
        "self.open_source(*key, log.taken_done,",
    ),
    Mutation(
        "copied partitions come without their kept frames",
        "site.cohort:Cohort.absorb",
        "retained.merge(other.retained[stream])",
        "pass",
    ),
    Mutation(
        "a new leader waits for nobody until asked",
        "site.leading:Leading._settle",
        "needed = {*role.members, *role.heard} - {role.leader}",
        "needed = {*role.heard} - {role.leader}",
    ),
    Mutation(
        "a follower claims one record more than it holds",
        "site.leading:Leading.hear_records",
        "self.logs[key].matched, asks=False",
        "self.logs[key].matched + 1, asks=False",
    ),
    Mutation("followers do not keep promises", "site.housing:Housing.may_begin", "if hold is not None and", "if False and"),
    Mutation(
        "a state that is faster than its plan is lost",
        "site.arriving:Arriving.install",
        "self._states[event.copy] = State(event.state, len(event.state))  #",
        "pass  #",
    ),
    Mutation("the target of a dropped copy is waited for", "site.view:View.followers", "c.number in self.membership.dropped", "False"),
    Mutation(
        "a new leader is not told what was closed before",
        "site.audience:Audience._tell_whom",
        "for peer in newly:",
        "for peer in ():",
    ),
    Mutation(
        "early words of a newcomer are lost", "exchange.credit:Credit.hear", "self._early[peer] = (ack.granted, ack.processed)", "pass"
    ),
    Mutation(
        "a round does not wait for recovery",
        "coordinator.balancing:is_calm",
        "not (run.under_way() or run.recovery.missing or is_wanted(run))",
        "True",
    ),
    Mutation("rounds end where something comes first", "coordinator.balancing:balance", "run.rounds.disturbed()", "return"),
    Mutation(
        "two collections at once", "coordinator.effects:RunEffects._move", "elif self.rounds.moving and not self.collecting:", "else:"
    ),
    Mutation("a round moves what is pinned", "coordinator.rounds:Rounds.hosting", "pinned = set(self.pinned)", "pinned = set()"),
    Mutation("what waits moves though it is pinned", "coordinator.moving:Moving._obstacle", "and not move.asked", "and False"),
    Mutation("a round uses spares", "coordinator.rounds:Rounds.hosting", "*idle[max(0, len(idle) - self.spares) :], ", ""),
    Mutation("a round fills a site that is being emptied", "coordinator.rounds:Rounds.hosting", ", *self._recovery.leaving", ""),
    Mutation("a round goes by what the statistics say is where", "policy.hosting:Placement.hosted", "site in", "True or site in"),
    Mutation("a site leaves before it is empty", "coordinator.fleet:Fleet._look", "is_empty(machine, SiteId(site))", "True"),
    Mutation(
        "what is under way to a site does not keep it",
        "coordinator.fleet:Fleet._look",
        "is_empty(machine, SiteId(site))",
        "site not in machine.view.active()",
    ),
    Mutation("nobody hears that a link is back", "site.peers:Peers._connect", "else [TellUp(index)]", "else []"),
    Mutation("the runs do not hear of a death", "coordinator.fleet:Fleet._let_go", "for run in list(self.runs):", "for run in ():"),
    Mutation("state stays where its key groups were", "site.hosted:Hosted.run", "self.divide(work.groups)", "self.groups = work.groups"),
    Mutation(
        "a successor does not know what of Spark's tasks has entered",
        "site.machine:SiteMachine.entered",
        "return self.leading.logs[segment, partition].entered()",
        "return Entered()",
    ),
    Mutation(
        "followers lack what all held", "site.effects:Effects.hear", "self.leading.confirm(peer, section) if section.settled else ()", "()"
    ),
    Mutation("a restart begins where nobody asked for", "coordinator.beginning:_plans", ", place, modes)", ", modes=modes)"),
    *JOURNAL,
    *REPLAY,
    *CHECKPOINTS,
    *COLLECTING,
    *KEEPING,
    *STORES,
    *STANDBY,
    *HELD,
    *SHEDDING,
    *CONTENT,
    *ASKED,
    *PORTIONS,
    *DEATHS,
    *REGIONS,
    *AMNESIA,
    *UPSTREAM,
    *PASSIVE,
    *IMAGES,
)


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """The bug is there while this is open."""
    module_name, path = mutation.where.split(":")
    module = importlib.import_module(f"evenflow.{module_name}")
    *owners, name = path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    old = textwrap.dedent(mutation.old) if not mutation.old.startswith(" ") else mutation.old[4:]
    new = mutation.new[4:].replace("\n    ", "\n") if mutation.old.startswith(" ") else mutation.new
    if source.count(old) != 1:
        raise LookupError(f"mutation {mutation.name!r}: {mutation.old!r} stands {source.count(old)} times in {mutation.where}")
    scope: dict[str, Any] = {}
    exec(compile(source.replace(old, new), f"<{mutation.name}>", "exec"), vars(module), scope)
    changed = scope[name]
    tables = _rule_tables()
    setattr(owner, name, changed)
    for table in tables:
        table.swap(original, changed)
    try:
        yield
    finally:
        setattr(owner, name, original)
        for table in tables:
            table.swap(changed, original)


def _rule_tables() -> list[RuleTable[Any]]:
    """The tables name the functions that they call: a changed one must be changed there too."""
    from evenflow.coordinator.rules import RULES as COORDINATOR
    from evenflow.site.rules import RULES as SITE

    return [SITE, COORDINATOR]


def find(mutation: Mutation, seeds: range, begun: Callable[[int], None] = lambda seed: None) -> tuple[int, str] | None:
    """The first seed that finds the bug, and what it says; None if none does. Seeds that cannot show it are not run. begun: is told of each
    that is."""
    from evenflow.swarm.regional import run_regional
    from evenflow.swarm.run import run_seed
    from evenflow.swarm.showing import able

    run = run_regional if mutation.regional else run_seed
    with planted(mutation):
        for seed in able(mutation, seeds):
            begun(seed)
            failure = run(seed).failure
            if failure is not None:
                return seed, failure
    return None
