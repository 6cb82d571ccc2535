"""What regions of `bench regions` write to together, besides their ports: a table, Parquet files, a topic; and what is there in the end.

Rows are those of keyed totals: key, how many rows so far, their sum. Each epoch of a key has another count, so a row that comes twice, or
not at all, is seen without the epoch.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evenflow.bench.regional import Region, Totals
from evenflow.errors import EvenflowError

SINKS: Final = ("table", "parquet", "kafka")
TOPIC: Final = "totals"
QUIET_S: Final = 20.0

Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shared:
    """Where regions write. database: of the table; folder: of the files; servers: of the topic; None: not to that."""

    database: str | None = None
    folder: str | None = None
    servers: str | None = None

    def given(self) -> Mapping[str, str | None]:
        """As `Region` takes it."""
        return {"database": self.database, "folder": self.folder, "servers": self.servers}

    def last_epochs(self, group: str) -> dict[str, int]:
        """The last epoch of the group that each sink has. Raises EvenflowError if a table knows of none."""
        return dict(self._lasts(group))

    def _lasts(self, group: str) -> Iterator[tuple[str, int]]:
        if self.database is not None:
            yield "table", last_epoch(self.database, group)
        for name, sink in self._sinks():
            with closing(sink.open_for_group(group, name)) as appender:
                yield name, appender.last()[0]

    def rows(self, group: str) -> Iterator[tuple[str, Counter[Row]]]:
        """What each sink has."""
        if self.database is not None:
            with closing(sqlite3.connect(self.database, timeout=10)) as connection:
                yield "table", Counter((int(key), int(n), int(s)) for key, n, s in connection.execute("SELECT key, n, s FROM totals"))
        for name, sink in self._sinks():
            if name == "parquet":
                columns = sink.read(group, name).to_pydict()
                yield name, Counter(zip(columns.get("key", []), columns.get("n", []), columns.get("s", [])))
            else:
                yield name, Counter(_messages(str(self.servers)))

    def _sinks(self) -> Iterator[tuple[str, Any]]:
        whole = Region(0, "", 0.0, 1, None, database=None, folder=self.folder, servers=self.servers)
        yield from whole.shared()


@contextmanager
def shared(sinks: tuple[str, ...], home: Path) -> Iterator[Shared]:
    """Sinks of these names, empty, as long as the `with` lasts. Raises ClusterError if a broker cannot be started."""
    with ExitStack() as stack:
        servers = None
        if "kafka" in sinks:
            from evenflow.bench.kafka_broker import KafkaBroker

            broker = stack.enter_context(KafkaBroker())
            broker.create_topic(TOPIC, 1)
            servers = broker.address
        database = str(home / "rows.sqlite") if "table" in sinks else None
        yield Shared(database, str(home / "files") if "parquet" in sinks else None, servers)


def last_epoch(database: str, group: str) -> int:
    """That the table has of the group. Raises EvenflowError if it has none."""
    with closing(sqlite3.connect(database, timeout=10)) as connection:
        last = connection.execute("SELECT epoch FROM evenflow_chains WHERE run = ?", (group,)).fetchone()
    if last is None:
        raise EvenflowError(f"{database} knows of no group {group}")
    return int(last[0])


def compare_rows(found: Counter[Row], last: int, expected: Totals) -> dict[str, int]:
    """Rows of a sink against those that must be there up to the last epoch that it says it has."""
    wanted = Counter((key, n, s) for (epoch, key), (n, s) in expected.items() if epoch <= last)
    places = {(key, n) for key, n, _ in wanted}
    repeated = sum(count - 1 for count in found.values() if count > 1)
    wrong = sum(1 for key, n, s in found if (key, n) not in places or (key, n, s) not in wanted)
    return {"rows": len(wanted), "lost": len(wanted.keys() - found.keys()), "repeated": repeated, "wrong": wrong}


def _messages(servers: str) -> Iterator[Row]:
    """Of all transactions that were committed."""
    import confluent_kafka as kafka  # type: ignore[import-untyped, unused-ignore]

    reader = kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": secrets.token_hex(8), "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    with closing(reader):
        reader.assign([kafka.TopicPartition(TOPIC, 0, kafka.OFFSET_BEGINNING)])
        while (message := reader.poll(QUIET_S)) is not None and message.error() is None:
            row = json.loads(message.value() or b"{}")
            yield row["key"], row["n"], row["s"]


__all__ = ["SINKS", "TOPIC", "Shared", "compare_rows", "last_epoch", "shared"]
