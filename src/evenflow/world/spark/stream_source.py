"""Results as a Spark streaming source (protocol O1, O2): its offsets are (run, epoch), and epochs are held at their site until Spark
commits.

Spark's driver asks the egress site for its newest epoch and tells it what has been committed; one task per batch fetches the rows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.errors import ProtocolError, SourceError, StrangerRefused
from evenflow.stream.schema import type_name
from evenflow.world.spark.channel import receive_message, send_message
from evenflow.world.spark.handshake import dial
from evenflow.world.spark.ship import on_executor, ship
from evenflow.world.spark.wire import CONTROL, ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMIT_TRIES: Final = 3
COMMIT_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where the results of a sink are. run: its id; number: of the run in the engine."""

    run: str
    number: int
    sink: str
    address: tuple[str, int]
    secret: bytes = field(repr=False)
    schema: pa.Schema


def read_stream(spark: SparkSession, outlook: Outlook) -> DataFrame:
    """See Run.read_stream."""
    name = f"evenflow_{outlook.run}_{outlook.sink}".replace("-", "_").replace(".", "_")
    ddl = ", ".join(f"`{f.name.replace('`', '``')}` {spark_type(f.type)}" for f in outlook.schema)
    archive = ship(spark.sparkContext)
    place = (outlook.address, outlook.number, outlook.sink, outlook.secret)
    make_ask = on_executor(archive, __name__, "ask", *place)
    make_rows = on_executor(archive, __name__, "rows", *place, outlook.schema.serialize().to_pybytes())
    spark.dataSource.register(data_source(name, ddl, outlook.run, make_ask, make_rows))
    return spark.readStream.format(name).load()


def spark_type(type_: pa.DataType) -> str:
    """Spark's name of a column's type; a timestamp without a zone is `timestamp_ntz` there."""
    return re.sub(r"\btimestamp\b", "timestamp_ntz", type_name(type_))


def data_source(source_name: str, ddl: str, run: str, ask_site: Any, fetch: Any) -> Any:
    """The class that Spark wants, made here so that it is pickled by value and carries what it needs."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Span(InputPartition):
        """Epochs in (after, through]."""

        def __init__(self, after: int, through: int) -> None:
            super().__init__((after, through))

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:
            return {"run": run, "epoch": 0}

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
            """The newest epoch; where the run is over and forgotten, the last one that was known, so that there is nothing new."""
            facts = ask_site({"ask": "newest"})
            self._newest = max(getattr(self, "_newest", 0), int(facts.get("newest", 0)))
            return {"run": run, "epoch": self._newest}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
            if start["run"] != run or end["run"] != run:
                raise ValueError(
                    f"the query's checkpoint is of run {start['run']}, this is run {run}: a restart is a new run; use a new checkpoint"
                )
            return [Span(start["epoch"], end["epoch"])] if end["epoch"] > start["epoch"] else []

        def read(self, partition: Any) -> Iterator[Any]:
            return fetch(*partition.value)  # type: ignore[no-any-return]

        def commit(self, end: dict[str, Any]) -> None:
            """Say it until it is heard: after the last epoch nobody would say it again. A site that is gone needs it no more."""
            for _ in range(COMMIT_TRIES):
                if "gone" not in ask_site({"ask": "commit", "through": end["epoch"]}):
                    return
                time.sleep(COMMIT_PAUSE_S)

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


def ask(address: tuple[str, int], number: int, sink: str, secret: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """One question to the egress site. A site that is gone has nothing new."""
    try:
        with dial(address, secret, {"as": "fetch", "run": number, "sink": sink}) as sock:
            send_message(sock, CONTROL, [json.dumps(request).encode()])
            _, body = receive_message(sock)
            facts: dict[str, Any] = json.loads(bytes(body))
            return facts
    except (OSError, StrangerRefused):
        return {"gone": True}


def rows(
    address: tuple[str, int], number: int, sink: str, secret: bytes, schema: bytes, after: int, through: int
) -> Iterator[pa.RecordBatch]:
    """The rows of epochs (after, through]. Raises SourceError if they are not there any more."""
    declared = pa.ipc.read_schema(pa.py_buffer(schema))
    with dial(address, secret, {"as": "fetch", "run": number, "sink": sink}) as sock:
        send_message(sock, CONTROL, [json.dumps({"ask": "rows", "after": after, "through": through}).encode()])
        while True:
            kind, body = receive_message(sock)
            if kind == ROWS:
                yield pa.ipc.read_record_batch(pa.py_buffer(body), declared)
            elif kind == CONTROL:
                if json.loads(bytes(body)).get("gone"):
                    raise SourceError(
                        f"epochs {after + 1} to {through} of sink {sink!r} are gone: the run is over, or its engine was stopped"
                    )
                return
            else:
                raise ProtocolError(f"a message of kind {kind} among the rows of sink {sink!r}")
