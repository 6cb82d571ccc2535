"""Statistics of a run go into a file, line by line, without a gap and without saying anything twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from tests.monitor.simulated import line_of, stream
from tests.statistics.windows import segment, site

from evenflow.cli.recording import Recorder, Recording
from evenflow.monitor.recorded import read
from evenflow.statistics.recent import Recent
from evenflow.statistics.statistics import Statistics, read_lines


class Running:
    """A run of two sites; `go_on` lets a quarter of a second pass."""

    def __init__(self) -> None:
        self.recent, self.at_us = Recent(), 0

    def go_on(self) -> None:
        for number in (0, 1):
            self.recent.add(site(number, self.at_us, self.at_us + 250_000, 50_000, segment({number: 10})))
        self.at_us += 250_000

    def statistics_since(self, seen: int = 0) -> tuple[Statistics, int]:
        return self.recent.since(seen), self.recent.count


def test_a_line_a_second_and_the_rest_at_the_end_are_all_there_was(tmp_path: Path) -> None:
    run, path = Running(), tmp_path / "statistics.json"
    recording = Recording(path, print)
    for quarter in range(11):
        run.go_on()
        recording.step(run, quarter / 4)
    run.go_on()
    recording.write(run)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [Statistics.from_json(line).rows() for line in lines] == [{(1, 0): n, (1, 1): n} for n in (10, 40, 40, 30)]
    assert read_lines(lines) == run.recent.since(0)


def test_nothing_new_is_no_line(tmp_path: Path) -> None:
    run, path = Running(), tmp_path / "statistics.json"
    path.write_text("of an earlier run")
    recording = Recording(path, print)
    recording.write(run)
    run.go_on()
    recording.write(run)
    recording.write(run)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="cannot be written: No such file or directory"):
        Recording(tmp_path / "nowhere" / "statistics.json", print)


def test_what_is_told_to_those_who_watch_is_recorded_and_read(tmp_path: Path) -> None:
    path, told = tmp_path / "run.jsonl", stream(4.0, kill_s=1.2)
    path.write_text("of an earlier run")
    recorder = Recorder(path, print)
    recorder.step()  # Before the engine is there nothing is.
    heard: list[tuple[int, int]] = []

    def news(scene: int, reading: int) -> tuple[int, int, list[bytes]]:
        heard.append((scene, reading))
        first = 2 * len(heard) - 2
        return len(heard), len(heard), [line_of(each).encode()[:-1] for each in told[first : first + 2]]

    recorder.begin(news)
    for _ in range(len(told)):
        recorder.step()
    assert heard[:3] == [(0, 0), (1, 1), (2, 2)]
    with path.open("rb") as file:
        assert list(read(file)) == told


def test_a_recording_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="cannot be written: No such file or directory"):
        Recorder(tmp_path / "nowhere" / "run.jsonl", print)
