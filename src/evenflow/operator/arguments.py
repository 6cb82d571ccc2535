"""Arguments of a pattern's aggregates: values of expressions over rows, of which those of other variables need not have any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.errors import EvenflowError
from evenflow.query.expression import Compiled, compile_expression
from evenflow.query.matching import MeasureCall
from evenflow.stream.arrays import Bools

Arguments = dict[str | tuple[str, int], pa.Array]
"""By expression; by expression and variable where it could not be computed of all rows."""


class ArgumentsOf:
    """Computes the arguments of some calls. types: of each expression."""

    def __init__(self, calls: Iterable[MeasureCall], schema: pa.Schema) -> None:
        known = [(call.argument, call.variable) for call in calls if call.argument is not None]
        self._compiled = {text: compile_expression(text, schema) for text in dict.fromkeys(text for text, _ in known)}
        self._variables = {text: dict.fromkeys(variable for other, variable in known if other == text) for text in self._compiled}
        self.types: Final = {text: compiled.type for text, compiled in self._compiled.items()}

    def compute(self, rows: pa.RecordBatch, mine: Callable[[int], Bools]) -> Arguments:
        """Of all rows if that can be. Where it raises something it is computed of each variable's rows alone, and null in the others.

        mine: bool (n,), which rows are a variable's. Raises what the expression raises of those, or of all rows if a call is of all.
        """
        found: Arguments = {}
        for text, compiled in self._compiled.items():
            try:
                found[text] = compiled(rows)
            except EvenflowError:
                for variable in self._variables[text]:
                    if variable is None:
                        raise
                    found[text, variable] = _of_some(compiled, rows, mine(variable))
        return found


def argument(found: Arguments, call: MeasureCall) -> pa.Array:
    """That of a call, which has one."""
    text = str(call.argument)
    if text in found or call.variable is None:
        return found[text]
    return found[text, call.variable]


def _of_some(compiled: Compiled, rows: pa.RecordBatch, mine: Bools) -> pa.Array:
    values = compiled(rows.take(pa.array(np.flatnonzero(mine))))
    return values.take(pa.array(np.cumsum(mine) - 1, mask=~mine))
