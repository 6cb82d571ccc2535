"""What `evenflow bench tables` kills: one generation of a dataflow whose rows go into a directory of Parquet files, a Delta table and an
Iceberg table. A process of its own, `python -m evenflow.bench.tabling SETTING`, which speaks as `evenflow.bench.restarting` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from evenflow.bench.restarting import KEYS, SOURCE_PARTITIONS, Generation, main

TABLES: Final = ("parquet", "delta", "iceberg")


@dataclass(frozen=True, slots=True)
class TableGeneration(Generation):
    """commit_s: from one commit of each table to the next."""

    commit_s: float = 1.0

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "evenflow.bench.tabling", json.dumps(asdict(self))]

    @property
    def database(self) -> str:
        """The catalog of the Iceberg table."""
        return str(Path(self.home) / "catalog.sqlite")

    def sinks(self) -> dict[str, Any]:
        import evenflow as ef

        catalog = {"type": "sql", "uri": f"sqlite:///{self.database}", "warehouse": f"file://{self.home}"}
        return {
            "parquet": ef.sinks.parquet(str(Path(self.home) / "parquet"), commit_interval_ms=round(self.commit_s * 1000)),
            "delta": ef.sinks.delta(str(Path(self.home) / "delta"), commit_s=self.commit_s, partition_by="part"),
            "iceberg": ef.sinks.iceberg("bench.rows", commit_s=self.commit_s, partition_by="part", options=catalog),
        }

    def dataflow(self) -> Any:
        import evenflow as ef

        flow = ef.Dataflow("bench_tables")
        made = flow.source(ef.sources.generator(rate=self.rate, keys=KEYS, partitions=SOURCE_PARTITIONS), name="made")
        rows = made.select("key", "ts", "value", "key % 2 as part")
        for name, sink in self.sinks().items():
            rows.to(sink, name=name)
        return flow

    def count(self) -> int:
        """Rows of the table that has the fewest: all of them have to go on."""
        return min(sum(rows for _, _, rows in self.commits(name)) for name in TABLES)

    def commits(self, name: str) -> Iterator[tuple[str, int, int]]:
        """(run, epoch, rows) of every commit of a table; none before it is there."""
        found: Iterator[tuple[str, int, int]] = getattr(self, f"_{name}_commits")()
        return found

    def _parquet_commits(self) -> Iterator[tuple[str, int, int]]:
        from evenflow.sinks.manifests import decided_epochs, read_manifest
        from evenflow.store.local import LocalStore

        store = LocalStore(str(Path(self.home) / "parquet"))
        for run, epoch in sorted(decided_epochs(store)):
            yield run, epoch, sum(part.rows for part in read_manifest(store, run, epoch).parts)

    def _delta_commits(self) -> Iterator[tuple[str, int, int]]:
        for file in sorted((Path(self.home) / "delta" / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            said: dict[str, str] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            rows = sum(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)
            if rows:
                yield said["evenflow.run"], int(said["evenflow.epoch"]), rows

    def _iceberg_commits(self) -> Iterator[tuple[str, int, int]]:
        sink = self.sinks()["iceberg"]
        if not Path(self.database).exists():
            return
        catalog = sink.target.catalog_of(sink.options)
        if not catalog.table_exists(sink.table):
            return
        for snapshot in catalog.load_table(sink.table).snapshots():
            said = snapshot.summary.additional_properties
            yield said["evenflow.run"], int(said["evenflow.epoch"]), int(said["added-records"])

    def read(self, name: str) -> pa.Table:
        return self.sinks()[name].read()

    def files(self, name: str) -> int:
        """Data files that readers see."""
        if name == "parquet":
            return len(list((Path(self.home) / "parquet").glob("*.parquet")))
        if name == "delta":
            from deltalake import DeltaTable

            return len(DeltaTable(str(Path(self.home) / "delta")).file_uris())
        sink = self.sinks()["iceberg"]
        return len(list(sink.target.catalog_of(sink.options).load_table(sink.table).scan().plan_files()))


if __name__ == "__main__":
    main(TableGeneration(**json.loads(sys.argv[1])))
