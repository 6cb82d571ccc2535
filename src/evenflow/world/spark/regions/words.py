"""What a region and a subscriber say to each other, on a connection that both have proved themselves on (`net.handshake`).

    subscriber, in its hello   as, format, group, sink
    region, first              group: its facts; sink; schema or none yet; passed   or   refused: type, message
    subscriber                 follow: behind which epoch; brings: rows or heads; marks: whether it wants to know what has passed
                               want: an epoch
    region                     an epoch: prev, epoch, digest, whether its rows follow      (kind ROWS, the rest is JSON)
                               schema     before the first rows
                               passed     no rows up to this epoch behind `last`, which was shown  (who wants marks)
                               missing    who has less than this cannot go on here
                               ended      the last epoch with rows; no more will come
                               silent     it is not believed yet, and serves nobody; instead of all that, and the connection ends

Rows are one message of Arrow's IPC. Nothing of what comes is ever executed; what does not read as above ends the connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.chain import Link
from evenflow.errors import OptionError, ProtocolError, UnreadableMessage
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.world.spark.net.framing import Piece

FORMAT: Final = 1
SUBSCRIBER: Final = "subscriber"
_EPOCH: Final = struct.Struct("<QQQB7x")
SHORTEST_SECRET: Final = 16


def secret_of(file: str | None, whose: str) -> bytes:
    """The 32 bytes that both ends derive from the text of a file, or of the environment's EVENFLOW_STREAM_SECRET. Raises OptionError."""
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise OptionError(f"{whose}: secret_file {file} cannot be read: {error}") from error
        place = f"secret_file {file}"
    else:
        text, place = os.environ.get(SECRET_VARIABLE, "").strip(), f"the environment's {SECRET_VARIABLE}"
        if not text:
            raise OptionError(
                f"{whose}: it has no secret. Give secret_file, a file that only its readers can read, or set {SECRET_VARIABLE}; regions "
                "and subscribers need the same one (python -c 'import secrets; print(secrets.token_hex(32))' makes one)"
            )
    if len(text) < SHORTEST_SECRET:
        raise OptionError(f"{whose}: {place} has {len(text)} characters, and a secret has {SHORTEST_SECRET} at least")
    return hashlib.sha256(b"evenflow stream\0" + text.encode()).digest()


def epoch_pieces(link: Link, rows: Piece | None) -> list[Piece]:
    """An epoch as the body of a message. rows: None for a head."""
    header = _EPOCH.pack(link.prev, link.epoch, link.digest, rows is not None)
    return [header] if rows is None else [header, rows]


def epoch_in(body: bytes | memoryview) -> tuple[Link, memoryview | None]:
    """Inverse of `epoch_pieces`. Raises UnreadableMessage."""
    try:
        prev, epoch, digest, brought = _EPOCH.unpack_from(body)
        link = Link(prev, epoch, digest)
    except (struct.error, ProtocolError) as error:
        raise UnreadableMessage(f"{len(body)} bytes are no epoch: {error}") from error
    rows = memoryview(body)[_EPOCH.size :]
    if brought > 1 or bool(rows) != bool(brought):
        raise UnreadableMessage(f"epoch {epoch} has {len(rows)} bytes of rows, and says {brought}")
    return link, rows if brought else None


def schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_in(text: Any) -> pa.Schema:
    """Inverse of `schema_text`. Raises UnreadableMessage."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (TypeError, ValueError, binascii.Error, pa.ArrowException, OSError) as error:
        raise UnreadableMessage(f"what should be columns cannot be read: {error}") from error


def rows_in(rows: memoryview, schema: pa.Schema | None) -> pa.RecordBatch:
    """The rows of an epoch. Raises UnreadableMessage."""
    if schema is None:
        raise UnreadableMessage("rows came before their columns were told")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(rows), schema)
        batch.validate(full=True)
    except (ValueError, pa.ArrowException, OSError) as error:
        raise UnreadableMessage(f"{len(rows)} bytes are no rows of these columns: {error}") from error
    return batch


def whole_in(said: Mapping[str, Any], name: str) -> int:
    """An epoch's number in what was said. Raises UnreadableMessage."""
    value = said.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise UnreadableMessage(f"{name} is {value!r:.40}, and no epoch")
    return value
