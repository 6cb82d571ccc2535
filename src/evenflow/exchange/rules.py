"""Protocol rules as a table: one row per event and guard, with the id of the rule in the design and the reason in words.

Exactly one row may be enabled for an event; none or two is a bug and raises with the story of the machine. The guard `otherwise` stands
for "no other guard of this event is true", so that no guard has to repeat the others with a "not" in front; an event has at most one row
with it. Such a row is a row like any other: it has its own id, effect and reason, and its firing is counted.

The tables and their rendering in docs/ come from the same rows. Events are per epoch or per message, never per row, so a linear scan is
cheap; for the few that come in every epoch a `Judge` names the one guard that holds, and nothing is scanned.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from evenflow.errors import ProtocolError
from evenflow.exchange import causes

M = TypeVar("M")

STORY_LENGTH = 64


def always(machine: Any, event: Any) -> bool:
    """The guard of a rule that has no condition."""
    return True


def otherwise(machine: Any, event: Any) -> bool:
    """The guard of the row that is enabled where no other row of the event is. The table asks the others; nobody calls this."""
    raise AssertionError("whether no other guard is true is for the table to say")


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """id: rule of the protocol. event: class that triggers it. why: one sentence for the generated table.

    of: where the event only carries something: the class of what it carries that the row is about. None: whatever it carries.
    fires: id and name of the effect, by which its firing is counted: the same id stands in several rows, some of which only ignore.
    heard: name of the event's class, and of that of what it carries. name: of the row, which no other row of its table has.
    told, cause: what the story keeps of an event, and how it is taken out (see `causes`); cause is None if that is nothing.
    """

    id: str
    event: type
    guard: Callable[[M, Any], bool]
    effect: Callable[[M, Any], None]
    why: str
    of: type | None = None
    fires: tuple[str, str] = field(init=False, repr=False, compare=False)
    heard: str = field(init=False, repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)
    told: tuple[str, ...] = field(init=False, repr=False, compare=False)
    cause: Callable[[Any], Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        effect = self.effect.__name__
        heard = f"{self.event.__name__} {self.of.__name__}" if self.of else self.event.__name__
        object.__setattr__(self, "fires", (self.id, effect))
        object.__setattr__(self, "heard", heard)
        object.__setattr__(self, "name", f"{self.id} {heard} {self.guard.__name__}: {effect}")
        object.__setattr__(self, "told", causes.paths(self.event, self.of))
        object.__setattr__(self, "cause", causes.getter(self.told))

    def said(self, values: Any) -> str:
        """A line of a story. values: what `cause` has taken out."""
        return f"{self.id} {self.heard}: {causes.text(self.told, values)}" if self.told else f"{self.id} {self.heard}"


@dataclass(slots=True)
class Story:
    """What a machine went through lately, for the message of an error; and how often each rule fired, for tests.

    lines: row and what it keeps of its event, the oldest first. fired: by id and name of the effect, such as `fired["C4", "drop_copy"]`.
    last: the row that fired last, None before the first event.
    """

    lines: deque[tuple[Rule[Any], Any]] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: Rule[Any] | None = None

    def tell(self, name: str) -> str:
        return "\n".join([f"{name} went through:", *(f"  {rule.said(values)}" for rule, values in self.lines)])


Guarded = tuple[Callable[[M, Any], bool], Rule[M]]

NO_ROWS: Final = ((), None)

Judge = Callable[[M, Any], Callable[[M, Any], bool]]
"""Which of its rows' guards holds for an event, in one look at the machine's state; `otherwise` if none does. A function that names the
guards of all these rows itself, which the table holds; and it must say what they would: `RuleTable.judged_well` compares."""


class RuleTable(Generic[M]):
    """Dispatch of events to the one rule that is enabled.

    kind: the class by which the rows of an event are found: its own, or, where rows say `of`, the class of what it carries. judges: by
    such a class, of events that come often.
    """

    def __init__(self, rules: Iterable[Rule[M]], kind: Callable[[Any], type] = type, judges: Mapping[type, Judge[M]] | None = None) -> None:
        self.rules = tuple(rules)
        self._kind, self._judges = kind, dict(judges or {})
        self._note()

    def _note(self) -> None:
        self._rows = self._by_kind()
        self._judged = {key: (judge, self._by_guard(key, judge)) for key, judge in self._judges.items()}

    def _by_guard(self, key: type, judge: Judge[M]) -> dict[Callable[[M, Any], bool], Rule[M]]:
        """An event's rows, each of which its judge names: one that it did not know would never fire, and nobody would miss it."""
        rows, other = self._rows[key]
        found = dict(rows)
        assert len(found) == len(rows), f"two rows of {key.__name__} have the same guard"
        assert not any(rule.event is key and rule.of for rule in self.rules), f"rows of {key.__name__} go by what it carries"
        found |= {} if other is None else {otherwise: other}
        named = judge.__code__.co_names
        unknown = [rule.name for guard, rule in found.items() if guard.__name__ not in named]
        assert not unknown, f"{judge.__name__} does not name the guards of {unknown}"
        return found

    def swap(self, effect: Callable[[M, Any], None], other: Callable[[M, Any], None]) -> None:
        """Rows with this effect have the other one from now on: a table holds functions, so who changes one must change it here too."""
        self.rules = tuple(replace(rule, effect=other) if rule.effect is effect else rule for rule in self.rules)
        self._note()

    def _by_kind(self) -> dict[type, tuple[tuple[Guarded[M], ...], Rule[M] | None]]:
        return {key: self._of_kind(key) for key in dict.fromkeys(rule.of or rule.event for rule in self.rules)}

    def _of_kind(self, key: type) -> tuple[tuple[Guarded[M], ...], Rule[M] | None]:
        """Rows with a guard of their own, and the one for otherwise. Rows without `of` hold for whatever their event carries."""
        carriers = {rule.event for rule in self.rules if rule.of is key}
        rows = [rule for rule in self.rules if (rule.of or rule.event) is key or (rule.of is None and rule.event in carriers)]
        others = [rule for rule in rows if rule.guard is otherwise]
        assert len(others) < 2, f"{key.__name__} has {len(others)} rows that hold otherwise: {[rule.name for rule in others]}"
        return tuple((rule.guard, rule) for rule in rows if rule.guard is not otherwise), others[0] if others else None

    def apply(self, machine: M, event: Any, story: Story) -> None:
        """Carry out the effect of the enabled rule. Raises ProtocolError if there is not exactly one."""
        judged = self._judged.get(type(event))
        found = self._enabled(machine, event, story) if judged is None else judged[1].get(judged[0](machine, event))
        if found is None:
            raise self._wrong(machine, event, story, "no rule")
        story.fired[found.fires] += 1
        story.last = found
        story.lines.append((found, found.cause and found.cause(event)))
        found.effect(machine, event)

    def judged_well(self, machine: M, event: Any, story: Story) -> bool:
        """Whether the event's judge, if it has one, names the row that a scan of all guards finds. For tests."""
        judged = self._judged.get(type(event))
        return judged is None or judged[1].get(judged[0](machine, event)) is self._enabled(machine, event, story)

    def _enabled(self, machine: M, event: Any, story: Story) -> Rule[M]:
        found: Rule[M] | None = None
        rows, other = self._rows.get(self._kind(event), NO_ROWS)
        for guard, rule in rows:
            if guard(machine, event):
                if found is not None:
                    raise self._wrong(machine, event, story, f"{found.id} ({found.why}) and {rule.id} ({rule.why})")
                found = rule
        if found is None:
            if other is None:
                raise self._wrong(machine, event, story, "no rule")
            found = other
        return found

    def _wrong(self, machine: M, event: Any, story: Story, enabled: str) -> ProtocolError:
        heard = f"{event!r:.300}"
        return ProtocolError(f"{type(event).__name__} enables {enabled}; exactly one must be.\n{story.tell(repr(machine))}\n  ? {heard}")

    def as_markdown(self) -> str:
        """The table for docs/: rule, event, guard, effect, why."""
        lines = ["| rule | event | guard | effect | why |", "| --- | --- | --- | --- | --- |"]
        for rule in self.rules:
            effect, guard = rule.effect.__name__.lstrip("_"), rule.guard.__name__.lstrip("_")
            lines.append(f"| {rule.id} | `{rule.heard}` | {guard} | {effect} | {rule.why} |")
        return "\n".join(lines) + "\n"
