"""Results in tables of databases: whole epochs, once each, whatever goes wrong in between."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import sinks
from evenflow.errors import SinkError, UnknownColumn
from evenflow.sinks.table import TableSink


def batch(*rows: tuple[int, str]) -> pa.RecordBatch:
    return pa.record_batch([[k for k, _ in rows], [v for _, v in rows]], names=["k", "what is"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "out.db")


def stored(path: str, table: str = "out") -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        return connection.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2').fetchall()


class Mute(sqlite3.Connection):
    def execute(self, *given: Any) -> Any:
        raise OSError("the line is dead")

    cursor = execute  # type: ignore[assignment]


class Elsewhere:
    """A connection that is not SQLite's by its name, and wants %s; it fails at the statements that `breaks` names."""

    breaks: ClassVar[list[str]] = []

    def __init__(self, path: str) -> None:
        self._inner = sqlite3.connect(path)

    def cursor(self) -> Any:
        inner, breaks = self._inner.cursor(), self.breaks

        class Cursor:
            def execute(self, statement: str, parameters: Any = ()) -> Any:
                assert "?" not in statement
                return inner.execute(statement.replace("%s", "?"), parameters)

            def executemany(self, statement: str, rows: Any) -> None:
                inner.executemany(statement.replace("%s", "?"), rows)
                if "rows" in breaks:
                    breaks.remove("rows")
                    raise OSError("the line is dead")

            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def fetchone(self) -> Any:
                return inner.fetchone()

        return Cursor()

    def commit(self) -> None:
        self._inner.commit()
        if "commit" in self.breaks:
            self.breaks.remove("commit")
            raise OSError("committed, but who heard of it?")

    def rollback(self) -> None:
        self._inner.rollback()

    def close(self) -> None:
        self._inner.close()


def test_epochs_are_written_once_and_in_order(path: str) -> None:
    writer = sinks.table(path, "out").open("run")
    for epoch, rows in ((1, batch((1, "a"), (2, "b"))), (2, batch()), (3, batch((1, "a"))), (3, batch((1, "a"))), (1, batch((9, "old")))):
        writer.write(epoch, rows)
    writer.close()
    writer.close()
    assert stored(path) == [(1, "a"), (1, "a"), (2, "b")]
    assert stored(path, "evenflow_epochs") == [("out", "run", 3)]


def test_with_a_key_the_newest_row_is_the_result(path: str) -> None:
    writer = sinks.table(path, "out", "k").open("run")
    writer.write(1, batch((1, "a"), (2, "b"), (1, "c")))
    writer.write(2, batch((2, "d")))
    assert stored(path) == [(1, "c"), (2, "d")]
    keyed = sinks.table(path, "pairs", ["k", "what is"]).open("run")
    keyed.write(1, batch((1, "a"), (1, "a")))
    assert stored(path, "pairs") == [(1, "a")]


Changes = list[tuple[int, str, str]]


def changes(rows: Changes) -> pa.RecordBatch:
    return pa.record_batch(
        [[k for k, _, _ in rows], [v for _, v, _ in rows], [how for _, _, how in rows]], names=["k", "what is", "_change"]
    )


@pytest.mark.parametrize(
    ("before", "now", "left"),
    [
        # Whatever order the partitions' rows have: the row as it is may come before the row as it was.
        ([(1, "a", "insert")], [(1, "b", "insert"), (1, "a", "delete")], [(1, "b")]),
        ([(1, "a", "insert")], [(1, "c", "update_after"), (1, "a", "update_before"), (1, "b", "insert"), (1, "b", "delete")], [(1, "c")]),
        ([(1, "a", "insert")], [(1, "b", "delete"), (1, "c", "insert"), (1, "a", "delete"), (1, "b", "insert")], [(1, "c")]),
        ([(1, "a", "insert")], [(1, "a", "insert"), (1, "a", "delete")], [(1, "a")]),
        ([(1, "a", "insert")], [(1, "b", "insert"), (1, "a", "delete"), (1, "b", "delete")], []),
        ([], [(1, "b", "insert"), (1, "c", "insert"), (1, "c", "delete")], [(1, "b")]),
        ([], [(1, "b", "insert"), (1, "b", "delete")], []),
        ([], [(1, "b", "insert"), (1, "", "delete")], []),  # Some databases say no more of a deleted row than its key.
        ([(1, "a", "insert")], [(1, "a", "update_before"), (1, "b", "update_after")], [(1, "b")]),
        ([(1, "a", "insert")], [(1, "a", "delete")], []),
    ],
)
def test_changes_of_a_key_count_in_whatever_order_partitions_give_them(path: str, before: Changes, now: Changes, left: Any) -> None:
    writer = sinks.table(path, "out", "k").open("run")
    writer.write(1, changes([*before, (7, "other", "insert")]))
    writer.write(2, changes(now))
    writer.close()
    assert stored(path) == [*left, (7, "other")]


def test_a_row_that_moves_between_partitions_stays_in_the_table(path: str) -> None:
    flow = ef.Dataflow("moved")
    given = {"a": "id bigint, x bigint, _change string", "b": "x bigint, name string"}
    streams = {name: flow.source(ef.sources.memory([], schema=schema), name=name) for name, schema in given.items()}
    joined = ef.sql("SELECT a.id, b.name FROM a JOIN b ON a.x = b.x", streams, output_mode="changelog")
    joined.to(ef.sinks.memory("out"), name="out")
    numbers = range(1, 17)
    run = ef.testing.simulate(flow, {"b": [(i, f"n{i}") for i in numbers], "a": [(i, i, "insert") for i in numbers]}).settle()
    run.give("a", [row for i in numbers for row in ((i, i, "update_before"), (i, 17 - i, "update_after"))]).finish()
    writer = sinks.table(path, "out", "id").open("run")
    for epoch, rows in run.epochs():
        writer.write(epoch, pa.RecordBatch.from_pylist(rows, run.table().schema))
    writer.close()
    assert stored(path) == [(i, f"n{17 - i}") for i in numbers]


def test_another_run_goes_on_in_the_same_table(path: str) -> None:
    for run in ("first", "second"):
        writer = sinks.table(path, "out").open(run)
        writer.write(1, batch((1, run)))
        writer.close()
    assert stored(path) == [(1, "first"), (1, "second")]


def test_a_generation_that_was_replaced_writes_no_more(path: str) -> None:
    """Goal: a driver that was replaced and lives puts no older row over a newer one. Method: it has an epoch left, has written nothing yet,
    or opens the table only then."""
    other = sinks.table(path, "out", "k").open("runs.g1")
    other.write(7, batch((7, "other")))
    old, slow = sinks.table(path, "out", "k").open("run.g1"), sinks.table(path, "out", "k").open("run.g2")
    old.write(1, batch((1, "a"), (2, "a")))
    new = sinks.table(path, "out", "k").open("run.g10")
    new.write(1, batch((1, "b")))
    for late in (old, old, slow):
        with pytest.raises(SinkError, match=r"by a later generation than [12] of run run: another driver has taken this one's place"):
            late.write(2, batch((1, "stale"), (2, "stale")))
    old.close()
    with pytest.raises(SinkError, match=r"by a later generation than 1 of run run: another driver"):
        sinks.table(path, "out", "k").open("run.g1")
    new.write(2, batch((2, "b")))
    other.write(8, batch((8, "other")))
    assert stored(path) == [(1, "b"), (2, "b"), (7, "other"), (8, "other")]


@pytest.mark.parametrize("what", ["rows", "commit"])
def test_an_epoch_that_fails_half_way_counts_once(path: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit nothing is there; after it everything is, though the writer was told otherwise."""
    monkeypatch.setattr(Elsewhere, "breaks", [])
    writer = TableSink(lambda: Elsewhere(path), "out").open("run")
    writer.write(1, batch((1, "a")))
    Elsewhere.breaks.append(what)
    with pytest.raises(SinkError, match="cannot write table 'out' of .*: OSError: "):
        writer.write(2, batch((2, "b")))
    assert len(stored(path)) == (1 if what == "rows" else 2)
    writer.write(2, batch((2, "b")))
    writer.write(3, batch((3, "c")))
    assert stored(path) == [(1, "a"), (2, "b"), (3, "c")]


def test_two_boxes_of_a_run_cannot_write_into_one_table(path: str) -> None:
    first = sinks.table(path, "out").open("run")
    with pytest.raises(SinkError, match="two boxes would write into table 'out' of .*; unite their streams before"):
        sinks.table(path, "out", "k").open("run")
    first.close()
    sinks.table(path, "out", "k").open("run").close()


def test_of_two_that_come_at_once_one_is_refused(path: str) -> None:
    """Goal: no epoch of a box is taken for that of another. Method: the second one comes while the first one still connects."""
    refused = list[SinkError]()

    def slow() -> Any:
        if not refused:
            with pytest.raises(SinkError, match="two boxes would write into table 'out' of .*; unite their streams before") as caught:
                sinks.table(slow, "out").open("run")
            refused.append(caught.value)
        return sqlite3.connect(path)

    first = sinks.table(slow, "out").open("run")
    assert len(refused) == 1
    first.close()
    sinks.table(slow, "out").open("run").close()


@pytest.mark.parametrize("way", ["another path", "a link", "a function", "two functions"])
def test_one_database_under_two_addresses(path: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(path).parent)
    Path("link.db").symlink_to("out.db")
    one: Any = (lambda: sqlite3.connect(path)) if way == "two functions" else path
    other: Any = {"another path": "./out.db", "a link": "link.db"}.get(way, lambda: sqlite3.connect("out.db"))
    for first, second in ((one, other), (other, one)):
        writer = sinks.table(first, "out").open("run")
        with pytest.raises(SinkError, match="two boxes would write into table 'out' of .*; unite their streams before"):
            sinks.table(second, "out").open("run")
        writer.write(1, batch((1, "a")))
        sinks.table(second, "out").open("another run").close()
        sinks.table(second, "other").open("run").close()
        writer.close()
    sinks.table(other, "out").open("run").close()
    assert stored(path) == [(1, "a")] and stored(path, "evenflow_epochs") == [("out", "run", 1)]


@pytest.mark.parametrize("when", ["to connect", "to ask"])
def test_a_database_that_is_gone_is_told_by_its_own_writer_only(path: str, when: str) -> None:
    """Who opened a table of the same name in another database was said to be in the wrong."""
    gone = list[str]()

    def lost() -> Any:
        if gone == ["to connect"]:
            raise OSError("the line is dead")
        return sqlite3.connect(f"{path}.lost", factory=Mute if gone else sqlite3.Connection)

    first = sinks.table(lost, "out").open("run")
    gone.append(when)
    other = sinks.table(path, "out").open("run")
    other.write(1, batch((1, "a")))
    assert stored(path) == [(1, "a")] and stored(path, "evenflow_epochs") == [("out", "run", 1)]
    other.close()
    first.close()


def test_tables_of_one_name_in_two_databases(path: str) -> None:
    writers = [sinks.table(lambda at=at: sqlite3.connect(f"{path}.{at}"), "out").open("run") for at in range(3)]  # type: ignore[misc]
    for at, writer in enumerate(writers):
        writer.write(1, batch((at, "a")))
        writer.close()
        assert stored(f"{path}.{at}") == [(at, "a")] and stored(f"{path}.{at}", "evenflow_epochs") == [("out", "run", 1)]


@pytest.mark.parametrize("how", [{"isolation_level": None}, {"autocommit": True}], ids=str)
def test_a_connection_that_commits_by_itself_is_refused(path: str, how: dict[str, Any]) -> None:
    """Goal: an epoch is there as a whole or not at all. Method: such a connection from the beginning, or only when one has broken."""
    if "autocommit" in how and sys.version_info < (3, 12):
        pytest.skip("sqlite3 has it since Python 3.12")
    told = r"cannot write table 'out' of .*: its connection commits by itself \(autocommit\), .*; give a function whose connection"
    with pytest.raises(SinkError, match=told):
        TableSink(lambda: sqlite3.connect(path, **how), "out").open("run")
    with pytest.raises(SinkError, match=told):
        TableSink(lambda: sqlite3.connect(path, **how), "out").open_for_group("group", "out")
    hows: list[dict[str, Any]] = [{}, how, {}]
    writer = sinks.table(lambda: sqlite3.connect(path, **hows.pop(0)), "out", "k").open("run")
    with pytest.raises(SinkError, match="is null in a row"):
        writer.write(1, pa.record_batch([[None], ["a"]], names=["k", "what is"]))
    with pytest.raises(SinkError, match=told):
        writer.write(1, batch((1, "a")))
    writer.write(1, batch((1, "a")))
    writer.close()
    assert stored(path) == [(1, "a")]


def test_who_could_not_be_opened_has_claimed_nothing(path: str) -> None:
    somewhere = [str(Path(path).parent / "no" / "where.db"), path]
    sink = sinks.table(lambda: sqlite3.connect(somewhere.pop(0)), "out")
    with pytest.raises(SinkError, match="OperationalError"):
        sink.open("run")
    sink.open("run").close()


def test_a_database_that_is_not_there_is_an_error_before_any_row(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot write table 'out' of .*: OperationalError"):
        sinks.table(str(tmp_path / "no" / "where.db"), "out").open("run")


def test_a_key_that_is_null_is_an_error(path: str) -> None:
    writer = sinks.table(path, "out", "what is").open("run")
    with pytest.raises(SinkError, match=r"'what is', of its key, is null in a row; .*coalesce\(what is, ...\)"):
        writer.write(1, pa.record_batch([[1, 2], ["a", None]], names=["k", "what is"]))
    writer.close()
    assert stored(path, "evenflow_epochs") == []


def test_a_table_with_other_columns_is_an_error(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE out (k INTEGER, n INTEGER)")
    writer = sinks.table(path, "out").open("run")
    with pytest.raises(SinkError, match=r"it has no column 'what is'; it has k, n, and the results have k, what is\. Write into another"):
        writer.write(1, batch((1, "a")))
    writer.close()


def test_a_key_that_is_no_column_is_refused_when_drawn(path: str) -> None:
    stream = ef.Dataflow("f").source(ef.sources.memory(batch((1, "a"))))
    with pytest.raises(UnknownColumn, match=r"box 'table': the key of table 'out' of .* is 'id', and there is no such column"):
        stream.to(sinks.table(path, "out", "id"))


def test_a_description_survives_json(path: str) -> None:
    sink = sinks.table(path, "out", "k, what is", retries=2)
    assert sink.key == ("k", "what is") and sinks.from_json(sink.to_json()) == sink


def test_a_script_reads_and_writes_tables(path: str) -> None:
    made = ef.sql(
        f"""CREATE TEMPORARY VIEW items (id bigint, name string) USING table OPTIONS (database '{path}', table 'items', order_by 'id');
            CREATE TABLE per_name USING table OPTIONS (database '{path}', table 'per_name', key 'name');
            INSERT INTO per_name SELECT name, count(*) AS n FROM items GROUP BY name"""
    )
    boxes = {box.kind: box for box in made.flow.network}
    assert boxes["source"].params["source"].order_by == "id" and boxes["sink"].params["sink"].key == ("name",)
