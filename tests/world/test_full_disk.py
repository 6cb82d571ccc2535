"""The disk of a location is full for a while, for real: real sites, and a file system of its own in which somebody else takes all room."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.restarting import ROOT, wait_until

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.errors import LocationError
from evenflow.world.spark.driver.run import Run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

ROWS, KEYS, TIMES = 8_000, 300, 3


@contextmanager
def no_room(folder: Path) -> Iterator[None]:
    """Every byte of the file system is taken."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(folder).free == 0
    yield
    filler.unlink()


def kinds(run: Run, kind: str) -> int:
    return sum(event["kind"] == kind for event in run.events())


def number_of(run: Run) -> int:
    """Of the newest checkpoint; 0 if there is none."""
    return (run.progress()["checkpoint"] or {}).get("number") or 0


def serve(folder: Path) -> None:
    """A run whose disk is full when it is started, and then `TIMES` times more."""
    flow, sink, location = ef.Dataflow("full"), ef.sinks.memory("totals"), str(folder / "location")
    made = flow.source(ef.sources.generator(rate=1_000, keys=KEYS, rows=ROWS, partitions=2), name="made")
    made.group_by("key").agg(n="count(*)").to(sink, name="totals")
    with BareEngine(sites=2, partitions=8, checkpoint_s=0.1) as engine:
        with no_room(folder), pytest.raises(LocationError, match="make room there"):
            engine.start(flow, checkpoint_location=location)
        run = engine.start(flow, checkpoint_location=location)
        for time in range(1, TIMES + 1):
            newest = number_of(run)
            wait_until(lambda: number_of(run) > newest, 30, "a checkpoint")  # noqa: B023
            with no_room(folder):
                wait_until(lambda: kinds(run, "journal_waits") == time, 30, "the journal to wait")  # noqa: B023
                there = run.progress()["journal"]
                assert run.is_active
            wait_until(lambda: kinds(run, "journal_back") == time, 30, "the journal to be back")  # noqa: B023
            assert run.progress()["journal"] != there, "it goes on"
        assert run.await_termination(120)
    newest = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
    assert len(newest) == KEYS and sum(newest.values()) == ROWS
    assert ef.checkpoints(location).verify().whole


def test_a_run_whose_disk_is_full_waits_for_room(tmp_path: Path) -> None:
    """Goal: an error at the start; later nothing but time, and every row once. Method: all room is taken three times."""
    place = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=2m none {tmp_path} && exec "$@"', "sh")
    if subprocess.run([*place, "true"], check=False, capture_output=True).returncode:
        pytest.skip("an ordinary user may not mount a file system of his own here")
    command = [*place, sys.executable, "-m", "tests.world.test_full_disk", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
