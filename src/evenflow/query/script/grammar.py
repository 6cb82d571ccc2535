"""Statements to syntax trees, in Spark's grammar by sqlglot, and places in the text for whatever is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from evenflow.errors import EvenflowError, ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.sql.parser import ExpressionDialect

_PLACED: Final = re.compile(r"line \d+, column \d+: ")
_BOX: Final = re.compile(r"^box '[^']*': ")


class _Dialect(ExpressionDialect):
    """Functions are left as they were written. There are no named windows, because `window` is a function and a column here."""

    class Tokenizer(ExpressionDialect.Tokenizer):
        KEYWORDS: ClassVar[Any] = {word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}


@dataclass(frozen=True, slots=True)
class Script:
    """The text and its statements."""

    text: str
    statements: tuple[exp.Expr, ...]

    def place(self, tree: exp.Expr) -> str:
        """ "line 3, column 5" of the first thing in a tree, or nothing if it has none."""
        starts = [int(node.meta["start"]) for node in tree.walk() if "start" in node.meta]
        if not starts:
            return ""
        first = min(starts)
        return f"line {self.text.count(chr(10), 0, first) + 1}, column {first - self.text.rfind(chr(10), 0, first)}"

    def error(self, tree: exp.Expr, message: str) -> QueryError:
        """The error with the place of `tree` before the message."""
        place = self.place(tree)
        return QueryError(f"{place}: {message}" if place else message)

    def fail(self, tree: exp.Expr, message: str) -> NoReturn:
        """Raise that error."""
        raise self.error(tree, message)

    @contextmanager
    def at(self, tree: exp.Expr) -> Iterator[None]:
        """Errors from inside that have no place yet get that of `tree`, instead of the name of a box that the user has not written."""
        try:
            yield
        except EvenflowError as error:
            place = self.place(tree)
            if _PLACED.match(str(error)) or not place:
                raise
            kind = type(error) if isinstance(error, UnknownColumn | TypeMismatch | ExpressionError) else QueryError
            raise kind(f"{place}: {_BOX.sub('', str(error))}") from error


def parse_script(text: str) -> Script:
    """The statements of a text, separated by semicolons. QueryError with the place where it is not SQL, or if there is none."""
    if not isinstance(text, str) or not text.strip():
        raise QueryError("the SQL text is empty; write a SELECT, or statements separated by semicolons")
    try:
        trees = sqlglot.parse(text, dialect=_Dialect)
    except ParseError as error:
        raise QueryError(_message(error)) from None
    except SqlglotError as error:
        raise QueryError(f"cannot read the SQL text: {error}; is a quote not closed?") from None
    found = tuple(tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon))
    if not found:
        raise QueryError("the SQL text has no statement; write a SELECT, or statements separated by semicolons")
    return Script(text, found)


def _message(error: ParseError) -> str:
    if not error.errors:
        return f"cannot read the SQL text: {error}"
    first = error.errors[0]
    reason = str(first["description"]).split(" for <class")[0].removesuffix(".")
    end = int(first["col"])
    near = str(first["highlight"])
    return f"line {first['line']}, column {max(end - len(near) + 1, 1)}: cannot read the SQL text: {reason}, near {near!r}"


def unquoted(tree: exp.Expr | None) -> str:
    """The text of a literal, a name or a word."""
    return "" if tree is None else str(tree.name)
