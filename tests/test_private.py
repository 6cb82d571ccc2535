"""Another user of the machine makes a directory of ours first: nothing is taken from it, and nothing put there."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from evenflow import private
from evenflow.errors import EngineUnreachable
from evenflow.kernels import cache
from evenflow.private import NotPrivate, only_ours, private_directory, scratch_directory, shared_directory
from evenflow.world.spark.cluster import ship
from evenflow.world.spark.driver import control_client

NOBODY = 65534


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private, "_own", {})
    for name in ("EVENFLOW_CONTROL_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def readable_by_others(path: Path) -> None:
    path.mkdir(mode=0o755)


def link(path: Path) -> None:
    """To a directory that would do by itself."""
    target = path.with_name("target")
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("not there yet"))


def file(path: Path) -> None:
    path.touch(mode=0o600)


def of_another_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)


TAKEN = [open_to_others, readable_by_others, link, dangling_link, file, of_another_user]
Taker = Callable[[Path], None]


def ours(temporary: Path) -> Path:
    return temporary / f"evenflow-{os.geteuid()}"


def test_it_is_made_for_its_owner_only_and_found_again(temporary: Path) -> None:
    before = os.umask(0)
    try:
        made = shared_directory()
    finally:
        os.umask(before)
    assert made == ours(temporary) == scratch_directory()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.parametrize("take", TAKEN)
def test_who_was_there_first_is_not_trusted(temporary: Path, take: Taker) -> None:
    path = temporary / "wanted"
    take(path)
    with pytest.raises(NotPrivate, match=str(path)):
        private_directory(path)


def test_a_parent_in_which_everybody_may_rename_is_not_trusted(temporary: Path) -> None:
    temporary.chmod(0o777)
    with pytest.raises(NotPrivate, match="sticky"):
        private_directory(temporary / "wanted")
    temporary.chmod(0o1777)
    assert private_directory(temporary / "wanted").is_dir()


@pytest.mark.parametrize("take", TAKEN)
def test_where_the_name_is_taken_a_process_has_a_directory_of_its_own(temporary: Path, take: Taker) -> None:
    take(ours(temporary))
    own = scratch_directory()
    assert own != ours(temporary) and own.parent == temporary and own == scratch_directory()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700 and own.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("take", TAKEN)
def test_the_package_is_not_left_where_others_can_change_it(temporary: Path, take: Taker) -> None:
    take(ours(temporary))
    _, archive = ship.archive()
    assert archive.is_file() and archive.parent.parent == temporary
    assert stat.S_IMODE(archive.parent.lstat().st_mode) == 0o700


@pytest.mark.parametrize("take", TAKEN)
def test_compiled_kernels_are_not_read_from_it(temporary: Path, monkeypatch: pytest.MonkeyPatch, take: Taker) -> None:
    monkeypatch.setattr(cache, "_NUMBAS", ())
    take(ours(temporary))
    cache._place.cache_clear()
    try:
        _, found = cache._place()
        assert found is not None and ours(temporary) not in found.parents and stat.S_IMODE(found.stat().st_mode) == 0o700
    finally:
        cache._place.cache_clear()


@pytest.mark.parametrize("take", TAKEN)
def test_no_secret_is_written_to_it_and_no_address_read_from_it(temporary: Path, take: Taker) -> None:
    take(ours(temporary))
    with pytest.raises(EngineUnreachable, match="EVENFLOW_CONTROL_DIR"):
        control_client.write(control_client.Address("e", "name", os.getpid(), "127.0.0.1", 1, b"secret"))
    with pytest.raises(EngineUnreachable, match="EVENFLOW_CONTROL_DIR"):
        control_client.find()


def test_a_package_beside_the_driver_counts_only_where_nobody_else_can_write(tmp_path: Path) -> None:
    package = tmp_path / "src" / "evenflow"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        each.chmod(0o755)
    assert only_ours(package)
    for each in (package, package.parent):
        for mode in (0o777, 0o775):
            each.chmod(mode)
            assert not only_ours(package), "others may, or a group's members"
        each.chmod(0o755)
    assert only_ours(package)
    assert not only_ours(tmp_path / "not there")


def test_a_package_beside_the_driver_of_another_user_does_not_count(tmp_path: Path) -> None:
    package = tmp_path / "src" / "evenflow"
    package.mkdir(parents=True)
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    os.chown(package.parent, NOBODY, NOBODY)
    assert not only_ours(package)
