"""Whatever user code does, its epoch has an outcome: nothing it raises gets lost on the thread that runs it."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.plan.layout import Arc, Layout, Port, Segment, Single, Step
from evenflow.query.planner import layout as plan
from evenflow.site import hosted as hosted_module
from evenflow.site.hosted import Hosted, Work
from evenflow.site.outcome import Outcome
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Lost, Tick

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


class Counted:
    """A condition that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        self.calls += 1
        return pa.array([True] * batch.num_rows)


def test_an_epoch_without_rows_asks_no_operator_that_it_changes_nothing_in() -> None:
    asked = Counted()
    step = Step("picky", "filter", {"condition": asked}, SCHEMA, Port(-1), user_code=True)
    segment = Segment(0, "in", "ingress", 1, (), (), (step,), False, "src", "sink", SCHEMA)
    hosted = Hosted.of(segment, Layout("t", (segment,), (), {"src": None}, {"sink": None}), (0,), checked=True)
    splits: tuple[()] = ()

    def work(epoch: int, *values: int, ended: bool = False) -> Work:
        batch = pa.record_batch([list(values)], schema=SCHEMA)
        arrived = ((0, batch),) if values else ()
        tick, over = Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK), frozenset((0,) if ended else ())
        return Work(hosted, 0, splits, (), arrived, (), over, tick, epoch, len(values), born=3)

    first = work(1)
    assert first.beside, "nothing is known yet of what comes of no rows"
    outcomes, calls = [first.run()], asked.calls
    second = work(2)
    assert not second.beside, "nobody's code is called, so no thread is needed"
    outcomes.append(second.run())
    assert asked.calls == calls
    assert work(3, 5).beside
    outcomes.append(work(3, 5).run())
    outcomes.append(work(4, ended=True).run())
    assert asked.calls == calls + 1
    assert [outcome.tick.epoch for outcome in outcomes] == [1, 2, 3, 4]
    assert [outcome.opened for outcome in outcomes] == [1, 2, 3, 4]
    assert [outcome.released.num_rows for outcome in outcomes if outcome.released is not None] == [0, 0, 1, 0]
    assert [outcome.tick.watermark for outcome in outcomes] == [NO_WATERMARK] * 3 + [END_OF_STREAM]
    assert all(outcome.digest is not None and outcome.digest.any() == (outcome.rows_in > 0) for outcome in outcomes)
    assert {outcome.key for outcome in outcomes} == {(0, 3)}


def test_rows_that_come_are_counted_once_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions come at once."""
    step = Step("gone", "discard", {}, SCHEMA, Port(-1))
    segment = Segment(0, "in", "ingress", 1, (), (), (step, step), False, "src", None, SCHEMA)
    hosted = Hosted.of(segment, Layout("t", (segment,), (), {"src": None}, {}), (0,))
    counted, expected = list[bytes](), list[dict[int, int]]()
    monkeypatch.setattr(hosted_module, "count_rows", lambda data: counted.append(data) or len(data))
    monkeypatch.setattr(Hosted, "expect", lambda self, rows: expected.append(rows))
    hosted._make_room({(partition, step): bytes(1 + step) for partition in range(500) for step in (0, 1)})
    assert (expected, len(counted)) == ([{0: 500, 1: 1000}], 1000)


def test_partitions_that_go_on_together_have_lost_what_either_of_them_has() -> None:
    """D4. Goal: a session of which rows were left out is held back, also where its partition joins those that began with nothing since."""
    segment = Segment(0, "in", "ingress", 2, (), (), (), False, "src", "sink", SCHEMA)
    plan = Layout("t", (segment,), (), {"src": None}, {"sink": None})
    early, late = Lost(0, 20, 500), Lost(15, 30, 400)
    for mine, theirs in (((late,), (early, late)), ((early, late), (late,)), ((), (early, late)), ((early, late), ())):
        here, joins = (Hosted.of(segment, plan, (partition,)) for partition in (0, 1))
        here.lost, joins.lost = mine, theirs
        here.absorb(joins)
        assert here.partitions == (0, 1) and here.lost == (early, late)


def test_another_version_goes_on_counting() -> None:
    """Goal: numbers that only grow do so. Method: the window of a box is another one, and the box is made anew."""
    flow = ef.Dataflow("late")
    rows = flow.source(ef.sources.generator(100, 5, rows=10), name="in").with_watermark("ts", "1 second")
    rows.group_by("key").window("1 second").agg(n="count(*)").to(ef.sinks.discard())
    planned = plan(flow.network, sites=1, partitions=1)
    segment = next(each for each in planned.segments if each.kind == "inner")
    hosted = Hosted.of(segment, planned, (0,))
    ((at, box),) = hosted.facts.late
    box.late_rows = 7
    window = replace(segment.steps[at].params["window"], lateness_us=5)
    steps = [replace(step, params={**step.params, "window": window}) if n == at else step for n, step in enumerate(segment.steps)]
    hosted.change(1, replace(segment, steps=tuple(steps)))
    assert hosted.facts.late[0][1] is not box and hosted.facts.late_rows == {at: 7}
