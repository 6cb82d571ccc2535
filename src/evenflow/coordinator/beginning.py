"""Where a new generation of a run begins, from where its journal stands (availability.md, K9, K10): on any sites, with any replicas.

What plans said of content is journalled, and where things were is not: the sites of then are gone. So the first plans are new, one for each
content that acts in what is replayed, and place everything alike: a plan that changes ranges moves nothing. Partitions between which key
groups change hands in what is replayed are therefore placed together, where each site divides what it has of their state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from evenflow.availability.content import Content
from evenflow.availability.entries import Cut, Key
from evenflow.availability.mode import Modes
from evenflow.availability.standing import Standing, begun_with
from evenflow.errors import LocationError
from evenflow.plan.layout import KEY_GROUPS, Layout
from evenflow.plan.placement import Place, Scheme, first_plan, home, on_sites
from evenflow.plan.plan import Plan, Settings, Version
from evenflow.plan.ranges import connected, of_segment
from evenflow.site.replaying import Beginning
from evenflow.stream.ids import FIRST_PLAN, PlanNumber, SiteId

NO_VERSIONS: Final[Mapping[int, Version]] = MappingProxyType({})


def begin_at(
    standing: Standing, layout: Layout, sites: Sequence[SiteId], replicas: int = 1, scheme: Scheme = "mirrored", place: Place = home,
    modes: Modes = (), versions: Mapping[int, Version] = NO_VERSIONS,
) -> Beginning:  # fmt: skip
    """Everything after the newest checkpoint's epoch, or after nothing if there is none; what is durable is replayed.

    layout: planned with the journalled arguments, so that there are as many partitions as then. sites: that host something from the start,
    in the order in which `first_plan`'s 0, 1, ... stand for them. place: as of `first_plan`. modes: of availability, where the journal has
    none. versions: those that the journal names, by number, as what differs from the layout. The run begins under the last of the plans.
    Raises LocationError where the journal is of another dataflow, or needs what cannot be replayed; QueryError for more replicas than
    sites.
    """
    assert standing.ended is None, "a run that is over has nothing to go on with"
    _check_ingress(standing, layout)
    durable = standing.durable
    contents = begun_with(standing.contents or [Content(1)], durable)
    for content in contents:
        _check(content, layout, versions)
    plans = _plans(contents, layout, sites, replicas, scheme, place, modes, versions)
    cuts = {key: tuple(cut for cut in found if cut.epoch <= durable) for key, found in standing.cuts.items()}
    logs = logs_of(standing)
    _check_sources(layout, cuts, logs)
    pieces = standing.checkpoints[-1].pieces if standing.checkpoints else ()
    return Beginning(standing.base, plans, cuts, logs, pieces, standing.generation, dict(standing.left_out))


def _plans(
    contents: Sequence[Content], layout: Layout, sites: Sequence[SiteId], replicas: int, scheme: Scheme, place: Place,
    modes: Modes, versions: Mapping[int, Version],
) -> tuple[Plan, ...]:  # fmt: skip
    """One for each content, which all place alike: together what changes hands in any step from one to the next."""
    together = {s.id: connected([of_segment(content.ranges, s) for content in contents]) for s in layout.segments if s.is_keyed(layout)}
    modes = contents[-1].modes or modes
    first = on_sites(first_plan(layout, len(sites), replicas, scheme, together, place, modes), sites)
    return tuple(
        Plan(
            PlanNumber(FIRST_PLAN + number), content.effective, first.placement, (),
            Settings(
                content.ranges, content.weights, versions.get(content.version), keeps=content.keeps, newcomers=content.newcomers,
                modes=first.modes,
            ),
        )
        for number, content in enumerate(contents)
    )  # fmt: skip


def logs_of(standing: Standing) -> dict[Key, Sequence[Any]]:
    """What the newest checkpoint says of the logs of ingress partitions."""
    if not standing.checkpoints:
        return {}
    pieces = standing.checkpoints[-1].pieces
    return {(piece.segment, int(p)): facts for piece in pieces for p, facts in piece.facts.get("logs", {}).items()}


# ---------------------------------------------------------------- what cannot be


def _check_ingress(standing: Standing, layout: Layout) -> None:
    ingress = {(s.id, partition) for s in layout.segments if s.kind == "ingress" for partition in range(s.partitions)}
    if standing.begun is not None and set(standing.begun.ingress) != ingress:
        raise LocationError(
            f"the journal is of a dataflow with {len(standing.begun.ingress)} partitions of sources, and this one has {len(ingress)}: "
            "start the same dataflow, or give this one a location of its own"
        )


def _check(content: Content, layout: Layout, versions: Mapping[int, Version]) -> None:
    version = versions.get(content.version)
    if content.version and (version is None or version.program != content.program):
        raise LocationError(
            f"the boxes of the dataflow were replaced at epoch {content.effective}, and what came after cannot be replayed: nothing is "
            "kept of what they did since. Give the dataflow a new location"
        )
    for number, names in content.newcomers:
        source = layout.sources.get(layout.segments[number].source or "") if number < len(layout.segments) else None
        if source is None or len(names) > source.newcomers_most:
            raise LocationError(f"the journal names {len(names)} newcomers of segment {number}, for which this dataflow has no places")
    for segment in layout.segments if content.ranges else ():
        owners = [partition for _, partition in content.ranges[segment.id]] if segment.id < len(content.ranges) else [-1]
        starts = [start for start, _ in content.ranges[segment.id]] if segment.id < len(content.ranges) else []
        rising = starts == sorted(set(starts)) and all(0 <= start < KEY_GROUPS for start in starts) and starts[:1] in ([], [0])
        if not (rising and len(set(owners)) == len(owners) and all(0 <= partition < segment.partitions for partition in owners)):
            raise LocationError(f"the journal divides {segment.name} at epoch {content.effective} as this dataflow's cannot be divided")
    for segment in layout.segments if content.weights else ():
        given = content.weights[segment.id] if segment.id < len(content.weights) else None
        if given is None or (given and len(given) != segment.partitions):
            raise LocationError(f"the journal deals rows of {segment.name} at epoch {content.effective} to other partitions than it has")
    for arc, keep in enumerate(content.keeps):
        thin = layout.thins.get(arc)
        if keep and (thin is None or len(keep) not in (1, len(thin.classes))):
            raise LocationError(
                f"from epoch {content.effective} on rows were left out where this dataflow leaves out none, or by other classes of worth: "
                "give the qos of before"
            )


def _check_sources(layout: Layout, cuts: Mapping[Key, Sequence[Cut]], logs: Mapping[Key, Sequence[Any]]) -> None:
    """Rows of sources that give each row once cannot be replayed, nor those that Spark has pushed: what has been answered to it it forgets,
    and its tasks come in another order (J5)."""
    for (segment, partition), found in cuts.items():
        name = layout.segments[segment].source or ""
        source = layout.sources[name]
        if found and source.kept and (source.pushed or not source.repeats) and not all(cut.objects or cut.rows == 0 for cut in found):
            before = logs[segment, partition][0] if (segment, partition) in logs else 0
            if found[-1].taken != before:
                raise LocationError(
                    f"source {name!r} cannot give its rows again, and {found[-1].taken - before} rows of its partition {partition} came "
                    "after the newest checkpoint. Give the dataflow a new location, or read from what keeps its rows"
                )
