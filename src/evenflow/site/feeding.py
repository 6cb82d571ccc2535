"""Feeding: whom this site's cohorts are fed by, and whom this site feeds (protocol A1-A4).

The consumer decides, alone and at any time: it asks a live replica of the producers for a stream from an epoch on. The producer sends
what it keeps and goes on as it produces. A site that feeds itself asks and answers in the same way, only without a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evenflow.errors import ProtocolError
from evenflow.exchange.inbox import Inbox
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.retention import Asked, Kept, Retention
from evenflow.exchange.section import Bundle, Mark, Resume
from evenflow.plan.layout import Layout
from evenflow.site.cohort import Cohort
from evenflow.site.view import View
from evenflow.stream.ids import NO_FEED, FeedNumber, SiteId


class Feeding:
    """cohorts: of this site, by (segment, number); shared with the part. unreachable: peers to which there is no link now. completed:
    streams of which a cohort has completed an epoch since who acknowledges looked last.
    portioned: what is told of each mark on a stream to a segment that takes portions of epochs (O1)."""

    def __init__(self, layout: Layout, view: View, outbox: Outbox, cohorts: Mapping[tuple[int, int], Cohort]) -> None:
        self._layout, self._view, self._outbox, self._cohorts = layout, view, outbox, cohorts
        self.unreachable: set[SiteId] = set()
        self.completed: set[int] = set()
        self.portioned: Callable[[Inbox, Mark], None] | None = None
        self._in_portions = {arc.id for arc in layout.arcs if layout.segments[arc.consumer].unordered}
        self._inboxes: dict[int, Inbox] = {}
        self._asked: dict[int, dict[tuple[SiteId, int], Asked]] = {arc.id: {} for arc in layout.arcs}
        self._numbers = 0

    # ------------------------------------------------------------ this site consumes

    def choose(self, cohort: Cohort, *, anew: bool = False, lost: int | None = None) -> None:
        """Be fed by whom the view says, if that has changed. anew: ask again even if not. lost: what this site sends may be lost."""
        for stream, inbox in cohort.inboxes.items():
            feeders = self._view.feeders(self._layout.arcs[stream].producer, self.unreachable)
            before = {feed.site: feed.producers for feed in inbox.feeds.values()}
            if anew or feeders != before or lost in before:
                self._ask(cohort, stream, inbox, feeders, [site for site in before if site not in feeders])

    def _ask(self, cohort: Cohort, stream: int, inbox: Inbox, feeders: dict[SiteId, tuple[int, ...]], former: list[SiteId]) -> None:
        for number in inbox.feeds:
            self._inboxes.pop(number, None)
        numbers = [FeedNumber(self._numbers + 1 + at) for at in range(len(feeders))]
        self._numbers += len(feeders)
        for site in former:
            self._request(site, Resume(stream, cohort.number, NO_FEED, 0, (), ()))
        for feed in inbox.assign(feeders, numbers):
            self._inboxes[feed.number] = inbox
        for feed in inbox.feeds.values():
            start = inbox.through + 1
            self._request(feed.site, Resume(stream, cohort.number, feed.number, start, feed.producers, cohort.partitions))

    def void(self, cohort: Cohort, stream: int, partitions: tuple[int, ...], until: int) -> None:
        """Nobody has what these producer partitions have sent behind what is here, up to an epoch (B4)."""
        inbox = cohort.inboxes[stream]
        inbox.void(partitions, until)
        former = [feed.site for feed in inbox.feeds.values()]
        feeders = self._view.feeders(self._layout.arcs[stream].producer, self.unreachable)
        self._ask(cohort, stream, inbox, feeders, [site for site in former if site not in feeders])
        if inbox.advance():
            self.completed.add(stream)

    def shrunk(self, cohort: Cohort) -> None:
        """Partitions have left the cohort: it wants no more rows for them, and whoever is fed by them asks somebody else."""
        self.choose(cohort, anew=True)
        for stream in cohort.retained:
            for asked in self._asked[stream].values():
                if not set(asked.resume.producers) <= set(cohort.partitions):
                    asked.ready = False

    def leave(self, cohort: Cohort) -> None:
        """The cohort is no more."""
        for stream, inbox in cohort.inboxes.items():
            self._ask(cohort, stream, inbox, {}, [feed.site for feed in inbox.feeds.values()])

    def link_up(self, peer: SiteId) -> None:
        """What was under way on the old link is asked for again; and the peer may be a better feeder than the present one."""
        self.unreachable.discard(peer)
        self._forget_asked(peer)
        for cohort in self._cohorts.values():
            self.choose(cohort, lost=peer)

    def link_down(self, peer: SiteId) -> None:
        """Ask another replica for what this peer fed, without anybody's leave (T2)."""
        self.unreachable.add(peer)
        self._forget_asked(peer)
        for cohort in self._cohorts.values():
            self.choose(cohort)

    def put(self, bundle: Bundle) -> None:
        inbox = self._inboxes.get(bundle.feed)
        if inbox is not None:  # Else a former feeder has not heard yet that it feeds no more (A4).
            inbox.put(bundle)

    def mark(self, mark: Mark) -> bool:
        """True if an epoch of a stream is complete now."""
        inbox = self._inboxes.get(mark.feed)
        if inbox is None:
            return False
        complete = inbox.mark(mark)
        if self.portioned is not None and inbox.stream in self._in_portions:
            self.portioned(inbox, mark)
        if not complete:
            return False
        self.completed.add(inbox.stream)
        return True

    def received(self, stream: int) -> int:
        """Last epoch of the stream that every cohort here holds: what is acked (A2)."""
        consumer = self._layout.arcs[stream].consumer
        return min([c.inboxes[stream].through for key, c in self._cohorts.items() if key[0] == consumer], default=0)

    def newest(self) -> int:
        """Last epoch of which all of some stream is here. What is incomplete is forgotten when its producer begins anew."""
        return max([inbox.through for cohort in self._cohorts.values() for inbox in cohort.inboxes.values()], default=0)

    # ------------------------------------------------------------ this site produces

    def _request(self, site: SiteId, resume: Resume) -> None:
        if site == self._view.site:
            self.answer(site, resume)
        elif site not in self.unreachable:
            self._outbox[site].resumes.append(resume)

    def answer(self, peer: SiteId, resume: Resume) -> None:
        """A consumer asks to be fed, or no longer."""
        asked = self._asked[resume.stream]
        if not resume.producers:
            asked.pop((peer, resume.cohort), None)
            return
        asked[peer, resume.cohort] = Asked(peer, resume, resume.start)
        for cohort in self._cohorts.values():
            if resume.stream in cohort.retained:
                cohort.retained[resume.stream].ask_again(peer, resume.start)
        self.catch_up(resume.stream)

    def catch_up(self, stream: int) -> None:
        """Send everybody what is kept and was not sent: after a new demand, or when copied partitions count as this site's own."""
        cohort = self._cohorts.get((self._layout.arcs[stream].producer, 0))
        if cohort is None:
            return
        retained = cohort.retained[stream]
        for asked in list(self._asked[stream].values()):
            self._send_since(asked, retained, cohort)

    def _send_since(self, asked: Asked, retained: Retention, cohort: Cohort) -> None:
        if not set(asked.resume.producers) <= set(cohort.partitions):
            return  # They are on their way into this cohort, or have left it and the consumer has not heard of it yet.
        for kept in retained.since(asked.next):
            if kept.epoch != asked.next:
                if (self._layout.arcs[asked.resume.stream].consumer, asked.site) in self._view.former:
                    return  # An old demand of a replica that has gone since; nothing is kept for it any more.
                raise ProtocolError(
                    f"site {asked.site} asks for stream {asked.resume.stream} from epoch {asked.next}, and it is kept from {kept.epoch}"
                )
            self._give(asked, kept)

    def produced(self, stream: int, retained: Retention, kept: Kept) -> None:
        """Send a new epoch of the live cohort to all that have asked for it, and keep it (A1)."""
        retained.keep(kept)
        behind = False
        for asked in list(self._asked[stream].values()):
            if asked.next == kept.epoch and asked.ready:
                self._give(asked, kept)
            else:
                behind = behind or asked.next < kept.epoch or not asked.ready
        if behind:
            self.catch_up(stream)

    def _give(self, asked: Asked, kept: Kept) -> None:
        asked.ready = True
        asked.next = kept.epoch + 1
        stream, feed = asked.resume.stream, asked.resume.feed
        bundles, mark = asked.bundles(kept, stream), kept.mark(feed, stream)
        if asked.site == self._view.site:
            for bundle in bundles:
                self.put(bundle)
            self.mark(mark)
            return
        section = self._outbox[asked.site]
        section.bundles.extend(bundles)
        section.marks.append(mark)

    def fed(self) -> set[SiteId]:
        """Sites that get marks of any stream from here."""
        return {site for asked in self._asked.values() for site, _ in asked}

    def _forget_asked(self, peer: SiteId) -> None:
        """A link is new or gone: its other end asks again for what it wants."""
        for asked in self._asked.values():
            for key in [key for key in asked if key[0] == peer]:
                del asked[key]
