"""Bytes of a connection on their way to rows. It knows no sockets: whoever has received something feeds it here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from evenflow.errors import SourceError
from evenflow.sources.messages import UNFIT, LineFormat, parse_lines, parse_messages

MAX_LINE_BYTES: Final = 1 << 20
"""Without the newline."""


@dataclass(slots=True)
class Lines:
    """What one connection has sent. name: the peer, for messages. rest: what has come of a line that is not whole. dropping: what comes up
    to the next newline belongs to a line that was too long. number: of the last line parsed."""

    name: str
    schema: pa.Schema
    format: LineFormat
    skip_bad: bool
    rest: bytearray = field(default_factory=bytearray)
    dropping: bool = False
    number: int = 0
    bad: int = 0

    def feed(self, data: bytes, last: bool = False) -> list[pa.RecordBatch]:
        """Rows of the lines that `data` completes. last: the peer closed, so what is left is a line, too. Raises SourceError.

        Cost: O(data), and that of each line once, however small the pieces are that it comes in.
        """
        if self.dropping:
            begin = data.find(b"\n") + 1
            if not begin:
                return []
            data, self.dropping = data[begin:], False
        end = len(data) if last else data.rfind(b"\n") + 1
        made: list[pa.RecordBatch] = []
        if end or last:
            whole, self.rest = bytes(self.rest) + data[:end], bytearray()
            made = self._rows(whole) if whole else []
        self.rest += data[end:]
        if len(self.rest) > MAX_LINE_BYTES:
            self.number += 1
            self._too_long()
            self.rest, self.dropping = bytearray(), True
        return made

    def _rows(self, whole: bytes) -> list[pa.RecordBatch]:
        lines = whole.removesuffix(b"\n").split(b"\n")
        fit = len(whole) <= MAX_LINE_BYTES or max(map(len, lines)) <= MAX_LINE_BYTES
        rows = parse_messages([line for each in lines if (line := each.rstrip(b"\r"))], self.schema, self.format) if fit else None
        if rows is None:
            return self._one_by_one(lines)
        self.number += len(lines)
        return [rows] if rows.num_rows else []

    def _one_by_one(self, lines: Sequence[bytes]) -> list[pa.RecordBatch]:
        """The good lines of a block that has a bad one, or one that might be taken for a part of the next."""
        batches = []
        for line in lines:
            self.number += 1
            if len(line) > MAX_LINE_BYTES:
                self._too_long()
                continue
            try:
                batches.append(parse_lines(line + b"\n", self.schema, self.format))
            except UNFIT as error:
                self.bad += 1
                if not self.skip_bad:
                    shown = line.rstrip().decode(errors="backslashreplace")[:200]
                    raise SourceError(
                        f"line {self.number} from {self.name} is not {self.format} of the declared schema: {shown!r} ({error}); "
                        "mend the sender, or give bad_lines='skip' to count and drop such lines"
                    ) from error
        joined = pa.Table.from_batches(batches, self.schema).combine_chunks().to_batches()
        return [batch for batch in joined if batch.num_rows]

    def _too_long(self) -> None:
        """Such a line is bad whatever is in it, also if all of it came at once: what a line is does not depend on how it comes."""
        self.bad += 1
        if not self.skip_bad:
            raise SourceError(
                f"line {self.number} from {self.name} has more than {MAX_LINE_BYTES} bytes without a newline; does it send lines? "
                "If it does, give bad_lines='skip' to count and drop such lines"
            )


__all__ = ["MAX_LINE_BYTES", "Lines"]
