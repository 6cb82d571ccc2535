"""The errors that users are told to catch are those that can come."""

from __future__ import annotations

import re
from pathlib import Path

from evenflow import errors

SOURCE = Path(errors.__file__).parent


def test_every_error_is_raised_somewhere_or_is_the_class_of_some_that_are() -> None:
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path != Path(errors.__file__)]
    declared = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.EvenflowError)]
    assert len(declared) > 10
    unused = [
        kind.__name__
        for kind in declared
        if not kind.__subclasses__() and not any(re.search(rf"\b{kind.__name__}\b", text) for text in texts)
    ]
    assert unused == []
