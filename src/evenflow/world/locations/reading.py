"""The rows of a box's state in a checkpoint: read by the operator that has written them, without the program.

What a location says of a step is enough to build its operator (`query.recorded`). A partition's state is folded from its objects, as a
restart does it, is taken over by such an operator, and that shows what it keeps. So whoever looks sees what the query goes on with, and no
second reader knows where a word lies. Each chain of objects, what one site has written of the step, is read by itself, a few partitions at
a time: that is how executors share the work.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.errors import CheckpointCorrupt, EvenflowError, OperationRefused, UnknownColumn
from evenflow.kernels.hash import check_words, hash_columns
from evenflow.operator.catalogue import build
from evenflow.operator.operator import Shown, Stateless
from evenflow.operator.user.declared import Field
from evenflow.operator.user.kept_fields import KeptFields
from evenflow.query.recorded import NotRecorded, step_of, type_of, value_of
from evenflow.query.structure import Structure
from evenflow.state.folding import WRONG, states_of
from evenflow.state.keys import IDENTITY
from evenflow.state.objects import Origin
from evenflow.state.page_snapshot import State
from evenflow.store.objects import Store

PART_BYTES: Final = 32 << 20
"""Stored bytes of the partitions that are in memory at a time, unpacked."""
BATCH_ROWS: Final = 65_536
RAW: Final = pa.schema([pa.field("_partition", pa.int32(), False), pa.field("_state", pa.large_binary(), False)])
"""What is shown of a step whose operator cannot be built of what is written down: its bytes."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What one site has written of a step, oldest first. partitions: that it had."""

    objects: tuple[StoredObject, ...]
    partitions: tuple[int, ...]

    def parts(self) -> Iterator[tuple[int, ...]]:
        """Partitions that are read together."""
        size = max(1, len(self.partitions) * PART_BYTES // max(1, sum(each.bytes for each in self.objects)))
        for first in range(0, len(self.partitions), size):
            yield self.partitions[first : first + size]


@dataclass(frozen=True)
class BoxRows:
    """Rows of a box's state. It can be pickled, and be read anywhere from where the store can be reached.

    checkpoint: "generation.number". origin: its step and epoch. said: the step as it is written down. fields: of a processor. chains: what
    there is to read, one by one.
    """

    checkpoint: str
    origin: Origin
    said: Structure
    fields: Sequence[Any]
    chains: tuple[Chain, ...]

    @property
    def kind(self) -> str:
        """Of the step."""
        return str(self.said["kind"])

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the rows. Those of the query have its names; others begin with `_`."""
        shown = operator_of(self.said, self.fields)
        if shown is None:
            return RAW
        return pa.schema([pa.field(each.name, _plain_type(each.type), each.nullable) for each in shown.shown])

    @property
    def keys(self) -> pa.Schema | None:
        """The key columns of a state that has not kept them; None if they are among the columns of the rows, or there are none."""
        if not set(IDENTITY) <= set(self.schema):
            return None
        columns = value_of(self.said["columns"])
        return pa.schema([_plain_field(columns.field(name)) for name in value_of(self.said["params"]["keys"])])

    def batches(self, store: Store, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one chain, by its number. Raises CheckpointCorrupt, which names the object, its box and partitions."""
        chain, held, proven = self.chains[number], dict[str, bytes](), set[str]()
        named = [(each.name, each.digest) for each in chain.objects]
        sizes = {each.name: each.bytes for each in chain.objects}

        def get(name: str) -> bytes:
            if name not in held:
                held[name] = store.get(name, sizes[name])
            return held[name]

        for partitions in chain.parts():
            states = states_of(named, self.origin, partitions, get, proven)
            for partition in sorted(states):
                yield from self._shown(partition, states.pop(partition))

    def all_batches(self, store: Store) -> Iterator[pa.RecordBatch]:
        """The rows of all chains, one after the other."""
        for number in range(len(self.chains)):
            yield from self.batches(store, number)

    def _shown(self, partition: int, state: State) -> Iterator[pa.RecordBatch]:
        # One that has dropped a partition may keep its memory for the next one, so each partition has its own.
        operator = operator_of(self.said, self.fields)
        if operator is None:
            yield pa.RecordBatch.from_arrays([pa.array([partition], pa.int32()), pa.array([bytes(state)], pa.large_binary())], schema=RAW)
            return
        try:
            operator.install(partition, state)
            batch = operator.show(partition)
        except WRONG as error:
            raise CheckpointCorrupt(
                f"the state of box {self.origin.box!r}, partition {partition}, in checkpoint {self.checkpoint} is not what this version "
                f"keeps of a step {self.kind}: {type(error).__name__}: {error}"
            ) from error
        arrays = [column.cast(each.type) if column.type != each.type else column for column, each in zip(batch.columns, self.schema)]
        plain = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        for first in range(0, plain.num_rows, BATCH_ROWS):
            yield plain.slice(first, BATCH_ROWS)


def identified(batch: pa.RecordBatch, keys: pa.Schema) -> pa.RecordBatch:
    """Keys, with the columns by which a state tells them that has not kept them. batch: has columns of these names."""
    columns = [batch.column(batch.schema.get_field_index(each.name)).cast(each.type) for each in keys]
    given = pa.RecordBatch.from_arrays(columns, schema=keys)
    words = [pa.array(made(given, keys.names).view(np.int64)) for made in (hash_columns, check_words)]
    return pa.RecordBatch.from_arrays([*columns, *words], schema=pa.schema([*keys, *IDENTITY]))


def keys_demanded(rows: BoxRows, names: Sequence[str]) -> pa.Schema:
    """The key columns that can be given for a state that has not kept them. names: of those that are given. Raises OperationRefused if it
    has no use for any, UnknownColumn if one is missing."""
    if (wanted := rows.keys) is None:
        raise OperationRefused(f"the state of box {rows.origin.box!r} has its keys itself, if it has any: leave out keys=")
    if lacking := [name for name in wanted.names if name not in names]:
        raise UnknownColumn(f"keys= has no column {lacking[0]!r}; the keys of box {rows.origin.box!r} are {', '.join(wanted.names)}")
    return wanted


def of_keys(rows: BoxRows, table: pa.Table, keys: pa.Table) -> pa.Table:
    """Those rows of a state whose keys are given, with the key columns. Raises what `keys_demanded` does."""
    wanted = keys_demanded(rows, keys.column_names)
    given = keys.select(wanted.names)
    made = pa.Table.from_batches([identified(batch, wanted) for batch in given.to_batches()], schema=pa.schema([*wanted, *IDENTITY]))
    identity = [each.name for each in IDENTITY]
    held, asked = (each.select(identity).to_pandas().reset_index() for each in (table, made))
    found = held.merge(asked.drop_duplicates(identity), on=identity, suffixes=("", "_given"))
    mine, named = (of.take(pa.array(found[at])) for of, at in ((table, "index"), (made, "index_given")))
    columns = {name: named.column(name) for name in wanted.names}
    return pa.table(columns | {name: mine.column(name) for name in table.column_names if name not in identity})


# ---------------------------------------------------------------- which state


def find_rows(made: Completed, program: Structure, box: str, kind: str | None = None) -> BoxRows:
    """What a checkpoint has of a box. kind: of which of its steps, where several have state; None: of the last of them.

    Raises OperationRefused if the box has no state, naming those that have, or none of this kind.
    """
    with_state = list(_with_state(made, program))
    mine = [each for each in with_state if each.origin.box == box]
    if not mine:
        names = list(dict.fromkeys(each.origin.box for each in with_state))
        near = difflib.get_close_matches(box, names, 1)
        known = any(step["box"] == box for segment in program["segments"] for step in segment["steps"])
        what = f"box {box!r} keeps no state" if known else f"there is no box {box!r}"
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise OperationRefused(f"{what}.{hint} Boxes with state are {', '.join(map(repr, names)) or 'none'}")
    chosen = [each for each in mine if kind in (None, each.kind)]
    if not chosen:
        raise OperationRefused(f"box {box!r} has no step {kind!r} with state, but {', '.join(each.kind for each in mine)}")
    return chosen[-1]


def _with_state(made: Completed, program: Structure) -> Iterator[BoxRows]:
    """Every step that keeps state, whether it has some in this checkpoint or not."""
    pieces: dict[int, list[Piece]] = {}
    for piece in made.pieces:
        pieces.setdefault(piece.segment, []).append(piece)
    for segment, of in enumerate(program["segments"]):
        for step, said in enumerate(of["steps"]):
            chains = list(_chains(pieces.get(segment, ()), step))
            fields = _fields(pieces.get(segment, ()), str(said["box"]))
            if chains or operator_of(said, fields) is not None:
                origin = Origin(segment, step, str(said["box"]), made.epoch)
                yield BoxRows(made.name, origin, said, fields, tuple(chains))


def _chains(pieces: Sequence[Piece], step: int) -> Iterator[Chain]:
    for piece in pieces:
        objects = tuple(stored for stored in piece.objects if stored.step == step)
        if objects:
            yield Chain(objects, piece.partitions)


def _fields(pieces: Sequence[Piece], box: str) -> Sequence[Any]:
    """What a processor has declared; nothing of any other box, and where the version that wrote it did not say."""
    return next((fields for piece in pieces if (fields := piece.facts.get("fields", {}).get(box))), ())


# ---------------------------------------------------------------- its operator


def operator_of(said: Structure, fields: Sequence[Any]) -> Any:
    """An operator without state that takes over this step's and shows it; None if there is none, or it keeps nothing. fields: of a
    processor, see `kept_fields.declared`."""
    try:
        if said["kind"] == "process":
            return _of_fields(said, fields) if fields else None
        operator = build(step_of(said))
    except (EvenflowError, NotRecorded, LookupError, TypeError, ValueError, AttributeError):
        return None
    return operator if isinstance(operator, Shown) and not isinstance(operator, Stateless) else None


def _of_fields(said: Structure, fields: Sequence[Any]) -> KeptFields:
    made = {each.name: each for each in fields_of(fields)}
    return KeptFields(value_of(said["columns"]), value_of(said["params"]["keys"]), made)


def fields_of(said: Sequence[Any]) -> tuple[Field, ...]:
    """Of a processor, as `kept_fields.declared` has said them: without what they are where nothing was written."""
    return tuple(Field(name, kind, type_of(text), None if key is None else type_of(key)) for name, kind, text, key in said)


def _plain_field(of: pa.Field) -> pa.Field:
    return of.with_type(_plain_type(of.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of its values, where it is of a dictionary."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(each) for each in kind])
    return kind
