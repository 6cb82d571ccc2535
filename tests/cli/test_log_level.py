"""`evenflow --log-level`: what the driver and its sites say."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from evenflow.cli.app import main
from evenflow.coordinator.events import Happened, Kind
from evenflow.world.logs import JsonLines, about, formatter
from evenflow.world.spark.driver.happenings import Happenings
from evenflow.world.spark.executor.entry import speak


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("evenflow")
    level, handlers = found.level, list(found.handlers)
    yield found
    found.setLevel(level)
    found.handlers = handlers


def test_the_option_sets_the_level_of_the_package_s_logger(logger: logging.Logger) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--log-level", "info", "policy", "--help"])
    assert end.value.code == 0 and logger.level == logging.INFO


def test_a_level_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as end:
        main(["--log-level", "loud", "policy", "--help"])
    assert end.value.code == 2


def test_who_has_a_handler_keeps_it_and_who_has_none_hears_of_it_on_standard_error(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(logger.handlers)
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: True)
    speak(logging.ERROR)
    assert logger.handlers == before and logger.level == logging.ERROR
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    speak(logging.INFO)
    [handler] = [each for each in logger.handlers if each not in before]
    assert "INFO evenflow[" in handler.format(logging.LogRecord("evenflow", logging.INFO, "", 0, "a site has come", (), None))


def record(message: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("evenflow", logging.WARNING, "", 0, message, (), None)
    made.__dict__.update(more)
    return made


def test_lines_are_objects_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(formatter(), JsonLines)
    monkeypatch.setenv("EVENFLOW_LOG", "JSON")
    assert isinstance(formatter(), JsonLines)


def test_a_line_of_json_holds_whatever_was_said() -> None:
    said = JsonLines().format(record('two\nlines, "quoted" \u2028', **about(run="r1", site=0, epoch=None, kind="site_lost")))
    assert "\n" not in said
    line = json.loads(said)
    assert line["message"] == 'two\nlines, "quoted" \u2028' and line["level"] == "warning" and line["at"].endswith("+00:00")
    assert {name: line.get(name) for name in ("run", "site", "epoch", "kind")} == {
        "run": "r1",
        "site": 0,
        "epoch": None,
        "kind": "site_lost",
    }


def test_a_line_has_the_error_and_never_fails_for_what_is_no_json() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        failed = record("it failed", exc_info=sys.exc_info(), **about(site=object()))
    line = json.loads(JsonLines().format(failed))
    assert "ValueError: no" in line["error"] and line["site"].startswith("<object")


def test_what_happens_to_a_run_is_said_in_its_log(caplog: pytest.LogCaptureFixture, logger: logging.Logger) -> None:
    logger.setLevel(logging.INFO)
    caplog.set_level(logging.INFO, "evenflow")
    Happenings(0.0, "r1", "flow").note(Happened(Kind.SITE_LOST, 3, "site 3 is lost", {"epoch": 17}), 1.0)
    (said,) = caplog.records
    line = json.loads(JsonLines().format(said))
    assert {**line, "at": 0, "pid": 0} == {
        "at": 0, "pid": 0, "level": "info", "message": "r1: site 3 is lost", "dataflow": "flow", "run": "r1", "site": 3, "epoch": 17,
        "kind": "site_lost",
    }  # fmt: skip
