"""docs/options.md and docs/cli.md say what the code says."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import evenflow as ef
from evenflow.cli.app import app
from evenflow.world.spark.driver.options import EngineOptions

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows_of(page: str, heading: str) -> dict[str, list[str]]:
    """The cells behind the first one, by the first one's code, of the table under a heading."""
    section = re.split(r"^##+ ", (DOCS / page).read_text(encoding="utf-8").partition(heading)[2], flags=re.MULTILINE)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    firsts = [first for first, *_ in cells]
    assert len(firsts) == len(set(firsts)), f"{page} has a row twice: {firsts}"
    return {first.strip("`"): rest for first, *rest in cells}


def test_options_of_the_engine() -> None:
    found = {name: cells[0] for name, cells in rows_of("options.md", "## Engine").items()}
    assert found == {field.name: str(field.default) for field in dataclasses.fields(EngineOptions)}


def written(parameter: inspect.Parameter) -> str:
    return f"`{parameter.name}`" if parameter.default is parameter.empty else f"`{parameter.name}={parameter.default!r}`"


@pytest.mark.parametrize(("heading", "module"), [("## Sources", ef.sources), ("## Sinks", ef.sinks)])
def test_options_of_sources_and_sinks(heading: str, module: Any) -> None:
    rows = rows_of("options.md", heading)
    offered = {name for name in module.__all__ if name[0].islower()} - {"from_json", "schema_from_json", "schema_to_json", "read_committed"}
    assert set(rows) == offered
    for name, (arguments,) in rows.items():
        assert arguments == ", ".join(written(p) for p in inspect.signature(getattr(module, name)).parameters.values())


COMMANDS = {name: f"## `evenflow {name}" for name in ("demo", "run", "plan", "sql", "policy", "bench", "experiment")}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_commands_and_their_defaults(name: str) -> None:
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    command = command.commands["cost"] if name == "bench" else command
    text = {code: cells[0] for first, cells in rows_of("cli.md", COMMANDS[name]).items() for code in re.findall(r"--[a-z][a-z-]*", first)}
    for option in command.params:
        if option.param_type_name != "option" or option.name == "help":
            continue
        flag = option.opts[0]
        assert flag in text, f"{name} {flag} is not in docs/cli.md"
        default = ("on" if option.default else "off") if option.is_flag else "none" if option.default is None else str(option.default)
        shown = text[flag].strip("`")
        assert shown == "as for demo" or shown.replace("`", "") == "as for demo" or float_or_text(shown) == float_or_text(default)


OPERATIONS = ("sites", "drain", "add-sites", "remove-sites", "rebalance", "pin", "repartition", "availability")


@pytest.mark.parametrize("name", OPERATIONS)
def test_options_of_operations(name: str) -> None:
    """They share one table."""
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    told = {code for first in rows_of("cli.md", "## `evenflow sites`") for code in re.findall(r"--[a-z]+", first)}
    assert {option.opts[0] for option in command.params if option.param_type_name == "option" and option.name != "help"} <= told


def float_or_text(text: str) -> float | str:
    return float(text) if re.fullmatch(r"[\d.]+", text) else text
