"""Batches of Spark's below a location: each counts once, whoever wrote it; every row is read once, wherever a reader begins."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from evenflow.errors import LocationError, SourceError
from evenflow.sources import from_json
from evenflow.sources.source import place
from evenflow.sources.spooled import OBJECT_ROWS, Spool, SpooledReader, SpooledSource
from evenflow.store.directory import DirectoryStore
from evenflow.store.objects import MOST_BYTES, Store, beside_name
from tests.store.faulty import Around, Fails

SCHEMA = pa.schema([("v", pa.int64())])


def rows(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def spool(location: Path) -> Spool:
    return Spool(DirectoryStore(str(location)), "box")


def write(spool: Spool, number: int, tasks: list[list[int]]) -> None:
    pieces = [piece for task, values in enumerate(tasks) for piece in spool.put(number, f"{task:06d}-00", [rows(values)] if values else [])]
    spool.name(number, pieces)


def read(reader: SpooledReader, most: int = 7) -> tuple[list[int], list[tuple[int, int]]]:
    """All that is there, and after how many rows which batch was said to be whole."""
    found: list[int] = []
    whole: list[tuple[int, int]] = []
    for _ in range(10_000):
        before = reader.batch
        batch = reader.read(1_000_000, most)
        if batch is not None:
            found += batch.column("v").to_pylist()
        if reader.batch > before:
            whole.append((len(found), reader.batch))
        elif batch is None and (reader.ended or reader.wake_us is not None):
            return found, whole
    raise AssertionError("it never has enough")


def test_every_row_once_from_wherever_a_reader_begins(tmp_path: Path) -> None:
    """Method: batches and tasks of any size, also none; a reader begins behind each number of rows; a word that a batch is whole comes
    behind its last row and before any row of the next one, and at the beginning for what was whole before."""
    for seed in range(6):
        random, there, every = Random(seed), spool(tmp_path / str(seed)), list[int]()
        ends: list[int] = []
        for number in range(random.randint(1, 6)):
            tasks = [[random.randrange(10**9) for _ in range(random.choice((0, 0, 1, 5, 20)))] for _ in range(random.randint(0, 3))]
            write(there, number, tasks)
            every += [value for task in tasks for value in task]
            ends.append(len(every))
        for begin in range(len(every) + 1):
            reader = SpooledReader(there)
            place(reader, begin)
            found, whole = read(reader, random.randint(1, 30))
            assert found == every[begin:]
            assert reader.wake_us is not None and not reader.ended, "it looks for more"
            assert whole[-1] == (len(found), len(ends) - 1)
            for count, batch in whole:
                assert begin + count >= ends[batch], "said before all of its rows had come"
                assert count == 0 or ends[batch] == begin + count, "said behind rows of a later one"


def test_it_waits_for_the_next_batch_and_ends_with_the_stream(tmp_path: Path) -> None:
    there = spool(tmp_path)
    reader = SpooledReader(there)
    assert read(reader) == ([], [])
    write(there, 0, [[1, 2], [3]])
    assert read(reader) == ([1, 2, 3], [(3, 0)])
    there.name(1, (), ended=True)
    assert reader.read(0, 10) is None and reader.ended
    again = SpooledReader(there)
    place(again, 3)
    assert read(again)[0] == [] and again.ended


def test_a_batch_counts_as_it_was_named_first(tmp_path: Path) -> None:
    """A stale driver writes the same batch later, from an attempt that was cut into other tasks."""
    there, stale = spool(tmp_path), spool(tmp_path)
    write(there, 0, [[1, 2], [3]])
    write(stale, 0, [[3, 2, 1]])
    assert read(SpooledReader(there))[0] == [1, 2, 3]


def test_batches_follow_each_other(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="batch 0 of streamed/box is not there, and 1 was to follow it"):
        write(spool(tmp_path), 1, [[1]])


def test_what_is_over_goes_and_what_is_needed_stays(tmp_path: Path) -> None:
    there = spool(tmp_path)
    for number in range(5):
        write(there, number, [[number] * 4])
    list(there.put(2, "000000-01", [rows([9])]))  # Of an attempt that counts nowhere.
    assert there.forget(3) == 0
    assert there.forget(13) == 3 + 3 + 1
    assert there.numbers() == [3, 4]
    reader = SpooledReader(there)
    place(reader, 13)
    assert read(reader)[0] == [3, 3, 3, 4, 4, 4, 4]
    gone = SpooledReader(there)
    place(gone, 11)
    with pytest.raises(SourceError, match="the rows behind the first 11 are not kept any more"):
        gone.read(0, 10)
    assert there.forget(10**6) == 2, "the newest says how many rows have come before the next one"
    write(there, 5, [[5]])
    behind = there.batch(5)
    assert behind is not None and behind.first == 20


def test_what_killed_tasks_and_drivers_have_left_goes_with_their_batch(tmp_path: Path) -> None:
    """Not what may be written yet, nor what others have put there."""
    there = spool(tmp_path)
    for number in range(4):
        write(there, number, [[number] * 4])
    beside = []
    for folder, ends in (("batches", ".json"), ("rows", "-000000-00-0123456789ab-0000.arrow")):
        for number in range(6):
            beside.append(tmp_path / "streamed" / "box" / folder / beside_name(f"{number:010d}{ends}"))
    others = [tmp_path / "streamed" / "box" / "rows" / name for name in (beside_name("mine"), ".0000000000.tmp", "mine")]
    for file in (*beside, *others):
        file.write_bytes(b"A")
    assert there.forget(3) == 0 and all(file.exists() for file in beside)
    assert there.forget(8) == 2 + 2, "objects are counted"
    assert [file.exists() for file in beside] == 2 * [False, False, True, True, True, True]
    assert all(file.exists() for file in others)


class Hiccups(Around):
    """Three of ten requests to read fail, as some do of a store that is restarted, or has too much to do."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store)
        self._random = Random(seed)

    def _hiccup(self) -> None:
        if self._random.random() < 0.3:
            raise TimeoutError(errno.ETIMEDOUT, "slow down")

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        self._hiccup()
        return super().get(name, most)

    def names(self, prefix: str = "") -> list[str]:
        self._hiccup()
        return super().names(prefix)


def test_a_store_that_fails_now_and_then_costs_time_and_no_row(tmp_path: Path) -> None:
    """Goal: as with results, what is read waits for its store. Method: wherever a reader begins, objects of several rows, of which it
    takes fewer at a time; a batch of which an object has been read already when the next one cannot be."""
    there, every = spool(tmp_path), list[int]()
    for number in range(4):
        tasks = [[100 * number + 10 * task + value for value in range(5)] for task in range(number)]
        write(there, number, tasks)
        every += [value for task in tasks for value in task]
    for begin in range(len(every) + 1):
        reader, now_us, found = SpooledReader(Spool(Hiccups(DirectoryStore(str(tmp_path)), begin), "box")), 0, list[int]()
        place(reader, begin)
        for _ in range(200):
            batch = reader.read(now_us, 3)
            found += [] if batch is None else batch.column("v").to_pylist()
            assert batch is None or reader.wake_us is None
            now_us = max(now_us, reader.wake_us or 0)
        assert (found, reader.batch) == (every[begin:], 3)


def test_a_store_that_is_away_is_asked_more_and_more_seldom(tmp_path: Path) -> None:
    away = Fails(DirectoryStore(str(tmp_path)), "get", OSError(errno.EHOSTDOWN, "a name node that stands by"), 20)
    reader, now_us, waited = SpooledReader(Spool(away, "box")), 0, list[int]()
    for _ in range(20):
        assert reader.read(now_us, 10) is None and reader.wake_us is not None
        waited.append(reader.wake_us - now_us)
        now_us = reader.wake_us
    assert waited[:3] == [100_000, 200_000, 400_000] and waited[-1] == 5_000_000
    write(spool(tmp_path), 0, [[1]])
    assert read(reader) == ([1], [(1, 0)])


def test_batches_that_go_while_a_reader_looks_for_its_own_are_no_loss(tmp_path: Path) -> None:
    """Spark's next batch comes when a driver begins again, and with it goes what no checkpoint needs; readers begin then, too."""
    there = spool(tmp_path)
    for number in range(8):
        write(there, number, [[number]])

    class Forgets(Around):
        left = 1

        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            if self.left:
                self.left -= 1
                there.forget(5)
            return super().get(name, most)

    reader = SpooledReader(Spool(Forgets(DirectoryStore(str(tmp_path))), "box"))
    place(reader, 6)
    assert read(reader)[0] == [6, 7]


def test_large_batches_are_several_objects(tmp_path: Path) -> None:
    there = spool(tmp_path)
    write(there, 0, [list(range(OBJECT_ROWS + 10))])
    made = there.batch(0)
    assert made is not None and [piece.rows for piece in made.pieces] == [OBJECT_ROWS, 10]
    assert read(SpooledReader(there), 50_000)[0] == list(range(OBJECT_ROWS + 10))


@pytest.mark.parametrize("damage", ["row", "name", "deep", "gone", "outside"])
def test_what_is_not_as_it_was_written_is_not_believed(tmp_path: Path, damage: str) -> None:
    there = spool(tmp_path)
    write(there, 0, [[1, 2, 3]])
    (named,) = (tmp_path / "streamed" / "box" / "batches").iterdir()
    (file,) = (tmp_path / "streamed" / "box" / "rows").iterdir()
    if damage == "row":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "name":
        named.write_bytes(named.read_bytes()[:-9])
    elif damage == "deep":
        named.write_text("[" * 100_000)
    elif damage == "gone":
        file.unlink()
    else:
        (tmp_path / "secret").write_bytes(file.read_bytes())
        named.write_text(named.read_text().replace(file.name, "../../../secret"))
    with pytest.raises((SourceError, LocationError)):
        SpooledReader(there).read(0, 10)


def test_the_description_says_nothing_of_where_it_is(tmp_path: Path) -> None:
    source = SpooledSource(SCHEMA, "box", str(tmp_path), dataframe=object())
    assert source.to_json() == SpooledSource(SCHEMA, "box", "elsewhere").to_json()
    assert from_json(source.to_json()) == source
    assert source.__getstate__()["dataframe"] is None and source.repeats and source.partitions(5) == 1
