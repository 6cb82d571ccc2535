"""What was left out of sources, and of arcs where the plan keeps less than all (D3), as a site tells it (D5)."""

from __future__ import annotations

from collections.abc import Callable

from evenflow.exchange.section import Record
from evenflow.plan.layout import Segment
from evenflow.site.facts import ArcThinned, Fact, RowsShed
from evenflow.site.log import PartitionLog
from evenflow.site.outcome import Outcome


def tell_thinned(tell: Callable[[Fact], None], segment: Segment, outcome: Outcome) -> None:
    """Tell of every arc of whose rows the plan kept less than all in an epoch."""
    for output, arc in enumerate(segment.outputs):
        for pieces in outcome.made(output):
            if (what := pieces.thinned) is not None:
                of = (what.offered.tobytes(), what.dropped.tobytes(), outcome.tick.stamp)
                tell(ArcThinned(arc, outcome.tick.epoch, what.keep, what.partitions, *of))


def tell_shed(tell: Callable[[Fact], None], log: PartitionLog, record: Record) -> None:
    """Tell of the next epoch of an ingress partition, of whose rows some were left out."""
    first, kept = log.taken_done, 0 if record.rows is None else record.rows.num_rows
    of = (record.epoch, first, record.taken, record.keep, kept, record.dropped, record.stamp)
    tell(RowsShed(log.segment, log.partition, *of))
