"""A file that is made of others appears whole or not at all, in every kind of store that sinks have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs as arrow_fs

from evenflow.store.arrow import ArrowStore
from evenflow.store.files import FileStore
from evenflow.store.local import LocalStore

PARTS = {"beside/a": b"first", "beside/b": b"", "beside/c": b"x" * (3 << 20)}
STORES: dict[str, Callable[[Path], FileStore]] = {
    "local": lambda path: LocalStore(str(path)),
    "arrow": lambda path: ArrowStore(arrow_fs.LocalFileSystem(), str(path)),
    "memory": lambda path: ArrowStore(arrow_fs._MockFileSystem(), "root"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    made = STORES[request.param](tmp_path)
    made.make_folder("beside")
    for path, data in PARTS.items():
        made.put(path, data)
    return made


def sizes() -> list[tuple[str, int]]:
    return [(path, len(data)) for path, data in PARTS.items()]


def test_it_has_the_bytes_of_all_and_its_own_end(store: FileStore) -> None:
    store.put_joined("whole", sizes(), b"end", "beside")
    assert store.get("whole") == b"".join(PARTS.values()) + b"end"
    assert [store.end("whole", count) for count in (0, 4)] == [b"", b"xend"]
    assert store.end("beside/a", 100) == b"first"
    assert store.names("beside") == ["a", "b", "c"]


def test_one_that_is_there_is_not_replaced(store: FileStore) -> None:
    store.put("whole", b"mine")
    with pytest.raises(FileExistsError):
        store.put_joined("whole", sizes(), b"end", "beside")
    assert store.get("whole") == b"mine"
    assert store.names("beside") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("last", "error"), [(("beside/d", 1), FileNotFoundError), (("beside/a", 6), OSError)], ids=["missing", "another size"]
)
def test_nothing_is_left_of_one_whose_parts_are_not_there(store: FileStore, last: tuple[str, int], error: type[OSError]) -> None:
    with pytest.raises(error, match=last[0]):
        store.put_joined("whole", [*sizes(), last], b"end", "beside")
    assert not store.exists("whole")
    assert store.names("beside") == ["a", "b", "c"]
