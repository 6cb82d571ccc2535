"""Pushing rows from a task of Spark into the ingress (protocol I2): what runs in the task, and what the coordinator tells it.

    leads  hello {"as": "leads", run, source, to}   -> {"leads": [host, port] | null, "over": bool}; null: nobody is known at the moment

Without replicas the task sends its rows to the site that led its ingress partition when the job started, and fails when that does. With
replicas it keeps them until they are in settled records. When the site is lost, or leads no more, it asks the coordinator who does, and
sends the same rows in the same order to that one: Spark need not run it again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.errors import ProtocolError, SchemaChanged, SourceError, StrangerRefused
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import ROWS, Piece
from evenflow.world.spark.net.handshake import Hello, dial
from evenflow.world.spark.net.kept import Kept
from evenflow.world.spark.net.trust import Trusted

if TYPE_CHECKING:
    from evenflow.world.spark.driver.known import KnownSite
    from evenflow.world.spark.driver.run_loop import RunLoop

PUSH_ROWS_MAX: Final = 16_384
"""Rows per message of a task: large enough to cost little, small enough to enter an epoch without being cut."""
KEPT_BYTES_MAX: Final = 32 * 2**20
"""What a task holds in memory of the rows that are not settled yet; the rest is in a temporary file."""
DIAL_S: Final = 2.0
SEND_S: Final = 10.0
"""A site reads what it is sent. One that has not for this long has been stopped."""
LOOK_S: Final = 2.0
"""While a task waits for its answer it asks this often whether the site still leads: one that has been stopped says nothing at all."""
RETRY_FIRST_S: Final = 0.02
RETRY_LAST_S: Final = 0.5
ROOM_S: Final = 5.0
"""After which a site that had no room for the rows gets them again."""
SILENCE_S: Final = 3.0
"""How long a task asks a driver that does not listen any more."""
PATIENCE_S: Final = 60.0
"""How long a task looks for a site that takes its rows."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ingresses:
    """Where the rows of a source go. run: its number. leaders: where the site of each ingress partition listened when the job started,
    None if that was not known. coordinator: where it listens. replicated: rows are settled before tasks are answered.
    """

    run: int
    source: str
    leaders: tuple[Address | None, ...]
    coordinator: Address
    replicated: bool
    secret: Trusted = field(repr=False)


def push(to: Ingresses, batch: int, schema: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Push a task's rows and wait until the ingress has taken them. Yields one row: how many there were.

    batch: number of the Spark batch. Raises SchemaChanged, SourceError, OSError.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    declared = pa.ipc.read_schema(pa.py_buffer(schema))
    task, attempt = context.partitionId(), context.attemptNumber()
    rows = 0
    pushing = Pushing(to, batch, task, attempt) if to.replicated else PushingOnce(to, batch, task, attempt)
    with pushing:
        for given in batches:
            for start in range(0, given.num_rows, PUSH_ROWS_MAX):
                pushing.add(conform(given.slice(start, PUSH_ROWS_MAX), declared, to.source).serialize())
            rows += given.num_rows
        pushing.finish()
    yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


class NoRoom(ConnectionError):
    """A site cannot keep the rows now."""


class PushingOnce:
    """One attempt of a task, on its way to the site that leads its ingress partition. Raises OSError when that fails."""

    def __init__(self, to: Ingresses, batch: int, task: int, attempt: int) -> None:
        self._to = to
        self._partition = task % len(to.leaders)
        self._hello = {"run": to.run, "source": to.source, "to": self._partition, "batch": batch, "partition": task, "attempt": attempt}
        self._address = to.leaders[self._partition]
        self._connected: Connection | None = None

    def __enter__(self) -> PushingOnce:
        return self

    def __exit__(self, *error: object) -> None:
        self._hang_up()

    def add(self, piece: Piece) -> None:
        """The next rows, encoded."""
        self._connection().send(ROWS, [piece])

    def finish(self) -> None:
        """There are no more rows. Returns when they have been taken. Raises SourceError if the site cannot keep them."""
        self._say_finish()
        refused = self._connection().hear().get("refused")
        if refused:
            rows = f"the rows of partition {self._hello['partition']} of Spark's batch {self._hello['batch']}"
            raise SourceError(f"box {self._to.source!r}: {self._leading} takes none of {rows}: {refused}")

    @property
    def _leading(self) -> str:
        return "nobody" if self._address is None else f"the site at {self._address[0]}:{self._address[1]}"

    def _say_finish(self) -> None:
        self._connection().tell(ask="finish")

    def _connection(self) -> Connection:
        if self._connected is None:
            if self._address is None:
                raise ConnectionError(f"no site leads ingress partition {self._partition} of {self._to.source!r}")
            hello: Hello = {"as": "push", **self._hello}
            self._connected = dial(self._address, self._to.secret, hello)
            if self._to.replicated:
                self._connected.settimeout(SEND_S)
        return self._connected

    def _hang_up(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None


class Pushing(PushingOnce):
    """The same with replicas: it keeps the rows, and sends them again until they are settled or the run needs them no more."""

    def __init__(self, to: Ingresses, batch: int, task: int, attempt: int) -> None:
        super().__init__(to, batch, task, attempt)
        self._kept = Kept(KEPT_BYTES_MAX)
        self._refused_since_s: float | None = None
        self._broken = attempt > 0  # Who led when the job started may be the reason why there is another attempt.

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._kept.close()

    def add(self, piece: Piece) -> None:
        self._kept.add(piece)
        if not self._broken:
            try:
                super().add(piece)
            except (OSError, StrangerRefused):
                self._break()

    def finish(self) -> None:
        """Returns when all rows are settled, or the run is over. Raises SourceError when nobody takes them for long."""
        pause_s = RETRY_FIRST_S
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._broken and not self._send_again():
                    return
                self._say_finish()
                while not self._answered():
                    if not self._still_leads():
                        return
                    deadline_s = time.monotonic() + PATIENCE_S
                return
            except (OSError, StrangerRefused, ProtocolError) as error:
                self._break()
                if isinstance(error, NoRoom):
                    pause_s = ROOM_S  # All of them are sent again.
                if time.monotonic() > deadline_s:
                    raise SourceError(
                        f"box {self._to.source!r}: for {PATIENCE_S:.0f} s no site has taken the rows of partition "
                        f"{self._hello['partition']} of Spark's batch {self._hello['batch']}: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_LAST_S)

    def _break(self) -> None:
        self._hang_up()
        self._broken = True

    def _send_again(self) -> bool:
        """Send everything to who leads now. False if the run needs it no more."""
        over, self._address = self._leader()
        if over:
            return False
        connection = self._connection()
        for piece in self._kept:
            connection.send(ROWS, [piece])
        self._broken = False
        return True

    def _answered(self) -> bool:
        """Whether the site has said that everything is settled; waits a while for it. Raises OSError if it cannot take the rows."""
        connection = self._connection()
        ready = select.poll()
        ready.register(connection, select.POLLIN)
        if not ready.poll(LOOK_S * 1000):
            return False
        said = connection.hear()
        if refused := said.get("refused"):
            raise NoRoom(f"{self._leading}: {refused}")
        if not said.get("taken"):
            raise ConnectionError("the site does not lead the ingress partition")
        return True

    def _still_leads(self) -> bool:
        """False if the run is over. Raises OSError if another site leads by now."""
        try:
            over, address = self._leader()
        except (OSError, StrangerRefused, ProtocolError):
            return True  # The driver is busy. If it is gone, the site leaves too.
        if not over and address != self._address:
            raise ConnectionError("another site leads the ingress partition now")
        return not over

    def _leader(self) -> tuple[bool, Address | None]:
        """Whether the run needs no rows any more, and who leads. Raises SourceError if the driver is gone."""
        hello: Hello = {"as": "leads", "run": self._to.run, "source": self._to.source, "to": self._partition}
        asked_s = time.monotonic()
        try:
            connection = dial(self._to.coordinator, self._to.secret, hello, DIAL_S)
        except ConnectionRefusedError as error:
            if self._refused_since_s is None:
                self._refused_since_s = asked_s
            if asked_s - self._refused_since_s > SILENCE_S:
                raise SourceError(f"box {self._to.source!r}: the engine has been stopped: its driver does not listen any more") from error
            raise
        self._refused_since_s = None
        with connection:
            connection.settimeout(DIAL_S)
            facts = connection.hear()
        leads = facts["leads"]
        return bool(facts["over"]), (None if leads is None else (str(leads[0]), int(leads[1])))


def conform(batch: pa.RecordBatch, declared: pa.Schema, source: str) -> pa.RecordBatch:
    """The batch with the declared schema; its types may differ in what they are called only (a zone's name, a large string).

    Raises SchemaChanged.
    """
    if batch.schema.equals(declared):
        return batch
    if batch.schema.names != declared.names:
        raise SchemaChanged(f"source {source!r}: the columns are now {batch.schema.names}, declared were {declared.names}")
    columns = []
    for described, column in zip(declared, batch.columns, strict=True):
        if not same_kind(column.type, described.type):
            raise SchemaChanged(f"source {source!r}: column {described.name!r} is now {column.type}, declared was {described.type}")
        if not described.nullable and column.null_count:
            raise SchemaChanged(f"source {source!r}: column {described.name!r} has nulls now, declared was that it has none")
        columns.append(column if column.type == described.type else column.cast(described.type))
    return pa.RecordBatch.from_arrays(columns, schema=declared)


def same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of `found` are values of `declared` under another name."""
    if found == declared:
        return True
    types = pa.types
    if types.is_timestamp(found) and types.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    if (types.is_string(found) or types.is_large_string(found)) and types.is_string(declared):
        return True
    if (types.is_binary(found) or types.is_large_binary(found)) and types.is_binary(declared):
        return True
    if types.is_map(found) and types.is_map(declared):
        return same_kind(found.key_type, declared.key_type) and same_kind(found.item_type, declared.item_type)
    if types.is_struct(found) and types.is_struct(declared):
        return [each.name for each in found] == [each.name for each in declared] and all(
            same_kind(one.type, other.type) for one, other in zip(found, declared, strict=True)
        )
    lists = (types.is_list(found) or types.is_large_list(found)) and types.is_list(declared)
    return lists and same_kind(found.value_type, declared.value_type)


# ---------------------------------------------------------------- in the driver


def tell_leader(connection: Connection, hello: Hello, runs: Mapping[int, RunLoop], sites: Mapping[int, KnownSite]) -> None:
    """Answer a task that asks who leads, and let it go. Raises KeyError or ValueError for a hello that makes no sense."""
    run = runs.get(int(hello["run"]))
    over, leads = run is None or run.machine.over or run.machine.draining, None
    if run is not None and not over:
        site = sites.get(leader_of(run, str(hello["source"]), int(hello["to"])))
        leads = None if site is None else site.address
    with connection, suppress(OSError):  # A new socket's buffer has room for it; if not, it is no friend's.
        connection.tell(leads=leads, over=over)


def leader_of(run: RunLoop, source: str, partition: int) -> int:
    """The site that leads an ingress partition of a source."""
    segment = next(segment for segment in run.layout.segments if segment.source == source)
    return run.machine.membership.leaders[segment.id][partition].site


def first_leaders(run: RunLoop, source: str, sites: Mapping[int, Any]) -> tuple[Address | None, ...]:
    """Where the leader of each ingress partition of a source listens now, if it is there."""
    segment = next(segment for segment in run.layout.segments if segment.source == source)
    found = [sites.get(leader.site) for leader in run.machine.membership.leaders[segment.id]]
    return tuple([None if site is None else site.address for site in found])
