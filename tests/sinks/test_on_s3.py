"""The Parquet sink in S3, at a server in a process of its own: no rename, one object per commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs as arrow_fs

from evenflow.errors import SinkError
from evenflow.operator.operator import Rows, Tick
from evenflow.operator.parquet import ParquetCommit, ParquetStage
from evenflow.sinks.closings import read_committed
from evenflow.store.arrow import ArrowStore, open_file_store
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from tests.store.s3_server import ACCESS, s3_server

from .failing import after

SCHEMA = pa.schema([("key", pa.int64())])


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


def epochs(url: str, last: int, store: Any = None) -> None:
    """Two rows per epoch, of two partitions; every epoch is a commit interval."""
    params: dict[str, Any] = {"path": url, "run": "r1", "commit_interval_ms": 1, "retries": 0}
    stage, commit = ParquetStage(SCHEMA, **params), ParquetCommit(**params, store=store)
    for epoch in range(1, last + 1):
        batch = pa.record_batch([pa.array([epoch * 10, epoch * 10 + 1], pa.int64())], schema=SCHEMA)
        at = Tick(epoch, epoch * 1000, NO_WATERMARK, END_OF_STREAM if epoch == last else NO_WATERMARK)
        (records,) = stage.process(Rows(batch, np.array([0, 1], np.int32)), at)
        commit.process(records, at)


def test_a_commit_is_one_object_and_a_death_before_it_leaves_none(endpoint: str) -> None:
    files = arrow_fs.S3FileSystem(
        access_key=ACCESS["key"], secret_key=ACCESS["secret"], endpoint_override=endpoint, allow_bucket_creation=True
    )
    files.create_dir("sinks")
    host = endpoint.removeprefix("http://").replace(":", "%3A")
    url = f"s3://{ACCESS['key']}:{ACCESS['secret']}@sinks/out?scheme=http&endpoint_override={host}&region=us-east-1"
    store = open_file_store(url)
    assert isinstance(store, ArrowStore)
    with pytest.raises(SinkError, match="publish"):
        epochs(url, 4, after("put_joined", store, 1))
    plain = ds.dataset("sinks/out", filesystem=files, format="parquet").to_table()
    assert sorted(plain["key"].to_pylist()) == [10, 11]
    assert sorted(read_committed(url)["key"].to_pylist()) == [10, 11, 20, 21]
    epochs(url, 4)
    plain = ds.dataset("sinks/out", filesystem=files, format="parquet").to_table()
    assert sorted(plain["key"].to_pylist()) == [e * 10 + i for e in range(1, 5) for i in range(2)]
    assert store.names("") == [f"commit-r1-{epoch:012d}.parquet" for epoch in (2, 3, 4)]
    assert store.names("_staging") == []
