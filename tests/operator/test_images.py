"""Images: captures that are pasted add up to the live state bit by bit, for every operator of which changes can be had (P2)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from tests.drawn import examples, one_in
from tests.operator.test_checkpoint_deltas import CASES, changes_of, live
from tests.operator.test_laws import PARTITIONS, Case

from evenflow.errors import TransferCorrupt
from evenflow.state.image import Image, to_arrow_file
from evenflow.state.storing import Kind, Part, StateToStore

ALL = range(PARTITIONS)
SEEDS = examples(1, 5)


def objects_of(epoch: int, parts: Sequence[Part]) -> list[bytes]:
    return [made.data for _, made in StateToStore(0, epoch, [Kind("box", ())], (), {0: parts}).objects(make=to_arrow_file)]


def states_of(image: Image) -> dict[int, bytes]:
    return {partition: state for partition, step, state in image.states() if step == 0}


@pytest.mark.laws
@pytest.mark.parametrize("case", one_in(4, CASES), ids=lambda case: case.name)
def test_what_is_pasted_is_the_live_state(case: Case) -> None:
    """Method: a capture is read when more has been written; some are lost, the next has what has changed since."""
    for seed in range(SEEDS):
        random = Random(f"{case.name} {seed}")
        operator, image, whole = case.factory(), Image(), -1
        for number, (rows, tick) in enumerate(case.epochs(seed), 1):
            operator.process(rows, tick)
            since = changes_of(operator).lineages.since
            bases = {p for p in ALL if whole < 0 or p not in since or random.random() < 0.1}
            parts = changes_of(operator).capture_changes(number, tick.epoch, ALL, bases)
            expected = live(operator)
            if random.random() < 0.3:
                operator.drop(2)
                if 2 in expected:
                    operator.install(2, expected[2])
            if random.random() < 0.2:
                continue  # It is lost on its way.
            image.paste(tick.epoch, whole, objects_of(tick.epoch, parts))
            assert states_of(image) == expected
            changes_of(operator).lineages.complete(number)
            whole = tick.epoch


def test_changes_since_another_capture_are_refused() -> None:
    """Goal: the image is what it was, and no little wrong. Method: a capture between two others is lost, and nobody notices."""
    case = next(case for case in CASES if case.name == "running")
    operator, image, taken = case.factory(), Image(), list[tuple[int, list[bytes]]]()
    for number, (rows, tick) in enumerate(case.epochs(5), 1):
        operator.process(rows, tick)
        taken.append((tick.epoch, objects_of(tick.epoch, changes_of(operator).capture_changes(number, tick.epoch, ALL, ()))))
        changes_of(operator).lineages.complete(number)
    (first, base), (second, _), (third, delta) = taken[:3]
    image.paste(first, -1, base)
    before = image.states()
    with pytest.raises(TransferCorrupt, match=f"since epoch {second}, and the image is of epoch {first}"):
        image.paste(third, second, delta)
    assert image.states() == before and image.epoch == first


def test_an_image_never_goes_back() -> None:
    """Goal: frames up to its epoch are gone. Method: a whole capture was given up, and comes behind the one that was made then."""
    case = next(case for case in CASES if case.name == "running")
    operator, image, taken = case.factory(), Image(), list[tuple[int, list[bytes]]]()
    for number, (rows, tick) in enumerate(case.epochs(5), 1):
        operator.process(rows, tick)
        taken.append((tick.epoch, objects_of(tick.epoch, changes_of(operator).capture_changes(number, tick.epoch, ALL, set(ALL)))))
    (late, older), (epoch, whole) = taken[:2]
    image.paste(epoch, -1, whole)
    before = image.states()
    with pytest.raises(TransferCorrupt, match=f"a capture is of epoch {late}, and the image of epoch {epoch}"):
        image.paste(late, -1, older)
    assert image.states() == before and image.epoch == epoch


def test_another_capture_of_the_same_epoch_takes_its_place() -> None:
    """Goal: changes are added to what they are changes of. Method: the first capture was made of a table that is kept in another form, was
    given up when it came late, and the one that was made then is of the same epoch."""
    case = next(case for case in CASES if case.name == "running")
    operator, image, (first, second, *_) = case.factory(), Image(), list(case.epochs(5))
    rows, tick = first
    operator.process(rows, tick)
    states = [(p, 0, state) for p in ALL if (state := operator.capture(p)) is not None]
    given_up = StateToStore(0, tick.epoch, [Kind("box", None)], states, {})
    image.paste(tick.epoch, -1, [made.data for _, made in given_up.objects(make=to_arrow_file)])
    whole = objects_of(tick.epoch, changes_of(operator).capture_changes(1, tick.epoch, ALL, set(ALL)))
    changes_of(operator).lineages.complete(1)
    image.paste(tick.epoch, -1, whole)
    rows, later = second
    operator.process(rows, later)
    image.paste(later.epoch, tick.epoch, objects_of(later.epoch, changes_of(operator).capture_changes(2, later.epoch, ALL, ())))
    assert states_of(image) == live(operator) and image.epoch == later.epoch


def test_an_image_that_does_not_fit_is_of_no_use() -> None:
    """Method: changes come where nothing was, as if they were whole."""
    case = next(case for case in CASES if case.name == "running")
    operator, image, taken = case.factory(), Image(), list[list[bytes]]()
    for number, (rows, tick) in enumerate(case.epochs(5), 1):
        operator.process(rows, tick)
        taken.append(objects_of(tick.epoch, changes_of(operator).capture_changes(number, tick.epoch, ALL, ())))
        changes_of(operator).lineages.complete(number)
    with pytest.raises(TransferCorrupt, match="cannot be pasted"):
        image.paste(tick.epoch, -1, taken[-1])
    assert image.epoch == -1 and image.states() == []
