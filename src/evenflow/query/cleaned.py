"""What DataFrames of PySpark do with many columns at once: fill nulls or leave them out, replace values, rename, unite by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Self, TypeVar

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import QueryError
from evenflow.query.columns import Nulls
from evenflow.query.given import names_of, spelled
from evenflow.query.grouped import grouped_by
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.judging import known
from evenflow.query.shaping import ShapedStream
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.types import name_of
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import is_number, quoted, type_name

S = TypeVar("S", bound="CleanedStream")

Plain = bool | int | float | str
_KINDS: Final[tuple[tuple[type | tuple[type, ...], Callable[[pa.DataType], bool]], ...]] = (
    (bool, pa.types.is_boolean),
    ((int, float), is_number),
    (str, lambda kind: bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))),
)


class CleanedStream(ShapedStream):
    """Columns cleaned up, as PySpark's DataFrames do it."""

    def distinct(self) -> Self:
        """Each row once, for ever; of results that change, as long as it is there: a changelog."""
        if not is_changelog(self.schema):
            return self.drop_duplicates()
        names = [name for name in self.columns if name != CHANGE]
        times = "_times" + "_" * max(map(len, names))
        made = grouped_by(self, names).agg(f"count(*) as {quoted(times)}", mode="changelog")
        return made._then("select", {"columns": tuple((name, name) for name in (*names, CHANGE))})

    def fillna(self, value: Plain | Mapping[str, Plain], subset: str | Sequence[str] | None = None) -> Self:
        """Values in the place of nulls, and of NaN. value: for the columns of its kind (numbers, texts, booleans), or by the column's name.

        subset: only these columns; those of another kind are left as they are, as in Spark. Raises QueryError, UnknownColumn.
        """
        if isinstance(value, Mapping):
            given = {self._field("fillna", name).name: each for name, each in value.items()}
        else:
            given = dict.fromkeys(self._of_kind("fillna", value, subset), value)
        return self._with({name: f"coalesce({self._there(name)}, {self._literal('fillna', name, each)})" for name, each in given.items()})

    def dropna(self, how: Literal["any", "all"] = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Self:
        """Rows without nulls, and without NaN. how: "all" leaves out only those in which nothing else is.

        thresh: how many values a row must have to stay, in place of `how`. subset: only these columns count.
        """
        if not isinstance(how, str) or how not in ("any", "all"):
            raise QueryError(f"box 'dropna': how is {how!r:.60}; it must be 'any' or 'all'")
        if thresh is not None and (not isinstance(thresh, int) or isinstance(thresh, bool)):
            raise QueryError(f"box 'dropna': thresh is {thresh!r:.60}; it must be a whole number, or None")
        if not (names := self._subset("dropna", subset)):
            return self
        least = thresh if thresh is not None else len(names) if how == "any" else 1
        there = [f"{self._there(name)} IS NOT NULL" for name in names]
        if least == len(names):
            condition = " AND ".join(there)
        else:
            condition = f"{' + '.join(f'CAST({each} AS INT)' for each in there)} >= {least:d}"
        return self._then("filter", {"condition": condition})

    def replace(self, to_replace: Any, value: Any = None, subset: str | Sequence[str] | None = None) -> Self:
        """Values in the place of others: `replace("a", "b")`, `replace([1, 2], 3)`, `replace({"a": "b", "c": None})`.

        In the columns of their kind, numbers, texts or booleans, as in Spark. subset: only these columns.
        """
        if isinstance(to_replace, Mapping):
            pairs = list(to_replace.items())
        else:
            old = list(to_replace) if isinstance(to_replace, list | tuple) else [to_replace]
            new = list(value) if isinstance(value, list | tuple) else [value] * len(old)
            if len(old) != len(new):
                raise QueryError(f"box 'replace': {len(old)} values are replaced by {len(new)}; give as many, or one for all")
            pairs = list(zip(old, new, strict=True))
        if not pairs:
            return self
        made = {}
        for name in self._of_kind("replace", pairs[0][0], subset):
            cases = (
                f"WHEN {quoted(name)} = {self._literal('replace', name, a)} THEN {self._literal('replace', name, b)}" for a, b in pairs
            )
            made[name] = f"CASE {' '.join(cases)} ELSE {quoted(name)} END"
        return self._with(made)

    @property
    def na(self) -> Cleaning[Self]:
        """`na.fill`, `na.drop` and `na.replace` as in PySpark."""
        return Cleaning(self)

    def with_columns_renamed(self, names: Mapping[str, str]) -> Self:
        """All columns, some of them under other names. names: from those that they have. Raises QueryError, UnknownColumn."""
        if not isinstance(names, Mapping) or not all(isinstance(each, str) for pair in names.items() for each in pair):
            raise QueryError(f"box 'with_columns_renamed': names are {names!r:.60}; give a dictionary from names to names")
        new = {self._field("select", name).name: given for name, given in names.items()}
        return self._selecting([(new.get(name, name), name) for name in self.columns])

    withColumnsRenamed = with_columns_renamed

    def to_df(self, *names: str) -> Self:
        """All columns under these names, in their order."""
        given = names_of(self.flow.free("select"), "to_df", names)
        if len(given) != len(self.columns):
            raise QueryError(f"box 'to_df': {len(given)} names for {len(self.columns)} columns, {', '.join(self.columns)}")
        return self._selecting([*zip(given, self.columns, strict=True)])

    toDF = to_df

    def transform(self, function: Callable[..., S], *arguments: Any, **named: Any) -> S:
        """What a function makes of this stream, so that calls stand one behind the other. Raises what it raises, and QueryError."""
        if not callable(function):
            raise QueryError(f"transform: function is {function!r:.60}; give a function of a stream")
        return function(self, *arguments, **named)

    def union_by_name(self, other: Self, allow_missing_columns: bool = False, *, name: str | None = None) -> Self:
        """The rows of both streams, whose columns have the same names in any order.

        allow_missing_columns: what only one of them has is null in the other's rows. Raises QueryError, TypeMismatch.
        """
        if not isinstance(other, HandledStream):
            raise QueryError(f"box {name or 'union'!r} unites streams, not {type(other).__name__} {other!r:.60}")
        theirs = {spelled(column, self.columns): column for column in other.columns}
        fields = {**{name: other.schema.field(column) for name, column in theirs.items()}, **{field.name: field for field in self.schema}}
        names = list(dict.fromkeys([*self.columns, *theirs]))
        missing = [each for each in names if not (each in self.columns and each in theirs)]
        if missing and not allow_missing_columns:
            these = ", ".join(map(repr, missing))
            raise QueryError(f"box {name or 'union'!r}: only one of the streams has {these}; say allow_missing_columns=True to have nulls")
        sides = [
            side._then("select", {"columns": tuple((n, own[n] if n in own else Nulls(type_name(fields[n].type))) for n in names)})
            for side, own in ((self, dict(zip(self.columns, self.columns, strict=True))), (other, theirs))
        ]
        return self._drawn("union", {}, sides, name, "union")

    def unionByName(self, other: Self, allowMissingColumns: bool = False) -> Self:
        """`union_by_name`, as PySpark has it."""
        return self.union_by_name(other, allowMissingColumns)

    # ------------------------------------------------ pieces

    def _field(self, what: str, name: str) -> pa.Field:
        return known(self.flow.free(what), spelled(name, self.columns), self.schema)

    def _subset(self, what: str, subset: str | Sequence[str] | None) -> list[str]:
        if subset is None:
            return [name for name in self.columns if name != CHANGE]
        return [self._field(what, name).name for name in names_of(what, "subset", subset)]

    def _of_kind(self, what: str, value: Any, subset: str | Sequence[str] | None) -> list[str]:
        """The columns that may have such a value."""
        fits = next((fits for kind, fits in _KINDS if isinstance(value, kind)), None)
        if fits is None:
            raise QueryError(f"box {what!r}: {value!r:.60} is no number, text or boolean")
        return [name for name in self._subset(what, subset) if fits(self.schema.field(name).type)]

    def _there(self, name: str) -> str:
        """The column, null where it is NaN."""
        if not pa.types.is_floating(self._field("na", name).type):
            return quoted(name)
        return f"CASE WHEN NOT isnan({quoted(name)}) THEN {quoted(name)} END"

    def _literal(self, what: str, name: str, value: Any) -> str:
        """A value as one of the column's type."""
        kind = name_of(self.schema.field(name).type)
        if value is None:
            return f"CAST(NULL AS {kind})"
        if not isinstance(value, bool | int | float | str):
            raise QueryError(f"box {what!r}: {value!r:.60} is no number, text or boolean")
        if isinstance(value, float):
            return f"CAST(CAST('{value!r}' AS DOUBLE) AS {kind})"
        return f"CAST({to_sql(exp.Literal.string(value)) if isinstance(value, str) else value} AS {kind})"

    def _with(self, made: Mapping[str, str]) -> Self:
        return self._then("select", {"columns": tuple((name, made.get(name, name)) for name in self.columns)})


@dataclass(frozen=True, slots=True)
class Cleaning(Generic[S]):
    """What `stream.na` has."""

    stream: S

    def fill(self, value: Plain | Mapping[str, Plain], subset: str | Sequence[str] | None = None) -> S:
        """See `fillna`."""
        return self.stream.fillna(value, subset)

    def drop(self, how: Literal["any", "all"] = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> S:
        """See `dropna`."""
        return self.stream.dropna(how, thresh, subset)

    def replace(self, to_replace: Any, value: Any = None, subset: Iterable[str] | None = None) -> S:
        """See `CleanedStream.replace`."""
        return self.stream.replace(to_replace, value, None if subset is None else list(subset))


__all__ = ["CleanedStream", "Cleaning"]
