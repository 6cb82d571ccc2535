"""A location in a directory, for real: writers that are killed, full and read-only disks, two processes for one name, traps of others."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evenflow.errors import LocationError
from evenflow.store.directory import FORCED_BYTES, DirectoryStore
from evenflow.store.opening import open_store, probe

SIZE = 300_000


def run(text: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process of its own that runs this text, with the store of the directory that is its first argument."""
    head = "import os, sys\nfrom evenflow.store.directory import DirectoryStore\nstore = DirectoryStore(sys.argv[1])\n"
    command = [*before, sys.executable, "-c", head + text, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole(data: bytes) -> bool:
    """Each object of these tests is one letter, so often."""
    return len(data) == SIZE and data == data[:1] * SIZE


def test_a_large_object_is_forced_to_the_disk_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system with a log all that is not on the disk goes before the next small file that is forced there."""
    unforced, most = 0, 0

    def write(file: int, data: memoryview, real: Callable[[int, memoryview], int] = os.write) -> int:
        nonlocal unforced, most
        wrote = real(file, data[:100_000])
        unforced += wrote
        most = max(most, unforced)
        return wrote

    def forced(file: int, real: Callable[[int], None] = os.fdatasync) -> None:
        nonlocal unforced
        real(file)
        unforced = 0

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fdatasync", forced)
    data = os.urandom(3_000_001)
    DirectoryStore(str(tmp_path / "location")).put("checkpoints/1", data)
    assert DirectoryStore(str(tmp_path / "location")).get("checkpoints/1") == data
    assert most == FORCED_BYTES


# ------------------------------------------------ crashes

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "mkdir")

DIES_AT_A_STEP = f"""
import signal
from pathlib import Path
def write(root, left):
    def stepped(real):
        def step(*a, **k):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return real(*a, **k)
        return step
    real = os.write
    os.write = lambda file, data: real(file, data[:100_000])  # In several pieces.
    for name in {STEPS!r}:
        setattr(os, name, stepped(getattr(os, name)))
    store = DirectoryStore(root)
    store.create("journal/1", b"a" * {SIZE})
    store.put("journal/0", b"b" * {SIZE})
    os._exit(0)
for step in range(100):
    root = os.path.join(sys.argv[1], str(step))
    DirectoryStore(root).create("journal/0", b"z" * {SIZE})
    child = os.fork() or write(root, step)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    if code == 0:
        break
"""


def test_a_writer_that_is_killed_between_any_two_steps_leaves_whole_objects_alone(tmp_path: Path) -> None:
    with run(DIES_AT_A_STEP, str(tmp_path)) as writers:
        out, err = writers.communicate()
    assert writers.returncode == 0, err
    codes, seen, left = [int(line) for line in out.split()], set(), 0
    for step, code in enumerate(codes):
        store = DirectoryStore(str(tmp_path / str(step)))
        found = {name: store.get(name) for name in store.names()}
        assert all(whole(data) for data in found.values()), step
        assert list(found) in (["journal/0"], ["journal/0", "journal/1"])
        seen.add((code, len(found), found["journal/0"][:1]))
        # Whatever the dead one has left does not stop the next writer, who is told the truth.
        if len(found) == 1:
            store.create("journal/1", b"c" * SIZE)
        with pytest.raises(FileExistsError):
            store.create("journal/1", b"d" * SIZE)
        assert store.clear("journal/", lambda name: name not in ("journal/0", "journal/1")) == 0, "who writes another object may live"
        left += store.clear("", lambda name: name in ("journal/0", "journal/1"))
        assert sorted(os.listdir(tmp_path / str(step) / "journal")) == ["0", "1"]
    assert left > 0
    assert seen == {(-signal.SIGKILL, 1, b"z"), (-signal.SIGKILL, 2, b"z"), (-signal.SIGKILL, 2, b"b"), (0, 2, b"b")}


WRITES_ON = f"""
number = 0
while True:
    number += 1
    store.create(f"journal/{{number:06d}}", bytes([97 + number % 26]) * {SIZE})
    print(number, flush=True)
"""


def test_nothing_torn_is_ever_seen_of_a_writer_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    for turn in range(5):
        with run(WRITES_ON, str(tmp_path / str(turn))) as writer:
            assert writer.stdout is not None
            told = int(writer.stdout.readline())
            while told < 3 + turn:
                assert all(whole(store.get(name)) for name in store.names(f"{turn}/"))
                told = int(writer.stdout.readline())
            writer.kill()
            told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        names = store.names(f"{turn}/")
        assert all(whole(store.get(name)) for name in names)
        assert len(names) - told in (0, 1), "what was told is there"


# ------------------------------------------------ two at once

CREATES_ALL = """
won = 0
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    try:
        store.create(f"journal/{number:06d}", sys.argv[3].encode() * 100)
        won += 1
    except FileExistsError:
        pass
print(won)
"""


def test_of_two_processes_exactly_one_creates_each_of_a_thousand_objects(tmp_path: Path) -> None:
    names = 1000
    writers = [run(CREATES_ALL, str(tmp_path), str(names), who) for who in "ab"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    won = [int(writer.communicate()[0]) for writer in writers]
    store = DirectoryStore(str(tmp_path))
    objects = [store.get(name) for name in store.names()]
    assert len(objects) == names == sum(won)
    assert [objects.count(who * 100) for who in (b"a", b"b")] == won
    assert not list(tmp_path.glob("journal/.*")), "no writer has left anything"


# ------------------------------------------------ folders that go

OLD, MADE = "checkpoints/000001/000004/a", "checkpoints/000001/000005/a"


def test_folders_in_which_nothing_is_left_go_if_nobody_writes_there_any_more(tmp_path: Path) -> None:
    store, asked = DirectoryStore(str(tmp_path / "location")), list[str]()
    for name in (OLD, MADE, "checkpoints/000002/000001/a", "checkpoints/000003/000001/a"):
        store.put(name, b"state")
        if name != MADE:
            store.delete(name)
    root = tmp_path / "location" / "checkpoints"
    (root / "away").symlink_to(root / "000003")
    (root / ".hidden").mkdir()

    def is_over(name: str) -> bool:
        asked.append(name)
        return not name.startswith("checkpoints/000003/")

    assert store.clear("checkpoints/", is_over) == 0, "files are counted"
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == [".hidden", "000001", "000001/000005", "000001/000005/a", "000003", "000003/000001", "away"]
    assert sorted(asked)[:3] == ["checkpoints/000001/", "checkpoints/000001/000004/", "checkpoints/000001/000005/"]
    assert store.clear("checkpoints/000003/000001/", lambda name: True) == 0
    assert (root / "000003" / "000001").is_dir(), "what is below the folder goes, and not itself"


@pytest.mark.parametrize("write", [DirectoryStore.create, DirectoryStore.put])
def test_who_writes_into_a_folder_while_it_is_removed_makes_it_again(
    write: Callable[[DirectoryStore, str, bytes], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a driver that was replaced, and does not know it yet, loses nothing that it is told was written. Method: another sweeps before
    each step of a writer, one time each; in between a folder is there, open, and without a name."""
    swept, at = 0, -1

    def stepped(real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            nonlocal at, swept
            at -= 1
            if at == -1:
                before = len(list(root.rglob("*")))
                sweeper.clear("", lambda name: name.endswith("/"))
                swept += len(list(root.rglob("*"))) < before
            return real(*arguments, **named)

        return step

    for turn in range(100):
        root = tmp_path / str(turn)
        sweeper, store = DirectoryStore(str(root)), DirectoryStore(str(root))
        store.put(OLD, b"old")
        store.delete(OLD)
        at = turn
        with monkeypatch.context() as patch:
            for name in (*STEPS, "close"):
                patch.setattr(os, name, stepped(getattr(os, name)))
            write(store, OLD, b"state")
        assert store.get(OLD) == b"state" and os.listdir(root / Path(OLD).parent) == ["a"]
        if at >= 0:
            break
    assert at >= 0 and swept >= 4, "at the beginning, and behind each folder that it has opened or made"


def test_a_folder_that_has_gone_at_a_server_of_files_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What NFS says to who has a folder open that another machine has removed."""
    store, real, left = DirectoryStore(str(tmp_path)), os.open, 2

    def stale(path: str, flags: int, *more: int, dir_fd: int | None = None) -> int:
        nonlocal left
        if path.endswith(".tmp") and left:
            left -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path, flags, *more, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", stale)
        store.put(OLD, b"state")
    assert left == 0 and store.get(OLD) == b"state"


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_stale_is_not_there_only_if_its_name_is_not(gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who lists beside a sweep at another machine sees what stays, and what a server of files cannot find is not taken for lost."""
    store, real = DirectoryStore(str(tmp_path)), os.scandir
    for name in (OLD, MADE):
        store.put(name, b"state")
    stale = tmp_path / Path(OLD).parent

    def scandir(folder: int) -> object:
        if stale.exists() and os.path.samestat(os.fstat(folder), stale.stat()):
            if gone:
                (stale / "a").unlink()
                stale.rmdir()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    for look in (lambda: store.sizes("checkpoints/"), lambda: store.clear("checkpoints/", lambda name: False)):
        if gone:
            assert look() in ({MADE: 5}, 0)
            store.put(OLD, b"again")
        else:
            with pytest.raises(OSError, match="[Ss]tale"):
                look()


def test_a_location_that_cannot_be_made_is_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "location").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        DirectoryStore(str(tmp_path / "location")).put(OLD, b"state")


# ------------------------------------------------ no room, no right, no links

FILLS = """
import errno
number = 0
try:
    while number < 1000:
        store.create(f"journal/{number:06d}", b"x" * 20_000)
        number += 1
except OSError as error:
    print(errno.errorcode[error.errno], number, [len(store.get(name)) for name in store.names()] == [20_000] * number)
from evenflow.errors import LocationError
from evenflow.store.opening import probe
for _ in range(2):
    try:
        probe(store)
        store.create("rest", b"x" * 4096)
    except LocationError as error:
        print("make room there" in str(error))
        break
    except OSError:
        pass
"""


def test_on_a_full_disk_nothing_torn_is_seen(tmp_path: Path) -> None:
    """A file system of 200 KB in a namespace of its own."""
    mounted = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=200k none {tmp_path} && exec "$@"', "sh")
    if subprocess.run([*mounted, "true"], check=False, capture_output=True).returncode:
        pytest.skip("an ordinary user may not mount a file system of his own here")
    with run(FILLS, str(tmp_path), before=mounted) as writer:
        out, err = writer.communicate()
    assert writer.returncode == 0, err
    code, number, as_written, advised = out.split()
    assert code == "ENOSPC" and int(number) > 0 and (as_written, advised) == ("True", "True")


def test_a_writer_beyond_its_limit_leaves_nothing(tmp_path: Path) -> None:
    limited = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from evenflow.errors import LocationError
store.create("small", bytes(1000))
try:
    store.create("large", bytes(1001))
except OSError as error:
    print(error.errno, store.sizes(), sorted(os.listdir(sys.argv[1])))
"""
    with run(limited, str(tmp_path)) as writer:
        out, err = writer.communicate()
    assert out == f"{errno.EFBIG} {{'small': 1000}} ['small']\n", err


def test_a_location_on_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    mounted = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o ro none {tmp_path} && exec "$@"', "sh")
    if subprocess.run([*mounted, "true"], check=False, capture_output=True).returncode:
        pytest.skip("an ordinary user may not mount a file system of his own here")
    text = "from evenflow.store.location import open_location\nopen_location(sys.argv[1], 'flow', '1')"
    with run(text, str(tmp_path), before=mounted) as writer:
        _, err = writer.communicate()
    assert "LocationError" in err and "give the user of the driver" in err


def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only disk is for that")
    tmp_path.chmod(0o500)
    with pytest.raises(LocationError, match="give the user of the driver"):
        probe(open_store(str(tmp_path)))


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*arguments: object, **named: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)  # As vfat and some network file systems answer.
    with pytest.raises(LocationError, match=r"no hard links.*cannot create an object only if there is none"):
        probe(open_store(str(tmp_path)))
    assert DirectoryStore(str(tmp_path)).names() == []


def test_a_link_whose_answer_was_lost_is_known_as_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of NFS repeats a request; the server says that the name is taken, by the first one."""
    link = os.link

    def twice(*arguments: str, **named: int) -> None:
        link(*arguments, **named)  # type: ignore[arg-type]
        link(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", twice)
    store = DirectoryStore(str(tmp_path))
    store.create("journal/1", b"mine")
    assert store.get("journal/1") == b"mine"
    monkeypatch.undo()
    with pytest.raises(FileExistsError):
        store.create("journal/1", b"mine")


def test_a_file_in_the_place_of_the_location_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LocationError, match="choose another location"):
        probe(open_store(str(tmp_path / "file")))
    with pytest.raises(LocationError, match="choose another location"):
        probe(open_store(str(tmp_path / "file" / "below")))


# ------------------------------------------------ what others have put there


def test_nothing_that_is_no_file_is_read_followed_or_listed(tmp_path: Path) -> None:
    root, secret = tmp_path / "location", tmp_path / "secret"
    secret.mkdir()
    (secret / "a").write_text("not yours")
    store = DirectoryStore(str(root))
    store.create("journal/1", b"one")
    (root / "journal" / "2").symlink_to(secret / "a")
    (root / "away").symlink_to(secret)
    os.mkfifo(root / "journal" / "3")
    (root / "journal" / ".hidden").write_text("x")
    (root / "journal" / "4").mkdir()
    assert store.names() == ["journal/1"] and store.names("away/") == []
    for name in ("journal/2", "journal/3", "journal/4", "away/a"):
        with pytest.raises(OSError, match=r"no file|Too many levels|Not a directory|Is a directory"):
            store.get(name)
    with pytest.raises(OSError, match="Not a directory"):
        store.create("away/b", b"x")
    with pytest.raises(FileExistsError):
        store.create("journal/2", b"x")
    store.put("journal/2", b"two")
    assert (secret / "a").read_text() == "not yours" and sorted(os.listdir(secret)) == ["a"]
    assert store.get("journal/2") == b"two"


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(str(tmp_path))
    store.create("a", bytes(10))
    facts = os.fstat

    def grows(file: int) -> os.stat_result:
        found = facts(file)
        with open(tmp_path / "a", "ab") as more:
            more.write(bytes(100_000))
        return found

    monkeypatch.setattr(os, "fstat", grows)
    with pytest.raises(OSError, match="more than 50 bytes"):
        store.get("a", 50)


def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path / "above" / "location"))
    store.create("journal/1", b"x")
    made = [tmp_path / "above" / "location", tmp_path / "above" / "location" / "journal"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o700]
    assert stat.S_IMODE((made[1] / "1").stat().st_mode) == 0o600


def test_a_directory_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o750)
    DirectoryStore(str(tmp_path / "shared")).create("a", b"x")
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o750
