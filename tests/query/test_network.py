"""The shape of a network: names, arrows, cycles, loose ends."""

from __future__ import annotations

import pyarrow as pa
import pytest

from evenflow.errors import QueryError
from evenflow.query.duration import duration_text, duration_us
from evenflow.query.network import Box, Network

SCHEMA = pa.schema([("x", pa.int64())])


def box(name: str, *inputs: str, kind: str = "filter") -> Box:
    return Box(name, kind, tuple((up, 0) for up in inputs), {}, () if kind == "sink" else (SCHEMA,))


def test_boxes_come_after_their_inputs_and_keep_their_order_otherwise() -> None:
    network = Network("n", (box("b", "a"), box("d", "b", "c", kind="union"), box("a", kind="source"), box("c", kind="source")))
    assert [b.name for b in network] == ["a", "b", "c", "d"]


def test_a_cycle_names_the_boxes_on_it_and_no_other() -> None:
    boxes = (box("in", kind="source"), box("u", "in", "c", kind="union"), box("a", "u"), box("c", "a"), box("after", "c"))
    with pytest.raises(QueryError) as error:
        Network("n", boxes)
    assert "'u' -> 'a' -> 'c' -> 'u'" in str(error.value)
    assert "after" not in str(error.value) and "'in'" not in str(error.value)


def test_a_box_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(QueryError, match="'a' -> 'a'"):
        Network("n", (box("a", "a"),))


@pytest.mark.parametrize(
    ("boxes", "says"),
    [
        ((box("a", kind="source"), box("a", kind="source")), "two boxes are called 'a'"),
        ((box("a", "nowhere"),), "'nowhere', which does not exist"),
        ((box("a", kind="source"), box("b", "a", kind="source")), "'b' \\(source\\) has 1 inputs; it must have 0"),
        ((box("a", kind="source"), box("b", "a", kind="union")), "must have at least 2"),
        ((box("a"),), "'a' \\(filter\\) has 0 inputs"),
        ((box("a", kind="source"), box("s", "a", kind="sink"), box("b", "s")), "reads output 0 of 's', which has 0"),
        ((box("a", kind="fountain"),), "kind 'fountain' is unknown"),
    ],
)
def test_a_wrong_shape_is_refused(boxes: tuple[Box, ...], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        Network("n", boxes)


def test_loose_ends_are_named() -> None:
    network = Network("n", (box("a", kind="source"), box("b", "a"), box("s", "a", kind="sink")))
    assert [b.name for b in network.dangling()] == ["b"]
    with pytest.raises(QueryError, match="'b' leads to no sink"):
        network.check_complete()
    with pytest.raises(QueryError, match="is empty"):
        Network("n", ()).check_complete()


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("500 ms", 500_000),
        ("interval 2 days", 172_800_000_000),
        ("1.5 s", 1_500_000),
    ],
)
def test_durations_are_read(text: str, us: int) -> None:
    assert duration_us(text) == us
    assert duration_us(duration_text(us)) == us


@pytest.mark.parametrize("text", ["ten seconds", "10", "5 parsecs", "", "-3 s", "1 s and more"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="span of time"):
        duration_us(text)
