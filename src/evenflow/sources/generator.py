"""80-byte rows at a set rate, or as fast as they are asked for: the load of benchmarks and of first experiments.

Row i of a partition is a function of (seed, partition, i) alone: its key is a hash of that number (splitmix64), its other
columns repeat every 2^16 rows, so they are slices of one block and cost nothing. Only `ts` depends on when a source with a rate
was started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import OptionError
from evenflow.sources.pace import MadeReader, MadeSource
from evenflow.stream.arrays import arrow_of
from evenflow.stream.declared import May, number, whole

BLOCK_ROWS: Final = 1 << 16
AHEAD_ROWS: Final = 256
"""As many are made at least: two dozen calls of NumPy and Arrow cost the same for one row as for these."""
SCHEMA: Final = pa.schema(
    [("key", pa.int64()), ("ts", pa.timestamp("us")), ("value", pa.int64()), ("price", pa.float64())]
    + [(f"p{i}", pa.int64()) for i in range(6)]
)
GOLDEN: Final = 0x9E3779B97F4A7C15
MASK: Final = (1 << 64) - 1
GUIDE_BITS: Final = 20
MOST_RANKS: Final = 1 << 27


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64, in place: uint64 to well-mixed uint64, one to one."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def random_bits(stream: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """64 random bits for each of the rows first, first + 1, ... of a stream: shape (count,), a function of the arguments only."""
    base = np.uint64((stream + first * GOLDEN) & MASK)
    return mix(np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN) + base)


def stream_of(seed: int, partition: int, column: int) -> int:
    """Start of the random stream of one column of one partition."""
    start = (seed * GOLDEN + partition * 0xD1B54A32D192ED03 + column * 0x8CB92BA72F3D8DD7) & MASK
    return int(mix(np.array([start], np.uint64))[0])


def zipf_cumulative(keys: int, exponent: float) -> npt.NDArray[np.float64]:
    """The Zipf distribution over ranks 0..keys-1: float64 (keys,), the last is 1."""
    weights: npt.NDArray[np.float64] = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    cumulative: npt.NDArray[np.float64] = np.cumsum(weights)
    cumulative /= cumulative[-1]
    return cumulative


@lru_cache(maxsize=4)
def zipf_tables(keys: int, exponent: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Inverse of the Zipf distribution over ranks 0..keys-1: (cumulative, guide, split).

    guide[b] is the rank at the lower end of bucket b of 2^20; split[b] says that more than one rank lies in the bucket.
    """
    cumulative = zipf_cumulative(keys, exponent)
    found = np.searchsorted(cumulative, np.arange((1 << GUIDE_BITS) + 1) / (1 << GUIDE_BITS), side="right")
    edges: npt.NDArray[np.int32] = np.minimum(found, keys - 1).astype(np.int32)
    split: npt.NDArray[np.bool_] = edges[:-1] != edges[1:]
    return cumulative, edges[:-1], split


def zipf_ranks(bits: npt.NDArray[np.uint64], keys: int, exponent: float) -> npt.NDArray[np.int64]:
    """Ranks 0..keys-1 with probability proportional to (rank + 1) ** -exponent, int64, one for each 64 random bits."""
    cumulative, guide, split = zipf_tables(keys, exponent)
    bucket = bits >> np.uint64(64 - GUIDE_BITS)
    ranks: npt.NDArray[np.int64] = guide[bucket].astype(np.int64)
    rare = np.flatnonzero(split[bucket])  # Few: most of the mass lies in buckets with one rank.
    ranks[rare] = _found(cumulative, bits[rare])
    np.minimum(ranks, keys - 1, out=ranks)
    return ranks


def zipf_ranks_once(bits: npt.NDArray[np.uint64], keys: int, exponent: float) -> npt.NDArray[np.int64]:
    """The same ranks for somebody who draws no more: no tables are kept, which have 5 MB and more."""
    ranks: npt.NDArray[np.int64] = np.minimum(_found(zipf_cumulative(keys, exponent), bits), keys - 1)
    return ranks


def _found(cumulative: npt.NDArray[np.float64], bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.searchsorted(cumulative, (bits >> np.uint64(11)) * 2.0**-53, side="right")


def payload(seed: int, partition: int) -> dict[str, pa.Array]:
    """The columns that repeat every BLOCK_ROWS rows, twice over, so that every run of BLOCK_ROWS rows is one slice."""
    columns: dict[str, pa.Array] = {}
    for at, column in enumerate(SCHEMA):
        if column.name in ("key", "ts"):
            continue
        bits = random_bits(stream_of(seed, partition, at), 0, BLOCK_ROWS)
        if column.name == "value":
            bits %= np.uint64(1000)
        values = (bits >> np.uint64(11)) * 2.0**-43 if column.name == "price" else bits.view(np.int64)
        columns[column.name] = arrow_of(np.concatenate([values, values]), column.type)
    return columns


class GeneratorReader(MadeReader):
    """One partition. Costs about 5 ns per row and no memory beyond two blocks. Where few rows are asked for, more are made at once: those
    that come next are a slice of them."""

    most_rows = BLOCK_ROWS

    def __init__(self, source: GeneratorSource, partition: int, of: int) -> None:
        super().__init__(source, partition, of)
        self._source = source
        self._stream = stream_of(source.seed, partition, 0)
        self._payload = payload(source.seed, partition)
        self._made_first = 0
        self._made: pa.RecordBatch | None = None

    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        self._pace.next_row = first + count
        if count > AHEAD_ROWS:
            return self._make(first, count)
        made, at = self._made, first - self._made_first
        if made is None or not 0 <= at <= made.num_rows - count:
            self._made_first, at = first, 0
            self._made = made = self._make(first, AHEAD_ROWS)
        return made.slice(at, count)

    def _make(self, first: int, count: int) -> pa.RecordBatch:
        ts = arrow_of(self._pace.times(first, count), pa.timestamp("us"))
        key = arrow_of(self._keys(random_bits(self._stream, first, count)), pa.int64())
        rest = [column.slice(first % BLOCK_ROWS, count) for column in self._payload.values()]
        return pa.RecordBatch.from_arrays([key, ts, *rest], schema=SCHEMA)

    def _keys(self, bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        if self._source.distribution == "zipf":
            return zipf_ranks(bits, self._source.keys, self._source.exponent)
        bits >>= np.uint64(32)
        bits *= np.uint64(self._source.keys)
        bits >>= np.uint64(32)
        return bits.view(np.int64)


@dataclass(frozen=True)
class GeneratorSource(MadeSource):
    """See `evenflow.sources.generator`. exponent: of the Zipf distribution."""

    kind: ClassVar[str] = "generator"
    columns: ClassVar[pa.Schema] = SCHEMA
    reader: ClassVar[type[MadeReader]] = GeneratorReader
    rate: int | None = None
    keys: int = 16384
    distribution: Literal["uniform", "zipf"] = "uniform"
    exponent: float = 1.2
    rows: int | None = None
    seed: int = 0
    count: int | None = None
    begin_us: int | None = field(default=None, kw_only=True)

    option_owner: ClassVar[str] = "generator source"
    MAY: ClassVar[Mapping[str, May]] = {**MadeSource.MAY, "keys": whole(1, 1 << 32), "exponent": number(0, 1000).called("s")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distribution == "zipf" and self.keys > MOST_RANKS:
            raise OptionError(
                f"generator source: {self.keys:,} keys of a Zipf distribution need a table of {self.keys * 8 >> 20:,} MiB at every site; "
                f"give keys of at most {MOST_RANKS:,}, or distribution='uniform'"
            )
