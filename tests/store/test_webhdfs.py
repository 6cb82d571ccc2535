"""A location in HDFS: what is its own beside what every store keeps."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.store.objects import Store


@pytest.mark.conformance
def test_what_a_writer_has_left_is_cleared_if_nobody_writes_it_any_more(webhdfs_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = webhdfs_store
    ask, name = store._ask, "checkpoints/000001/000001/a"

    def dies(method: str, op: str, *more: Any, **said: Any) -> bytes:
        if op in ("RENAME", "DELETE"):
            raise ConnectionError("gone")
        return bytes(ask(method, op, *more, **said))

    with monkeypatch.context() as patch:
        patch.setattr(store, "_ask", dies)
        with pytest.raises(ConnectionError):
            store.create(name, b"state")
    assert store.names() == []
    assert store.clear("checkpoints/", lambda found: found != name) == 0
    assert store.clear("checkpoints/", lambda found: found == name) == 1
    assert store.clear("checkpoints/", lambda found: True) == store.clear("nowhere/", lambda found: True) == 0
