"""The user's hand: a dataflow is drawn by calling methods on streams, with the names that PySpark has.

    flow = ef.Dataflow("traffic")
    packets = flow.source(ef.sources.generator(...)).with_watermark("ts", "10 seconds")
    packets.where("proto = 6").group_by("src").window("1 minute").agg(bytes="sum(length)").to(ef.sinks.console())

Every method checks at once (`check`), raises an error that names the box, and adds boxes to the dataflow. A stream is only a
handle on an output port of a box: several boxes may read it. Nothing runs before an engine starts the dataflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.plan.layout import Layout
from evenflow.query import grouped
from evenflow.query.cleaned import CleanedStream
from evenflow.query.cutting import CutOptions, cut_all
from evenflow.query.draw import to_svg
from evenflow.query.drawing import Drawing, Handle
from evenflow.query.duration import duration_us
from evenflow.query.exploding import draw_exploding, exploding
from evenflow.query.expression import fields_of, split_alias, without_stars
from evenflow.query.following import draw_then
from evenflow.query.given import Expression, Order, box_name, expressions_of, names_of, selected, spelled, unnamed
from evenflow.query.handle import HandledStream
from evenflow.query.joining import draw_join
from evenflow.query.kinds import KINDS, read
from evenflow.query.kinds.judging import check_distinct, known, naming
from evenflow.query.kinds.kind import KeyedKind
from evenflow.query.latest import draw_latest
from evenflow.query.lineage import check_value
from evenflow.query.network import LATE_PORT, RIGHT_LATE_PORT, Box, Network
from evenflow.query.over import draw_over
from evenflow.query.planner import layout
from evenflow.query.protecting import AVAILABILITY
from evenflow.query.serial import network_from_json, network_to_json
from evenflow.query.tables import RefreshedTable
from evenflow.query.text import layout_text, network_text
from evenflow.query.whose import taking_columns
from evenflow.stream.schema import quoted

if TYPE_CHECKING:
    from evenflow.query.qos import Qos
    from evenflow.sinks.sink import Sink
    from evenflow.sources.source import Source

    GroupedStream: TypeAlias = grouped.GroupedStream["Stream"]
    KeyedStream: TypeAlias = grouped.KeyedStream["Stream"]
    RowWindowedStream: TypeAlias = grouped.RowWindowedStream["Stream"]
    WindowedStream: TypeAlias = grouped.WindowedStream["Stream"]
else:
    from evenflow.query.grouped import GroupedStream, KeyedStream, RowWindowedStream, WindowedStream


class Dataflow(Drawing):
    """A dataflow under construction: a name and the boxes drawn so far."""

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self._boxes)} boxes)"

    # ------------------------------------------------ where streams begin

    def source(
        self,
        source: Source,
        *,
        name: str | None = None,
        cut: Literal["leader", "content"] = "leader",
        width_ms: float | None = None,
        cut_by: Literal["time", "place"] | None = None,
        width_rows: int | None = None,
        cut_ahead_ms: float | None = None,
        mirrored: bool = False,
        weights: bool = False,
    ) -> Stream:
        """A stream of the source's rows. source: one of `evenflow.sources`; name: of the box, default the source's kind.

        cut: what decides which rows form an epoch: "leader", one site as they come; or "content", the rows' log times or places, so that
        replicas read for themselves and wait for nobody. All sources of a dataflow are cut alike. What follows is for content. width_ms: of
        an epoch, default 20. cut_by: "time" or "place", default what the source can. width_rows: rows of an epoch, by place.
        cut_ahead_ms: most that a log time may be ahead of those before it, where producers set it; beyond it is an error. mirrored: the
        topic is a copy that has kept its origin's times. weights: with a column `_w`, how many rows each stands for where others may be
        left out, for `evenflow.estimate`. Raises QueryError for a source that cannot be cut by content, and says why.
        """
        if not isinstance(getattr(source, "schema", None), pa.Schema) or not callable(getattr(source, "partitions", None)):
            raise QueryError(
                f"box {name or 'source'!r}: {source!r} is not a source; use one of evenflow.sources, or from_spark for a DataFrame"
            )
        kind = getattr(source, "kind", "source")
        with naming(name or kind):
            of = CutOptions(width_ms, cut_by, width_rows, cut_ahead_ms, mirrored)
            source = of.apply(source, cut)
        return self.add("source", {"source": source, **({"weights": True} if weights else {})}, (), name, kind)

    def from_spark(self, df: Any, *, name: str | None = None, weights: bool = False) -> Stream:
        """A stream of the rows of a Spark DataFrame, batch or streaming. What Spark does before it, it does in its JVM. weights: as of
        `source`; all are 1, since nothing is left out here."""
        from evenflow import sources

        return self.source(sources.spark(df), name=name, weights=weights)

    def table(
        self, given: Any, name: str, *, key: str | Sequence[str] | None = None, refresh: str | timedelta | None = "5 minutes"
    ) -> RefreshedTable:
        """A table that changes slowly, to `join` streams with: it is read when the dataflow starts, and again while it runs.

        given: a batch DataFrame of Spark, which reads its files and tables anew each time, or a function of no arguments that returns one,
        or a table of another library: for what is looked up when a DataFrame is made, such as a temporary view. name: in events and
        for `run.refresh`. key: columns of which no two rows may have the same values. refresh: how often it is read; None: only by
        `run.refresh`. What was read takes effect at one epoch everywhere; what cannot be read or used leaves the last rows in place. At
        most 64 MiB. Raises QueryError.
        """
        return RefreshedTable.of(given, name, key, refresh)

    def stream(self, name: str, port: int = 0) -> Stream:
        """The result of the box of that name, to go on from there: after `from_json`, or where the stream was not kept. port: of its
        outputs, such as that of late rows."""
        box = self.network.box(box_name(name, "stream"))
        if not box.schemas:
            raise QueryError(f"box {name!r} is a sink; nothing comes out of it")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < len(box.schemas):
            raise QueryError(f"box {name!r} has {len(box.schemas)} outputs, from 0 on, and no {port!r}")
        return Stream(self, self._handles[name], port)

    # ------------------------------------------------ the whole

    def cut(
        self,
        cut: Literal["leader", "content"] = "content",
        *,
        width_ms: float | None = None,
        cut_by: Literal["time", "place"] | None = None,
        width_rows: int | None = None,
        cut_ahead_ms: float | None = None,
        mirrored: bool = False,
    ) -> Dataflow:
        """The same dataflow with all its sources cut so; see `source`. This one stays as it is. Raises OptionError for what does not go
        together, or a source that is cut by content already, and QueryError for one that cannot be."""
        of = CutOptions(width_ms, cut_by, width_rows, cut_ahead_ms, mirrored)
        return Dataflow.from_network(cut_all(self.network, cut, of))

    def to_text(self) -> str:
        """One line a box."""
        return network_text(self.network)

    def explain(self, *, sites: int = 4, partitions: int = 256) -> None:
        """Print the boxes, and the segments that they become on that many sites, once every box leads to a sink."""
        print(self.to_text())
        network = self.network
        if loose := network.dangling():
            names = ", ".join(repr(box.name) for box in loose)
            print(f"Segments come when every box leads to a sink: {names} {'does' if len(loose) == 1 else 'do'} not yet.")
            return
        print(layout_text(layout(network, sites=sites, partitions=partitions)), end="")

    def to_svg(self, *, sites: int = 4, partitions: int = 256) -> str:
        """A picture, SVG text. Segments are shaded once every box leads to a sink."""
        network = self.network
        planned: Layout | None = None
        if len(network) and not network.dangling():
            planned = layout(network, sites=sites, partitions=partitions)
        return to_svg(network, planned)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_json(self) -> str:
        """The dataflow as JSON text. Raises QueryError if a function or object in it can be neither imported nor pickled."""
        return network_to_json(self.network)

    @classmethod
    def from_json(cls, text: str, *, allow_pickle: bool = False, modules: Sequence[str] = ()) -> Dataflow:
        """The dataflow that `to_json` wrote.

        allow_pickle: also run the pickles in it and import what it names, which can do anything: only for files you trust.
        modules: names of modules whose functions, processors and aggregators it may name; they are imported.

        Raises QueryError for a dataflow that is wrong (a cycle, an unknown column), naming the box.
        """
        return cls.from_network(network_from_json(text, allow_pickle=allow_pickle, modules=modules))

    @classmethod
    def from_network(cls, network: Network) -> Dataflow:
        """A dataflow with the boxes of a network, to draw on."""
        flow = cls(network.name)
        for box in network:
            flow._boxes[box.name] = box
            flow._handles[box.name] = Handle(box.name)
        return flow

    # ------------------------------------------------ what streams call

    def add(self, kind: str, params: Mapping[str, Any], inputs: Sequence[HandledStream], name: str | None, stem: str) -> Stream:
        """Check a box and draw it. name: or None for the first free one that begins with `stem`."""
        return Stream(self, self.draw(kind, params, inputs, name, stem))


class Stream(CleanedStream):
    """Rows on their way from one box to others."""

    flow: Dataflow

    def _repr_svg_(self) -> str:
        return self.flow.to_svg()

    # ------------------------------------------------ row by row

    @taking_columns
    def where(self, condition: Expression, *, name: str | None = None) -> Stream:
        """Rows for which the condition is true.

        condition: a Spark SQL expression, a `Column` of PySpark, or a function of a batch that returns booleans.
        """
        return self._then("filter", {"condition": unnamed(condition)}, name)

    filter = where

    @taking_columns
    def select(self, *columns: Any, **named: Expression) -> Stream:
        """Exactly these columns: "a", "b + 1 as c", "*", `F.col("a")`, and d="expression" or d=function of a batch that returns one
        value per row. One may be explode, posexplode or inline of a list, or with _outer: a row for each element. Some may have
        functions OVER rows, `F.sum("x").over(window)` or as text: what rows that come once can have is said in docs/sql.md."""
        made: list[tuple[str, Expression]] = []
        for given in columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns:
            made += self._selected(selected(given))
        with naming("select"):
            made += ((name, without_stars(given, self.schema)) for name, given in expressions_of("select", "select", named).items())
        return draw_exploding(self, made) or draw_over(self, made) or self._selecting(made)

    selectExpr = select

    @taking_columns
    def with_columns(self, columns: Mapping[str, Expression] | None = None, /, **named: Expression) -> Stream:
        """All columns, some computed anew in their place, others added at the end. A name takes the place of one that differs in the case
        of its letters, as in Spark."""
        given = {} if columns is None else expressions_of(self.flow.free("select"), "with_columns", columns)
        new = {**given, **expressions_of(self.flow.free("select"), "with_columns", named)}
        with naming(self.flow.free("select")):
            new = {name: without_stars(expression, self.schema) for name, expression in new.items()}
        check_distinct(self.flow.free("select"), [name.lower() for name in new], "give each column one expression")
        places = {spelled(name, self.columns): name for name in new}
        kept = [(places.pop(column, column), column) for column in self.columns]
        made = (*((name, new.get(name, column)) for name, column in kept), *((name, new[name]) for name in places))
        return draw_over(self, made) or self._then("select", {"columns": made})

    withColumns = with_columns

    def with_column(self, name: str, expression: Expression) -> Stream:
        """All columns and this one, in its place if there is one of that name."""
        if not isinstance(name, str):
            raise QueryError(f"box 'select': a column cannot be called {name!r:.60}; give it a name that is a text")
        return self.with_columns({name: expression})

    withColumn = with_column

    def with_column_renamed(self, existing: str, new: str) -> Stream:
        """All columns, one of them under another name. Raises UnknownColumn if it is not there."""
        existing = known(self.flow.free("select"), spelled(existing, self.columns), self.schema).name
        return self._selecting([(new if c == existing else c, c) for c in self.columns])

    withColumnRenamed = with_column_renamed

    @taking_columns
    def drop(self, *columns: Any) -> Stream:
        """All columns but these. Raises UnknownColumn if one is not there."""
        columns = names_of(self.flow.free("select"), "drop", columns, self.columns)
        for column in columns:
            known(self.flow.free("select"), column, self.schema)
        return self._then("select", {"columns": tuple((c, c) for c in self.columns if c not in columns)})

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The rows of all the streams, which must have the same columns in the same order."""
        if not others:
            raise QueryError(f"box {name or 'union'!r} has one input; it must have at least 2: name the other streams")
        for other in others:
            if not isinstance(other, HandledStream):
                raise QueryError(f"box {name or 'union'!r} unites streams, not {type(other).__name__} {other!r:.60}")
        return self.flow.add("union", {}, (self, *others), name, "union")

    unionAll = union

    def then(self, second: Stream | Source, *, name: str | None = None) -> Stream:
        """All rows of this stream, and behind them those of another one: `flow.from_spark(batch).then(ef.sources.kafka(...))`.

        For a backfill that goes over into what is live. This stream comes to an end: from a batch DataFrame, or from a source that ends.
        second: a stream or a source with the same columns; others are left out. Declare the watermark behind it: what is live makes no row
        of the backfill late.
        """
        return draw_then(self, second, name)

    def join(
        self, other: Any, on: Expression | Sequence[Expression] = None, how: str = "inner", condition: str | None = None, *,
        within: str | timedelta | None = None, suffix: str | None = None, unbounded: bool = False, name: str | None = None,
    ) -> Stream:  # fmt: skip
        """Pairs of rows of this stream (l) and another one (r), or a table, as Spark joins them: `a.join(b, "id", within="1 hour")`.

        other: a stream, a batch DataFrame of Spark or another library, a pyarrow table, or a `flow.table(...)`, which is refreshed. on:
        columns that both have and that must be equal, which come out once; or conditions of PySpark's columns, `a.k == b.k`, and then what
        both have comes out twice, `b.k` as `k_right`. how: inner, left, right, full, semi, anti. condition: over
        `l.column` and `r.column`; what it says of the two event times, such as "l.ts between r.ts - interval 10 seconds and r.ts", bounds
        the state. within: the event times are not farther apart. suffix: for columns of the right that the left has too. unbounded: keep
        rows of both streams for ever.
        """
        return draw_join(self, other, on, how, condition, within, suffix, unbounded, name)

    def join_latest(
        self, other: Stream, on: str | Sequence[str], how: Literal["left", "inner"] = "left", *, deleted: str | None = None,
        suffix: str | None = None, order: Order | None = None, name: str | None = None,
    ) -> Stream:  # fmt: skip
        """Each row with the newest row of the same key of another stream: a table that changes, of which `other` has every change.

        order: "event_time" (the default where both have a watermark): the newest row that is not later in event time, whenever it came;
        "arrival": the newest one that has come. on: columns of both. how: "left" or "inner". deleted: a condition on the changes for which
        the key has no row from then on. suffix: behind the names of right columns that the left has too.
        """
        return draw_latest(self, other, on, how, deleted, suffix, order, name)

    def with_watermark(self, column: str, delay: str | timedelta, *, idle: str | timedelta | None = None) -> Stream:
        """Make a timestamp column the event time. delay: how late a row may come, such as "10 seconds".

        idle: a partition of the source without a row for so long, by the wall clock where rows enter, holds the watermark back no more,
        until it has rows again; these may be late then. Without it, the watermark waits for all of them. It has to stand before every
        keyed box: the watermark is made where rows enter.
        """
        name = self.flow.free("watermark")
        if (keyed := _keyed_above(self.flow.network, self.box)) is not None:
            raise QueryError(
                f"box {name!r}: a watermark is made where rows enter; declare it before {keyed.name!r}, right after the source"
            )
        params = {"column": spelled(column, self.columns), "delay_us": _delay(name, delay)}
        return self._then("watermark", params if idle is None else {**params, "idle_us": _delay(name, idle)}, name)

    withWatermark = with_watermark

    def repartition(self, partitions: int | None = None, *columns: Any, name: str | None = None) -> Stream:
        """Deal the rows out to `partitions` partitions, whatever is in them: what follows runs there, up to the next key. While load is
        balanced, a site that is busy gets fewer of them. partitions: default one per site; of more, some move to a site that is added.

        Worth it where stateless boxes behind a source with few partitions take long. A watermark has to be made before. columns: none;
        Spark's repartition takes some. Raises QueryError for any.
        """
        if columns or not (partitions is None or isinstance(partitions, int)):
            raise QueryError(
                "box 'repartition': rows are dealt out whatever is in them, and those with equal values come together where a group_by, a "
                "key_by or a join needs them: leave the columns out"
            )
        return self._then("repartition", {"partitions": partitions}, name or self.flow.free("repartition"))

    # ------------------------------------------------ by key

    @taking_columns
    def key_by(self, *columns: Any) -> KeyedStream:
        """Rows with equal values in these columns are processed together: `.key_by("user").process(...)`."""
        columns = names_of("key_by", "key_by", columns, self.columns)
        return KeyedStream(self._then("key_by", {"columns": columns}), columns)

    def process(self, *_: Any, **__: Any) -> Stream:
        """Only behind a key: raises QueryError."""
        raise QueryError(f"box 'process' behind {self.box.name!r} has no key; write .key_by('column', ...).process(...)")

    @taking_columns
    def group_by(self, *columns: Any) -> GroupedStream:
        """Groups of rows with equal values, to aggregate. Without columns all rows are one group. Null is a group of its own.

        A window may stand among them as in PySpark, `F.window("ts", "1 minute")` or "session_window(ts, '5 minutes')"; its bounds come as
        window_start and window_end, as of `.window(...)` and `.session(...)` behind it.
        """
        return grouped.grouped_by(self, columns)

    groupBy = groupby = group_by

    def agg(self, *expressions: Any, **named: Any) -> Stream:
        """Running aggregates over all rows: `group_by().agg(...)`."""
        return self.group_by().agg(*expressions, **named)

    def late(self, side: Literal["left", "right"] = "left") -> Stream:
        """The rows that this aggregate, process or join box judged late, as they came in. Otherwise they are counted and dropped.

        side: of a join, whose late rows.
        """
        main = self._parts[""]
        box = self.flow.box_of(main)
        if box.kind == "join" and self.port == 0:
            return Stream(self.flow, main, LATE_PORT if side == "left" else RIGHT_LATE_PORT)
        kind = read(box.kind, box.params)
        judges = isinstance(kind, KeyedKind) and kind.judges_late(box.event_time)
        if self.port != 0 or not judges:
            raise QueryError(
                f"box {box.name!r} judges no row late; late() belongs directly behind a time window, "
                "or behind a box that takes its rows in order "
                "of event time (process, rows, first, last, collect_list on a stream with a watermark)"
            )
        late = Stream(self.flow, main, LATE_PORT)
        if self._late_columns is None:
            return late
        columns = tuple((column, column) for column in self._late_columns)
        return self.flow.add("select", {"columns": columns}, (late,), None, f"{box.name}.late")

    # ------------------------------------------------ the end

    def to(
        self, sink: Sink, *, qos: Qos | None = None, guarantee: Literal["precise", "no-loss", "gap"] | None = None,
        availability: Literal["pairs", "passive", "upstream", "amnesia"] | None = None, unordered: bool = False,
        every: str | timedelta | None = None, name: str | None = None,
    ) -> Stream:  # fmt: skip
        """Send the rows to a sink, one of `evenflow.sinks`. Returns the stream, which may go to others as well.

        qos: what the results are worth when there is more to do than can be done, from `evenflow.qos(...)`; without it the output is
        protected, and nothing that it needs is left out, whatever the engine's `shedding` is. guarantee: what must hold if sites are lost:
        "precise", as if none had been; "no-loss", rows may come twice; "gap", what is missing is counted. A start that cannot give it is
        an error, which names the box and the cheapest mode that would. availability: of what is before the sink, see `availability`.
        unordered: partitions' rows of an epoch go to the sink as they come, each partition's in order and once, so that what holds up one
        of them does not hold up the others' rows; for sinks that take portions of epochs: callback, console, memory. every: who reads this
        wants rows no more often, as in "1 second". If all outputs say so, epochs close no sooner than the least of them wants, instead of
        after the engine's `linger_ms`, and cost that much less.
        """
        every_us = None if every is None else _delay(name or self.flow.free(str(getattr(sink, "kind", "sink"))), every)
        asked = {
            "qos": qos, "guarantee": guarantee, AVAILABILITY: availability, "unordered": unordered or None, "every_us": every_us,
        }  # fmt: skip
        given = {"sink": sink, **{name: value for name, value in asked.items() if value is not None}}
        with self.flow.whole():
            drawn = self.flow.draw("sink", given, (self,), name, getattr(sink, "kind", "sink"))
            check_value(self.flow.network, self.flow.box_of(drawn))
        return self

    # ------------------------------------------------ pieces

    def _selected(self, text: str) -> list[tuple[str, Expression]]:
        """("name", expression) of one argument of `select`; "*" is all columns."""
        box = self.flow.free("select")
        if not isinstance(text, str):
            raise QueryError(f"box {box!r}: {text!r} is not a string; give a function of a batch a name, as in select(total=function)")
        if text.strip() == "*":
            return [(column, column) for column in self.columns]
        if text in self.columns:
            return [(text, text)]
        if exploding(text) is not None:
            return [("", text)]
        with naming(box):
            text = without_stars(text, self.schema)
            if text.strip().endswith(".*"):
                return [(field, f"{text.strip()[:-2]}.{quoted(field)}") for field in fields_of(text.strip()[:-2], self.schema)]
            expression, name = split_alias(text)
        if name is None:
            raise QueryError(f"box {box!r}: the column {text!r} has no name; write '{text} as name'")
        bare = expression[1:-1] if expression.startswith("`") else expression
        owner, _, edge = bare.lower().partition(".")
        if owner in ("window", "session_window") and edge in ("start", "end") and owner not in map(str.lower, self.columns):
            bare = f"window_{edge}"  # The column itself, so that event time goes on with it.
        return [(name, bare if bare in self.columns else expression)]


def _keyed_above(network: Network, box: Box) -> Box | None:
    """A keyed box upstream of `box`, itself included, if there is one."""
    if KINDS[box.kind].stateful:
        return box
    above = (_keyed_above(network, network.box(up)) for up, _ in box.inputs)
    return next((found for found in above if found is not None), None)


def _delay(name: str, delay: str | timedelta) -> int:
    with naming(name):
        return duration_us(delay)


__all__ = ["Dataflow", "Expression", "GroupedStream", "Handle", "KeyedStream", "RowWindowedStream", "Stream", "WindowedStream"]
