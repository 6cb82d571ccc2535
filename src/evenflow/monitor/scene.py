"""The scene: what of an engine changes seldom. Its sites, and of each run what its dataflow is, where that stands in a picture, and which
site hosts what. What changes all the time is in the readings of a scene (`reading`), whose columns are in the order given here.

A scene is numbered; the next one has a greater number, and readings say of which scene they are. As JSON it is the object of the fields
named here, texts, whole numbers, booleans, lists and null only; readers let fields be that they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from evenflow.plan.moved_whole import MovedWhole
from evenflow.statistics.plain import plain_fields, value_of

SiteState = Literal["live", "leaving", "dead", "left"]
SiteRole = Literal["starting", "live", "joining", "spare", "gone"]
ReplicaState = Literal["live", "joining", "lost"]
MAKES: Final = "an engine's `watch`, a recording and the simulator make what is expected"


@dataclass(frozen=True, slots=True)
class SceneSite:
    """A site of the engine, one Spark task. Those that have died or left stay for a while."""

    site: int
    """Its number, which no other site ever gets."""
    executor: str
    host: str
    pid: int
    """Of the Python process, on that host."""
    state: SiteState
    """leaving: it is being drained. left: it has gone as planned."""


@dataclass(frozen=True, slots=True)
class SceneBox:
    """A box as the user drew it. Where it stands is in `SceneRun.geometry`."""

    name: str
    kind: str
    segments: tuple[int, ...]
    """Those in which it runs, ascending: several where a union is before it, or where it is combined before the exchange."""
    steps: tuple[int, ...]
    """Places in `SceneRun.steps` of what it has become; none of a source, a sink in the driver, and what only names keys."""
    source: bool
    sink: bool


@dataclass(frozen=True, slots=True)
class SceneArrow:
    """An arrow as the user drew it, in the order of `SceneRun.geometry`."""

    start: str
    """Name of the box that it leaves."""
    port: int
    end: str
    streams: tuple[int, ...]
    """Numbers of the streams through the exchange that it has become; none where it stays in a segment."""


@dataclass(frozen=True, slots=True)
class SceneSegment:
    """What runs between two exchanges."""

    segment: int
    """Its number; also its place in `SceneRun.segments`."""
    name: str
    kind: Literal["ingress", "inner", "egress"]
    partitions: int
    source: str | None
    sink: str | None


@dataclass(frozen=True, slots=True)
class SceneStream:
    """A stream through an exchange."""

    stream: int
    """Its number; also its place in `SceneRun.streams`."""
    producer: int
    consumer: int
    """Numbers of segments."""
    route: Literal["keyed", "single", "spread", "dealt"]
    columns: tuple[str, ...]
    """By which rows find their partition, if the route is `keyed`."""


@dataclass(frozen=True, slots=True)
class SceneStep:
    """An operator in a segment; a box may be several."""

    segment: int
    box: str


@dataclass(frozen=True, slots=True)
class SceneReplicas:
    """Every replica of every partition, as columns of one length: by segment, partition and rank.

    state: live; joining: its state is under way to the site, and it does not count yet; lost: its site is dead.
    """

    segment: tuple[int, ...]
    partition: tuple[int, ...]
    rank: tuple[int, ...]
    site: tuple[int, ...]
    state: tuple[ReplicaState, ...]


@dataclass(frozen=True, slots=True)
class SceneCopy:
    """State under way from one site to another."""

    number: int
    segment: int
    partitions: tuple[int, ...]
    source: int
    target: int
    replaces: int
    """The site whose replicas go when it is there, if this is a move; else -1: it makes up for a lost replica."""


@dataclass(frozen=True, slots=True)
class SceneRun:
    """A run and what its dataflow is."""

    run: str
    """Its id."""
    dataflow: str
    version: int
    """0 until it is replaced."""
    active: bool
    replicas: int
    """That every partition shall have."""
    redundancy: int
    """The least number of live replicas of any partition."""
    plan: int
    membership: int
    """Numbers of the newest ones."""
    roles: tuple[SiteRole, ...]
    """What each site of the scene is in this run, in the scene's order. starting: it has no part yet; gone: it is dead or has left."""
    boxes: tuple[SceneBox, ...]
    """In the network's order, producers first."""
    arrows: tuple[SceneArrow, ...]
    segments: tuple[SceneSegment, ...]
    streams: tuple[SceneStream, ...]
    steps: tuple[SceneStep, ...]
    """By segment, and in the order in which they run."""
    replicas_of: SceneReplicas
    copies: tuple[SceneCopy, ...]
    geometry: Any
    """Where boxes, arrows and segments stand: see `evenflow.query.geometry.geometry_json`."""
    failure: str | None = None
    """Why it has failed, on one line. None while it is active, and of one that has ended as it should."""
    moved_whole: tuple[MovedWhole, ...] | None = None
    """Segments whose keys can only be moved whole. None of a recording that is older than this."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What of an engine changes seldom."""

    number: int
    """From 1; a greater one is newer."""
    engine: str
    """Its id."""
    name: str
    """Of the application."""
    sites: tuple[SceneSite, ...]
    """Ascending."""
    runs: tuple[SceneRun, ...]
    """Oldest first. The active ones, and the newest of those that are over."""

    def to_json(self) -> dict[str, Any]:
        """An object of the fields, with `kind` "scene"."""
        return {"kind": "scene", **plain_fields(self)}

    @staticmethod
    def from_json(data: Any) -> Scene:
        """What `to_json` made. Raises StatisticsError naming the field that is missing or wrong; more fields do no harm."""
        return value_of(Scene, data, "scene", MAKES)

    def newest(self) -> tuple[SceneRun, ...]:
        """Of each dataflow the run that was begun last."""
        return tuple({run.dataflow: run for run in self.runs}.values())

    def counted(self) -> tuple[SceneRun, ...]:
        """Of each dataflow the run whose numbers stand for it: the newest active one, or of those that are over the newest."""
        return tuple({run.dataflow: run for run in sorted(self.runs, key=lambda run: run.active)}.values())

    def run(self, run: str) -> SceneRun | None:
        """The run of that id."""
        return next((each for each in self.runs if each.run == run), None)
