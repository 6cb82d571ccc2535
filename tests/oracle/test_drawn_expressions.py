"""Expressions drawn from the catalogue give, row by row over edge values, what batch Spark SQL gives: the value, null, or an error.

A small slice of one seed is in `make test`; `make conformance` draws more, of a seed that is new each day. What differs for a reason is in
KNOWN, a list that only shrinks: each entry has an example which must still differ.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from evenflow.query.expression import Compiled, compile_expression
from tests.oracle.catalyst import Catalyst, interpreted
from tests.oracle.comparing import RAISES, REFUSED, Difference, differences
from tests.oracle.drawing import Drawing
from tests.oracle.edge_values import edge_batch
from tests.oracle.test_drawn_aggregates import KNOWN_OF_AGGREGATES

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]

ROWS: Final = 64
SLICE: Final = 3
"""So many times as much is tried where there is time."""
MANUAL: Final = Path(__file__).parents[2] / "docs" / "sql.md"
FIXED: Final = 20_261_122
TODAY: Final = int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))


@dataclass(frozen=True)
class Known:
    """A difference that is meant. what: its row in docs/sql.md. example: an expression of the edge columns that shows it,
    or None if that is up to the version of Java.

    covers: whether a difference is it.
    """

    what: str
    example: str | None
    covers: Callable[[Difference], bool]


def _ours(pattern: str) -> Callable[[Difference], bool]:
    return lambda d: re.search(pattern, str(d.ours)) is not None


def _beyond_the_last_date(difference: Difference) -> bool:
    calls = r"\b(from_unixtime|last_day|add_months|trunc|date_?add|date_sub|date_?diff)\(|\b(u2?|date '[^']*')\b\)* [+-] "
    return re.search(calls, difference.text) is not None and str(difference.ours).startswith(f"{RAISES} ArithmeticOverflow")


def _same_number(difference: Difference) -> bool:
    try:
        return difference.row is not None and float(difference.ours) == float(difference.sparks)
    except (TypeError, ValueError):
        return False


KNOWN: Final = (
    Known("`from_unixtime`, `last_day`, `add_months`, `trunc`, and sums and differences of dates, beyond the last date or timestamp",
          "last_day(u)", _beyond_the_last_date),
    Known("the negative of a decimal of more than 34 digits", "-q", lambda d: re.search(r"(-|negative\()[( ]*q", d.text) is not None),
    Known("bytes that are no UTF-8 as a string", "cast(w as string)", _ours(f"^{RAISES} InvalidValue.*UTF8")),
    Known("a time without a date, such as `'T12:34'`, as a timestamp", "cast(m as timestamp)",
          lambda d: re.search("'(T?[0-9]+:[0-9:.]+)'", d.inputs) is not None),
    Known("texts of doubles", None, _same_number),
    Known("`charindex`", "charindex('l', s)", lambda d: d.sparks == REFUSED and "charindex(" in d.text),
)  # fmt: skip


def _check(spark: Any, seed: int, draw: Callable[[Drawing], Mapping[str, Compiled]], least: int) -> None:
    batch = edge_batch(seed, ROWS)
    drawing = Drawing(batch.schema, seed)
    drawn = {
        text: made
        for text, made in draw(drawing).items()
        if not (pa.types.is_nested(made.type) and "null" in str(made.type)) and not text.startswith(("map(", "str_to_map("))
    }
    # Of elements without a type PySpark makes no Arrow. What raises leaves entries behind in Spark's own maker of maps.
    assert not drawing.untyped, f"seed {seed}: these raise what is no error of Evenflow: {drawing.untyped}"
    assert len(drawn) >= least, "hardly anything was drawn"
    with interpreted(spark):
        answers = Catalyst(spark, batch).answers(list(drawn))
    found = [d for d in differences(drawn, batch, answers) if not any(known.covers(d) for known in KNOWN)]
    shown = "\n".join(map(str, found[:40]))
    assert not found, f"seed {seed}: {len(found)} of {len(drawn)} expressions differ:\n{shown}"


def test_a_slice_of_all_that_there_is(spark: Any) -> None:
    _check(spark, FIXED, lambda drawing: {**drawing.functions(1, SLICE), **drawing.syntax(1, SLICE)}, 100)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", [FIXED, TODAY, TODAY + 1])
def test_all_that_there_is(spark: Any, seed: int) -> None:
    _check(spark, seed, lambda drawing: drawing.all(5), 1_000)


def test_what_differs_for_a_reason_still_differs(spark: Any) -> None:
    assert len(KNOWN) <= 6, "the list only shrinks"
    batch = edge_batch(FIXED, ROWS)
    for known in KNOWN:
        if known.example is None:
            continue
        drawn = {known.example: compile_expression(known.example, batch.schema)}
        with interpreted(spark):
            answers: dict[str, pa.Array | None] = Catalyst(spark, batch).answers(list(drawn))
        found = list(differences(drawn, batch, answers))
        assert found and known.covers(found[0]), f"{known.example} no longer differs: take it from the list, and from docs/sql.md"


def test_the_manual_lists_what_differs() -> None:
    section = MANUAL.read_text().split("## Where values differ from Spark's")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0].lstrip("| ") for line in section.splitlines() if line.startswith("| ") and line[2] not in "|-"]
    assert rows == [*(known.what for known in KNOWN), *KNOWN_OF_AGGREGATES]
