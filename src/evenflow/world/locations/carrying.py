"""What of a savepoint's state a program takes over, which may be another one than that which made it: decided, and shown, before anything
is moved.

State belongs to a box. A box of the new program takes over the state of the box with the same given name and the same kind, and never that
of one that merely stands in the same place: a name that the builder has made up by counting means nothing in another program. What keeps
state must mean the same: its parameters, its columns, how rows come to its partitions. A processor may have other code: of it the fields
count that it declares, which may have become more, and wider. Positions belong to a source in the same way, and the watermark of a source
goes with it. What is new begins empty. State that no box takes over is dropped only if that is said.

Windows and sessions of whose rows some were left out under overload are held back behind their box when they are put out. A program that
would hold back others, or none, would put out parts of them: such a box means something else, even if it has no state there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from evenflow.availability.content import Content
from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.errors import LocationError
from evenflow.operator.user.declared import Field
from evenflow.operator.user.widening import Widening, obstacle
from evenflow.query.recorded import value_of
from evenflow.query.structure import Structure, differences
from evenflow.state.objects import Origin, Rewriting
from evenflow.statistics.plain import plain_fields
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.world.locations.inspecting import parts_of, rows_of
from evenflow.world.locations.reading import fields_of

Place = tuple[int, int]
"""(segment, step)"""
Key = tuple[str, str, int]
"""(box, kind, which step of that box and kind)"""
Fate = Literal["kept", "new", "stateless", "dropped", "without a box", "changed"]
Declared = Mapping[str, Sequence[Any]]
"""By box, what a processor declares of its fields: see `kept_fields.declared`."""
CODE: Final = {"processor", "verify"}
"""Parameters of a processor that its state does not depend on."""
OPEN: Final = ("without a box", "changed")
"""What keeps a program from starting."""


@dataclass(frozen=True, slots=True)
class BoxFate:
    """What becomes of a box's state. fate: kept; new (begins empty); stateless; dropped (as was said); without a box (no box of the new
    program takes it over); changed (one would, and means something else). why: of the last two. rows, bytes: of its state there."""

    box: str
    kind: str
    fate: Fate
    rows: int
    bytes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """origin: what an object says that it is of from then on. widening: of the fields in its rows, if these become others."""

    origin: Origin
    widening: Widening | None = None

    @property
    def change(self) -> Rewriting | None:
        return None if self.widening is None else self.widening.widened


@dataclass(frozen=True, slots=True)
class Carried:
    """boxes: the picture. made: the checkpoint as it will be in the new location, with the digests that objects have now. taken: by new
    name, the object that it is made of. rewritten: by new name, what becomes of it, if it is not copied. content: of the first plan."""

    boxes: tuple[BoxFate, ...]
    made: Completed
    taken: Mapping[str, StoredObject] = field(default_factory=dict)
    rewritten: Mapping[str, Rewrite] = field(default_factory=dict)
    content: Content = field(default_factory=lambda: Content(1))

    @property
    def whole(self) -> bool:
        """The program can start from it."""
        return all(each.fate not in OPEN for each in self.boxes)

    def demand(self, url: str) -> None:
        """Raise LocationError if something is in the way, naming each box, and what to do."""
        wrong = [each for each in self.boxes if each.fate in OPEN]
        if not wrong:
            return
        found = "; ".join(f"box {each.box!r} ({each.kind}): {each.why}" for each in wrong)
        names = ", ".join(repr(each.box) for each in wrong)
        raise LocationError(
            f"this program cannot take over all state of savepoint {url}: {found}. Give a box the name that it had (.name(...)), or say "
            f"whose state is to go: drop_state=[{names}], --drop-state"
        )

    def to_json(self) -> dict[str, Any]:
        return {"whole": self.whole, "epoch": self.made.epoch, "boxes": [plain_fields(each) for each in self.boxes]}


def carried(
    made: Completed, content: Content, before: Structure, now: Structure, drop: Collection[str] = (), fields: Declared | None = None
) -> Carried:
    """What `now` takes over of a checkpoint that `before` has made. drop: names of boxes and sources whose state may go. fields: of the
    processors of `now`, by box. Raises LocationError if one of those to drop has no state there that may go."""
    if before == now and not drop:
        return Carried(_verbatim(made, before), made, _taken(made.pieces, {}), {}, content)
    return _Carrying(made, content, before, now, frozenset(drop), fields or {}).carried()


def _verbatim(made: Completed, said: Structure) -> tuple[BoxFate, ...]:
    sizes = _sizes(made)
    boxes = [(step["box"], step["kind"], sizes.get(place, (0, 0))) for place, step in _steps(said)]
    return tuple(BoxFate(box, kind, "kept" if size != (0, 0) else "stateless", *size) for box, kind, size in boxes)


class _Carrying:
    def __init__(
        self, made: Completed, content: Content, before: Structure, now: Structure, drop: frozenset[str], fields: Declared
    ) -> None:
        self._made, self._content, self._before, self._now, self._drop, self._fields = made, content, before, now, drop, fields
        self._sizes = _sizes(made)
        self._were, self._are = _keyed(before), _keyed(now)
        self._used: set[str] = set()

    def carried(self) -> Carried:
        pairs, boxes = self._pairs()
        sources, more = self._sources()
        strangers = sorted(self._drop - self._used)
        if strangers:
            raise LocationError(f"drop_state: there is no state of {strangers[0]!r} in the savepoint that no box takes over")
        pieces, rewritten, taken = self._pieces(pairs, sources)
        ranges = self._by_segment(pairs, self._content.ranges)
        weights = self._by_segment(pairs, self._content.weights)
        came = dict(self._content.newcomers)
        newcomers = tuple((is_, came[was]) for is_, was in sorted(sources.items()) if was in came)
        content = Content(self._content.effective, ranges, weights, self._content.version, newcomers)
        return Carried((*boxes, *more), replace(self._made, pieces=pieces), taken, rewritten, content)

    # ------------------------------------------------------------ boxes

    def _pairs(self) -> tuple[dict[Place, Place], list[BoxFate]]:
        """By new place, the old one whose state is taken over; and what becomes of each box."""
        pairs: dict[Place, Place] = {}
        boxes = []
        for key, was in self._were.items():
            size = self._sizes.get(was)
            is_ = self._of_same_source(was) if key[1] == "watermark" and made_up(*key[:2]) else self._are.get(key)
            why = None if size is None else self._obstacle(key, was, is_)
            why = why or (self._parts(key, was) if is_ is not None else None)
            if size is None and why is None:
                if is_ is not None:
                    boxes.append(BoxFate(key[0], key[1], "stateless", 0, 0))
                continue
            size = size or (0, 0)
            if why is None and is_ is not None:
                pairs[is_] = was
                boxes.append(BoxFate(key[0], key[1], "kept", *size))
            elif key[0] in self._drop:
                self._used.add(key[0])
                boxes.append(BoxFate(key[0], key[1], "dropped", *size))
            else:
                boxes.append(BoxFate(key[0], key[1], "without a box" if is_ is None else "changed", *size, why or ""))
        boxes += [BoxFate(key[0], key[1], "new", 0, 0) for key, is_ in self._are.items() if key not in self._were and is_ not in pairs]
        return pairs, boxes

    def _obstacle(self, key: Key, was: Place, is_: Place | None) -> str | None:
        """Why the state of a box cannot be taken over; None if it can."""
        box, kind, _ = key
        of = self._before["segments"][was[0]]
        if is_ is None:
            return f"no box of kind {kind} has that name"
        to = self._now["segments"][is_[0]]
        if made_up(box, kind) and kind != "watermark":
            return "its name was made up by counting, and may mean another box now; give it one"
        one, other = self._step(self._before, was), self._step(self._now, is_)
        fields = self._fields_of(box, kind, was)
        if fields is not None and (why := obstacle(*fields)) is not None:
            return why
        for name in sorted({*one["params"], *other["params"]} - (CODE if fields is not None else set())):
            for found in differences(name, one["params"].get(name), other["params"].get(name)):
                return found
        for found in differences("its columns", one["columns"], other["columns"]):
            return found
        for name in ("kind", "partitions", "in_use"):
            for found in differences(f"its segment, {name}", of[name], to[name]):
                return found
        for found in differences("how rows come to it", _routes(self._before, was[0]), _routes(self._now, is_[0])):
            return found
        return None

    def _parts(self, key: Key, was: Place) -> str | None:
        """Why results of a box would come out that miss rows; None if none would. The box is in both programs."""
        box, kind, _ = key
        gate = box, "gate", 0
        if kind == "gate" or (at := self._were.get(gate)) is None or at[0] != was[0]:
            return None
        if not any(piece.facts.get("lost") for piece in self._made.pieces if piece.segment == was[0]):
            return None
        to = self._are.get(gate)
        if to is not None and self._step(self._before, at)["params"] == self._step(self._now, to)["params"]:
            return None
        return (
            f"rows before it were left out under overload, and this program would hold back {'nothing' if to is None else 'other results'} "
            "of it, so that parts would come out: let its outputs have their qos, and what else reads its source stay as it was"
        )

    def _fields_of(self, box: str, kind: str, was: Place) -> tuple[Sequence[Field], Sequence[Field]] | None:
        """What a processor had declared, and what it declares; None of what is none, and where one of them is not known."""
        said = [piece.facts.get("fields", {}).get(box) for piece in self._made.pieces if piece.segment == was[0]]
        before, now = next((fields for fields in said if fields), None), self._fields.get(box)
        return None if kind != "process" or not before or now is None else (fields_of(before), fields_of(now))

    def _widening(self, was: Place) -> Widening | None:
        said = self._step(self._before, was)
        fields = self._fields_of(said["box"], said["kind"], was)
        return None if fields is None else Widening.of(*fields, value_of(said["columns"]), value_of(said["params"]["keys"]))

    def _of_same_source(self, was: Place) -> Place | None:
        """A watermark goes with its source, whatever it is called."""
        source = self._before["segments"][was[0]]["source"]
        found = [
            (segment, step)
            for (segment, step), said in _steps(self._now)
            if said["kind"] == "watermark" and source is not None and self._now["segments"][segment]["source"] == source
        ]
        return found[0] if len(found) == 1 else None

    @staticmethod
    def _step(said: Structure, place: Place) -> Structure:
        found: Structure = said["segments"][place[0]]["steps"][place[1]]
        return found

    # ------------------------------------------------------------ sources

    def _sources(self) -> tuple[dict[int, int], list[BoxFate]]:
        """By new ingress segment, the old one whose positions are taken over; and what becomes of sources that are gone or others."""
        were, are = _ingresses(self._before), _ingresses(self._now)
        found: dict[int, int] = {}
        boxes = []
        for name, was in were.items():
            why = None if name in are else "no source has that name"
            for told in differences("", self._before["sources"].get(name), self._now["sources"].get(name)) if why is None else ():
                why = told.lstrip(", :")
                break
            if why is None and self._before["segments"][was]["partitions"] != self._now["segments"][are[name]]["partitions"]:
                why = "it has another number of partitions"
            if why is None:
                found[are[name]] = was
            elif name in self._drop:
                self._used.add(name)
                boxes.append(BoxFate(name, "source", "dropped", 0, 0))
            else:
                boxes.append(BoxFate(name, "source", "without a box" if name not in are else "changed", 0, 0, why))
        boxes += [BoxFate(name, "source", "new", 0, 0) for name in are if name not in were]
        return found, boxes

    # ------------------------------------------------------------ pieces

    def _pieces(
        self, pairs: Mapping[Place, Place], sources: Mapping[int, int]
    ) -> tuple[tuple[Piece, ...], dict[str, Rewrite], dict[str, StoredObject]]:
        rewritten: dict[str, Rewrite] = {}
        taken: dict[str, StoredObject] = {}
        pieces: list[Piece] = []
        for segment, said in enumerate(self._now["segments"]):
            steps = {step: pairs[segment, step] for step in range(len(said["steps"])) if (segment, step) in pairs}
            of = {place[0] for place in steps.values()} | ({sources[segment]} if segment in sources else set())
            parts = [piece for piece in self._made.pieces if piece.segment in of]
            if len(of) > 1:
                raise LocationError(f"segment {said['name']!r} has boxes that ran apart, and their state cannot be brought together")
            if not parts:
                parts = [self._empty(segment, said)]
            for piece in parts:
                objects = tuple(
                    self._object(stored, piece.segment, segment, step, rewritten, taken)
                    for stored in piece.objects
                    for step, place in steps.items()
                    if place == (piece.segment, stored.step)
                )
                facts = dict(piece.facts) | {"digests": []} | self._told(piece, steps)
                if said["kind"] == "ingress" and segment not in sources:
                    facts["logs"] = {str(p): self._log() for p in piece.partitions}
                pieces.append(Piece(segment, piece.site, piece.partitions, facts, objects))
        return tuple(pieces), rewritten, taken

    def _object(
        self, stored: StoredObject, of: int, segment: int, step: int, rewritten: dict[str, Rewrite], taken: dict[str, StoredObject]
    ) -> StoredObject:
        folder, _, leaf = stored.name.rpartition("/")
        name = f"{folder}/{segment:03d}-{step:02d}-{leaf}"
        taken[name] = stored
        widening = self._widening((of, stored.step))
        if (segment, step) != (of, stored.step) or widening is not None:
            origin = Origin(segment, step, self._step(self._now, (segment, step))["box"], self._made.epoch)
            rewritten[name] = Rewrite(origin, widening)
        return replace(stored, name=name, step=step)

    def _told(self, piece: Piece, steps: Mapping[int, Place]) -> dict[str, Any]:
        """What a piece says of its tables and fields, of the steps that they are now. steps: by new step, the old one."""
        rows, fields = piece.facts.get("rows", {}), piece.facts.get("fields", {})
        found = {str(step): rows[str(place[1])] for step, place in steps.items() if place[0] == piece.segment and str(place[1]) in rows}
        return ({"rows": found} if rows else {}) | (
            {"fields": {box: self._fields.get(box, of) for box, of in fields.items()}} if fields else {}
        )

    def _empty(self, segment: int, said: Structure) -> Piece:
        """Of a segment that has nothing to take over: it has seen nothing, and its sources are read from their beginning."""
        partitions = tuple(range(said["partitions"]))
        logs = {str(p): self._log() for p in partitions} if said["kind"] == "ingress" else {}
        facts = {"epoch": self._made.epoch, "watermark": NO_WATERMARK, "logs": logs, "digests": []}
        return Piece(segment, 0, partitions, facts, ())

    def _log(self) -> list[Any]:
        """Of a partition of a source that has not been read: see `PartitionLog.facts_done`."""
        stamps = [int(log[3]) for piece in self._made.pieces for log in piece.facts["logs"].values()]
        return [0, False, [-1, []], max(stamps, default=NO_WATERMARK), []]

    def _by_segment(self, pairs: Mapping[Place, Place], said: Sequence[Any]) -> tuple[Any, ...]:
        if not said:
            return ()
        of = {new[0]: old[0] for new, old in pairs.items()}
        return tuple(said[of[segment]] if segment in of else () for segment in range(len(self._now["segments"])))


# ---------------------------------------------------------------- what structures say


def made_up(box: str, kind: str) -> bool:
    """The builder has called it so: after its kind, with a number where there are several."""
    return re.fullmatch(rf"{re.escape(kind)}(_\d+)?", box) is not None


def _steps(said: Structure) -> Iterator[tuple[Place, Structure]]:
    """Each step, with its place."""
    for segment, of in enumerate(said["segments"]):
        for step, found in enumerate(of["steps"]):
            yield (segment, step), found


def _keyed(said: Structure) -> dict[Key, Place]:
    found: dict[Key, Place] = {}
    count: dict[tuple[str, str], int] = {}
    for place, step in _steps(said):
        name = str(step["box"]), str(step["kind"])
        count[name] = count.get(name, -1) + 1
        found[*name, count[name]] = place
    return found


def _ingresses(said: Structure) -> dict[str, int]:
    return {str(of["source"]): segment for segment, of in enumerate(said["segments"]) if of["source"] is not None}


def _routes(said: Structure, segment: int) -> list[Any]:
    """How rows come to a segment, whatever sends them: keys count, and the order of its inputs does."""
    return [said["arcs"][stream]["route"] for stream in said["segments"][segment]["inputs"]]


def _sizes(made: Completed) -> dict[Place, tuple[int, int]]:
    """(rows, bytes) of each step that has state."""
    found = parts_of(made)
    return {place: (rows_of(place[1], parts), sum(stored.bytes for _, stored in parts)) for place, parts in found.items()}


def _taken(pieces: Sequence[Piece], names: Mapping[str, str]) -> dict[str, StoredObject]:
    return {names.get(stored.name, stored.name): stored for piece in pieces for stored in piece.objects}
