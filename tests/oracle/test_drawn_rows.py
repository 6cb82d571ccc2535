"""Expressions drawn from the catalogue, without Spark: no row depends on the others, and what a row may raise is an error of Evenflow."""

from __future__ import annotations

import datetime
from typing import Final

import pyarrow as pa
import pytest

from evenflow.query.sql.walker import HANDLERS
from tests.drawn import MANY
from tests.oracle.comparing import TYPED, outcomes, raw, same
from tests.oracle.drawing import SYNTAX, Drawing
from tests.oracle.edge_values import edge_batch

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]

ROWS: Final = 64
FIXED: Final = 20_261_122
SLICE: Final = 6
"""So many times as much is tried where there is time."""
TODAY: Final = int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))


@pytest.mark.laws
@pytest.mark.parametrize(("seed", "every"), [(FIXED, SLICE), (FIXED, 1), (FIXED + 1, 1)])
@pytest.mark.conformance
def test_each_row_by_itself_is_as_all_together(seed: int, every: int) -> None:
    """And what a row may raise is an error of Evenflow, with a type that says what is wrong."""
    batch = edge_batch(seed, ROWS)
    drawing = Drawing(batch.schema, seed)
    for text, expression in drawing.all(1, every).items():
        values, errors = outcomes(expression, batch)
        if not errors:
            turned = raw(expression(batch.take(pa.array(range(ROWS - 1, -1, -1)))))[::-1]
            unlike = [row for row in range(ROWS) if not (turned[row] == values[row] or same(turned[row], values[row], expression.type))]
            assert not unlike, f"seed {seed}: {text} the other way round at rows {unlike}: {turned}, {values}"
        for row in range(0, ROWS, 1 if MANY else 8):
            if (error := errors.get(row)) is not None:
                assert isinstance(error, TYPED), f"seed {seed}: {text} at row {row}: {error!r}"
                continue
            one = raw(expression(batch.slice(row, 1)))[0]
            assert one == values[row] or same(one, values[row], expression.type), f"seed {seed}: {text} at row {row}: {one}, {values[row]}"
    assert not drawing.untyped, f"seed {seed}: these raise what is no error of Evenflow: {drawing.untyped}"


def test_every_kind_of_syntax_is_drawn() -> None:
    assert set(HANDLERS) == set(SYNTAX)
