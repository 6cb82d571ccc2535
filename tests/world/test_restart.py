"""A driver and all its sites are killed, and the next driver at the location goes on: real processes, files and kills, without Spark.

The same on executors: tests/spark/test_restart.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.restarting import Setting, Start, compare, hangs_and_comes_back, wait_until, written

from evenflow.availability.standing import Standing
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store

pytestmark = [pytest.mark.timeout(480)]


@pytest.mark.conformance
def test_everything_is_killed_twice_and_nothing_is_lost_or_repeated(start: Start, tmp_path: Path) -> None:
    """Goal: the table and the files have every row once. Method: kill -9 of the driver and all sites while rows come, first when some are
    in the table, then when more are; the last generation has one site more."""
    setting = Setting(str(tmp_path))
    for generation, rows in ((1, 1_000), (2, 4_000)):
        driver = start(setting)
        assert driver.line() == f"running {generation}"
        wait_until(lambda rows=rows: len(written(setting)) > rows, 60, f"{rows} rows are in the table")  # type: ignore[misc]
        driver.kill()
    assert len(written(setting)) < setting.rows, "it was over before it was killed"
    driver = start(replace(setting, sites=3))
    assert driver.line() == "running 3"
    assert driver.last() == "ended"
    compare(setting)
    assert start(setting).last() == "over"
    compare(setting)


@pytest.mark.conformance
def test_a_driver_that_hangs_is_replaced_and_adds_nothing_when_it_comes_back(start: Start, tmp_path: Path) -> None:
    """Goal: the stale driver ends with Fenced, and nothing of it is there twice. Method: SIGSTOP for longer than its sites live without it;
    the next driver runs to the end; SIGCONT."""
    setting = Setting(str(tmp_path))
    hangs_and_comes_back(start, setting, rows=1_000)


@pytest.mark.conformance
def test_of_two_drivers_the_one_that_was_asked_to_takes_over(start: Start, tmp_path: Path) -> None:
    """Goal: unasked, a driver does not replace one that lives; asked, it does, and both together put out every row once."""
    setting = Setting(str(tmp_path), endless=True)
    first = start(setting)
    assert first.line() == "running 1"
    wait_until(lambda: len(written(setting)) > 1_000, 60, "1,000 rows are in the table")
    assert start(setting).last().startswith("LocationError: another driver runs dataflow 'restarting'")
    second = start(replace(setting, take_over=True))
    assert second.line() == "running 2"
    assert first.last().startswith("Fenced: another driver has begun generation 2")
    there = len(written(setting))
    wait_until(lambda: len(written(setting)) > there, 60, "the second one puts out rows")
    assert second.drain() == "ended"
    compare(setting)


@pytest.mark.conformance
def test_another_program_is_refused_and_the_first_one_goes_on(start: Start, tmp_path: Path) -> None:
    setting = Setting(str(tmp_path), rows=2_000)
    driver = start(setting)
    assert driver.line() == "running 1"
    driver.kill()
    other = start(replace(setting, condition="key >= 1"))
    assert other.last().startswith("ProgramChanged: dataflow 'restarting' is another one than that at ")
    driver = start(setting)
    assert driver.line() == "running 2"
    assert driver.last() == "ended"
    compare(setting)


def standing(setting: Setting) -> Standing:
    try:
        return read_journal(open_store(setting.location))
    except (LocationError, JournalCorrupt):
        return Standing()  # It is not there yet, or is being written.


@pytest.mark.conformance
def test_the_next_driver_begins_with_the_newest_checkpoint(start: Start, tmp_path: Path) -> None:
    """Goal: every row once, though nothing before the checkpoint is read again. Method: kill -9 of everything behind some checkpoints; the
    next generation has one site more, and makes checkpoints of its own; then that is killed, too."""
    setting = Setting(str(tmp_path), endless=True, checkpoint_s=0.5)
    driver, base = start(setting), 0
    for generation in (1, 2):
        assert driver.line() == f"running {generation}"
        wait_until(lambda base=base: standing(setting).base > base, 60, "a checkpoint of this generation")  # type: ignore[misc]
        driver.kill()
        base = standing(setting).base
        assert standing(setting).checkpoints[-1].generation == generation
        driver = start(replace(setting, sites=1 + generation))
    assert driver.line() == "running 3"
    assert driver.drain() == "ended"
    compare(setting)
