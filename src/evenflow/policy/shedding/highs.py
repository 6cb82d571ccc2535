"""A linear program for HiGHS: the one place that imports the solver, when something is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from evenflow.errors import PolicyError
from evenflow.stream.arrays import Floats

Row = Sequence[tuple[int, float]]
"""(column, coefficient) of each column that a row has."""

UNBOUNDED: Final = float("inf")


@dataclass(slots=True)
class Program:
    """Find x with lower <= x <= upper that makes gain . x largest. rows: sums of columns, and the least and the most that each may be."""

    gain: list[float]
    lower: list[float]
    upper: list[float]
    rows: list[Row] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def at_most(self, row: Row, most: float) -> None:
        self.rows.append(row)
        self.least.append(-UNBOUNDED)
        self.most.append(most)

    def equal(self, row: Row, value: float) -> None:
        self.rows.append(row)
        self.least.append(value)
        self.most.append(value)

    def solved(self, limit_s: float | None = None) -> Floats | None:
        """x; None if none was found within `limit_s`. Nothing is printed.

        Raises PolicyError if there is none, or its numbers are too far apart for the solver. How many threads the solver may have is not
        said: it has one scheduler per process, and refuses to work with another number than it was first used with, by whomever.
        """
        import highspy

        solver: Any = highspy._core._Highs()
        for option, value in (("output_flag", False), ("parallel", "off"), *((("time_limit", limit_s),) if limit_s is not None else ())):
            solver.setOptionValue(option, value)
        if solver.passModel(self._model(highspy)) == highspy.HighsStatus.kError:
            raise PolicyError("shedding: costs, rates and capacities are too far apart to be weighed; check their units")
        failed = solver.run() == highspy.HighsStatus.kError
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            return None
        if failed or status != highspy.HighsModelStatus.kOptimal:
            raise PolicyError(f"shedding: the solver finds no plan ({solver.modelStatusToString(status)}); check the numbers' units")
        return np.array(solver.getSolution().col_value, np.float64)

    def _model(self, highspy: Any) -> Any:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.gain), len(self.rows)
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_, model.col_lower_, model.col_upper_ = (np.array(each, np.float64) for each in (self.gain, self.lower, self.upper))
        model.row_lower_, model.row_upper_ = np.array(self.least, np.float64), np.array(self.most, np.float64)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *map(len, self.rows)])
        model.a_matrix_.index_ = np.array([column for row in self.rows for column, _ in row], np.int32)
        model.a_matrix_.value_ = np.array([value for row in self.rows for _, value in row], np.float64)
        return model


__all__ = ["UNBOUNDED", "Program", "Row"]
