"""CREATE ... USING kind OPTIONS (...): sources and sinks by the names that `evenflow.sources` and `evenflow.sinks` give them.

Options are arguments of those functions. Those of every source besides: `event_time`, the column of the watermark, `delay`, how far it
stays behind, `idle`, after how long without rows it does not wait, and `cut`, what decides which rows form an epoch, with what belongs to
it. Those of every sink besides: `unordered`, whether partitions' rows of an epoch go there as they come, and
`every`, how often its reader wants rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from evenflow import sinks, sources
from evenflow.query.script.grammar import Script, unquoted
from evenflow.query.sql.parser import to_sql
from evenflow.stream.schema import parse_ddl

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow, Stream
    from evenflow.sinks.sink import Sink

FILES: Final = ("parquet", "csv", "tsv", "json", "arrow")
SOURCES: Final[dict[str, Callable[..., Any]]] = {
    "delta": sources.delta, "generator": sources.generator, "group": sources.group, "iceberg": sources.iceberg, "kafka": sources.kafka,
    "nexmark": sources.nexmark, "packets": sources.packets, "pcap": sources.pcap,
    "table": sources.table, "tcp_lines": sources.tcp_lines, **dict.fromkeys(FILES, sources.replay),
}  # fmt: skip
SINKS: Final[dict[str, Callable[..., Any]]] = {
    "console": sinks.console, "delta": sinks.delta, "discard": sinks.discard, "iceberg": sinks.iceberg, "kafka": sinks.kafka,
    "memory": sinks.memory, "parquet": sinks.parquet, "spark": sinks.spark, "table": sinks.table,
}  # fmt: skip


CUT: Final[dict[str, str]] = {
    "cut": "str", "width_ms": "float", "cut_by": "str", "width_rows": "int", "cut_ahead_ms": "float", "mirrored": "bool",
    "weights": "bool",
}  # fmt: skip
"""Arguments of `Dataflow.source`: what decides which rows form an epoch, and whether rows have weights; and of which type they are."""


class Options:
    """USING, OPTIONS and LOCATION of a CREATE. format: lower case, or "". values: by lower-case name."""

    def __init__(self, script: Script, tree: exp.Create) -> None:
        self.script, self.tree = script, tree
        self.format = ""
        self.values: dict[str, Any] = {}
        properties = tree.args.get("properties")
        for part in properties.expressions if properties is not None else ():
            if isinstance(part, exp.FileFormatProperty):
                self.format = unquoted(part.this).lower()
            elif isinstance(part, exp.OptionsProperty):
                for option in part.expressions:
                    self.values[unquoted(option.this).lower()] = _value(option.args["value"])
            elif isinstance(part, exp.LocationProperty):
                self.values["path"] = unquoted(part.this)
            elif not isinstance(part, exp.TemporaryProperty):
                if isinstance(part, exp.MaterializedProperty):
                    script.fail(
                        tree,
                        "a view is computed once, however many read it: write CREATE TEMPORARY VIEW; output_mode= says what is put out",
                    )
                script.fail(tree, f"{to_sql(part)!r} is not available; write USING and OPTIONS")

    def take(self, name: str) -> Any:
        """The value of an option, which is then no argument any more; None if it is not there."""
        return self.values.pop(name, None)

    def call(self, kinds: dict[str, Callable[..., Any]], what: str, **more: Any) -> Any:
        """What the function of this kind makes of the options. more: arguments that are no options."""
        function = kinds.get(self.format)
        if function is None:
            given = f"USING {self.format}" if self.format else "without USING"
            self.script.fail(self.tree, f"there is no {what} {given}; write USING {', '.join(kinds)}")
        taken = {name: p for name, p in inspect.signature(function).parameters.items() if name not in more}
        arguments = {}
        for option, value in self.values.items():
            name = next((name for name in taken if name.lower() == option), None)
            if name is None:
                self.script.fail(self.tree, f"the {what} {self.format} has no option {option!r}; it has {', '.join(taken) or 'none'}")
            arguments[name] = _fitting(value, str(taken[name].annotation))
        missing = [name for name, p in taken.items() if p.default is p.empty and name not in arguments]
        if missing:
            self.script.fail(self.tree, f"the {what} {self.format} needs the option {missing[0]!r}; write OPTIONS ({missing[0]} '...')")
        with self.script.at(self.tree):
            return function(**arguments, **more)


def source_of(flow: Dataflow, name: str, options: Options, columns: Sequence[exp.Expr]) -> Stream:
    """The stream of CREATE VIEW name (columns) USING ... ."""
    time, delay, idle = (options.take(option) for option in ("event_time", "delay", "idle"))
    more: dict[str, Any] = {}
    if options.format in FILES:
        more["format"] = options.format
        options.values.setdefault("speed", None)
    if columns:
        if options.format not in (*FILES, "group", "kafka", "table", "tcp_lines"):
            options.script.fail(options.tree, f"the source {options.format} has columns of its own; leave out the list")
        with options.script.at(options.tree):
            more["schema"] = parse_ddl(", ".join(to_sql(column) for column in columns))
    if time is None and (delay, idle) != (None, None):
        options.script.fail(options.tree, "delay and idle are about the watermark; say over which column it is with event_time '...'")
    cut = {option: value for option in CUT if (value := options.take(option)) is not None}
    source = options.call(SOURCES, "source", **more)
    with options.script.at(options.tree):
        given = {option: _fitting(value, CUT[option]) for option, value in cut.items()}
        stream = flow.source(source, name=flow.free(name), **given)
        if time is None:
            return stream
        return stream.with_watermark(str(time), "0 seconds" if delay is None else str(delay), idle=None if idle is None else str(idle))


def sink_of(options: Options) -> tuple[Sink, dict[str, Any]]:
    """The sink of CREATE TABLE name USING ... , and what of the options is said where rows are sent to it."""
    unordered, every = options.take("unordered"), options.take("every")
    sink: Sink = options.call(SINKS, "sink")
    said = {"unordered": None if unordered is None else _fitting(unordered, "bool"), "every": None if every is None else str(every)}
    return sink, {name: value for name, value in said.items() if value is not None}


def _value(tree: exp.Expr) -> Any:
    """What a literal says; an unquoted word says itself."""
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Null):
        return None
    return unquoted(tree)


def _fitting(value: Any, annotation: str) -> Any:
    """Spark's options are text, so text becomes what the argument is declared to be, where it can."""
    if not isinstance(value, str):
        return value
    if "bool" in annotation and value.lower() in ("true", "false"):
        return value.lower() == "true"
    for word, read in (("int", int), ("float", float)):
        if word in annotation:
            try:
                return read(value.replace("_", ""))
            except ValueError:
                continue
    return value
