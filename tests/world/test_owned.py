"""What dead owners have left is told from what the living have: real processes, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenflow.world.owned import OWNER, OwnedDirectory, Owner, abandoned, is_owned
from evenflow.world.spark.cluster import leftovers
from evenflow.world.spark.cluster.leftovers import INGEST, SESSION
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.control_client import Address

PROGRAM = """
import os, signal, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Which `nohup make test` ignores.
from evenflow.world.owned import OwnedDirectory
from evenflow.world.spark.driver.control_client import Address, write
from evenflow.world.spark.cluster.leftovers import INGEST, SESSION
for prefix in (SESSION, INGEST):
    (OwnedDirectory(prefix).path / "inside").mkdir()
owned = write(Address(f"engine-{os.getpid()}", "app", os.getpid(), "127.0.0.1", 1, b"x" * 32))
print("there", flush=True)
threading.Event().wait()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("EVENFLOW_CONTROL_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def driver(temporary: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns all that a driver may own."""
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ":".join(sys.path)})
    with child:
        assert child.stdout is not None and child.stdout.readline() == b"there\n"
        yield child
        child.kill()


def names(directory: Path) -> list[str]:
    shared = directory / f"evenflow-{os.geteuid()}"
    return sorted(p.name.rsplit("-", 2)[0] for p in directory.iterdir() if p != shared) + sorted(p.name for p in shared.glob("*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.timeout(60)
def test_the_next_start_removes_what_a_killed_driver_has_left(
    driver: subprocess.Popen[bytes], temporary: Path, number: signal.Signals
) -> None:
    before = names(temporary)
    assert before == ["evenflow-ingest", "evenflow-session", f"engine-{driver.pid}.json"]
    leftovers.clear()
    control_client.clear()
    assert names(temporary) == before, "it lives"
    driver.send_signal(number)
    driver.wait(30)
    leftovers.clear()
    control_client.clear()
    assert names(temporary) == []


def test_nothing_else_is_removed(temporary: Path) -> None:
    """Who has no owner's file proves nothing, whatever its name and number; nor does a link, or what has another name."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(30)
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER).touch()
    (temporary / f"{SESSION}{child.pid}-x").mkdir()
    (temporary / f"{INGEST}{child.pid}-link").symlink_to(elsewhere)
    (temporary / f"{SESSION}{child.pid}-file").touch()
    strange = control_client.control_directory() / "strange.json"
    strange.write_text("{}")
    before = sorted(temporary.rglob("*"))
    leftovers.clear()
    control_client.clear()
    assert sorted(temporary.rglob("*")) == before


def test_an_owner_is_one_until_it_says_otherwise(temporary: Path) -> None:
    owner = Owner(temporary / "file", "said")
    assert is_owned(owner.path) and owner.path.read_text() == "said"
    assert os.stat(owner.path).st_mode & 0o777 == 0o600
    owner.release()
    owner.release()
    assert not owner.path.exists()
    directory = OwnedDirectory("evenflow-mine-", "a text")
    assert list(abandoned("evenflow-mine-")) == []
    os.close(directory._owner._fd)
    directory._owner._fd = -1
    assert list(abandoned("evenflow-mine-")) == [(directory.path, "a text")]
    directory.remove()
    assert not directory.path.exists()


def test_an_engine_whose_process_has_gone_is_not_found(driver: subprocess.Popen[bytes]) -> None:
    """Its number may be another process's by now."""
    assert [address.pid for address in control_client.engines()] == [driver.pid]
    path = control_client.control_directory() / f"engine-{driver.pid}.json"
    driver.kill()
    driver.wait(30)
    path.write_text(Address("engine", "app", os.getpid(), "127.0.0.1", 1, b"x" * 32).to_json())
    assert control_client.engines() == []
    assert not path.exists()


def test_who_cannot_remove_its_file_ends_all_the_same(temporary: Path) -> None:
    """An engine that stops lets go of its sites behind it. Method: where the file was is a directory."""
    owner = Owner(temporary / "file")
    (temporary / "file").unlink()
    (temporary / "file").mkdir()
    owner.release()
    assert (temporary / "file").is_dir() and owner._fd == -1
