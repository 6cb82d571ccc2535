"""Versions at a location (K11): what boxes do since a run was replaced, for who goes on there.

    versions/GENERATION-NUMBER-DIGEST-PROOF.json  a version, as contents of the journal name it
    versions/begun.json                           the same of the dataflow as it was begun, which no content names

An object has what the dataflow is (`query.structure`; DIGEST is of that), and the parameters of its boxes as `query.serial` writes them;
PROOF is the digest of all its bytes. It is there before an entry names it. Whoever goes on plans it again, with the sources and sinks of
the dataflow that he has started, and takes it only if that is what the digest says. The same dataflow is one whose refreshed tables have
what they had in the newest version, whatever they would have if they were read now. Objects of Evenflow are read by the fixed list of
their kinds; what would be executed, a user's function or a pickle, is taken from the dataflow that was started, or from one that was given
beside it, and from here only by who allows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import pyarrow as pa

from evenflow.availability.content import Content
from evenflow.availability.entries import StoredObject
from evenflow.availability.retained import VERSIONS, program_named, version_name
from evenflow.availability.standing import Standing, begun_with
from evenflow.errors import CodeNotAllowed, EvenflowError, LocationError, ProgramChanged, ProgramMissing, QueryError
from evenflow.plan.layout import Layout
from evenflow.query.footprint import footprint
from evenflow.query.network import Box, Network
from evenflow.query.planner import layout
from evenflow.query.refreshed import contents_in, refreshed_tables, with_contents
from evenflow.query.serial import Consent, box_to_json, params_of
from evenflow.query.structure import Structure, as_before, as_written, first_difference, structure_digest
from evenflow.query.tables import RefreshedTable
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.stream.digest import digest_of, digest_of_json
from evenflow.world.locations.programs import create_once, read_program
from evenflow.world.locations.tables import Contents, fitting, keep_tables, tables_begun_with

MOST_VERSION_BYTES: Final = 1 << 30
NAMED: Final = re.compile(r"\d{6,}-\d{6,}-([0-9a-f]{8,128})-([0-9a-f]{8,128})", re.ASCII)
ENDS: Final = ("source", "sink")
"""Kinds of boxes that go on as they are in every version."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is started. network: of the dataflow. earlier: of those that the run was before. allow_pickle: run the code of a version that is
    read from the location. read: reads refreshed tables, where nothing was begun; raises TableError."""

    network: Network
    earlier: tuple[Network, ...] = ()
    allow_pickle: bool = False
    read: Callable[[], Contents] = dict

    @property
    def tables(self) -> tuple[RefreshedTable, ...]:
        """That are refreshed."""
        return refreshed_tables(self.network)

    @property
    def contents(self) -> dict[str, pa.Table]:
        """What was read of them."""
        return contents_in(self.network)

    def reading(self) -> Drawn:
        """With what its refreshed tables have now. Raises TableError."""
        return self.having(self.read())

    def having(self, contents: Contents) -> Drawn:
        """With these contents of its refreshed tables."""
        return replace(self, network=with_contents(self.network, contents))

    def as_recorded(self, store: Store, standing: Standing, begun: str) -> Drawn:
        """With what its refreshed tables had in the newest version of what runs at a location. begun: digest of the dataflow as it was
        begun there. Raises LocationError. Of a run that has ended that is not there any more, and nobody needs it."""
        newest = _contents(standing)[-1]
        return self.under(store, newest, begun) if self.tables and not (standing.ended and newest.program) else self

    def under(self, store: Store, content: Content, begun: str) -> Drawn:
        """The same for any content."""
        if not content.program:
            return self.having(tables_begun_with(store, begun, self.network))
        try:
            saved = _read(store, content)
        except FileNotFoundError as error:
            raise LocationError(explain(f"read {version_name(content.program)}", store.url, error)) from error
        return self.having(fitting(_tables_in(saved, self.network, store), self.network))


@dataclass(slots=True)
class Programs:
    """The dataflows that a run at a location was, and is, by digest. store: of the location. before: as it was begun. planning: the
    arguments with which it was planned then. given: the digest of the dataflow that was started here."""

    store: Store
    before: Structure
    planning: Mapping[str, Any]
    drawn: Drawn
    given: str = ""
    _begun: str = ""
    _columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _layouts: dict[str, Layout] = field(default_factory=dict)
    _networks: dict[str, Network] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun, self._columns = structure_digest(self.before), _columns_of(self.before)

    @staticmethod
    def begun(store: Store, before: Structure, planning: Mapping[str, Any], drawn: Drawn, planned: Layout) -> Programs:
        """Of a run that was never replaced. planned: as it was begun, which is what is started here."""
        found = Programs(store, before, planning, drawn)
        found.given = found._begun
        found._layouts[found.given], found._networks[found.given] = planned, drawn.network
        return found

    @staticmethod
    def replaced(store: Store, before: Structure, planning: Mapping[str, Any], drawn: Drawn, standing: Standing) -> Programs:
        """Of one that was, as the journal says. Raises what planning raises, and LocationError."""
        drawn = drawn.as_recorded(store, standing, structure_digest(before))
        found = Programs(store, before, planning, drawn)
        for network in drawn.earlier:
            try:
                found._add(_with_boxes(drawn.network, {box.name: box.params for box in network}))
            except EvenflowError:
                pass  # It is another dataflow, and nothing will be found in it.
        found.given = found._add(drawn.network)
        return found

    @property
    def contents(self) -> dict[str, pa.Table]:
        """What its refreshed tables have in the newest version that is known."""
        return self.drawn.contents

    def going_on(self, network: Network) -> Network:
        """A version of what was started here, with the sources and sinks of that."""
        return _with_boxes(self.drawn.network, {box.name: box.params for box in network})

    @property
    def started(self) -> Layout:
        """The layout of the dataflow that was started here."""
        return self._layouts[self.given]

    def laid_out(self, network: Network) -> Layout:
        """As a restart would lay it out, which knows what the run has taken in so far, and what its sources had looked up."""
        planned = layout(network, **self.planning, columns=self._columns)
        return as_before(planned, self.before, self.planning["sites"] or 1)

    def _add(self, network: Network) -> str:
        planned = self.laid_out(network)
        digest = structure_digest(as_written(planned))
        self._layouts[digest], self._networks[digest] = planned, network
        return digest

    # ------------------------------------------------------------ keeping

    def keep_first(self) -> None:
        """Write down what the dataflow begins with, before the journal names it. Raises LocationError."""
        keep_tables(self.store, self._begun, self.drawn.network)

    def keep(self, network: Network, planned: Layout, generation: int, number: int, *, refreshed: bool = False) -> str:
        """Write a version down, and the dataflow as it was begun, if nobody has. planned: the network, as `laid_out`. generation: of the
        driver. refreshed: only tables differ, which are read from there when they are needed: there may be many, and large ones. Returns
        what contents are to call it. Raises LocationError if the store does not take it."""
        said = as_written(planned)
        digest, data = structure_digest(said), _bytes(said, network)
        program = program_named(generation, number, digest, digest_of(data))
        if not refreshed:
            self._layouts[digest], self._networks[digest] = planned, network
        try:
            if (first := self._networks.get(self._begun)) is not None:
                create_once(self.store, version_name(""), _bytes(self.before, first))
            create_once(self.store, version_name(program), data)
        except OSError as error:
            raise LocationError(explain("write the new version down", self.store.url, error)) from error
        return program

    # ------------------------------------------------------------ going on

    def check(self, standing: Standing, dataflow: str) -> None:
        """Raise ProgramChanged, naming the newest version, unless that is what was started here. What refreshed tables had there, they have
        here from then on. Raises LocationError if that cannot be read."""
        newest = _contents(standing)[-1]
        if self._digest(newest) == self.given or self._follows(newest):
            return
        known = _named(newest)
        try:
            differs = first_difference(said_of(self.store, newest, self._begun), as_written(self.started))
        except LocationError:
            differs = None
        this = "as it was begun" if self.given == self._begun else "another one"
        raise ProgramChanged(
            f"dataflow {dataflow!r} at {self.store.url} was replaced: {known} acts from epoch {newest.effective} on, and this is the "
            f"dataflow {this}{'' if differs is None else f' ({differs})'}. Start the dataflow that it was replaced by (evenflow replace, "
            "run.replace). To go on as another one with its state, use a savepoint (--from-savepoint, from_savepoint=) at a location of "
            "its own"
        )

    def _follows(self, content: Content) -> bool:
        """Whether that is what was started here, but for what its refreshed tables have."""
        if not self.contents:
            return False
        drawn, before = self.drawn.under(self.store, content, self._begun), self.given
        digest = self._add(drawn.network)
        if digest != self._digest(content):
            return False
        self.drawn, self.given = drawn, digest
        if before != self._begun:  # Who stands by for months follows many.
            del self._layouts[before], self._networks[before]
        return True

    def acting(self, standing: Standing) -> list[tuple[Content, Layout]]:
        """What is to be made again, and by which layouts, in order; the first one is that of the newest checkpoint's epoch.

        Raises ProgramMissing, which names what is missing, and what to do; LocationError if it was altered.
        """
        return [(content, self._layout(content)) for content in _contents(standing)]

    def _digest(self, content: Content) -> str:
        return _digests(self.store, content)[0] if content.program else self._begun

    def _layout(self, content: Content) -> Layout:
        digest = self._digest(content)
        if digest in self._layouts:
            return self._layouts[digest]
        network, planned = self._read(content, digest)
        if not refreshed_tables(network):
            self._networks[digest], self._layouts[digest] = network, planned
        return planned

    @property
    def _known(self) -> list[Network]:
        """Where the code of versions is looked for. The first one has their sources and sinks."""
        return [self.drawn.network, *self.drawn.earlier, *self._networks.values()]

    def _read(self, content: Content, digest: str) -> tuple[Network, Layout]:
        name, what = version_name(content.program), _named(content)
        url = self.store.url
        try:
            saved = _read(self.store, content)
        except FileNotFoundError:
            self._miss(content, f"{name}, where it was kept, is not there")
        consent = Consent(self.drawn.allow_pickle)
        try:
            network = _with_boxes(self.drawn.network, _params_in(saved, self._known, consent))
            planned = self.laid_out(network)
        except CodeNotAllowed as error:
            self._miss(content, f"it has code of yours, which is not run from a location unless you allow it ({_short(error)})", code=True)
        except _NotKept as error:
            self._miss(content, str(error))
        except Exception as error:  # What was altered may be anything.
            raise LocationError(
                f"{url}: {name}, {what}, cannot be read here ({type(error).__name__}: {_short(error)}). {ALTERED}"
            ) from error
        if structure_digest(as_written(planned)) != digest:
            raise LocationError(f"{url}: {name} is not {what} any more: it was altered, or its functions are others here. {ALTERED}")
        return network, planned

    def _miss(self, content: Content, why: str, *, code: bool = False) -> NoReturn:
        allow = "; or allow it, if you trust whoever can write to the location (allow_pickle=True, --allow-pickle)" if code else ""
        raise ProgramMissing(
            f"{self.store.url}: what came from epoch {content.effective} on has to be made again as {_named(content)} made it, since no "
            f"newer checkpoint is there, and {why}. Give that dataflow beside the one that you start (earlier=[flow], --earlier "
            f"FILE.py){allow}"
        )


ALTERED: Final = "Give the file back, or give that dataflow beside the one that you start (earlier=[flow], --earlier FILE.py)"


class _NotKept(Exception):
    """A box could not be written. Never leaves this module."""


def said_of(store: Store, content: Content, begun: str) -> Structure:
    """What the dataflow is under a content, proven by its digest. begun: that of the dataflow as it was begun. Raises LocationError."""
    if not content.program:
        return read_program(store, begun)
    name = version_name(content.program)
    try:
        said = _read(store, content).get("is")
    except FileNotFoundError as error:
        raise LocationError(f"{store.url}: {name}, which says what the dataflow is since it was replaced, is missing") from error
    if not isinstance(said, dict) or structure_digest(said) != _digests(store, content)[0]:
        raise LocationError(f"{store.url}: {name} says something else than when the run was replaced. {ALTERED}")
    return said


def stored_versions(store: Store, contents: Iterable[Content]) -> list[StoredObject]:
    """The objects of these versions, to be proven. Raises LocationError."""
    programs = dict.fromkeys(content for content in contents if content.program)
    try:
        sizes = store.sizes(VERSIONS) if programs else {}
    except OSError as error:
        raise LocationError(explain("list the versions", store.url, error)) from error
    names = {version_name(content.program): _digests(store, content)[1] for content in programs}
    return [StoredObject(name, 0, 0, sizes.get(name, 0), proof) for name, proof in names.items()]


def _digests(store: Store, content: Content) -> tuple[str, str]:
    """Of what the dataflow is, and of the bytes of what is kept of it. Raises LocationError if that is no name of a version."""
    named = NAMED.fullmatch(content.program)
    if named is None:
        raise LocationError(f"the journal at {store.url} calls a version {content.program[:80]!r}, which is no name of one")
    return named[1], named[2]


def _read(store: Store, content: Content) -> Mapping[str, Any]:
    """What is kept, if it has the bytes that were written. Raises FileNotFoundError, and LocationError."""
    proof, name = _digests(store, content)[1] if content.program else "", version_name(content.program)
    try:
        data = store.get(name, MOST_VERSION_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LocationError(explain(f"read {name}", store.url, error)) from error
    if proof and digest_of(data) != proof:
        raise LocationError(f"{store.url}: {name} has other bytes than were written when the run was replaced. {ALTERED}")
    try:
        saved = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LocationError(f"{store.url}: {name} is no JSON ({type(error).__name__}). {ALTERED}") from error
    if not isinstance(saved, dict) or not isinstance(saved.get("boxes"), list):
        raise LocationError(f"{store.url}: {name} is no version of a dataflow. {ALTERED}")
    return saved


def _bytes(said: Structure, network: Network) -> bytes:
    boxes = [_box(box) for box in network if box.kind not in ENDS]
    return json.dumps({"is": said, "boxes": boxes}, separators=(",", ":")).encode()


def _box(box: Box) -> dict[str, Any]:
    written = {"name": box.name, "is": _print(box)}
    try:
        return written | {"params": box_to_json(box)["params"]}
    except QueryError as error:
        return written | {"not_kept": str(error)}


def _print(box: Box) -> str:
    return digest_of_json(footprint(dict(box.params)))


def _params_in(saved: Mapping[str, Any], networks: Sequence[Network], consent: Consent) -> dict[str, Mapping[str, Any]]:
    """By box, its parameters there. One that is the same in one of the networks is taken from that: its code needs no consent."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in saved["boxes"]:
        name = str(each["name"])
        if networks[0].box(name).kind in ENDS:
            continue
        same = next((box for network in networks for box in network if box.name == name and each["is"] == _print(box)), None)
        if same is not None:
            found[name] = same.params
            continue
        if "params" not in each:
            raise _NotKept(f"box {name!r} could not be written down then: {str(each.get('not_kept'))[:300]}")
        found[name] = params_of(name, each["params"], consent)
    return found


def _tables_in(saved: Mapping[str, Any], network: Network, store: Store) -> dict[str, pa.Table]:
    """What refreshed tables of the network had there, as far as the same boxes were joined with them. Raises LocationError."""
    joined = {box.name for box in network.of_kind("table_join")}
    found: dict[str, pa.Table] = {}
    for each in saved["boxes"]:
        if isinstance(each, dict) and each.get("name") in joined and "table" in each.get("params", ()):
            try:
                table = params_of(str(each["name"]), {"table": each["params"]["table"]}, Consent())["table"]
            except (EvenflowError, TypeError) as error:
                raise LocationError(f"{store.url}: what box {each['name']!r} was joined with cannot be read: {error}. {ALTERED}") from error
            if isinstance(table, RefreshedTable) and isinstance(table.given, pa.Table):
                found[str(table.name)] = table.given
    return found


def _with_boxes(network: Network, params: Mapping[str, Mapping[str, Any]]) -> Network:
    """The network with other parameters of these boxes; its ends stay."""
    boxes = [replace(box, params=params.get(box.name, box.params)) if box.kind not in ENDS else box for box in network]
    return Network(network.name, tuple(boxes))


def _contents(standing: Standing) -> list[Content]:
    return begun_with(standing.contents or [Content(1)], standing.durable)


def was_replaced(standing: Standing) -> bool:
    """Somebody who goes on needs to know of versions."""
    return any(content.version for content in _contents(standing))


def _columns_of(said: Structure) -> dict[str, list[str]]:
    """By source, the columns that the run takes in."""
    found: dict[str, list[str]] = {}
    for segment in said["segments"]:
        if segment["source"] is not None:
            found[str(segment["source"])] = [str(column[0]) for column in segment["columns"]["schema"]]
    return found


def _named(content: Content) -> str:
    return f"version {content.version}" if content.version else "version 0, the dataflow as it was begun,"


def _short(error: Exception) -> str:
    return str(error)[:300]


__all__ = ["Drawn", "Programs", "said_of", "stored_versions", "was_replaced"]
