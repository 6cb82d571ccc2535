"""Manifests: which parts a commit consists of, as an object in the sink's directory, and the rows that all of them list.

    format 3    {"version": 3, "run", "epoch", "file": "commit-RUN-EPOCH.parquet", "parts": [...]}: the parts are published as one file
    format 4    the same with partition columns: each part says in which folder it is published, and the values that the folder stands for
    format 2    {"version": 2, "run", "epoch", "files": [...]}: each is published by itself, under its own name

Format 2 is no longer written. What was decided in it is read, and published if that was not done; plain readers may see a part of such a
commit until then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenflow.errors import SinkError
from evenflow.sinks.joined import NotJoinable, footer_bytes, joined_end
from evenflow.sources.description import type_from_text
from evenflow.store.files import FileStore
from evenflow.stream.digest import digest_of

STAGING: Final = "_staging"
MANIFESTS: Final = "_evenflow"
PLAIN_DECIMAL: Final = re.compile(r"-?\d+(?:\.\d+)?")
MANIFEST_NAME: Final = re.compile(r"manifest-(.+)-(\d{12})\.json")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One part: the epoch that commits it, the writer partition, its name, its size in rows and bytes, and a digest of its bytes.
    detail: JSON; what the log of a table says of it besides, or what partition columns have in it. Only the latter is in a manifest."""

    epoch: int
    partition: int
    file: str
    rows: int
    bytes: int
    digest: str
    detail: str = ""

    @property
    def place(self) -> str:
        """The folder in which it is published, with a slash behind it; "" for the directory itself."""
        return place_from(json.loads(self.detail)["place"]) if self.detail else ""

    def entry(self) -> dict[str, Any]:
        """As a manifest lists it."""
        return {name: value for name, value in asdict(self).items() if name != "detail" or value}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The decision on one commit. file: what the parts are published as; None: each as itself (format 2), or with those of other commits:
    slot: the number of the interval whose commits become one file (`evenflow.sinks.closings`)."""

    run: str
    epoch: int
    parts: tuple[StagedFile, ...]
    file: str | None
    slot: int | None = None

    def to_bytes(self) -> bytes:
        version = 5 if self.slot is not None else 4 if any(part.detail for part in self.parts) else 3
        into = {"file": self.file} if self.slot is None else {"slot": self.slot}
        form = {"version": version, "run": self.run, "epoch": self.epoch, **into, "parts": [part.entry() for part in self.parts]}
        return (json.dumps(form, indent=1) + "\n").encode()

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def places(self) -> list[str]:
        """The folders that it has parts in."""
        return list(dict.fromkeys(part.place for part in self.parts))

    def staged(self, place: str = "") -> list[tuple[str, int]]:
        """Path and size of each part of a folder before it is published."""
        return [(f"{STAGING}/{part.file}", part.bytes) for part in self.parts if part.place == place]


def manifest_from(data: bytes, where: str) -> Manifest:
    """The manifest that was found at `where`. Raises SinkError if it is none, or one of a format of later days."""
    try:
        form = json.loads(data)
        version = form["version"]
        if version not in (2, 3, 4, 5):
            raise SinkError(f"{where} has format {version}, and this version of evenflow reads 2 to 5: use the one that wrote it")
        parts = tuple(part_from(entry) for entry in form["files" if version == 2 else "parts"])
        file = name_from(form["file"]) if version in (3, 4) else None
        return Manifest(str(form["run"]), int(form["epoch"]), parts, file, int(form["slot"]) if version == 5 else None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SinkError(f"{where} is not a manifest of a parquet sink ({error!r}); somebody else has written it") from error


def part_from(entry: dict[str, Any]) -> StagedFile:
    part = StagedFile(
        int(entry["epoch"]),
        int(entry["partition"]),
        name_from(entry["file"]),
        int(entry["rows"]),
        int(entry["bytes"]),
        str(entry["digest"]),
        str(entry.get("detail", "")),
    )
    if part.detail:
        place_from(part.place)
    return part


def name_from(value: Any) -> str:
    """A name of a file in a folder that we know: a manifest cannot lead us out of the directory."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w.-]+", value):
        raise ValueError(f"{value!r} is not the name of a file")
    return value


def place_from(value: Any) -> str:
    """A folder of partition columns, with a slash behind it."""
    if not isinstance(value, str) or not re.fullmatch(r"(?:[^/=]+=[^/]*/)+", value):
        raise ValueError(f"{value!r} is not a folder of partition columns")
    return value


def manifest_path(run: str, epoch: int) -> str:
    return f"{MANIFESTS}/manifest-{run}-{epoch:012d}.json"


def read_manifest(store: FileStore, run: str, epoch: int) -> Manifest:
    """The decision on a commit. FileNotFoundError if there is none."""
    path = manifest_path(run, epoch)
    return manifest_from(store.get(path), f"{store.root}: {path}")


def decided_epochs(store: FileStore) -> set[tuple[str, int]]:
    """(run, epoch) of all decisions, by their names."""
    matches = [MANIFEST_NAME.fullmatch(name) for name in store.names(MANIFESTS)]
    return {(match[1], int(match[2])) for match in matches if match is not None}


def read_joined(store: FileStore, manifest: Manifest, place: str) -> pa.Table:
    """The rows of a commit in one folder, published or about to be."""
    parts, file = [part for part in manifest.parts if part.place == place], f"{place}{manifest.file}"
    for _ in range(2):  # It may be published between a look at its place and one at its parts.
        try:
            data = store.get(file)
        except FileNotFoundError:
            pass
        else:
            check_joined(store, parts, file, data)
            return with_values(pq.read_table(pa.BufferReader(data)), parts[0].detail)
        try:
            return read_staged(store, manifest, place)
        except FileNotFoundError:
            continue
    raise SinkError(f"{store.root}: {file} is listed by a manifest but is not there; it was deleted by somebody else")


def read_staged(store: FileStore, manifest: Manifest, place: str) -> pa.Table:
    """The rows of a commit in one folder before it is published. FileNotFoundError if a part is gone."""
    parts = [part for part in manifest.parts if part.place == place]
    found = [store.get(path) for path, _ in manifest.staged(place)]
    for part, data in zip(parts, found, strict=True):
        check_part(store, f"{STAGING}/{part.file}", part, data)
    return with_values(pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in found]), parts[0].detail)


def with_values(table: pa.Table, detail: str) -> pa.Table:
    """The table with the partition columns, which its file does not have."""
    said = json.loads(detail) if detail else {"types": [], "values": {}}
    for name, type_ in said["types"]:
        value = value_from(name, said["values"][name], type_from_text(type_))
        table = table.append_column(pa.field(name, value.type), pa.repeat(value, table.num_rows))
    return table


def value_from(name: str, text: str | None, type_: pa.DataType) -> pa.Scalar:
    """What `evenflow.sinks.places.value_text` has made a text of. Of a time with a zone it is the time in UTC. Raises SinkError for a
    decimal that it has not made: Arrow ends the process of some."""
    said = pa.scalar(text, pa.string())
    if pa.types.is_decimal(type_) and text is not None and not PLAIN_DECIMAL.fullmatch(text):
        raise SinkError(f"a manifest says that {name!r} is {text[:40]!r}, which is no {type_}; somebody else has written it")
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pc.assume_timezone(said.cast(pa.timestamp(type_.unit)), "UTC").cast(type_)
    return said.cast(type_)


def check_joined(store: FileStore, parts: Sequence[StagedFile], file: str, data: bytes) -> None:
    """Raise SinkError unless the file is the parts that were decided about, and behind them the footer that follows from them."""
    start, view, ends = 0, memoryview(data), []
    for part in parts:
        piece = view[start : start + part.bytes]
        check_part(store, file, part, piece)
        ends.append(bytes(piece[-footer_bytes(bytes(piece[-8:])) :]))
        start += part.bytes
    if bytes(view[start:]) != joined_end(ends, [part.bytes for part in parts]):
        raise SinkError(f"{store.root}: {file} is not what was committed: its footer is another one; somebody else has written it")


def check_part(store: FileStore, where: str, part: StagedFile, data: bytes | memoryview) -> None:
    if digest_of(data) != part.digest:
        raise SinkError(f"{store.root}: {where} is not what was committed; somebody else has written it")


def read_single(store: FileStore, part: StagedFile) -> pa.Table:
    """One file of a commit of format 2, published or about to be."""
    for place in (part.file, f"{STAGING}/{part.file}", part.file):  # The third look: it may be renamed between the first two.
        try:
            data = store.get(place)
        except FileNotFoundError:
            continue
        check_part(store, place, part, data)
        return pq.read_table(pa.BufferReader(data))
    raise SinkError(f"{store.root}: {part.file} is listed by a manifest but is not there; it was deleted by somebody else")


def join_staged(store: FileStore, manifest: Manifest, file: str, place: str = "") -> None:
    """Publish the parts of a commit as one file. FileExistsError if that has been done, FileNotFoundError if a part is gone.

    Raises SinkError if the parts are no Parquet files of the same columns.
    """
    try:
        ends = [store.end(path, footer_bytes(store.end(path, 8))) for path, _ in manifest.staged(place)]
        end = joined_end(ends, [size for _, size in manifest.staged(place)])
    except NotJoinable as error:
        raise SinkError(f"parquet sink {store.root}: the parts of {file} cannot be joined: {error}") from error
    store.put_joined(file, manifest.staged(place), end, STAGING)
