"""Which parameter of a box is wrong: judges say it round what they ask of that one, so that an editor can show it there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from evenflow.errors import QueryError

MARK: Final = "evenflow_parameter"
"""An attribute of an exception that is none of Evenflow's."""


@contextmanager
def about(parameter: str, item: int | None = None) -> Iterator[None]:
    """An error from inside that does not say which parameter is wrong says that it is this one. item: which one of it."""
    try:
        yield
    except QueryError as error:
        error.about(parameter, item)
        raise
    except Exception as error:  # A value of a kind that the judge did not expect.
        if wrong_parameter(error) is None:
            setattr(error, MARK, parameter)
        raise


def wrong_parameter(error: Exception) -> str | None:
    """Which parameter was looked at when something else than a QueryError was raised; None if nobody knows."""
    found: str | None = getattr(error, MARK, None)
    return found
