"""Patterns of rows, such as `A B+ (C | D)?`: their grammar, and the program that matches them.

    pattern   = sequence { "|" sequence }
    sequence  = item { item }
    item      = ( variable | "(" pattern ")" ) [ "?" | "*" | "+" | "{n}" | "{n,}" | "{,m}" | "{n,m}" ]

Which of several matches counts is what SQL's MATCH_RECOGNIZE says, and Python's `re`, Perl and everybody who backtracks: quantifiers
take as many rows as they can, of alternatives the first counts, and what stands before has the say over what stands behind.

A program has a state per place of a variable in the pattern, quantifiers written out. A row takes a thread from a state if it can be the
state's variable; `follow` then names the states where the pattern can go on, best first, and ACCEPT where it may end there. So a list of
states in order of preference is all there is to know of the rows since a start (Pike's machine: Cox 2009, "Regular Expression Matching:
the Virtual Machine Approach").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from evenflow.errors import QueryError

ACCEPT: Final = -1
"""In `Program.follow`: the pattern may end here. Nothing stands behind it, because whatever is there would be worse."""

LARGEST_PROGRAM: Final = 256
"""States of a program, at most."""

MOST_VARIABLES: Final = 63
"""Variables of a pattern, at most: a row's are bits of one word."""

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\{\s*\d*\s*(?:,\s*\d*\s*)?\})|(\{-|-\}|\S))")
_QUANTIFIERS: Final[dict[str | None, tuple[int, int | None]]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


@dataclass(frozen=True, slots=True)
class Variable:
    """One row, which can be this variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts, the first that can be."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `least` to `most` times, as often as can be. most: None for any number."""

    part: Node
    least: int
    most: int | None


Node = Variable | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Program:
    """variables: names, in order of first appearance. variable: of each state, as a number in `variables`. first: the states in which a
    match begins, best first. follow: of each state, where the pattern goes on behind its row."""

    variables: tuple[str, ...]
    variable: tuple[int, ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]


def compile_pattern(text: str) -> Program:
    """The program of a pattern. Variables are in capital letters, as SQL has names without quotes.

    Raises QueryError if it is not in the grammar, can match without a row, repeats what can be without a row, or is too large.
    """
    tree = _Reader(text).whole()
    if _empty(tree):
        raise QueryError(f"the pattern {text!r} matches without a row; let at least one of its variables be there in any case")
    return _Compiler(text).program(tree)


class _Token(NamedTuple):
    """One of name, braces and sign is there. at: where it is in the text."""

    name: str | None
    braces: str | None
    sign: str | None
    at: int


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise QueryError(f"the pattern is {text!r}; write variables in the order of their rows, such as 'A B+ C'")
        self._text, self._at = text, 0
        self._tokens = [_Token(found[1], found[2], found[3], found.start(found.lastindex or 0)) for found in _TOKEN.finditer(text)]

    def whole(self) -> Node:
        tree = self._choice()
        if self._at < len(self._tokens):
            raise self._error("does not belong here")
        return tree

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts = [self._item()]
        while self._at < len(self._tokens) and self._tokens[self._at].sign not in ("|", ")"):
            parts.append(self._item())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _item(self) -> Node:
        if self._take("("):
            part = self._choice()
            if not self._take(")"):
                raise self._error("should be a closing parenthesis")
            return self._quantified(part)
        name = self._tokens[self._at].name if self._at < len(self._tokens) else None
        if name is None:
            raise self._error("is not available" if self._sign() in ("^", "$", "{-", "-}") else "should be a variable")
        if name.upper() == "PERMUTE":
            raise self._error("is not available; write the orders as alternatives, (A B | B A)")
        self._at += 1
        return self._quantified(Variable(name.upper()))

    def _quantified(self, part: Node) -> Node:
        if self._at == len(self._tokens):
            return part
        _, braces, sign, _ = self._tokens[self._at]
        if braces is not None:
            least, most = self._braces(braces)
        elif sign in _QUANTIFIERS:
            least, most = _QUANTIFIERS[sign]
        else:
            return part
        if _empty(part):
            raise self._error("repeats what can be without a row; let each round take at least one")
        self._at += 1
        if self._sign() == "?":
            raise self._error("would make the quantifier reluctant, which is not available; quantifiers take as many rows as they can")
        return Repeat(part, least, most)

    def _braces(self, text: str) -> tuple[int, int | None]:
        low, comma, high = text[1:-1].replace(" ", "").partition(",")
        if not low and not high:
            raise self._error("has no number; write {n}, {n,}, {,m} or {n,m}")
        least = int(low or 0)
        most = int(high) if high else None if comma else least
        if most is not None and (most < least or most == 0):
            raise self._error("allows no row; write {n,m} with 0 <= n <= m and m of at least 1")
        if max(least, most or 0) > LARGEST_PROGRAM:
            raise self._error(f"is too large; the pattern may have {LARGEST_PROGRAM} places of variables, counting repetitions")
        return least, most

    def _sign(self) -> str | None:
        return self._tokens[self._at].sign if self._at < len(self._tokens) else None

    def _take(self, sign: str) -> bool:
        found = self._sign() == sign
        self._at += found
        return found

    def _error(self, what: str) -> QueryError:
        """What is wrong with the next token."""
        if self._at == len(self._tokens):
            return QueryError(f"the pattern {self._text!r} ends where there {what}")
        name, braces, sign, at = self._tokens[self._at]
        return QueryError(f"the pattern {self._text!r}: {(name or braces or sign)!r} at {at + 1} {what}")


def _empty(tree: Node) -> bool:
    """Whether it can match without a row."""
    match tree:
        case Variable():
            return False
        case Sequence(parts):
            return all(map(_empty, parts))
        case Choice(parts):
            return any(map(_empty, parts))
        case Repeat(part, least, _):
            return least == 0 or _empty(part)


@dataclass(slots=True)
class _Fork:
    """Where a thread becomes several without taking a row: goes on at each of `ways`, best first."""

    ways: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Take:
    """Where a thread takes a row of a variable and goes on at `then`."""

    variable: int
    then: int


class _Compiler:
    """Lays nodes out from the end of the pattern to its beginning (Thompson 1968), then leaves out the forks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes: list[_Fork | _Take] = [_Fork()]  # The first one is the end of the pattern.
        self._variables: dict[str, int] = {}
        self._states = 0

    def program(self, tree: Node) -> Program:
        for name in _names(tree):
            self._variables.setdefault(name, len(self._variables))
        if len(self._variables) > MOST_VARIABLES:
            raise QueryError(f"the pattern {self._text!r} has {len(self._variables)} variables; it may have {MOST_VARIABLES}")
        begin = self._node(tree, 0)
        takes = {number: node for number, node in enumerate(self._nodes) if isinstance(node, _Take)}
        state = {number: at for at, number in enumerate(takes)}
        return Program(
            variables=tuple(self._variables),
            variable=tuple(take.variable for take in takes.values()),
            first=self._closure(begin, state),
            follow=tuple(self._closure(take.then, state) for take in takes.values()),
        )

    def _node(self, tree: Node, then: int) -> int:
        """Lay out a part in front of `then`; returns where it begins."""
        match tree:
            case Variable(name):
                self._states += 1
                if self._states > LARGEST_PROGRAM:
                    raise QueryError(
                        f"the pattern {self._text!r} is too large; it may have {LARGEST_PROGRAM} places of variables, counting repetitions"
                    )
                return self._add(_Take(self._variables[name], then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._node(part, then)
                return then
            case Choice(parts):
                return self._add(_Fork(tuple(self._node(part, then) for part in parts)))
            case Repeat(part, least, most):
                return self._repeat(part, least, most, then)

    def _repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        begin = then
        if most is None:
            again = _Fork()
            begin = self._add(again)
            again.ways = (self._node(part, begin), then)
        for _ in range((most or least) - least):
            begin = self._add(_Fork((self._node(part, begin), then)))
        for _ in range(least):
            begin = self._node(part, begin)
        return begin

    def _add(self, node: _Fork | _Take) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _closure(self, begin: int, state: dict[int, int]) -> tuple[int, ...]:
        """The states that a thread at a node is in, best first; up to the first way to the end."""
        found: list[int] = []
        seen: set[int] = set()
        waiting = [begin]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if number == 0:
                return (*found, ACCEPT)
            node = self._nodes[number]
            if isinstance(node, _Fork):
                waiting += reversed(node.ways)
            else:
                found.append(state[number])
        return tuple(found)


def _names(tree: Node) -> list[str]:
    match tree:
        case Variable(name):
            return [name]
        case Repeat(part, _, _):
            return _names(part)
        case Sequence(parts) | Choice(parts):
            return [name for part in parts for name in _names(part)]
