"""Planted bugs of stores that are full or damaged, and of sources that have lost rows (J3, J5, K4, K6, K10)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

STORES: Final = (
    Mutation(
        "a full store is asked without a pause", "coordinator.journal:Journal.pause_ms", "min(2 * self._pause_ms, RETRY_MS[1])", "0.1"
    ),
    Mutation(
        "who has not enough rows replays with those", "site.ingress:Ingress._lacks_rows", "if count is None and queue.ended:", "if False:"
    ),
    Mutation(
        "who is not kept replays with what comes",
        "site.ingress:Ingress._cut_again",
        "0 if key in self._unkept else queue.rows_before(",
        "queue.rows_before(",
    ),
    Mutation("what a restart goes on without is not said", "coordinator.losses:Losses.restart", "if rows:", "if False:"),
    Mutation("what was altered is believed", "state.folding:_read", "name not in proven and digest_of(data) != digest", "False"),
)
