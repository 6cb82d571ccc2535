"""Executors map the archive of Spark's classes that `make setup` has made."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from evenflow.world.spark.cluster import session
from evenflow.world.spark.cluster.classes import options_and_path
from evenflow.world.spark.cluster.leftovers import MARK
from evenflow.world.spark.cluster.processes import marked

pytestmark = [pytest.mark.spark, pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system shows no maps of processes")]


def test_the_driver_and_every_executor_have_it(spark: Any) -> None:
    found = options_and_path()
    assert found is not None, "make setup makes it"
    archive = found[0].split()[0].partition("=")[2]
    mapped = 0
    for process in marked(MARK, session._started[spark.sparkContext].mark):
        with contextlib.suppress(FileNotFoundError):  # It has ended meanwhile.
            mapped += archive in Path(f"/proc/{process}/maps").read_text()
    assert mapped == 5, "a driver and four executors"
