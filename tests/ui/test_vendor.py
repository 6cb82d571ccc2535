"""What is bundled is what the manifest says, and was made of what lies in tools/ui; a wheel has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from evenflow.monitor.web.files import STATIC, files

ROOT = Path(__file__).resolve().parents[2]
VENDOR = STATIC / "vendor"
MANIFEST: dict[str, Any] = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
FREE = {"MIT", "Apache-2.0", "ISC", "BSD-3-Clause"}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_has_its_hash_and_there_is_no_other() -> None:
    there = {path.name: digest(path) for path in VENDOR.iterdir() if path.name != "manifest.json"}
    assert {name: each["sha256"] for name, each in MANIFEST["files"].items()} == there


@pytest.mark.parametrize("name", MANIFEST["sources"])
def test_it_was_made_of_what_lies_in_tools(name: str) -> None:
    assert digest(ROOT / "tools" / "ui" / name) == MANIFEST["sources"][name], "run python tools/vendor_ui.py"


def test_packages_are_those_of_the_lock_file_and_free_and_their_licences_are_there() -> None:
    lock = json.loads((ROOT / "tools" / "ui" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    texts = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    assert {name for each in MANIFEST["files"].values() for name in each["packages"]} == set(MANIFEST["packages"])
    for name, told in MANIFEST["packages"].items():
        assert (told["version"], told["integrity"]) == (lock[f"node_modules/{name}"]["version"], lock[f"node_modules/{name}"]["integrity"])
        assert told["license"] in FREE
        assert f"{name} {told['version']} ({told['license']})" in texts


def test_it_is_small_enough_for_a_first_look() -> None:
    """At most 450 KB packed for the page, without the editor's."""
    assert (
        sum(len(file.packed) for name, file in files().items() if not name.startswith("vendor/code") and name != "vendor/LICENSES.txt")
        < 450_000
    )
    assert sum(path.stat().st_size for path in VENDOR.glob("*.[jc]s*")) < 920_000


def test_nothing_names_another_host() -> None:
    """No module of ours names an address that a browser would ask; those of the libraries are texts of errors and names of XML."""
    for name, file in files().items():
        if name.startswith("vendor/"):
            continue
        text = file.plain.decode()
        assert "https://" not in text and "http://" not in text.replace("http://www.w3.org/2000/svg", ""), name
