"""Files of rows in S3, at a server in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as arrow_fs

import evenflow as ef
from evenflow.errors import SchemaChanged, SourceError
from tests.sources.reading import read_all
from tests.store.s3_server import ACCESS, s3_server

ROWS = pa.table({"id": list(range(30)), "text": [f"t{i}" for i in range(30)]})


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Any, Any]]:
    """(the file system, the URI of a path in it)."""
    with s3_server() as url:
        files = arrow_fs.S3FileSystem(
            access_key=ACCESS["key"], secret_key=ACCESS["secret"], endpoint_override=url, allow_bucket_creation=True
        )
        files.create_dir("rows")
        asked = f"?scheme=http&endpoint_override={url.removeprefix('http://').replace(':', '%3A')}&region=us-east-1"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", ACCESS["key"])
            patch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS["secret"])
            yield files, lambda path: f"s3://rows/{path}{asked}"


def test_files_of_a_store_are_rows_by_every_format(store: Any) -> None:
    """Goal: a folder, a pattern and a file, dealt to partitions, and gone on from any row. Method: S3 with names that need quoting."""
    files, at = store
    for number in range(3):
        pq.write_table(ROWS.slice(10 * number, 10), f"rows/many/part {number}.parquet", filesystem=files)
    with files.open_output_stream("rows/many/_hidden") as out:
        out.write(b"x")
    with files.open_output_stream("rows/one.csv") as out:
        pa_csv.write_csv(ROWS, out)
    with files.open_output_stream("rows/one.json") as out:
        out.write("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()).encode())
    with files.open_output_stream("rows/one.arrow") as out, pa.ipc.new_file(out, ROWS.schema) as writer:
        writer.write_table(ROWS)
    for path in ("many", "many/part*.parquet", "many/part%20[0-2]*", "one.csv", "one.json", "one.arrow"):
        form = "parquet" if path.startswith("many") else None
        source = ef.sources.replay(at(path), speed=None, format=form)
        assert ef.sources.from_json(source.to_json()) == source
        of = source.partitions(2)
        dealt = [read_all(source, part, of) for part in range(of)]
        assert sorted(row for table in dealt for row in table["id"].to_pylist()) == list(range(30))
        reader = source.open(0, of)
        reader.skip(7)
        batch = reader.read(0, 1)
        assert batch is not None and batch.column(0).to_pylist() == dealt[0]["id"].to_pylist()[7:8]


def test_what_a_store_does_not_have_is_said_without_secrets(store: Any) -> None:
    files, at = store
    with pytest.raises(SourceError, match=r"no file at s3://rows/nothing;"):
        ef.sources.replay(at("nothing"), speed=None)
    with pytest.raises(SourceError, match="cannot list s3://nowhere/x|no file at s3://nowhere/x"):
        ef.sources.replay(at("x").replace("//rows", "//nowhere"), speed=None)
    with pytest.raises(SourceError, match="^s3://rows/x: credentials in a URI") as caught:
        ef.sources.replay(at("x").replace("//rows", "//me:secret@rows"), speed=None)
    assert "secret" not in str(caught.value)
    with pytest.raises(SourceError, match="cannot open nothing://here/x"):
        ef.sources.replay("nothing://here/x", speed=None)
    pq.write_table(ROWS, "rows/other.parquet", filesystem=files)
    with pytest.raises(SchemaChanged, match=r"^s3://rows/other.parquet does not"):
        read_all(ef.sources.replay(at("other.parquet"), speed=None, schema="id int, text string"))
