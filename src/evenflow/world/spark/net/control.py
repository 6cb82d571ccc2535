"""What the driver and its sites say to each other, in the form of `coding`: reading a message runs nothing.

But a site runs what its driver sends it to be run: `StartPart.program`, and the `packed` of a plan's version, which are
the user's functions. Only a site reads these, only from its driver, and only where a part of a run takes them in (`Site`,
`told_versions`); nothing that a site says is ever unpickled. Rows never come this way except as RELEASE messages (wire.py);
a finished epoch's schema is told once before them.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import pyarrow as pa

from evenflow import errors
from evenflow.availability.entries import Completed, Entry, Logged, from_bytes, to_bytes
from evenflow.coordinator.events import Message
from evenflow.errors import EvenflowError, UnreadableMessage
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan, Version
from evenflow.site.events import SinkCommitted, StateMemoryChanged
from evenflow.site.facts import Fact
from evenflow.site.peers import Talk
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.statistics.wire import FlatWindow
from evenflow.world.spark.net.coding import SPECIAL, Bytes, Coder, coder
from evenflow.world.spark.net.framing import Piece

Delivered = Message | SinkCommitted | StateMemoryChanged
"""Events that come from the driver."""

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

    plan, membership: the newest ones when this was said. beginning: where the run goes on. journalled: it has a journal. store: URL of its
    checkpoint location.
    """

    run: int
    run_id: str
    program: bytes
    plan: Plan
    membership: Membership
    beginning: Beginning = FROM_NOTHING
    journalled: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """An event for a part of a run: from the coordinator's machine, or from a sink in the driver."""

    run: int
    event: Delivered


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
    """The task shall end. why: for the log. again: the driver shall start one elsewhere in its place, and need not complain."""

    why: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """Look for so many seconds at what the process does, and say it with this number."""

    number: int
    seconds: float


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
class InUserCode:
    """From now on the part runs user code on these (segment, epoch); nothing if it runs none. Said before it begins, since user code may
    end the process: what has been sent then, arrives. That there is nothing any more, a beat without `busy` says as well."""

    run: int
    works: tuple[tuple[int, int], ...]


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
    """One part's numbers. window: what it did since the last report. latencies: bucket -> count (histogram.py), for sinks at the site.
    slow: (box, epoch, seconds) of user code that does not return. behind: (source, topic, messages) of partitions that are read here.
    taken: (ingress segment, rows) that came here, which are `rows_in` together. waiting: (stream, bytes of its frames that wait here).
    late: (segment, box, rows) that came after the watermark. failed: (box, row, error) of the newest rows on which boxes raised, if they
    are kept."""

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
    window: FlatWindow
    latencies: dict[int, int] = field(default_factory=dict)
    slow: tuple[str, int, float] | None = None
    behind: tuple[tuple[str, str, int], ...] = ()
    taken: tuple[tuple[int, int], ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()
    late: tuple[tuple[int, str, int], ...] = ()
    failed: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PartEnded:
    """The part is gone; its last numbers have been reported before."""

    run: int


@dataclass(frozen=True, slots=True)
class SiteBroken:
    """The site's own event loop failed; it is about to end. trace: the traceback."""

    trace: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that was logged as a warning, or worse. at_us: since 1970, by the site's clock. logger: its name."""

    at_us: int
    level: str
    logger: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """A site's numbers. cpu_s: of the process since its start. rss_bytes, pss_bytes: memory now; pss 0 where unknown. warned: since the
    report before. unsaid: warnings so far that were too many to be told.
    """

    at_us: int
    cpu_s: float
    rss_bytes: int
    pss_bytes: int
    refused: int
    parts: dict[int, PartReport]
    warned: tuple[Warned, ...] = ()
    unsaid: int = 0


@dataclass(frozen=True, slots=True)
class Profiled:
    """The answer to `Profile`. told: the profile as JSON, or nothing; then `why` says why not."""

    number: int
    why: str
    told: bytes


@dataclass(frozen=True, slots=True)
class Relay:
    """Between two sites that have no link: pass it on. peer: to whom, if a site says it; from whom, if the driver does. talk: of which
    talk of the two it is."""

    peer: int
    talk: Talk
    kind: int
    body: bytes


FromDriver = You | Roster | StartPart | Deliver | Pushed | EndPart | Ping | Pace | Leave | Profile | Relay
OfRun = InUserCode | PartReady | PartBroken | Said | SinkOpened | PartEnded
"""What a site says of its part of a run."""
FromSite = Linked | Beat | SiteBroken | Report | Profiled | Relay | OfRun


def _write_version(version: Version, behind: list[Piece]) -> Any:
    """Packed, or as one that the site has been told of (see `told_versions`). What is in it but not packed cannot be sent."""
    if any(version.steps) and not version.packed:
        raise TypeError(f"version {version.number} has not been packed")
    number, since, boxes, tables = version.number, version.since, version.boxes, version.tables
    behind.append(version.packed)
    return [number, since, boxes, tables, len(version.steps), len(version.packed)]


def _read_version(value: Any, behind: Bytes) -> Version:
    """What is packed stays so: it needs the user's code, and may need what only the driver has."""
    known, packed = _VERSION.read(value[:5], behind), behind.take(value[5])
    number, since, boxes, tables, steps = known
    return Version(number, () if packed else ({},) * min(steps, len(since)), since, boxes, packed, tables)


def _write_beginning(beginning: Beginning, behind: list[Piece]) -> Any:
    """An hour of cuts is a million of them: they go as the journal writes them, by columns."""
    logs = [[*key, facts] for key, facts in beginning.logs.items()]
    matters = (Logged(beginning.cuts), Completed(0, beginning.epoch, beginning.pieces))
    parts = [*[to_bytes(Entry(0, 0, "", matter)) for matter in matters], json.dumps(logs).encode()]
    behind.extend(parts)
    return [beginning.epoch, beginning.generation, _PLANS.write(beginning.plans, behind), *map(len, parts)]


def _read_beginning(value: Any, behind: Bytes) -> Beginning:
    epoch, generation, plans, cuts_bytes, pieces_bytes, logs_bytes = value
    logged, completed = (from_bytes(behind.take(each), 0).matter for each in (cuts_bytes, pieces_bytes))
    logs = {(int(s), int(p)): facts for s, p, facts in json.loads(behind.take(logs_bytes))}
    if type(epoch) is not int or type(generation) is not int or not isinstance(logged, Logged) or not isinstance(completed, Completed):
        raise TypeError(f"{value!r:.60} is no beginning")
    return Beginning(epoch, _PLANS.read(plans, behind), logged.cuts, logs, completed.pieces, generation)


_VERSION: Final = coder(tuple[int, tuple[int, ...], tuple[str, ...], tuple[tuple[str, int], ...], int])


def _write_window(window: FlatWindow, behind: list[Piece]) -> Any:
    behind.append(window.words.tobytes())
    return window.words.nbytes


SPECIAL[FlatWindow] = Coder(_write_window, lambda value, behind: FlatWindow.from_bytes(behind.take(value)))
SPECIAL[Version] = Coder(_write_version, _read_version)
_PLANS: Final = coder(tuple[Plan, ...])
SPECIAL[Beginning] = Coder(_write_beginning, _read_beginning)
_FROM_DRIVER: Final = coder(FromDriver)
_FROM_SITE: Final = coder(FromSite)
_SITES_WORDS: Final = frozenset(get_args(FromSite))


def encode(message: FromDriver | FromSite) -> list[Piece]:
    """Raises TypeError for what has no form in which it could be sent."""
    return (_FROM_SITE if type(message) in _SITES_WORDS else _FROM_DRIVER).encode(message)


def from_driver(body: bytes | memoryview) -> FromDriver:
    """What a driver has encoded, at its site. Raises UnreadableMessage, whatever is wrong with it."""
    message: FromDriver = _decoded(_FROM_DRIVER, body)
    return message


def from_site(body: bytes | memoryview) -> FromSite:
    """What a site has encoded, at its driver. Raises UnreadableMessage, whatever is wrong with it."""
    message: FromSite = _decoded(_FROM_SITE, body)
    return message


def _decoded(of: Coder, body: bytes | memoryview) -> Any:
    try:
        return of.decode(body)
    except Exception as error:  # JSON, struct and Arrow have many words for it.
        raise UnreadableMessage(f"a control message cannot be read: {type(error).__name__}: {error}") from error


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
