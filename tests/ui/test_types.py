"""The pages' own modules are what their JSDoc types say, by TypeScript's compiler; and the compiler does find what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.check_types import STATIC, faults, stubs


@pytest.mark.conformance
def test_types_of_our_modules_hold(tmp_path: Path) -> None:
    assert faults() == []
    for module in STATIC.glob("*.js"):
        shutil.copy(module, tmp_path)
    wrong = tmp_path / "format.js"
    wrong.write_text(wrong.read_text() + "\n/** @param {number} value */\nexport const twice = (value) => value * 2;\ntwice('2');\n")
    (fault,) = faults(tmp_path)
    assert fault.startswith("format.js(") and "not assignable to parameter of type 'number'" in fault


def test_of_a_bundle_is_known_what_is_taken_from_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")]
    found = stubs(texts)
    assert found.keys() == {"flow", "plot", "code"} and "export const ReactFlow: any;" in found["flow"]
