"""What the tests run with at the floors is every extra at its lowest version, and every tool that tests import."""

from __future__ import annotations

import tomllib

from tests.tools.test_records import ROOT, tool

FLOORS = tool("floors")


def test_every_extra_is_installed_at_its_lowest_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = FLOORS.requirements()
    for name, declared in project["optional-dependencies"].items():
        for each in declared if name != "dev" else ():
            assert FLOORS.pinned(each) in found, each
    assert any(each.startswith("kubernetes-validate") for each in found)
    assert not any(each.startswith(("evenflow", "ruff", "mypy")) for each in found)
