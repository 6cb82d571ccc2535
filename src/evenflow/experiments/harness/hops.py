"""The same epochs hop by hop, one event after the other: what the arithmetic of `arrivals` is held against.

Nothing is shared with it but the trace. A replica sends an epoch on when it has heard it from all of its inputs, over every leg; a leg
delivers in order. Spare legs are not known here.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from evenflow.experiments.harness.distant_sites import STEP_S, Trace
from evenflow.policy.wide_area.legs import Leg, Replica


@dataclass(slots=True)
class Hops:
    """width_s: between two epochs, of which the first is due at `begin_s`. done_s: by replica, when it had finished each epoch."""

    trace: Trace
    legs: Sequence[Leg]
    width_s: float
    begin_s: float = 0.0
    done_s: dict[Replica, list[float]] = field(default_factory=dict)

    def run(self, epochs: int) -> dict[Replica, list[float]]:
        outputs: dict[Replica, list[Leg]] = {}
        needs: dict[Replica, set[str]] = {}
        for leg in self.legs:
            outputs.setdefault(leg.producer, []).append(leg)
            needs.setdefault(leg.consumer, set()).add(leg.producer.name)
        heard: dict[Replica, dict[int, set[str]]] = {replica: {} for replica in needs}
        last: dict[Leg, float] = {}
        # (when, turn, replica, epoch, from whom): the turn keeps events of one instant in the order in which they were sent.
        events: list[tuple[float, int, Replica, int, str]] = []
        turn = 0
        for source in outputs.keys() - needs.keys():
            for epoch in range(epochs):
                events.append((self.begin_s + epoch * self.width_s, turn, source, epoch, ""))
                turn += 1
        heapq.heapify(events)
        while events:
            now, _, replica, epoch, name = heapq.heappop(events)
            done = self.done_s.setdefault(replica, [])
            if replica in needs:
                if epoch < len(done):
                    continue  # A leg that is later than another one.
                heard[replica].setdefault(epoch, set()).add(name)
            while replica not in needs or heard[replica].get(len(done)) == needs[replica]:
                heard.get(replica, {}).pop(len(done), None)
                done.append(now)
                for leg in outputs.get(replica, ()):
                    delays = self.trace.delays_s(leg.producer.site, leg.consumer.site)
                    arrives = now + float(delays[min(int(now / STEP_S), delays.size - 1)])
                    last[leg] = max(last.get(leg, 0.0), arrives)
                    heapq.heappush(events, (last[leg], turn, leg.consumer, len(done) - 1, replica.name))
                    turn += 1
                if replica not in needs:
                    break
        return self.done_s
