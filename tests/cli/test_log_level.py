"""`evenflow --log-level`: what the driver and its sites say."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from evenflow.cli.app import main
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
