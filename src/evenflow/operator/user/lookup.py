"""Lookup: what a service answers about each row's key, as more columns of the row.

The keys of an epoch are asked beside one another (`services.calls`), equal ones once, and the rows come out when all answers are there, in
the order in which they came in. A key of which a part is null is not asked.
"""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import BoxFailed, TypeMismatch
from evenflow.operator.guarded import Letters, described, newest_of, partitions_of
from evenflow.operator.operator import Failing, Stateless
from evenflow.query.kinds.lookup import looked_up_schema
from evenflow.services.calls import Answer, Calls, Manner
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import ddl_of, parse_ddl
from evenflow.stream.values import NOT_OF_TYPE, array_of

Key = tuple[Any, ...]
Values = tuple[Any, ...]
"""An answer's, in the order of its columns."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a key. values: None if there is no such thing. error: why there is no answer, after so many tries."""

    values: Values | None = None
    error: BaseException | None = None
    tries: int = 1


NOTHING: Final = Found()


class Lookup(Stateless, Failing):
    """See the module, and `query.kinds.lookup.Lookup` for the parameters. on_error: rows whose key has no answer are put aside;
    dead_letters: somebody reads them. failed: their partitions, in the last epoch.

    Cost: the service's. Without on_error and nulls, the first key that has no answer raises BoxFailed with what the function raised; a
    function that wants to end the process is raised as it is.
    """

    def __init__(
        self, schema: pa.Schema, *, function: Callable[..., Any], output: str, on: Sequence[str], concurrency: int, timeout_us: int,
        retries: int, backoff_us: int, batch: int | None, cache_us: int, cache_size: int, nulls: bool, on_error: str = "fail",
        dead_letters: bool = False, box: str = "lookup",
    ) -> None:  # fmt: skip
        self._on, self._box, self._batch, self._nulls = tuple(on), box, batch, nulls
        self._answer = parse_ddl(output)
        made = looked_up_schema(schema, self._answer)
        self._letters = Letters(schema, dead_letters) if on_error != "fail" else None
        self.schemas: tuple[pa.Schema, ...] = (made,) if self._letters is None else (made, self._letters.schema)
        self._calls = Calls(function, Manner(concurrency, timeout_us / 1e6, retries, backoff_us / 1e6))
        self._cache_us, self._cache_size = cache_us, cache_size
        self._cache: OrderedDict[Key, tuple[int, Found]] = OrderedDict()

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        keys = self._keys_of(rows)
        found = self._found([key for key in dict.fromkeys(keys) if None not in key], tick)
        known = [found.get(key, NOTHING) for key in keys]
        if self._letters is None:
            self.failed = ()
            return (self._made(rows, known),)
        bad = [at for at, each in enumerate(known) if each.error is not None]
        failed = [(rows.take(np.array([at])), _described(known[at].error)) for at in bad]
        self.failed, self.kept = partitions_of(failed), newest_of(self, failed)
        if bad:
            rows = rows.take(np.setdiff1d(np.arange(rows.count), bad))
            known = [each for each in known if each.error is None]
        return self._made(rows, known), self._letters.of(failed)

    def _keys_of(self, rows: Rows) -> list[Key]:
        return list(zip(*[rows.batch.column(name).to_pylist() for name in self._on], strict=True))

    def _made(self, rows: Rows, known: Sequence[Found]) -> Rows:
        none = (None,) * len(self._answer)
        values = [none if each.values is None else each.values for each in known]
        columns = [array_of([each[at] for each in values], field.type) for at, field in enumerate(self._answer)]
        batch = pa.RecordBatch.from_arrays([*rows.batch.columns, *columns], schema=self.schemas[0])
        return Rows(batch, rows.partition, rows.hash)

    # ------------------------------------------------------------ answers

    def _found(self, keys: Sequence[Key], tick: Tick) -> dict[Key, Found]:
        found = {key: kept for key in keys if (kept := self._remembered(key, tick.stamp)) is not None} if self._cache else {}
        asked = [key for key in keys if key not in found]
        if self._batch is None:
            new = self._asked_one_by_one(asked, tick)
        else:
            new = self._asked_together(asked, self._batch, tick)
        if self._cache_us:
            self._remember(new, tick.stamp)
        return found | new

    def _asked_one_by_one(self, keys: Sequence[Key], tick: Tick) -> dict[Key, Found]:
        found = {}
        for key, answer in zip(keys, self._calls.all(keys, while_all_answer=self._ends_the_run), strict=True):
            if answer is not None:
                found[key] = self._taken(key, answer, answer.value, tick)
        return found

    def _asked_together(self, keys: Sequence[Key], most: int, tick: Tick) -> dict[Key, Found]:
        groups = [keys[at : at + most] for at in range(0, len(keys), most)]
        lists = [([key[0] if len(key) == 1 else key for key in group],) for group in groups]
        found = {}
        for group, (asked,), answer in zip(groups, lists, self._calls.all(lists, while_all_answer=self._ends_the_run), strict=True):
            if answer is not None:
                answers, answer = self._parted(asked, answer)
                for key, value in zip(group, answers, strict=True):
                    found[key] = self._taken(key, answer, value, tick)
        return found

    def _parted(self, asked: Sequence[Any], answer: Answer) -> tuple[Sequence[Any], Answer]:
        """The answer to each of the keys of a call."""
        given = answer.value
        if answer.error is None and isinstance(given, Mapping):
            return [given.get(key) for key in asked], answer
        if answer.error is None and isinstance(given, list | tuple) and len(given) == len(asked):
            return given, answer
        if answer.error is None:
            came = f"{len(given)} answers" if isinstance(given, list | tuple) else f"{type(given).__name__} {given!r:.80}"
            error = TypeMismatch(
                f"box {self._box!r} got {came} for {len(asked)} keys: return a list with an answer for each of them, None where there is "
                "none, or a dict of answers by key"
            )
            answer = Answer(error=error, tries=answer.tries)
        return [None] * len(asked), answer

    @property
    def _ends_the_run(self) -> bool:
        return self._letters is None and not self._nulls

    def _taken(self, key: Key, answer: Answer, value: Any, tick: Tick) -> Found:
        """What an answer says of a key. Raises what ends the run."""
        error = answer.error
        if error is None:
            try:
                return Found(self._values_of(value))
            except TypeMismatch as mismatch:
                error = mismatch
        if isinstance(error, MemoryError) or not isinstance(error, Exception):
            raise error
        if self._letters is not None:
            return Found(error=error, tries=answer.tries)
        if self._nulls:
            return Found(tries=0)
        shown = key[0] if len(key) == 1 else key
        tries = f" in {answer.tries} tries" if answer.tries > 1 else ""
        text = str(error) if isinstance(error, TypeMismatch) else "".join(traceback.format_exception(error))
        raise BoxFailed(self._box, tick.epoch, text, f"has no answer for {shown!r:.80}{tries}") from error

    def _values_of(self, value: Any) -> Values | None:
        """An answer as values of its columns. Raises TypeMismatch."""
        schema = self._answer
        if value is None:
            return None
        if isinstance(value, Mapping) and (len(schema) > 1 or set(value) == set(schema.names)):
            if set(value) != set(schema.names):
                raise self._mismatch(f"a row with the columns {', '.join(map(str, value)) or 'none'}"[:300])
            values = tuple([value[name] for name in schema.names])
        elif len(schema) == 1:
            values = (value,)
        elif isinstance(value, tuple | list) and len(value) == len(schema):
            values = tuple(value)
        else:
            raise self._mismatch(f"{type(value).__name__} {value!r:.120}")
        for field, given in zip(schema, values, strict=True):
            try:
                array_of([given], field.type)
            except NOT_OF_TYPE as error:
                raise self._mismatch(f"{given!r:.120} for {field.name!r} ({error})") from error
            if given is None and not field.nullable:
                raise self._mismatch(f"null for {field.name!r}")
        return values

    def _mismatch(self, came: str) -> TypeMismatch:
        return TypeMismatch(
            f"box {self._box!r} got {came}, but declares output = {ddl_of(self._answer)!r}: return a dict or a tuple of these columns, or "
            "None where there is nothing"
        )

    # ------------------------------------------------------------ what is remembered

    def _remembered(self, key: Key, stamp: int) -> Found | None:
        kept = self._cache.get(key)
        if kept is None or not kept[0] <= stamp < kept[0] + self._cache_us:
            return None
        self._cache.move_to_end(key)
        return kept[1]

    def _remember(self, new: Mapping[Key, Found], stamp: int) -> None:
        """Those that are answers: a service that did not answer is asked again."""
        for key, found in new.items():
            if found.error is None and found.tries:
                self._cache[key] = stamp, found
                self._cache.move_to_end(key)
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)


def _described(error: BaseException | None) -> str:
    assert isinstance(error, Exception)
    return described(error)
