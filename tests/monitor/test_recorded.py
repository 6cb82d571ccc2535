"""A recording is read as it was written; one that was cut up to the cut; anything else is an error that names the line."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace

import pytest

from evenflow.errors import StatisticsError
from evenflow.monitor import recorded
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import LINE_MAX, read
from evenflow.monitor.scene import Scene
from tests.monitor.simulated import line_of, readings_of, scenes_of, stream


def lines() -> list[bytes]:
    return [line_of(each).encode() for each in stream(4.0, kill_s=1.2)]


def test_a_recording_is_read_as_it_was_written() -> None:
    assert list(read(lines())) == stream(4.0, kill_s=1.2)


def test_a_recording_that_was_cut_is_read_up_to_the_cut() -> None:
    whole = b"".join(lines())
    told = stream(4.0, kill_s=1.2)
    rng = random.Random(5)
    for cut in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(20))]:
        there = whole[:cut].splitlines(keepends=True)
        found = list(read(there))
        assert found == told[: len(found)] and len(found) == whole[:cut].count(b"\n")


def text(kind: type[Scene | Reading], **changed: object) -> bytes:
    told = scenes_of(stream(4.0, kill_s=1.2))[0] if kind is Scene else readings_of(stream(4.0, kill_s=1.2))[0]
    return json.dumps({**told.to_json(), **changed}).encode() + b"\n"


HOSTILE = {
    "no JSON": b"evenflow\n",
    "another object": b'{"a": 1}\n',
    "a number": b"17\n",
    "nested": b"[" * 100_000 + b"\n",
    "no text": b"\xff\xfe\n",
    "a field too few": b'{"kind": "scene", "number": 1}\n',
    "not a number": b'{"kind": "reading", "number": NaN}\n',
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_recording_is_an_error_with_its_line(line: bytes) -> None:
    with pytest.raises(StatisticsError, match="^line 2: "):
        list(read([text(Scene), line]))


def test_a_line_that_never_ends_is_refused() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return LINE_MAX + 1

    with pytest.raises(StatisticsError, match="more than a line may have"):
        list(read([Long()]))


def test_a_reading_that_does_not_fit_its_scene_is_an_error() -> None:
    with pytest.raises(StatisticsError, match="which has not come"):
        list(read([text(Reading)]))
    with pytest.raises(StatisticsError, match="scene 9, which has not come"):
        list(read([text(Scene), text(Reading, scene=9)]))
    with pytest.raises(StatisticsError, match="other runs"):
        list(read([text(Scene), text(Reading, runs=[])]))
    told = readings_of(stream(4.0, kill_s=1.2))[0]
    short = replace(told.runs[0], boxes=replace(told.runs[0].boxes, busy_us=(1,)))
    with pytest.raises(StatisticsError, match=r"RunBoxes\.busy_us has 1 values, and the scene 4"):
        list(read([text(Scene), line_of(replace(told, runs=(short,))).encode()]))


def test_kinds_of_a_newer_evenflow_are_passed_by() -> None:
    assert [type(each) for each in read([text(Scene), b'{"kind": "flame", "x": 1}\n', text(Reading)])] == [Scene, Reading]


def test_a_file_without_ends_of_lines_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "LINE_MAX", 100)
    file = io.BytesIO(b"x" * 10_000)
    with pytest.raises(StatisticsError, match="line 1"):
        list(read(recorded.lines_of(file)))
    assert file.tell() == 101
