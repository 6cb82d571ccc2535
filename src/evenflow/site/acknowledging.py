"""Acknowledging: what this site says of what it has received and processed, to whom and when, and what it hears (protocol A2, A5).

An acknowledgement travels with the next message to a peer. It is sent alone only if none has gone there for a while, or where nothing else
ever goes, or when rows wait too long here: then a peer's ingress is waiting too.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenflow.exchange.credit import Credit
from evenflow.exchange.section import Ack, Section
from evenflow.site.cohort import Cohort
from evenflow.site.ground import Ground
from evenflow.stream.ids import SiteId


class Acknowledging:
    """credit: what all sites have processed and have room for. heard: the newest acknowledgement of each peer.

    only_acks: peers to which nothing else is said.
    """

    def __init__(self, part: Ground, credit: Credit) -> None:
        self._part, self.credit = part, credit
        self.heard: dict[int, Ack] = {}
        self.only_acks: tuple[SiteId, ...] = ()
        self._received = [part.beginning.epoch] * len(part.layout.arcs)
        self._order: Sequence[Cohort] = ()
        self._timer_set = False

    def hear(self, peer: SiteId, ack: Ack) -> bool:
        """True if every site has now processed more, or granted more, than before."""
        self.heard[peer], received = ack, ack.received
        for cohort in self._part.cohorts.values():
            for stream, kept in cohort.retained.items():
                epoch = received[stream]
                if kept.acked.get(peer, epoch) < epoch:
                    kept.hear(peer, epoch)
        return self.credit.hear(peer, ack)

    def received(self, site: SiteId, stream: int) -> int:
        """Last epoch of the stream that another site has said to hold."""
        ack = self.heard.get(site)
        return self._part.beginning.epoch if ack is None else ack.received[stream]

    def begin_again(self, cohort: Cohort) -> None:
        """A cohort is new here that has less than the others: what was said of these is not true of all (B1)."""
        for stream, inbox in cohort.inboxes.items():
            self._received[stream] = min(self._received[stream], inbox.through)
        self.credit.received_more()

    def note_received(self) -> None:
        """Frames may have come in: they are acknowledged to their producers (A2), to this site's own at once."""
        part, news = self._part, False
        completed, order = part.feeding.completed, part.housing.order
        if order is not self._order:  # Cohorts have come, gone, or become one, so the least of them may have come further.
            self._order = order
            completed.update(part.housing.consumed)
        if not completed:
            return
        part.feeding.completed = set()
        for stream in part.housing.consumed:
            if stream not in completed:
                continue
            through = part.feeding.received(stream)
            if through > self._received[stream]:
                self._received[stream] = through
                news = True
                for cohort in part.housing.producing(stream):
                    cohort.retained[stream].hear(part.site, through)
        if news:
            self.credit.received_more()
            self._schedule()

    def change(self, only_acks: tuple[SiteId, ...]) -> None:
        """Plan or membership are new. Who listens from now on may wait for what was said long ago: nothing else need ever go there."""
        self.only_acks = only_acks
        if self.credit.has_news and self.credit.lacks(()):
            self._schedule()

    def tell(self, *, at_once: bool) -> None:
        """Say how far this site has come. at_once: without waiting for a message to travel with."""
        for peer in self.only_acks:
            # Nothing else goes there that this could travel with, and an ingress there may be waiting for it.
            self._part.outbox.begin(peer)
        if at_once:
            self._send(self._part.now_us)
        else:
            self._schedule()

    def put(self, peer: SiteId, section: Section, now_us: int) -> None:
        """Let it travel with this section, if the peer does not have the newest."""
        if self.credit.must_tell(peer):
            section.ack = self.credit.tell(peer, self._received, now_us)

    def _schedule(self) -> None:
        """Something that peers should know has changed. It travels with the next message, or alone after `ack_ms`."""
        if not self._timer_set and self.credit.listeners:
            self._timer_set = True
            self._part.set_timer("ack", self._part.options.ack_ms)

    def expire(self) -> None:
        """The time to wait for a message to travel with is over."""
        self._timer_set = False
        self._send(self._part.now_us - int(self._part.options.ack_ms * 1000))

    def _send(self, before_us: int) -> None:
        """Say it to the peers that were told nothing since `before_us`; for the others look again later: a message may be going there."""
        outbox = self._part.outbox
        for peer in self.credit.untold(before_us):
            outbox.begin(peer)
        if self.credit.lacks(outbox):
            self._schedule()
