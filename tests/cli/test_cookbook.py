"""docs/cookbook.md: each recipe runs, in the simulator, and gives the rows that the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.test_operator_docs import EXAMPLE, results
from tests.conftest import shared_data

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cookbook.md"
TRACE = re.compile(r'"((?:\w+)\.(?:tsv|parquet))"')
RECIPES = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split("\n")[0].split(":")[0])
def test_a_recipe_gives_what_the_page_shows(recipe: str) -> None:
    ((code, expected),) = EXAMPLE.findall(recipe)
    code = TRACE.sub(lambda found: repr(str(shared_data(found[1]))), code)
    assert results(code, PAGE) == expected
