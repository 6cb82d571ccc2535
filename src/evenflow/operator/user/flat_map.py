"""FlatMap: a user's function makes any number of rows of each row, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.operator.operator import Stateless
from evenflow.operator.user.returned import as_batch
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import parse_ddl


class FlatMap(Stateless):
    """What `function(batch)` returns: (rows, index), index[i] being the number of the row in the batch that row i was made of.

    rows: a batch, a frame, a dict of columns or rows, of the DDL `output`. The rows of a batch are those of one epoch at one site, so a
    row's result must not depend on the other rows. Output keeps the partition of the row it was made of, and the order of these rows.
    Cost: the function's. An exception of the function passes through. Raises TypeMismatch for what is not as declared.
    """

    def __init__(self, schema: pa.Schema, function: Callable[[pa.RecordBatch], Any], output: str, box: str = "flat_map") -> None:
        self._function, self._box = function, box
        self.schemas: tuple[pa.Schema, ...] = (parse_ddl(output),)
        self._none = Rows.empty(self.schemas[0])

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return (self._none,)
        returned = self._function(rows.batch)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeMismatch(
                f"box {self._box!r} returned {type(returned).__name__}, not a pair: return (rows, index), where index says for each "
                "row which input row it was made of"
            )
        batch = as_batch(returned[0], self.schemas[0], self._box)
        index = self._index(returned[1], batch.num_rows, rows.count)
        made = Rows(batch, rows.partition[index])
        if (index[1:] < index[:-1]).any():
            made = made.take(np.argsort(index, kind="stable"))
        return (made,)

    def _index(self, returned: Any, made: int, given: int) -> npt.NDArray[np.int64]:
        values = returned.to_numpy(zero_copy_only=False) if isinstance(returned, pa.Array | pa.ChunkedArray) else returned
        index = np.asarray(values)
        if index.size == 0:
            index = index.astype(np.int64)
        if index.shape != (made,) or index.dtype.kind not in "iu" or (made and (index.min() < 0 or index.max() >= given)):
            raise TypeMismatch(
                f"box {self._box!r} returned {made} rows and an index of shape {index.shape} and type {index.dtype}: the index has one "
                f"number from 0 to {given - 1} for each row, that of the input row it was made of"
            )
        return index.astype(np.int64)
