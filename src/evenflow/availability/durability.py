"""What of a run is written down at its location before ends have it, and so what a loss of the driver costs (availability.md, J3).

    precise   which rows form an epoch is in the journal before a sink is given the epoch: after a loss the same epochs are made again,
              and sinks drop those that they have
    no-loss   the journal has checkpoints, and nothing between them: no output waits for it. After a loss what came after the newest
              checkpoint is cut anew, and comes again

So with `no-loss` an epoch number means something else in each generation of a run. Sinks tell epochs apart by (run, epoch), so each
generation has a run of its own there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from evenflow.availability.guarantee import Guarantee, OperatorClass
from evenflow.availability.naming import named
from evenflow.errors import AvailabilityError, LocationError
from evenflow.plan.layout import Layout, Port
from evenflow.stream.change import is_changelog
from evenflow.stream.ids import run_of_generation


class Durability(StrEnum):
    """See the module."""

    PRECISE = "precise"
    NO_LOSS = "no-loss"

    def sinks_run(self, run: str, generation: int) -> str:
        """The run that sinks know by what a generation gives them. run: the location's, for all generations."""
        return run if self is Durability.PRECISE else run_of_generation(run, generation)


def durability_named(given: Any, where: str) -> Durability:
    """The one that a user has written. Raises AvailabilityError."""
    return named(list(Durability), "durability", given, where)


def chosen(asked: Durability | None, otherwise: Durability, there: Durability | None, url: str) -> Durability:
    """What a run has at a location. asked: when it is started, None: nothing. otherwise: the engine's option, of what begins there. there:
    what it was begun with, None: nobody has. Raises LocationError: which rows were an epoch is written down there, or it is not."""
    if there is None:
        return asked or otherwise
    if asked not in (None, there):
        raise LocationError(
            f"{url} was begun with durability {str(there)!r}, and is gone on with so: leave durability out, or start from a savepoint at "
            "another location"
        )
    return there


def check_durability(layout: Layout, durability: Durability, checkpoint_s: float | None, group: str | None = None) -> None:
    """Raise AvailabilityError if a run cannot have it. checkpoint_s: from one checkpoint to the next, None: there are none. group: the run
    is a region of it."""
    if durability is Durability.PRECISE:
        return
    if group is not None:
        raise AvailabilityError(
            f"group {group!r}: its regions give out the same epochs, and with durability 'no-loss' one that was lost would cut others: use "
            "'precise'"
        )
    where = f"dataflow {layout.name!r} with durability 'no-loss'"
    if checkpoint_s is None:
        raise AvailabilityError(
            f"{where}: only checkpoints are written down, and checkpoint_s is None, so a restart would begin from the start each time: "
            "give checkpoint_s a number of seconds, or use durability 'precise'"
        )
    for sink, promised in layout.promised.items():
        if promised is Guarantee.PRECISE:
            raise AvailabilityError(
                f"{where}: sink {sink!r} is to be precise through failures, and is given again what came after the newest checkpoint: use "
                "durability 'precise', or ask for guarantee 'no-loss'"
            )
    for name, sink in layout.sinks.items():
        if sink.where == "spark":
            raise AvailabilityError(
                f"{where}: Spark reads the results of sink {name!r} by epochs, which would be others after a restart: use durability "
                "'precise', or a sink that is written"
            )
        if sink.kind == "stream":
            raise AvailabilityError(
                f"{where}: who subscribes to sink {name!r} goes on behind the last epoch that it has, and epochs would be others after a "
                "restart: use durability 'precise', or a sink that is written"
            )
    for segment in layout.segments:
        if segment.sink is not None and layout.sinks[segment.sink].kind == "table" and nets_changes(layout, segment.inputs):
            raise AvailabilityError(
                f"{where}: sink {segment.sink!r} keeps a table of results that change, and is told what an epoch changes in all: what came "
                "before a loss and is not made again, since epochs are others then, would stay in the table. Use durability 'precise', or "
                "write the changes themselves into files"
            )
    for name, source in layout.sources.items():
        if source.pushed or not source.repeats:
            raise AvailabilityError(
                f"{where}: source {name!r} gives its rows once, so those after the newest checkpoint would be lost: use durability "
                "'precise', which keeps them, or put something before it that does, such as Kafka"
            )


def nets_changes(layout: Layout, arcs: Sequence[int]) -> bool:
    """Whether which rows come along these arcs says what an epoch has changed in all: a box with a state puts changes out, or takes them
    in. Changes that only pass through, from a source on, all come, however they fall into epochs."""
    classes = {box: of for boxes in layout.depends.values() for box, of in boxes}
    stateful = changes = False
    waiting, seen = list(arcs), set(arcs)
    while waiting:
        arc = layout.arcs[waiting.pop()]
        segment = layout.segments[arc.producer]
        changes = changes or is_changelog(arc.schema)
        ports: list[Port] = [arc.port]
        while ports:
            port = ports.pop()
            if port.step < 0:
                fresh = [each for each in segment.inputs if each not in seen]
                seen.update(fresh)
                waiting += fresh
                continue
            step = segment.steps[port.step]
            changes = changes or is_changelog(step.schema)
            stateful = stateful or classes.get(step.box, OperatorClass.REPEATABLE) is not OperatorClass.REPEATABLE
            ports += [step.source] if step.other is None else [step.source, step.other]
    return stateful and changes
