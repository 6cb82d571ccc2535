"""A store that fails on demand, around a real one."""

from __future__ import annotations

import errno
import os
from typing import Any


class FailingStore:
    """Raises OSError(code) from the named method the next `times` times that its path contains `where`."""

    def __init__(self, store: Any, method: str, code: int, times: int, where: str = "") -> None:
        self._store, self._method, self._code, self.times, self._where = store, method, code, times, where
        self.root = store.root
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def call(*arguments: Any) -> Any:
            if name == self._method and self._where in arguments[0]:
                self.calls += 1
                if self.times > 0:
                    self.times -= 1
                    raise OSError(self._code, os.strerror(self._code), arguments[0])
            return real(*arguments)

        return call


def after(method: str, store: Any, count: int) -> Any:
    """`store`, which dies (EIO for ever) after `count` calls of `method`: a crash in the middle."""

    class Dying(FailingStore):
        def __getattr__(self, name: str) -> Any:
            real = getattr(self._store, name)

            def call(*arguments: Any) -> Any:
                if name == method:
                    self.calls += 1
                    if self.calls > count:
                        raise OSError(errno.EIO, "the machine is gone", arguments[0])
                return real(*arguments)

            return call

    return Dying(store, method, errno.EIO, 0)
