"""An engine that speaks TLS within a range of ports does what one without does: counts are exact."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import ClusterError, TlsRefused
from tests.spark.test_ports import free_range
from tests.spark.test_tls import DAY, NOW, Authority

ROWS, KEYS = 200_000, 1_000


@pytest.mark.spark
@pytest.mark.conformance
def test_counts_are_exact_over_tls_within_a_range_of_ports(spark: Any) -> None:
    first, last = free_range(8)
    with ef.Engine(spark, sites=3, replicas=2, tls=True, ports=f"{first}-{last}") as engine:
        flow, sink = ef.Dataflow("encrypted"), ef.sinks.memory("encrypted")
        flow.source(ef.sources.generator(rows=ROWS, keys=KEYS)).group_by("key").agg(n="count(*)", combine=False).to(sink)
        run = engine.start(flow)
        coordinator: Any = engine._coordinator
        listening = {coordinator.port, *(site.address[1] for site in coordinator.known())}
        assert run.await_termination(120.0)
        newest = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
    assert sum(newest.values()) == ROWS and len(newest) == KEYS
    assert len(listening) == 4 and all(first <= port <= last for port in listening)


@pytest.mark.spark
@pytest.mark.conformance
def test_a_range_that_is_too_narrow_ends_the_start_with_words(spark: Any) -> None:
    first, last = free_range(2)
    with pytest.raises(ClusterError, match=rf"all ports from {first} to {last} are taken on .*option ports"):
        ef.Engine(spark, sites=3, ports=(first, last), place_timeout_s=20.0).__enter__()


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(120)
def test_certificates_are_files_that_each_machine_has(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an engine by files counts exactly; a machine whose own file is no good ends the start with a typed error that says why and
    where. Method: relative paths, which an executor takes from a folder of its own: the driver's files are good ones."""
    authority = Authority(tmp_path)
    good = authority.files()
    paths = {"tls_ca": good.ca, "tls_certificate": good.certificate, "tls_key": good.key}
    with ef.Engine(spark, sites=3, replicas=2, tls=True, **paths) as engine:
        flow, sink = ef.Dataflow("by files"), ef.sinks.memory("by files")
        flow.source(ef.sources.generator(rows=ROWS, keys=KEYS)).group_by("key").agg(n="count(*)", combine=False).to(sink)
        assert engine.start(flow).await_termination(120.0)
        assert sum({row["key"]: row["n"] for row in sink.rows().to_pylist()}.values()) == ROWS

    monkeypatch.chdir(tmp_path)
    wrong = {
        "expired": (authority.files(until=NOW - DAY), "has expired"),
        "elsewhere": (authority.files(address="192.0.2.7"), "is not for 127.0.0.1"),
        "missing": (None, "cannot be read on .*tls_certificate"),
    }
    for name, (files, says) in wrong.items():
        here = {}
        for what in ("certificate", "key"):
            file = f"{name}-{what}.pem"
            shutil.copy(getattr(good, what), tmp_path / file)
            here[f"tls_{what}"] = file
            if files is not None:
                (tmp_path / "there").mkdir(exist_ok=True)
                spark.sparkContext.addFile(str(shutil.copy(getattr(files, what), tmp_path / "there" / file)))
        with pytest.raises(TlsRefused, match=says):
            ef.Engine(spark, sites=2, tls=True, tls_ca=good.ca, place_timeout_s=30.0, **here).__enter__()
