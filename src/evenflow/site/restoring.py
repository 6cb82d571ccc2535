"""Restoring: what the cohorts of a run that begins behind a checkpoint want from the store, and how it is read (K9).

Each replica reads for itself, beside the loop, and then goes on as if its state had come from another site. Its digests have been found
to be right, and it does not leave the process, so it is not packed as a copy's is. It is read some partitions at a time, all steps of
each, and taken in meanwhile: what is in memory beside the tables is a few parts of it, and the objects' bytes. So what is beyond the
budget goes to disk as it comes (M1). Until all is there its cohort is not ready: rows come and wait, and nobody else notices. What goes
along with the state (event time, digests) comes from the journal, so a segment without state needs no store. An object that is missing
or altered ends the run, and whoever has begun it tries an older checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from evenflow.availability.entries import Piece
from evenflow.errors import CheckpointCorrupt
from evenflow.operator.facts import together
from evenflow.plan.layout import Segment
from evenflow.site.bases import Revive
from evenflow.site.chains import Link, merged
from evenflow.site.cohort import Cohort
from evenflow.site.events import RestoreState, StateArrived, StatePartRead, StateRead, StateUnread, TransferFailed
from evenflow.state.folding import Chain, Get, chains_of, folded, folded_together
from evenflow.state.objects import Origin
from evenflow.state.page_snapshot import State
from evenflow.state.transfer import pack
from evenflow.stream.epoch import NO_WATERMARK, Lost


def wanted(cohorts: Iterable[Cohort], pieces: Sequence[Piece], epoch: int) -> list[RestoreState]:
    """What is to be read for the cohorts that have no state yet. pieces: of the checkpoint at the end of that epoch."""
    orders = []
    for cohort in cohorts:
        if cohort.ready or cohort.number:
            continue
        here, steps = set(cohort.partitions), cohort.segment.steps
        mine = [piece for piece in pieces if piece.segment == cohort.segment.id and here.intersection(piece.partitions)]
        objects = tuple((stored, steps[stored.step].box) for piece in mine for stored in piece.objects)
        orders.append(RestoreState(cohort.segment.id, cohort.segment.name, epoch, cohort.partitions, tuple(mine), objects))
    return orders


def reviving(order: Revive, segment: Segment) -> RestoreState:
    """What is to be read for a copy that has a base (B1)."""
    objects = tuple((stored, segment.steps[stored.step].box) for piece in order.pieces for stored in piece.objects)
    return RestoreState(segment.id, segment.name, order.epoch, order.partitions, order.pieces, objects, order.copy)


def read_for_copy(order: RestoreState, get: Get) -> StateArrived | TransferFailed:
    """Carry out `RestoreState` for a copy, in any thread."""
    states: dict[tuple[int, int], State] = {}
    found = read(order, get, lambda part: states.update(part.states))
    if isinstance(found, StateUnread):
        return TransferFailed(order.copy, found.why)
    return StateArrived(order.copy, pack(found.facts, [(partition, step, bytes(state)) for (partition, step), state in states.items()]))


FROM_NOTHING: Final[Mapping[str, Any]] = {"epoch": 0, "watermark": NO_WATERMARK, "lost": [], "committed": 0, "logs": {}, "digests": []}
"""What goes along with the state before the first epoch, which is none."""


def read(order: RestoreState, get: Get, say: Callable[[StatePartRead], None]) -> StateRead | StateUnread:
    """Carry out `RestoreState`, in any thread. get: an object's bytes, or OSError. say: is given each part. What is asked of the store, and
    digests, come before the first one."""
    try:
        facts = _facts(order)
        boxes = {stored.step: box for stored, box in order.objects}
        links: dict[int, list[Link]] = {}
        rows: dict[int, int] = {}
        found: list[list[tuple[Origin, Mapping[int, Chain]]]] = []
        for piece in order.pieces:
            found.append([])
            for step, chains, origin in _chains_in(piece, order.epoch, order.partitions, boxes, get):
                links.setdefault(step, []).extend(_links(piece, step, chains))
                rows[step] = rows.get(step, 0) + _expected(piece, step, chains)
                found[-1].append((origin, chains))
        for steps in found:
            for states in folded_together(steps):
                say(StatePartRead(order.segment, states, rows))
        return StateRead(order.segment, facts, {step: merged(of) for step, of in links.items()})
    except CheckpointCorrupt as error:
        return StateUnread(order.segment, str(error))


def _expected(piece: Piece, step: int, chains: Mapping[int, Chain]) -> int:
    """About how many rows the table of this step has of these partitions: those of their bases, or their share of what its site had.

    Never more than the objects have: room is made for so many before one is read.
    """
    had = int(piece.facts.get("rows", {}).get(str(step), 0))
    bases = sum(chain[0].rows for chain in chains.values())
    there = sum(link.rows for chain in chains.values() for link in chain)
    return min(max(bases, had * len(chains) // max(1, len(piece.partitions))), there)


def states_in(
    piece: Piece, epoch: int, partitions: Collection[int], boxes: Mapping[int, str], get: Get
) -> Iterator[tuple[int, int, State]]:
    """(partition, step, state) of those of a piece's partitions. epoch: of its checkpoint. boxes: by step, for errors. get: an object's
    bytes, or OSError. Raises CheckpointCorrupt."""
    for step, chains, origin in _chains_in(piece, epoch, partitions, boxes, get):
        for states in folded(chains, origin):
            for partition, state in states.items():
                yield partition, step, state


def _chains_in(
    piece: Piece, epoch: int, partitions: Collection[int], boxes: Mapping[int, str], get: Get
) -> Iterator[tuple[int, Mapping[int, Chain], Origin]]:
    # Its objects may have others' partitions, too, as they were when they were written here.
    mine = [partition for partition in piece.partitions if partition in partitions]
    for step in sorted({stored.step for stored in piece.objects}):
        named = [(stored.name, stored.digest) for stored in piece.objects if stored.step == step]
        origin = Origin(piece.segment, step, boxes.get(step, ""), epoch)
        yield step, chains_of(named, origin, mine, get), origin


def _links(piece: Piece, step: int, chains: Mapping[int, Chain]) -> list[Link]:
    """In which objects the rows of these partitions are, where later ones can be added to them."""
    stored = {each.name: each for each in piece.objects if each.step == step}
    return [
        Link(stored[link.name], link.epoch, {partition: link.rows}, {partition: link.since})
        for partition, chain in chains.items()
        for link in chain
        if link.said["form"] != "state"
    ]


def _facts(order: RestoreState) -> Mapping[str, Any]:
    """What goes along with the state of the order's partitions, which several sites may have captured: as of a copy (C2)."""
    here, digests, watermarks = set(order.partitions), dict[int, int](), list[int]()
    lost: tuple[Lost, ...] = ()
    logs: dict[str, Any] = {}
    for piece in order.pieces:
        here.difference_update(piece.partitions)
        watermarks.append(piece.facts["watermark"])
        lost = together(lost, tuple(Lost(*each) for each in piece.facts.get("lost", ())))
        logs |= {p: facts for p, facts in piece.facts["logs"].items() if int(p) in order.partitions}
        digests |= dict(zip(piece.partitions, piece.facts["digests"], strict=False))
    if here:
        names = ", ".join(map(str, sorted(here)))
        raise CheckpointCorrupt(f"the checkpoint of epoch {order.epoch} has no partitions {names} of segment {order.segment_name!r}")
    return {
        "epoch": order.epoch,
        "partitions": list(order.partitions),
        # An ingress cohort's is the least of its partitions', and theirs are in the state; elsewhere all sites have the same.
        "watermark": min(watermarks),
        "lost": [[each.before, each.newest, each.kept] for each in lost],
        "committed": order.epoch,  # A checkpoint is whole when the sinks have its epoch.
        "logs": logs,
        "digests": [digests.get(p, 0) for p in order.partitions] if digests else [],
    }
