"""The methods of a stream that draw boxes on it alone, besides those that every query has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, Self

import pyarrow as pa

from evenflow.availability.mode import mode_named
from evenflow.errors import QueryError
from evenflow.query.alike import draw_alike
from evenflow.query.drawing import Handle
from evenflow.query.duration import duration_us
from evenflow.query.given import Expression, Order, box_name, direction, names_of, spelled, ties_of, unnamed
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.judging import known, naming
from evenflow.query.network import dead_letter_port, is_aside
from evenflow.query.protecting import AVAILABILITY, LEADING
from evenflow.query.user.binding import tried, tries
from evenflow.stream.schema import as_schema, ddl_of


class ShapedStream(HandledStream):
    """Rows left out, multiplied, sorted and sent different ways."""

    def drop_duplicates(
        self, columns: Sequence[str] | None = None, *, within_watermark: bool = False, order: Order | None = None,
        tie_break: Sequence[str] | None = None, name: str | None = None,
    ) -> Self:  # fmt: skip
        """The first of the rows that are equal in these columns (default: in all), as Spark's dropDuplicates.

        within_watermark: only rows no further apart in event time than the watermark's delay are duplicates, so that keys are forgotten
        (dropDuplicatesWithinWatermark). Keys are forgotten too where the event time is among the columns; otherwise they are kept for
        ever. order: which row is the first: the one that came first ("arrival", the default, which waits for nothing), or the earliest
        in event time ("event_time", which waits for the watermark). tie_break: as in `process`.
        """
        keys = tuple(self.columns) if columns is None else names_of("drop_duplicates", "columns", columns, self.columns)
        for column in keys:
            known(name or self.flow.free("drop_duplicates"), column, self.schema)
        ordered = order or (None if set(keys) == set(self.columns) else "arrival")
        ties = ties_of("drop_duplicates", tie_break, self.columns)
        params = {"keys": keys, "within": within_watermark, "order": ordered, "tie_break": ties}
        return self._then("dedup", params, name, "drop_duplicates")

    def dropDuplicates(
        self, subset: Sequence[str] | None = None, *, columns: Sequence[str] | None = None, within_watermark: bool = False,
        order: Order | None = None, tie_break: Sequence[str] | None = None, name: str | None = None,
    ) -> Self:  # fmt: skip
        """`drop_duplicates`, with the name that PySpark gives to its columns."""
        of = subset if columns is None else columns
        return self.drop_duplicates(of, within_watermark=within_watermark, order=order, tie_break=tie_break, name=name)

    def dropDuplicatesWithinWatermark(self, subset: Sequence[str] | None = None) -> Self:
        """`drop_duplicates(..., within_watermark=True)`, as PySpark calls it."""
        return self.drop_duplicates(subset, within_watermark=True)

    def intersect(self, other: Self, *, name: str | None = None) -> Self:
        """The distinct rows that another stream has, too, as Spark's intersect: a changelog, since they come and go. Nulls equal nulls.

        other: with the same columns in the same order. State: the distinct rows of both. Raises QueryError, TypeMismatch.
        """
        return draw_alike(self, other, "both", name)

    def intersect_all(self, other: Self, *, name: str | None = None) -> Self:
        """As `intersect`, each row as often as both streams have it."""
        return draw_alike(self, other, "both all", name)

    intersectAll = intersect_all

    def subtract(self, other: Self, *, name: str | None = None) -> Self:
        """The distinct rows that another stream has not: see `intersect`."""
        return draw_alike(self, other, "first", name)

    def except_all(self, other: Self, *, name: str | None = None) -> Self:
        """As `subtract`, each row as often as this stream has it more than the other."""
        return draw_alike(self, other, "first all", name)

    exceptAll = except_all

    def explode(
        self, column: str, *, into: str | Sequence[str] | None = None, position: str | None = None, outer: bool = False,
        name: str | None = None,
    ) -> Self:  # fmt: skip
        """A row per element of a list or map column, as Spark's explode. The element takes the list's place, under the name `into`.

        into: of a map two names, for its keys and values (default "key" and "value"). Of a list of structures it may be as many names as
        they have fields, which become columns then, as Spark's inline has it. position: name of a column with the element's index,
        from 0. outer: rows whose list is null or empty come out once, with nulls (explode_outer); otherwise they do not come out.
        """
        (column,) = names_of("explode", "column", (column,), self.columns)
        if position is not None:
            names_of("explode", "position", (position,))
        if into is None:
            is_map = column in self.columns and pa.types.is_map(self.schema.field(column).type)
            into = ("key", "value") if is_map else column
        elif not isinstance(into, str):
            into = names_of("explode", "into", into)
        params = {"column": column, "into": into, "position": position, "outer": bool(outer)}
        return self._then("explode", params, name)

    def unpivot(
        self, ids: str | Sequence[str], values: str | Sequence[str] | None = None, variable: str = "variable", value: str = "value",
        *, name: str | None = None,
    ) -> Self:  # fmt: skip
        """A row per column of `values`, with its name in `variable` and its value in `value`, as Spark's unpivot.

        ids: columns that each of these rows keeps. values: columns of one type; None: all others.
        """
        kept = names_of("unpivot", "ids", ids, self.columns)
        made = tuple(c for c in self.columns if c not in kept) if values is None else names_of("unpivot", "values", values, self.columns)
        for argument, given in (("variable", variable), ("value", value)):
            names_of("unpivot", argument, (given,))
        return self._then("unpivot", {"ids": kept, "values": made, "variable": variable, "value": value}, name)

    melt = unpivot

    def flat_map(
        self, function: Callable[[pa.RecordBatch], Any], output: str, *, deterministic: bool = True, name: str | None = None
    ) -> Self:  # fmt: skip
        """Any number of rows for each row: what `function(batch)` returns, (rows, index).

        rows: a batch, a frame, a dict of columns or tuples, of the DDL `output`, such as "word string, n bigint". index: for each of
        them the number of the row in the batch that it was made of. How rows are cut into batches may not matter to the function.
        deterministic: False for a function that may return something else for the same rows, since it looks at a clock, draws a number or
        asks somebody: then it is called for all replicas once, and all go by what it has returned.
        """
        said = {} if deterministic is True else {"deterministic": deterministic}
        return self._then("flat_map", {"function": function, "output": output, **said}, name)

    def lookup(
        self, function: Callable[..., Any], output: Any, on: str | Sequence[str], *, concurrency: int = 16,
        timeout: str | timedelta = "10 seconds", retries: int = 2, backoff: str | timedelta = "100 milliseconds",
        on_error: Literal["fail", "null", "skip"] = "fail", batch: int | None = None, cache: str | timedelta | None = None,
        cache_size: int = 10_000, deterministic: bool = False, name: str | None = None,
    ) -> Self:  # fmt: skip
        """Each row with what a service answers about it: `orders.lookup(fetch, "name string, tier int", on="customer")`.

        function: `fetch(customer)`, or an `async def`; returns a dict or a tuple of the columns `output`, or None where there is nothing:
        then they are null. output: DDL, a StructType or a pyarrow schema. on: columns that the function is given; equal ones of an epoch
        are asked once, and where one is null the row is not asked for. concurrency: calls at a time, at each site. timeout: for each try.
        retries: tries after the first one, with pauses of `backoff`, then twice that, and so on. on_error: rows for which there is no
        answer end the run, or have nulls, or are left out and counted; `.dead_letters()` has those, with the error. batch: the function
        is given a list of so many keys at most (of tuples, if there are several columns), and returns a list of answers, or a dict by key.
        cache: for so long an answer is good for later rows of its key; cache_size: how many are kept, at each site. deterministic: the
        answer for a key never changes, so it may be asked for again; replicas that get different ones end the run.

        Rows keep their order: an epoch goes on when all its answers are there.
        """
        named = self.flow.free("lookup") if name is None else box_name(name, "lookup")
        with naming(named):
            times = {"timeout_us": duration_us(timeout), "backoff_us": duration_us(backoff)}
            times["cache_us"] = 0 if cache is None else duration_us(cache)
            answer = as_schema(output)
        if on_error not in ("fail", "null", "skip"):
            raise QueryError(f"box {named!r}: on_error is 'fail', 'null' or 'skip', not {on_error!r:.60}")
        params = {
            "function": function, "output": ddl_of(answer), "on": names_of(named, "on", on, self.columns), "concurrency": concurrency,
            "retries": retries, "batch": batch, "cache_size": cache_size, "nulls": on_error == "null", "deterministic": deterministic,
            **times,
        }  # fmt: skip
        return self._then("lookup", {**params, **({"on_error": "skip"} if on_error == "skip" else {})}, named)

    def case(self, *conditions: Expression, name: str | None = None) -> tuple[Self, ...]:
        """One stream per condition and one for the rest: each row is in the stream of the first condition that is true for it.

        `high, low, rest = stream.case("x > 1", "x < 0")`. Conditions are those of `where`. Streams that nobody reads are dropped.
        """
        first = self._then("case", {"conditions": tuple(map(unnamed, conditions))}, name)
        return tuple(type(first)(self.flow, first.handle, port) for port in range(len(conditions) + 1))

    def sort(self, *, tie_break: Sequence[str] | None = None, name: str | None = None) -> Self:
        """All rows in order of event time, each once the watermark has passed it. One partition sorts them; behind `key_by` the rows of
        each key are sorted by themselves, on all sites. tie_break: columns that order rows of equal time, default all the others."""
        return self._sorted((), tie_break, name)

    def bsort(self, column: str, size: int, *, name: str | None = None) -> Self:
        """Rows nearly in order of a column: they go through a buffer of `size` rows, out of which the least leaves when it is full.

        It waits for rows, not for time, and needs no watermark. One partition sorts them; behind `key_by` each key has its own buffer.
        """
        return self._bsorted((), column, size, name)

    def complete(
        self, every: str | timedelta = "1 second", *, order_by: str | Sequence[str] = (), limit: int | None = None, name: str | None = None
    ) -> Self:
        """All rows that this changelog has left, in one epoch: whenever something has changed, but only once `every` so often, by the
        stamps of the epochs, and at the end. As the complete mode of Structured Streaming, of which `every` is the trigger.

        order_by: "total desc", or ["total desc", "src"], with nulls as in Spark; otherwise rows are in order of their columns. limit: only
        the first so many. One partition keeps the rows. The table replaces the one before: `memory().newest()` is the last one,
        `table(..., overwrite=True)` holds it.
        """
        named = self.flow.free("complete") if name is None else box_name(name, "complete")
        with naming(named):
            every_us = duration_us(every)
        by = tuple(direction(named, text, self.columns) for text in names_of(named, "order_by", order_by))
        params = {"keys": (), "every_us": every_us, "by": by, "limit": limit, "order": None, "tie_break": None}
        return self._then("complete", params, named)

    # ------------------------------------------------ rows on which a box raises

    def on_error(self, policy: Literal["fail", "skip"]) -> Self:
        """What this box does with a row on which it raises: end the run (`fail`, the default), or leave it out and count it (`skip`).

        For where, select, with_columns, flat_map, case and process: for functions that the user wrote, and for expressions. A row is
        left out if the box raises for it alone; in `process` it leaves no trace in its key's state. Behind `agg`: for groups on which a
        function of the user's raises, and rows on which an aggregator's update does, on the state of no rows. Returns the stream.
        """
        if is_aside(self.box, self.port):
            raise QueryError(f"on_error belongs to the result of box {self.box.name!r}, not to what it puts aside")
        before = self._parts.get(".in")
        if before is not None and tries(self.flow.box_of(before).params):
            self._set_policy(before, policy)
        self._set_policy(self.handle, policy)
        return self

    def availability(self, mode: Literal["pairs", "passive", "upstream", "amnesia"] | None) -> Self:
        """What this box does so that a lost site costs little, if not what the dataflow does: two replicas do its work ("pairs"), a backup
        holds its state ("passive"), its producers keep what its state follows from ("upstream"), or what is lost is counted ("amnesia").

        Boxes that run together, such as a filter behind a source, must agree. None: as the dataflow. Returns the stream.
        """
        if mode is not None:
            mode_named(mode, f"box {self.box.name!r}")
        for handle in self._parts.values():
            box = self.flow.box_of(handle)
            kept = {name: value for name, value in box.params.items() if name != AVAILABILITY}
            if box.kind not in LEADING:
                self.flow.alter(handle, kept if mode is None else {**kept, AVAILABILITY: str(mode)})
        return self

    def _set_policy(self, handle: Handle, policy: Literal["fail", "skip"]) -> None:
        flow, box = self.flow, self.flow.box_of(handle)
        kept = {name: value for name, value in box.params.items() if name != "on_error"}
        if tries(kept):
            kept["columns"] = tried(kept["columns"], trial=policy != "fail")
        if policy != "fail":
            flow.alter(handle, {**kept, "on_error": policy})
        elif "on_error" in box.params:
            port = dead_letter_port(box.kind, box.params)
            if flow.network.readers(box.name, port):
                raise QueryError(f"box {box.name!r}: its dead letters are read; leave out on_error('fail')")
            flow.alter(handle, kept)

    def dead_letters(self) -> Self:
        """The rows on which this box raises, as they came in, with a column `error` (`_error`, if there is one of that name); the box
        goes on without them, as after `on_error("skip")`."""
        self.on_error("skip")
        port = dead_letter_port(self.box.kind, self.box.params)
        assert port is not None
        return type(self)(self.flow, self.handle, port)

    def _sorted(self, keys: tuple[str, ...], tie_break: Sequence[str] | None, name: str | None) -> Self:
        ties = ties_of("sort", tie_break, self.columns)
        return self._then("sort", {"keys": keys, "order": "event_time", "tie_break": ties}, name)

    def _bsorted(self, keys: tuple[str, ...], column: str, size: int, name: str | None) -> Self:
        params = {"keys": keys, "column": spelled(column, self.columns), "size": size, "order": "arrival", "tie_break": None}
        return self._then("bsort", params, name)
