"""Warnings of sites: ten a second are told, the rest are counted, and none makes a site fail; those of a dead site stay."""

from __future__ import annotations

import logging
import sys

import pytest

from evenflow.monitor.reading import LogLine
from evenflow.monitor.watching import Watching
from evenflow.world.spark.driver import known
from evenflow.world.spark.executor.warned import LONGEST, PER_SECOND, Warnings
from evenflow.world.spark.net import control


def record(message: object, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("mine", level, "file", 1, message, arguments, None)


def test_ten_a_second_are_told_and_the_rest_counted() -> None:
    now = [0.0]
    warnings = Warnings(lambda: now[0])
    for number in range(25):
        warnings.handle(record("row %d", number))
    assert [line.text for line in warnings.take()] == [f"row {n}" for n in range(PER_SECOND)]
    assert warnings.left_out == 15 and warnings.take() == ()
    now[0] = 1.0
    warnings.handle(record("again"))
    assert [(line.level, line.logger, line.text) for line in warnings.take()] == [("WARNING", "mine", "again")]


def test_nobody_who_asks_and_nothing_that_cannot_be_written_does_harm() -> None:
    now = [0.0]
    warnings = Warnings(lambda: now[0])
    for second in range(1000):
        now[0] = float(second)
        warnings.handle(record("%d", "no number"))
        warnings.handle(record("\ud800" + "x" * 5_000))
    lines = warnings.take()
    assert len(lines) == 10 * PER_SECOND and warnings.left_out == 2_000 - len(lines)
    assert "cannot be written" in lines[0].text and len(lines[1].text) == LONGEST and lines[1].text.encode()
    logger, seen = logging.Logger("user"), Warnings(lambda: 0.0)
    logger.addHandler(seen)
    logger.info("quiet")
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("it failed")
    assert [line.text for line in seen.take()] == ["it failed (ValueError: why)"]


def test_what_nobody_else_handles_is_written_as_before(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root, warnings = logging.getLogger(), Warnings()
    monkeypatch.setattr(root, "handlers", [warnings])
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(sys.stderr))
    logging.getLogger("nobody").warning("seen in the executor's log")
    assert capsys.readouterr().err == "seen in the executor's log\n"
    monkeypatch.setattr(root, "handlers", [warnings, logging.NullHandler()])
    logging.getLogger("nobody").warning("somebody else does")
    assert capsys.readouterr().err == "" and len(warnings.take()) == 2


def test_the_driver_keeps_the_newest_of_all_sites_and_a_reading_has_them() -> None:
    warnings = known.Warnings()
    for turn in range(30):
        for site in (0, 1):
            line = control.Warned(turn, "WARNING", "mine", f"{site}.{turn}")
            report = control.Report(0, 0.0, 0, 0, 0, {}, (line,), 2 * turn)
            warnings.take(site, control.from_site(b"".join(map(bytes, control.encode(report)))))  # type: ignore[arg-type]
    assert len(warnings.lines) == 50 and warnings.lines[-1] == LogLine(warnings.count - 3, 29, 1, "WARNING", "mine", "1.29")
    assert warnings.count == 2 * 30 + 2 * 2 * 29
    _, reading = Watching("e", "app").look(1, [], [], (tuple(warnings.lines), warnings.count))
    assert reading.from_json(reading.to_json()) == reading and reading.logs_count == warnings.count and len(reading.logs) == 50
    old = reading.to_json()
    del old["logs"], old["logs_count"]
    assert reading.from_json(old).logs == ()
