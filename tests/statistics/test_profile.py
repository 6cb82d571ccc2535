"""A profile keeps its sums whatever is left out of it, and says the same as JSON, as folded stacks and as a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from evenflow.errors import OperationRefused
from evenflow.statistics.flame import bars
from evenflow.statistics.profile import OTHERS, Profile, Stack, bounded, check_seconds

LOOP = ("thread loop", "site.serve", "hosted.run")
STACKS = (
    Stack((*LOOP, "box sessions", "process"), 600, 700), Stack((*LOOP, "box <often> & more", "process", "inner"), 250, 250),
    Stack((*LOOP, "box sessions", "process", "inner"), 150, 150), Stack(("thread loop", "site.serve", "poll"), 0, 8_900),
)  # fmt: skip
PROFILE = Profile(2, 5.0, 500, 1_100, 40, STACKS)


def test_json_brings_it_back() -> None:
    told = json.loads(json.dumps(PROFILE.to_json()))
    assert Profile.from_json(told) == PROFILE
    assert len(told["frames"]) == len(set(told["frames"]))
    assert told["boxes"][0] == {"box": "sessions", "cpu_us": 750, "time_us": 850}


def test_what_is_left_out_stays_in_the_sums() -> None:
    many = [Stack((f"thread {i % 3}", f"f{i}"), i, 2 * i) for i in range(100)]
    kept = bounded(many, 10)
    assert len(kept) == 13
    assert sum(stack.cpu_us for stack in kept) == sum(stack.cpu_us for stack in many)
    assert sum(stack.time_us for stack in kept) == sum(stack.time_us for stack in many)
    assert {stack.frames[-1] for stack in kept[10:]} == {OTHERS}
    assert [stack.cpu_us for stack in kept[:10]] == list(range(99, 89, -1))


def test_by_box_and_by_function() -> None:
    assert PROFILE.by_box() == {"sessions": (750, 850), "<often> & more": (250, 250)}
    functions = PROFILE.by_function()
    assert functions["process"] == (600, 1000) and functions["inner"] == (400, 400) and functions["site.serve"] == (0, 1000)
    assert next(iter(PROFILE.by_function("time"))) == "poll"


def test_folded_has_a_line_for_each_stack_that_has_any() -> None:
    assert PROFILE.folded().splitlines()[0] == "thread loop;site.serve;hosted.run;box sessions;process 600"
    assert len(PROFILE.folded().splitlines()) == 3
    assert PROFILE.folded("time").splitlines()[3] == "thread loop;site.serve;poll 8900"


def test_a_bar_lies_within_the_one_that_called_it() -> None:
    spans: dict[int, tuple[float, float]] = {}
    for bar, depth, begin, within in bars(PROFILE.tree()):
        end = begin + bar.value / 1_000
        if depth:
            assert spans[depth - 1][0] <= begin + 1e-9 and end <= spans[depth - 1][1] + 1e-9, bar.name
        assert within is (depth >= 4)
        spans[depth] = begin, end


def test_the_picture_is_xml_and_names_are_text() -> None:
    drawn = ET.fromstring(PROFILE.to_svg())
    titles = [title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "box <often> & more: 0.2 ms, 25.0%" in titles
    assert any(
        each.startswith("poll") for each in [title.text or "" for title in ET.fromstring(PROFILE.to_svg("time")).iter() if title.text]
    )
    ET.fromstring(Profile(0, 0.0, 0, 0, 0, ()).to_svg())


@pytest.mark.parametrize("seconds", [0.0, -1.0, 61.0, float("nan")])
def test_nobody_is_sampled_for_ever(seconds: float) -> None:
    with pytest.raises(OperationRefused):
        check_seconds(seconds)
