"""What a kind of box is for people who draw: a title, a page to read, ports, and a field for each of its parameters.

One form per kind (`KINDS`); a test holds that its fields are what the judge takes. Sources and sinks have a form each, whose fields are the
arguments of the function that makes one (`evenflow.sources`, `evenflow.sinks`): their texts come from there.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin

from evenflow import sinks, sources
from evenflow.availability.guarantee import Guarantee
from evenflow.availability.mode import Mode
from evenflow.query.aggregates import FUNCTIONS
from evenflow.query.kinds import GUARDED, KINDS
from evenflow.query.protecting import LEADING

FieldType = Literal[
    "text", "number", "whole", "flag", "choice", "duration", "expression", "expressions", "named", "column", "columns", "order_by", "calls",
    "window", "join", "table", "source", "sink", "ddl", "code", "names", "settings",
]  # fmt: skip
"""How a field is filled in. duration: microseconds. named: pairs of a name and an expression. order_by: pairs of a column and whether it
descends. names: one name or several. settings: texts by name. code: only Python can say it."""

REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class FormField:
    """One parameter. default: what a new box has; REQUIRED if somebody must say it. choices: that there are. more: seldom needed."""

    name: str
    type: FieldType
    doc: str
    default: Any = REQUIRED
    choices: tuple[Any, ...] = ()
    more: bool = False

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name, "type": self.type, "doc": self.doc, "required": self.default is REQUIRED}
        if self.default is not REQUIRED:
            told["default"] = self.default
        if self.choices:
            told["choices"] = list(self.choices)
        return {**told, "more": True} if self.more else told


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of box, source or sink. group: of the palette. page: below docs. inputs: least and most, None for any. ports: of what comes
    out; a case has one for each condition, and one more."""

    name: str
    title: str
    group: str
    doc: str
    page: str
    fields: tuple[FormField, ...]
    inputs: tuple[int, int | None] = (1, 1)
    ports: tuple[str, ...] = ("",)
    colours: tuple[str, str] = ("", "")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "group": self.group, "doc": self.doc, "page": self.page,
            "fields": [field.to_json() for field in self.fields],
            "inputs": list(self.inputs), "ports": list(self.ports), "colours": list(self.colours),
        }  # fmt: skip


def forms() -> dict[str, Any]:
    """All of them as JSON: kinds of boxes, sources, sinks, and the functions that totals may have."""
    return {
        "kinds": [form.to_json() for form in FORMS.values()],
        "sources": [form.to_json() for form in SOURCES.values()],
        "sinks": [form.to_json() for form in SINKS.values()],
        "functions": list(FUNCTIONS),
    }


# ---------------------------------------------------------------- kinds of boxes

ORDER: Final = FormField("order", "choice", "In which order a key's rows are taken.", None, (None, "event_time", "arrival"), more=True)
TIES: Final = FormField("tie_break", "columns", "What orders rows of equal time; all columns, if left out.", None, more=True)
KEYS: Final = FormField("keys", "columns", "Rows with equal values in these columns belong together.")
ANY_KEYS: Final = FormField("keys", "columns", "Rows with equal values in these columns belong together; none: all rows are one group.", ())
ON_ERROR: Final = FormField(
    "on_error", "choice", "Rows on which it raises: they end the run, or go to a port.", "fail", ("fail", "skip"), more=True
)
AVAILABILITY: Final = FormField(
    "availability",
    "choice",
    "What it does so that a lost site costs little; else as the dataflow.",
    None,
    (None, *map(str, Mode)),
    more=True,
)
GUARANTEE: Final = FormField(
    "guarantee", "choice", "What must hold when sites are lost; else what the modes give.", None, (None, *map(str, Guarantee)), more=True
)
UNORDERED: Final = FormField(
    "unordered", "flag", "Partitions' rows of an epoch leave as they come, each partition in order; else whole epochs.", False, more=True
)
EVERY: Final = FormField(
    "every_us", "duration", "Who reads it wants rows no more often; as soon as they are there, if left out.", None, more=True
)
QOS: Final = FormField("qos", "code", "What they are worth under overload, evenflow.qos(...); without it nothing may go.", None, more=True)
IN_TIME: Final = FormField("order", "choice", "Rows are taken in order of event time.", "event_time", ("event_time",), more=True)


def _form(name: str, title: str, group: str, page: str, doc: str, *fields: FormField) -> Form:
    kind = KINDS[name]
    ports: tuple[str, ...] = () if name == "sink" else ("", "late", "late right") if name == "join" else ("",)
    if kind.stateful and name not in ("join", "bsort", "complete"):
        ports = ("", "late")
    guarded = (ON_ERROR,) if name in GUARDED else ()
    anywhere = () if name in LEADING else (AVAILABILITY,)
    return Form(name, title, group, doc, f"operators/{page}.md", (*fields, *guarded, *anywhere), kind.inputs, ports, kind.colours)


F = FormField
FORMS: Final[Mapping[str, Form]] = {
    form.name: form
    for form in (
        _form(
            "source", "Source", "ends", "README", "Where rows come from.",
            F("source", "source", "What is read."),
            F("weights", "flag", "With a column _w: how many rows each stands for, for estimates.", default=False, more=True),
        ),
        _form("sink", "Sink", "ends", "README", "Where rows go.", F("sink", "sink", "What takes them."), QOS, GUARANTEE, UNORDERED, EVERY),
        _form(
            "filter", "Where", "rows", "select", "Rows for which a condition is true.",
            F("condition", "expression", "Spark SQL that is true or false, such as proto = 6."),
        ),
        _form(
            "select", "Select", "rows", "select", "Exactly these columns, computed of each row.",
            F("columns", "named", "Name and expression of each column."),
            F("event_time", "column", "The column that carries event time on, if it is another one.", None, more=True),
        ),
        _form(
            "case", "Case", "rows", "case", "Each row to the first output whose condition is true; the others to the last one.",
            F("conditions", "expressions", "One for each output but the last."),
        ),
        _form("union", "Union", "rows", "union", "The rows of several streams that have the same columns."),
        _form(
            "explode", "Explode", "rows", "explode", "A row for each element of a list or a map.",
            F("column", "column", "The list or map."),
            F("into", "names", "Column of the element; several for a map's key and value, or a structure's fields."),
            F("position", "text", "Column of the element's place, if it is wanted.", None),
            F("outer", "flag", "An empty list gives a row too.", default=False),
        ),
        _form(
            "unpivot", "Unpivot", "rows", "unpivot", "Columns become rows of a name and a value.",
            F("ids", "columns", "Columns that every row keeps.", ()),
            F("values", "columns", "Columns that become rows."),
            F("variable", "text", "Column with their names.", "variable"),
            F("value", "text", "Column with their values.", "value"),
        ),
        _form(
            "flat_map", "Flat map", "code", "flat_map", "What a Python function makes of batches of rows.",
            F("function", "code", "Takes a batch and returns one."),
            F("output", "ddl", "The columns that it returns, such as app string, dur double."),
            F("deterministic", "flag", "It returns the same for the same rows.", default=True, more=True),
        ),
        _form(
            "lookup", "Look up", "code", "lookup", "What a service answers about each row, as more columns.",
            F("function", "code", "Takes a row's key, and returns what is known of it."),
            F("output", "ddl", "The columns of an answer, such as name string, age int."),
            F("on", "columns", "What the function is given of a row."),
            F("concurrency", "whole", "How many calls at a time, at each site.", 16),
            F("timeout_us", "duration", "How long a call may take.", 10_000_000),
            F("retries", "whole", "How often a call that failed is made again.", 2, more=True),
            F("backoff_us", "duration", "How long to wait before that; then twice as long.", 100_000, more=True),
            F("batch", "whole", "How many keys the function is given at once; one by one, if left out.", None, more=True),
            F("cache_us", "duration", "How long an answer is good for other rows of its key.", 0, more=True),
            F("cache_size", "whole", "How many answers are kept.", 10_000, more=True),
            F("nulls", "flag", "Rows without an answer go on with nulls.", default=False),
            F("deterministic", "flag", "The answer for a key never changes.", default=False, more=True),
        ),
        _form(
            "watermark", "Watermark", "time", "watermark", "Makes a timestamp the event time.",
            F("column", "column", "The timestamp."),
            F("delay_us", "duration", "How late a row may come.", 10_000_000),
            F("idle_us", "duration", "After how long a silent partition holds nobody back; never, if left out.", None, more=True),
        ),
        _form(
            "aggregate", "Aggregate", "keys", "agg", "Totals of groups of rows: so far, by window of time, session, or last rows.",
            ANY_KEYS,
            F("calls", "calls", "Name, function and column of each total."),
            F("window", "window", "Over which rows; all so far, if left out.", None),
            ORDER, TIES,
            F("combine", "flag", "Totals begin where the rows are, before they travel.", default=True, more=True),
            F("mode", "choice", "New values of totals so far, or what changes.", "update", ("update", "changelog"), more=True),
            F("sampled", "flag", "All are estimates over weights: any row may be left out before.", default=False, more=True),
        ),
        _form("key_by", "Key by", "keys", "process", "Rows with equal values go to the same place.",
              F("columns", "columns", "The key.")),
        _form(
            "process", "Process", "code", "process", "A Python processor, with state for each key.",
            KEYS, F("processor", "code", "What sees the rows of a key."), ORDER, TIES,
            F("verify", "code", "How often its answers are made twice and compared.", None, more=True),
        ),
        _form(
            "join", "Join", "joins", "join", "Pairs of rows of two streams.",
            F("join", "join", "What must be equal, how near in time, and which rows come out."),
        ),
        _form(
            "table_join", "Join with a table", "joins", "table", "Each row with its rows of a table.",
            F("join", "join", "What must be equal, and which rows come out."), F("table", "table", "The table's rows."),
        ),
        _form(
            "dedup", "Drop duplicates", "keys", "drop_duplicates", "The first row of each key.",
            KEYS, F("within", "flag", "Keys are forgotten when the watermark has passed them.", default=False), ORDER, TIES,
        ),
        _form(
            "top", "Top", "keys", "top", "The first rows of each window, by some order.",
            ANY_KEYS, F("window", "window", "Of event time."), F("count", "whole", "How many rows.", 10),
            F("by", "order_by", "Columns that order them."), ORDER, TIES,
        ),
        _form(
            "resample", "Resample", "time", "resample", "Values at equal distances of time.",
            ANY_KEYS, F("step_us", "duration", "From one value to the next.", 1_000_000), F("columns", "columns", "That have values."),
            F("how", "choice", "Between two rows: a straight line, or the one before.", "linear", ("linear", "previous")),
            F("gap_us", "duration", "The longest gap that is filled; any, if left out.", None), IN_TIME, TIES,
        ),
        _form(
            "pattern", "Pattern", "time", "pattern", "Rows of a key that follow one another as a pattern says.",
            ANY_KEYS, F("pattern", "text", "Variables as in a regular expression, such as A B+ C."),
            F("define", "named", "What a row must be to be a variable."),
            F("measures", "named", "What is put out of a match."),
            F("within_us", "duration", "How long a match may take.", 600_000_000),
            F("skip", "text", "Where it goes on: past last row, to next row, to first B, to last B.", "past last row"),
            F("rows", "choice", "One row per match, all of its rows, or those in none, too.", "one", ("one", "all", "with unmatched")),
            IN_TIME, TIES,
        ),
        _form("sort", "Sort", "time", "sort", "Rows in order of event time.", ANY_KEYS, IN_TIME, TIES),
        _form(
            "bsort", "Sort in a buffer", "time", "bsort", "Rows nearly in order, by a buffer of some rows.",
            ANY_KEYS, F("column", "column", "By which they are sorted."), F("size", "whole", "Rows in the buffer.", 100),
            F("order", "choice", "In which order rows come in.", "arrival", ("arrival", "event_time"), more=True), TIES,
        ),
        _form(
            "complete", "Whole table", "keys", "complete", "The table that a changelog leaves, again and again.",
            ANY_KEYS, F("every_us", "duration", "From one table to the next.", 1_000_000),
            F("by", "order_by", "Columns that order it.", ()), F("limit", "whole", "Of rows.", None), ORDER, TIES,
        ),
        _form(
            "repartition", "Repartition", "rows", "repartition", "Rows are dealt out to partitions, whatever is in them.",
            F("partitions", "whole", "How many; one for each site, if left out.", None),
        ),
    )
}  # fmt: skip


# ---------------------------------------------------------------- sources and sinks

LEFT_OUT: Final = ("callback", "spark")
"""Made of an object of this process, so no form can make them."""
COLUMNS: Final = ("key", "partition_by")
"""Arguments that name columns of what comes in."""


def _of_functions(kinds: Mapping[str, Any], module: Any, group: str) -> dict[str, Form]:
    named = {kind: getattr(module, kind) for kind in kinds if kind not in LEFT_OUT}
    return {kind: _of_function(kind, function, group) for kind, function in named.items()}


def _of_function(kind: str, function: Callable[..., Any], group: str) -> Form:
    signature = inspect.signature(function)
    types = typing.get_type_hints(function)
    doc = inspect.getdoc(function) or ""
    said = _said(doc, [*signature.parameters])
    fields = [
        _argument(name, types.get(name, Any), parameter.default, said.get(name, ""), sink=group == "sinks")
        for name, parameter in signature.parameters.items()
    ]
    first = re.split(r"(?<=\.)\s|\n\n", doc, maxsplit=1)[0].replace("\n", " ")
    title = kind.replace("_", " ").capitalize()
    return Form(
        kind, title, group, first, "start.md", tuple(fields), (1, 1) if group == "sinks" else (0, 0), () if group == "sinks" else ("",)
    )


def _said(doc: str, names: Sequence[str]) -> dict[str, str]:
    """What a text says of each argument: it begins with its name, or several, and a colon."""
    text = " ".join(doc.split())
    marks = list(re.finditer(r"(?:^|(?<=[.;)] ))((?:\w+, )*\w+): ", text))
    found: dict[str, str] = {}
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        told = text[mark.end() : len(text) if following is None else following.start()].strip()
        for name in mark[1].split(", "):
            if name in names:
                found.setdefault(name, told[:1].upper() + told[1:])
    return found


def _argument(name: str, hint: Any, default: Any, doc: str, *, sink: bool) -> FormField:
    wanted = REQUIRED if default is inspect.Parameter.empty else default
    kinds = [each for each in (get_args(hint) if get_origin(hint) in (UnionType, typing.Union) else (hint,)) if each is not NoneType]
    literal = next((each for each in kinds if get_origin(each) is Literal), None)
    optional = (None,) if default is None else ()
    if literal is not None:
        return FormField(name, "choice", doc, wanted, (*optional, *get_args(literal)))
    if name == "schema":
        return FormField(name, "ddl", doc or "Its columns, such as id bigint, name string.", wanted)
    if name == "options":
        return FormField(name, "settings", doc, wanted, more=True)
    if sink and name in COLUMNS:
        return FormField(name, "column" if kinds == [str] else "columns", doc, wanted)
    for type_, field in ((bool, "flag"), (int, "whole"), (float, "number"), (str, "text")):
        if type_ in kinds:
            return FormField(name, typing.cast(FieldType, field), doc, wanted, more=name in ("retries", "backoff_ms", "seed"))
    return FormField(name, "code", doc, wanted, more=True)


SOURCES: Final[Mapping[str, Form]] = _of_functions(sources.KINDS, sources, "sources")
SINKS: Final[Mapping[str, Form]] = _of_functions(sinks.KINDS, sinks, "sinks")


__all__ = ["FORMS", "REQUIRED", "SINKS", "SOURCES", "Form", "FormField", "forms"]
