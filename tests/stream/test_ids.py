"""A site's number has a type of its own where it stands beside other numbers, so that two in the wrong order do not type-check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import evenflow

PACKAGE = Path(evenflow.__file__).parent
ROOMS = ("plan", "exchange", "site", "coordinator")
NAMES = {"site", "peer", "target"}
PLAIN = {"coordinator/detector.py", "coordinator/effects.py", "coordinator/events.py", "coordinator/fleet.py", "site/peers.py"}
"""Modules in which some are plain still: there a site's number meets no other, or is for people. May only shrink."""


def plain(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        name = (
            node.arg
            if isinstance(node, ast.arg)
            else node.target.id
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            else ""
        )
        if name in NAMES and node.annotation is not None and ast.unparse(node.annotation) == "int":
            yield name


def test_sites_are_no_plain_numbers_in_the_cores() -> None:
    found = {str(module.relative_to(PACKAGE)) for room in ROOMS for module in (PACKAGE / room).rglob("*.py") if any(plain(module))}
    assert found == PLAIN, "what is typed now leaves the list; what is new is `SiteId`"
