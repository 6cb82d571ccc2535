"""A site's window as one array of whole numbers, in the order of the layout: what sites report, four times a second each.

    header (HEADER numbers) | structure: by segment its number, how many partitions, how many on disk and how many boxes it has;
    all partitions; all that are on disk | values: by segment its busy time, the newest epoch done and the watermark; rows and state
    bytes of all partitions; rows in, rows out, busy time and failed rows of all boxes; (site, microseconds) that the ingress has waited;
    (segment, arc, rows put on it); SOURCE_WORDS numbers of each partition of a source that is read

Names are not sent, since both ends have the layout. Nothing is copied to read it, and a structure that stays, which it does for hours, is
understood once (`Structures`). `window_of` makes the window of it that `flat_of` was given; what windows do not say (how far a segment is,
for whom the ingress waits) they lose on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evenflow.errors import StatisticsError
from evenflow.plan.layout import Layout
from evenflow.statistics.standing import Waited
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow, SourceWindow

Ints = NDArray[np.int64]

HEADER: Final = 17
NO_BUDGET: Final = -(2**63)
"""In the place of free bytes: the site may hold any amount."""
COLUMNS: Final = 4
"""Of boxes: rows in, rows out, busy microseconds, rows failed."""
ARC_WORDS: Final = 3
CLASSES_MAX: Final = 8
"""Value classes of rows, at most."""
SOURCE_WORDS: Final = 6 + CLASSES_MAX
"""Segment, partition, offered, kept, behind (-1: unknown), waited microseconds; rows dropped by class."""
KNOWN_MAX: Final = 4096
_counts_of: Final = attrgetter("rows_in", "rows_out", "busy_us", "rows_failed")

Names = tuple[tuple[str, tuple[str, ...]], ...]
"""Of each segment its name and those of its boxes, in the layout's order."""


def names_of(layout: Layout) -> Names:
    return tuple((segment.name, tuple(step.box for step in segment.steps)) for segment in layout.segments)


def producers_of(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Of each segment those that it gets rows from."""
    return tuple(tuple(sorted({layout.arcs[stream].producer for stream in segment.inputs})) for segment in layout.segments)


@dataclass(frozen=True, slots=True)
class Measured:
    """A segment at a site: as `SegmentWindow`, in arrays. boxes: COLUMNS numbers of each, one after the other. done: the newest
    epoch; watermark: at its end. arc_rows: as `SegmentWindow`."""

    segment: int
    partitions: Ints
    rows: Ints
    state_bytes: Ints
    busy_us: int
    boxes: Sequence[int]
    on_disk: tuple[int, ...] = ()
    done: int = 0
    watermark: int = 0
    arc_rows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FlatWindow:
    """words: int64, see the module. Equal are those whose numbers are."""

    words: Ints

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlatWindow) and np.array_equal(self.words, other.words)

    __hash__ = None  # type: ignore[assignment]

    @property
    def site(self) -> int:
        return int(self.words[0])

    @property
    def begin_us(self) -> int:
        return int(self.words[1])

    @property
    def end_us(self) -> int:
        return int(self.words[2])

    @property
    def busy_us(self) -> int:
        return int(self.words[3])

    @property
    def free_bytes(self) -> int | None:
        free = int(self.words[4])
        return None if free == NO_BUDGET else free

    @property
    def spilled_bytes(self) -> int:
        return int(self.words[6])

    @staticmethod
    def from_bytes(data: bytes) -> FlatWindow:
        """Raises StatisticsError if it is no whole window."""
        if len(data) % 8 or len(data) < 8 * HEADER:
            raise StatisticsError(f"{len(data)} bytes are no window of a site")
        words = np.frombuffer(data, np.int64)
        segments, partitions, on_disk, boxes, waited, arcs, sources = counts = words[10:HEADER].tolist()
        whole = HEADER + 7 * segments + 3 * partitions + on_disk + COLUMNS * boxes + 2 * waited + ARC_WORDS * arcs + SOURCE_WORDS * sources
        if min(counts) < 0 or words.size != whole or words[2] < words[1]:
            raise StatisticsError(f"a window of {words.size} numbers says that it has {whole}")
        return FlatWindow(words)


@dataclass(frozen=True, slots=True)
class Structure:
    """What a window's values are of. shape: (segment, how many boxes) of each. first: where values begin if nothing is on disk; size: how
    many there are, without those of the end. Which partitions are on disk is not in it: that may be another set in each window."""

    key: bytes
    segments: tuple[int, ...]
    counts: tuple[int, ...]
    shape: tuple[tuple[int, int], ...]
    partitions: tuple[int, ...]
    boxes_count: int
    first: int
    size: int

    @staticmethod
    def of(key: bytes, numbers: tuple[int, ...], counts: tuple[int, ...], boxes: tuple[int, ...], partitions: tuple[int, ...]) -> Structure:
        """numbers, counts, boxes: of each segment its number, and how many partitions and boxes it has."""
        first = HEADER + 4 * len(numbers) + len(partitions)
        size = 3 * len(numbers) + 2 * len(partitions) + COLUMNS * sum(boxes)
        return Structure(key, numbers, counts, tuple(zip(numbers, boxes)), partitions, sum(boxes), first, size)

    def at(self, flat: FlatWindow) -> int:
        """Where the values begin."""
        return self.first + int(flat.words[12])

    def on_disk(self, flat: FlatWindow) -> tuple[list[int], list[int]]:
        """How many partitions of each segment are on disk, and which."""
        count, at = len(self.segments), self.at(flat)
        return flat.words[HEADER + 2 * count : HEADER + 3 * count].tolist(), flat.words[at - int(flat.words[12]) : at].tolist()

    def segment_values(self, flat: FlatWindow) -> Ints:
        """int64 (3, segments): busy microseconds, the newest epoch done, watermark."""
        first = self.at(flat)
        return flat.words[first : first + 3 * len(self.segments)].reshape(3, -1)

    def partition_values(self, flat: FlatWindow) -> Ints:
        """int64 (2, partitions): rows, state bytes."""
        first = self.at(flat) + 3 * len(self.segments)
        return flat.words[first : first + 2 * len(self.partitions)].reshape(2, -1)

    def boxes(self, flat: FlatWindow) -> Ints:
        """int64 (boxes, COLUMNS)."""
        first = self.at(flat) + 3 * len(self.segments) + 2 * len(self.partitions)
        return flat.words[first : first + COLUMNS * self.boxes_count].reshape(-1, COLUMNS)

    def values(self, flat: FlatWindow) -> Ints:
        """All of them but the last ones, which say for whom the ingress waited."""
        first = self.at(flat)
        return flat.words[first : first + self.size]

    def split(self, values: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Of such values: busy microseconds by segment, rows and state bytes by partition, and (boxes, COLUMNS)."""
        first = 3 * len(self.segments)
        middle, behind = first + len(self.partitions), first + 2 * len(self.partitions)
        return values[: len(self.segments)], values[first:middle], values[middle:behind], values[behind:].reshape(-1, COLUMNS)

    def waited(self, flat: FlatWindow) -> Ints:
        """int64 (sites, 2): as `Waited`."""
        first = self.at(flat) + self.size
        return flat.words[first : first + 2 * int(flat.words[14])].reshape(-1, 2)

    def arcs(self, flat: FlatWindow) -> Ints:
        """int64 (arcs, ARC_WORDS): segment, arc, rows put on it."""
        first = self.at(flat) + self.size + 2 * int(flat.words[14])
        return flat.words[first : first + ARC_WORDS * int(flat.words[15])].reshape(-1, ARC_WORDS)

    def sources(self, flat: FlatWindow) -> Ints:
        """int64 (partitions of sources, SOURCE_WORDS)."""
        return flat.words[flat.words.size - SOURCE_WORDS * int(flat.words[16]) :].reshape(-1, SOURCE_WORDS)


class Structures:
    """Those that have been understood. names: of what windows may speak of."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[bytes, Structure] = {}
        self._quick: dict[bytes, Structure] = {}
        self._last: tuple[FlatWindow, Structure] | None = None

    def of(self, flat: FlatWindow) -> Structure:
        """Raises StatisticsError for one that is not of this layout."""
        last = self._last
        if last is not None and last[0] is flat:
            return last[1]
        end = HEADER + 4 * int(flat.words[10]) + int(flat.words[11])
        key = flat.words[10:14].tobytes() + flat.words[HEADER:end].tobytes()  # How long the ingress waited for whom is not in it.
        quick = None if flat.words[12] else self._quick.get(key)
        if quick is None:
            quick = self._of(flat)
            if not flat.words[12]:
                if len(self._quick) >= KNOWN_MAX:
                    self._quick.clear()
                self._quick[key] = quick
        self._last = flat, quick
        return quick

    def _of(self, flat: FlatWindow) -> Structure:
        segments, partitions, on_disk = flat.words[10:13].tolist()
        disk_at, boxes_at = HEADER + 2 * segments, HEADER + 3 * segments
        disk = flat.words[disk_at:boxes_at].tolist()
        if sum(disk) != on_disk or min(disk, default=0) < 0:
            raise StatisticsError(f"site {flat.site} reports {disk} partitions on disk and names {on_disk}, which is another layout")
        words = (flat.words[10:12], flat.words[13:14], flat.words[HEADER:disk_at], flat.words[boxes_at : boxes_at + segments + partitions])
        key = b"".join([each.tobytes() for each in words])
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[key] = self._read(flat, key, segments, partitions)
        return known

    def _read(self, flat: FlatWindow, key: bytes, segments: int, partitions: int) -> Structure:
        said = flat.words[HEADER : HEADER + 4 * segments + partitions].tolist()
        numbers, counts, _, boxes = (tuple(said[i * segments : (i + 1) * segments]) for i in range(4))
        own = [len(self._names[number][1]) if 0 <= number < len(self._names) else -1 for number in numbers]
        sums = [sum(counts), sum(boxes)]
        if list(boxes) != own or sums != flat.words[[11, 13]].tolist() or min(counts, default=1) < 1:
            raise StatisticsError(f"site {flat.site} reports segments {numbers} with {boxes} boxes, which is another layout")
        return Structure.of(key, numbers, counts, boxes, tuple(said[4 * segments :]))

    def window_of(self, flat: FlatWindow) -> SiteWindow:
        """The window as an object."""
        structure = self.of(flat)
        (busy_us, _, _), (rows, state) = structure.segment_values(flat).tolist(), structure.partition_values(flat).tolist()
        counts = iter(structure.boxes(flat).tolist())
        disk_counts, disk = structure.on_disk(flat)
        arc_rows: dict[int, list[tuple[int, int]]] = {}
        for number, arc, put in structure.arcs(flat).tolist():
            arc_rows.setdefault(number, []).append((arc, put))
        made, at, disk_at = [], 0, 0
        for place, (number, _) in enumerate(structure.shape):
            name, boxes = self._names[number]
            end, disk_end = at + structure.counts[place], disk_at + disk_counts[place]
            windows = tuple(BoxWindow(box, *next(counts)) for box in boxes)
            on_disk = tuple(disk[disk_at:disk_end])
            made.append(
                SegmentWindow(
                    number,
                    name,
                    structure.partitions[at:end],
                    tuple(rows[at:end]),
                    tuple(state[at:end]),
                    busy_us[place],
                    windows,
                    on_disk,
                    tuple(arc_rows.get(number, ())),
                )
            )
            at, disk_at = end, disk_end
        site, begin_us, end_us, busy, _, pool, spilled, *latency = flat.words[:10].tolist()
        sources = tuple([self._source(words) for words in structure.sources(flat).tolist()])
        return SiteWindow(site, begin_us, end_us, busy, flat.free_bytes, pool, spilled, tuple(made), Latency(*latency), sources)

    def _source(self, words: list[int]) -> SourceWindow:
        segment, partition, offered, kept, behind, waited_us, *dropped = words
        if not 0 <= segment < len(self._names):
            raise StatisticsError(f"a source is read in segment {segment}, which is another layout")
        while dropped and not dropped[-1]:
            dropped.pop()
        late = None if behind < 0 else behind
        return SourceWindow(self._names[segment][0], segment, partition, offered, kept, tuple(dropped), late, waited_us)


def flattened(
    site: int, begin_us: int, end_us: int, busy_us: int, free_bytes: int | None, pool_bytes: int, spilled_bytes: int, latency: Latency,
    segments: Sequence[Measured], waited: Waited = (), sources: Sequence[SourceWindow] = (),
) -> FlatWindow:  # fmt: skip
    """A site's window, see `SiteWindow`. segments: those hosted, by id; each with a partition at least."""
    arcs = [word for each in segments for arc, rows in each.arc_rows for word in (each.segment, arc, rows)]
    partitions, on_disk = [each.partitions for each in segments], [each.on_disk for each in segments]
    head = [
        site, begin_us, end_us, busy_us, NO_BUDGET if free_bytes is None else free_bytes, pool_bytes, spilled_bytes,
        latency.p50_us, latency.p99_us, latency.count,
        len(segments), sum(map(len, partitions)), sum(map(len, on_disk)),
        sum([len(each.boxes) for each in segments]) // COLUMNS, len(waited), len(arcs) // ARC_WORDS, len(sources),
        *[each.segment for each in segments], *map(len, partitions), *map(len, on_disk), *[len(each.boxes) // COLUMNS for each in segments],
    ]  # fmt: skip
    values = [
        *chain.from_iterable(on_disk),
        *[each.busy_us for each in segments],
        *[each.done for each in segments],
        *[each.watermark for each in segments],
    ]
    pieces: list[Ints] = [np.array(head, np.int64), *partitions, np.array(values, np.int64)]
    pieces += [each.rows for each in segments]
    pieces += [each.state_bytes for each in segments]
    boxes = chain.from_iterable([each.boxes for each in segments])
    read = chain.from_iterable(map(_words_of, sources))
    pieces.append(np.array([*boxes, *chain.from_iterable(waited), *arcs, *read], np.int64))
    return FlatWindow(np.concatenate(pieces))


def _words_of(source: SourceWindow) -> list[int]:
    assert len(source.dropped) <= CLASSES_MAX, f"{source.source} has {len(source.dropped)} value classes"
    late = -1 if source.behind is None else source.behind
    rest = [0] * (CLASSES_MAX - len(source.dropped))
    return [source.segment, source.partition, source.offered, source.kept, late, source.waited_us, *source.dropped, *rest]


def flat_of(window: SiteWindow, waited: Waited = ()) -> FlatWindow:
    """The window as one array."""
    return flattened(
        window.site, window.begin_us, window.end_us, window.busy_us, window.free_bytes, window.pool_bytes, window.spilled_bytes,
        window.latency, [measured(segment) for segment in window.segments if segment.partitions], waited, window.sources,
    )  # fmt: skip


def measured(segment: SegmentWindow) -> Measured:
    partitions, rows, state = (np.array(column, np.int64) for column in (segment.partitions, segment.rows, segment.state_bytes))
    counts = list(chain.from_iterable(map(_counts_of, segment.boxes)))
    return Measured(
        segment.segment, partitions, rows, state, segment.busy_us, counts, segment.on_disk, arc_rows=segment.arc_rows
    )  # fmt: skip
