"""Delta and Iceberg tables in S3 are read by real executors, which know who may by the sources' options alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from tests.sources.test_tables_on_s3 import Bucket
from tests.store.s3_server import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(120)]


def test_executors_read_tables_in_a_bucket(engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: every row once, of what was there and of what is added while the run goes on. Method: both tables in one dataflow."""
    with s3_server() as url:
        bucket = Bucket(url, tmp_path)
        bucket.add(*range(100))
        flow, sink = ef.Dataflow("tables"), ef.sinks.memory("tables")
        sources: dict[str, Any] = bucket.sources(poll_ms=50)
        streams = [flow.source(source, name=name).select("id", f"'{name}' as place") for name, source in sources.items()]
        streams[0].union(streams[1]).to(sink)
        run = engine.start(flow)
        try:
            bucket.add(*range(100, 140))
            for _ in range(600):
                if sink.rows().num_rows >= 280 or run.await_termination(0.1):
                    break
            found = sink.rows().to_pylist()
        finally:
            run.stop()
    for name in sources:
        assert sorted(row["id"] for row in found if row["place"] == name) == list(range(140))
