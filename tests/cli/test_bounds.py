"""Every option of every command: numbers that are none, and paths that cannot be, are wrong usage before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evenflow.cli.app import USAGE_ERROR, command, main


def leaves(found: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for each, below in getattr(found, "commands", {}).items():
        yield from leaves(below, f"{name} {each}".strip())
    if not getattr(found, "commands", None):
        yield name, found


OPTIONS = [(name, leaf, p) for name, leaf in leaves(command()) for p in leaf.params if p.param_type_name == "option" and not p.is_flag]
NUMBERS = ("nan", "inf", "-inf", "1e300", "1" * 30, "-" + "1" * 30, "abc", "", "a\0b")
PATHS = ("", " ", "a\0b")


@pytest.mark.parametrize(("name", "leaf", "option"), OPTIONS, ids=[f"{name} {option.opts[0]}" for name, _, option in OPTIONS])
def test_a_value_that_an_option_cannot_have_is_wrong_usage(name: str, leaf: Any, option: Any) -> None:
    """What it is made of shows in what a good value becomes."""
    arguments = ["x" for p in leaf.params if p.param_type_name == "argument" and p.required]

    def taken(value: str) -> Any:
        context = leaf.make_context(name, [*arguments, f"{option.opts[0]}={value}"], resilient_parsing=False)
        return context.params[option.name]

    try:
        kind = taken("7")
    except USAGE_ERROR:
        return  # One of some words, or arguments of another kind.
    kind = kind[0] if isinstance(kind, list | tuple) and kind else kind
    wrong = NUMBERS if isinstance(kind, int | float) else PATHS
    for value in wrong:
        with pytest.raises(USAGE_ERROR):
            taken(value)


def test_a_command_ends_with_code_2_and_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "file.py", "--timeout", "inf"])
    assert ended.value.code == 2
    assert "inf is not a number" in capfd.readouterr().err
