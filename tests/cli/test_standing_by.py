"""What `evenflow run --standby` says while it waits, and which options go together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.commands import object_of, run

from evenflow.cli.output import Output
from evenflow.cli.standing_by import LINE_EVERY_S, Lines, standby_line, standing_by
from evenflow.world.spark.driver.standing_by import StandbyProgress

WAITS = StandbyProgress("/there", "sessions", 3, 12_345, 0.42, 10.1, 77.0, 4, None, "stands by at /there")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--standby"], "needs a location to watch: give --checkpoint-location"),
        (["--standby", "--take-over", "--checkpoint-location", "/there"], "waits until another driver is silent, and --take-over does not"),
    ],
)
def test_options_that_make_no_sense_together_are_wrong_usage(
    options: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.py"
    file.write_text("import evenflow as ef\ndef dataflow():\n    raise RuntimeError('it is not even looked at')\n")
    assert run("run", str(file), "--json", *options) == 2
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "UsageError" and "--standby" in error["message"] and message in error["message"]


def test_the_line_has_location_generation_and_the_last_sign_of_life() -> None:
    line = standby_line(WAITS)
    for part in ("/there", "generation 3", "entry 12,345", "last sign of life 0.4 s ago", "takes over after 10.1 s of silence"):
        assert part in line
    assert "nobody has begun" in standby_line(replace(WAITS, generation=0))
    assert standby_line(replace(WAITS, trouble="the store is away")).endswith("; the store is away")


def test_without_a_terminal_a_line_comes_now_and_then_and_one_for_what_happens(capfd: pytest.CaptureFixture[str]) -> None:
    now_s = [100.0]
    lines = Lines(Output(as_json=False), None, now_s=lambda: now_s[0])
    for _ in range(3):
        lines(WAITS)
    assert capfd.readouterr().err.splitlines() == ["stands by at /there"]
    lines(replace(WAITS, trouble="the store is away"))
    lines(replace(WAITS, trouble="the store is away"))
    assert len(capfd.readouterr().err.splitlines()) == 1
    lines(WAITS)
    now_s[0] += LINE_EVERY_S
    lines(replace(WAITS, said="takes over"))
    assert [line.split()[0] for line in capfd.readouterr().err.splitlines()] == ["stands", "takes", "stands"]


def test_who_does_not_stand_by_is_told_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with standing_by(Output(as_json=False), False) as watch:
        assert watch is None
    assert capfd.readouterr().err == ""


def test_json_of_how_it_stands() -> None:
    assert WAITS.to_json()["silent_s"] == 0.42 and set(WAITS.to_json()) == {
        "location", "dataflow", "generation", "entry", "silent_s", "patience_s", "waited_s", "sites", "trouble", "said",
    }  # fmt: skip
