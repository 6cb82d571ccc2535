"""A run at a checkpoint location is replaced by a version of itself, and killed: real processes, files and kills, without Spark (K11)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.restarting import Start, compare, wait_until, written
from tests.restarting_replaced import Replaced

import evenflow as ef
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store

pytestmark = [pytest.mark.timeout(300)]


@pytest.mark.conformance
def test_everything_is_killed_behind_a_version_and_goes_on_as_it(start: Start, tmp_path: Path) -> None:
    """`tests/spark/test_restart.py` has the first half on executors.

    Goal: every row once, and what the first version has made is all that it ever makes. Method: kill -9 of the driver and all sites at
    the moment at which the version was promised, with rows of both versions in what is replayed; then again behind a checkpoint that the
    second generation makes, where nobody needs the first version any more."""
    setting = Replaced(str(tmp_path), endless=True, replace_at=1_000)
    driver = start(setting)
    assert (driver.line(), driver.line()) == ("running 1", "replaced 1")
    driver.kill()
    standing = read_journal(open_store(setting.location))
    assert [content.version for content in standing.contents] == [0, 1], "who has asked was answered when the journal had it"
    rows = len(written(setting))

    setting = replace(setting, replace_at=0)
    said = start(setting).last()
    assert said.startswith("ProgramChanged: ") and "version 1 acts from epoch" in said and "as it was begun" in said
    setting = replace(setting, starts=1, checkpoint_s=0.5, sites=3)
    driver = start(setting)
    assert driver.line() == "running 2"
    wait_until(lambda: len(written(setting)) > rows, 60, "rows that are new")
    wait_until(lambda: read_journal(open_store(setting.location)).base > standing.contents[1].effective, 60, "a checkpoint")
    driver.kill()
    first = setting.count(0)
    there = ef.checkpoints(setting.location)
    assert there.verify().whole and there.inspect().boxes and there.state("counted").num_rows >= 0
    versions = Path(setting.location) / "versions"
    [named] = versions.glob("0*.json")
    away = named.rename(named.with_suffix(".away"))
    assert {(fault.object, fault.fault) for fault in there.verify().faults} == {(f"versions/{named.name}", "missing")}
    away.rename(named)
    for each in versions.iterdir():
        each.unlink()  # The program that is started is the only one that is needed now, and says itself what it is.

    driver = start(setting)
    assert driver.line() == "running 3"
    assert driver.drain() == "ended"
    compare(setting)
    assert first and setting.count(0) == first and setting.count(1), "what the first version had made was not made again, and no more"


def test_code_of_a_version_is_not_run_from_the_location(start: Start, tmp_path: Path) -> None:
    """Goal: whoever writes to a location has no code run by it. Method: a version with code has to be made again; then it is hostile."""
    spoilt = tmp_path / "spoilt"
    said = start(hostile(start, tmp_path, spoilt)).last()
    assert said.startswith("ProgramMissing: ") and "version 0, the dataflow as it was begun" in said and "--earlier" in said
    assert not spoilt.exists()


@pytest.mark.conformance
def test_code_of_a_version_is_that_of_the_program_that_is_given_beside(start: Start, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt"
    setting = replace(hostile(start, tmp_path, spoilt), earlier=True)
    driver = start(setting)
    assert driver.line() == "running 2"
    assert driver.drain() == "ended"
    compare(setting)
    assert not spoilt.exists()


def hostile(start: Start, tmp_path: Path, spoilt: Path) -> Replaced:
    """A run whose rows are made by two versions has been killed, and somebody has put code into the first one that makes the file."""
    setting = Replaced(str(tmp_path), endless=True, replace_at=200, coded=True)
    driver = start(setting)
    assert (driver.line(), driver.line()) == ("running 1", "replaced 1")
    driver.kill()
    begun = Path(setting.location) / "versions" / "begun.json"
    saved = json.loads(begun.read_text())
    for box in saved["boxes"]:
        pickled = f"cposix\nsystem\n(Vtouch {spoilt}\ntR.".encode()
        box["params"], box["is"] = {key: {"pickle": base64.b64encode(pickled).decode()} for key in box["params"]}, ""
    begun.write_text(json.dumps(saved))
    return replace(setting, replace_at=0, starts=1)
