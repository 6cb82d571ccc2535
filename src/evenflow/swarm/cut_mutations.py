"""Planted bugs of cuts by content (protocol E9 to E11, I4, A6)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

CONTENT: Final = (
    Mutation(
        "raw times in place of their running maximum",
        "stream.cut:Running.epochs",
        "np.maximum.accumulate(np.maximum(numbers, self.greatest))",
        "np.maximum(numbers, self.grid.origin)",
    ),
    Mutation(
        "an epoch is promised a width early",
        "stream.cut:Grid.closed_by",
        "max(0, promise - self.origin)",
        "max(0, promise - self.origin + self.width)",
    ),
    Mutation("one's own clock as the stamp", "site.content:ContentIngress._cut_epoch", "self.grid.stamp(epoch)", "self.last_close_us"),
    Mutation("an epoch closes that is not whole", "site.content:ContentIngress.may_close", "queue.lacks(epoch)", "queue.lacks(epoch - 1)"),
    Mutation(
        "a copy that is behind is cut with the others",
        "site.content:ContentIngress.close",
        "if logs[key].end == self.closed - 1",
        "",
    ),
)
