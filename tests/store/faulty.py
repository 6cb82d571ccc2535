"""Stores that lie, lose answers or fail, each around a real one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from evenflow.store.objects import MOST_BYTES, Store


class Around:
    """A store that does as another one does. What derives from it does one thing otherwise."""

    def __init__(self, store: Store) -> None:
        self.store, self.url = store, store.url

    def create(self, name: str, data: bytes) -> None:
        self.store.create(name, data)

    def put(self, name: str, data: bytes) -> None:
        self.store.put(name, data)

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        return self.store.get(name, most)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        return self.store.sizes(prefix)

    def names(self, prefix: str = "") -> list[str]:
        return self.store.names(prefix)

    def delete(self, name: str) -> None:
        self.store.delete(name)

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        return self.store.clear(folder, is_over)


class Replaces(Around):
    """Does not know the condition: the last one wins."""

    def create(self, name: str, data: bytes) -> None:
        self.store.put(name, data)


class LooksFirst(Around):
    """Looks whether there is an object and then makes it. Both writers of a pair look before either writes."""

    def __init__(self, store: Store, together: Callable[[], object]) -> None:
        super().__init__(store)
        self._together = together

    def create(self, name: str, data: bytes) -> None:
        there = name in self.store.names(name)
        if not name.endswith("-0"):
            self._together()
        if there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.store.put(name, data)


class TellsBoth(Around):
    """Refuses nobody and keeps the first one."""

    def create(self, name: str, data: bytes) -> None:
        try:
            self.store.create(name, data)
        except FileExistsError:
            pass


class Forgets(Around):
    """Takes objects and does not have them."""

    def create(self, name: str, data: bytes) -> None:
        pass


class Alters(Around):
    """Gives back other bytes."""

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        data = self.store.get(name, most)
        return data[:-1] + bytes([data[-1] ^ 1])


class ListsNothing(Around):
    def sizes(self, prefix: str = "") -> dict[str, int]:
        return {}


class KeepsDeleted(Around):
    def delete(self, name: str) -> None:
        pass


class Fails(Around):
    """Raises this error from one method, before or after it has done what it does; `times` times. calls: how often it was asked."""

    def __init__(self, store: Store, method: str, error: OSError, times: int = 1, *, done: bool = False) -> None:
        super().__init__(store)
        self.calls, self.left = 0, times

        def failing(*arguments: Any) -> Any:
            self.calls += 1
            if self.left == 0:
                return getattr(store, method)(*arguments)
            self.left -= 1
            if done:
                with suppress(OSError):
                    getattr(store, method)(*arguments)
            raise error

        setattr(self, method, failing)
