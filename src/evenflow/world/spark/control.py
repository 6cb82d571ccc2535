"""What the driver and its sites say to each other. Pickled: both ends have proved that they belong to the same engine.

Rows never come this way except as RELEASE messages (wire.py); a finished epoch's schema is told once before them.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow import errors
from evenflow.errors import EvenflowError, UnreadableMessage
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.site.events import Event, Fact
from evenflow.statistics.window import SiteWindow
from evenflow.world.spark.framing import Piece

# ---------------------------------------------------------------- driver to site


@dataclass(frozen=True, slots=True)
class You:
    """The first word on every connection of a site, the only one that is not counted.

    index: which site it is, for ever; never used twice, so it says as much as the incarnation. taken: messages of this site that the
    driver has taken, over earlier connections. beat_s: how often sites shall say that they live, until a `Pace` says otherwise; 0: never.
    """

    index: int
    taken: int
    beat_s: float


@dataclass(frozen=True, slots=True)
class Roster:
    """The sites that live. number: counts rosters. sites: index -> (host, port, incarnation).

    Nothing is accepted from a site that is not in it any more (V3).
    """

    number: int
    sites: dict[int, tuple[str, int, str]]


@dataclass(frozen=True, slots=True)
class StartPart:
    """Build this site's part of a run. program: (Layout, FlowOptions) by cloudpickle, since users' functions are in it.

    plan, membership: the newest ones when this was said.
    """

    run: int
    run_id: str
    program: bytes
    plan: Plan
    membership: Membership


@dataclass(frozen=True, slots=True)
class Deliver:
    """An event for a part of a run: from the coordinator's machine, or from a sink in the driver."""

    run: int
    event: Event


@dataclass(frozen=True, slots=True)
class Pushed:
    """Spark has pushed all batches of a source up to this one, -1 if none, and, if it has ended, will push no more. May be said again."""

    run: int
    source: str
    batch: int
    ended: bool


@dataclass(frozen=True, slots=True)
class EndPart:
    """Forget the run."""

    run: int


@dataclass(frozen=True, slots=True)
class Ping:
    """The driver lives; renews the lease. taken: messages that it has taken from this site."""

    taken: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often sites shall say that they live from now on, and at once."""

    beat_s: float


@dataclass(frozen=True, slots=True)
class Leave:
    """The task shall end. again: it shall be placed on another executor. why: for the log."""

    why: str


# ---------------------------------------------------------------- site to driver


@dataclass(frozen=True, slots=True)
class Linked:
    """Connected to every other site of the roster of this number."""

    roster: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The site lives. Said every `You.beat_s`, and at once when there is news.

    taken: messages that it has taken from the driver. accused: peers to which it has no link any more, or that have been silent for four
    beats. busy: what may keep the site from speaking. late_us: by how much beats were late lately at most; None: not known yet.
    """

    taken: int
    accused: tuple[int, ...]
    busy: str | None
    late_us: int | None


@dataclass(frozen=True, slots=True)
class PartReady:
    """The part is built; its kernels, expressions and readers are ready."""

    run: int


@dataclass(frozen=True, slots=True)
class PartBroken:
    """The part cannot be built, or its site's world failed.

    kind: the error's class. text: its message. trace: traceback, if it is not ours.
    """

    run: int
    kind: str
    text: str
    trace: str


@dataclass(frozen=True, slots=True)
class Said:
    """A fact that a part told."""

    run: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class SinkOpened:
    """Epochs of this egress segment will follow as RELEASE messages with this schema."""

    run: int
    segment: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part's numbers. window: what it did since the last report. latencies: bucket -> count (histogram.py), for sinks at the site."""

    rows_in: int
    rows_out: int
    late_rows: int
    failed_rows: int
    closed: int
    finished: int
    epochs_in_flight: int
    state_bytes: int
    buffered_bytes: int
    sections_out: int
    window: SiteWindow
    latencies: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartEnded:
    """The part is gone; its last numbers have been reported before."""

    run: int


@dataclass(frozen=True, slots=True)
class SiteBroken:
    """The site's own event loop failed; it is about to end. trace: the traceback."""

    trace: str


@dataclass(frozen=True, slots=True)
class Report:
    """A site's numbers. cpu_s: of the process since its start. rss_bytes, pss_bytes: memory now; pss 0 where unknown."""

    at_us: int
    cpu_s: float
    rss_bytes: int
    pss_bytes: int
    refused: int
    parts: dict[int, PartReport]


@dataclass(frozen=True, slots=True)
class Relay:
    """Between two sites that have no link: pass it on. peer: to whom, if a site says it; from whom, if the driver does."""

    peer: int
    kind: int
    body: bytes


FromDriver = You | Roster | StartPart | Deliver | Pushed | EndPart | Ping | Pace | Leave | Relay
FromSite = Linked | Beat | PartReady | PartBroken | Said | SinkOpened | PartEnded | SiteBroken | Report | Relay


def encode(message: FromDriver | FromSite) -> list[Piece]:
    return [pickle.dumps(message, pickle.HIGHEST_PROTOCOL)]


def decode(body: bytes | memoryview) -> FromDriver | FromSite:
    """Inverse of `encode`. Raises UnreadableMessage, whatever is wrong with it."""
    try:
        message: FromDriver | FromSite = pickle.loads(body)
    except Exception as error:  # Bytes that are no pickle may raise anything.
        raise UnreadableMessage(f"a control message cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(message, FromDriver | FromSite):
        raise UnreadableMessage(f"this is no control message: {message!r:.200}")
    return message


def broken(run: int, error: BaseException) -> PartBroken:
    """The message that brings an error to the driver."""
    trace = "" if isinstance(error, EvenflowError) else "".join(traceback.format_exception(error))
    return PartBroken(run, type(error).__name__, str(error), trace)


def error_from(message: PartBroken, where: str) -> EvenflowError:
    """The error at the driver: of its own class if that is one of ours and takes a message, with where it happened."""
    cls = getattr(errors, message.kind, None)
    if isinstance(cls, type) and issubclass(cls, EvenflowError) and not issubclass(cls, errors.BoxFailed):
        return cls(f"{message.text} (at {where})")
    return EvenflowError(f"{where} failed with {message.kind}: {message.text}\n{message.trace}")
