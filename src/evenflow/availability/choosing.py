"""The modes of a dataflow's segments, from what its boxes ask for and what it has otherwise; and which combinations there cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenflow.availability.guarantee import CHEAPEST_FIRST, GIVES, Guarantee, OperatorClass, at_least, cheapest
from evenflow.availability.mode import BASED, MODES, Mode, Modes, mode_named, of_segment, shortened
from evenflow.errors import AvailabilityError
from evenflow.plan.layout import Layout, Segment


def modes_of(
    layout: Layout, availability: str = Mode.PAIRS, sites: int | None = None, replicas: int = 1, *, located: bool = False
) -> Modes:
    """By segment. availability: of all whose boxes do not say. sites: how many host from the start, if that is known. replicas: of what
    is replicated. located: the run has a checkpoint location.

    What comes in has followers where the rest begins again from a base (M2). Raises AvailabilityError for a mode that there is not, that
    some box cannot have, for which there are too few sites, or which needs a location where a sink keeps epochs at sites; and where an
    output is to have more than boxes, modes and sink can give.
    """
    where = f"dataflow {layout.name!r}"
    otherwise = mode_named(availability, where)
    chosen = [layout.modes.get(s.id, otherwise) for s in layout.segments]
    return checked(layout, _followed(layout, chosen), sites, replicas, located=located)


def _followed(layout: Layout, chosen: Sequence[Mode]) -> Modes:
    """What comes in has followers where the rest begins again from a base (M2)."""
    pairs = {segment.id for segment in layout.segments if segment.kind == "ingress" and chosen[segment.id] in BASED}
    return shortened([Mode.PAIRS if segment in pairs else mode for segment, mode in enumerate(chosen)])


def changed(layout: Layout, modes: Modes, box: str, mode: str, sites: int, replicas: int, located: bool) -> Modes:
    """The modes, with another one for all segments of a box, or of every one ("*"). Raises AvailabilityError as `modes_of` does, and for a
    box that there is not."""
    wanted = mode_named(mode, f"box {box!r}")
    mine = {s.id for s in layout.segments if box in ("*", s.name) or any(name == box for name, _ in layout.depends.get(s.id, ()))}
    if not mine:
        known = dict.fromkeys(name for pairs in layout.depends.values() for name, _ in pairs)
        raise AvailabilityError(f"no box is called {box!r}; there are {', '.join(map(repr, known))}, and '*' for all")
    chosen = [wanted if s.id in mine else of_segment(modes, s.id) for s in layout.segments]
    return checked(layout, _followed(layout, chosen), sites, replicas, located=located)


def checked(layout: Layout, modes: Modes, sites: int | None = None, replicas: int = 1, *, located: bool = False) -> Modes:
    """The modes, if the segments can have them and every output has what it is to have. Raises AvailabilityError as `modes_of` does."""
    where = f"dataflow {layout.name!r}"
    needs = next((mode for mode in modes if MODES[mode].backup), None)
    if needs is not None and sites is not None and sites < 2:
        raise AvailabilityError(f"{where}: availability {str(needs)!r} needs two sites at least, and there is {sites}: use more sites")
    for segment in layout.segments:
        for box, of in layout.depends.get(segment.id, ()):
            mode = of_segment(modes, segment.id)
            if GIVES[of][mode] is None:
                raise AvailabilityError(_refused(box, of, mode))
    based = next((mode for mode in BASED if mode in modes), None)
    if based is not None and Mode.AMNESIA in modes:
        raise AvailabilityError(
            f"{where}: availability {str(based)!r} and 'amnesia' do not go together: a lost site may have boxes of both, and what begins "
            "anew lacks what the other would need again. Use 'pairs' in place of one of them"
        )
    if Mode.UPSTREAM in modes:
        _check_upstream(layout, modes, located=located)
    if Mode.AMNESIA in modes:
        _check_amnesia(layout, modes, replicas, located=located)
    if Mode.PASSIVE in modes and not located:
        _check_images(layout, modes)
    for sink in layout.promised:
        _check_promise(layout, modes, sink)
        if located:
            _check_kept(layout, sink)
    return modes


def _check_upstream(layout: Layout, modes: Modes, *, located: bool) -> None:
    """Raise AvailabilityError where what a site has cannot be made again of what its producers keep. What Spark reads can: a base follows
    from what is stored, so epochs that Spark has planned and not stored are made again, and kept again."""
    if Mode.PASSIVE in modes and not located:
        raise AvailabilityError(
            f"dataflow {layout.name!r}: availability 'upstream' and 'passive' go together with a checkpoint location only: begin the run "
            "with one, or use one of the two"
        )
    check_ahead(layout, modes)
    for segment in layout.segments:
        sink = _written_at_sites(segment)
        if sink is not None and of_segment(modes, segment.id) is Mode.UPSTREAM:
            raise AvailabilityError(
                f"sink {sink!r} keeps epochs at sites until they are stored, and availability 'upstream' would lose them between the "
                "two: use 'passive' or 'pairs' there, or a sink in the driver"
            )


def check_ahead(layout: Layout, modes: Modes) -> None:
    """Raise AvailabilityError for a box with upstream backup whose rows may be later in event time than all that sources have given: then
    that does not say which rows its state follows from."""
    for segment in layout.segments:
        for box, _ in layout.depends.get(segment.id, ()) if of_segment(modes, segment.id) is Mode.UPSTREAM else ():
            if (before := layout.ahead.get(box)) is not None:
                raise AvailabilityError(
                    f"box {box!r} gets event times that box {before!r} makes, which may be later than those of the rows they are made of: "
                    "availability 'upstream' could not tell from which rows on to make it again: use 'passive' or 'pairs' there"
                )


def _check_amnesia(layout: Layout, modes: Modes, replicas: int, *, located: bool) -> None:
    """Raise AvailabilityError where what is lost could be neither declared nor gone on without."""
    where = f"dataflow {layout.name!r}: availability 'amnesia'"
    if located:
        raise AvailabilityError(
            f"{where} and a checkpoint location do not go together: a restart would make again, with what was lost, what was given out "
            "without it. Leave one of them out"
        )
    for segment in layout.segments:
        if of_segment(modes, segment.id) is not Mode.AMNESIA:
            continue
        source = layout.sources.get(segment.source or "")
        if getattr(source, "pushed", False):
            raise AvailabilityError(
                f"box {segment.source!r}: Spark pushes its rows, and would push those again of which a lost site had some: amnesia is for "
                "what sites read themselves. Use availability 'pairs' there"
            )
        sink = _kept_at_sites(layout, segment)
        if sink is not None:
            raise AvailabilityError(
                f"sink {sink!r} keeps epochs at sites until they are stored, and amnesia would lose them between the two: use "
                "availability 'pairs' there, or a sink in the driver"
            )
        for arc in segment.outputs:
            consumer = layout.arcs[arc].consumer
            if replicas > 1 and MODES[of_segment(modes, consumer)].replicates:
                raise AvailabilityError(
                    f"{segment.name!r} has availability 'amnesia', and {layout.segments[consumer].name!r} behind it has {replicas} "
                    "replicas, which would not lose the same: use 'amnesia' there, too, or 'pairs' before it"
                )


def _written_at_sites(segment: Segment) -> str | None:
    """The sink that a segment writes, or whose writing it commits. None: it does neither."""
    return next((step.box for step in segment.steps if step.kind in ("stage", "commit")), None)


def _kept_at_sites(layout: Layout, segment: Segment) -> str | None:
    """The sink of a segment whose epochs sites keep until they are stored: because sites write, or Spark reads. None: there is none."""
    written = _written_at_sites(segment)
    sink = segment.sink or written
    return sink if written is not None or (sink is not None and layout.sinks[sink].where == "spark") else None


def check_alike(modes: Modes, group: str) -> None:
    """Raise AvailabilityError for regions of a group that would not make the same: what one has lost, the others have."""
    if Mode.AMNESIA in modes:
        raise AvailabilityError(
            f"group {group!r}: its regions make the same results, and with availability 'amnesia' one that has lost something would not: "
            "use 'pairs'"
        )


def _check_images(layout: Layout, modes: Modes) -> None:
    """Raise AvailabilityError where what a site has is more than its image at another one would be, without a checkpoint location."""
    for segment in layout.segments:
        if of_segment(modes, segment.id) is not Mode.PASSIVE:
            continue
        sink = _kept_at_sites(layout, segment)
        if sink is not None:
            raise AvailabilityError(
                f"sink {sink!r} keeps epochs at sites until they are stored, and availability 'passive' has no images of these: begin the "
                "run with a checkpoint location, or use 'pairs' there, or a sink in the driver"
            )


def _refused(box: str, of: OperatorClass, mode: Mode) -> str:
    why = "may answer otherwise when it is asked again" if of is OperatorClass.ARBITRARY else "depends on all that it ever had"
    others = " or ".join(repr(str(each)) for each in CHEAPEST_FIRST if GIVES[of][each] is not None)
    return f"box {box!r} ({of}) {why}, so availability {str(mode)!r} cannot bring back what it had: use {others}"


# ---------------------------------------------------------------- what outputs have


def given_to(layout: Layout, modes: Modes, sink: str) -> Guarantee:
    """What an output has through failures: the worst of its sink and of all boxes upstream (HW 3.2.1)."""
    found = [Guarantee.NO_LOSS if _at_least_once(layout.sinks[sink]) else Guarantee.PRECISE]
    found += [given for _, _, _, given in _upstream(layout, modes, sink)]
    return min(found, key=list(Guarantee).index)


def _check_promise(layout: Layout, modes: Modes, sink: str) -> None:
    wanted = layout.promised[sink]
    asks = f"sink {sink!r} is to be {wanted} through failures"
    for box, of, mode, given in _upstream(layout, modes, sink):
        if not at_least(given, wanted):
            enough = cheapest(of, wanted)
            advice = f"use availability {str(enough)!r} there" if enough is not None else f"ask for guarantee {str(given)!r}"
            raise AvailabilityError(f"{asks}, and box {box!r} ({of}) with availability {str(mode)!r} gives {given} at most: {advice}")
    if _at_least_once(layout.sinks[sink]) and not at_least(Guarantee.NO_LOSS, wanted):
        kind = getattr(layout.sinks[sink], "kind", "sink")
        raise AvailabilityError(
            f"{asks}, and {kind} cannot remember an epoch, so it may be given one twice: no mode helps. Use a sink that remembers, such as "
            "parquet or a table, or ask for guarantee 'no-loss'"
        )


def _check_kept(layout: Layout, sink: str) -> None:
    """Raise AvailabilityError where a restart goes on without rows of a source that this output is to have."""
    wanted = layout.promised[sink]
    for number in sorted(_reached(layout, sink)):
        source = layout.segments[number].source
        if wanted is not Guarantee.GAP and source is not None and not getattr(layout.sources[source], "kept", True):
            raise AvailabilityError(
                f"sink {sink!r} is to be {wanted} through failures, and source {source!r} has durability 'none': a restart goes on without "
                "what came after the newest checkpoint. Let it be 'kept', or ask for guarantee 'gap'"
            )


def _at_least_once(sink: Any) -> bool:
    return bool(getattr(sink, "at_least_once", False))


def _upstream(layout: Layout, modes: Modes, sink: str) -> Sequence[tuple[str, OperatorClass, Mode, Guarantee]]:
    """(box, its class, its mode, what that gives) of all in segments from which the sink gets rows, its own included, sources first."""
    found = []
    for number in sorted(_reached(layout, sink)):
        mode = of_segment(modes, number)
        for box, of in layout.depends.get(number, ()):
            if (given := GIVES[of][mode]) is not None:
                found.append((box, of, mode, given))
    return found


def _reached(layout: Layout, sink: str) -> set[int]:
    """Segments from which the sink gets rows, its own included."""
    reached: set[int] = set()
    for segment in reversed(layout.segments):
        ends = segment.sink == sink or any(step.box == sink and step.kind in ("discard", "stage", "commit") for step in segment.steps)
        if ends or segment.id in reached:
            reached |= {segment.id, *(layout.arcs[arc].producer for arc in segment.inputs)}
    return reached
