"""Results through a driver's port: what a subscriber is given is what the plain computation gives, to the end and no further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.background import free_ports
from evenflow.errors import RegionsUnreachable
from tests.spark.test_tls import Authority

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_a_subscriber_is_given_what_a_sink_is(
    spark: Any, engine: ef.Engine, named: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files, (port,), kept = authority.files(), free_ports(1), ef.sinks.memory()
    secret = tmp_path / "secret"
    secret.write_text("of sixteen letters or more")
    flow = ef.Dataflow(named("streamed"))
    counts = flow.source(ef.sources.generator(rate=20_000, rows=20_000, keys=50, seed=3)).group_by("key").agg(n="count(*)")
    counts.to(ef.sinks.stream(port, secret_file=str(secret), tls_certificate=files.certificate, tls_key=files.key), name="out")
    counts.to(kept, name="kept")
    run = engine.start(flow)
    got: list[tuple[int, pa.RecordBatch]] = []
    with ef.subscribe(f"127.0.0.1:{port}", sink="out", after=0, secret_file=str(secret), tls_ca=str(authority.file)) as subscriber:
        got += subscriber
        assert subscriber.ended
    assert run.await_termination(30)
    rows = Counter((epoch, row["key"], row["n"]) for epoch, batch in got for row in batch.to_pylist())
    assert rows == Counter((epoch, row["key"], row["n"]) for epoch, batch in kept.epochs() for row in batch.to_pylist())
    assert rows
    other = Authority(tmp_path, "other")
    with pytest.raises(RegionsUnreachable, match="authority|certificate"):
        next(ef.subscribe(f"127.0.0.1:{port}", after=0, secret_file=str(secret), tls_ca=str(other.file), patience_s=0.3))
