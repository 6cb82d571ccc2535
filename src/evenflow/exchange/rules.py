"""Protocol rules as a table: one row per event and guard, with the id of the rule in the design and the reason in words.

Exactly one row may be enabled for an event; none or two is a bug and raises with the story of the machine. The tables and their
rendering in docs/ come from the same rows. Events are per epoch or per message, never per row, so a linear scan is cheap.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from evenflow.errors import ProtocolError

M = TypeVar("M")

STORY_LENGTH = 64


def always(machine: Any, event: Any) -> bool:
    """The guard of a rule that has no condition."""
    return True


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """id: rule of the protocol. event: class that triggers it. why: one sentence for the generated table.

    fires: id and name of the effect, by which its firing is counted: the same id stands in several rows, some of which only ignore.
    name: of the row, which no other row of its table has.
    """

    id: str
    event: type
    guard: Callable[[M, Any], bool]
    effect: Callable[[M, Any], None]
    why: str
    fires: tuple[str, str] = field(init=False, repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        effect = self.effect.__name__
        object.__setattr__(self, "fires", (self.id, effect))
        object.__setattr__(self, "name", f"{self.id} {self.event.__name__} {self.guard.__name__}: {effect}")


@dataclass(slots=True)
class Story:
    """What a machine went through lately, for the message of an error; and how often each rule fired, for tests.

    fired: by id and name of the effect, such as `fired["C4", "drop_copy"]`. last: the row that fired last, None before the first event.
    """

    lines: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: Rule[Any] | None = None

    def tell(self, name: str) -> str:
        return f"{name} went through:\n" + "\n".join(f"  {rule} {event}" for rule, event in self.lines)


class RuleTable(Generic[M]):
    """Dispatch of events to the one rule that is enabled."""

    def __init__(self, rules: Iterable[Rule[M]]) -> None:
        self.rules = tuple(rules)
        self._by_event: dict[type, list[Rule[M]]] = {}
        for rule in self.rules:
            self._by_event.setdefault(rule.event, []).append(rule)

    def apply(self, machine: M, event: Any, story: Story) -> None:
        """Carry out the effect of the enabled rule. Raises ProtocolError if there is not exactly one."""
        found: Rule[M] | None = None
        for rule in self._by_event.get(type(event), ()):
            if rule.guard(machine, event):
                if found is not None:
                    raise self._wrong(machine, event, story, f"{found.id} ({found.why}) and {rule.id} ({rule.why})")
                found = rule
        if found is None:
            raise self._wrong(machine, event, story, "no rule")
        story.fired[found.fires] += 1
        story.last = found
        story.lines.append((found.id, found.event.__name__))
        found.effect(machine, event)

    def _wrong(self, machine: M, event: Any, story: Story, enabled: str) -> ProtocolError:
        story.lines.append(("?", f"{event!r:.300}"))
        return ProtocolError(f"{type(event).__name__} enables {enabled}; exactly one must be.\n{story.tell(repr(machine))}")

    def as_markdown(self) -> str:
        """The table for docs/: rule, event, guard, effect, why."""
        lines = ["| rule | event | guard | effect | why |", "| --- | --- | --- | --- | --- |"]
        for rule in self.rules:
            effect, guard = rule.effect.__name__.lstrip("_"), rule.guard.__name__.lstrip("_")
            lines.append(f"| {rule.id} | `{rule.event.__name__}` | {guard} | {effect} | {rule.why} |")
        return "\n".join(lines) + "\n"
