"""The entries of a location's journal: what of a run is no function of an address, in its durable form (availability.md, J1).

Two things decide what a run puts out and follow from nothing else: which rows form an epoch (the `Cut`s, protocol I1), and what a plan
changes (its `Content`, V2). The journal is one sequence of objects, each created only if absent, by the driver alone. A completed
checkpoint is an entry, too. An entry says which generation wrote it, with a nonce that no other driver has: who finds a foreign one where
its own should be has been replaced.

An entry comes from a directory that others may be able to write, so nothing in it is believed before its checksum, its number and its
types are right; nothing in it is ever executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple, NoReturn

from evenflow.availability.content import Content, as_int, as_text, content_of, said_content
from evenflow.errors import JournalCorrupt
from evenflow.exchange.section import Record, RowsObject, Share
from evenflow.exchange.shedding import checked
from evenflow.stream.digest import digest_of_json
from evenflow.stream.ids import SiteId

Key = tuple[int, int]
"""(segment, partition) of an ingress partition."""


class Cut(NamedTuple):
    """A record without its rows: where an epoch of an ingress partition ends (I1). Fields as in `Record`; rows: how many the source gave
    for it, those that were left out included, None if that is not known."""

    epoch: int
    stamp: int
    opened: int
    taken: int
    batch_done: bool
    ended: bool
    shares: tuple[Share, ...] = ()
    rows: int | None = None
    objects: tuple[RowsObject, ...] = ()
    keep: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()

    @staticmethod
    def of(record: Record) -> Cut:
        rows = (0 if record.rows is None else record.rows.num_rows) + sum(record.dropped)
        flags, left_out = (record.batch_done, record.ended), (record.keep, record.dropped)
        return Cut(record.epoch, record.stamp, record.opened, record.taken, *flags, record.shares, rows, record.objects, *left_out)


class LeftOut(NamedTuple):
    """What was left out of an ingress partition in epochs whose cuts are gone. epoch: the last one in which something was. kept: rows of
    these epochs that were not left out. dropped: rows, by class of worth."""

    epoch: int
    kept: int
    dropped: tuple[int, ...]

    @staticmethod
    def of(cuts: Sequence[Cut], before: LeftOut | None = None) -> LeftOut | None:
        """before: of earlier epochs. None: of all these nothing was."""
        for cut in cuts:
            if cut.keep:
                gone = sum(cut.dropped)
                found = LeftOut(cut.epoch, (cut.rows or gone) - gone, cut.dropped)
                before = found if before is None else before.with_more(found)
        return before

    def with_more(self, more: LeftOut) -> LeftOut:
        """The same of these and other epochs. A new version of the dataflow may have other classes."""
        dropped = tuple(map(sum, zip_longest(self.dropped, more.dropped, fillvalue=0)))
        return LeftOut(max(self.epoch, more.epoch), self.kept + more.kept, dropped)


@dataclass(frozen=True, slots=True)
class Logged:
    """Cuts that all live members of their ingress partitions hold, ascending and without gaps for each; and plans, in order."""

    cuts: Mapping[Key, tuple[Cut, ...]]
    contents: tuple[Content, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a checkpoint. name: below the location, never used twice. step: of the segment, -1 if of none. rows, bytes: its
    size. digest: of its bytes."""

    name: str
    step: int
    rows: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Piece:
    """What one site has written of one segment. partitions: ascending. facts: what goes along with a copy's state (see `Capture`)."""

    segment: int
    site: int
    partitions: tuple[int, ...]
    facts: Mapping[str, Any]
    objects: tuple[StoredObject, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """Checkpoint `number` is whole: the state of everything as of the end of `epoch`. began_s, ended_s: wall clock, for people only.
    generation: that began it; with the number it says where its objects are. lasts: by sink in the driver, the last epoch with rows up to
    this one, 0 if none had any; none where older versions have written the entry."""

    number: int
    epoch: int
    pieces: tuple[Piece, ...]
    began_s: float = 0.0
    ended_s: float = 0.0
    generation: int = 0
    lasts: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int, int]:
        """(generation, number), which no other one has; by these they are in order."""
        return self.generation, self.number

    @property
    def name(self) -> str:
        """Its place, as people write it."""
        return f"{self.generation}.{self.number}"

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        """All that it names, each once, in the order of its pieces: several sites' partitions may be in one of before."""
        return tuple(dict.fromkeys(stored for piece in self.pieces for stored in piece.objects))

    @property
    def bytes(self) -> int:
        """Of all its objects."""
        return sum([stored.bytes for stored in self.objects])

    @property
    def seconds(self) -> float | None:
        """From its order until it was whole; None where that is not known."""
        return round(self.ended_s - self.began_s, 3) if 0 < self.began_s <= self.ended_s else None


@dataclass(frozen=True, slots=True)
class Begun:
    """A driver has taken the location over. run: the location's id, the same for all generations. dataflow: its name. digest: of what runs,
    in hexadecimal digits. planning: arguments with which the query was planned, so that a restart on another number of sites plans the
    same. ingress: its ingress partitions. content: of the plan that it begins with. restored: the checkpoint of a savepoint that the
    location begins with, in its first entry; None: with nothing, or with what is there. behind: where only checkpoints are journalled
    (durability "no-loss"), the epoch of the one that it goes on from, 0 if from nothing; None: cuts are, before ends have their epochs."""

    run: str
    dataflow: str
    digest: str
    planning: Mapping[str, int | None]
    ingress: tuple[Key, ...]
    content: Content
    restored: Completed | None = None
    behind: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over: its sources have ended and every sink has everything."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person has stopped the run: whoever starts it again goes on, and nobody does so by himself. epoch: the last that is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Drained:
    """A person drains the run: neither this generation nor one that follows takes in any more rows than are taken in by then, and some
    partitions of sources may have ended by that. epoch: the last that is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What all entries up to that of one checkpoint add up to: it stands for them when they are gone (K8). It has a name of its own beside
    the journal, under that entry's number, and is no entry: it says nothing that those before it do not say.

    begun, contents, cuts: as in `Standing`. begins: numbers of all entries with which a generation has begun, ascending; those never go.
    completed: the checkpoint. restored: as in `Standing`, without what it was made of. rows: as in `Standing`, of epochs after the
    checkpoint's. left_out, drained: as in `Standing`.
    """

    begun: Begun
    begins: tuple[int, ...]
    contents: tuple[Content, ...]
    cuts: Mapping[Key, tuple[Cut, ...]]
    completed: Completed
    restored: Completed | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[Key, LeftOut] = field(default_factory=dict)
    drained: bool = False


Matter = Begun | Logged | Completed | Ended | Stopped | Drained | Snapshot


@dataclass(frozen=True, slots=True)
class Entry:
    """number: its place in the journal, from 1. generation, nonce: of the driver that wrote it."""

    number: int
    generation: int
    nonce: str
    matter: Matter = field(compare=False)


def timeless(entry: Entry) -> Entry:
    """The entry without what a driver adds to it where it is written: when a checkpoint began and ended, and what sinks had."""
    matter = entry.matter
    return replace(entry, matter=replace(matter, began_s=0.0, ended_s=0.0, lasts={})) if isinstance(matter, Completed) else entry


JOURNAL: Final = "journal/"
FORMAT: Final = 5
"""Of locations. Versions read this one and those before: in 4 no run was replaced by a version of itself, in 3 no cut said that rows were
left out, in 2 rows that are in no table were written whole each time, in 1 every checkpoint named objects of its own only."""
FORMATS: Final = range(1, FORMAT + 1)
WITHOUT_CUTS: Final = 6
"""Of the entries that say that no cuts are journalled: versions before would miss them, and do not read these."""
WITH_DRAINS: Final = 7
"""Of the entries that say that the run is drained: versions before would read on, and do not read these."""
_KINDS: Final[Mapping[str, type]] = {
    "begun": Begun, "logged": Logged, "completed": Completed, "ended": Ended, "stopped": Stopped, "drained": Drained,
    "snapshot": Snapshot,
}  # fmt: skip


def entry_name(number: int) -> str:
    """Of its object, below the location."""
    return f"{JOURNAL}{number:012d}.json"


def snapshot_name(number: int) -> str:
    """Of the object that has what the entries up to this one add up to."""
    return f"{JOURNAL}{number:012d}.snapshot.json"


# ---------------------------------------------------------------- to bytes and back


def to_bytes(entry: Entry) -> bytes:
    """One line of JSON, with a digest of all the rest of it."""
    kind = next(name for name, made in _KINDS.items() if type(entry.matter) is made)
    said = {
        "format": _format(entry.matter), "number": entry.number, "generation": entry.generation, "nonce": entry.nonce, "kind": kind,
        "matter": _said(entry.matter),
    }  # fmt: skip
    return json.dumps({**said, "digest": digest_of_json(said)}, separators=(",", ":")).encode() + b"\n"


def _format(matter: Matter) -> int:
    """The least that has all that it says."""
    if isinstance(matter, Drained) or (isinstance(matter, Snapshot) and matter.drained):
        return WITH_DRAINS
    begun = matter.begun if isinstance(matter, Snapshot) else matter
    return WITHOUT_CUTS if isinstance(begun, Begun) and begun.behind is not None else FORMAT


def from_bytes(data: bytes, number: int) -> Entry:
    """The inverse. number: where it was found. Raises JournalCorrupt, which says what is wrong, before it believes anything."""
    try:
        said = json.loads(data)
        digest = said.pop("digest")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        _refuse(number, f"it is no entry ({type(error).__name__})")
    if not isinstance(digest, str) or digest != digest_of_json(said):
        _refuse(number, "its digest is not that of what it says")
    if said.get("format") not in (*FORMATS, WITHOUT_CUTS, WITH_DRAINS):
        _refuse(number, f"it is of format {said.get('format')!r}, and this version reads formats {FORMATS.start} to {WITH_DRAINS}")
    try:
        if said["number"] != number:
            _refuse(number, f"it says that it is entry {said['number']!r}")
        return Entry(number, as_int(said["generation"]), as_text(said["nonce"]), _matter(said["kind"], said["matter"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        _refuse(number, f"a field is missing or of another type ({error})")


def snapshot_from(data: bytes, number: int) -> Entry:
    """The snapshot that has this number. Raises JournalCorrupt, as `from_bytes`."""
    entry = from_bytes(data, number)
    if not isinstance(entry.matter, Snapshot):
        _refuse(number, "it is in the place of a snapshot, and is none")
    return entry


def is_newer(data: bytes) -> bool:
    """Whether what cannot be used is of a later format than this version's, and so nobody's fault."""
    try:
        said = json.loads(data)
        digest = said.pop("digest")
        return digest == digest_of_json(said) and type(said["format"]) is int and said["format"] > WITH_DRAINS
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return False


def _refuse(number: int, why: str) -> NoReturn:
    raise JournalCorrupt(f"entry {number} of the journal cannot be used: {why}")


def _said(matter: Matter) -> dict[str, Any]:
    match matter:
        case Begun():
            said: dict[str, Any] = {
                "run": matter.run, "dataflow": matter.dataflow, "digest": matter.digest, "planning": dict(matter.planning),
                "ingress": [list(key) for key in matter.ingress], "content": said_content(matter.content),
            }  # fmt: skip
            if matter.restored is not None:
                said["restored"] = _said(matter.restored)
            if matter.behind is not None:
                said["behind"] = matter.behind
            return said
        case Logged():
            return {"cuts": _said_cuts(matter.cuts), "contents": [said_content(content) for content in matter.contents]}
        case Completed():
            pieces = [
                [p.segment, p.site, list(p.partitions), dict(p.facts), [[o.name, o.step, o.rows, o.bytes, o.digest] for o in p.objects]]
                for p in matter.pieces
            ]
            made = {
                "number": matter.number, "epoch": matter.epoch, "pieces": pieces, "began_s": matter.began_s, "ended_s": matter.ended_s,
                "generation": matter.generation,
            }  # fmt: skip
            return made | {"lasts": dict(matter.lasts)} if matter.lasts else made
        case Ended() | Stopped() | Drained():
            return {"epoch": matter.epoch}
        case Snapshot():
            snapshot: dict[str, Any] = {
                "begun": _said(matter.begun), "begins": list(matter.begins), "cuts": _said_cuts(matter.cuts),
                "contents": [said_content(content) for content in matter.contents], "completed": _said(matter.completed),
                "restored": None if matter.restored is None else _said(matter.restored), "rows": dict(matter.rows),
            }  # fmt: skip
            left_out = [[*key, gone.epoch, gone.kept, list(gone.dropped)] for key, gone in matter.left_out.items()]
            more = {"left_out": left_out} if left_out else {}
            return snapshot | more | ({"drained": True} if matter.drained else {})


def _said_cuts(cuts: Mapping[Key, Sequence[Cut]]) -> list[Any]:
    return [[*key, *_columns(of)] for key, of in cuts.items()]


def _columns(cuts: Sequence[Cut]) -> list[Any]:
    """Epochs follow one another, so the first one says them all."""
    flags = [cut.batch_done + 2 * cut.ended for cut in cuts]
    shares = [[index, *share] for index, cut in enumerate(cuts) for share in cut.shares]
    objects = [[index, *stored] for index, cut in enumerate(cuts) for stored in cut.objects]
    left_out = [[index, list(cut.keep), list(cut.dropped)] for index, cut in enumerate(cuts) if cut.keep]
    return [
        cuts[0].epoch if cuts else 0,
        [c.taken for c in cuts],
        [c.stamp for c in cuts],
        [c.stamp - c.opened for c in cuts],
        flags,
        shares,
        [c.rows for c in cuts],
        *([objects] if objects or left_out else []),
        *([left_out] if left_out else []),
    ]


def _matter(kind: str, said: Mapping[str, Any]) -> Matter:
    if kind == "begun":
        return _begun(said)
    if kind == "logged":
        return Logged(_all_cuts(said["cuts"]), tuple(content_of(content) for content in said["contents"]))
    if kind == "completed":
        return _completed(said)
    if kind == "ended":
        return Ended(as_int(said["epoch"]))
    if kind == "stopped":
        return Stopped(as_int(said["epoch"]))
    if kind == "drained":
        return Drained(as_int(said["epoch"]))
    if kind == "snapshot":
        return _snapshot(said)
    raise ValueError(f"kind {kind!r} is unknown")


def _begun(said: Mapping[str, Any]) -> Begun:
    planning = {as_text(name): None if value is None else as_int(value) for name, value in said["planning"].items()}
    ingress = tuple((as_int(s), as_int(p)) for s, p in said["ingress"])
    restored = None if said.get("restored") is None else _completed(said["restored"])
    behind = None if said.get("behind") is None else as_int(said["behind"])
    run, dataflow, digest = (as_text(said[name]) for name in ("run", "dataflow", "digest"))
    return Begun(run, dataflow, digest, planning, ingress, content_of(said["content"]), restored, behind)


def _snapshot(said: Mapping[str, Any]) -> Snapshot:
    begins, contents = tuple(as_int(number) for number in said["begins"]), tuple(content_of(content) for content in said["contents"])
    if not (begins and contents and list(begins) == sorted(set(begins))):
        raise ValueError("no generation has begun, or numbers of entries do not ascend")
    restored = None if said["restored"] is None else _completed(said["restored"])
    rows = {as_text(name): as_int(epoch) for name, epoch in said["rows"].items()}
    left_out = {
        (as_int(segment), as_int(partition)): LeftOut(
            as_int(epoch), as_int(kept), checked((0,) * len(dropped), tuple(map(as_int, dropped)))[1]
        )
        for segment, partition, epoch, kept, dropped in said.get("left_out", ())
    }
    begun, completed = _begun(said["begun"]), _completed(said["completed"])
    drained = said.get("drained", False) is True
    return Snapshot(begun, begins, contents, _all_cuts(said["cuts"]), completed, restored, rows, left_out, drained)


def _all_cuts(said: Sequence[Any]) -> dict[Key, tuple[Cut, ...]]:
    return {(as_int(row[0]), as_int(row[1])): _cuts(*row[2:]) for row in said}


def _completed(said: Mapping[str, Any]) -> Completed:
    pieces = tuple(_piece(*piece) for piece in said["pieces"])
    number, epoch, generation = as_int(said["number"]), as_int(said["epoch"]), as_int(said["generation"])
    lasts = {as_text(sink): as_int(last) for sink, last in said.get("lasts", {}).items()}
    return Completed(number, epoch, pieces, float(said["began_s"]), float(said["ended_s"]), generation, lasts)


def _cuts(
    first: int,
    taken: Sequence[int],
    stamps: Sequence[int],
    waited: Sequence[int],
    flags: Sequence[int],
    shares: Any,
    counts: Sequence[int | None] | None = None,
    objects: Any = (),
    left_out: Any = (),
) -> tuple[Cut, ...]:
    """counts: of rows; entries of before have none."""
    had = [None] * len(taken) if counts is None else [None if count is None else as_int(count) for count in counts]
    shed = {}
    for at, keep, dropped in left_out:
        if not 0 <= as_int(at) < len(had):
            raise ValueError(f"rows left out of cut {at} of {len(had)}")
        shed[at] = checked(tuple(map(as_int, keep)), tuple(map(as_int, dropped)), had[at])
    of: dict[int, list[Share]] = {}
    for index, batch, task, rows, whole in shares:
        of.setdefault(as_int(index), []).append(Share(as_int(batch), as_int(task), as_int(rows), bool(whole)))
    stored: dict[int, list[RowsObject]] = {}
    for index, *numbers, digest in objects:
        stored.setdefault(as_int(index), []).append(_rows_object([as_int(number) for number in numbers], as_text(digest)))
    columns = zip(taken, stamps, waited, flags, had, strict=True)
    return tuple(
        Cut(
            as_int(first) + index,
            as_int(stamp),
            as_int(stamp) - as_int(wait),
            as_int(count),
            bool(flag & 1),
            bool(flag & 2),
            tuple(of.get(index, ())),
            rows,
            tuple(stored.get(index, ())),
            *shed.get(index, ((), ())),
        )
        for index, (count, stamp, wait, flag, rows) in enumerate(columns)
    )


def _rows_object(numbers: Sequence[int], digest: str) -> RowsObject:
    generation, site, number, first, rows = numbers
    if len(bytes.fromhex(digest)) != 16 or min(numbers) < 0:
        raise ValueError(f"{digest!r:.40} is no digest, or a number is negative")
    return RowsObject(generation, SiteId(site), number, first, rows, digest)


def _piece(segment: int, site: int, partitions: Sequence[int], facts: Mapping[str, Any], objects: Sequence[Any]) -> Piece:
    if not isinstance(facts, dict):
        raise TypeError("facts")
    stored = tuple(
        StoredObject(as_text(name), as_int(step), as_int(rows), as_int(size), as_text(digest)) for name, step, rows, size, digest in objects
    )
    return Piece(as_int(segment), as_int(site), tuple(as_int(p) for p in partitions), facts, stored)
