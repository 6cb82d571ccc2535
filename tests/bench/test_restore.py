"""`evenflow bench restore`: what it counts, what it reads of a location, what it fetches, and the whole of it on a small state."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.bench import flink, killing
from evenflow.bench.background import end, start
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.flink_restore import write_fill
from evenflow.bench.restore import Setting, compare, restored, strike, systems
from evenflow.bench.restoring import Driver, DueReader
from evenflow.bench.tally import Compared, Tally
from evenflow.errors import ClusterError, QueryError
from evenflow.store.journal import read_journal
from evenflow.store.location import find_location

SOURCE = ScheduledEvents(1_000, 2**50, 8, count=2, at_once=8)


def answers(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    key, n, total = zip(*rows)
    return pa.record_batch([pa.array(key), pa.array(n), pa.array(total)], names=["key", "n", "total"])


def folded(rows: int) -> tuple[list[tuple[int, int, int]], dict[tuple[int, int], int]]:
    """The last answer of each key after so many rows of each partition; and how many were taken."""
    found: dict[int, tuple[int, int]] = {}
    for partition in range(SOURCE.count):
        batch = SOURCE.open(partition, SOURCE.count).read(2**60, rows)
        assert batch is not None
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist()):
            n, total = found.get(key, (0, 0))
            found[key] = n + 1, total + value
    return [(key, n, total) for key, (n, total) in found.items()], {(0, 0): rows, (0, 1): rows}


def test_a_tally_that_has_everything_once_differs_in_nothing(tmp_path: Path) -> None:
    rows, taken = folded(50)
    tally = Tally(tmp_path, SOURCE.keys)
    tally(1, answers(*rows))
    assert Tally(tmp_path, SOURCE.keys).compare(SOURCE, taken) == Compared(100, 0, 0, 0), "it is in files"
    assert (tally.rows, tally.again) == (100, 0)


def test_a_lost_row_a_repeated_one_and_a_wrong_sum_are_told_apart(tmp_path: Path) -> None:
    rows, taken = folded(50)
    (a, n, total), (b, m, other), (c, k, third), *rest = rows
    tally = Tally(tmp_path, SOURCE.keys)
    tally(1, answers((a, n - 2, total), (b, m + 3, other), (c, k, third + 1), *rest))
    assert tally.compare(SOURCE, taken) == Compared(100, lost=2, repeated=3, wrong=1)


def test_an_answer_that_was_there_is_neither_new_nor_a_sign_of_life(tmp_path: Path) -> None:
    tally = Tally(tmp_path, 8)
    tally(1, answers((3, 2, 20), (4, 1, 5)))
    then_s = time.monotonic()
    tally(1, answers((3, 2, 20), (4, 1, 5)))
    assert (tally.rows, tally.again, tally.since(then_s)) == (3, 2, None)
    tally(2, answers((3, 3, 21), (4, 1, 5)))
    found_s = tally.since(then_s)
    assert (tally.rows, tally.again) == (4, 3)
    assert found_s is not None and found_s >= then_s


def test_offsets_of_structured_streaming_have_each_row_once() -> None:
    """Goal: what a query reads between offsets is what Evenflow reads, wherever a batch ends."""
    reader, found = DueReader(SOURCE), list[tuple[int, int]]()
    for first, last in ((0, 1), (1, 8), (8, 8), (8, 21)):
        for each in reader.partitions({"rows": first}, {"rows": last}):
            for batch in reader.read(each):
                found += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist())
    expected = []
    for partition, rows in ((0, 11), (1, 10)):
        batch = SOURCE.open(partition, SOURCE.count).read(2**60, rows)
        assert batch is not None
        expected += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist())
    assert sorted(found) == sorted(expected)


def test_files_for_flink_have_each_key_once(tmp_path: Path) -> None:
    write_fill(tmp_path / "fill", 10, 3)
    found = [tuple(map(int, row)) for file in (tmp_path / "fill").iterdir() for row in csv.reader(file.read_text().splitlines())]
    assert sorted(found) == [(key, key % 1000) for key in range(10)]


def test_systems_are_named_or_refused() -> None:
    assert systems(None) == ("evenflow", "flink", "spark")
    assert systems("spark, evenflow") == ("evenflow", "spark")
    with pytest.raises(QueryError, match=r"'storm'.*evenflow, flink, spark"):
        systems("evenflow,storm")


# ---------------------------------------------------------------- Flink


def package(path: Path, *jars: str) -> Path:
    with zipfile.ZipFile(path, "w") as files:
        for name in (*jars, "pyflink/lib/flink-scala_2.12-2.3.0.jar", "pyflink/licenses/LICENSE.flink-csv"):
            files.writestr(name, name)
    return path


def test_of_flinks_package_those_jars_are_taken_that_a_cluster_needs(tmp_path: Path) -> None:
    there = [f"pyflink/lib/{name}-{flink.VERSION}.jar" for name in flink.WANTED]
    flink.unpack(package(tmp_path / "flink.whl", *there), tmp_path / "jars")
    assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == sorted(Path(name).name for name in there)


def test_a_package_without_a_jar_is_refused_by_its_name(tmp_path: Path) -> None:
    there = [f"pyflink/lib/{name}-{flink.VERSION}.jar" for name in flink.WANTED if name != "flink-csv"]
    with pytest.raises(ClusterError, match=re.escape("flink.whl has no flink-csv:")):
        flink.unpack(package(tmp_path / "flink.whl", *there), tmp_path / "jars")


def test_flink_that_cannot_be_fetched_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a failed download is no half of a cluster later. Method: pip may look nowhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    said: list[str] = []
    with pytest.raises(ClusterError, match=f"pip could not fetch {flink.PACKAGE} {flink.VERSION}: ERROR"):
        flink.jars(said.append)
    assert "fetching Flink" in said[0]
    assert not list((tmp_path / "evenflow").iterdir())


# ---------------------------------------------------------------- processes


def test_a_program_in_the_background_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Goal: nothing that was killed with -9 leaves a program running. Method: a parent that starts one and is killed."""
    program = (
        "import time; from pathlib import Path; from evenflow.bench.background import start\n"
        f"shell = start(['sleep', '1000'], Path({str(tmp_path / 'log')!r})); print(shell.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        shell = int(parent.stdout.readline())
        deadline_s = time.monotonic() + 10.0
        while not (below := killing.below(shell, killing.parents())):
            assert time.monotonic() < deadline_s
        parent.send_signal(signal.SIGKILL)
    assert killing.gone([shell, *below], 10.0)


def test_one_that_was_killed_ends_like_any_other(tmp_path: Path) -> None:
    shell = start(["sleep", "1000"], tmp_path / "log")
    while not (below := killing.below(shell.pid, killing.parents())):
        pass
    killing.kill(below)
    end(shell)
    assert killing.gone([shell.pid, *below])


@pytest.mark.conformance
@pytest.mark.timeout(600)
def test_losses_of_executors_and_of_everything_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Goal: each key has its count and its sum after a generation in place and one of another driver; both made rows again."""
    driver = Driver(str(tmp_path), "evenflow", 1, 5_000, 2.0, 2, time.time_ns() // 1000)
    said: list[str] = []
    lost = strike(driver, Setting(state_mb=1, rate=5_000, every_s=2.0, kills=1), said.append)
    assert (len(lost.in_place_s), len(lost.cluster_s), len(lost.spark_s), lost.again) == (1, 1, 1, 0), said
    assert 0 < lost.spark_s[0] < lost.sites_s[0] < lost.cluster_s[0]
    assert lost.in_place_s[0] > 1.0, "no executor starts within a second"
    compared = compare(driver, driver.tally())
    assert compared.rows > driver.keys + 10_000
    assert (compared.lost, compared.repeated, compared.wrong) == (0, 0, 0)
    store = find_location(driver.location).store
    generations = restored(store)
    assert len(read_journal(store).begins) == 3
    assert generations and all(each.bytes > 0 and each.rows > 0 for each in generations), generations
