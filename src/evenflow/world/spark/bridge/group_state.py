"""The function of `applyInPandasWithState` as a box: it is called with frames of pandas and a `GroupState` of PySpark's own, as in Spark.

What a key has is kept as the fields of its state and one timer. The function is called with the rows of a key in an epoch, in order of
event time, and once more, without rows, when its timeout has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.processor import Processor, Timer

if TYPE_CHECKING:
    import pandas as pd

    from evenflow.operator.user.declared import Store

Function = Callable[[tuple[Any, ...], Iterable["pd.DataFrame"], Any], Iterable["pd.DataFrame"]]
NO_TIMEOUT: Final = "NoTimeout"
IN_EVENT_TIME: Final = "EventTimeTimeout"


@dataclass
class GroupStateFunction(Processor):
    """function: of (key, frames, state). arguments: what the columns of its frames are called in the rows, by name. given: what those of
    its results are called in the output. state: fields of the state. timeout: as Spark calls it. time: column of event time. zone: of the
    session, in which frames have their timestamps."""

    batch: ClassVar[Any] = "arrow"
    function: Function
    arguments: Mapping[str, str]
    given: Mapping[str, str]
    output: pa.Schema  # type: ignore[misc]
    state: pa.Schema
    timeout: str
    time: str | None
    zone: str

    def open(self, store: Store) -> None:
        store.value("there", "boolean")
        for number, field in enumerate(self.state):
            store.value(f"field_{number}", field.type)
        if self.timeout != NO_TIMEOUT:
            store.timer("timeout", time="event" if self.timeout == IN_EVENT_TIME else "processing")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        since = None if self.time is None else rows.column(self.time).cast(pa.timestamp("us", "UTC"))[0].as_py()
        return self._called(key, [self._frame(rows)], state, since, timed_out=False)

    def expired(self, key: tuple[Any, ...], timer: Timer, state: Any) -> Any:
        return self._called(key, [], state, None if self.time is None else timer.time, timed_out=True)

    def _called(self, key: tuple[Any, ...], frames: list[pd.DataFrame], state: Any, since: datetime | None, *, timed_out: bool) -> Any:
        """The rows that the function gives. since: the time that the rows or the timer have, which is the watermark that it sees."""
        from pyspark.sql import Row
        from pyspark.sql.streaming.state import GroupState

        there = bool(state.there)
        values = [getattr(state, f"field_{number}") for number in range(len(self.state))] if there else []
        watermark = GroupState.NO_TIMESTAMP if since is None else _ms(since)
        group = GroupState(
            Row(*map(self._shown, values, self.state.types if there else [])), _ms(state.now), watermark, self.timeout, timed_out,
            since is not None, there, False, False, GroupState.NO_TIMESTAMP, b"", None,  # type: ignore[arg-type]
        )  # fmt: skip
        made = [self._batch(frame) for frame in self.function(key, iter(frames), group)]
        self._keep(group, state)
        return pa.Table.from_batches(made, self.output).combine_chunks().to_batches()[0] if any(batch.num_rows for batch in made) else None

    def _keep(self, group: Any, state: Any) -> None:
        """What the function has done with the state."""
        if group.exists:
            for number, (value, kind) in enumerate(zip(group.get, self.state.types, strict=True)):
                setattr(state, f"field_{number}", self._kept(value, kind))
        else:
            for number in range(len(self.state)):
                setattr(state, f"field_{number}", None)
        state.there = True if group.exists else None
        if self.timeout != NO_TIMEOUT:
            due = group._timeout_timestamp  # Of this call: one that is not set again is none.
            state.timeout = None if due == group.NO_TIMESTAMP else datetime.fromtimestamp(due / 1000, UTC).replace(tzinfo=None)

    # ------------------------------------------------ values

    def _frame(self, rows: pa.RecordBatch) -> pd.DataFrame:
        columns = [rows.column(name) for name in self.arguments.values()]
        frame = pa.RecordBatch.from_arrays(columns, list(self.arguments)).to_pandas(date_as_object=True)
        for name, column in zip(self.arguments, columns, strict=True):
            if pa.types.is_timestamp(column.type) and column.type.tz is not None:
                frame[name] = frame[name].dt.tz_convert(self.zone).dt.tz_localize(None)
        return frame

    def _batch(self, frame: pd.DataFrame) -> pa.RecordBatch:
        """A frame of results, by the names of its columns, or by their places if those are no texts, as in Spark."""
        named = all(isinstance(name, str) for name in frame.columns)
        if not {*self.given} <= {*frame.columns} if named else len(self.given) != len(frame.columns):
            raise TypeMismatch(f"the function gave a frame with the columns {[*frame.columns]}, and its schema has {[*self.given]}")
        columns: Sequence[Any] = [frame[name] if named else frame.iloc[:, at] for at, name in enumerate(self.given)]
        arrays = []
        for series, field in zip(columns, self.output, strict=True):
            local = pa.types.is_timestamp(field.type) and field.type.tz is not None and getattr(series.dtype, "kind", "") == "M"
            plain = series.dt.tz_localize(self.zone) if local and series.dt.tz is None else series
            arrays.append(pa.Array.from_pandas(plain, type=field.type, safe=False))
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def _shown(self, value: Any, kind: pa.DataType) -> Any:
        """A value of the state as Spark shows it: moments are times of the session's zone."""
        if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz is not None:
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)
        return value

    def _kept(self, value: Any, kind: pa.DataType) -> Any:
        if isinstance(value, datetime) and value.tzinfo is None and pa.types.is_timestamp(kind) and kind.tz is not None:
            return value.replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC)
        return value


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


__all__ = ["GroupStateFunction"]
