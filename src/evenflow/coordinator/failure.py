"""What a site says of a failed box, as the error that the user sees."""

from __future__ import annotations

from collections.abc import Iterable

from evenflow.errors import BoxFailed, EvenflowError, NondeterministicBox
from evenflow.site.events import PartFailed


def error_of(fact: PartFailed) -> EvenflowError:
    """The error that a user sees for a failed box: of the class it was raised as, with the box, the epoch and the traceback."""
    if fact.kind == "NondeterministicBox":
        return NondeterministicBox(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    known = {cls.__name__: cls for cls in _subclasses(EvenflowError)}
    cls = known.get(fact.kind, BoxFailed)
    if issubclass(cls, BoxFailed):
        return BoxFailed(fact.box, fact.epoch, fact.user_traceback, fact.reason)
    return cls(f"box {fact.box!r}, epoch {fact.epoch}: {fact.user_traceback}")


def _subclasses(cls: type[EvenflowError]) -> Iterable[type[EvenflowError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
