"""Portioning: where a sink takes first come, first served, each partition's rows of an epoch are released as they come (protocol O1).

An egress segment without order of its own has nothing to do with rows but to pass them on. So when a feeder has sent all of an epoch, what
its producer partitions put there goes to the sink, and nobody waits for those whose feeder has died, moves, or is slow. The epoch is
released when it is whole, without rows: that is when it can be committed.

Each partition's epochs go out in order, and once from here: a feeder sends them in order, and what a new feeder sends again is known by
(stream, partition, epoch). That another replica has released them too is the taker's business, who knows them by the same.
"""

from __future__ import annotations

from evenflow.exchange.inbox import Inbox, merge
from evenflow.exchange.portion import Portion, rows_of
from evenflow.exchange.section import Mark
from evenflow.site.events import Release
from evenflow.site.ground import Ground
from evenflow.site.releasing import Releasing


class Portioning:
    """Told of each mark on a stream to a segment that is `unordered`."""

    def __init__(self, part: Ground, releasing: Releasing) -> None:
        self._part, self._releasing = part, releasing

    def came(self, inbox: Inbox, mark: Mark) -> None:
        """A feeder has marked an epoch: its partitions' rows are released, unless they have been."""
        found = inbox.portion(mark)
        if found is None:
            return
        producers, batches = found
        cohort = next(each for each in self._part.cohorts.values() if each.inboxes.get(inbox.stream) is inbox)
        given, segment = cohort.portioned, cohort.segment
        fresh = tuple([p for p in producers if given.get((inbox.stream, p), 0) < mark.epoch])
        for producer in fresh:
            given[inbox.stream, producer] = mark.epoch
        if not (fresh and batches) or mark.epoch <= self._releasing.through(segment.id):
            return
        rows = merge(batches)
        if len(fresh) < len(producers):
            rows = rows_of(rows, fresh)
        if rows.num_rows:
            assert segment.sink is not None
            portion = Portion(inbox.stream, fresh)
            self._releasing.pass_on(cohort, Release(segment.id, segment.sink, mark.epoch, rows, mark.opened, False, portion))
