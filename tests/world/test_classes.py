"""The archive of Spark's classes is used where it is whole and nobody else's, and Spark starts without it elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.errors import ClusterError
from evenflow.world.spark.cluster import classes
from evenflow.world.spark.cluster.session import settings


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java_home: str) -> Path:
    found = tmp_path / "share"
    monkeypatch.setattr(classes, "PLACE", found)
    return found


def archive(place: Path, said: int, size: int) -> Path:
    place.mkdir(exist_ok=True)
    path = place / f"{classes._name()}-{said}.jsa"
    path.write_bytes(bytes(size))
    return path


def test_drivers_and_executors_of_embedded_clusters_use_it(place: Path, tmp_path: Path) -> None:
    path = archive(place, 7, 7)
    chosen = settings("local-cluster[4,2,1024]", tmp_path)
    for role in ("driver", "executor"):
        assert f"-XX:SharedArchiveFile={path} -Xshare:auto" in chosen[f"spark.{role}.extraJavaOptions"]
        assert chosen[f"spark.{role}.extraClassPath"].endswith("/jars/*"), "the archive is of these jars, not of a session's links to them"
    elsewhere = settings("spark://host:7077", tmp_path)
    assert not {"spark.executor.extraClassPath", "spark.executor.extraJavaOptions"} & set(elsewhere), "another machine has other files"


def test_without_it_nothing_is_said_of_it(place: Path, tmp_path: Path) -> None:
    chosen = settings("local-cluster[4,2,1024]", tmp_path)
    assert not any("Shared" in value or "Class" in key for key, value in chosen.items())


@pytest.mark.parametrize("size", [0, 6, 8])
def test_what_was_cut_off_is_not_used(place: Path, size: int) -> None:
    """A JVM that maps such a file dies."""
    archive(place, 7, size)
    assert classes.options_and_path() is None


def test_what_others_can_write_is_not_used(place: Path) -> None:
    """It is code."""
    archive(place, 7, 7)
    assert classes.options_and_path() is not None
    place.chmod(0o777)
    assert classes.options_and_path() is None


def test_another_runtime_has_another(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(place, 7, 7)
    other = tmp_path / "jdk"
    (other / "bin").mkdir(parents=True)
    (other / "release").write_text('JAVA_VERSION="21.0.1"\n')
    (other / "bin" / "java").write_text("#!/bin/sh\n")
    (other / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(other))
    assert classes.options_and_path() is None


def test_a_place_that_takes_nothing_is_said(place: Path) -> None:
    place.write_text("a file")
    with pytest.raises(ClusterError, match="cannot be kept"):
        classes.make()
