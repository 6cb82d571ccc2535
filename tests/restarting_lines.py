"""Lines over a connection into tables, with a checkpoint location, as a process that tests kill.

`python -m tests.restarting_lines SETTING`, as `tests.restarting`. Who sends the lines is the test: what it has sent it never sends again.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import evenflow as ef
from tests.restarting import Setting, main


@dataclass(frozen=True)
class Lines(Setting):
    """port: where the lines come from. durability: of their source."""

    MODULE: ClassVar[str] = "tests.restarting_lines"
    epoch_rows: int = 40
    port: int = 0
    durability: str = "kept"

    def dataflow(self) -> ef.Dataflow:
        flow = ef.Dataflow("lines")
        lines = ef.sources.tcp_lines("127.0.0.1", self.port, "id bigint, k bigint", durability=self.durability)  # type: ignore[arg-type]
        rows = flow.source(lines, name="lines").where("id >= 0")
        rows.select("id", "k").to(ef.sinks.table(self.database, "rows"), name="rows")
        rows.group_by("k").agg(n="count(*)", total="sum(id)").to(ef.sinks.table(self.database, "totals", "k"), name="totals")
        return flow

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return connection.execute(statement).fetchall()
        return []

    def count(self) -> int:
        """Rows that are counted in both tables."""
        rows, totals = self.ask("SELECT count(*) FROM rows"), self.ask("SELECT sum(n) FROM totals")
        return min(rows[0][0], totals[0][0] or 0) if rows and totals else 0

    def compare(self, sent: int) -> None:
        """Every line that was sent is there once, and in the totals."""
        rows = Counter(number for (number,) in self.ask("SELECT id FROM rows"))
        assert rows == Counter(range(sent)), f"lost {sent - len(rows)}, repeated {rows.total() - len(rows)} of {sent}"
        expected = {(k, len(own := range(k, sent, 7)), sum(own)) for k in range(7)}
        assert set(self.ask("SELECT k, n, total FROM totals")) == expected


class Sender:
    """Sends each line once, to whoever is connected."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(120)
        self.port = int(self._listener.getsockname()[1])
        self._peer: socket.socket | None = None
        self.sent = 0

    def accept(self) -> None:
        """The next generation connects."""
        self._peer, _ = self._listener.accept()

    def send(self, count: int) -> None:
        assert self._peer is not None
        numbers = range(self.sent, self.sent + count)
        self._peer.sendall("".join([f"{number},{number % 7}\n" for number in numbers]).encode())
        self.sent += count

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._listener.close()


if __name__ == "__main__":
    main(Lines(**json.loads(sys.argv[1])))
