"""Whatever user code does, its epoch has an outcome: nothing it raises gets lost on the thread that runs it."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from evenflow.plan.layout import Arc, Layout, Port, Segment, Single, Step
from evenflow.site.hosted import Hosted, Outcome, Work
from evenflow.stream.epoch import NO_WATERMARK, Tick

SCHEMA = pa.schema([("k", pa.int64())])


class Panic(BaseException):
    """As native code raises it."""


def outcome_of(condition: object) -> Outcome:
    step = Step("picky", "filter", {"condition": condition}, SCHEMA, Port(-1), user_code=True)
    segments = (
        Segment(0, "in", "ingress", 1, (), (0,), (step,), False, "src", None, SCHEMA),
        Segment(1, "out", "egress", 1, (0,), (), (), True, None, "sink", SCHEMA),
    )
    layout = Layout("t", segments, (Arc(0, 0, 1, Port(0), SCHEMA, Single()),), {"src": None}, {"sink": None})
    hosted = Hosted.of(segments[0], layout, (0,))
    batch = pa.record_batch([[1, 2]], schema=SCHEMA)
    tick = Tick(7, 1, NO_WATERMARK, NO_WATERMARK)
    return Work(hosted, 0, (), (), ((0, batch),), (), frozenset(), tick, 0, 2).run()


def leave(batch: pa.RecordBatch) -> pa.Array:
    sys.exit("enough")


def panic(batch: pa.RecordBatch) -> pa.Array:
    raise Panic("out of bounds")


@pytest.mark.parametrize(("condition", "said"), [(leave, "SystemExit: enough"), (panic, "Panic: out of bounds")])
def test_what_is_no_exception_fails_the_box_all_the_same(condition: object, said: str) -> None:
    error = outcome_of(condition).error
    assert error is not None
    assert (error.box, error.epoch) == ("picky", 7)
    assert said in error.user_traceback


def test_a_step_that_puts_nothing_out_is_counted_too() -> None:
    """A discard sink has no output port."""
    step = Step("gone", "discard", {}, SCHEMA, Port(-1))
    segment = Segment(0, "in", "ingress", 1, (), (), (step,), False, "src", None, SCHEMA)
    hosted = Hosted.of(segment, Layout("t", (segment,), (), {"src": None}, {}), (0,))
    batch = pa.record_batch([[1, 2]], schema=SCHEMA)
    tick = Tick(1, 1, NO_WATERMARK, NO_WATERMARK)
    outcome = Work(hosted, 0, (), (), ((0, batch),), (), frozenset(), tick, 0, 2).run()
    assert outcome.error is None
    assert (hosted.tally.rows_in, hosted.tally.rows_out, outcome.ended) == ([2], [0], ((0, 2),))


def test_an_interrupt_is_for_the_process() -> None:
    def interrupt(batch: pa.RecordBatch) -> pa.Array:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome_of(interrupt)
