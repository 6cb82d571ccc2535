"""What a query of the corpus is, and the list that each of its modules fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

Mode = Literal["append", "update", "complete"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a query reads. Streams, or the same rows as batch frames; `devices` and `customers` are tables either way."""

    events: Any
    orders: Any
    payments: Any
    impressions: Any
    clicks: Any
    devices: Any
    customers: Any


@dataclass(frozen=True, slots=True)
class Query:
    """build: the query, of frames. mode: of its output. newest: in update mode the columns that name a group, whose last row counts."""

    name: str
    category: str
    build: Callable[[Inputs], Any]
    mode: Mode = "append"
    newest: tuple[str, ...] = ()


class Chapter:
    """Queries of one category, in the order in which they are written down."""

    def __init__(self, category: str) -> None:
        self.category: Final = category
        self.queries: list[Query] = []

    def __call__(self, build: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
        self._add(build, "append", ())
        return build

    def update(self, *newest: str) -> Callable[[Callable[[Inputs], Any]], Callable[[Inputs], Any]]:
        """In update mode; newest: the columns that name a group."""
        return lambda build: self._add(build, "update", newest)

    def complete(self, build: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
        """In complete mode."""
        return self._add(build, "complete", ())

    def _add(self, build: Callable[[Inputs], Any], mode: Mode, newest: tuple[str, ...]) -> Callable[[Inputs], Any]:
        name = build.__name__.replace("_", " ").strip()
        self.queries.append(Query(f"{self.category}: {name}", self.category, build, mode, newest))
        return build


def sql(given: Inputs, text: str) -> Any:
    """The query of a text, over views of the inputs' names."""
    session = given.events.sparkSession
    for name in Inputs.__dataclass_fields__:
        getattr(given, name).createOrReplaceTempView(name)
    return session.sql(text)
