"""Statistics in JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import StatisticsError
from evenflow.statistics.statistics import Statistics, read_lines
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow, SourceWindow
from tests.statistics.windows import segment, site

COUNT = st.integers(0, 2**62)


@st.composite
def segments(draw: st.DrawFn, number: int) -> SegmentWindow:
    partitions = tuple(sorted(draw(st.sets(st.integers(0, 255), max_size=4))))
    boxes = draw(st.lists(st.builds(BoxWindow, st.text(max_size=5), COUNT, COUNT, COUNT), max_size=3))
    per_partition = st.tuples(*[COUNT] * len(partitions))
    name = draw(st.text(max_size=5))
    arcs = tuple(draw(st.lists(st.tuples(COUNT, COUNT), max_size=2)))
    return SegmentWindow(number, name, partitions, draw(per_partition), draw(per_partition), draw(COUNT), tuple(boxes), (), arcs)


@st.composite
def read_there(draw: st.DrawFn) -> SourceWindow:
    dropped = tuple(draw(st.lists(COUNT, max_size=3)))
    said = draw(st.text(max_size=5)), 0, draw(COUNT), draw(COUNT), draw(COUNT), dropped, draw(st.none() | COUNT), draw(COUNT)
    return SourceWindow(*said)


@st.composite
def sites(draw: st.DrawFn, number: int) -> SiteWindow:
    begin = draw(st.integers(-(2**40), 2**60))
    hosted = tuple(draw(segments(n)) for n in range(draw(st.integers(0, 2))))
    latency = draw(st.builds(Latency, COUNT, COUNT, COUNT))
    free = draw(st.none() | st.integers(-(2**40), 2**60))
    read = tuple(draw(st.lists(read_there(), max_size=2)))
    return SiteWindow(number, begin, begin + draw(COUNT), draw(COUNT), free, draw(COUNT), draw(COUNT), hosted, latency, read)


@st.composite
def statistics(draw: st.DrawFn) -> Statistics:
    return Statistics.of([draw(sites(n)) for n in range(draw(st.integers(0, 3)))])


@given(statistics())
def test_statistics_come_back_as_they_were(made: Statistics) -> None:
    text = made.to_json()
    assert "\n" not in text
    assert Statistics.from_json(text) == made


def whole() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(Statistics.of([site(0, 0, 100, 40, segment({0: 10, 1: 20}))]).to_json())
    return made


def with_wrong(path: tuple[str | int, ...], value: Any) -> str:
    """The JSON with one field replaced; `...` takes it away."""
    data = whole()
    at: Any = data
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("sites",), ..., "statistics has no field 'sites'"),
        (("sites",), {}, "statistics.sites must be a list"),
        (("sites", 0), 3, "statistics.sites[0] must be an object"),
        (("sites", 0, "busy_us"), "much", "statistics.sites[0].busy_us must be a whole number"),
        (("sites", 0, "busy_us"), -1, "statistics.sites[0].busy_us must be a whole number >= 0"),
        (("sites", 0, "end_us"), -1, "cannot begin at 0"),
        (("sites", 0, "free_bytes"), 1.5, "free_bytes must be a whole number"),
        (("sites", 0, "latency", "count"), ..., "latency has no field 'count'"),
        (("sites", 0, "segments", 0, "rows"), [1], "2 partitions, 1 rows"),
        (("sites", 0, "segments", 0, "rows", 1), True, "segments[0].rows[1] must be a whole number"),
        (("sites", 0, "segments", 0, "boxes", 0, "name"), 7, "boxes[0].name must be a string"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[str | int, ...], value: Any, words: str) -> None:
    with pytest.raises(StatisticsError) as caught:
        Statistics.from_json(with_wrong(path, value))
    assert words in str(caught.value)


def test_a_site_may_be_there_once_only() -> None:
    data = whole()
    data["sites"] *= 2
    with pytest.raises(StatisticsError, match=r"by site, each once; it has \[0, 0\]"):
        Statistics.from_json(json.dumps(data))


def test_what_is_no_json_says_where_statistics_come_from() -> None:
    with pytest.raises(StatisticsError, match="evenflow run --statistics"):
        Statistics.from_json("{")


def test_lines_are_merged_and_a_wrong_one_is_named() -> None:
    first, later = Statistics.of([site(0, 0, 10, 4)]), Statistics.of([site(0, 10, 30, 6), site(1, 0, 30, 1)])
    assert read_lines([first.to_json(), "\n", later.to_json()]) == Statistics.of([site(0, 0, 30, 10), site(1, 0, 30, 1)])
    with pytest.raises(StatisticsError, match=r"line 2: statistics has no field 'sites'"):
        read_lines([first.to_json(), "{}"])


def test_no_budget_is_null_and_not_nothing() -> None:
    made = Statistics.of([replace(site(0, 0, 1, 0), free_bytes=0)])
    assert Statistics.from_json(made.to_json()).sites[0].free_bytes == 0
    assert whole()["sites"][0]["free_bytes"] is None
