"""Statements to syntax trees, in Spark's grammar by sqlglot, and places in the text for whatever is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from evenflow.errors import EvenflowError, ExpressionError, OptionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.sql.collated import collated
from evenflow.query.sql.depth import check_depth, flattened, room
from evenflow.query.sql.foreign import hint
from evenflow.query.sql.parser import ExpressionDialect, ExpressionParser

Tree = TypeVar("Tree", bound=exp.Expr)

_PLACED: Final = re.compile(r"line \d+, column \d+: ")
_BOX: Final = re.compile(r"^box '[^']*': ")


class _Parser(ExpressionParser):
    """Spark's grammar, and MATCH_RECOGNIZE, which Spark does not have: as in SQL:2016, with Flink's WITHIN behind the pattern."""

    def _parse_match_recognize(self) -> exp.MatchRecognize | None:
        if not self._match(TokenType.MATCH_RECOGNIZE):
            return None
        begin = self._prev
        self._match_l_paren()
        parts: dict[str, Any] = {"partition_by": self._parse_partition_by(), "order": self._parse_order()}
        if self._match_text_seq("MEASURES"):
            parts["measures"] = self._parse_csv(self._measure)
        parts["rows"] = self._words_until("AFTER", "PATTERN")
        parts["after"] = self._words_until("PATTERN")
        if self._match_text_seq("PATTERN"):
            parts["pattern"] = self._in_parentheses()
        within = self._parse_disjunction() if self._match_text_seq("WITHIN") else None
        if self._match_text_seq("SUBSET"):
            self.raise_error("SUBSET is not available", self._prev)
        if self._match_text_seq("DEFINE"):
            parts["define"] = self._parse_csv(self._parse_name_as_expression)
        self._match_r_paren()
        tree = self.expression(exp.MatchRecognize(**parts, alias=self._parse_table_alias()))
        tree.set("within", within)
        recognized: exp.MatchRecognize = _placed(tree, begin)
        return recognized

    def _parse_lambda(self, alias: bool = False) -> Any:
        """An argument of a function: TABLE t, too, of those that stand in FROM."""
        if self._curr and self._curr.token_type == TokenType.TABLE and self._next and self._next.token_type != TokenType.L_PAREN:
            self._advance()
            return self._parse_table_parts()
        return super()._parse_lambda(alias=alias)

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        return None if self._names_windows() else super()._parse_table_alias(alias_tokens)

    def _parse_query_modifiers(self, this: Any) -> Any:
        made = super()._parse_query_modifiers(this)
        if isinstance(made, exp.Select) and self._names_windows():
            self._advance()
            made.set("windows", self._parse_csv(self._parse_named_window))
            made = super()._parse_query_modifiers(made)
        return made

    def _parse_pipe_syntax_set_operator(self, query: Any) -> Any:
        begin = self._curr
        try:
            return super()._parse_pipe_syntax_set_operator(query)
        except AssertionError:
            self.raise_error("a query behind |> UNION, INTERSECT or EXCEPT stands in parentheses", begin)

    def _names_windows(self) -> bool:
        """Whether WINDOW name AS ( comes: nothing else does, as a name of a table or of a column."""
        first, name, word, opens = (*self._tokens[self._index : self._index + 4], *[None] * 4)[:4]
        return bool(
            first and name and word and opens and first.text.upper() == "WINDOW"
            and word.token_type == TokenType.ALIAS and opens.token_type == TokenType.L_PAREN
        )  # fmt: skip

    def _measure(self) -> exp.Expr | None:
        """An expression, AS a name, perhaps behind RUNNING or FINAL."""
        when = self._match_texts(("FINAL", "RUNNING")) and self._prev.text.upper()
        this = self._parse_disjunction()
        named = self.expression(exp.Alias(this=this, alias=self._parse_id_var())) if self._match(TokenType.ALIAS) else this
        if named is not None and when:
            named.meta["when"] = when
        return named

    def _words_until(self, *ends: str) -> exp.Var | None:
        """The words before the first of `ends`, as one."""
        begin = self._curr
        words = []
        while self._curr and self._curr.text.upper() not in (*ends, "DEFINE", ")"):
            words.append(self._curr.text.upper())
            self._advance()
        return _placed(exp.var(" ".join(words)), begin) if words else None

    def _in_parentheses(self) -> exp.Var:
        """The text between a parenthesis and the one that closes it."""
        begin, depth = self._curr, 0
        self._match_l_paren()
        first = self._curr
        while self._curr and (depth or self._curr.token_type != TokenType.R_PAREN):
            depth += (self._curr.token_type == TokenType.L_PAREN) - (self._curr.token_type == TokenType.R_PAREN)
            self._advance()
        text = "" if self._curr is first else self._find_sql(first, self._prev)
        self._match_r_paren()
        return _placed(exp.Var(this=text), begin)


def _placed(tree: Tree, token: Any) -> Tree:
    """The tree with the place of a token."""
    tree.meta["start"] = token.start
    return tree


class _Dialect(ExpressionDialect):
    """Functions are left as they were written. WINDOW is a word only where it names some: `window` is a function and a column."""

    class Tokenizer(ExpressionDialect.Tokenizer):
        KEYWORDS: ClassVar[Any] = {
            **{word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"},
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    Parser = _Parser


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
            kind = type(error) if isinstance(error, UnknownColumn | TypeMismatch | ExpressionError | OptionError) else QueryError
            raise kind(f"{place}: {_BOX.sub('', str(error))}") from error


def parse_script(text: str) -> Script:
    """The statements of a text, separated by semicolons. QueryError with the place where it is not SQL, or if there is none."""
    if not isinstance(text, str) or not text.strip():
        raise QueryError("the SQL text is empty; write a SELECT, or statements separated by semicolons")
    try:
        with room(text):
            trees = [None if tree is None else collated(flattened(tree)) for tree in sqlglot.parse(text, dialect=_Dialect)]
    except ParseError as error:
        raise QueryError(f"{_message(error)}{hint(text)}") from None
    except EvenflowError:
        raise
    except (SqlglotError, ValueError, ArithmeticError, TypeError, AttributeError, LookupError) as error:  # The library's, on odd texts.
        raise QueryError(f"cannot read the SQL text: {error}; is a quote not closed?") from None
    found = tuple(tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon))
    if not found:
        raise QueryError("the SQL text has no statement; write a SELECT, or statements separated by semicolons")
    for tree in found:
        check_depth(tree, text)
    script = Script(text, found)
    for query in (query for tree in found for query in tree.find_all(exp.Select) if not query.expressions):
        script.fail(query, "SELECT has no columns; name some, or write SELECT *")
    return script


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
