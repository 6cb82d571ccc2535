"""An action or a message that a world forgets is a type error: whoever carries them out ends with `assert_never`, which mypy reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import evenflow

WORLD = Path(evenflow.__file__).parent / "world"
CARRIED_OUT = {
    "actions of a site": ("sim/site.py:_carry_out", "spark/part_runner.py:_carry_out"),
    "actions of a site's peers": ("sim/site.py:handle_peers", "spark/links.py:_handle"),
    "actions of a run": ("sim/driver.py:_obey", "spark/run_loop.py:_handle"),
    "actions of a fleet": ("sim/driver.py:observe", "spark/driver_loop.py:_carry_out"),
    "words of the driver": ("spark/site.py:_told",),
    "words of a site": ("spark/driver_loop.py:_heard", "spark/run_loop.py:hear"),
}


def matches(where: str) -> list[ast.Match]:
    name, function = where.split(":")
    world, module = name.split("/")
    [path] = WORLD.glob(f"{world}/**/{module}")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    return [node for each in found for node in ast.walk(each) if isinstance(node, ast.Match)]


@pytest.mark.parametrize("where", [where for places in CARRIED_OUT.values() for where in places])
def test_nothing_is_forgotten_in_silence(where: str) -> None:
    found = matches(where)
    assert len(found) == 1
    last = found[0].cases[-1]
    assert ast.unparse(last.pattern) == "_" and last.guard is None
    assert [ast.unparse(line) for line in last.body] == [f"assert_never({ast.unparse(found[0].subject)})"]
    assert not [case for case in found[0].cases[:-1] if ast.unparse(case.pattern) == "_"]
