"""Replicas that disagree are caught (protocol E3): what they have put out is compared every so many epochs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenflow.errors import NondeterministicBox
from evenflow.plan.layout import Layout
from evenflow.site.facts import Digests
from evenflow.stream.ids import SiteId


class Comparison:
    """Digests of the newest epochs, by segment. A site is compared with all that spoke before it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[int, dict[int, tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]] = {}

    def take(self, site: SiteId, said: Digests) -> NondeterministicBox | None:
        """The error that ends the run, if another replica has put out something else."""
        epochs = self._known.setdefault(said.segment, {})
        segment = self._layout.segments[said.segment]
        if said.epoch not in epochs:
            epochs[said.epoch] = (np.zeros(segment.partitions, np.uint64), np.full(segment.partitions, -1, np.int64))
            for old in sorted(epochs)[:-8]:
                del epochs[old]
            if said.epoch not in epochs:
                return None
        values, told_by = epochs[said.epoch]
        partitions = np.array(said.partitions, np.int64)
        new = np.frombuffer(said.values, np.uint64)
        wrong = partitions[(told_by[partitions] >= 0) & (values[partitions] != new)]
        if wrong.size:
            partition, first = int(wrong[0]), said.epoch - 63
            box = next((step.box for step in segment.steps if step.user_code), segment.steps[-1].box if segment.steps else segment.name)
            text = (
                f"partition {partition} of segment {segment.name!r} put out different rows at sites {int(told_by[partition])} and {site}, "
                f"in an epoch between {max(1, first)} and {said.epoch}. Results must be a function of state and input alone: "
                "no clock, no randomness, no order of sets or dicts from outside."
            )
            return NondeterministicBox(box, said.epoch, text, "gave different results at two replicas")
        values[partitions], told_by[partitions] = new, site
        return None
