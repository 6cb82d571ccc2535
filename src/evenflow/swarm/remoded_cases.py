"""A small dataflow whose boxes all begin with one mode of availability, the source's too, and get others while the run goes on.

Without a checkpoint location that is amnesia at first. No row comes twice, what is missing was declared lost, and all rows have come that
were read behind the last epoch of which anything was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any, Final

import evenflow as ef
from evenflow.availability.mode import Mode
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.site.events import Event
from evenflow.swarm.cases import Case, Complaint, Parts, Row, Tables, counts_of, make_rows, micros_of, rows_of, source
from evenflow.swarm.mode_cases import NEVER_CLOSE, Branch, Declared, branch_of
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite

SINCE, REMODED = 11_110_000, 0.4
"""From that seed on so many of those with modes."""
ALONE: Final = 0.6
"""So often nothing else goes on."""
ROWS: Final = (120, 600, 1_500)
"""Most that a partition of the source has."""
MODES: Final = {
    True: (Mode.PAIRS, Mode.PASSIVE, Mode.UPSTREAM),
    False: (Mode.AMNESIA, Mode.AMNESIA, Mode.PAIRS, Mode.PASSIVE, Mode.UPSTREAM),
}
"""Whether there is a location: those that all boxes get. Which of these they can have depends on the boxes, and on what others have."""


def is_alone(seed: int) -> bool:
    """If all modes change, nothing else goes on beside that and faults: moves and divisions keep a change waiting."""
    return Random(f"other modes alone of seed {seed}").random() < ALONE


def is_remoded(seed: int) -> bool:
    """If it has modes, all change."""
    return seed >= SINCE and Random(f"other modes of seed {seed}").random() < REMODED


class Behind(Observer):
    """From which row on of each source partition nothing may be missing. lost: the last epoch of which anything was. _taken: by partition
    and epoch, how many rows have been read by its end."""

    def __init__(self) -> None:
        self.lost = 0
        self._world: Any = None
        self._taken: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def watch(self, world: Any) -> None:
        self._world = world
        world.observers = (*world.observers, self)

    def handled(self, site: SimSite, event: Event) -> None:
        for (segment, partition), log in site.part.leading.logs.items():
            if log.done and log.known and self._world.layout.segments[segment].kind == "ingress":
                self._taken[partition][log.done] = log.taken_done

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if any(copy.void for copy in driver.machine.plan.copies):
            self.lost = max(self.lost, driver.machine.plan.effective - 1)

    def first_rows(self, partitions: int) -> list[int | None]:
        """By partition; None where nobody has come so far."""
        lost = max([self.lost, *[said.last for _, said in self._world.coordinator.losses.voided]])
        later = [[taken for epoch, taken in self._taken[partition].items() if epoch >= lost] for partition in range(partitions)]
        return [min(taken, default=None) for taken in later]


def remoded(random: Random, *, located: bool) -> Case:
    """Branches of one source. located: it begins in pairs or with passive standby, and nothing may be missing."""
    parts = make_rows(random, random.randint(1, 4), random.choice(ROWS), 14)
    first = random.choice([Mode.PAIRS, Mode.PASSIVE]) if located else Mode.AMNESIA
    given: Any = str(first)
    flow = ef.Dataflow("modes")
    named = flow.source(source(parts, random), name="in").with_watermark("ts", random.choice(["1 microsecond", "1 second"]))
    stream = named.availability(given)
    closing, every = ("windows", "sessions"), ("windows", "sessions", *NEVER_CLOSE)
    names = random.choice([closing, every])  # Where states never close, there is no upstream backup of all.
    chosen = ["rows", *random.sample(names, random.randint(1, len(names)))]
    judged = (Mode.PAIRS, Mode.PASSIVE) if located else (Mode.AMNESIA,)
    branches = [branch_of(stream, name, first, judged, parts) for name in chosen]
    declared, behind = Declared(), Behind()

    def watch(world: Any) -> None:
        declared.watch(world)
        behind.watch(world)

    def judge(tables: Tables) -> Complaint:
        said = next((said for each in branches if (said := each.judge(tables[each.name], declared)) is not None), None)
        return said or (missing(parts, behind.first_rows(len(parts)), tables) if declared.anything else None)

    def judge_part(tables: Tables) -> Complaint:
        return next((said for each in branches if (said := Branch.judge_part(each, tables[each.name])) is not None), None)

    changing = dict.fromkeys(["*", "in", random.choice(random.choice(branches).boxes)], MODES[located])
    return Case(flow, {"in": counts_of(parts)}, judge, judge_part, cut=False, watch=watch, modes=changing, changes=0.9, deadly=True)


def missing(parts: Parts, first: list[int | None], tables: Tables) -> Complaint:
    """What lacks of rows, and of windows that have these only, which were read from these rows on."""
    begins = [len(part) if at is None else at for part, at in zip(parts, first, strict=True)]
    later = [row for part, at in zip(parts, begins, strict=True) for row in part[at:]]
    found = {(k, v, micros_of(ts)) for k, v, ts in rows_of(tables["rows"])}
    gone = [(k, v, ts) for ts, k, v in later if (k, v, ts) not in found]
    if gone:
        return f"rows: {len(gone)} that were read behind all that was declared lost are missing, such as {gone[:3]}"
    if "windows" not in tables:
        return None
    all_rows = _by_window([row for part in parts for row in part])
    counted = {(k, micros_of(at)): n for k, n, at in rows_of(tables["windows"])}
    short = [window for window, n in _by_window(later).items() if n == all_rows[window] != counted.get(window, 0)]
    return f"windows: {len(short)} lack rows that were read behind all that was declared lost, such as {short[:3]}" if short else None


def _by_window(rows: list[Row]) -> Counter[tuple[int, int]]:
    return Counter((k, ts // 500 * 500) for ts, k, _ in rows)
