"""Where the CPU of `elements of lists` of `bench cost --nested` goes, in one process: Arrow's reader, and what Evenflow does behind it.

    python tools/list_elements.py

The same words as four columns and as lists of four, by turns. Each turn reads the files with Arrow alone and computes the workload's
expressions over the batches that it gave. Prints a JSON object with medians, in ms of CPU for a million rows: `reader` by shape,
`expressions` by shape, `reader_ratio` (lists over columns, no Evenflow in it), `ratio` (both parts). What a site does besides is
not in it: the bench has some 30 ms more for lists than this (decision 192).
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from evenflow.bench.nested import SHAPES, TAIL, write_both
from evenflow.query.expression import compile_expression
from evenflow.sources.files import BATCH_ROWS

ROWS, TURNS, WARM = 1 << 20, 11, 1
EXPRESSIONS: Final = {
    "flat": (("key", *TAIL), ("p2 is not null", "key", "p3", "p4", "p5")),
    "nested": (("key", "tail"), ("tail[0] is not null", "key", "tail[1]", "tail[2]", "tail[3]")),
}
"""By shape the columns that are read, and what the workload computes of them."""

Compute = Callable[[pa.RecordBatch], Any]


class Spent(NamedTuple):
    """reader, expressions: seconds of CPU."""

    reader: float
    expressions: float

    @property
    def whole(self) -> float:
        return self.reader + self.expressions


def turn(files: list[Path], columns: list[str], computed: list[Compute]) -> Spent:
    """Read all files as a source does, and compute."""
    reader = expressions = 0.0
    for file in files:
        with pq.ParquetFile(file) as source:
            batches = source.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
            while True:
                begun = time.process_time()
                batch = next(batches, None)
                read = time.process_time()
                reader += read - begun
                if batch is None:
                    break
                for compute in computed:
                    compute(batch)
                expressions += time.process_time() - read
    return Spent(reader, expressions)


def main() -> None:
    spent: dict[str, list[Spent]] = {shape: [] for shape in SHAPES}
    with tempfile.TemporaryDirectory(prefix="evenflow-tool-") as scratch:
        places = write_both(Path(scratch), ROWS, 1)
        files = {shape: sorted(places[shape].glob("*.parquet")) for shape in SHAPES}
        computed: dict[str, list[Compute]] = {}
        for shape, (columns, texts) in EXPRESSIONS.items():
            whole = pq.read_schema(files[shape][0])
            schema = pa.schema([whole.field(name) for name in columns])
            computed[shape] = [compile_expression(text, schema) for text in texts]
        for number in range(WARM + TURNS):
            for shape in SHAPES if number % 2 == 0 else reversed(SHAPES):
                found = turn(files[shape], list(EXPRESSIONS[shape][0]), computed[shape])
                if number >= WARM:
                    spent[shape].append(found)
    per_million = 1e3 * 1e6 / ROWS
    pairs = list(zip(spent["flat"], spent["nested"], strict=True))
    print(json.dumps({
        "reader": {shape: round(statistics.median(each.reader for each in of) * per_million, 1) for shape, of in spent.items()},
        "expressions": {shape: round(statistics.median(each.expressions for each in of) * per_million, 1) for shape, of in spent.items()},
        "reader_ratio": round(statistics.median(nested.reader / flat.reader for flat, nested in pairs), 2),
        "ratio": round(statistics.median(nested.whole / flat.whole for flat, nested in pairs), 2),
        "ratios": sorted(round(nested.whole / flat.whole, 2) for flat, nested in pairs),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
