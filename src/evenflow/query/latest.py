"""join_latest: each row of a stream with the newest row of its key of another one, a table that changes (temporal join).

It is drawn with boxes that are there already: both streams get the same columns and are united, and a processor keeps the newest right
row of each key as its state. So it moves, spills and survives as any processor does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.processor import BatchProcessor, Groups
from evenflow.query.columns import Nulls
from evenflow.query.given import Order, names_of
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.changes import REMEDY
from evenflow.query.kinds.judging import check_distinct, check_keys
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import ddl_of, type_name

S = TypeVar("S", bound=HandledStream)

LEFT: Final = "left__"
"""Whether a row is of the left stream. Right rows come first where times are equal."""

GONE: Final = "gone__"
"""Of a right row: its key has no row from now on."""


@dataclass(frozen=True)
class Latest(BatchProcessor):
    """Left rows with the newest right row of their key before them.

    output: DDL of the result. kept: (column, name, type) of what is kept of right rows: its column in the input, its name in the result.
    outer: left rows without a right one come too, with nulls.
    """

    output: str  # type: ignore[misc]
    kept: tuple[tuple[str, str, str], ...]
    outer: bool

    keeps_key = True

    def open(self, store: Any) -> None:
        store.plain = True
        store.value(GONE, "boolean")
        for column, _, type_ in self.kept:
            store.value(column, type_)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        left = rows.column(LEFT).to_numpy(zero_copy_only=False)
        newest = np.maximum.accumulate(np.where(left, -1, np.arange(rows.num_rows)))
        here = newest >= groups.starts[groups.ids]  # Else that is a right row of another key.
        gone = rows.column(GONE).fill_null(False).to_numpy(zero_copy_only=False)
        present = np.where(here, ~gone[newest], state.gone__.exists()[groups.ids])
        at = np.flatnonzero(left if self.outer else left & present)
        index = pa.array(at)
        hidden = {LEFT, GONE, *(column for column, _, _ in self.kept)}
        out = {name: rows.column(name).take(index) for name in rows.schema.names if name not in hidden}
        # The right row that each of these sees: one of this epoch or, behind them, the one that was kept of its key before.
        seen = pa.array(np.where(here, newest, rows.num_rows + groups.ids)[at], mask=~present[at])
        for column, name, _ in self.kept:
            given, field = rows.column(column), getattr(state, column)
            before = pa.array(field.get(), given.type, mask=~field.exists())
            out[name] = pa.concat_arrays([given, before]).take(seen)
        self._keep(rows, state, newest[groups.last], here[groups.last], gone)
        return out, at

    def _keep(
        self, rows: pa.RecordBatch, state: Any, newest: npt.NDArray[np.int64], came: npt.NDArray[np.bool_], gone: npt.NDArray[np.bool_]
    ) -> None:
        """The newest right row of each key is its state; nothing, if it says that the key is gone."""
        kept = came & ~gone[newest]
        cleared, index = came & ~kept, pa.array(np.maximum(newest, 0))
        state.gone__.put(np.zeros(len(kept), np.bool_), kept)
        state.gone__.clear(cleared)
        for column, _, _ in self.kept:
            field = getattr(state, column)
            field.put(rows.column(column).take(index), kept)
            field.clear(cleared)


def draw_latest(
    left: S, right: S, on: str | Sequence[str], how: Literal["left", "inner"], deleted: str | None, suffix: str | None,
    order: Order | None, name: str | None,
) -> S:  # fmt: skip
    """See `Stream.join_latest`."""
    flow, box = left.flow, name or left.flow.free("join_latest")
    if not isinstance(right, type(left)):
        raise QueryError(f"box {box!r} follows a stream, not {type(right).__name__}; a table that stays as it is goes into join(...)")
    keys, right_keys = (names_of(box, "on", on, stream.columns) for stream in (left, right))
    if how not in ("left", "inner"):
        raise QueryError(f"box {box!r}: how is {how!r}; it must be 'left' or 'inner'")
    check_keys(box, keys, left.schema, least=1)
    check_keys(box, right_keys, right.schema, least=1)
    if is_changelog(left.schema):
        raise QueryError(f"box {box!r} would give a row that is taken back the newest row of now, not the one that it came with; {REMEDY}")
    if is_changelog(right.schema) and deleted is None:
        raise QueryError(f"box {box!r} follows a changelog: say when a row is gone, deleted=\"{CHANGE} in ('update_before', 'delete')\"")
    for key, other in zip(keys, right_keys, strict=True):
        if left.schema.field(key).type != right.schema.field(other).type:
            types = f"{left.schema.field(key).type} on the left and {right.schema.field(other).type} on the right"
            raise TypeMismatch(f"box {box!r}: the key {key!r} is {types}; cast one of them in a select before")
    timed = left.event_time is not None and right.event_time is not None
    ordered = order or ("event_time" if timed else "arrival")
    if ordered == "event_time" and not timed:
        raise QueryError(f"box {box!r}: order='event_time' needs a watermark on both streams; declare them, or use order='arrival'")
    theirs = _their_columns(box, left.schema, right.schema, right_keys, suffix)
    fields = [*left.schema, *(pa.field(result, right.schema.field(column).type) for column, result in theirs)]
    kept = tuple((f"right_{i}__", result, type_name(right.schema.field(column).type)) for i, (column, result) in enumerate(theirs))
    check_distinct(box, [*left.columns, LEFT, GONE, *(column for column, _, _ in kept)], "rename it in a select before")
    time = {"event_time": left.event_time} if timed else {}
    with flow.whole():
        ours = (*((column, column) for column in left.columns), *((column, Nulls(type_)) for column, _, type_ in kept))
        changed = (
            *_right_columns(left, right, dict(zip(keys, right_keys, strict=True)), timed),
            *((column, theirs[i][0]) for i, (column, _, _) in enumerate(kept)),
        )
        gone = "false" if deleted is None else f"coalesce({deleted}, false)"
        sides = []
        for side, stream, columns, flags in (("left", left, ours, ("false", "true")), ("right", right, changed, (gone, "false"))):
            params: dict[str, Any] = {"columns": (*columns, *zip((GONE, LEFT), flags, strict=True)), **time}
            sides.append(stream._drawn("select", params, (stream,), f"{box}.{side}", ""))
        both = left._drawn("union", {}, sides, f"{box}.both", "")
        processor = Latest(ddl_of(pa.schema(fields)), kept, how == "left")
        ties = (LEFT, *(f.name for f in both.schema if f.name not in (LEFT, left.event_time) and not pa.types.is_nested(f.type)))
        params = {"keys": keys, "processor": processor, "order": ordered, "tie_break": ties, "verify": None}
        return both._drawn("process", params, (both,), box, "")


def _their_columns(box: str, left: pa.Schema, right: pa.Schema, keys: Sequence[str], suffix: str | None) -> list[tuple[str, str]]:
    """(column, name in the result) of each right column that is no key."""
    made = []
    for field in right:
        if field.name in keys:
            continue
        taken = field.name in left.names
        if taken and suffix is None:
            raise QueryError(
                f"box {box!r}: both streams have a column {field.name!r}; give suffix='_r', or leave it out in a select before"
            )
        made.append((field.name, f"{field.name}{suffix}" if taken else field.name))
    check_distinct(box, [*left.names, *(result for _, result in made)], "choose another suffix")
    return made


def _right_columns(left: HandledStream, right: HandledStream, keys: Mapping[str, str], timed: bool) -> list[tuple[str, Any]]:
    """The left's columns for a right row: its own keys and time, and nulls. keys: by what the left calls them, what the right does."""
    made: list[tuple[str, Any]] = []
    for field in left.schema:
        if field.name in keys:
            made.append((field.name, keys[field.name]))
        elif timed and field.name == left.event_time:
            made.append((field.name, right.event_time))
        else:
            made.append((field.name, Nulls(type_name(field.type))))
    return made


__all__ = ["Latest", "draw_latest"]
