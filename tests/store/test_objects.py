"""What every store keeps, whichever it is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evenflow.errors import LocationError
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import open_store, probe
from tests.drawn import but
from tests.ports import free_port
from tests.store.conftest import opened
from tests.store.faulty import Alters, Fails, Forgets, KeepsDeleted, ListsNothing, LooksFirst, Replaces, TellsBoth


@pytest.fixture(params=but({"webhdfs"}, ["directory", "s3", "webhdfs"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind; this contract is what all that lies in a store relies on."""
    return opened(request, tmp_path)


def test_an_object_is_created_once(store: Store) -> None:
    store.create("journal/000000000001.json", b"one")
    for data in (b"two", b"one"):
        with pytest.raises(FileExistsError):
            store.create("journal/000000000001.json", data)
    assert store.get("journal/000000000001.json") == b"one"


def test_an_object_is_replaced_by_put_alone(store: Store) -> None:
    store.put("a", b"one")
    store.put("a", b"three")
    assert store.get("a") == b"three" and store.sizes() == {"a": 5}


def test_what_is_not_there_is_said_to_be_missing_and_deleting_it_is_fine(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("journal/nothing")
    store.delete("journal/nothing")
    store.create("journal/something", b"")
    assert store.get("journal/something") == b""
    store.delete("journal/something")
    with pytest.raises(FileNotFoundError):
        store.get("journal/something")
    store.create("journal/something", b"again")


def test_names_begin_with_the_letters_and_are_sorted(store: Store) -> None:
    assert store.names() == []
    for name in ("checkpoints/2/b", "checkpoints/1/a", "journal/2", "journal/10", "journalists", "z"):
        store.create(name, name.encode())
    assert store.names() == ["checkpoints/1/a", "checkpoints/2/b", "journal/10", "journal/2", "journalists", "z"]
    assert store.names("journal/") == ["journal/10", "journal/2"]
    assert store.names("journal/1") == ["journal/10"]
    assert store.names("journal") == ["journal/10", "journal/2", "journalists"]
    assert store.sizes("checkpoints/") == {"checkpoints/1/a": 15, "checkpoints/2/b": 15}
    assert store.names("rows/") == [] and store.names("../") == [] and store.names("/") == []


@pytest.mark.parametrize(
    "name", ["", "/etc/hosts", "../a", "a/../b", "a//b", "a/", ".a", "a/.b", "a\0b", "a\nb", "ä", "a" * 300, "a/" * 300 + "a"]
)
def test_a_name_that_could_lead_elsewhere_reaches_no_store(store: Store, name: str) -> None:
    for act in (lambda: store.create(name, b""), lambda: store.put(name, b""), lambda: store.get(name), lambda: store.delete(name)):
        with pytest.raises(OSError, match="no name of an object"):
            act()


def test_no_more_is_read_than_was_allowed(store: Store) -> None:
    store.create("a", bytes(1000))
    assert store.get("a", 1000) == bytes(1000)
    with pytest.raises(TooLarge):
        store.get("a", 999)


def test_an_object_of_some_megabytes_comes_back(store: Store) -> None:
    data = bytes(range(256)) * (1 << 15)
    store.create("checkpoints/large", data)
    assert store.get("checkpoints/large") == data


def test_of_writers_at_the_same_moment_one_has_created_the_object(store: Store) -> None:
    for turn in range(20):
        begin, won = threading.Barrier(4), list[int]()

        def write(number: int, name: str, begin: threading.Barrier, won: list[int]) -> None:
            begin.wait()
            try:
                store.create(name, b"%d" % number)
                won.append(number)
            except FileExistsError:
                pass

        writers = [threading.Thread(target=write, args=(number, f"n/{turn}", begin, won)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len(won) == 1 and store.get(f"n/{turn}") == b"%d" % won[0]


def test_where_everything_has_gone_objects_are_made_again(store: Store) -> None:
    """In folders, if the store has some, that went with what was in them."""
    for name in ("checkpoints/1/1/a", "checkpoints/1/2/a"):
        store.put(name, b"state")
    store.delete("checkpoints/1/1/a")
    assert store.clear("checkpoints/", lambda name: True) == 0
    assert store.names() == ["checkpoints/1/2/a"]
    store.delete("checkpoints/1/2/a")
    assert store.clear("checkpoints/", lambda name: True) == 0 == store.clear("checkpoints/", lambda name: True)
    store.put("checkpoints/1/1/a", b"new")
    store.create("checkpoints/1/2/a", b"newer")
    assert store.sizes("checkpoints/") == {"checkpoints/1/1/a": 3, "checkpoints/1/2/a": 5}


# ------------------------------------------------ the proof


def test_a_good_store_is_proven_and_left_as_it_was(store: Store) -> None:
    store.create("a", b"mine")
    probe(store)
    assert store.sizes() == {"a": 4}


@pytest.mark.parametrize(
    ("lies", "how"),
    [
        (Replaces, "created an object that was there already"),
        (TellsBoth, "created an object that was there already"),
        (Forgets, "created an object that was there already"),
        (Alters, "other bytes than were written"),
        (ListsNothing, "its listing does not have"),
        (KeepsDeleted, "can be read after it was deleted"),
    ],
)
def test_a_store_that_lies_is_refused(store: Store, lies: type, how: str) -> None:
    with pytest.raises(LocationError, match=how):
        probe(lies(store))


def test_a_store_that_looks_before_it_writes_is_refused(store: Store) -> None:
    with pytest.raises(LocationError, match="of two that created an object at the same moment 2 were told"):
        probe(LooksFirst(store, threading.Barrier(2).wait))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "no"), "give the user"),
        (OSError(30, "read only"), "give the user"),
        (OSError(28, "full"), "make room"),
        (OSError(95, "no links"), "cannot create an object only if there is none"),
        (OSError(38, "not implemented"), "cannot create an object only if there is none"),
        (TimeoutError(110, "slow"), "nobody answers"),
        (FileNotFoundError(2, "no bucket"), "create the bucket"),
        (OSError(5, "broken"), "check that the driver"),
    ],
)
def test_a_store_that_cannot_be_used_says_what_to_do(tmp_path: Path, error: OSError, advice: str) -> None:
    """What S3 itself answers is in test_s3.py."""
    with pytest.raises(LocationError, match=advice):
        probe(Fails(open_store(str(tmp_path / "location")), "create", error, 99))


@pytest.mark.parametrize("url", ["gs://bucket/a", "abfs://c/a", "hdfs://name/a", "memory://a", "http://h/a", "ftp://h/a", "nosuch://a"])
def test_stores_of_which_it_is_not_known_are_refused_with_a_list_of_the_others(url: str) -> None:
    with pytest.raises(LocationError, match="s3://bucket/path"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "file://",
        "a\0b",
        "file:///a%00b",
        "file://host/a",
        "s3:///a",
        "s3://b/a?x=1",
        "webhdfs://h",
        "webhdfs:///a",
        "webhdfs://h/a?op=x",
    ],
)
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(LocationError):
        open_store(url)


def test_a_directory_may_be_a_path(tmp_path: Path) -> None:
    open_store(tmp_path).create("a", b"one")
    assert open_store(str(tmp_path)).names() == ["a"]


def test_a_name_node_that_does_not_answer_is_said_to() -> None:
    with pytest.raises(LocationError, match="nobody answers in time"):
        probe(open_store(f"webhdfs://127.0.0.1:{free_port()}/a"))


@pytest.mark.parametrize("url", ["/a", "webhdfs://h/a"])
def test_options_that_a_store_does_not_have_are_refused(url: str) -> None:
    with pytest.raises(LocationError, match="option"):
        open_store(url, {"kerberos": True})
