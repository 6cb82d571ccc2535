"""Delta and Iceberg tables in S3 as sources, at a server in a process of its own; who may read them is said by options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as arrow_fs

import evenflow as ef
from evenflow.errors import QueryError, SourceError
from tests.sources.test_delta import read
from tests.store.s3_server import ACCESS, s3_server

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "text": [f"t{i}" for i in ids]}, schema=SCHEMA)


class Bucket:
    """A server's bucket, and what tables in it are opened with."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.name = url, f"lake-{os.getpid()}"
        files = arrow_fs.S3FileSystem(
            access_key=ACCESS["key"], secret_key=ACCESS["secret"], endpoint_override=url, allow_bucket_creation=True
        )
        files.create_dir(self.name)
        self.of_delta = {
            "AWS_ACCESS_KEY_ID": ACCESS["key"], "AWS_SECRET_ACCESS_KEY": ACCESS["secret"], "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        self.of_iceberg = {
            "type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"s3://{self.name}/iceberg", "s3.endpoint": url,
            "s3.access-key-id": ACCESS["key"], "s3.secret-access-key": ACCESS["secret"], "s3.region": "us-east-1",
        }  # fmt: skip
        self.delta = f"s3://{self.name}/delta"

    def add(self, *ids: int) -> None:
        """A commit of each table."""
        deltalake.write_deltalake(self.delta, rows(*ids), mode="append", storage_options=self.of_delta)
        catalog = catalogs.load_catalog("default", **self.of_iceberg)
        catalog.create_namespace_if_not_exists("shop")
        catalog.create_table_if_not_exists("shop.rows", SCHEMA).append(rows(*ids))

    def sources(self, **more: Any) -> dict[str, Any]:
        return {
            "delta": ef.sources.delta(self.delta, options=self.of_delta, **more),
            "iceberg": ef.sources.iceberg("shop.rows", options=self.of_iceberg, **more),
        }


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with s3_server() as url:
        yield Bucket(url, tmp_path)


@pytest.mark.conformance
def test_tables_in_a_bucket_are_read_with_what_options_say(bucket: Bucket) -> None:
    bucket.add(*range(10))
    sources = bucket.sources()
    bucket.add(*range(10, 15))
    for name, source in sources.items():
        found = read(source)
        assert sorted(row["id"] for row in found) == list(range(15)), name
        behind = found[6]["table_position"] + 1
        assert [row["id"] for row in read(source, skip=behind)] == [row["id"] for row in found[7:]], name
        assert ACCESS["secret"] not in repr(source)
        with pytest.raises(QueryError, match="would be saved as plain text"):
            source.to_json()
    with pytest.raises(SourceError, match="cannot read delta table s3://"):
        ef.sources.delta(f"s3://{bucket.name}/elsewhere", options=bucket.of_delta)
    with pytest.raises(SourceError, match="cannot read iceberg table shop.others"):
        ef.sources.iceberg("shop.others", options=bucket.of_iceberg)
