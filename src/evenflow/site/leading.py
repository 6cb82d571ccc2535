"""Leading and following: the logs of the partitions that have a replica here and a leader (protocol I1).

These are ingress partitions, and those with a box whose answers cannot be made again (N1): there the leader has the box answer.

The leader cuts epochs and sends each one's record to the followers; nobody emits an epoch before all live members hold its record. On the
leader's death the coordinator names the successor, whose log is the truth. A follower asks its leader for what comes after what it is
certain of, in every new term and after every new link; a leader counts on a follower from the moment it has asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from evenflow.availability.mode import Mode
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.section import Held, Record, Section, Settled
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Begins, Plan
from evenflow.site.ingress import Ingress
from evenflow.site.log import PartitionLog
from evenflow.site.outcome import Outcome
from evenflow.site.view import View
from evenflow.stream.ids import FIRST_TERM, NO_TERM, SiteId, Term

NEVER: Final = Begins(-1, -1)
Key = tuple[int, int]
"""segment, ingress partition"""


@dataclass(slots=True)
class Role:
    """This site's part in one ingress partition. members: sites that must hold a record before it is emitted, this one included.

    followers: everybody but the leader who gets records. pair: there are two replicas at most, so that a follower that holds a record knows
    that all do. heard: per follower that has asked in this term, the last epoch that it holds. enrolled: the leader counts on this site.
    """

    leader: SiteId
    term: Term
    members: tuple[SiteId, ...]
    followers: tuple[SiteId, ...]
    pair: bool
    heard: dict[SiteId, int] = field(default_factory=dict)
    enrolled: bool = False


class Leading:
    """logs: by (segment, ingress partition). ingress: where led partitions wait for their rows. keeps_cuts: logs keep them until they are
    durable (J5). promised: the plan that may come next, if this site has promised one."""

    def __init__(self, layout: Layout, view: View, ingress: Ingress, outbox: Outbox, *, keeps_cuts: bool = False) -> None:
        self._layout, self._view, self.ingress, self._outbox = layout, view, ingress, outbox
        self.logs: dict[Key, PartitionLog] = {}
        self.promised: Plan | None = None
        self._started = False
        self._keeps_cuts = keeps_cuts
        self._roles: dict[Key, Role] = {}
        self._early: dict[tuple[Key, SiteId], Held] = {}
        self._witnessed: dict[Key, Begins] = {}
        self._stands: dict[Key, tuple[int, int]] = {}

    # ------------------------------------------------------------ who does what

    def start(self) -> list[PartitionLog]:
        """Everybody is reachable. Returns the logs of sources that this site leads."""
        self._started = True
        for key, role in self._roles.items():
            if role.leader != self._view.site:
                self._ask(key)
        return [self.logs[key] for key, _ in self.led() if self._cuts(key)]

    def _cuts(self, key: Key) -> bool:
        """Who leads it cuts what a source gives."""
        return self._layout.segments[key[0]].kind == "ingress"

    def change(self) -> list[PartitionLog]:
        """Plan or membership are new. Returns the logs that this site leads from now on, whose sources it must open."""
        view, promoted = self._view, []
        formers: dict[Key, SiteId] = {}
        self.ingress.change(view.membership.sites)
        for key, log in self.logs.items():
            leader = view.leader(*key)
            role = self._roles.get(key)
            members, followers = view.members(*key), view.followers(*key)
            pair = len(view.plan.placement[key[0]][key[1]]) <= 2
            if role is not None and (role.leader, role.term) == leader:
                if role.pair and not pair and leader.site == view.site:
                    # From now on followers wait for this word; some did already when the last record was settled here.
                    for site in role.heard:
                        self._outbox[site].settled.append(Settled(*key, role.term, log.settled))
                role.members, role.followers, role.pair = members, followers, pair
                role.heard = {site: epoch for site, epoch in role.heard.items() if site in followers}
            else:
                self._roles[key] = Role(leader.site, leader.since, members, followers, pair)
                if leader.site == view.site:
                    log.lead()
                    if self._cuts(key):
                        promoted.append(log)
                        if role is not None and role.leader in view.membership.sites:
                            formers[key] = role.leader
                else:
                    log.new_term()
                    if self._started:
                        self._ask(key)
            self._settle(key)
        for (_, peer), held in list(self._early.items()):
            self.hear_held(peer, held)
        for log in promoted:
            segment = self._layout.segments[log.segment]
            source, former = self._layout.sources[segment.source or ""], formers.get((log.segment, log.partition))
            self.publish(self.ingress.lead(segment, log, source.position, former, kept=source.kept))
        return promoted

    def add(self, log: PartitionLog) -> None:
        """Follow one more partition."""
        if self._keeps_cuts:
            log.cuts = {}
        self.logs[log.segment, log.partition] = log

    def forget(self, log: PartitionLog) -> None:
        key = (log.segment, log.partition)
        if self.logs.get(key) is log:
            del self.logs[key]
            self._roles.pop(key, None)

    def forget_cuts(self, durable: int) -> None:
        """The journal has the cuts up to this epoch."""
        for log in self.logs.values():
            log.forget_cuts(durable)

    def enrolled(self, key: Key) -> bool:
        """The leader of the partition waits for this site before it emits."""
        role = self._roles[key]
        return role.enrolled or role.leader == self._view.site

    def led(self) -> Iterator[tuple[Key, Role]]:
        return ((key, role) for key, role in self._roles.items() if role.leader == self._view.site)

    def journalled(self) -> Iterator[tuple[Key, Term]]:
        """The logs of which this site tells the journal, and since when."""
        return ((key, role.term) for key, role in self.led())

    # ------------------------------------------------------------ without followers

    def bear_witness(self, logs: Iterable[PartitionLog], epoch: int, fed: set[SiteId]) -> None:
        """Tell whoever gets anything from here, and a peer or two if nobody does, where the source stands: where no follower knows, those
        who have the rows must, or a successor would read them again. logs: of led partitions that have none. fed: sites that get frames."""
        peers = fed - {self._view.site}
        if not peers:
            others = [site for site in self._view.membership.sites if site != self._view.site]
            after = [site for site in others if site > self._view.site]
            peers = set((after + others)[:2])
        said = list[Record]()
        for log in logs:
            assert log.done == epoch, f"{log.segment, log.partition} has emitted {log.done}, and bears witness of {epoch}"
            said.append(_witness(log))
        for peer in sorted(peers):
            self._outbox[peer].records += said

    def bear_witness_to(self, peer: SiteId) -> None:
        """It asks for frames, and may not know of their rows: it has not asked before, or what was said then is lost with a link."""
        if said := [_witness(log) for log in self._alone() if log.done]:
            self._outbox[peer].records += said

    def stands(self) -> tuple[Begins, ...]:
        """Where sources stand that have no followers but who is being copied to, those that are read here and those that were heard of, as
        far as that has not been asked before, also in epochs without new rows: whoever gives rows to a sink tells the driver first, since
        peers may not be reached, or die with it, and what begins anew must begin behind what the sink has."""
        if not self._forgets_any():
            return ()
        logs, led = self._alone(), {key for key, _ in self.led()}
        known = [_emitted(log) for log in logs]
        mode = self._view.plan.mode  # In pairs a follower may hold what no epoch will have.
        others = [log for key, log in self.logs.items() if self._cuts(key) and mode(key[0]) is Mode.AMNESIA and key not in led]
        followed = [_heard(log) for log in others if log.stands]
        moved: dict[Key, Begins] = {}
        for begins in (*known, *followed, *self._witnessed.values()):
            key, stands = (begins.segment, begins.partition), (begins.epoch, begins.taken)
            if stands > self._stands.get(key, (0, 0)):
                self._stands[key], moved[key] = stands, begins
        return tuple(moved.values())

    def _alone(self) -> list[PartitionLog]:
        """Of ingress partitions that are led here, and of which nobody else writes down anything."""
        if not self._forgets_any():
            return []
        return [self.logs[key] for key, _ in self.led() if self._is_forgotten(key)]

    def _is_forgotten(self, key: Key) -> bool:
        """With its leader, if nobody is told."""
        return self._cuts(key) and self.forgets(key[0])

    def forgets(self, segment: int) -> bool:
        """Nobody need write down anything of a segment: already when a plan is promised that says so, since who leads may die before it
        hears that the plan is committed."""
        promised = self.promised
        return Mode.AMNESIA in (self._view.plan.mode(segment), Mode.PAIRS if promised is None else promised.mode(segment))

    def _forgets_any(self) -> bool:
        return Mode.AMNESIA in (*self._view.plan.modes, *(() if self.promised is None else self.promised.modes))

    def witness(self, records: Iterable[Record]) -> None:
        """Records of partitions of which there is no log here; and where a source stands of which nobody may write down anything. Who is
        about to follow it has a log and may get no record any more."""
        for record in records:
            key = (record.segment, record.partition)
            heard = key not in self._roles or record.term == NO_TERM
            if heard and record.epoch > self._witnessed.get(key, NEVER).epoch:
                self._witnessed[key] = Begins(*key, record.epoch, record.taken, record.ended, record.stamp)

    def remember(self, log: PartitionLog) -> None:
        """A log leaves: what it knows of the source may be all that anybody does if its leader dies before it has told more."""
        key = (log.segment, log.partition)
        if log.stands and log.end > self._witnessed.get(key, NEVER).epoch:
            self._witnessed[key] = _heard(log)

    def newest_witnessed(self) -> int:
        """Last epoch of a source that is known here though nobody follows it."""
        return max([begins.epoch for begins in self._witnessed.values()], default=0)

    def promise(self, plan: Plan) -> tuple[Begins, ...]:
        """It may be the next one. Returns what has been heard here of ingress partitions that begin anew with it; and where those stand
        that are led here and of which nobody need write down anything any more: so far only followers knew, if there are any."""
        told = {key for key, _ in self.led() if self._is_forgotten(key)}
        self.promised = plan
        return (*self.heard_of(plan), *[_emitted(log) for log in self._alone() if log.done and (log.segment, log.partition) not in told])

    def heard_of(self, plan: Plan) -> tuple[Begins, ...]:
        """Of ingress partitions that begin anew with a plan, what has been heard here."""
        keys = [(copy.segment, partition) for copy in plan.copies if copy.void for partition in copy.partitions]
        return tuple(self._witnessed[key] for key in keys if key in self._witnessed)

    # ------------------------------------------------------------ leader

    def close(self, now_us: int) -> None:
        self.publish(self.ingress.close(self.logs, now_us))

    def catch_up(self, now_us: int) -> None:
        """Cut again what is replayed of partitions that are led late."""
        while records := self.ingress.catch_up(now_us):
            self.publish(records)

    def answer(self, segment: int, outcome: Outcome) -> None:
        """What a box has answered here is the record of partitions that this site still leads (N1)."""
        rows, tick = dict(outcome.effects), outcome.tick
        led = [p for p in outcome.asked if (role := self._roles.get((segment, p))) is not None and role.leader == self._view.site]
        of = (FIRST_TERM, 0, tick.stamp, outcome.opened, 0, False, False)
        wanted = [p for p in led if self.logs[segment, p].end == tick.epoch - 1]
        self.publish([Record(segment, p, tick.epoch, *of, rows.get(p)) for p in wanted])

    def publish(self, records: list[Record]) -> None:
        """Log what has been made here, and send it to the followers."""
        for record in records:
            key = (record.segment, record.partition)
            role, log = self._roles[key], self.logs[key]
            record = record.by(role.term)
            log.append(record)
            log.lead()
            for site in role.heard:
                self._outbox[site].records.append(record)
            self._settle(key)

    def hear_held(self, peer: SiteId, held: Held) -> bool:
        """A follower holds records, or asks for them. True if something may be emitted now. Words of another term are too late."""
        key = (held.segment, held.partition)
        role = self._roles.get(key)
        self._early.pop((key, peer), None)
        if role is None or role.leader != self._view.site or role.term != held.term:
            return False
        if peer not in role.followers:
            if not self._view.is_dead(peer):
                self._early[key, peer] = held  # It knows the plan that makes it a follower, this site does not yet.
            return False
        log = self.logs[key]
        if held.asks:
            role.heard[peer] = held.epoch
            section = self._outbox[peer]
            section.records.extend([record._replace(term=role.term) for record in log.since(held.epoch)])
            section.settled.append(Settled(*key, role.term, log.settled))
        elif peer in role.heard:
            role.heard[peer] = max(role.heard[peer], held.epoch)
        return self._settle(key)

    def _settle(self, key: Key) -> bool:
        """What all live members hold may be emitted, and nothing else (I1). True if that is more than before."""
        role, log = self._roles[key], self.logs[key]
        before = log.settled
        if role.leader == self._view.site:
            # A joining follower is counted on as soon as it has asked: if this site dies it may be the only one that knows.
            needed = {*role.members, *role.heard} - {role.leader}
            log.settle(min([log.end, *[role.heard.get(site, 0) for site in needed]]))
            if log.settled > before and not role.pair:
                for site in role.heard:
                    self._outbox[site].settled.append(Settled(*key, role.term, log.settled))
            log.drop(self.safe(key))
        elif role.pair:
            log.settle(log.matched)
        return log.settled > before

    def safe(self, key: Key) -> int:
        """Last epoch whose record nobody will ask for."""
        role, log = self._roles[key], self.logs[key]
        if role.leader != self._view.site:
            return log.settled
        return min([role.heard.get(site, 0) for site in role.followers], default=log.settled)

    # ------------------------------------------------------------ follower

    def hear_records(self, peer: SiteId, records: list[Record]) -> bool:
        """Records of a leader. True if something may be emitted now. Those of another term are too late."""
        touched: dict[Key, Role] = {}
        for record in records:
            key = (record.segment, record.partition)
            role = self._roles.get(key)
            if role is not None and role.leader == peer and role.term == record.term:
                self.logs[key].accept(record)
                touched[key] = role
        more = False
        for key, role in touched.items():
            self._outbox[peer].held.append(Held(*key, role.term, self.logs[key].matched, asks=False))
            more = self._settle(key) or more
        return more

    def confirm(self, peer: SiteId, section: Section) -> list[Key]:
        """A leader has answered what this site asked for: what the log here has before the answer is right.

        The answer begins with the first record that the leader still has. It has dropped all earlier ones, which it does
        only when all live members hold them. So those that are here are the leader's own. Returns the partitions whose log
        here lacks some of these: nobody can send them any more, so the copy that brings the partition is too late.
        """
        lacking: list[Key] = []
        for settled in section.settled:
            key = (settled.segment, settled.partition)
            role = self._roles.get(key)
            if role is None or role.leader != peer or role.term != settled.term:
                continue
            given = [r.epoch for r in section.records if (r.segment, r.partition, r.term) == (*key, settled.term)]
            if not self.logs[key].confirm(min([settled.epoch, *[epoch - 1 for epoch in given]])):
                lacking.append(key)
        return lacking

    def hear_settled(self, peer: SiteId, settled: Settled) -> bool:
        key = (settled.segment, settled.partition)
        role = self._roles.get(key)
        if role is None or role.leader != peer or role.term != settled.term:
            return False
        role.enrolled = True
        before = self.logs[key].settled
        self.logs[key].settle(settled.epoch)
        return self.logs[key].settled > before

    def _ask(self, key: Key) -> None:
        role = self._roles[key]
        self._outbox[role.leader].held.append(Held(*key, role.term, self.logs[key].matched, asks=True))

    def link_up(self, peer: SiteId) -> None:
        """What was under way is lost: its follower asks again. Until then its leader counts on it as before (it may hold more by now)."""
        for key, role in self._roles.items():
            if role.leader == peer:
                self._ask(key)


def _heard(log: PartitionLog) -> Begins:
    """Where its source stands, as far as it is known here."""
    return Begins(log.segment, log.partition, log.end, log.taken, log.ended, log.stamp)


def _emitted(log: PartitionLog) -> Begins:
    """Where its source stands at the end of what was emitted."""
    return Begins(log.segment, log.partition, log.done, log.taken_done, log.ended_done, log.stamp_done)


def _witness(log: PartitionLog) -> Record:
    """Where its source stands at the end of what was emitted, and no rows. It is of no term: a follower takes it for no record."""
    stamp = log.stamp_done
    return Record(log.segment, log.partition, log.done, NO_TERM, 0, stamp, stamp, log.taken_done, False, log.ended_done, None)


def newest_term(section: Section) -> int:
    """The newest term that a section speaks of; 0 if it speaks of none."""
    if not (section.records or section.held or section.settled):
        return 0
    said: list[Record | Held | Settled] = [*section.records, *section.held, *section.settled]
    return max([word.term for word in said])
