"""The law of every source that can be replayed: whoever takes a partition over goes on exactly where another reader had come to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenflow import sources
from evenflow.errors import SourceError
from evenflow.sources import KINDS, Reader, Source, files
from evenflow.sources.packets import CYCLE_ROWS
from tests.drawn import but

from .reading import arrivals, wait_readable
from .test_pcap import TCP, UDP, classic, ipv4
from .test_replay import TABLE, write

pytestmark = pytest.mark.one_in(2)

ROWS = 30


def many_rows(count: int = ROWS) -> pa.Table:
    """Rows 100 ms apart, a few of them out of order."""
    times = [1_000_000 + 100_000 * (i - 3 * (i % 7 == 5)) for i in range(count)]
    texts = [None if i % 4 == 1 else f"t{i}" for i in range(count)]
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "a": list(range(count)), "text": pa.array(texts, pa.string())})


def file_of(ending: str, **options: object) -> Callable[[Path], Source]:
    def make(path: Path) -> Source:
        table = many_rows() if ending in ("parquet", "arrow", "arrows") else many_rows().drop_columns(["text"])
        written = write(path / f"rows.{ending}", table)
        return sources.replay(str(written), **{"speed": None, "schema": table.schema, **options})  # type: ignore[arg-type]

    return make


def several_files(path: Path, speed: float | None = None) -> Source:
    for number in range(5):
        write(path / f"{number}.parquet", many_rows().slice(6 * number, 6 if number != 3 else 0))
    return sources.replay(str(path), speed=speed)


def capture(path: Path) -> Source:
    """Every third packet is not a row."""
    kinds = [ipv4(6, TCP), ipv4(17, UDP), ipv4(1, b"ping")]
    (path / "x.pcap").write_bytes(classic([(i, 0, kinds[i % 3]) for i in range(45)]))
    return sources.pcap(str(path / "x.pcap"))


BATCHES = [many_rows().slice(first, 7).combine_chunks().to_batches()[0] for first in range(0, ROWS, 7)]
CASES: dict[str, Callable[[Path], Source]] = {
    "generator": lambda _: sources.generator(rows=90),
    "generator, zipf": lambda _: sources.generator(rows=90, distribution="zipf", keys=50),
    "generator, paced": lambda _: sources.generator(rate=1000, rows=90),
    "packets": lambda _: sources.packets(rate=None, rows=90),
    "packets, paced": lambda _: sources.packets(rate=50, rows=90),
    "nexmark": lambda _: sources.nexmark(events=100, disorder=7),
    "nexmark, paced": lambda _: sources.nexmark("auction", rate=1000, events=1500),
    "memory": lambda _: sources.memory([BATCHES, BATCHES[1:2], BATCHES]),
    "memory, goes on": lambda _: sources.memory([BATCHES, BATCHES[:1], []], ended=False, schema=BATCHES[0].schema),
    **{f"replay of {ending}": file_of(ending) for ending in ("parquet", "csv", "tsv", "json", "arrow", "arrows")},
    "replay, paced": file_of("parquet", speed=3.0),
    "replay, paced csv": file_of("csv", speed=3.0),
    "replay, keep_time": file_of("parquet", speed=3.0, keep_time=False),
    "replay of files": several_files,
    "replay of files, paced": lambda path: several_files(path, 2.0),
    "pcap": capture,
}
BY_THE_CLOCK = {"generator, paced", "packets, paced", "replay, keep_time"}


def rest(reader: Reader, max_rows: int, now_us: int, schema: pa.Schema) -> pa.Table:
    """All that comes, going from one wake-up to the next, until the end or silence."""
    batches = []
    while not reader.ended:
        batch = reader.read(now_us, max_rows)
        if batch is not None:
            assert 0 < batch.num_rows <= max_rows
            batches.append(batch)
        elif reader.wake_us is not None:
            assert reader.wake_us > now_us
            now_us = reader.wake_us
        else:
            break
    assert reader.ended or not batches or reader.read(now_us, 1) is None
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("name", but({"packets, paced"}, CASES))
def test_another_reader_goes_on_where_the_first_had_come_to(tmp_path: Path, name: str) -> None:
    source = CASES[name](tmp_path)
    assert source.replayable
    of = 3 if name.startswith("memory") else min(source.partitions(3), 3)
    for partition in sorted({0, of - 1}):
        whole = rest(source.open(partition, of), 4, 5_000_000, source.schema)
        for cut in sorted({0, 1, 2, 5, 6, 7, 12, 13, whole.num_rows - 1, whole.num_rows, whole.num_rows + 9} - {-1}):
            for max_rows in (4, 1000):
                reader = source.open(partition, of)
                reader.skip(cut)
                found, wanted = rest(reader, max_rows, 77_000_000, source.schema), whole.slice(cut)
                if name in BY_THE_CLOCK:
                    found, wanted = found.drop_columns(["ts"]), wanted.drop_columns(["ts"])
                assert found.equals(wanted), f"partition {partition} from row {cut} on"
                assert reader.ended == (name != "memory, goes on")
                reader.close()


def test_every_kind_of_source_obeys_the_law_or_says_why_not(tmp_path: Path) -> None:
    kinds = set()
    for number, make in enumerate(CASES.values()):
        (tmp_path / str(number)).mkdir()
        kinds.add(make(tmp_path / str(number)).kind)
    kinds.add("kafka")  # It goes on behind an offset instead, over gaps, and needs a broker: tests/sources/test_kafka.py.
    kinds |= {"delta", "iceberg"}  # They go on behind a version and a row: tests/sources/test_delta.py, test_iceberg.py.
    kinds.add("group")  # It goes on behind an epoch and a row, and needs a region: tests/world/test_group_source.py.
    kinds.add("table")  # To go on behind its end is an error, since rows are lost then: tests/sources/test_table.py.
    assert {kind for kind, source in KINDS.items() if source.replayable and not source.pushed} == kinds
    assert {kind for kind, source in KINDS.items() if not source.replayable} == {"tcp_lines"}


@pytest.mark.parametrize("cut", [1 << 16, 3 * CYCLE_ROWS - 5, 3 * CYCLE_ROWS, 10**15])
def test_made_rows_go_on_far_away_at_once(cut: int) -> None:
    """A row is a function of its number, so a reader that skipped less and read the rest gives the same."""
    for source in (sources.generator(), sources.packets(rate=None)):
        far, near = source.open(1, 2), source.open(1, 2)
        far.skip(cut)
        near.skip(cut - 10)
        read, ahead, found = near.read(0, 10), near.read(0, 100), far.read(0, 100)
        assert read is not None
        assert read.num_rows == 10
        assert found is not None
        assert found.equals(ahead)


@pytest.mark.parametrize("rate", [1, 7, 1000, 7919, 3_000_000])
@pytest.mark.parametrize("partition", [0, 2])
def test_a_made_source_keeps_its_pace_after_a_skip(rate: int, partition: int) -> None:
    """As if the last row skipped had come just now: the first read brings nothing, a second brings a second's rows."""
    reader, start = sources.generator(rate=rate).open(partition, 3), 1_700_000_000_000_000
    reader.skip(10 * rate)
    first = reader.read(start, 10 * rate)
    assert first is None or first.num_rows <= 1
    count, now_us = 0 if first is None else first.num_rows, start + 3_000_000
    while (batch := reader.read(now_us, 10 * rate)) is not None:
        times = batch["ts"].cast(pa.int64()).to_pylist()
        assert start <= min(times)
        assert max(times) <= now_us
        count += batch.num_rows
    assert count == rate or (rate > 1_000_000 and count == rate + 1)  # A microsecond is more than one row then.


def test_an_end_is_seen_at_once_where_nothing_has_to_be_read() -> None:
    for source in (sources.generator(rows=7), sources.packets(rows=7), sources.memory(BATCHES[0])):
        for rows, ended in ((6, False), (7, True), (8, True)):
            reader = source.open(0, 1)
            reader.skip(rows)
            assert reader.ended == ended


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_replay_keeps_its_pace_after_a_skip(tmp_path: Path, speed: float) -> None:
    """Rows due at 0, 0.5, 0.5, 2, 2 and 4 s: whoever begins behind one of them waits as long as there was between."""
    source = sources.replay(str(write(tmp_path / "rows.csv", TABLE)), speed=speed)
    due = [0, 500_000, 500_000, 2_000_000, 2_000_000, 4_000_000]
    for cut in range(1, 6):
        reader = source.open(0, 1)
        reader.skip(cut)
        seen = [time for time, rows in arrivals(reader, start_us=9_000_000) for _ in range(rows)]
        assert seen == [9_000_000 + int((at - due[cut - 1]) / speed) for at in due[cut:]]


def test_whole_row_groups_are_left_out_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[int]] = []
    real = pq.ParquetFile.iter_batches

    def spy(self: pq.ParquetFile, size: int, row_groups: list[int], **rest: bool) -> object:
        read.append(row_groups)
        return real(self, size, row_groups, **rest)

    monkeypatch.setattr(files.pq.ParquetFile, "iter_batches", spy)
    source = sources.replay(str(write(tmp_path / "rows.parquet", many_rows())), speed=None)
    for cut, groups in ((0, range(15)), (6, range(2, 15)), (7, range(3, 15)), (29, [14]), (99, [])):
        read.clear()
        reader = source.open(0, 1)
        reader.skip(cut)
        rest(reader, 1000, 0, source.schema)
        assert read == ([list(groups)] if groups else [])


def test_a_file_damaged_behind_the_skip_is_named_with_its_own_row(tmp_path: Path) -> None:
    text = "ts,a,text\n" + "".join(f"2024-01-01 00:00:{i % 60:02d},{i},x\n" for i in range(60_000)) + "2024-01-01 00:00:00,7\n"
    (tmp_path / "rows.csv").write_text(text)
    said = []
    for cut in (0, 40_000):
        reader = sources.replay(str(tmp_path / "rows.csv"), speed=None, schema=TABLE.schema).open(0, 1)
        reader.skip(cut)
        with pytest.raises(SourceError, match=r"beyond row [1-9]\d+") as caught:
            rest(reader, 100_000, 0, TABLE.schema)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_peer_does_not_repeat_its_lines() -> None:
    """What comes now is the continuation, however much came before."""
    reader = sources.tcp_lines("127.0.0.1", 0, format="text", listen=True).open(0, 1)
    reader.skip(1000)
    with socket.create_connection(("127.0.0.1", reader.port), 5) as peer:  # type: ignore[attr-defined]
        peer.sendall(b"next\n")
        batch = None
        while batch is None:
            wait_readable(reader)
            batch = reader.read(0, 10)
    assert batch.to_pylist() == [{"line": "next"}]
    reader.close()
