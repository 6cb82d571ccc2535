"""Queries of Structured Streaming, as PySpark users write them: what of them ports by the last line, and equals batch Spark.

What lives here: 200 and more queries by category, the rows they read, and who ports them, runs them in the simulator and compares.

They are written from the categories of Spark's documentation, each as a function of its inputs, so that the very same text is a streaming
query and a batch query. What ports and compares them knows no query by name.
"""

from __future__ import annotations

from typing import Final

from evenflow.bench.corpus import (
    dates,
    decimals,
    dedup,
    grouping,
    higher,
    joins,
    jsons,
    nested,
    selection,
    sessions,
    stages,
    statics,
    texts,
    windows,
    written,
)
from evenflow.bench.corpus.query import Query
from evenflow.errors import QueryError

CHAPTERS: Final = (
    selection.chapter, nested.chapter, windows.chapter, sessions.chapter, joins.chapter, joins.windows, statics.chapter, dedup.chapter,
    decimals.chapter, jsons.chapter, dates.chapter, texts.chapter, higher.chapter, stages.chapter, stages.unions, stages.modes,
    written.chapter, grouping.chapter,
)  # fmt: skip
CORPUS: Final[tuple[Query, ...]] = tuple(query for chapter in CHAPTERS for query in chapter.queries)


def named(text: str | None = None) -> tuple[Query, ...]:
    """Those whose name has a text, whatever the case of its letters; all if none is given. Raises QueryError if there is none."""
    found = tuple(query for query in CORPUS if text is None or text.lower() in query.name.lower())
    if not found:
        categories = ", ".join(chapter.category for chapter in CHAPTERS)
        raise QueryError(f"no query of the corpus has {text!r} in its name; names begin with one of {categories}")
    return found
