"""Results as a Spark streaming source (protocol O1, O2): its offsets are (run, epoch), and epochs are held at their egress sites until
Spark commits.

Spark's driver asks an egress site for its newest epoch, and tells all of them what it has planned to read, which
makes room for new epochs (see `held.py`), and what has been committed, which is forgotten. One task per batch
fetches the rows. What an epoch contains is the same at every replica, so when a site dies, or is behind, the next
one is asked; when nobody answers, the coordinator is asked where the replicas are now:

    where  hello {"as": "where", run, sink}   -> {"replicas": [[host, port], ...]}; none: the run is over

Only whole epochs of a site are taken: within an epoch the order of rows may differ between replicas of a segment that does not care.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.errors import MessageForged, SourceError, StrangerRefused
from evenflow.stream.schema import quoted, type_name
from evenflow.world.spark.cluster.located import driver_host
from evenflow.world.spark.cluster.ship import on_executor, ship
from evenflow.world.spark.executor.held import UNKNOWN
from evenflow.world.spark.net.connection import Connection, words
from evenflow.world.spark.net.framing import ROWS
from evenflow.world.spark.net.handshake import Hello, dial
from evenflow.world.spark.net.trust import Trusted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from evenflow.world.spark.driver.known import KnownSite
    from evenflow.world.spark.driver.run_loop import RunLoop

DIAL_S: Final = 2.0
ANSWER_S: Final = 5.0
"""A site that has been stopped takes connections and never answers: after this long, the next one is asked."""
RETRY_S: Final = 0.05
"""Pause between two rounds through the replicas."""
PATIENCE_S: Final = 60.0
"""How long a task waits for epochs that one replica has had and the others have not yet, without any progress."""
SILENCE_S: Final = 3.0
"""How long a task waits when neither a site nor the coordinator answers: then the engine has been stopped."""
COMMIT_S: Final = 5.0
"""How long the last commit is said again to a site that has not heard it and is not known to be dead."""

NAME_OR_TIME: Final = re.compile(r"`(?:[^`]|``)*`:|\w+:|\btimestamp\b")
"""A field's name, which may be that of a type, or a timestamp."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where the results of a sink are. run: its id; number: of the run in the engine. replicas: sites that hold them now; the coordinator's
    port in the driver tells where they are later.
    """

    run: str
    number: int
    sink: str
    replicas: tuple[Address, ...]
    coordinator_port: int
    secret: Trusted = field(repr=False)
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Place:
    """What a reader needs to know of a sink, wherever its replicas are."""

    number: int
    sink: str
    coordinator: Address
    secret: Trusted = field(repr=False)

    def dial(self, address: Address, purpose: str) -> Connection:
        """Raises OSError, StrangerRefused. So do reads that take too long."""
        connection = dial(address, self.secret, {"as": purpose, "run": self.number, "sink": self.sink}, DIAL_S)
        connection.settimeout(ANSWER_S)
        return connection


def read_stream(spark: SparkSession, outlook: Outlook) -> DataFrame:
    """See Run.read_stream."""
    name = f"evenflow_{outlook.run}_{outlook.sink}".replace("-", "_").replace(".", "_")
    ddl = ", ".join(f"{quoted(f.name)} {spark_type(f.type)}" for f in outlook.schema)
    archive = ship(spark.sparkContext)
    place = Place(outlook.number, outlook.sink, (driver_host(spark.sparkContext), outlook.coordinator_port), outlook.secret)
    ask = on_executor(archive, __name__, "newest", place)
    say = on_executor(archive, __name__, "commit", place)
    fetch = on_executor(archive, __name__, "rows", place, outlook.schema.serialize().to_pybytes())
    spark.dataSource.register(data_source(name, ddl, outlook.run, outlook.replicas, ask, say, fetch))
    return spark.readStream.format(name).load()


def spark_type(type_: pa.DataType) -> str:
    """Spark's name of a column's type; a timestamp without a zone is `timestamp_ntz` there."""
    return NAME_OR_TIME.sub(lambda found: "timestamp_ntz" if found[0] == "timestamp" else found[0], type_name(type_))


def data_source(source_name: str, ddl: str, run: str, replicas: tuple[Address, ...], newest: Any, commit: Any, fetch: Any) -> Any:
    """The class that Spark wants, made here so that it is pickled by value and carries what it needs."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Span(InputPartition):
        """Epochs in (after, through], and who has answered last."""

        def __init__(self, replicas: Any, after: int, through: int) -> None:
            super().__init__((replicas, after, through))

    class Reader(DataSourceStreamReader):
        """replicas: as far as they are known, the one that answered last first. told: how far each has heard that Spark has planned to
        read. end: where the last batch that was planned here ends.
        """

        def __init__(self) -> None:
            self._replicas: Any = list(replicas)
            self._told: dict[Any, int] = {}
            self._end: dict[str, Any] | None = None

        def _ask(self, taken: int) -> dict[str, Any]:
            facts, self._replicas = newest(self._replicas, taken, self._told)
            return facts or {}

        def initialOffset(self) -> dict[str, Any]:
            """A new query goes on where Spark has committed."""
            self._end = {"run": run, "epoch": int(self._ask(0).get("committed", 0))}
            return self._end

        def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
            """What the sites offer, or `start`, where the last batch ended, if that is nothing new: so also when the run is over.

            Before Spark 4.2 there is no `start`: a reader knows what it has planned itself, or else what the sites have heard of it.
            """
            start = start if start is not None else self._end
            mine = start is not None and start["run"] == run
            facts = self._ask(int(start["epoch"]) if start is not None and mine else UNKNOWN)
            if start is None or not mine:
                start = {"run": run, "epoch": int(facts.get("taken", 0))}
            offer = facts.get("offer")
            return start if offer is None or "end" in start or offer["epoch"] < start["epoch"] else {"run": run, **offer}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
            """One task reads all. From now on what is planned is in Spark's log, and holds no room at the sites."""
            if start["run"] != run or end["run"] != run:
                raise ValueError(
                    f"the query's checkpoint is of run {start['run']}, this is run {run}: a restart is a new run; use a new checkpoint"
                )
            self._end = end
            self._ask(int(end["epoch"]))
            return [Span(self._replicas, start["epoch"], end["epoch"])] if end["epoch"] > start["epoch"] else []

        def read(self, partition: Any) -> Iterator[Any]:
            return fetch(*partition.value)  # type: ignore[no-any-return]

        def commit(self, end: dict[str, Any]) -> None:
            self._replicas = commit(self._replicas, end["epoch"])

    class Results(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return ddl

        def streamReader(self, schema: Any) -> Any:
            return Reader()

    return Results


# ---------------------------------------------------------------- in Spark's processes


class NotHere(Exception):
    """A site that does not have the epochs. forgotten: nor will it have them again; else it is behind, or has no part in the run."""

    def __init__(self, forgotten: bool) -> None:
        super().__init__()
        self.forgotten = forgotten


def question(place: Place, address: Address, request: dict[str, Any]) -> dict[str, Any] | None:
    """A site's answer to one question. None: it does not answer, or has no part in the run."""
    try:
        with place.dial(address, "fetch") as connection:
            connection.tell(**request)
            facts = connection.hear()
            return None if facts.get("gone") else facts
    except (OSError, StrangerRefused, MessageForged):
        return None


def where(place: Place) -> list[Address] | None:
    """Where the coordinator says that the replicas are; none if the run is over. None: it does not answer."""
    try:
        with place.dial(place.coordinator, "where") as connection:
            facts = connection.hear()
            return [(str(host), int(port)) for host, port in facts["replicas"]]
    except (OSError, StrangerRefused, MessageForged):
        return None


def present(place: Place, known: Sequence[Address]) -> list[Address]:
    """The replicas, those that were known before first and in their order; the known ones if the coordinator does not answer.

    A site that has been declared dead may still answer for a while, though nothing new comes there; so it is no use to ask it only.
    """
    before = [(host, port) for host, port in known]
    found = where(place)
    if found is None:
        return before
    return [address for address in before if address in found] + [address for address in found if address not in before]


def newest(
    place: Place, known: Sequence[Address], taken: int = UNKNOWN, told: dict[Address, int] | None = None
) -> tuple[dict[str, Any] | None, list[Address]]:
    """What the first site that answers says, and the replicas, that one first. None: the run is over, or nobody answers now.

    taken: Spark has planned to read that far, or UNKNOWN. told: how far each has heard that it has; brought up to date.
    All replicas hear it, each as soon as it answers: who has not heard holds the ingress back. One that has had nothing
    yet is asked again and again: it may be a copy that cannot count before all that it lacks has been stored.
    """
    replicas, told = present(place, known), {} if told is None else told
    joining: dict[Address, dict[str, Any]] = {}
    found: dict[str, Any] | None = None
    first: Address | None = None
    for address in replicas:
        if found is not None and told.get(address, UNKNOWN) >= taken:
            continue
        facts = question(place, address, {"ask": "newest", "taken": taken, "stored": 0 if found is None else found["stored"]})
        if facts is not None and not facts["begun"]:
            joining[address] = facts
        elif facts is not None:
            told[address] = taken
            found, first = (facts, address) if found is None else (found, first)
    if found is None and joining:
        first, found = next(iter(joining.items()))
    return found, replicas if first is None else [first, *(other for other in replicas if other != first)]


def commit(place: Place, known: Sequence[Address], through: int) -> list[Address]:
    """Tell every replica that Spark has stored all epochs up to `through`. Returns the replicas as they are now.

    Commits are cumulative, so who misses one learns it from the next; only the last one, which nobody would say again, is said until
    everybody has heard it. A site that is gone needs it no more.
    """
    deadline_s = time.monotonic() + COMMIT_S
    heard: set[Address] = set()
    last = False
    while True:
        replicas = present(place, known)
        for address in replicas:
            facts = question(place, address, {"ask": "commit", "through": through}) if address not in heard else None
            if facts is not None:
                heard.add(address)
                last = last or (facts["ended"] and facts["newest"] <= through)
        if heard.issuperset(replicas) or (heard and not last) or time.monotonic() > deadline_s:
            return replicas
        time.sleep(RETRY_S)


def rows(place: Place, schema: bytes, known: Sequence[Address], after: int, through: int) -> Iterator[pa.RecordBatch]:
    """The rows of epochs (after, through], from whichever replicas have them. Raises SourceError if they are not there any more."""
    declared = pa.ipc.read_schema(pa.py_buffer(schema))
    replicas = [(host, port) for host, port in known]
    moved_s = heard_s = time.monotonic()
    while True:
        forgotten = 0
        for address in replicas:
            try:
                for epoch, batches in epochs(place, address, declared, after, through):
                    yield from batches
                    after = epoch
                    moved_s = heard_s = time.monotonic()
                return
            except NotHere as refusal:
                forgotten += refusal.forgotten
                heard_s = time.monotonic()
            except (OSError, StrangerRefused, MessageForged):
                pass
        found = where(place)
        now_s = time.monotonic()
        if found is not None:
            heard_s = now_s
        if found == [] or now_s - heard_s > SILENCE_S:
            raise SourceError(f"{_missing(place, after, through)} are gone: the run is over, or its engine was stopped")
        if forgotten and forgotten == len(replicas) and set(replicas).issuperset(found or ()):
            raise SourceError(f"{_missing(place, after, through)} are gone: another query has committed them")
        if now_s - moved_s > PATIENCE_S:
            raise SourceError(f"{_missing(place, after, through)} did not come in {PATIENCE_S:.0f} s; asked were {replicas}")
        replicas = found or replicas
        time.sleep(RETRY_S)


def epochs(place: Place, address: Address, schema: pa.Schema, after: int, through: int) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """The epochs in (after, through] that have rows, each when a site has sent the whole of it.

    Raises NotHere if the site does not have all of them, OSError, StrangerRefused or MessageForged when it does not answer, also in
    the middle.
    """
    with place.dial(address, "fetch") as connection:
        connection.tell(ask="rows", after=after, through=through)
        batches: list[pa.RecordBatch] = []
        while True:
            kind, body = connection.receive()
            if kind == ROWS:
                batches.append(pa.ipc.read_record_batch(pa.py_buffer(body), schema))
                continue
            facts = words(kind, body)
            if "epoch" in facts:
                yield facts["epoch"], batches
                batches = []
            elif "rows" in facts:
                return
            else:
                raise NotHere(forgotten=facts.get("since", 0) > after)


def _missing(place: Place, after: int, through: int) -> str:
    return f"epochs {after + 1} to {through} of sink {place.sink!r}"


# ---------------------------------------------------------------- in the coordinator


def present_replicas(run: RunLoop, sink: str, sites: Mapping[int, KnownSite]) -> list[Address]:
    """Addresses of the sites that hold a sink's epochs under the newest plan, those of a copy that is being made included."""
    if run.over.is_set():
        return []
    hosts = [site for segment in run.layout.segments if segment.sink == sink for site in run.machine.plan.hosts(segment.id)]
    return [sites[site].address for site in hosts if site in sites]


def tell_where(connection: Connection, hello: Hello, runs: Mapping[int, RunLoop], sites: Mapping[int, KnownSite]) -> None:
    """Answer a reader that asks where the replicas are, and let it go. Raises KeyError or ValueError for a hello that makes no sense."""
    run = runs.get(int(hello["run"]))
    found = present_replicas(run, str(hello["sink"]), sites) if run is not None else []
    with connection, suppress(OSError):  # A new socket's buffer has room for it; if not, it is no friend's.
        connection.tell(replicas=found)
