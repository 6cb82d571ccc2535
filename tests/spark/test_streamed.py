"""A streaming DataFrame with a checkpoint location: everything is killed, and every row counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.sources.spooled import FOLDER
from tests.restarting import Start, wait_until, written
from tests.restarting_streamed import FILE_ROWS, Streamed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.conformance
def test_everything_is_killed_and_every_row_counts_once(start: Start, tmp_path: Path, kills: int) -> None:
    """Goal: rows and windows as plain Python has them, and what no checkpoint needs has gone. Method: kill -9 of the driver, its JVM and
    all executors while Spark writes batches; the watermark has no delay, and rows of a batch are in no order."""
    setting = Streamed(str(tmp_path), spark=True, checkpoint_s=0.5, files=12 * kills + 12)
    Path(setting.input).mkdir()
    given = 0
    for generation, files in enumerate(range(12, setting.files, 12), 1):
        driver = start(setting)
        assert driver.line() == f"running {generation}"
        for file in range(given, files):
            setting.give(file)
        given = files
        enough = (files - 6) * FILE_ROWS
        wait_until(lambda rows=enough: len(written(setting)) >= rows, 120, f"{enough} rows are in the table")  # type: ignore[misc]
        driver.kill()
    driver = start(setting)
    assert driver.line() == f"running {kills + 1}"
    for file in range(given, setting.files):
        setting.give(file)
    wait_until(lambda: len(written(setting)) >= setting.files * FILE_ROWS, 120, "all rows are in the table")
    (batches,) = (Path(setting.location) / FOLDER).glob("*/batches")
    wait_until(lambda: not (batches / "0000000000.json").exists() or batches_of(setting) < setting.files, 5, "the first batches are gone")
    assert driver.drain() == "ended"
    setting.compare()


def batches_of(setting: Streamed) -> int:
    return len(list((Path(setting.location) / FOLDER).glob("*/batches/*.json")))
